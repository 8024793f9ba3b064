#!/usr/bin/env python3
"""Kills the examples of ftsort_rounds_run at random instants, and counts what comes of it.

In a right run the survivors together have the state of every node once, and each says that it is right.
Timers that would strike after the end do not: so fewer may be killed than a scenario names.
"""

import argparse
import pathlib
import re
import sys
import tempfile

import launch

# With what arguments; and in how many milliseconds most kills should fall.
EXAMPLES = {
    "prefix_sum": (["300000"], 40),
    "transpose": (["100"], 40),
    "fft": (["16"], 15),
    "kmeans": (["FILE", "5", "30"], 60),
    "bitonic_sort": (["50000"], 60),
}
SCENARIOS = ["one", "half", "all-but-one"]
LIMIT = 60


def judge(run, ranks):
    """None if the run is right, else what is wrong."""
    if run.hung:
        return "hung"
    nodes = 1
    while nodes < ranks:
        nodes *= 2
    found = re.findall(r"^node (\d+) on rank \d+: (\w+)$", run.output, re.MULTILINE)
    if sorted(int(node) for node, _ in found) != list(range(nodes)):
        return "not every node once"
    return None if all(verdict == "right" for _, verdict in found) else "wrong"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", default=",".join(EXAMPLES))
    parser.add_argument("--ranks", default="4,6,8")
    parser.add_argument("--seeds", type=int, default=5, help="how many runs of each scenario")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--profile", default="release")
    options = parser.parse_args()
    wrong = 0
    print("| example | ranks | runs | ranks killed | right |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="ftsort-rounds-") as folder:
        for example in options.examples.split(","):
            source = launch.ROOT / "c_examples" / f"{example}.c"
            program = launch.build_c(source, folder, options.profile)
            words, window = EXAMPLES[example]
            words = [str(program) if word == "FILE" else word for word in words]
            for ranks in map(int, options.ranks.split(",")):
                runs = right = killed = 0
                for scenario in SCENARIOS:
                    for seed in range(options.first, options.first + options.seeds):
                        faults = f"{scenario} seed={seed * 1000 + ranks} window={window}ms"
                        run = launch.launch(ranks, [program, *words], LIMIT, faults)
                        runs += 1
                        survivors = len(set(re.findall(r"on rank (\d+):", run.output)))
                        killed += ranks - survivors
                        why = judge(run, ranks)
                        if why is None:
                            right += 1
                            continue
                        wrong += 1
                        print(f"{why}: {launch.shown(ranks, [program, *words], faults)}\n{run.output}{run.stacks}",
                              file=sys.stderr, flush=True)
                print(f"| {example} | {ranks} | {runs} | {killed} | {right} |", flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
