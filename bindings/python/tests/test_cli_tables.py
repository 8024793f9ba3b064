"""CSV and Parquet files of the command that need care: line ends in texts, NaN, types, and errors of pyarrow."""

import numpy as np
import pytest

from ftsort.cli import files

pa = pytest.importorskip("pyarrow")


def write(path, content):
    """Writes a file, and returns its path as a text."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def whole(source, parts=3):
    """Returns all rows, read in shares."""
    return np.concatenate([source.read(*source.share(part, parts)) for part in range(parts)])


def damage(path):
    """Overwrites the first page of a Parquet file."""
    with open(path, "r+b") as file:
        file.seek(4)
        file.write(b"\xff" * 36)


@pytest.mark.parametrize("column", [pa.array(range(1000)), pa.array(np.arange(1000.0))], ids=["planning", "decoding"])
def test_a_damaged_parquet_file_is_an_error_with_a_reason(tmp_path, column):
    parquet = pytest.importorskip("pyarrow.parquet")
    path = str(tmp_path / "a.parquet")
    parquet.write_table(pa.table({"n": column}), path)
    damage(path)
    with pytest.raises(files.FileError, match="cannot read .*a.parquet: (?!None).+"):
        whole(files.open_source(path))


@pytest.mark.parametrize("kind", [pa.ArrowNotImplementedError, pa.ArrowTypeError, pa.lib.ArrowCapacityError])
@pytest.mark.parametrize("column", [pa.array(range(1000)), pa.array(np.arange(1000.0))], ids=["planning", "decoding"])
def test_every_error_of_pyarrow_names_the_file(tmp_path, monkeypatch, kind, column):
    parquet = pytest.importorskip("pyarrow.parquet")

    def read(*_):
        raise kind("some reason")

    parquet.write_table(pa.table({"n": column}), tmp_path / "a.parquet")
    monkeypatch.setattr(parquet.ParquetFile, "read_row_group", read)
    with pytest.raises(files.FileError, match="a.parquet: some reason"):
        whole(files.open_source(str(tmp_path / "a.parquet")))


def test_a_column_can_have_more_than_2_gib_of_text():
    from ftsort.cli import tables
    texts = pa.chunked_array([pa.array(["x" * (1 << 20)] * 16)] * 129)  # The chunks share their memory.
    assert texts.nbytes > 2**31 and tables._width(texts, "a.parquet", "s") == 1 << 20


def test_every_nan_of_a_table_has_the_same_bits(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    values = np.array([np.nan, -np.nan, 1.5])
    parquet.write_table(pa.table({"x": values, "y": values.astype("f4")}), tmp_path / "a.parquet")
    rows = whole(files.open_source(str(tmp_path / "a.parquet")))
    assert np.signbit(values).tolist() == [False, True, False]
    assert rows[0].tobytes() == rows[1].tobytes() and not np.signbit(rows["x"]).any()


@pytest.mark.parametrize("kind, value", [("i4", "word"), ("i1", "300"), ("f8", "1.5.2"), ("?", "2"), ("M8[s]", "today"),
                                         ("S", b"\xff"), ("m8[s]", "long")])
def test_a_chosen_type_that_does_not_fit_is_wrong_usage(tmp_path, kind, value):
    value = value if isinstance(value, bytes) else value.encode()
    path = write(tmp_path / "a.csv", b"n,x\n1,1\n2," + value + b"\n")
    with pytest.raises(files.UsageError, match="--dtype x:.*: .*a.csv: .*CSV con"):
        files.open_source(path, dtype=f"x:{kind}")
    with pytest.raises(files.FileError) as error:
        files.open_source(write(tmp_path / "b.csv", b"n,x\n\xff,1\n"), dtype="x:i8")
    assert not isinstance(error.value, files.UsageError)


# ---- line ends in texts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("content, dtype, name, row", [
    ("x\n" + '"a\nb"\n' * 2000, None, "x", 0), ("x\n" + '"a"\n' * 3000 + '"a\rb"\n' * 2000, "x:S", "x", 3000),
    ("n,s\n" + '1,"a"\n' * 3000 + '2,"b\r\nc"\n', "s:U", "s", 3000), (b'x\n"\xff\n"\n', None, "x", 0),
], ids=range(4))
def test_csv_texts_with_line_ends_are_refused(tmp_path, content, dtype, name, row):
    with pytest.raises(files.FileError, match=f"the column {name} has a text with a line end in row {row}, "):
        files.open_source(write(tmp_path / "a.csv", content), dtype=dtype)


def test_csv_names_with_line_ends_are_refused(tmp_path):
    with pytest.raises(files.FileError, match="a column has a name with a line end"):
        files.open_source(write(tmp_path / "a.csv", '"a\nb"\n1\n2\n'))


def test_a_text_can_begin_with_a_byte_order_mark(tmp_path):
    text = "\ufeffa".encode()
    path = write(tmp_path / "a.csv", b"\xef\xbb\xbfs,n\n" + text + b",1\nb,2\n")
    source = files.open_source(path)
    assert source.dtype.names == ("s", "n") and whole(source)["s"].tolist() == [text, b"b"]


def test_the_check_of_a_csv_output_refuses_line_ends(tmp_path):
    from ftsort.cli import tables
    path = write(tmp_path / "a.csv", 's\n"a"\n"b\nc"\n')
    with pytest.raises(files.FileError, match="the column s has a text with a line end in row 1, "):
        tables.reopen(path, "csv", np.dtype([("s", "S3")]), ",")
