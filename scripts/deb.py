#!/usr/bin/env python3
"""Makes Debian packages of the library in target/deb: libftsort0.2, libftsort-dev and, if MPI has ULFM, ftsort-tools.

Builds with the `mpicc` of Debian (libopenmpi-dev or libmpich-dev), because a library suits one MPI, and installs by
CMake with the prefix /usr. The mpirun of an MPI without ULFM refuses the options of ftsort-mpirun. Needs dpkg-deb;
without it, or without an MPI of Debian, the script prints one line and succeeds.
With `--check` lintian must find no error, and a program is compiled against the unpacked packages and run.
"""

import argparse
import gzip
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import abi
import other_mpis
import setup
from other_mpis import run

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEB = ROOT / "target" / "deb"
TEXTS = ROOT / "packaging" / "debian"


def soname():
    major, minor, _ = abi.version()
    return f"{major}.{minor}"


def install(mpicc, profile):
    """Builds the library with a profile of cargo, and returns the installed tree."""
    build, tree = DEB / "build", DEB / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    environment = other_mpis.environment(mpicc)
    run("cmake", "-S", ROOT, "-B", build, f"-DMPI_C_COMPILER={mpicc}", "-DCMAKE_INSTALL_PREFIX=/usr",
        f"-DCMAKE_INSTALL_LIBDIR=lib/{run('dpkg-architecture', '-qDEB_HOST_MULTIARCH')}", "-DFTSORT_EXAMPLES=OFF",
        "-DFTSORT_RPATH=OFF", f"-DFTSORT_CARGO_PROFILE={profile}", env=environment)
    run("cmake", "--build", build, env=environment)
    run("cmake", "--install", build, env=dict(environment, DESTDIR=str(tree)))
    return tree


def parts(tree, has_ulfm):
    """Divides the installed files between the packages. There is no package of tools without ULFM."""
    divided = {f"libftsort{soname()}": [], "libftsort-dev": [], "ftsort-tools": []}
    for path in sorted(path for path in tree.rglob("*") if not path.is_dir() or path.is_symlink()):
        name = str(path.relative_to(tree))
        # The file `copyright` of each package has the licence, as Debian demands.
        if ".debug" in path.parts or path.name == "LICENSE":
            continue
        if ".so." in name:
            divided[f"libftsort{soname()}"].append(name)
        elif "/bin/" in name or "/man1/" in name or name.endswith("ftsort-mca-params.conf"):
            divided["ftsort-tools"].append(name)
        else:
            divided["libftsort-dev"].append(name)
    if not has_ulfm:
        del divided["ftsort-tools"]
    return divided


def compress(path):
    """Compresses a file as Debian demands it for manual pages and lists of changes."""
    with open(path, "rb") as source, gzip.GzipFile(f"{path}.gz", "wb", 9, mtime=0) as target:
        shutil.copyfileobj(source, target)
    path.unlink()


def package(name, files, tree, depends):
    """Makes one package, and returns its path."""
    version = ".".join(map(str, abi.version())) + "-1"
    folder = DEB / name
    shutil.rmtree(folder, ignore_errors=True)
    for file in files:
        target = folder / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(tree / file, target, follow_symlinks=False)
        if "/man/" in file and not target.is_symlink():
            compress(target)
    documents = folder / "usr/share/doc" / name
    documents.mkdir(parents=True)
    shutil.copy2(TEXTS / "copyright", documents)
    (documents / "changelog.Debian").write_text((TEXTS / "changelog").read_text().replace("@VERSION@", version))
    compress(documents / "changelog.Debian")
    control = folder / "DEBIAN"
    control.mkdir()
    text = (TEXTS / f"{name.replace(soname(), '')}.control").read_text()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) // 1024
    for key, value in (("VERSION", version), ("SONAME", soname()), ("ARCH", run("dpkg", "--print-architecture")),
                       ("SIZE", str(size)), ("DEPENDS", depends)):
        text = text.replace(f"@{key}@", value)
    (control / "control").write_text(text)
    if name.startswith("libftsort") and name != "libftsort-dev":
        (control / "triggers").write_text("activate-noawait ldconfig\n")
        (control / "shlibs").write_text(f"libftsort {soname()} {name}\n")
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or "bin" in path.parts else 0o644)
    run("dpkg-deb", "--root-owner-group", "--build", folder, DEB)
    return next(DEB.glob(f"{name}_{version}_*.deb"))


def dependencies(library):
    """Returns the packages that the shared library needs, with the lowest versions that have its symbols."""
    with tempfile.TemporaryDirectory() as folder:
        control = pathlib.Path(folder, "debian", "control")
        control.parent.mkdir()
        control.write_text("Source: ftsort\n\nPackage: ftsort\nArchitecture: any\n")
        found = run("dpkg-shlibdeps", "-O", f"-e{library}", cwd=folder)
    return found.strip().removeprefix("shlibs:Depends=")


def check(packages, mpicc):
    """Runs lintian, and compiles and runs a program with the unpacked packages."""
    if shutil.which("lintian"):
        done = subprocess.run(["lintian", "--fail-on", "error", *map(str, packages)], text=True, capture_output=True)
        if done.returncode != 0:
            sys.exit(f"lintian:\n{done.stdout}{done.stderr}")
        print(f"  lintian: no errors, {done.stdout.count('W: ')} warnings")
    else:
        print("  lintian is not installed: the packages were not checked by it")
    depends = run("dpkg-deb", "-f", packages[0], "Depends")
    if "libc6 (>= " not in depends:
        sys.exit(f"{packages[0].name} does not state the version of libc6 that it needs: {depends}")
    root = DEB / "root"
    shutil.rmtree(root, ignore_errors=True)
    for path in packages:
        run("dpkg-deb", "-x", path, root)
    libraries = next(root.glob("usr/lib/*/libftsort.so")).parent
    other_mpis.sorts(mpicc, root / "usr/include", libraries, DEB)
    print("  a program compiles and runs with the unpacked packages")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="check the packages")
    parser.add_argument("--profile", default="release", help="cargo's profile for the library")
    chosen = parser.parse_args()
    mpicc = next(iter(other_mpis.wrappers()), None)
    if shutil.which("dpkg-deb") is None or mpicc is None:
        print("deb: needs Debian with dpkg-dev and libopenmpi-dev or libmpich-dev: no packages were made")
        return
    DEB.mkdir(parents=True, exist_ok=True)
    tree = install(mpicc, chosen.profile)
    divided = parts(tree, setup.has_ulfm(mpicc))
    library = next(tree / file for file in divided[f"libftsort{soname()}"] if not (tree / file).is_symlink())
    development = "libopenmpi-dev" if "openmpi" in mpicc else "libmpich-dev"
    depends = {f"libftsort{soname()}": dependencies(library), "libftsort-dev": development,
               "ftsort-tools": "openmpi-bin" if "openmpi" in mpicc else "mpich"}
    packages = [package(name, files, tree, depends[name]) for name, files in divided.items()]
    for path in packages:
        print(f"  {path.relative_to(ROOT)}: {path.stat().st_size / 1024:.0f} KB")
    if chosen.check:
        check(packages, mpicc)


if __name__ == "__main__":
    main()
