"""Sorts of every type, order and configuration against NumPy."""

import ftsort

import gc
import weakref

import numpy as np
import pytest
from mpi4py import MPI

from ftsort import _native
from samples import BYTES, FLOATS, NUMBERS, STAR, TEXTS, TIMES, check, codes, inputs, order

SIZE, RANK = MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank
PLAIN = [*NUMBERS, *FLOATS, "?", *TIMES, *BYTES]


def expected(parts, keys=None, descending=False):
    whole = np.concatenate(parts)
    return whole[order(whole, keys, descending)]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", PLAIN)
def test_types(group, dtype, descending):
    parts = inputs(dtype)
    before = parts[RANK].copy()
    result = group.sort(parts[RANK], descending=descending)
    check(result, expected(parts, descending=descending))
    assert parts[RANK].tobytes() == before.tobytes()
    assert result.verify(parts[RANK]) == 0


def test_an_empty_array_has_none_of_the_records_of_a_result(group):
    result = group.sort([1.0])
    assert result.verify() == result.verify([1.0]) == 0
    assert result.verify(np.empty(0)) > 0
    assert group.sort(np.empty(0)).verify(np.empty(0)) == 0


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", TEXTS)
def test_text(group, dtype, descending):
    parts = inputs(dtype)
    check(group.sort(parts[RANK], descending=descending), expected(parts, descending=descending))


@pytest.mark.parametrize("dtype", [*NUMBERS, "?", *BYTES])
def test_numpy_agrees(group, dtype):
    parts = inputs(dtype, seed=2)
    check(group.sort(parts[RANK]), np.sort(np.concatenate(parts)))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", STAR.names)
def test_fields(group, name, descending):
    parts = inputs(STAR)
    check(group.sort(parts[RANK], key=name, descending=descending), expected(parts, [name], descending))


@pytest.mark.parametrize("align", [False, True])
def test_half_field(group, align):
    dtype = np.dtype([("pad", "u1"), ("half", "f2"), ("id", "i8")], align=align)
    parts = inputs(dtype)
    wanted = expected(parts, ["half"])
    result = group.sort(parts[RANK], key="half")
    for block in result:
        part = wanted[block.offset:block.offset + len(block)]
        for field in dtype.names:
            assert block.array[field].tobytes() == part[field].tobytes()
    check(group.sort(parts[RANK]["id"]), expected([part["id"] for part in parts]))


def test_a_half_field_that_is_named_twice(group):
    parts = inputs(np.dtype([("half", "f2"), ("id", "i8")]))
    keys, descending = ["half", "id", "half"], [True, False, False]
    result = group.sort(parts[RANK], key=keys, descending=descending)
    check(result, expected(parts, keys, descending))
    assert result.verify(parts[RANK]) == 0


@pytest.mark.parametrize("keys, descending", [
    (["magnitude", "name"], [False, True]), (["flags", "seen"], True), (["name", "magnitude", "id"], False),
    (None, False), (["id"], [True]),
])
def test_several_keys(group, keys, descending):
    parts = inputs(STAR)
    check(group.sort(parts[RANK], key=keys, descending=descending), expected(parts, keys, descending))


def test_strided_and_empty_inputs(group):
    parts = inputs("i4")
    strided = np.repeat(parts[RANK], 3)[::3]
    assert not strided.flags.c_contiguous or len(strided) < 2
    check(group.sort(strided), expected(parts))
    check(group.sort(np.empty(0, "f8")), np.empty(0, "f8"))
    check(group.sort([]), np.empty(0, "f8"))


CONFIGURATIONS = [
    dict(algorithm=algorithm, pivot=pivot)
    for algorithm in ("auto", "samplesort", "samplesort_2", "hyperquicksort", "quickmerge", "quickmerge_modified")
    for pivot in ("sampled", "paper")
] + [
    dict(algorithm="bitonic"), dict(algorithm="bitonic", checks=["progress", "feasibility", "consistency"]),
    dict(store="none"), dict(store="parity"), dict(store="parity", parity=2, parity_group=5), dict(store="directory"), dict(store="directory", store_sync=True, group_access=True),
    dict(checks="digest"), dict(dense=True), dict(threads=2), dict(release_after_run=True), dict(memory_limit=2**28),
    dict(timeout=float("inf")), dict(repair="shrink"), dict(min_survivors=1),
]


@pytest.mark.parametrize("options", CONFIGURATIONS, ids=str)
def test_configurations(options, shared_path):
    if options.get("store") == "directory":
        options = dict(options, store_directory=shared_path)
    if "progress" in options.get("checks", ()) and SIZE & (SIZE - 1):
        pytest.skip("these checks need a power of two")
    parts = inputs("i4", count=400)
    with ftsort.Group(**options) as group:
        result = group.sort(parts[RANK])
        check(result, expected(parts))
        if options.get("dense"):
            assert len(result) == 1 and abs(len(result.array) - result.total / SIZE) <= 1
        result.close()


def test_kept_communicator():
    parts = inputs("i4", count=400)
    comm = MPI.COMM_WORLD.Dup()
    for _ in range(3):
        with ftsort.Group(comm, keep_comm=True) as group:
            check(group.sort(parts[RANK]), expected(parts))
    with pytest.raises(ftsort.ArgumentError):
        ftsort.Group(comm, "memories", keep_comm=True)
    comm.Free()


