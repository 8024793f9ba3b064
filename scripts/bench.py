#!/usr/bin/env python3
"""Runs c_examples/bench.c over sizes, ranks and stores, and prints one table."""

import argparse
import pathlib
import sys
import tempfile

import launch

PHASES = ["total", "sort", "exchange", "merge", "store", "commit"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="24,26", help="log2 of the number of records")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--types", default="i32")
    parser.add_argument("--stores", default="none,memory,memory+digest,directory",
                        help="none, memory, directory; with +digest, blocks are checked")
    parser.add_argument("--repeat", default="5")
    parser.add_argument("--out", type=pathlib.Path, help="a file for the machine-readable lines")
    options = parser.parse_args()
    lines = []
    print("ns a record, slowest rank, median        " + "".join(f"{name:>10}" for name in PHASES) + "    memory")
    with tempfile.TemporaryDirectory(prefix="ftsort-bench-") as folder:
        program = launch.build_c(launch.ROOT / "c_examples/bench.c", folder)
        for kind in options.types.split(","):
            for size in map(int, options.sizes.split(",")):
                for ranks in map(int, options.ranks.split(",")):
                    for store in options.stores.split(","):
                        name, _, checks = store.partition("+")
                        command = [program, "-k", size, "-t", kind, "-s", name, "-d", folder, "-n", options.repeat]
                        command += ["-x"] if checks else []
                        run = launch.launch(ranks, command, 600)
                        line = next((text for text in run.output.splitlines() if text.startswith("ftsort-bench")), None)
                        if line is None:
                            sys.exit(f"{' '.join(map(str, command))}: {run.output[-2000:]}")
                        lines.append(line)
                        found = dict(word.split("=") for word in line.split()[1:])
                        cost = "".join(f"{float(found[name]) / 2**size * 1e9:>10.2f}" for name in PHASES)
                        memory = float(found["peak"]) / float(found["input"])
                        print(f"{kind} 2^{size} N={ranks} {store:<14}".ljust(41) + f"{cost} {memory:>8.2f}x", flush=True)
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
