"""Sorts a file by runs although rank 1 is killed: external.py FOLDER. Each survivor writes its mark `ok-RANK`."""

import ftsort  # before mpi4py.MPI

import json
import os
import pathlib
import signal
import sys

from mpi4py import MPI

MEMORY = 5 << 14  # A run has 16 kB.


def main():
    folder, rank = pathlib.Path(sys.argv[1]), MPI.COMM_WORLD.rank
    rounds = []

    def on_event(event):
        # Some batches are committed before.
        rounds.append(event)
        if rank == 1 and len(rounds) == 20:
            os.kill(os.getpid(), signal.SIGKILL)

    group = ftsort.Group(timeout=20, on_event=on_event)
    scratch = folder / f"scratch-{rank}"
    scratch.mkdir()
    stats = group.external_sort(folder / "in.bin", folder / "out.bin", "f8", scratch=scratch, memory=MEMORY)
    mark = dict(stats._asdict(), failed=group.failed)
    (folder / f"ok-{rank}").write_text(json.dumps(mark))
    group.leave(0)


main()