def test_bitonic_merge():
    if SIZE & (SIZE - 1):
        pytest.skip("the algorithm needs a power of two")
    whole = np.concatenate([np.arange(SIZE * 50), np.arange(SIZE * 50)[::-1]])
    with ftsort.Group(algorithm="bitonic_merge") as group:
        check(group.sort(whole[RANK * 100:(RANK + 1) * 100]), np.sort(whole))
        part = whole[RANK * 100:(RANK + 1) * 100]
        check(group.protect(part).sort(), np.sort(whole))
        for call in (lambda: group.sort(part, stable=True), lambda: group.protect(part).sort(stable=True),
                     lambda: group.sort_by_key(part, part)):
            with pytest.raises(ftsort.ArgumentError, match="order of equal keys"):
                call()


def test_replicas_and_spares():
    options = dict(replicas=2) if SIZE > 2 else {}
    spares = 1 if SIZE > 2 else 0
    parts = inputs("f8")[:SIZE - spares]
    with ftsort.Group(spares=spares, **options) as group:
        mine = parts[RANK] if RANK < len(parts) else np.empty(0)
        assert group.is_spare(RANK) == (RANK >= len(parts))
        check(group.sort(mine), expected(parts))


def test_reload_store_without_failures():
    parts = inputs("f2")
    with ftsort.Group(store="reload", reload=lambda rank: parts[rank]) as group:
        check(group.sort(parts[RANK]), expected(parts))


def test_many_arrays(group):
    arrays = [inputs("i4", seed) for seed in range(5)]
    for result, parts in zip(group.sort_many([parts[RANK] for parts in arrays]), arrays):
        check(result, expected(parts))
    tables = [inputs(STAR, seed) for seed in range(3)]
    results = group.sort_many([parts[RANK] for parts in tables], key="name", descending=True)
    for result, parts in zip(results, tables):
        check(result, expected(parts, ["name"], True))
    mixed = [inputs("i8"), inputs("f8")]
    for result, parts in zip(group.sort_many([parts[RANK] for parts in mixed]), mixed):
        check(result, expected(parts))
        assert result.verify(parts[RANK]) == 0
    assert group.sort_many([]) == []


def test_protected_input(group):
    parts = inputs(STAR)
    with group.protect(parts[RANK], key="id") as protected:
        check(protected.sort(), expected(parts, ["id"]))
        check(protected.sort(key="name", descending=True), expected(parts, ["name"], True))
        keys, descending = ["flags", "name"], np.array([True, False])
        check(protected.sort(key=keys, descending=descending), expected(parts, keys, descending.tolist()))
        check(group.sort_protected(protected), expected(parts, ["id"]))
        other = inputs(STAR, seed=9, count=20)
        protected.update(other[RANK])
        check(protected.sort(), expected(other, ["id"]))
    with pytest.raises(ftsort.StateError):
        protected.sort()
    halves = inputs("f2")
    check(group.protect(halves[RANK]).sort(descending=True), expected(halves, descending=True))


def test_a_comparator_receives_protected_halves_as_they_were(group):
    def compare(one, other):
        return int(one > other) - int(one < other)

    halves = [np.arange(-20, 20, dtype="f2")[::-1] / 8 + rank for rank in range(SIZE)]
    with group.protect(halves[RANK]) as protected:
        for descending in (False, True):
            result = protected.sort(compare=compare, descending=descending)
            check(result, expected(halves, descending=descending))
            assert result.verify(halves[RANK]) == 0
    table = np.dtype([("id", "i4"), ("half", "f2")])
    tables = [np.array([(int(8 * half) % 7, half) for half in part], table) for part in halves]
    with group.protect(tables[RANK], key="half") as protected:
        result = protected.sort(compare=lambda one, other: compare(one["half"], other["half"]))
        check(result, expected(tables, ["half"]))


def test_set_algorithm(group):
    parts = inputs("u4")
    group.set_algorithm("hyperquicksort", "paper")
    check(group.sort(parts[RANK]), expected(parts))
    group.set_algorithm("auto")


def test_comparator(group):
    parts = inputs("i4", count=40)
    result = group.sort(parts[RANK], compare=lambda a, b: int(b) - int(a))
    check(result, expected(parts, descending=True))
    stars = inputs(STAR, count=30)
    result = group.sort(stars[RANK], compare=lambda a, b: (a["name"] > b["name"]) - (a["name"] < b["name"]))
    check(result, expected(stars, ["name"]))
    assert result.verify(stars[RANK]) == 0


def test_the_result_of_a_protected_input_keeps_its_comparator(group, monkeypatch):
    parts, callbacks, kind = inputs("i4", count=40), [], _native.COMPARE_FN

    def made(function):
        callbacks.append(weakref.ref(function))
        return kind(function)

    monkeypatch.setattr(_native, "COMPARE_FN", made)
    protected = group.protect(parts[RANK], compare=lambda a, b: int(b) - int(a))
    result = protected.sort(stable=True)
    protected.close()
    del protected
    gc.collect()
    # The library calls it in a verification.
    assert len(callbacks) == 1 and callbacks[0]() is not None
    assert result.verify(parts[RANK]) == 0


def test_gather_at_one_rank(group):
    for dtype in ("i8", "f2"):
        parts = inputs(dtype)
        result = group.sort(parts[RANK])
        for root in range(SIZE):
            gathered = result.to_numpy(root)
            assert (gathered is not None) == (RANK == root)
            if gathered is not None:
                assert gathered.tobytes() == expected(parts).tobytes()
    empty = group.sort([]).to_numpy(0)
    assert (empty is not None) == (RANK == 0)


def test_codes_are_the_documented_order():
    values = np.array([-np.nan, -np.inf, -1, -0.0, 0.0, 1, np.inf, np.nan])
    assert codes(values).tolist() == list(range(8))
    assert codes(np.array(["NaT", "1970-01-01"], "M8[s]")).tolist() == [0, 1]
