"""One sort with an injected failure of rank 1: injected.py FOLDER CASE. Each survivor checks it and leaves a mark."""

import ftsort  # before mpi4py.MPI

import json
import logging
import os
import pathlib
import signal
import sys
import threading

import numpy as np
from mpi4py import MPI

FOLDER, CASE = pathlib.Path(sys.argv[1]), sys.argv[2]
RANK, SIZE = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
DTYPE = np.dtype([("half", "f2"), ("id", "i4")])


def part(rank):
    table = np.zeros(3000, DTYPE)
    table["half"] = np.random.default_rng(rank).standard_normal(len(table))
    table["id"] = np.arange(len(table)) + rank * len(table)
    return table


def whole():
    table = np.concatenate([part(rank) for rank in range(SIZE)])
    return table[np.argsort(table["half"], kind="stable")]


def check(result):
    expected = whole()
    assert result.total == len(expected)
    for block in result:
        assert block.array.tobytes() == expected[block.offset:block.offset + len(block)].tobytes()


def memory():
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append((record.levelno, record.getMessage()))
    logging.getLogger("ftsort").addHandler(handler)
    group = ftsort.Group(faults="1@1")
    result = group.sort(part(RANK), key="half")
    check(result)
    assert group.failed == [1] and group.executor(1) != 1 and group.stats().failures == 1
    assert (logging.WARNING, "rank 1 has failed") in lines, lines
    assert group.survivors().size == SIZE - 1
    gathered = result.to_numpy(1)  # the executor of node 1 receives it
    assert (gathered is not None) == (RANK == group.executor(1))
    assert gathered is None or gathered.tobytes() == whole().tobytes()
    # A wrong argument after a failure is reported as before.
    try:
        group.sort(object() if RANK == 0 else [1.0])
    except (ftsort.ArgumentError, ftsort.PeerArgumentError) as error:
        assert isinstance(error, ftsort.ArgumentError) == (RANK == 0)
    return group


def none():
    group = ftsort.Group(store="none", faults="1@2")
    try:
        group.sort(part(RANK), key="half")
    except ftsort.DataLost as error:
        assert error.ranks == (1,) and error.status == -40 and group.lost_ranks == [1], error.ranks
    else:
        raise AssertionError("no DataLost")
    assert group.sort([1.0]).total == SIZE - 1
    return group


def reload():
    asked = []

    def call_again():
        try:
            group.sort([1.0])
        except ftsort.StateError:
            asked.append("busy")

    def again(rank):
        asked.append(rank)
        # The call of another thread is refused, and must not change the types of the call that runs.
        thread = threading.Thread(target=call_again)
        thread.start()
        thread.join()
        return part(rank)

    group = ftsort.Group(store="reload", reload=again, faults="1@1")
    check(group.sort(part(RANK), key="half"))
    (FOLDER / f"asked-{RANK}").write_text(json.dumps(asked))
    return group


def reload_many():
    group = ftsort.Group(store="reload", reload=lambda rank: [part(rank)[:100], part(rank)], faults="1@1")
    results = group.sort_many([part(RANK)[:100], part(RANK)], key="half")
    check(results[1])
    return group


def reload_values():
    def again(rank):
        return part(rank)["half"], part(rank)["id"]

    group = ftsort.Group(store="reload", reload=again, faults="1@1")
    table = part(RANK)
    result = group.sort_by_key(table["half"], table["id"])
    expected = whole()
    for block in result:
        piece = expected[block.offset:block.offset + len(block)]
        assert block.array.tobytes() == piece["half"].tobytes()
        assert block.columns["values"].tobytes() == piece["id"].tobytes()
    return group


def queries():
    """Each query survives the failure of a rank, and its answer includes the input of that rank."""
    expected = whole()
    calls = [
        lambda group, table: group.argsort(table, key="half").total == len(expected),
        lambda group, table: group.positions(table, key="half").total == len(expected),
        lambda group, table: group.top(table, 10, key="half").total == 10,
        lambda group, table: group.unique(table, key="half").total == len(np.unique(expected["half"])),
        lambda group, table: group.group_by(table, "half", {"n": "count"}).total == len(np.unique(expected["half"])),
    ]
    group = ftsort.Group(faults="1@1")
    number = int(sys.argv[3])
    assert calls[number](group, part(RANK)), number
    return group


