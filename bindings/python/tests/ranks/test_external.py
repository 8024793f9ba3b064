"""Sorts of files by runs, against NumPy."""

import ftsort

import errno
import os
import stat

import numpy as np
import pytest
from mpi4py import MPI

from samples import STAR, codes, inputs
from test_errors import refused

SIZE, RANK = MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank
MEMORY = 5 << 12  # A run has 4 kB.


def write(path, array):
    """Writes a raw file, which all ranks see afterwards."""
    if RANK == 0:
        array.tofile(path)
    MPI.COMM_WORLD.barrier()
    return path


def ordered(array):
    """Returns the bytes of all records, in one order."""
    raw = array.view(np.uint8).reshape(len(array), array.dtype.itemsize)
    return sorted(record.tobytes() for record in raw)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype, key", [("f8", None), ("S7", None), (STAR, "magnitude"), (STAR, ["name", "id"])])
def test_files(group, shared_path, dtype, key, descending):
    parts = inputs(dtype, count=900)
    sources = [write(f"{shared_path}/in{number}", part) for number, part in enumerate(parts)]
    folders = [f"{shared_path}/{name}{RANK}" for name in "ab"]
    for folder in folders:
        os.mkdir(folder)
    output = f"{shared_path}/out"
    stats = group.external_sort(sources, output, dtype, key, descending, scratch=folders, memory=MEMORY)
    whole, found = np.concatenate(parts), np.fromfile(output, dtype)
    assert stats.records == len(whole) and stats.batches > 1 and stats.restarts == stats.resumed_records == 0
    assert MPI.COMM_WORLD.allreduce(stats.runs) > 1
    assert ordered(found) == ordered(whole)
    names = [key] if isinstance(key, str) else key
    for name in names[:1] if names else [None]:
        steps = np.diff(codes(found if name is None else found[name]))
        assert np.all(steps <= 0 if descending else steps >= 0)
    assert all(os.listdir(folder) == [] for folder in folders)
    assert len(os.listdir(shared_path)) == len(set(sources)) + 2 * SIZE + 1


def test_offsets_leave_room_for_headers(group, shared_path):
    values = np.random.default_rng(1).normal(size=3000)
    source = write(f"{shared_path}/in", np.concatenate([np.full(2, np.nan), values]))
    group.external_sort(source, f"{shared_path}/out", "f8", memory=MEMORY, source_offset=16, output_offset=24)
    found = np.fromfile(f"{shared_path}/out", "f8")
    assert np.array_equal(found, np.concatenate([np.zeros(3), np.sort(values)]))


def test_an_output_of_several_files(group, shared_path):
    values = np.random.default_rng(3).normal(size=3001)
    source = write(f"{shared_path}/in", values)
    group.external_sort(source, f"{shared_path}/out", "f8", memory=MEMORY, output_offset=8, output_parts=2)
    parts = [np.fromfile(f"{shared_path}/out.0000{part}", "f8") for part in range(2)]
    assert [len(part) for part in parts] == [1501, 1502]
    assert np.array_equal(np.concatenate([part[1:] for part in parts]), np.sort(values))
    assert sorted(os.listdir(shared_path)) == ["in", "out.00000", "out.00001"]


def test_a_complete_sort_is_not_repeated(group, shared_path):
    values = np.random.default_rng(2).normal(size=3000)
    source, output = write(f"{shared_path}/in", values), f"{shared_path}/out"
    first = group.external_sort(source, output, np.float64, memory=MEMORY, resume=True)
    again = group.external_sort(source, output, np.float64, memory=MEMORY, resume=True)
    assert first.batches > 1 and (again.batches, again.bytes_read, again.resumed_records) == (0, 0, 3000)
    assert np.array_equal(np.fromfile(output), np.sort(values))
    with pytest.raises(ftsort.ArgumentError, match="another key"):
        group.external_sort(source, output, np.float64, descending=True, memory=MEMORY, resume=True)


def reverse(one, other):
    """Compares two elements for descending order."""
    return int(other > one) - int(other < one)


@pytest.mark.parametrize("compare", [None, reverse])
def test_only_the_user_can_read_the_output(group, shared_path, compare):
    source, output = write(f"{shared_path}/in", np.arange(9.0)), f"{shared_path}/out"
    if RANK == 0:
        open(output, "w").close()
        os.chmod(output, 0o644)
    MPI.COMM_WORLD.barrier()
    group.external_sort(source, output, "f8", compare=compare)
    assert stat.S_IMODE(os.stat(output).st_mode) == 0o600


@pytest.mark.parametrize("parts", [0, 3])
def test_a_comparator_decides_the_order_of_a_file(group, shared_path, parts):
    values = np.random.default_rng(4).normal(size=900)
    source = write(f"{shared_path}/in", values)
    output = f"{shared_path}/out" if parts else source
    names = [f"{output}.{part:05}" for part in range(parts)] or [output]
    stats = group.external_sort(source, output, "f8", compare=reverse, sync=True, output_parts=parts)
    assert stats.records == len(values)
    assert np.array_equal(np.concatenate([np.fromfile(name) for name in names]), np.sort(values)[::-1])
    assert sorted(os.listdir(shared_path)) == sorted({"in", *map(os.path.basename, names)})


