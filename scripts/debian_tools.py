#!/usr/bin/env python3
"""Installs from Debian the tools with which `make check-all` tests more than without them.

gfortran compiles the Fortran cases, clang the C++ headers, Debian's MPIs the builds without fault tolerance; lintian
checks the packages. Tests that lack a tool skip their cases. Without root, apt-get or a network the script prints one
line and succeeds.
"""

import os
import shutil
import subprocess

PACKAGES = ["clang", "gfortran", "libmpich-dev", "libopenmpi-dev", "lintian"]


def missing():
    """Returns the packages that are not installed."""
    shown = subprocess.run(["dpkg-query", "-W", "-f=${Package} ${db:Status-Status}\n", *PACKAGES], capture_output=True,
                           text=True)
    lines = shown.stdout.splitlines()
    return [package for package in PACKAGES if f"{package} installed" not in lines]


def install(packages):
    """Installs packages; returns the last line of apt-get's errors if it fails, else None."""
    TRIES = 3
    for _ in range(TRIES):
        error = install_once(packages)
        if error is None:
            break
    return error


def install_once(packages):
    """Does the same in one attempt, which a short failure of the network ends."""
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    for command in (["apt-get", "update"], ["apt-get", "install", "--yes", "--no-install-recommends", *packages]):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    return None


def main():
    if shutil.which("apt-get") is None or shutil.which("dpkg-query") is None:
        print("debian_tools: there is no apt-get: nothing is installed")
        return
    packages = missing()
    if packages and os.geteuid() != 0:
        print(f"debian_tools: not root: {', '.join(packages)} are not installed")
    elif packages:
        error = install(packages)
        outcome = f"are not installed: {error}" if error else "are installed now"
        print(f"debian_tools: {', '.join(packages)} {outcome}")


if __name__ == "__main__":
    main()
