"""Sorts numbers on all ranks; the survivors of a kill finish:  FTSORT_FAULTS=1@1 ftsort-mpirun -np 4 python3 hello.py"""
import ftsort  # before mpi4py.MPI
import numpy as np
from mpi4py import MPI

ftsort.allow_faults()
with ftsort.Group(MPI.COMM_WORLD) as group:
    numbers = np.random.default_rng(group.rank).random(1_000_000)
    result = group.sort(numbers)  # ranks may fail in here
    in_order = all(np.all(block.array[:-1] <= block.array[1:]) for block in result)
    print(f"rank {group.rank}: {len(result)} blocks of {result.total} numbers,",
          "in order" if in_order else "NOT in order", flush=True)
    group.leave()
