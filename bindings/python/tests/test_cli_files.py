"""The files, tables and checks of the command, without MPI."""

import errno
import json
import os
import types

import numpy as np
import pytest

from ftsort.cli import check, files, launch, progress, run, worker
from ftsort.cli.check import Key

STARS = np.dtype([("id", "i8"), ("magnitude", "f4"), ("name", "S6")])


def stars(count=1000, seed=1):
    """Returns a catalogue with duplicate magnitudes."""
    numbers = np.random.default_rng(seed)
    rows = np.zeros(count, STARS)
    rows["id"] = numbers.permutation(count)
    rows["magnitude"] = np.round(numbers.normal(9, 2, count), 1)
    rows["name"] = [b"S%d" % number for number in numbers.integers(0, 9999, count)]
    return rows


def planned(source):
    """Returns the source after its way to a rank as JSON."""
    return files.source_from_json(json.loads(json.dumps(source.to_json())))


def whole(source, parts=3):
    """Returns all rows, read in shares."""
    return np.concatenate([source.read(*source.share(part, parts)) for part in range(parts)])


@pytest.mark.parametrize("dtype", ["f8", "i2", ">f4", "U5", "S3", "M8[s]", "?"])
def test_reads_npy_files_of_plain_values(tmp_path, dtype):
    values = np.arange(1000).astype("f8").astype("i8" if dtype == "M8[s]" else "f8").astype(dtype)
    np.save(tmp_path / "a.npy", values)
    source = planned(files.open_source(str(tmp_path / "a.npy")))
    assert source.dtype.isnative and source.rows == 1000
    assert np.array_equal(whole(source), values)


def test_reads_structured_and_aligned_types(tmp_path):
    dtype = np.dtype([("a", "i1"), ("b", "f8"), ("c", ">i4", (2,))], align=True)
    values = np.zeros(50, dtype)
    values["b"] = np.arange(50)
    values["c"] = np.arange(100).reshape(50, 2)
    np.save(tmp_path / "a.npy", values)
    source = planned(files.open_source(str(tmp_path / "a.npy")))
    rows = whole(source)
    assert np.array_equal(rows["b"], values["b"]) and np.array_equal(rows["c"], values["c"])


def test_reads_raw_files_and_refuses_a_part_of_a_row(tmp_path):
    path = tmp_path / "a.bin"
    rows = stars()
    path.write_bytes(rows.tobytes())
    source = planned(files.open_source(str(path), dtype="id:i8,magnitude:f4,name:S6"))
    assert np.array_equal(whole(source), rows)
    path.write_bytes(b"123456789")
    with pytest.raises(files.FileError, match="not a multiple of the 8 bytes"):
        files.open_source(str(path), dtype="f8")


def test_reads_and_writes_of_several_transfers(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "TRANSFER", 100)
    path, rows, moved = tmp_path / "a.bin", stars(50), []
    files.create_private(path)
    descriptor = os.open(path, os.O_WRONLY)
    files.write_rows(descriptor, rows, 24, moved.append)
    os.close(descriptor)
    assert np.array_equal(np.fromfile(path, STARS, offset=24), rows)
    source = files.BinarySource(str(path), STARS, len(rows), [], STARS, 24, "raw")
    assert np.array_equal(whole(source), rows)
    assert max(moved) <= 100 and sum(moved) == rows.nbytes


def test_a_header_keeps_its_size_and_numpy_reads_it(tmp_path):
    for dtype in (np.dtype("f8"), STARS, np.dtype([("größe", "f4")])):
        size = len(files.npy_header(dtype, 10**12))
        header = files.npy_header(dtype, 3, size)
        assert len(header) == size and size % 64 == 0
        path = tmp_path / "a.npy"
        path.write_bytes(header + np.zeros(3, dtype).tobytes())
        loaded = np.load(path)
        assert loaded.dtype == dtype and len(loaded) == 3
        assert files.open_source(str(path)).rows == 3


def test_refuses_files_that_it_cannot_sort(tmp_path):
    np.save(tmp_path / "two.npy", np.zeros((2, 3)))
    np.save(tmp_path / "object.npy", np.array([None, 1]), allow_pickle=True)
    (tmp_path / "text.npy").write_text("no array")
    np.save(tmp_path / "cut.npy", np.zeros(100))
    with open(tmp_path / "cut.npy", "r+b") as file:
        file.truncate(500)
    for name, text in (("two", "2 dimensions"), ("object", "Python objects"), ("text", "not a .npy file"),
                       ("cut", "it is cut")):
        with pytest.raises(files.FileError, match=text):
            files.open_source(str(tmp_path / f"{name}.npy"))
    with pytest.raises(files.FileError, match="No such file"):
        files.open_source(str(tmp_path / "absent.npy"))
    with pytest.raises(files.FileError, match="--format is missing"):
        files.format_of("a.xyz", None)


