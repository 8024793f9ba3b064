"""Lifetimes, memory, events, statistics, the communicator of the survivors, and doctests."""

import ftsort

import copy
import doctest
import gc
import importlib
import logging
import pathlib
import pickle
import re
import weakref

import numpy as np
import pytest
from mpi4py import MPI

from ftsort._layout import contiguous
from ftsort._result import _joined
from samples import inputs

SIZE, RANK = MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank
MODULES = ["ftsort", *(f"ftsort._{name}" for name in ("group", "result", "queries", "settings", "layout"))]
PAGES = [pathlib.Path(__file__).parents[4] / "docs" / "python.md"]


def resident_bytes():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_arrays_outlive_everything():
    group = ftsort.Group()
    part = inputs("i8", count=5000)[RANK]
    result = group.sort(part)
    array, bytes_before = result[0].array, result[0].array.tobytes()
    assert not array.flags.writeable
    with pytest.raises(ValueError):
        array[:1] = 0
    assert np.shares_memory(array, result.array) and np.shares_memory(array, result[0].columns["records"])
    group.close()
    assert result.array is array
    handle = weakref.ref(result._handle)
    result.close()
    del result, group
    gc.collect()
    assert handle() is not None
    other = ftsort.Group()
    for _ in range(5):
        other.sort(part)
    assert array.tobytes() == bytes_before
    tail = array[1:]
    del array
    gc.collect()
    assert handle() is not None
    del tail
    gc.collect()
    assert handle() is None
    other.close()


def test_owners_are_not_copied():
    with ftsort.Group() as group, group.protect([1]) as protected:
        for owner in (group, group.sort([1]), protected):
            for copied in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match="cannot be copied"):
                    copied(owner)


def test_structured_types_keep_their_padding():
    dtype = np.dtype({"names": ["a", "b"], "formats": ["i4", "f8"], "offsets": [4, 8], "itemsize": 24})
    filled = np.frombuffer(bytes(range(240)), dtype)
    joined = _joined([filled[:4], filled[4:6], filled[:0]], dtype)
    assert joined.dtype == dtype and joined.tobytes() == filled[:6].tobytes() and not joined.flags.writeable
    assert _joined([], np.dtype(("f4", (3,)))).shape == (0, 3)
    assert contiguous(filled[::3]).tobytes() == b"".join(filled[at:at + 1].tobytes() for at in range(0, 10, 3))
    with ftsort.Group() as group:
        strided = np.frombuffer(bytes(range(256)) * 30, dtype)[::3]
        result = group.sort(strided, key="a")
        assert result.verify(strided) == 0 and result.array.dtype == dtype


def test_groups_are_collected():
    group = ftsort.Group(on_event=print)
    seen = weakref.ref(group)
    del group
    gc.collect()
    assert seen() is None


def test_memory_of_repeated_calls_is_bounded(group):
    part = np.random.default_rng(RANK).random(1 << 16)
    stars = np.zeros(1 << 12, [("a", "f2"), ("b", "f8")])

    def calls():
        result = group.sort(part)
        assert result.verify(part) == 0
        result.to_numpy()
        group.sort_many([part[:100], part[:50]])
        group.sort(stars, key="a", descending=True)
        with group.protect(part) as protected:
            protected.sort()
        with pytest.raises(ftsort.Error):
            group.sort([None])
        with ftsort.Group(group.survivors(), on_event=lambda event: None) as other:
            other.sort(part[:10])

    for _ in range(10):
        calls()
    gc.collect()
    before = resident_bytes()
    for _ in range(40):
        calls()
    gc.collect()
    assert resident_bytes() - before < 8 << 20


def test_blocks_are_a_sequence(group):
    result = group.sort(np.arange(100))
    assert result[0] is result.blocks[0] and result[:1] == [result[0]]
    # On three ranks rank 2 also executes node 3.
    assert [block.node for block in result] == ([2, 3] if SIZE == 3 and RANK == 2 else [RANK])
    assert f"Block(node={RANK}" in repr(result)


def test_events_and_logs(caplog):
    events = []
    with caplog.at_level(logging.DEBUG, logger="ftsort"):
        with ftsort.Group(MPI.COMM_WORLD, on_event=events.append) as group:
            group.sort(np.arange(1000))
    rounds = [event for event in events if event.kind == ftsort.EventKind.ROUND]
    assert rounds and rounds[-1].round == rounds[-1].rounds - 1 and rounds[0].lowest_survivor == 0
    assert any("was committed" in record.message for record in caplog.records)
    assert any("the group is ready" in record.message for record in caplog.records)
    assert not any(record.levelno >= logging.WARNING for record in caplog.records), caplog.text


def test_properties(group):
    assert (group.rank, group.size) == (RANK, SIZE)
    assert group.failed == [] and group.lost_ranks == [] and not group.is_failed(0)
    assert group.executor(RANK) == RANK and group.executor(SIZE * 4) == -1
    assert f"size={SIZE}" in repr(group)
    survivors = group.survivors()
    assert survivors.allreduce(1) == SIZE and survivors.rank == RANK
    group.sort(np.arange(5000.0))
    stats = group.stats()
    assert stats.total_seconds > 0 and stats.rounds >= 1 and stats.failures == 0
    assert group.sort([1]).recover().total == SIZE


def test_other_communicators():
    half = MPI.COMM_WORLD.Split(RANK % 2, RANK)
    with ftsort.Group(half) as group:
        assert group.size == half.size
        assert group.sort([float(RANK)]).total == half.size
    half.Free()


def test_library(group):
    assert ftsort.version().startswith("0.2.")
    assert "ULFM" in ftsort.build_info()
    assert pathlib.Path(ftsort.library_path()).is_file()
    assert not ftsort.prepare()


@pytest.mark.skipif(SIZE > 1, reason="examples have the output of one rank")
@pytest.mark.parametrize("name", MODULES)
def test_examples(group, name):
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in doctest.DocTestFinder().find(module, extraglobs={"group": group}):
        runner.run(test)
    assert runner.summarize().failed == 0


@pytest.mark.skipif(SIZE > 1, reason="examples have the output of one rank")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages(group, page):
    if not page.exists():
        pytest.skip("the page is not beside the tests")
    # An example ends at the end of its code block.
    code = "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S))
    test = doctest.DocTestParser().get_doctest(code, {}, page.name, str(page), 0)
    assert len(test.examples) > 10
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(test)
    assert runner.summarize().failed == 0
