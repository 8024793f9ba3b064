#!/usr/bin/env python3
"""Makes target/dist/ftsort-VERSION.tar.gz: the files of the repository and the sources of all crates that they need.

The archive builds without network: `.cargo/config.toml` in it directs cargo to the folder `vendor`. With `--check` the
script unpacks the archive and builds and installs it by CMake, with cargo offline and an empty home for its registry.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

import abi

ROOT = pathlib.Path(__file__).resolve().parent.parent
DIST = ROOT / "target" / "dist"

#: The configuration of cargo in the archive.
SOURCES = """[source.crates-io]
replace-with = "vendored-sources"

[source.vendored-sources]
directory = "vendor"
"""


def name():
    return "ftsort-" + ".".join(map(str, abi.version()))


def files():
    """Returns the files of the repository, new ones included."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, text=True,
                            capture_output=True, check=True)
    return [path for path in sorted(listed.stdout.splitlines()) if (ROOT / path).is_file()]


def make():
    """Makes the archive, and returns its path."""
    DIST.mkdir(parents=True, exist_ok=True)
    archive = DIST / f"{name()}.tar.gz"
    with tempfile.TemporaryDirectory(dir=DIST) as folder:
        tree = pathlib.Path(folder, name())
        for path in files():
            target = tree / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, target)
        vendored = subprocess.run(["cargo", "vendor", "--locked", "--quiet", "vendor"], cwd=tree, text=True,
                                  capture_output=True)
        if vendored.returncode != 0:
            sys.exit(f"cargo vendor: {vendored.stderr}")
        (tree / ".cargo").mkdir(exist_ok=True)
        (tree / ".cargo" / "config.toml").write_text(SOURCES)
        with tarfile.open(archive, "w:gz", compresslevel=6) as file:
            file.add(tree, arcname=name())
    print(f"{archive.relative_to(ROOT)}: {archive.stat().st_size / (1 << 20):.1f} MB")
    return archive


def check(archive):
    """Builds and installs the archive without network, and compiles a program against the installed copy."""
    with tempfile.TemporaryDirectory(prefix="ftsort-dist-") as name_of_folder:
        folder = pathlib.Path(name_of_folder)
        with tarfile.open(archive) as file:
            file.extractall(folder)
        environment = dict(os.environ, CARGO_NET_OFFLINE="true", CARGO_HOME=str(folder / "cargo-home"))
        # The toolchain stays where it is; only the registry of cargo is empty.
        environment.setdefault("RUSTUP_HOME", str(pathlib.Path.home() / ".rustup"))
        environment.pop("CARGO_TARGET_DIR", None)
        mpicc, prefix = shutil.which(os.environ.get("MPICC", "mpicc")), folder / "prefix"
        for command in (
                ["cmake", "-S", folder / name(), "-B", folder / "build", f"-DMPI_C_COMPILER={mpicc}",
                 f"-DCMAKE_INSTALL_PREFIX={prefix}", "-DCMAKE_INSTALL_LIBDIR=lib", "-DFTSORT_EXAMPLES=OFF",
                 "-DFTSORT_CARGO_PROFILE=dev"],
                ["cmake", "--build", folder / "build"], ["cmake", "--install", folder / "build"],
                [mpicc, prefix / "share/ftsort/examples/hello.c", f"-I{prefix / 'include'}",
                 f"-L{prefix / 'lib'}", "-lftsort", "-o", folder / "hello"]):
            done = subprocess.run(list(map(str, command)), env=environment, text=True, capture_output=True)
            if done.returncode != 0:
                sys.exit(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    print("the archive builds and installs without network")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="build the archive without network")
    chosen = parser.parse_args()
    archive = make()
    if chosen.check:
        check(archive)


if __name__ == "__main__":
    main()