def test_finds_a_file_that_changes_while_it_is_read(tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.zeros(1000))
    source = files.open_source(str(path))
    source.check_unchanged()
    with open(path, "r+b") as file:
        file.truncate(1000)
    with pytest.raises(files.FileError, match="changed while it was read"):
        source.read(0, 1000)
    with pytest.raises(files.FileError, match="changed while it was read"):
        source.check_unchanged()


# ---- tables ---------------------------------------------------------------------------------------------------


def write_csv(path, rows, delimiter=","):
    lines = [delimiter.join(rows.dtype.names)]
    lines += [delimiter.join(item.decode() if isinstance(item, bytes) else repr(item) for item in row.tolist())
              for row in rows]
    path.write_text("\n".join(lines) + "\n")


def test_reads_csv_by_byte_ranges(tmp_path):
    pytest.importorskip("pyarrow")
    rows = stars(5000)
    write_csv(tmp_path / "a.csv", rows)
    source = planned(files.open_source(str(tmp_path / "a.csv")))
    assert len(source.pieces) > 10
    assert source.dtype == np.dtype([("id", "i8"), ("magnitude", "f8"), ("name", "S5")])
    for parts in (1, 3, 7, 50):
        read = whole(source, parts)
        assert np.array_equal(read["id"], rows["id"]) and np.array_equal(read["name"], rows["name"])


def test_types_of_csv_columns_hold_all_values(tmp_path):
    pytest.importorskip("pyarrow")
    lines = ["n,x,late,missing,text,flag"] + [f"{i},{i},{i},{i},t{i},true" for i in range(3000)]
    lines += ["3000,2.5,word,,ü,false"]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    source = files.open_source(str(tmp_path / "a.csv"))
    assert files.describe(source.dtype) == "n:i8, x:f8, late:S4, missing:f8, text:S5, flag:b1"
    last = whole(source)[-1]
    assert last["x"] == 2.5 and last["late"] == b"word" and np.isnan(last["missing"])
    assert last["text"].decode() == "ü" and not last["flag"]
    chosen = files.open_source(str(tmp_path / "a.csv"), dtype="n:S,x:f4,text:U")
    assert files.describe(chosen.dtype).startswith("n:S4, x:f4") and whole(chosen)[-1]["text"] == "ü"


@pytest.mark.parametrize("content, dtype, expected", [
    ("s\nb\n\na\n", None, ["b'b'", "b''", "b'a'"]), ("s\r\nb\r\n\r\n", None, ["b'b'", "b''"]),
    ("s\n\n\n", None, ["b''", "b''"]), ('s\n""\n\nb\n', None, ["b''", "b''", "b'b'"]), ("s\n\nb", "s:U", ["", "b"]),
    ("s\nb\n", None, ["b'b'"]), ("s\nb", None, ["b'b'"]), ("s\n", None, []),
    ("n\n3\n\n1\n", None, ["3.0", "nan", "1.0"]), ("n\n\n\n3", "n:f4", ["nan", "nan", "3.0"]),
    ("t\n2001-01-01\n\n", "t:M8[D]", ["2001-01-01", "None"]),
    ("s\n" + ("x" * 99 + "\n\n") * 1500, None, [f"b'{'x' * 99}'", "b''"] * 1500),
    ("a,b\n1,2\n\n3,4\n\n", None, ["(1, 2)", "(3, 4)"]),
], ids=range(13))
def test_empty_lines_are_rows_of_csv_files_with_one_column(tmp_path, content, dtype, expected):
    pytest.importorskip("pyarrow")
    from ftsort.cli import tables
    paths = [str(tmp_path / name) for name in ("a.csv", "b.csv")]
    (tmp_path / "a.csv").write_bytes(content.encode())
    source = planned(files.open_source(paths[0], dtype=dtype))
    tables.write_table(source, paths[1], "csv", ",")
    for again in (source, tables.reopen(paths[1], "csv", source.dtype, ","), files.open_source(paths[1], dtype=dtype)):
        rows = whole(again)
        values = rows[rows.dtype.names[0]] if len(rows.dtype) == 1 else rows
        assert [str(value) for value in values.tolist()] == expected


