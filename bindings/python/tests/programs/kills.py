"""Sorts again and again while ranks are killed: kills.py FOLDER SEED STORE HOW VICTIMS...

HOW is "self" (each victim kills itself after a random time) or "outside" (the test kills them). Each survivor writes
the blocks of the last sort into FOLDER, and its mark `ok-RANK`.
"""

import ftsort  # before mpi4py.MPI

import json
import os
import pathlib
import random
import signal
import sys
import threading
import time

import numpy as np
from mpi4py import MPI

COUNT = 1 << 16


def part(rank):
    return np.random.default_rng(rank).integers(-10**6, 10**6, COUNT)


def main():
    folder, seed, store, how = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    victims = [int(word) for word in sys.argv[5:]]
    rank = MPI.COMM_WORLD.rank
    options = dict(store_directory=str(folder)) if store == "directory" else {}
    if store == "reload":
        options["reload"] = part
    events = []
    group = ftsort.Group(store=store, timeout=20, on_event=events.append, **options)
    protected = group.protect(part(rank))
    (folder / f"pid-{rank}").write_text(str(os.getpid()))
    if rank in victims and how == "self":
        delay = random.Random(f"{seed} {rank}").uniform(0, 0.5)
        threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()
    last = time.monotonic() + 20
    finished = False
    while not finished:
        result = protected.sort()
        # Other survivors decide together, because their clocks differ.
        finished, _ = group.agree(int(set(group.failed) >= set(victims) or time.monotonic() > last))
        if not finished:
            result.close()
    written = set()
    while True:
        # Also at first: a rank may have failed in the last sort after it had committed its result.
        result.recover()
        for block in result:
            if block.node not in written:
                np.save(folder / f"block-{block.node}-{block.offset}.npy", block.array)
                written.add(block.node)
        _, failures = group.agree()
        if failures == 0:
            break
    kinds = sorted({int(event.kind) for event in events})
    mark = dict(total=result.total, failed=group.failed, kinds=kinds)
    (folder / f"ok-{rank}").write_text(json.dumps(mark))
    result.close()
    protected.close()
    group.leave(0)


main()
