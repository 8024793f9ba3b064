#!/usr/bin/env python3
"""Kills ranks of the examples of ftsort_rounds_run at random moments, and counts the correct runs.

In a correct run the survivors together have the state of every node exactly once, and report each state as right. A
timer that would kill a rank after the end of the run has no effect, so fewer ranks may be killed than a scenario names.
"""

import argparse
import re
import sys
import tempfile

import launch

# The arguments of each example, and the milliseconds in which most kills should fall.
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
    """Returns None if the run is correct, else the reason."""
    if run.hung:
        return "not finished at the time limit"
    nodes = 1
    while nodes < ranks:
        nodes *= 2
    found = re.findall(r"^node (\d+) on rank \d+: (\w+)$", run.output, re.MULTILINE)
    if sorted(int(node) for node, _ in found) != list(range(nodes)):
        return "not every node exactly once"
    return None if all(verdict == "right" for _, verdict in found) else "wrong state"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", default=",".join(EXAMPLES))
    parser.add_argument("--ranks", default="4,6,8")
    parser.add_argument("--seeds", type=int, default=5, help="number of runs of each scenario")
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
                runs = correct = killed = 0
                for scenario in SCENARIOS:
                    for seed in range(options.first, options.first + options.seeds):
                        faults = f"{scenario} seed={seed * 1000 + ranks} window={window}ms"
                        run = launch.launch(ranks, [program, *words], LIMIT, faults)
                        runs += 1
                        survivors = len(set(re.findall(r"on rank (\d+):", run.output)))
                        killed += ranks - survivors
                        reason = judge(run, ranks)
                        if reason is None:
                            correct += 1
                            continue
                        wrong += 1
                        print(f"{reason}: {launch.shown(ranks, [program, *words], faults)}\n{run.output}{run.stacks}",
                              file=sys.stderr, flush=True)
                print(f"| {example} | {ranks} | {runs} | {killed} | {correct} |", flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