def test_large_integers_of_csv_columns_are_exact_or_refused(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.csv"
    # Most ranges of the file have no large number, and their integers are exact as int64.
    numbers = [2**53 + 1, *range(4000), 2**64 - 1]
    path.write_text("n,x,f\n" + "".join(f"{number},{number},1e300\n" for number in numbers) + "7,2.5,1e300\n")
    source = planned(files.open_source(str(path)))
    assert files.describe(source.dtype) == "n:u8, x:f8, f:f8"
    assert whole(source)["n"].tolist() == [*numbers, 7]
    for last, text in (("-1", "neither i8 nor u8"), ("18446744073709551616", "neither i8 nor u8"),
                       ("", "beyond 2.53 and missing values")):
        path.write_text(f"n,x\n18446744073709551615,1\n{last},1\n")
        with pytest.raises(files.FileError, match=f"the column n has integers.*{text}.*--dtype n:S"):
            files.open_source(str(path))
        texts = whole(files.open_source(str(path), dtype="n:S"))["n"].tolist()
        assert texts == [b"18446744073709551615", last.encode()]
        assert whole(files.open_source(str(path), dtype="n:f8"))["n"][0] == 2.0**64


@pytest.mark.parametrize("kind", ["i8", "u2", "?", "b1"])
def test_a_chosen_type_without_missing_values_refuses_them(tmp_path, kind):
    pytest.importorskip("pyarrow")
    values = ["true", "false"] if kind in ("?", "b1") else ["9007199254740993" if kind == "i8" else "3", "2"]
    path = tmp_path / "a.csv"
    path.write_text("n,x\n" + "".join(f"{value},1\n" for value in values))
    rows = whole(files.open_source(str(path), dtype=f"n:{kind}"))
    assert rows.dtype["n"] == kind and [str(value).lower() for value in rows["n"].tolist()] == values
    path.write_text("n,x\n" + "".join(f"{value},1\n" for value in [*values, ""]))
    with pytest.raises(files.UsageError, match="--dtype n:.*the column n of .*missing values.*--dtype n:S"):
        files.open_source(str(path), dtype=f"n:{kind}")


@pytest.mark.parametrize("kind, value, missing", [("f8", "3", "nan"), ("M8[s]", "2001-01-01", "NaT")])
def test_a_chosen_type_with_missing_values_has_them(tmp_path, kind, value, missing):
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.csv"
    path.write_text(f"n,x\n{value},1\n,1\n")
    assert str(whole(files.open_source(str(path), dtype=f"n:{kind}"))["n"][-1]) == missing


def test_texts_longer_than_their_chosen_type_are_refused(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "a.csv"
    path.write_text("s,x\näbcde,1\nab,2\n", encoding="utf-8")
    assert whole(files.open_source(str(path), dtype="s:U5"))["s"].tolist() == ["äbcde", "ab"]
    assert whole(files.open_source(str(path), dtype="s:S6"))["s"].tolist() == ["äbcde".encode(), b"ab"]
    for kind, text in (("U4", "4 characters"), ("S5", "5 bytes")):
        with pytest.raises(files.UsageError, match=f"--dtype s:{kind}: the column s of .* a text longer than {text}"):
            files.open_source(str(path), dtype=f"s:{kind}")
    for kind, found in (("U", "U5"), ("S", "S6"), (">U6", "U6")):
        assert files.open_source(str(path), dtype=f"s:{kind}").dtype["s"] == found


@pytest.mark.parametrize("content, options, error, text", [
    ("a,b\n1,2\n", dict(delimiter=";;"), files.UsageError, "--delimiter ';;'"),
    ("a,b\n1,2\n", dict(delimiter=""), files.UsageError, "--delimiter ''"),
    ("a,b\n1,2\n", dict(delimiter="ä"), files.UsageError, "--delimiter 'ä'"),
    ("a,b\n1,2\n", dict(delimiter="\n"), files.UsageError, "--delimiter"),
    ("a,b\n1,2\n", dict(dtype="a:f2"), files.UsageError, "--dtype a:f2: a CSV column cannot have this type"),
    ("a,b\n1,2\n", dict(dtype="a:V3"), files.UsageError, "--dtype a:V3: a CSV column cannot have this type"),
    ("a,b\n1,2\n", dict(dtype="a:i8,b:(2"), files.UsageError, "--dtype b:.2: .2 is not a NumPy type"),
    ("a,b\r1,2\r", {}, files.FileError, "a.csv: the first line has a CR before its end"),
    ("a" * 200_000 + ",b\n1,2\n", {}, files.FileError, "a.csv: the first line .* cannot be read: field larger"),
])
def test_csv_files_and_options_that_cannot_be_used(tmp_path, content, options, error, text):
    pytest.importorskip("pyarrow")
    (tmp_path / "a.csv").write_bytes(content.encode())
    with pytest.raises(error, match=text):
        files.open_source(str(tmp_path / "a.csv"), **options)


def test_tables_are_written_as_they_were_read(tmp_path):
    pytest.importorskip("pyarrow")
    from ftsort.cli import tables
    rows = np.zeros(700, [("a", "i4"), ("x", "f8"), ("s", "S7"), ("u", "U3"), ("t", "M8[s]"), ("b", "?")])
    numbers = np.random.default_rng(3)
    rows["a"], rows["x"] = numbers.integers(-99, 99, 700), numbers.normal(size=700)
    rows["x"][5], rows["s"], rows["u"], rows["t"] = np.nan, b"a,\"b", "äb", np.arange(700)
    np.save(tmp_path / "a.npy", rows)
    source = files.open_source(str(tmp_path / "a.npy"))
    for name in ("csv", "parquet"):
        path = str(tmp_path / f"b.{name}")
        tables.write_table(source, path, name, ",")
        again = tables.reopen(path, name, source.dtype, ",")
        assert again.rows == 700
        assert tables.canonical(whole(again)).tobytes() == tables.canonical(rows).tobytes()
    read = planned(files.open_source(str(tmp_path / "b.parquet")))
    assert files.describe(read.dtype) == "a:i4, x:f8, s:S4, u:S3, t:M8[ms], b:b1"


def test_parquet_is_read_by_row_groups_and_names_unsupported_columns(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = stars(1000)
    names = [name.decode() for name in rows["name"]]
    table = pa.table({"id": rows["id"], "name": pa.array(names).dictionary_encode()})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    source = planned(files.open_source(str(tmp_path / "a.parquet")))
    assert len(source.pieces) == 10
    assert np.array_equal(whole(source, 4)["name"], rows["name"])
    for column, text in ((pa.array([[1], [2]]), "list"), (pa.array([1, None]), "missing values"),
                         (pa.array([1, None], pa.timestamp("ms")), "missing values.*fill them$"),
                         (pa.array([None, 1], pa.date32()), "missing values.*fill them$"),
                         (pa.array(["a", None]), "missing values"), (pa.array(["a\0", "b"]), "zero bytes")):
        parquet.write_table(pa.table({"bad": column}), tmp_path / "bad.parquet")
        with pytest.raises(files.FileError, match=f"column bad.*{text}"):
            whole(files.open_source(str(tmp_path / "bad.parquet")))


def test_parquet_columns_need_names_of_their_own(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for names in (["a", "a"], ["a", ""]):
        parquet.write_table(pa.table([pa.array([1]), pa.array([2])], names=names), tmp_path / "a.parquet")
        with pytest.raises(files.FileError, match="a.parquet: each column should have a name of its own"):
            files.open_source(str(tmp_path / "a.parquet"))


@pytest.mark.parametrize("text", ["a\nb", "a\r"])
@pytest.mark.parametrize("kind", ["S3", "U3"])
def test_csv_refuses_texts_with_line_ends(tmp_path, kind, text):
    pytest.importorskip("pyarrow")
    from ftsort.cli import tables
    rows = np.zeros(3, [("n", "i4"), ("s", kind)])
    rows["s"][1] = text
    np.save(tmp_path / "a.npy", rows)
    source = files.open_source(str(tmp_path / "a.npy"))
    with pytest.raises(files.FileError, match="the field s holds a text with a line end"):
        tables.write_table(source, str(tmp_path / "a.csv"), "csv", ",")
    tables.write_table(source, str(tmp_path / "a.parquet"), "parquet", ",")
    with pytest.raises(files.FileError, match="the name of the field 'n.*n' has a line end"):
        tables.check_columns(np.dtype([("n\nn", "i4")]), "a.csv", "csv")


def test_csv_has_quotes_only_if_a_text_needs_them(tmp_path):
    pytest.importorskip("pyarrow")
    from ftsort.cli import tables
    rows = np.array([(1, b"a b", np.nan), (2, b"", 2.5)], [("n", "i4"), ("s", "S3"), ("x", "f4")])
    single = np.array([1.5, np.nan])
    texts = []
    for values in (rows, np.where(rows["n"] == 1, np.array((1, b"a,b", 0), rows.dtype), rows), single):
        np.save(tmp_path / "a.npy", values)
        tables.write_table(files.open_source(str(tmp_path / "a.npy")), str(tmp_path / "a.csv"), "csv", ",")
        texts.append((tmp_path / "a.csv").read_text())
    assert texts == ["n,s,x\n1,a b,\n2,,2.5\n", 'n,s,x\n1,"a,b",0\n2,"",2.5\n', "value\n1.5\nnan\n"]


def test_values_are_shown_as_json_holds_them():
    rows = np.array([(np.float32(9.01), b"HD 1", "NaT"), (np.inf, b"", "2001-01-01")],
                    [("m", "f4"), ("s", "S4"), ("t", "M8[D]")])
    assert check.rows_to_json(rows) == [{"m": 9.01, "s": "HD 1", "t": "NaT"}, {"m": "inf", "s": "", "t": "2001-01-01"}]
    assert check.rows_to_json(np.array([True, False])) == [True, False]
    large = np.array(["1e400", "-inf", "0.1"], np.longdouble)
    if np.isfinite(large[0]):
        assert json.loads(json.dumps(check.rows_to_json(large), allow_nan=False)) == ["1e+400", "-inf", 0.1]


# ---- checks ---------------------------------------------------------------------------------------------------


def test_the_digest_is_that_of_a_multiset():
    rows = stars()
    shuffled = np.random.default_rng(2).permutation(rows)
    whole_digest = check.digest(rows, 7)
    assert check.digest(shuffled, 7) == whole_digest
    assert (check.digest(rows[:300], 7) + check.digest(rows[300:], 7)) % 2**64 == whole_digest
    changed = rows.copy()
    changed["magnitude"][3] += 1
    assert check.digest(changed, 7) != whole_digest
    doubled = rows.copy()
    doubled[0] = doubled[1]
    assert check.digest(doubled, 7) != whole_digest


def test_the_digest_ignores_padding():
    inner = np.dtype([("tag", "u1"), ("size", "u4")], align=True)
    dtype = np.dtype([("id", "u1"), ("x", "f8"), ("inner", inner, (2,))], align=True)
    rows = np.zeros(50, dtype)
    rows["id"], rows["x"], rows["inner"]["size"] = np.arange(50), np.linspace(0, 1, 50), 7
    other = np.frombuffer(b"\xff" * rows.nbytes, dtype).copy()
    for name in dtype.names[:2]:
        other[name] = rows[name]
    for name in inner.names:
        other["inner"][name] = rows["inner"][name]
    assert rows.tobytes() != other.tobytes()
    assert check.digest(rows, 7) == check.digest(other, 7)
    other["inner"]["size"][3, 1] += 1
    assert check.digest(rows, 7) != check.digest(other, 7)


@pytest.mark.parametrize("values", [
    np.array([-np.inf, -1.5, -0.0, 0.0, 2.0, np.inf, np.nan]), np.array([-3, 0, 5], "i2"), np.array([0, 200], "u1"),
    np.array(["a", "ab", "b", "é"]), np.array([b"", b"a", b"\xff"]), np.array(["NaT", "2001-01-01"], "M8[D]"),
    np.array([-2.0, 3.0], "f2"), np.array([False, True]), np.array(["a\0z", "b\0a", "b\1"]),
])
def test_the_order_is_that_of_the_library(values):
    assert check.first_violation(values, [Key(None, False)], strict=True) is None
    assert check.first_violation(values[::-1].copy(), [Key(None, True)], strict=True) is None
    assert check.first_violation(values[::-1].copy(), [Key(None, False)]) == 1


def test_texts_of_code_points_end_at_the_first_zero():
    values = np.array(["a\0z", "a\0b", "a", "b"])
    assert check.first_violation(values, [Key(None, False)]) is None
    assert check.first_violation(values, [Key(None, False)], strict=True) == 1
    before, equal = check.compare_with(values, values[1:2], [Key(None, False)])
    assert not before.any() and equal.tolist() == [True, True, True, False]
    before, equal = check.compare_with(values[:0], values[1:2], [Key(None, False)])
    assert len(before) == len(equal) == 0


def test_several_keys_with_directions():
    rows = np.sort(stars(), order=["magnitude", "name"])
    keys = check.parse_keys(["magnitude", "name:asc"], False, STARS, "a.npy")
    assert check.first_violation(rows, keys) is None
    assert check.first_violation(rows, [keys[0], Key("name", True)]) is not None
    assert check.parse_keys(["name", "id:asc"], True, STARS, "a") == [Key("name", True), Key("id", False)]
    for word, text in (("size", "no field of this name"), ("id:down", "is not asc or desc")):
        with pytest.raises(files.FileError, match=text):
            check.parse_keys([word], False, STARS, "a.npy")
    with pytest.raises(files.FileError, match="plain values"):
        check.parse_keys(["id"], False, np.dtype("f8"), "a.npy")
    with pytest.raises(files.FileError, match="cannot be a key"):
        check.parse_keys([], False, np.dtype("c16"), "a.npy")


@pytest.mark.parametrize("name", ["in.npy", "out.npy"])
def test_a_check_names_the_file_that_cannot_be_read(tmp_path, monkeypatch, name):
    np.save(tmp_path / "in.npy", np.arange(1000))
    np.save(tmp_path / "out.npy", np.arange(1000))
    source, reports = files.open_source(str(tmp_path / "in.npy")), []
    rank = worker.Worker.__new__(worker.Worker)
    rank.source, rank.out_dtype, rank.command, rank.rank = source, source.dtype, "sort", 0
    rank.keys, rank.counted, rank.sent_at = [Key(None, False)], 0, 0.0
    rank.job = {"path": str(tmp_path / "out.npy"), "offset": source.offset, "digest_key": 1}
    rank.group = types.SimpleNamespace(size=1, is_failed=lambda rank: False, agree=lambda flags: (flags, 0))
    monkeypatch.setattr(worker, "report", lambda event, **members: reports.append(members.get("message")))
    preadv = os.preadv

    def read(descriptor, *arguments):
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(tmp_path / name):
            raise OSError(errno.EIO, "Input/output error")
        return preadv(descriptor, *arguments)

    monkeypatch.setattr(os, "preadv", read)
    with pytest.raises(worker.Stop):
        rank.check(1000)
    assert reports[-1] == f"cannot read {tmp_path / name}: Input/output error"


def test_neighbours_of_two_ranges_are_compared(tmp_path):
    np.save(tmp_path / "a.npy", np.array([1.0, 2.0, 5.0, 4.0, 6.0]))
    source = files.open_source(str(tmp_path / "a.npy"))
    keys = [Key(None, False)]
    assert check.check_order(source, 0, 3, keys)[0] is None
    assert check.check_order(source, 3, 5, keys)[0] == 3
    assert check.check_order(source, 4, 5, keys)[0] is None


def test_chaos_has_the_same_victims_for_the_same_seed():
    first, second = (run.Chaos(4, 9, 8, 10**6) for _ in range(2))
    assert first.moments == second.moments and len({rank for _, _, rank in first.moments}) == 4
    assert sorted(first.due("check", 0.0)) == sorted(rank for _, _, rank in second.moments)
    assert first.due("check", 1.0) == []


# ---- start ----------------------------------------------------------------------------------------------------


def test_the_ranks_are_those_of_the_allocation(tmp_path, monkeypatch):
    for name in ("SLURM_JOB_ID", "SLURM_TASKS_PER_NODE", "PBS_NODEFILE"):
        monkeypatch.delenv(name, raising=False)
    assert launch.allocation() is None and launch.default_ranks() >= 2
    assert "--hostfile" not in launch.arguments(["program"], 2)
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "4(x2),3,1")
    assert launch.allocation() == "slurm" and launch.default_ranks() == 12
    monkeypatch.delenv("SLURM_JOB_ID")
    nodes = tmp_path / "nodes"
    nodes.write_text("a\na\nb\n")
    monkeypatch.setenv("PBS_NODEFILE", str(nodes))
    line = launch.arguments(["program"], 3)
    assert launch.default_ranks() == 3 and line[line.index("--hostfile") + 1] == str(nodes)


def test_daemons_in_a_slurm_allocation_get_the_environment_and_do_not_wait_for_steps(monkeypatch):
    for name in ("SLURM_JOB_ID", "SLURM_EXPORT_ENV", "SLURM_OVERLAP"):
        monkeypatch.delenv(name, raising=False)
    assert "SLURM_OVERLAP" not in launch.environment()
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_EXPORT_ENV", "NONE")
    values = launch.environment()
    assert values["SLURM_EXPORT_ENV"] == "ALL" and values["SLURM_OVERLAP"] == "1"


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_job_that_has_begun_has_no_limit_for_its_start(tmp_path, monkeypatch, has_begun):
    events = [[{"event": "ready", "rank": 0, "pid": 0, "host": ""}], [], [{"event": "done", "failed": []}]]
    if has_begun:
        events[0].append({"event": "phase", "phase": "read"})

    class Job:
        other = []

        def __init__(self, _line, _variables):
            pass

        def ended(self):
            return not events

        def lines(self, _wait):
            return [json.dumps(event) for event in events.pop(0)]

        def stop(self):
            pass

    monkeypatch.setattr(launch, "Job", Job)
    monkeypatch.setattr(run, "START_LIMIT", 0.0)
    np.save(tmp_path / "a.npy", np.arange(10))
    source = files.open_source(str(tmp_path / "a.npy"))
    output = run.Output(str(tmp_path / "b.npy"), "npy", source.dtype, source.rows, None)
    runner = run.Runner(run.make_job("sort", source, [Key(None, False)], output), source, 2, progress.Display(),
                        attempts=1, chaos=None, time_limit=None, mpirun=[])
    attempt, _ = runner._once(output)
    assert (attempt.done is not None) == has_begun
    assert attempt.error == (None if has_begun else ("mpi", "only 1 of 2 ranks started in 0 s"))


def test_the_reason_of_a_retry_is_the_line_of_mpirun_that_says_most():
    dashes = "-" * 74
    text = f"{dashes}\nsrun returned non-zero exit status (512) from launching\nthe per-node daemon.\n{dashes}\n "
    assert run.reason_line(text) == "srun returned non-zero exit status (512) from launching"
    assert run.reason_line("first\nsome failure of MPI\n") == "some failure of MPI"
    assert run.reason_line("") == run.reason_line(" \n") == "MPI failed"


def test_mpirun_gets_the_settings_for_fault_tolerance(monkeypatch):
    monkeypatch.setenv("FTSORT_LIBRARY", "some")
    line = launch.arguments(["program", "argument"], 7, ["--verbose"])
    assert line[1:3] == ["--with-ft", "ulfm"] and "coll_ftagree_era_topology" in line
    assert line[-5:] == ["--verbose", "-np", "7", "program", "argument"]
    assert line[line.index("FTSORT_LIBRARY") - 1] == "-x"


def test_the_component_for_fabrics_is_not_used_on_one_host(tmp_path, monkeypatch):
    for name in ("SLURM_JOB_ID", "PBS_NODEFILE", "OMPI_MCA_btl"):
        monkeypatch.delenv(name, raising=False)
    assert launch.environment()["OMPI_MCA_btl"] == "^ofi"
    monkeypatch.setenv("OMPI_MCA_btl", "self,tcp")
    assert launch.environment()["OMPI_MCA_btl"] == "self,tcp"
    monkeypatch.delenv("OMPI_MCA_btl")
    nodes = tmp_path / "nodes"
    nodes.write_text("a\nb\n")
    monkeypatch.setenv("PBS_NODEFILE", str(nodes))
    assert "OMPI_MCA_btl" not in launch.environment()


def test_the_line_on_a_terminal_shows_the_state():
    state = progress.State()
    assert state.take({"event": "start", "command": "sort", "input": "a", "rows": 10, "bytes": 10**8, "ranks": 8})
    state.take({"event": "phase", "phase": "write"})
    state.take({"event": "failure", "rank": 3, "alive": 7})
    state.take({"event": "reread", "rank": 2, "owner": 3})
    state.take({"event": "progress", "phase": "write", "bytes": 5 * 10**7})
    line = state.line(200)
    assert line.startswith("writing") and "50.0 MB" in line and "ranks 7/8 (1 failed, 1 recovered)" in line
    assert "/s" in line and "left" in line
    assert len(state.line(30)) == 30
    assert [progress.amount(count) for count in (5, 1500, 2.5e8, 3e13)] == ["5 B", "1.5 kB", "250 MB", "30.0 TB"]
    assert [progress.duration(seconds) for seconds in (5, 185, 7300)] == ["5 s", "3:05 min", "2:01 h"]
