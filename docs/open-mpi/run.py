#!/usr/bin/env python3
"""Compiles the programs of this folder, runs each case of docs/open-mpi.md, and prints a table.

    python3 run.py                     every case, 30 runs each
    python3 run.py --runs 10 finalize  the cases of one program
    python3 run.py --list              the command of each case
    python3 run.py --ranks 64 agree    with another number of ranks

Needs mpicc and mpirun of an Open MPI with ULFM in PATH. Each run has a time limit. A run past its limit is
ended with all processes that it started, and with no others. If one of its queues in shared memory is broken
(scripts/queues.py), the run is counted as `cut` instead of `hang`: it shows the defect of section 15.
"""

import argparse
import collections
import os
import pathlib
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "scripts"))
import queues  # noqa: E402

C_FLAGS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic"]
NOT_STARTED = "listener thread failed to start"
RESULTS = ["ok", "crash", "hang", "cut", "wrong", "different", "unmarked", "not started"]
TCP = {"btl": "self,tcp"}
DETECTOR = {"mpi_ft_detector": "1", "mpi_ft_detector_thread": "1",
            "mpi_ft_detector_period": "0.3", "mpi_ft_detector_timeout": "1.5"}

Case = collections.namedtuple("Case", "program ranks settings arguments limit block_sigpipe",
                              defaults=({}, (), 15, True))

# SEED in the arguments is replaced by the number of the run.
CASES = {
    "create": Case("create_while_failing", 8, {}, ("SEED",)),
    "create-early-terminating": Case("create_while_failing", 4, {"coll_ftagree_agreement": "2"}, ("SEED",), 6),
    "sigpipe": Case("sigpipe", 4, TCP, block_sigpipe=False),
    "sigpipe-ignored": Case("sigpipe", 4, TCP, ("ignore",), block_sigpipe=False),
    "free-list": Case("free_list", 4),
    "free-list-unlimited": Case("free_list", 4, {"btl_sm_free_list_max": "-1"}),
    "cancel-tcp": Case("cancel_tcp", 8, {**TCP, "coll_ftagree_era_topology": "3"}, ("SEED",)),
    "cancel-tcp-send": Case("cancel_tcp", 8, {**TCP, "coll_ftagree_era_topology": "3",
                                              "btl_tcp_flags": "send,inplace"}, ("SEED",)),
    "agree-tree": Case("agree", 8, {}, ("SEED",)),
    "agree-string": Case("agree", 8, {"coll_ftagree_era_topology": "2"}, ("SEED",)),
    "agree-star": Case("agree", 8, {"coll_ftagree_era_topology": "3"}, ("SEED",)),
    "agree-tree-busy": Case("agree", 8, {}, ("SEED", "busy")),
    "agree-star-busy": Case("agree", 8, {"coll_ftagree_era_topology": "3"}, ("SEED", "busy")),
    "agree-tree-tcp": Case("agree", 8, TCP, ("SEED", "busy")),
    "agree-star-tcp": Case("agree", 8, {**TCP, "coll_ftagree_era_topology": "3"}, ("SEED", "busy")),
    "lost-answer-tree": Case("lost_answer", 4, {}, (), 20),
    "lost-answer-star": Case("lost_answer", 4, {"coll_ftagree_era_topology": "3"}, (), 20),
    "finalize": Case("finalize", 8),
    "finalize-async": Case("finalize", 8, {"async_mpi_finalize": "1"}),
    "finalize-exit": Case("finalize", 8, {"async_mpi_finalize": "1"}, ("exit",)),
    "finalize-detector": Case("finalize", 4, {"async_mpi_finalize": "1", **DETECTOR}, ("none",), 6),
    "collectives": Case("collectives", 8),
    "stopped": Case("stopped", 4),
    "stopped-detector": Case("stopped", 4, DETECTOR),
    "large-isend": Case("large_isend", 4),
    "late-completion": Case("late_completion", 4, {"btl_sm_fbox_max": "0"}),
    "late-completion-drain": Case("late_completion", 4, {"btl_sm_fbox_max": "0"}, ("drain",)),
    "late-completion-copied": Case("late_completion", 4, {"btl_sm_fbox_max": "0", "smsc": "^cma"}),
    "cut-queue": Case("cut_queue", 8, {"btl_sm_fbox_max": "0"}, ("SEED",)),
    "cut-queue-tcp": Case("cut_queue", 8, TCP, ("SEED",)),
    "two-threads": Case("two_threads", 4),
    "two-threads-in-turn": Case("two_threads", 4, {}, ("turns",)),
    "two-threads-probe": Case("two_threads", 4, {}, ("probe",)),
    "two-threads-shrink": Case("two_threads", 4, {}, ("shrink",)),
    "intercomm": Case("intercomm_shrink", 4, {}, (), 6),
    "intercomm-merged": Case("intercomm_shrink", 4, {}, ("intra",), 6),
    "exit-all-killed": Case("exit_status", 4, {}, ("all",)),
    "exit-half-killed": Case("exit_status", 4, {}, ("half",)),
    "exit-half-killed-3": Case("exit_status", 4, {}, ("code",)),
    "exit-all-3": Case("exit_status", 8, {}, ("fail",)),
    "exit-one-3": Case("exit_status", 8, {}, ("one",)),
    "start": Case("start", 4),
}