def selected():
    """Selects again and again while rank 1 is killed at some moment. Its input counts, or is reported as lost."""
    full = whole()
    survivors = np.concatenate([part(rank) for rank in range(SIZE) if rank != 1])
    survivors = survivors[np.argsort(survivors["half"], kind="stable")]
    group = ftsort.Group(timeout=20)
    if RANK == 1:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGKILL)).start()
    while group.failed != [1]:
        try:
            third = group.select(part(RANK), [3], key="half").tobytes()
            median = group.quantiles(part(RANK), [0.5], key="half").tobytes()
        except ftsort.DataLost as error:
            assert error.ranks == (1,), error.ranks
            continue
        assert third in (full[3:4].tobytes(), survivors[3:4].tobytes())
        assert median in [table[len(table) // 2 - 1:][:1].tobytes() for table in (full, survivors)]
    return group


def refused():
    def again(_rank):
        raise OSError("the file is gone")

    group = ftsort.Group(store="reload", reload=again, faults="1@1")
    try:
        group.sort(part(RANK), key="half")
    except ftsort.CallbackError as error:
        if isinstance(error.__cause__, OSError):
            (FOLDER / f"cause-{RANK}").write_text(str(error.__cause__))
    else:
        raise AssertionError("no CallbackError")
    assert group.sort([1.0]).total == SIZE - 1
    return group


def compared():
    group = ftsort.Group(faults="1@1")
    result = group.sort(part(RANK)[:300], compare=lambda a, b: float(a["half"]) - float(b["half"]))
    halves = np.concatenate([block.array["half"] for block in result]) if len(result) else np.empty(0)
    assert result.total == 300 * SIZE and (np.diff(halves.astype("f4")) >= 0).all()
    return group


def raised():
    """An exception of a comparison in a recovery closes the result on all ranks: a block made with it may be wrong.

    The words of the command name the method of the result, the number of the comparison, and perhaps "refused": then rank 0
    has no memory for the whole result either.
    """
    method, number, *refused = sys.argv[3:]
    left, refusals, empty = [], refused if RANK == 0 else [], np.empty

    def compare(a, b):
        if left:
            left[0] -= 1
            if left[0] == 0:
                left.clear()
                raise ValueError("no order")
        return float(a["half"]) - float(b["half"])

    def refuse(*arguments):
        if refusals:
            refusals.clear()
            raise MemoryError("no memory")
        return empty(*arguments)

    group = ftsort.Group(timeout=20)
    result = group.sort(part(RANK)[:300], compare=compare)
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while group.failed != [1]:
        group.agree()
    read = getattr(result, method)
    left += [int(number)] if group.executor(1) == RANK else []
    np.empty = refuse
    try:
        read()
    except ftsort.CallbackError as error:
        assert isinstance(error.__cause__, ValueError) == (group.executor(1) == RANK), error.__cause__
    else:
        raise AssertionError("no CallbackError")
    try:
        read()
    except ftsort.StateError:
        return group
    raise AssertionError("the result is not closed")


def reread():
    """After an exception of `reload` in a recovery the result stays open, and is recovered by a later call."""
    refusals = []

    def again(rank):
        if refusals:
            raise OSError(refusals.pop())
        return part(rank)

    group = ftsort.Group(store="reload", reload=again, timeout=20)
    result = group.sort(part(RANK), key="half")
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while group.failed != [1]:
        group.agree()
    refusals += ["the file is gone"]
    try:
        result.recover()
    except ftsort.CallbackError:
        refusals.clear()
    else:
        raise AssertionError("no CallbackError")
    check(result.recover())
    held = group.survivors().allreduce(sum(len(block) for block in result))
    assert held == 3000 * SIZE, held
    return group


def uncounted():
    """Rank 1 fails between a successful call and the agreement about its comparator. Later calls count that failure."""
    group = ftsort.Group(timeout=20)

    def ordered():
        return group.sort(part(RANK)[:300], compare=lambda a, b: float(a["half"]) - float(b["half"]))

    def die(*_arguments):
        os.kill(os.getpid(), signal.SIGKILL)

    # The loop of docs/python.md.
    result, written, found = ordered(), {}, []
    if RANK == 1:
        group._library.agree = die
    result.recover()
    while True:
        for block in result:
            written.setdefault(block.node, len(block))
        _, failures = group.agree()
        found.append(failures)
        if failures == 0:
            break
        result.recover()
    assert found == [1, 0] and group.failed == [1], found
    assert group.survivors().allreduce(sum(written.values())) == 300 * SIZE

    if RANK == 2:
        group._library.agree = die
    ordered()
    assert group.failed == [1, 2]
    # A rank with a wrong argument takes part in the agreement that counts the failure for the others.
    try:
        assert group.agree("one" if RANK == 3 else 1) == (0, 1) and RANK == 0
    except ftsort.ArgumentError:
        assert RANK == 3
    assert group.fault_check() == 0
    return group


def spare():
    group = ftsort.Group(spares=1, faults="1@1")
    data = part(RANK) if RANK < SIZE - 1 else part(RANK)[:0]
    result = group.sort(data, key="half")
    assert result.total == 3000 * (SIZE - 1) and group.executor(1) == SIZE - 1
    return group


def main():
    group = globals()[CASE]()
    (FOLDER / f"ok-{RANK}").touch()
    group.leave(0)


main()
