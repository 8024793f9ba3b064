#!/usr/bin/env python3
"""Makes the manual pages and checks them.

Every function of include/*.h has a page; its comment says whether it is collective, and names no parameter that
it does not have. The formatters groff, man and mandoc, as far as they are installed, have no warning. If CMake and
an MPI are there, CMake installs the pages into share/man.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import header_api
import man

FORMATTERS = {
    "groff": ["groff", "-ww", "-man", "-Tutf8"],
    "man": ["man", "--warnings", "-l"],
    "mandoc": ["mandoc", "-T", "lint", "-W", "warning"],
}


def functions():
    return [(header, item) for header in header_api.headers() for item in header.of_kind("function")]


def wrong_comments():
    """The comments that do not fit their declarations; a list of lines."""
    wrong = []
    for header, item in functions():
        names = [name for _, name, _ in item.comment.params]
        if names != [name for name in item.parameters if name in names]:
            wrong.append(f"{header.name}: {item.name}: \\param of {names}, parameters {item.parameters}")
        if not item.comment.call:
            wrong.append(f"{header.name}: {item.name}: neither [C] nor [L]")
    for header in header_api.headers():
        wrong += [f"{header.name}: {item.name}: no comment" for item in header.items
                  if item.kind != "macro" and not item.comment.text]
    return wrong


def unexplained_parameters():
    """The functions of which a parameter has no comment."""
    return [item.name for _, item in functions() if len(item.comment.params) < len(item.parameters)]


def missing_pages(folder):
    """The functions that a plain search finds in the headers and that have no page."""
    wrong = []
    for path in sorted(header_api.INCLUDE.glob("*.h")):
        text = header_api.COMMENT.sub("", path.read_text())
        for name in re.findall(r"^[a-z][\w \t*]*?\b(ftsort_\w+)\s*\([^;{}]*\);", text, re.M):
            if not (folder / f"man3/{name}.3").is_file():
                wrong.append(f"{path.name}: {name} has no page")
    return wrong


def warnings_of(formatter, pages):
    """The warnings of a formatter about all pages; a list of lines."""
    done = subprocess.run([*FORMATTERS[formatter], *map(str, pages)], capture_output=True, text=True,
                          env=dict(os.environ, LC_ALL="C.UTF-8", MANWIDTH="80"))
    output = (done.stdout + done.stderr if formatter == "mandoc" else done.stderr).strip()
    return [f"{formatter}: {done.returncode}\n{output}"] if output or done.returncode != 0 else []


def installed(folder, count):
    """Whether CMake installs all pages; a list of faults."""
    build, prefix = folder / "build", folder / "prefix"
    mpicc = os.environ.get("MPICC") or shutil.which("mpicc")
    commands = [["cmake", "-S", header_api.ROOT, "-B", build, f"-DMPI_C_COMPILER={mpicc}", "-DFTSORT_EXAMPLES=OFF"],
                ["cmake", "--build", build, "--target", "ftsort_man"],
                ["cmake", "--install", build, "--component", "man", "--prefix", prefix]]
    for command in commands:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode != 0:
            return [f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}"]
    found = len(list((prefix / "share/man").glob("man[13]/*")))
    return [] if found == count else [f"cmake installs {found} of {count} pages"]


def main():
    wrong = wrong_comments()
    with tempfile.TemporaryDirectory(prefix="ftsort-man-") as name:
        folder = pathlib.Path(name)
        pages = man.write(folder)
        wrong += missing_pages(folder)
        used = [formatter for formatter in FORMATTERS if shutil.which(formatter)]
        for formatter in used:
            wrong += warnings_of(formatter, pages)
        if shutil.which("cmake") and (os.environ.get("MPICC") or shutil.which("mpicc")):
            wrong += installed(folder, len(pages))
            used.append("cmake")
    unexplained = unexplained_parameters()
    if unexplained:
        print(f"  not all parameters are explained: {', '.join(unexplained)}")
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(pages)} manual pages are in order, says {', '.join(used) or 'no formatter: install groff'}")


if __name__ == "__main__":
    main()
