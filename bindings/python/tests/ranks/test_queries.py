"""Queries against NumPy."""

import ftsort

import numpy as np
import pytest
from mpi4py import MPI

from samples import BYTES, FLOATS, NUMBERS, STAR, TEXTS, TIMES, check, codes, inputs, order
from test_errors import CULPRIT, refused

RANK = MPI.COMM_WORLD.rank
KEYS = [*NUMBERS, *FLOATS, "?", *TIMES, *BYTES, *TEXTS]


def sorted_of(whole, keys=None, descending=False):
    return whole[order(whole, keys, descending)]


@pytest.mark.parametrize("dtype", KEYS)
def test_argsort_and_positions(group, dtype):
    parts = inputs(dtype)
    expected = order(np.concatenate(parts)).astype("u8")
    check(group.argsort(parts[RANK]), expected)
    inverse = np.empty_like(expected)
    inverse[expected] = np.arange(len(expected), dtype="u8")
    result = group.positions(parts[RANK])
    start = sum(len(part) for part in parts[:RANK])
    assert result.array.tolist() == inverse[start:start + len(parts[RANK])].tolist()


@pytest.mark.parametrize("descending", [False, True])
def test_argsort_by_fields(group, descending):
    parts = inputs(STAR)
    keys = ["flags", "name"]
    expected = order(np.concatenate(parts), keys, descending).astype("u8")
    check(group.argsort(parts[RANK], key=keys, descending=descending), expected)


@pytest.mark.parametrize("dtype", ["i4", "f2", "S7", "U5"])
@pytest.mark.parametrize("value", ["i8", "S3", ("f4", (3,))], ids=str)
def test_sort_by_key(group, dtype, value):
    parts = inputs(dtype)
    row = np.dtype(value)
    values = [np.arange(len(part) * row.itemsize, dtype="u1").view(row.base).reshape(len(part), *row.shape)
              for part in parts]
    whole = order(np.concatenate(parts))
    result = group.sort_by_key(parts[RANK], values[RANK])
    check(result, np.concatenate(parts)[whole], "keys")
    expected = np.concatenate(values)[whole]
    for block in result:
        assert block.columns["values"].tobytes() == expected[block.offset:block.offset + len(block)].tobytes()
        assert block.columns["values"].shape[1:] == row.shape


