"""Tests that all ranks run together. A failure on one rank ends the job, because the others would wait for it."""

import ftsort  # before mpi4py.MPI

import sys

import pytest
from mpi4py import MPI


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.failed and MPI.COMM_WORLD.size > 1:
        print(f"rank {MPI.COMM_WORLD.rank}: {item.nodeid}\n{report.longreprtext}", file=sys.stderr, flush=True)
        MPI.COMM_WORLD.Abort(1)


@pytest.fixture(scope="session")
def group():
    with ftsort.Group(MPI.COMM_WORLD, timeout=30) as made:
        yield made


@pytest.fixture
def shared_path(tmp_path_factory):
    """A folder that all ranks see."""
    path = str(tmp_path_factory.mktemp("shared")) if MPI.COMM_WORLD.rank == 0 else None
    yield MPI.COMM_WORLD.bcast(path)
    MPI.COMM_WORLD.barrier()
