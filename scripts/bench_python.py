#!/usr/bin/env python3
"""Compares operations of the Python package with NumPy on one core and Polars on all cores, by turns.

  argsort   the order of 2^N float64 numbers: Group.argsort, numpy.argsort and polars.Series.arg_sort
  two keys  2^N structs of 16 bytes, sorted by an int32 and then by a float32: Group.sort, numpy.lexsort with the copy of
            the structs, and polars.DataFrame.sort

`--operations N` instead measures the operations of a group on 2^N float64 numbers, by turns, beside Group.sort.

ftsort runs on as many ranks as there are cores, with the memory store, so each rank's input is also copied to another
rank. Each figure is the median of the turns, in seconds; each turn takes the best of three calls in one process, so that
all programs have warm memory. Polars is measured if it is installed beside the packages of bindings/python/requirements.txt.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

CASES = ["argsort", "two keys"]
CALLS = 3


def data_of(case, log2, part=0, parts=1):
    """Returns a part of the input of a case; each part has its own sequence of numbers."""
    import numpy as np

    numbers, count = np.random.default_rng(part), (1 << log2) // parts
    if case == "argsort":
        return numbers.standard_normal(count)
    structs = np.empty(count, [("first", "i4"), ("second", "f4"), ("rest", "i8")])
    structs["first"] = numbers.integers(0, 1000, count)
    structs["second"] = numbers.standard_normal(count)
    structs["rest"] = np.arange(count)
    return structs


def best_of(call):
    """Returns the shortest time of some calls, in seconds."""
    seconds = []
    for _ in range(CALLS):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def numpy_seconds(case, log2):
    import numpy as np

    data = data_of(case, log2)
    if case == "argsort":
        return best_of(lambda: np.argsort(data))
    return best_of(lambda: data[np.lexsort((data["second"], data["first"]))])


def polars_seconds(case, log2):
    import polars

    data = data_of(case, log2)
    if case == "argsort":
        series = polars.Series(data)
        return best_of(series.arg_sort)
    frame = polars.DataFrame({name: data[name].copy() for name in data.dtype.names})
    return best_of(lambda: frame.sort(["first", "second"]))


def ftsort_seconds(case, log2):
    import ftsort
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    data = data_of(case, log2, comm.rank, comm.size)
    seconds = []
    with ftsort.Group(comm) as group:
        for _ in range(CALLS):
            comm.Barrier()
            start = MPI.Wtime()
            result = group.argsort(data) if case == "argsort" else group.sort(data, key=["first", "second"])
            seconds.append(comm.allreduce(MPI.Wtime() - start, MPI.MAX))
            result.close()
    return min(seconds) if comm.rank == 0 else None


def operations_of(group, data):
    """Returns calls by name."""
    import numpy as np

    few, order = np.floor(data * 100).astype("i4"), np.arange(len(data))
    return {
        "sort": lambda: group.sort(data),
        "sort_by_key": lambda: group.sort_by_key(data, order),
        "argsort": lambda: group.argsort(data),
        "positions": lambda: group.positions(data),
        "unique (1000 keys)": lambda: group.unique(few),
        "select (one)": lambda: group.select(data, [len(data)]),
        "quantiles (99)": lambda: group.quantiles(data, np.arange(1, 100) / 100),
        "top (1000)": lambda: group.top(data, 1000),
    }


def measure_operations(log2):
    """Prints the seconds of operations on this job's ranks: the median of the turns."""
    import ftsort
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    data = data_of("argsort", log2, comm.rank, comm.size)
    with ftsort.Group(comm) as group:
        calls = operations_of(group, data)
        seconds = {name: [] for name in calls}
        for _ in range(2 * CALLS + 1):
            for name, call in calls.items():
                comm.Barrier()
                start = MPI.Wtime()
                result = call()
                seconds[name].append(comm.allreduce(MPI.Wtime() - start, MPI.MAX))
                del result
    if comm.rank == 0:
        for name, times in seconds.items():
            median = statistics.median(times)
            print(f"{name:<20}{median:>10.3f}{median / statistics.median(seconds['sort']):>8.2f}")


PROGRAMS = {"numpy": numpy_seconds, "polars": polars_seconds, "ftsort": ftsort_seconds}


def run_again(arguments, ranks=None):
    """Runs this program with other arguments in a process of its own, or on ranks; returns the finished process."""
    import launch
    import python_env

    words = [python_env.python(), pathlib.Path(__file__).resolve(), *arguments]
    environment = dict(os.environ, FTSORT_LIBRARY=str(launch.library_dir() / "libftsort.so"),
                       PYTHONPATH=str(python_env.PACKAGE / "src"), OMP_NUM_THREADS="1")
    if ranks is not None:
        words = [*launch.LAUNCH, "-np", str(ranks), *words]
    return subprocess.run(list(map(str, words)), env=environment, capture_output=True, text=True, timeout=600)


def measure(name, case, log2, ranks):
    """Returns the seconds of one program; None if it is not installed."""
    run = run_again(["--program", name, case, str(log2)], ranks if name == "ftsort" else None)
    if "No module named 'polars'" in run.stderr:
        return None
    if run.returncode != 0:
        sys.exit(run.stdout + run.stderr)
    return float(run.stdout.split()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--log2", type=int, nargs=2, default=[25, 24], metavar=("ARGSORT", "TWO_KEYS"))
    parser.add_argument("--operations", type=int, metavar="LOG2", help="measure the operations of a group")
    parser.add_argument("--on-ranks", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--program", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.program:
        name, case, log2 = options.program
        seconds = PROGRAMS[name](case, int(log2))
        if seconds is not None:
            print(seconds)
        return
    if options.operations is not None:
        if options.on_ranks:
            measure_operations(options.operations)
            return
        run = run_again(["--operations", str(options.operations), "--on-ranks"], options.ranks)
        print(f"{'operation':<20}{'seconds':>10}{'/ sort':>8}\n{run.stdout}", end="")
        sys.exit(run.stderr if run.returncode else 0)
    print(f"{'case':<20}" + "".join(f"{name:>10}" for name in PROGRAMS))
    for case, log2 in zip(CASES, options.log2):
        figures = {name: [] for name in PROGRAMS}
        for _ in range(options.turns):
            for name in PROGRAMS:
                figures[name].append(measure(name, case, log2, options.ranks))
        cells = [statistics.median(times) if None not in times else None for times in figures.values()]
        shown = "".join("         -" if cell is None else f"{cell:>10.3f}" for cell in cells)
        print(f"{f'{case}, 2^{log2}':<20}{shown}", flush=True)


if __name__ == "__main__":
    main()
