"""Kills of ranks: by themselves at a random moment, from outside, and injected at a given round."""

import json
import os
import random
import signal
import time

import numpy as np
import pytest

import jobs


def whole(ranks):
    parts = [np.random.default_rng(rank).integers(-10**6, 10**6, 1 << 16) for rank in range(ranks)]
    return np.sort(np.concatenate(parts))


def assemble(folder):
    """Returns the blocks of all nodes, in their order."""
    blocks = sorted((int(path.stem.split("-")[2]), int(path.stem.split("-")[1]), path)
                    for path in folder.glob("block-*.npy"))
    nodes = {}
    for offset, node, path in blocks:
        nodes.setdefault((offset, node), np.load(path))
    return np.concatenate(list(nodes.values()))


def check_survivors(folder, ranks, victims, text):
    for rank in set(range(ranks)) - set(victims):
        mark = folder / f"ok-{rank}"
        assert mark.exists(), f"rank {rank} left no mark:\n{text}"
        found = json.loads(mark.read_text())
        assert found["total"] == ranks << 16 and found["failed"] == sorted(victims), (found, text)
    assert np.array_equal(assemble(folder), whole(ranks))


@pytest.mark.parametrize("ranks, victims, store, seed", [
    (2, [1], "memory", 1), (4, [2], "memory", 2), (4, [0], "memory", 3), (4, [3], "directory", 4),
    (4, [1], "reload", 5), (4, [0, 1, 3], "directory", 6), (4, [1, 2], "reload", 7), (3, [0], "memory", 8),
])
def test_ranks_that_kill_themselves(tmp_path, ranks, victims, store, seed):
    arguments = [tmp_path, seed, store, "self", *victims]
    text, _ = jobs.run(ranks, "programs/kills.py", *arguments, **jobs.NO_QUEUES)
    check_survivors(tmp_path, ranks, victims, text)


@pytest.mark.parametrize("seed", range(3))
def test_ranks_that_are_killed_from_outside(tmp_path, seed):
    victim = random.Random(seed).randrange(4)
    mark = tmp_path / f"pid-{victim}"

    def kill(job):
        if jobs.wait_for(job, lambda: mark.exists() and mark.read_text()):
            time.sleep(random.Random(seed).uniform(0, 0.3))
            os.kill(int(mark.read_text()), signal.SIGKILL)

    arguments = [tmp_path, seed, "memory", "outside", victim]
    text, _ = jobs.run(4, "programs/kills.py", *arguments, during=kill, **jobs.NO_QUEUES)
    check_survivors(tmp_path, 4, [victim], text)


def test_the_hello_of_the_readme_survives_a_kill():
    hello = jobs.TESTS.parents[2] / "examples" / "languages" / "hello.py"
    text, _ = jobs.run(4, hello, FTSORT_FAULTS="1@1")
    assert text.count(", in order") == 3, text


@pytest.mark.parametrize("case", ["memory", "none", "reload", "reload_many", "reload_values", "refused", "reread",
                                  "compared", "uncounted", "spare", "selected", "raised recover 1", "raised to_numpy 1",
                                  *(f"raised to_numpy {number} refused" for number in (1, 40, 200, 400)),
                                  *(f"queries {number}" for number in range(5))])
def test_injected_failures(tmp_path, case):
    extra = jobs.NO_QUEUES if case == "selected" else {}
    text, _ = jobs.run(4, "programs/injected.py", tmp_path, *case.split(), **extra)
    if "install a newer library" in text:
        pytest.skip("the library has no queries")
    marks = {path.name for path in tmp_path.iterdir()}
    survivors = {"ok-0", "ok-3"} if case == "uncounted" else {"ok-0", "ok-2", "ok-3"}
    assert {mark for mark in marks if mark.startswith("ok-")} == survivors, text
    if case == "reload":
        assert [1, "busy"] in [json.loads(path.read_text()) for path in tmp_path.glob("asked-*")]
    if case == "refused":
        assert [path.read_text() for path in tmp_path.glob("cause-*")] == ["the file is gone"]


def test_a_file_is_sorted_although_a_rank_is_killed(tmp_path):
    values = np.random.default_rng(1).normal(size=100_000)
    values.tofile(tmp_path / "in.bin")
    text, _ = jobs.run(4, "programs/external.py", tmp_path, limit=60)
    marks = [json.loads(path.read_text()) for path in tmp_path.glob("ok-*")]
    assert len(marks) == 3, text
    for mark in marks:
        assert (mark["failed"], mark["records"]) == ([1], len(values)) and mark["restarts"] > 0, mark
    assert np.array_equal(np.fromfile(tmp_path / "out.bin"), np.sort(values))
    assert [list((tmp_path / f"scratch-{rank}").iterdir()) for rank in (0, 2, 3)] == [[], [], []]
