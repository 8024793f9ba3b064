"""Inputs that every rank can compute for all ranks, and the expected order by NumPy alone."""

import numpy as np
from mpi4py import MPI

NUMBERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]
FLOATS = ["f2", "f4", "f8"]
TIMES = ["M8[s]", "M8[ns]", "m8[us]"]
BYTES = ["S1", "S7"]
TEXTS = ["U1", "U5"]
STAR = np.dtype([("magnitude", "f4"), ("flags", "u1"), ("name", "S6"), ("seen", "M8[s]"), ("id", "i8")])


def column(dtype, count, random):
    """Returns random elements with repetitions and the special values of the type."""
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = random.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
        return np.where(random.random(count) < 0.5, values, values % 4).astype(dtype)
    if dtype.kind == "b":
        return random.random(count) < 0.5
    if dtype.kind == "f":
        special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, np.finfo(dtype).tiny], dtype=dtype)
        values = random.standard_normal(count).astype(dtype)
        return np.where(random.random(count) < 0.7, values, random.choice(special, count)).astype(dtype)
    if dtype.kind in "Mm":
        values = random.integers(-1000, 1000, count).astype("i8")
        values[random.random(count) < 0.1] = np.iinfo("i8").min
        return values.view(dtype)
    letters = list("abz" if dtype.kind == "S" else "aß€😀")
    words = ["".join(random.choice(letters, random.integers(0, 9))) for _ in range(count)]
    return np.array(words, dtype=dtype) if count else np.empty(0, dtype)


def inputs(dtype, seed=1, count=150, size=None):
    """Returns the inputs of all ranks; one of them is empty."""
    parts = []
    dtype = np.dtype(dtype)
    for rank in range(MPI.COMM_WORLD.size if size is None else size):
        random = np.random.default_rng([seed, rank])
        number = 0 if rank == 2 else count + 17 * rank
        if dtype.names:
            part = np.zeros(number, dtype)
            for name in dtype.names:
                part[name] = column(dtype[name], number, random)
        else:
            part = column(dtype, number, random)
        parts.append(part)
    return parts


def codes(values):
    """Returns integers in the order of the documented total order."""
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind == "f":
        bits = np.ascontiguousarray(values).view(f"i{size}").astype("i8")
        values = np.where(bits < 0, np.iinfo(f"i{size}").max ^ bits, bits)
    elif kind in "Mm":
        values = np.ascontiguousarray(values).view("i8")
    return np.unique(values, return_inverse=True)[1].reshape(-1).astype("i8")


def order(array, keys=None, descending=False):
    """Returns the expected stable order of an array."""
    columns = [array] if array.dtype.names is None else [array[name] for name in keys or array.dtype.names]
    directions = [descending] * len(columns) if isinstance(descending, bool) else descending
    signed = [-codes(one) if down else codes(one) for one, down in zip(columns, directions)]
    return np.lexsort(signed[::-1])


def check(result, expected, name=None):
    """Compares the blocks of a result with the expected array of all ranks, bit for bit."""
    assert result.total == len(expected)
    for block in result:
        array = block.array if name is None else block.columns[name]
        assert array.dtype == expected.dtype
        part = expected[block.offset:block.offset + len(block)]
        assert array.tobytes() == part.tobytes(), (block, array, part)
    assert MPI.COMM_WORLD.allreduce(sum(len(block) for block in result)) == len(expected)