@pytest.mark.parametrize("dtype", ["i4", "f2", "f8", "S7", "U5", "M8[s]"])
def test_select_and_quantiles(group, dtype):
    parts = inputs(dtype)
    whole = sorted_of(np.concatenate(parts))
    positions = [0, len(whole) // 2, len(whole) - 1, 3, 3]
    assert group.select(parts[RANK], positions).tobytes() == whole[positions].tobytes()
    strided = np.arange(12, dtype="u8")[::-3]
    assert group.select(parts[RANK], strided).tobytes() == whole[strided].tobytes()
    one = group.select(parts[RANK], 5)
    assert np.asarray(one).tobytes() == whole[5].tobytes()
    fractions = np.array([0.0, 0.25, 0.5, 0.999, 1.0])
    chosen = np.maximum(0, np.ceil(fractions * len(whole)).astype(int) - 1)
    assert group.quantiles(parts[RANK], fractions).tobytes() == whole[chosen].tobytes()
    with pytest.raises(ftsort.ArgumentError):
        group.quantiles(np.empty(0, dtype), 0.5)


def test_quantiles_agree_with_numpy(group):
    parts = inputs("i8")
    for fractions in (np.linspace(0, 1, 9), np.linspace(0, 1, 9)[::-2]):
        expected = np.quantile(np.concatenate(parts), fractions, method="inverted_cdf")
        assert group.quantiles(parts[RANK], fractions).tolist() == expected.tolist()


@pytest.mark.parametrize("count", [0, 1, 40, 10**6])
@pytest.mark.parametrize("descending", [False, True])
def test_top(group, count, descending):
    for dtype in ("f8", "f2", "U5"):
        parts = inputs(dtype)
        check(group.top(parts[RANK], count, descending=descending),
              sorted_of(np.concatenate(parts), descending=descending)[:count])


@pytest.mark.parametrize("dtype", ["i1", "u8", "f2", "f4", "S1", "U1", "?", "M8[s]"])
def test_unique(group, dtype):
    parts = inputs(dtype)
    whole = np.concatenate(parts)
    _, first, counts = np.unique(codes(whole), return_index=True, return_counts=True)
    result = group.unique(parts[RANK])
    check(result, whole[first])
    check(result, counts.astype("u8"), "counts")


@pytest.mark.parametrize("keys", ["flags", ["flags", "name"]])
def test_group_by(group, keys):
    dtype = np.dtype([("flags", "u1"), ("name", "S1"), ("height", "i4"), ("mass", "f8"), ("seen", "M8[s]")])
    parts = inputs(dtype)
    for part in parts:
        part["flags"] %= 3
        part["mass"] = np.round(np.nan_to_num(part["mass"], posinf=1, neginf=-1) * 8) / 8
    whole = np.concatenate(parts)
    names = [keys] if isinstance(keys, str) else keys
    combined = sum(codes(whole[name]) * 1000**index for index, name in enumerate(reversed(names)))
    _, first, group_of = np.unique(combined, return_index=True, return_inverse=True)
    result = group.group_by(parts[RANK], keys, {
        "n": "count", "heights": ("sum", "height"), "masses": ("sum", "mass"), "low": ("min", "height"),
        "high": ("max", "mass"), "flag_sum": ("sum", "flags"), "earliest": ("min", "seen")})
    members = [whole[group_of.reshape(-1) == one] for one in range(len(first))]
    check(result, whole[first])
    check(result, np.array([len(one) for one in members], "u8"), "n")
    check(result, np.array([one["height"].sum() for one in members], "i8"), "heights")
    check(result, np.array([one["mass"].sum() for one in members], "f8"), "masses")
    check(result, np.array([one["height"].min() for one in members], "i4"), "low")
    check(result, np.array([one["mass"].max() for one in members], "f8"), "high")
    check(result, np.array([one["flags"].sum(dtype="u8") for one in members], "u8"), "flag_sum")
    earliest = np.array([one["seen"].view("i8").min() if len(one) else 0 for one in members]).view("M8[s]")
    check(result, earliest, "earliest")


def test_differences_from_numpy(group):
    """NaN with and without the sign bit, both zeros, and NaT."""
    size, low, high = MPI.COMM_WORLD.size, -np.nan, np.nan
    table = np.zeros(6, [("shop", "i4"), ("mass", "f8"), ("seen", "M8[s]")])
    table["mass"] = [0.0, high, -0.0, low, high, 1.0]
    table["seen"][2] = "NaT"
    keys, counts = np.array([low, -0.0, 0.0, 1.0, high]), np.array([1, 1, 1, 1, 2], "u8") * size
    assert len(np.unique(table["mass"])) < len(keys)
    check(group.unique(table["mass"]), keys)
    check(group.unique(table["mass"]), counts, "counts")
    check(group.group_by(table, "mass", {"n": "count"}), counts, "n")
    assert group.quantiles(table["mass"], 0.5) == 0.0 and np.isnan(np.quantile(table["mass"], 0.5))
    groups = group.group_by(table, "shop", {"low": ("min", "mass"), "high": ("max", "mass"), "first": ("min", "seen"),
                                            "last": ("max", "seen")})
    check(groups, np.array([low]), "low")
    check(groups, np.array([high]), "high")
    check(groups, np.array(["NaT"], "M8[s]"), "first")
    check(groups, np.zeros(1, "M8[s]"), "last")
    assert np.isnat(table["seen"].max())


def test_group_by_plain_numbers(group):
    parts = [part % 7 for part in inputs("u4")]
    keys, counts = np.unique(np.concatenate(parts), return_counts=True)
    result = group.group_by(parts[RANK], None, {"sum": ("sum", None), "n": "count"})
    check(result, keys)
    check(result, (keys * counts).astype("u8"), "sum")
    check(result, counts.astype("u8"), "n")


def test_sums_of_durations_have_no_nat(group):
    table = np.zeros(4, [("shop", "i4"), ("open", "m8[s]")])
    table["open"] = [3, -1, 5, 7]
    result = group.group_by(table, "shop", {"total": ("sum", "open")})
    check(result, np.array([14 * MPI.COMM_WORLD.size], "m8[s]"), "total")
    if RANK == CULPRIT:
        table["open"][1] = "NaT"
    refused(lambda: group.group_by(table, "shop", {"total": ("sum", "open")}), "have NaT, which has no sum")
    refused(lambda: group.group_by(table["open"], None, {"total": ("sum", None)}), "have NaT, which has no sum")
    least = group.group_by(table, "shop", {"least": ("min", "open")}).columns["least"]
    assert np.isnat(least).all()
