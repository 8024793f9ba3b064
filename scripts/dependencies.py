#!/usr/bin/env python3
"""Checks the licences, the sources and the versions of all packages that ftsort is built with.

The packages are those of the lock files in LOCKED, which must be up to date. Every licence must be one of ALLOWED,
except those of the tools in TOOLS, which must not be in the library. Every package comes from crates.io or from this
repository. No package has two versions, except those in DUPLICATES. The program prints each violation and ends with
status 1 if there is one.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"
ALLOWED = {"MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Unicode-3.0",
           "Unlicense", "Zlib"}
TOOLS = {"cbindgen": "MPL-2.0", "libfuzzer-sys": "(MIT OR Apache-2.0) AND NCSA"}
# The workspace of the library, and those of fuzzing and of generated changes.
LOCKED = ["Cargo.toml", "fuzz/Cargo.toml", "crates/mutate/Cargo.toml"]
# With the packages that need the older version; remove an entry when they have moved on.
DUPLICATES = {
    "getrandom": "stateright",
    "hashbrown": "stateright",
    "rand": "stateright",
    "rand_core": "stateright",
    "shlex": "bindgen",
    "syn": "bindgen, cbindgen",
    "toml_datetime": "cbindgen",
    "winnow": "cbindgen",
}


def is_allowed(licence):
    """Returns whether ALLOWED satisfies an SPDX expression; an older form separates alternatives by a slash."""
    words = re.findall(r"[()]|(?:(?! (?:OR|AND) )[^()/])+|/| (?:OR|AND) ", f"{licence or ''}")
    terms = [word.strip() for word in words if word.strip()]

    def alternatives():
        fine = together()
        while terms and terms[0] in ("OR", "/"):
            terms.pop(0)
            other = together()
            fine = fine or other
        return fine

    def together():
        fine = term()
        while terms and terms[0] == "AND":
            terms.pop(0)
            other = term()
            fine = fine and other
        return fine

    def term():
        if not terms:
            return False
        word = terms.pop(0)
        if word != "(":
            return word in ALLOWED
        fine = alternatives()
        return bool(terms) and terms.pop(0) == ")" and fine

    return alternatives() and not terms


def shipped(metadata, name="ftsort"):
    """Returns the identifiers of the packages in the library: those that it needs, but not for builds or tests."""
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    found, left = set(), [package["id"] for package in metadata["packages"] if package["name"] == name]
    while left:
        package = left.pop()
        if package not in found:
            found.add(package)
            left += [one["pkg"] for one in nodes[package]["deps"]
                     if any(kind["kind"] is None for kind in one["dep_kinds"])]
    return found


def violations(metadata):
    """Returns the violations of the rules, as lines."""
    lines, versions, in_library = [], collections.defaultdict(set), shipped(metadata)
    for package in metadata["packages"]:
        name, licence = f"{package['name']} {package['version']}", package["license"]
        versions[package["name"]].add(package["version"])
        if package["source"] not in (None, REGISTRY):
            lines.append(f"{name}: the source is {package['source']}, not crates.io")
        is_tool = TOOLS.get(package["name"]) == licence and package["id"] not in in_library
        if not is_allowed(licence) and not is_tool:
            lines.append(f"{name}: the licence is {licence}, which is not in ALLOWED of scripts/dependencies.py")
    for name, found in versions.items():
        if len(found) > 1 and name not in DUPLICATES:
            lines.append(f"{name}: the versions {', '.join(sorted(found))} are built; change what needs one of them")
    return lines


def unused_exceptions(metadata):
    """Returns the exceptions in DUPLICATES that the library's workspace does not need, as lines."""
    versions = collections.Counter(name for name, _ in {(one["name"], one["version"]) for one in metadata["packages"]})
    return [f"{name}: has one version; remove it from DUPLICATES of scripts/dependencies.py"
            for name in DUPLICATES if versions[name] < 2]


def read_metadata(manifest):
    """Returns the packages that cargo builds on this machine."""
    compiler = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    host = re.search(r"^host: (.+)$", compiler, re.MULTILINE).group(1)
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--all-features",
               "--filter-platform", host, "--manifest-path", manifest]
    return json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout)


def main():
    workspaces = [read_metadata(manifest) for manifest in LOCKED]
    found = [line for metadata in workspaces for line in violations(metadata)] + unused_exceptions(workspaces[0])
    for line in found:
        print(line)
    if not found:
        packages = {one["id"] for metadata in workspaces for one in metadata["packages"]}
        print(f"{len(packages)} packages: licences, sources and versions are as they must be")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
