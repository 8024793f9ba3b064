#!/usr/bin/env python3
"""Makes the table of a sort's timeline from trace files: docs/data/timeline.csv, which scripts/pictures.py draws.

Runs c_examples/sort_file.c with FTSORT_TRACE and FTSORT_FAULTS on random 32-bit integers and converts the trace of
each rank. A row is a span (a phase of a round) or a moment (a commit, a failure, a restored block), in milliseconds
from the start of the sort. `--traces` converts the files of another program instead, which ran with FTSORT_TRACE.
"""

import argparse
import json
import os
import pathlib
import sys
import tempfile

import launch
import tables

# The trace's name of an event: its name in the table.
MOMENTS = {"round committed": "commit", "failure": "failure", "restored": "restored", "replay": "replay"}
PHASES = ["protect", "sort", "exchange", "merge", "store", "commit", "repair"]
LIMIT = 120


def events_of(path):
    """Returns the events of a trace file. The file of a killed rank has no end, and perhaps half a line."""
    events = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            events.append(json.loads(line.strip().rstrip(",")))
        except ValueError:
            continue
    return events


def rows_of(events_by_rank):
    """Returns the rows of the table: {rank: events} of one sort."""
    start = min(event["ts"] for events in events_by_rank.values() for event in events if "ts" in event)
    rows = []
    for rank, events in sorted(events_by_rank.items()):
        for event in events:
            begin = (event.get("ts", start) - start) / 1e3
            words, name = event.get("args", {}), event["name"]
            row = {"rank": rank, "kind": "span", "name": name, "begin_ms": f"{begin:.2f}", "end_ms": "",
                   "round": words.get("round", ""), "of": ""}
            if event["ph"] == "X" and name in PHASES:
                rows.append({**row, "end_ms": f"{begin + event['dur'] / 1e3:.2f}"})
            elif event["ph"] == "i" and name in MOMENTS:
                of = words.get("rank", words.get("node", ""))
                rows.append({**row, "kind": "moment", "name": MOMENTS[name], "of": of})
    return rows


def without_short_spans(rows, least_ms):
    """Leaves out the spans that no picture can show."""
    return [row for row in rows if row["kind"] == "moment"
            or float(row["end_ms"]) - float(row["begin_ms"]) >= least_ms]


def traces_of(prefix):
    """Returns the events of each rank from the trace files with a prefix, as FTSORT_TRACE names them."""
    prefix = pathlib.Path(prefix)
    return {int(path.name.split(".")[-2]): events_of(path) for path in prefix.parent.glob(f"{prefix.name}.*.json")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--log2", type=int, default=24, help="log2 of the number of integers")
    parser.add_argument("--algorithm", default="hyperquicksort", help="see c_examples/sort_file.c")
    parser.add_argument("--replicas", type=int, default=2, help="copies of each input in other ranks' memory")
    parser.add_argument("--faults", default="2@1.send 5@2.send 6@2.send", help="the value of FTSORT_FAULTS")
    parser.add_argument("--least", type=float, default=0.1, help="milliseconds of the shortest span in the table")
    parser.add_argument("--traces", metavar="PREFIX", help="convert these trace files; --made says how they were made")
    parser.add_argument("--made", default="", help="the command that made the files of --traces")
    parser.add_argument("--note", default="", help="a remark for the title of the picture, such as the load of the machine")
    parser.add_argument("--csv", type=pathlib.Path, default=launch.ROOT / "docs/data/timeline.csv")
    options = parser.parse_args()
    if options.traces:
        rows = without_short_spans(rows_of(traces_of(options.traces)), options.least)
        tables.write(options.csv, rows, f"Made by: {options.made}; scripts/timeline.py --traces --least {options.least}")
        print(options.csv)
        return
    with tempfile.TemporaryDirectory(prefix="ftsort-timeline-") as name:
        folder = pathlib.Path(name)
        program = launch.build_c(launch.ROOT / "c_examples/sort_file.c", folder)
        checker = launch.build_checker(folder)
        with open(folder / "input", "wb") as file:
            for _ in range(4 << max(0, options.log2 - 20)):
                file.write(os.urandom(min(1 << 20, 1 << options.log2)))
        os.environ["FTSORT_TRACE"] = str(folder / "trace")
        command = [program, "--progress", "--algorithm", options.algorithm, "--replicas", options.replicas,
                   folder / "input", folder / "output"]
        run = launch.launch(options.ranks, command, LIMIT, options.faults)
        verdict = launch.verdict_of([checker, "i32", folder / "input", folder / "output"])
        if run.hung or verdict != "right":
            sys.exit(f"{verdict}\n{run.output}")
        traces = traces_of(folder / "trace")
    comment = (f"Made by: scripts/timeline.py --ranks {options.ranks} --log2 {options.log2} --algorithm {options.algorithm} "
               f"--replicas {options.replicas} --faults '{options.faults}' --least {options.least}, with random 32-bit integers"
               + f". Note: {options.note}" * bool(options.note))
    tables.write(options.csv, without_short_spans(rows_of(traces), options.least), comment)
    print(options.csv)


if __name__ == "__main__":
    main()