def command(case, program, seed):
    """The command line of one run."""
    words = ["nice", "-n", "10"]
    if case.block_sigpipe:
        words += ["env", "--block-signal=PIPE"]  # mpirun itself ends after ten SIGPIPEs.
    words += ["mpirun", "--with-ft", "ulfm", "--oversubscribe"]
    for name, value in case.settings.items():
        words += ["--mca", name, value]
    arguments = [str(seed) if word == "SEED" else word for word in case.arguments]
    return [*words, "-np", str(case.ranks), str(program), *arguments]


def descendants(pid):
    """The process `pid` and all processes below it."""
    children = collections.defaultdict(list)
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = pathlib.Path("/proc", entry, "stat").read_text()
            except OSError:
                continue  # The process has just ended.
            children[int(stat[stat.rindex(")") + 2:].split()[1])].append(int(entry))
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo += children[found[-1]]
    return found


def end(pid):
    """Ends a process that this script started, and the processes that it started."""
    for member in descendants(pid):
        try:
            os.kill(member, signal.SIGKILL)
        except ProcessLookupError:
            pass


def examine(pid):
    """Returns a text about a run past its time limit: the ranks with broken queues, and the call stacks."""
    members = descendants(pid)
    try:
        cut = queues.broken_queues(members)
    except queues.LayoutUnknown as reason:
        return f"queues not examined: {reason}\n"
    text = f"CUT queues of ranks {cut}\n" if cut else ""
    for member in members if shutil.which("gdb") else []:
        ask = ["gdb", "-p", str(member), "-batch", "-ex", "thread apply all backtrace 40"]
        text += f"process {member}\n" + subprocess.run(ask, capture_output=True, text=True).stdout
    return text


def run(words, limit):
    """Runs one command; returns its output, its exit status (None after the time limit) and its seconds."""
    began = time.monotonic()
    found = ""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code, found = None, examine(process.pid)
        finally:
            if process.poll() is None:
                end(process.pid)
                process.wait()
        seconds = time.monotonic() - began
        output.seek(0)
        return output.read() + found, code, seconds


def judge(output, code):
    """One of RESULTS."""
    if NOT_STARTED in output:
        return "not started"
    if re.search(r"^CRASH|Segmentation fault|MPI_ERRORS_ARE_FATAL", output, re.MULTILINE):
        return "crash"
    if code is None and re.search(r"^CUT queues", output, re.MULTILINE):
        return "cut"
    if code is None or "\nHANG" in f"\n{output}":
        return "hang"
    if "WRONG" in output:
        return "wrong"
    if "DIFFERENT" in output:
        return "different"
    return "ok" if "done" in output else "unmarked"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("cases", nargs="*", help="names of cases or programs; default: all")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--ranks", type=int, help="number of ranks, instead of the case's number")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--limit", type=float, help="seconds per run, instead of the case's limit")
    parser.add_argument("--list", action="store_true", help="print the commands and run nothing")
    parser.add_argument("--keep", metavar="FOLDER", help="keep the output of each run that is not ok")
    arguments = parser.parse_args()
    unknown = set(arguments.cases) - CASES.keys() - {case.program for case in CASES.values()}
    if unknown:
        parser.error(f"unknown cases: {', '.join(sorted(unknown))}")
    wanted = {name: case for name, case in CASES.items()
              if not arguments.cases or {name, case.program} & set(arguments.cases)}
    if arguments.ranks:
        wanted = {name: case._replace(ranks=arguments.ranks) for name, case in wanted.items()}
    if arguments.list:
        for name, case in wanted.items():
            print(f"{name}: {shlex.join(command(case, './' + case.program, 1))}")
        return
    as_root = {name: "1" for mpi in ("OMPI", "PRTE")
               for name in (f"{mpi}_ALLOW_RUN_AS_ROOT", f"{mpi}_ALLOW_RUN_AS_ROOT_CONFIRM")}
    os.environ.update(as_root)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    print("| case | ranks | runs |", " | ".join(RESULTS), "| exit status of mpirun | median seconds |")
    print("|---|" + "---|" * (len(RESULTS) + 4), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, case in wanted.items():
            program = pathlib.Path(folder, case.program)
            if not program.exists():
                subprocess.run(["mpicc", *C_FLAGS, str(HERE / f"{case.program}.c"), "-o", str(program), "-lpthread",
                                "-rdynamic", "-ldl"],
                               check=True)
            results, codes, times = collections.Counter(), collections.Counter(), []
            for seed in range(arguments.seed, arguments.seed + arguments.runs):
                output, code, seconds = run(command(case, program, seed), arguments.limit or case.limit)
                result = judge(output, code)
                results[result] += 1
                codes[code] += 1
                times.append(seconds)
                if arguments.keep and result != "ok":
                    pathlib.Path(arguments.keep, f"{name}-{seed}.txt").write_text(f"status {code}\n{output}")
            statuses = ", ".join(f"{code}: {count}" for code, count in codes.items() if code is not None)
            print(f"| {name} | {case.ranks} | {arguments.runs} |", " | ".join(str(results[word]) for word in RESULTS),
                  f"| {statuses} | {statistics.median(times):.1f} |", flush=True)


if __name__ == "__main__":
    main()