def test_the_state_of_an_earlier_sort_is_not_that_of_a_later_output(group, shared_path):
    values = np.random.default_rng(5).normal(size=900)
    source, output = write(f"{shared_path}/in", values), f"{shared_path}/out"
    group.external_sort(source, output, "f8", resume=True)
    group.external_sort(source, output, "f8", compare=reverse)
    assert np.array_equal(np.fromfile(output), np.sort(values)[::-1])
    MPI.COMM_WORLD.barrier()
    assert group.external_sort(source, output, "f8", resume=True).resumed_records == 0
    assert np.array_equal(np.fromfile(output), np.sort(values))


@pytest.mark.parametrize("failing", ["one rank", "all ranks"])
def test_outputs_that_cannot_be_named(group, shared_path, monkeypatch, failing):
    values = np.random.default_rng(6).normal(size=900)
    source, output = write(f"{shared_path}/in", values), f"{shared_path}/out"

    def refuse(*names):
        raise PermissionError(errno.EACCES, "Permission denied", *names)

    if RANK == SIZE - 1 or failing == "all ranks":
        monkeypatch.setattr(os, "replace", refuse)
    if failing == "all ranks" or SIZE == 1:
        with pytest.raises(ftsort.StoreError, match="no rank can give the output its name: .*Permission denied"):
            group.external_sort(source, output, "f8", compare=reverse)
        output += ".unchecked"
    else:
        group.external_sort(source, output, "f8", compare=reverse)
    assert np.array_equal(np.fromfile(output), np.sort(values)[::-1])
    assert sorted(os.listdir(shared_path)) == ["in", os.path.basename(output)]


def test_outputs_and_sources_that_a_sort_with_a_comparator_refuses(group, shared_path):
    names = ["out.unchecked", "out.ftsort", "out.00001", "out.unchecked.00001"]
    for name in names:
        write(f"{shared_path}/{name}", np.arange(5.0))
    if RANK == 0:
        os.mkfifo(f"{shared_path}/pipe")
        os.symlink("out.ftsort", f"{shared_path}/link")
        os.symlink("pipe", f"{shared_path}/piped")
    MPI.COMM_WORLD.barrier()
    options = dict(dtype="f8", compare=reverse)
    for name, parts in (("out.unchecked", 0), ("out.ftsort", 0), ("link", 0), ("out.00001", 2),
                        ("out.unchecked.00001", 2)):
        with pytest.raises(ftsort.ArgumentError, match=f"{name} has the name of a file that the sort writes"):
            group.external_sort(f"{shared_path}/{name}", f"{shared_path}/out", output_parts=parts, **options)
    for name in ("pipe", "piped"):
        with pytest.raises(ftsort.ArgumentError, match=f"{name}, which is no regular file"):
            group.external_sort(f"{shared_path}/out.00001", f"{shared_path}/{name}", **options)
    assert sorted(os.listdir(shared_path)) == sorted([*names, "link", "pipe", "piped"])


def test_an_output_that_replaces_its_source_is_synced(group, shared_path, monkeypatch):
    synced = []
    monkeypatch.setattr("ftsort._external.sync_directory", synced.append)
    source = write(f"{shared_path}/in", np.arange(50.0))
    group.external_sort(source, f"{shared_path}/out", "f8", compare=reverse)
    assert synced == []
    group.external_sort(source, source, "f8", compare=reverse)
    assert synced == [os.fsencode(source)]


def test_wrong_arguments(group, shared_path):
    source = write(f"{shared_path}/in", np.arange(5.0))
    culprit = RANK == SIZE - 1

    def sort(dtype="f8", *, sources=source, output=f"{shared_path}/out", **options):
        group.external_sort(sources, output, dtype, **options)

    refused(lambda: sort("f2" if culprit else "f8"), "float16")
    refused(lambda: sort(None if culprit else "f8"), "dtype is None")
    refused(lambda: sort(sources=3 if culprit else source), "sources is 3, expected a path")
    refused(lambda: sort(output=["a"] if culprit else f"{shared_path}/out"), "output is .'a'., expected a path")
    refused(lambda: sort(sources=[] if culprit else source), "sources is empty")
    refused(lambda: sort(memory=0 if culprit else None), "memory is 0")
    refused(lambda: sort(output_offset=-1 if culprit else 0), "output_offset is -1")
    refused(lambda: sort(output_parts=-1 if culprit else 0), "output_parts is -1, expected a number of files")
    refused(lambda: sort(output_parts=100_001 if culprit else 0), "output_parts is 100001, expected at most 100000")
    refused(lambda: sort(resume=culprit, compare=reverse), "a sort with compare cannot be resumed")
    refused(lambda: sort(scratch=["a\0b"] if culprit else None), "not a path")
    refused(lambda: sort(source_offset=41 if culprit else 0), "source_offset is 41, but the source .* has 40 bytes")
    with pytest.raises(ftsort.ArgumentError, match="not a multiple of the record size 24"):
        sort("S24")
    with pytest.raises(ftsort.StoreError, match="cannot read the source"):
        sort(sources=f"{shared_path}/absent")
    assert os.listdir(shared_path) == ["in"]
