#!/usr/bin/env python3
"""Compares the binary interface of the headers with the recorded one, tests/abi/MAJOR.MINOR.txt.

    scripts/abi.py            fails if they differ, and names the difference
    scripts/abi.py --write    records the interface

The record has the declaration of every function and callback, the value of every enumerator, and the size of every
struct with the offset and the size of every member. The name of the file is the version in the SONAME. Within one
SONAME functions and enumerators may be added, and members appended behind the recorded size of their struct; `--write`
refuses any other change, unless the list of changes still calls the version unreleased. Needs a C compiler.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import header_api

RECORDS = header_api.ROOT / "tests" / "abi"


def version():
    """Returns the version of the library, as (major, minor, patch)."""
    text = (header_api.ROOT / "Cargo.toml").read_text()
    return tuple(map(int, re.search(r'^version = "(\d+)\.(\d+)\.(\d+)"', text, re.M).groups()))


def is_released():
    """Returns whether the list of changes has a version, or a lower one of the same SONAME, as released."""
    headings = re.findall(r"^## (\d+)\.(\d+)\.\d+(.*)", (header_api.ROOT / "CHANGELOG.md").read_text(), re.M)
    series = tuple(map(str, version()[:2]))
    return any((major, minor) == series and "unreleased" not in rest for major, minor, rest in headings)


def program(items):
    """Returns a C program that prints the layouts of all structs."""
    lines = ['#include <stdio.h>', '#include "ftsort_all.h"', "int main(void)", "{"]
    for item in items:
        if item.kind != "struct" or not item.members:
            continue
        lines.append(f'  printf("struct {item.name}: %zu bytes\\n", sizeof({item.name}));')
        for member in item.members:
            place = f"offsetof({item.name}, {member.name})"
            size = f"sizeof((({item.name} *)0)->{member.name})"
            lines.append(f'  printf("  {item.name}.{member.name}: offset %zu, %zu bytes\\n", {place}, {size});')
    return "\n".join([*lines, "  return 0;", "}", ""])


def interface():
    """Returns the binary interface of the headers as lines."""
    items = [item for header in header_api.headers() for item in header.items]
    lines = [f"{item.kind} {item.declaration}" for item in items if item.kind in ("function", "callback")]
    lines += [f"enumerator {member.declaration}" for item in items if item.kind == "enum" for member in item.members]
    compiler = os.environ.get("MPICC") or shutil.which("mpicc")
    with tempfile.TemporaryDirectory() as folder:
        source, made = pathlib.Path(folder, "layouts.c"), pathlib.Path(folder, "layouts")
        source.write_text(program(items))
        subprocess.run([compiler, f"-I{header_api.INCLUDE}", str(source), "-o", str(made)], check=True)
        layouts = subprocess.run([str(made)], capture_output=True, text=True, check=True).stdout
    return sorted(lines) + layouts.splitlines()


def members(lines):
    """Returns the offset of each member, by its struct and its name."""
    matches = (re.match(r"  (\w+)\.(\w+): offset (\d+),", line) for line in lines)
    return {(match[1], match[2]): int(match[3]) for match in matches if match}


def hidden(recorded, present):
    """Returns the lines of new members that lie within the recorded size of their struct, in its padding.

    The size that a program compiled before passes covers such a member too, so the library would read bytes that this
    program has not set. A member of a larger alignment, or a reserved one before it, starts behind the recorded size.
    """
    sizes = {match[1]: int(match[2]) for match in (re.match(r"struct (\w+): (\d+) bytes", line) for line in recorded)
             if match}
    known = members(recorded)
    new = {member for member, offset in members(present).items()
           if member not in known and offset < sizes.get(member[0], 0)}
    return [line for line in present if members([line]).keys() & new]


def broken(recorded, present):
    """Returns the recorded lines that a program compiled before would miss, and the new members that it would not set.

    A struct that starts with its size may grow; any other keeps its size.
    """
    growing = {line.split(".")[0].strip() for line in recorded if ".struct_size:" in line}
    kept = set(present)
    missed = [line for line in recorded if line not in kept
              and not (line.startswith("struct ") and line.split()[1].rstrip(":") in growing)]
    return missed + hidden(recorded, present)


def main():
    major, minor, _ = version()
    path = RECORDS / f"{major}.{minor}.txt"
    recorded, present = path.read_text().splitlines() if path.exists() else [], interface()
    missing = broken(recorded, present)
    if "--write" in sys.argv:
        if missing and is_released():
            sys.exit("these changes need a new SONAME (raise the minor version):\n" + "\n".join(missing))
        path.write_text("\n".join(present) + "\n")
    elif recorded != present:
        changed = [f"- {line}" for line in missing if line in recorded]
        changed += [f"+ {line}" for line in present if line not in recorded]
        sys.exit(f"the binary interface differs from {path.relative_to(header_api.ROOT)}: record additions with "
                 "`scripts/abi.py --write`; a removed line needs a new SONAME\n" + "\n".join(changed))


if __name__ == "__main__":
    main()
