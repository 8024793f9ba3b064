#!/usr/bin/env python3
"""Installs the library with CMake and builds programs against the installed copy, as users would.

Builds programs outside the tree in C and C++, and in Fortran where gfortran is installed, with CMake's find_package, with
pkg-config and with plain mpicc, against the shared and the static library, and runs each. Runs the tests of the CMake
build too, and checks the sizes of the optimised libraries.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import launch

LIMIT = 60

CONSUMER = """
cmake_minimum_required(VERSION 3.16)
# find_package enables C.
project(consumer CXX)
find_package(ftsort REQUIRED)
add_executable(shared hello.c)
target_link_libraries(shared PRIVATE ftsort::ftsort)
add_executable(static hello.c)
target_link_libraries(static PRIVATE ftsort::ftsort_static)
add_executable(cpp hello.cpp)
target_compile_features(cpp PRIVATE cxx_std_17)
target_link_libraries(cpp PRIVATE ftsort::ftsort)
if(TARGET ftsort::ftsort_fortran)
  enable_language(Fortran)
  add_executable(fortran hello.f90)
  target_link_libraries(fortran PRIVATE ftsort::ftsort_fortran)
endif()
"""

MEGABYTE = 1 << 20
# The largest sizes of the optimised libraries. Debug information is in a file of its own.
LARGEST = {"libftsort.so": 4.5 * MEGABYTE, "libftsort.a": 25 * MEGABYTE}


def run(*command, **options):
    """Runs a command and returns its output. If the command fails, prints the output and ends the script."""
    command = [str(word) for word in command]
    # readelf prints the checksum in .gnu_debuglink as bytes.
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def run_mpirun(*command):
    """Runs a command that starts mpirun, again if mpirun could not start a rank; ends the script if it fails."""
    TRIES = 3
    shown = " ".join(map(str, command))
    for _ in range(TRIES):
        try:
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=5 * LIMIT)
        except subprocess.TimeoutExpired as expired:
            sys.exit(f"{shown}: not finished in {5 * LIMIT} s\n{expired.stdout}{expired.stderr}")
        if done.returncode == 0:
            return
        text = done.stdout + done.stderr
        if launch.NOT_STARTED not in text:
            break
    sys.exit(f"{shown}: {done.returncode}\n{text}")


def works(program, how, by_block=False):
    """Checks that a program sorts on two ranks, and on the survivors when one rank of three is killed.

    The program prints a line for each rank, or for each block (`by_block`).
    """
    for ranks, faults, survivors in ((2, "", 2), (3, "1@1", 2)):
        done = launch.launch(ranks, [program], LIMIT, faults)
        correct = done.output.count(", in order")
        # The hypercube has a node for each rank, and as many as make a power of two.
        expected = 1 << (ranks - 1).bit_length() if by_block else survivors
        if done.hung or correct != expected:
            limit = f", not finished in {LIMIT} s" if done.hung else ""
            sys.exit(f"{how}, FTSORT_FAULTS={faults!r}{limit}: {correct} of {expected} parts of the result are sorted\n"
                     f"{done.output}{done.stacks}")
    print(f"  {how}: works", flush=True)


def has_fortran():
    return shutil.which("gfortran") is not None


def check_sizes(libraries):
    """Checks the sizes of the installed libraries, and that the shared one names its debug file."""
    for name, largest in LARGEST.items():
        size = (libraries / name).stat().st_size
        if size > largest:
            sys.exit(f"{name} has {size / MEGABYTE:.1f} MB, which is more than {largest / MEGABYTE}")
        print(f"  {name}: {size / MEGABYTE:.1f} MB", flush=True)
    debug = next((libraries / ".debug").glob("libftsort.so.*.debug")).name
    if debug not in run("readelf", "--string-dump=.gnu_debuglink", libraries / "libftsort.so"):
        sys.exit(f"libftsort.so does not name its debug file {debug}")


def install(folder, profile, features):
    """Builds and installs the library, and returns the prefix and mpicc. Moves the installed tree once, as a test."""
    build, first, prefix = folder / "build", folder / "first", folder / "prefix"
    mpicc = shutil.which(os.environ.get("MPICC", "mpicc"))
    options = [f"-DMPI_C_COMPILER={mpicc}", f"-DCMAKE_INSTALL_PREFIX={first}", f"-DFTSORT_CARGO_PROFILE={profile}",
               f"-DFTSORT_CARGO_FEATURES={features}", f"-DFTSORT_FORTRAN={'ON' if has_fortran() else 'OFF'}"]
    if "CARGO_TARGET_DIR" in os.environ:
        options.append(f"-DFTSORT_CARGO_TARGET_DIR={os.environ['CARGO_TARGET_DIR']}")
    run("cmake", "-S", launch.ROOT, "-B", build, *options)
    run("cmake", "--build", build)
    run_mpirun("ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error")
    print("  ctest in the build tree: works", flush=True)
    run("cmake", "--install", build)
    first.rename(prefix)
    return prefix, mpicc


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="release", help="cargo's profile for the library")
    parser.add_argument("--features", default="", help="further features of the library")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ftsort-install-") as name:
        folder = pathlib.Path(name)
        prefix, mpicc = install(folder, chosen.profile, chosen.features)
        libraries = next(prefix.glob("lib*/libftsort.so")).parent
        consumer = folder / "consumer"
        consumer.mkdir()
        if chosen.profile == "release":
            check_sizes(libraries)
        examples = prefix / "share/ftsort/examples"
        for example in ("hello.c", "languages/hello.cpp", "languages/hello.f90"):
            shutil.copy(examples / example, consumer)
        (consumer / "CMakeLists.txt").write_text(CONSUMER)
        run("cmake", "-S", consumer, "-B", consumer / "build", f"-DCMAKE_PREFIX_PATH={prefix}",
            f"-DMPI_C_COMPILER={mpicc}", f"-DMPI_CXX_COMPILER={shutil.which('mpicxx')}")
        run("cmake", "--build", consumer / "build")
        works(consumer / "build/shared", "find_package, shared")
        works(consumer / "build/static", "find_package, static")
        works(consumer / "build/cpp", "find_package, C++")
        if has_fortran():
            works(consumer / "build/fortran", "find_package, Fortran", by_block=True)
        else:
            print("  gfortran is not installed: the Fortran module was not tested")

        for header in sorted((launch.ROOT / "include").rglob("*.h*")):
            installed = prefix / "include" / header.relative_to(launch.ROOT / "include")
            if not installed.is_file():
                sys.exit(f"{header.name} is not installed")
            for compiler, language in ((mpicc, "c"), (shutil.which("mpicxx"), "c++")):
                if compiler and (language == "c++" or header.suffix == ".h"):
                    run(compiler, "-x", language, "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-include",
                        installed, "/dev/null")
        print("  every installed header compiles alone", flush=True)
        licence = prefix / "share/doc/ftsort/LICENSE"
        if not licence.is_file() or licence.read_text() != (launch.ROOT / "LICENSE").read_text():
            sys.exit(f"the licence is not installed as {licence.relative_to(prefix)}")

        hello, rpath = consumer / "hello.c", f"-Wl,-rpath,{libraries}"
        run(mpicc, hello, "-o", consumer / "plain", f"-I{prefix / 'include'}", f"-L{libraries}", "-lftsort", rpath)
        works(consumer / "plain", "mpicc, shared")
        system = "-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc".split()
        run(mpicc, hello, "-o", consumer / "plain_static", f"-I{prefix / 'include'}", libraries / "libftsort.a", *system)
        works(consumer / "plain_static", "mpicc, static")

        if shutil.which("pkg-config"):
            environment = dict(os.environ, PKG_CONFIG_PATH=str(libraries / "pkgconfig"))
            flags = run("pkg-config", "--cflags", "--libs", "ftsort", env=environment).split()
            run(mpicc, hello, "-o", consumer / "pkg", *flags, rpath)
            works(consumer / "pkg", "pkg-config, shared")
            flags = run("pkg-config", "--static", "--cflags", "--libs", "ftsort", env=environment)
            flags = flags.replace("-lftsort", "-l:libftsort.a").split()
            run(mpicc, hello, "-o", consumer / "pkg_static", *flags)
            works(consumer / "pkg_static", "pkg-config, static")
        else:
            print("  pkg-config is not installed: builds with pkg-config were not tested")
        run_mpirun(prefix / "bin/ftsort-mpirun", "--oversubscribe", "-np", "2", consumer / "plain")
        print("  ftsort-mpirun: works", flush=True)
    print("the installed library works")


if __name__ == "__main__":
    main()
