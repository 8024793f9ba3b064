#!/usr/bin/env python3
"""Builds the library with Debian's Open MPI and MPICH, which have no fault tolerance, and sorts with each.

The builds share target/other-mpis, so that packages without MPI are compiled once. Without such an MPI the script prints
one line and succeeds (Debian: apt install libopenmpi-dev libmpich-dev). A program in C and one in Fortran (mpi_f08) sort,
and the C++ headers are compiled.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

import abi

ROOT = pathlib.Path(__file__).resolve().parent.parent
SMOKE = ROOT / "packaging" / "debian" / "smoke.c"
RANKS = (1, 2, 3, 4)


def run(*command, **options):
    """Runs a command, and returns its output. If it fails, prints the output and ends the script."""
    done = subprocess.run(list(map(str, command)), text=True, capture_output=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def wrappers():
    """Returns the compiler wrappers of the MPI libraries of Debian that are installed."""
    return [name for name in ("/usr/bin/mpicc.openmpi", "/usr/bin/mpicc.mpich") if pathlib.Path(name).exists()]


def environment(mpicc):
    """Returns an environment for builds with `mpicc`, without the folders of the MPI with fault tolerance."""
    made = dict(os.environ, MPICC=mpicc, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    made.pop("CARGO_TARGET_DIR", None)
    made.pop("OPAL_PREFIX", None)
    made["PATH"] = os.pathsep.join(part for part in made["PATH"].split(os.pathsep) if "openmpi" not in part)
    return made


def runs(mpicc, program, libraries):
    """Runs a program on several numbers of ranks, each of which must print that its result is in order."""
    launcher = [mpicc.replace("mpicc", "mpirun"), *(["--oversubscribe"] if "openmpi" in mpicc else [])]
    variables = dict(environment(mpicc), LD_LIBRARY_PATH=str(libraries))
    for ranks in RANKS:
        text = run("timeout", "-k", "2", "60", *launcher, "-np", ranks, program, env=variables,
                   stdin=subprocess.DEVNULL)
        if text.count(": in order") != ranks:
            sys.exit(f"{program}, {ranks} ranks: {text}")
    return text


def sorts(mpicc, include, libraries, folder):
    """Compiles the program of packages against a library, and runs it."""
    program = pathlib.Path(folder, "smoke")
    run(mpicc, "-std=c99", "-Wall", "-Wextra", SMOKE, "-o", program, f"-I{include}", f"-L{libraries}", "-lftsort")
    text = runs(mpicc, program, libraries)
    build = next(line for line in text.splitlines() if line.startswith("ftsort "))
    if not build.endswith("no ULFM"):
        sys.exit(f"{mpicc} has fault tolerance: {build}")
    print(f"  {mpicc}: sorts on {', '.join(map(str, RANKS))} ranks: {build}", flush=True)


def sorts_in_fortran(mpicc, libraries, folder):
    """Compiles the Fortran module and a program with mpi_f08, and runs it."""
    mpifort = mpicc.replace("mpicc", "mpifort")
    if not shutil.which(mpifort):
        print(f"  {mpifort} is not installed: the Fortran module was not tested with mpi_f08")
        return
    module, program = ROOT / "bindings" / "fortran", folder / "handles"
    run(mpicc, "-c", module / "ftsort_fortran.c", "-o", folder / "ftsort_fortran.o", f"-I{ROOT / 'include'}")
    run(mpifort, module / "ftsort.f90", ROOT / "tests" / "fortran" / "handles.f90", folder / "ftsort_fortran.o",
        "-J", folder, "-o", program, f"-L{libraries}", "-lftsort")
    runs(mpicc, program, libraries)
    print(f"  {mpifort}: sorts with a communicator of mpi_f08", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="dev", help="cargo's profile for the library")
    chosen = parser.parse_args()
    if not wrappers():
        print("other MPIs: neither libopenmpi-dev nor libmpich-dev is installed: nothing was built")
    target = ROOT / "target" / "other-mpis"
    built = target / ("debug" if chosen.profile == "dev" else chosen.profile)
    for mpicc in wrappers():
        variables = dict(environment(mpicc), CARGO_TARGET_DIR=str(target))
        # Cargo does not notice that this package's build script would find another MPI.
        run("cargo", "clean", "--profile", chosen.profile, "--package", "mpi-sys", cwd=ROOT, env=variables)
        run("cargo", "build", "--profile", chosen.profile, "--lib", cwd=ROOT, env=variables)
        soname = built / "libftsort.so.{}.{}".format(*abi.version())
        soname.unlink(missing_ok=True)
        soname.symlink_to("libftsort.so")
        programs = target / pathlib.Path(mpicc).suffix[1:]
        programs.mkdir(exist_ok=True)
        sorts(mpicc, ROOT / "include", built, programs)
        sorts_in_fortran(mpicc, built, programs)
        mpicxx = mpicc.replace("mpicc", "mpicxx")
        if shutil.which(mpicxx):
            run(mpicxx, "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", f"-I{ROOT / 'include'}",
                ROOT / "tests" / "cpp" / "objects.cpp")
            print(f"  {mpicxx}: the C++ headers compile", flush=True)


if __name__ == "__main__":
    main()
