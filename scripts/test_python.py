#!/usr/bin/env python3
"""Runs the tests of the Python package with the release library, or with an installed wheel (`--wheel`).

The packages that the tests need are installed into the environment folder when they are first used. With `--wheel` a
fresh virtual environment gets the wheel of target/wheels with the packages that it names, as a user would install it,
and pytest. Further arguments are those of pytest. Every job of mpirun has a time limit of its own.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import launch
import python_env

LIMIT_SECONDS = 1200


def run(python, folder, arguments, **variables):
    """Runs pytest in a folder of the package, and returns its exit status."""
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, "tests"]
    environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", **variables)
    try:
        return subprocess.run(command, cwd=folder, env=environment, timeout=LIMIT_SECONDS).returncode
    except subprocess.TimeoutExpired:
        sys.exit(f"the tests did not end within {LIMIT_SECONDS} s")


def test_wheel(arguments):
    """Installs the wheel into a fresh environment, and runs the tests of the repository with it."""
    wheels = sorted((launch.ROOT / "target" / "wheels").glob("ftsort-*.whl"))
    if not wheels:
        sys.exit("target/wheels has no wheel: run `make wheel` first")
    for name in ("PYTHONPATH", "FTSORT_LIBRARY"):
        os.environ.pop(name, None)
    with tempfile.TemporaryDirectory(prefix="ftsort-wheel-") as folder:
        python = python_env.make(pathlib.Path(folder), wheels[-1], "pytest")
        return run(python, python_env.PACKAGE, arguments)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", action="store_true", help="test the wheel of target/wheels in a fresh environment")
    options, arguments = parser.parse_known_args()
    if options.wheel:
        sys.exit(test_wheel(arguments))
    library = os.environ.get("FTSORT_LIBRARY") or launch.library_dir() / "libftsort.so"
    sys.exit(run(python_env.python(), python_env.PACKAGE, arguments, FTSORT_LIBRARY=str(library),
                 PYTHONPATH=str(python_env.PACKAGE / "src")))


if __name__ == "__main__":
    main()
