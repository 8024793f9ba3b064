"""CSV and Parquet files as rows of fixed width, through pyarrow.

Reading is parallel: a CSV file is divided into byte ranges at line ends, and a Parquet file into its row groups. The
types of CSV columns, and the widths of text columns, are found by one pass over the file before the ranks start. Text
becomes UTF-8 bytes (`S`) as wide as its longest value, so its order is the order of code points.

Writing is done by one process, from a binary file that the ranks have written.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
from typing import Any, Dict, Iterator, List, Optional, Tuple, Type

import numpy as np

from .files import (FileError, Progress, Source, UsageError, check_dtype, describe, dtype_to_json, fingerprint, ignore,
                    native, reason, unify_nan)

try:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv
    import pyarrow.parquet

    #: Errors of pyarrow, except OSError.
    ERRORS: Tuple[Type[Exception], ...] = (pa.ArrowException, UnicodeError)
except ImportError:
    pa, ERRORS = None, ()

RANGE = 1 << 25        # bytes of a byte range of a large CSV file
RANGES = 64            # byte ranges of a smaller one
SMALLEST = 1 << 12     # bytes below which a CSV file is not divided further
EXACT = 1 << 53        # integers up to this one are exact as float64
ROWS = 1 << 16         # rows of one step of writing


def need_pyarrow(name: str) -> None:
    """Refuses a format that needs pyarrow if it is not installed."""
    if pa is None:
        raise FileError(f"the format {name} needs pyarrow: pip install 'ftsort[files]'")


class TableSource(Source):
    """A CSV or Parquet file. `pieces` are its parts that are decoded as a whole: the rows and the place of each."""

    def __init__(self, path: str, dtype: np.dtype, mark: List[int], name: str, pieces: List[List[int]],
                 delimiter: str) -> None:
        super().__init__(path, dtype, sum(piece[0] for piece in pieces), mark)
        self.format, self.pieces, self.delimiter = name, pieces, delimiter
        self.starts = [0]
        for piece in pieces:
            self.starts.append(self.starts[-1] + piece[0])

    def share(self, index: int, of: int) -> Tuple[int, int]:
        """Returns the rows of a share; whole pieces if there are enough of them, so that each is decoded once."""
        if len(self.pieces) < 2 * of:
            return super().share(index, of)
        first, last = len(self.pieces) * index // of, len(self.pieces) * (index + 1) // of
        return self.starts[first], self.starts[last]

    def read(self, start: int, stop: int, progress: Progress = ignore) -> np.ndarray:
        """Returns the rows from `start` to `stop`."""
        rows = np.zeros(stop - start, self.dtype)
        at = 0
        for part in self.chunks(start, stop):
            rows[at:at + len(part)] = part
            at += len(part)
            progress(part.nbytes)
        return rows

    def chunks(self, start: int, stop: int) -> Iterator[np.ndarray]:
        """Yields the rows from `start` to `stop`, piece by piece."""
        for number, (count, *place) in enumerate(self.pieces):
            first, last = max(start, self.starts[number]), min(stop, self.starts[number] + count)
            if first < last:
                part = self._decode(place)
                if len(part) != count:
                    raise FileError(f"{self.path} changed while it was read: run the command again when it is complete")
                yield part[first - self.starts[number]:last - self.starts[number]]

    def _decode(self, place: List[int]) -> np.ndarray:
        try:
            if self.format == "csv":
                types = {name: _arrow_type(self.dtype[name]) for name in self.dtype.names or ()}
                table = _read_range(self.path, place, list(types), types, self.delimiter)
            else:
                table = pa.parquet.ParquetFile(self.path).read_row_group(place[0])
            return to_rows(table, self.dtype, self.path)
        except ERRORS as error:
            raise FileError(f"{self.path}: {error}") from None
        except OSError as error:
            raise FileError(f"cannot read {self.path}: {reason(error)}") from None

    def to_json(self) -> Dict[str, Any]:
        """Returns the plan of this file for the ranks."""
        return {"format": self.format, "path": self.path, "mark": self.mark, "dtype": dtype_to_json(self.dtype),
                "pieces": self.pieces, "delimiter": self.delimiter}


def table_from_json(plan: Dict[str, Any], dtype: np.dtype) -> TableSource:
    """Returns the source of a plan by `TableSource.to_json`."""
    need_pyarrow(plan["format"])
    return TableSource(plan["path"], dtype, plan["mark"], plan["format"], plan["pieces"], plan["delimiter"])


def open_table(path: str, name: str, dtype: Optional[str], delimiter: Optional[str]) -> TableSource:
    """Plans a CSV or Parquet file. `dtype` overrides the types of columns, as in `id:S,flux:f4`; CSV only."""
    need_pyarrow(name)
    mark = fingerprint(path)
    if name == "csv":
        check_delimiter(delimiter)
    elif dtype:
        raise UsageError(f"--dtype {dtype}: {path} is a Parquet file, which has its own types: leave --dtype out")
    try:
        if name == "csv":
            return _plan_csv(path, mark, _overrides(dtype), delimiter or default_delimiter(path))
        return _plan_parquet(path, mark)
    except ERRORS as error:
        raise FileError(f"{path}: {error}") from None


def default_delimiter(path: str) -> str:
    """Returns the delimiter of a CSV file by its extension."""
    return "\t" if path.lower().endswith(".tsv") else ","


def check_delimiter(delimiter: Optional[str]) -> None:
    """Refuses a delimiter that a CSV file cannot have."""
    if delimiter is not None and (len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0'):
        raise UsageError(f"--delimiter {delimiter!r}: a delimiter is one ASCII character, and neither a quote nor a "
                         "line end: use for example --delimiter ';'")


def _overrides(dtype: Optional[str]) -> Dict[str, str]:
    if not dtype:
        return {}
    pairs = [field.rpartition(":") for field in dtype.split(",")]
    for name, _, kind in pairs:
        if not name:
            raise UsageError(f"--dtype {dtype}: a CSV file needs names of columns, for example --dtype id:S,flux:f4")
        if kind not in ("S", "U"):
            try:
                known = np.dtype(kind)
            except (TypeError, ValueError, SyntaxError):
                raise UsageError(f"--dtype {name}:{kind}: {kind} is not a NumPy type") from None
            if not _is_column(known, "csv"):
                raise UsageError(f"--dtype {name}:{kind}: a CSV column cannot have this type: use an integer, a float "
                                 "of 32 or 64 bits, bool, S, U, or a date such as M8[s]")
    return {name: kind for name, _, kind in pairs}


# ---- CSV ------------------------------------------------------------------------------------------------------


def _read_range(path: str, place: List[int], names: List[str], types: Dict[str, Any], delimiter: str,
                only: Optional[List[str]] = None, has_missing_texts: bool = False, first_row: int = 0) -> Any:
    """Returns a byte range of a CSV file as an Arrow table. `first_row` is its first row in the file, for errors."""
    start, stop = place
    with open(path, "rb") as file:
        file.seek(start)
        data = file.read(stop - start)
    if data.startswith(codecs.BOM_UTF8):
        data = codecs.BOM_UTF8 + data  # pyarrow removes one, but here it is the first character of a value.
    table = pa.csv.read_csv(
        pa.BufferReader(data),
        read_options=pa.csv.ReadOptions(column_names=names, use_threads=False, block_size=max(1 << 20, len(data))),
        # In a file of one column an empty line is a row with an empty value.
        parse_options=pa.csv.ParseOptions(delimiter=delimiter, ignore_empty_lines=len(names) > 1),
        convert_options=pa.csv.ConvertOptions(column_types=types, include_columns=only or [],
                                              strings_can_be_null=has_missing_texts),
    )
    if b'"' in data:
        _refuse_line_ends(table, path, first_row)
    return table


def _refuse_line_ends(table: Any, path: str, first_row: int) -> None:
    """Refuses texts with a line end. A range can end in such a text, and then its last value has the line end too."""
    for name in table.column_names:
        values = table.column(name)
        if _is_arrow_text(values.type):
            row = pc.index(pc.match_substring_regex(values, "[\r\n]"), True).as_py()
            if row >= 0:
                raise FileError(f"{path}: the column {name} has a text with a line end in row {first_row + row}, "
                                "counted from 0, but ranks divide a csv file at line ends: remove it, or write a "
                                ".npy or Parquet file")


def _ranges(path: str, start: int, size: int) -> List[List[int]]:
    """Divides the bytes behind the header into ranges that end with a line."""
    count = max(1, min((size - start) // SMALLEST, max(RANGES, (size - start) // RANGE)))
    ends = []
    with open(path, "rb") as file:
        for number in range(1, count):
            file.seek(start + (size - start) * number // count)
            file.readline()
            ends.append(min(file.tell(), size))
    edges = sorted({start, size, *ends})
    return [[first, last] for first, last in zip(edges, edges[1:])]


class _Column:
    """The findings about one CSV column: the widest type so far, the longest text, missing values, and whether a
    number is beyond 2^53."""

    def __init__(self) -> None:
        self.kind, self.width, self.nulls, self.large = "null", 0, False, False

    ORDER = ("null", "int64", "double", "string")

    def add(self, values: Any) -> None:
        kind = str(values.type)
        if kind not in ("null", "bool", "int64", "double"):
            kind = "string"  # Times stay text as they are written: their ISO form is in order.
        if values.null_count:
            self.nulls = True
        if kind in ("int64", "double") and len(values) > values.null_count:
            bounds = pc.min_max(values).as_py()
            self.large |= max(-bounds["min"], bounds["max"]) > EXACT
        if "bool" in (kind, self.kind):
            self.kind = "bool" if self.kind in (kind, "null") or kind == "null" else "string"
        else:
            self.kind = max(self.kind, kind, key=self.ORDER.index)

    def add_width(self, width: int) -> None:
        self.width = max(self.width, width)


def _plan_csv(path: str, mark: List[int], overrides: Dict[str, str], delimiter: str) -> TableSource:
    with open(path, "rb") as file:
        header = file.readline()
        start = file.tell()
    if b"\r" in header.rstrip(b"\r\n"):
        raise FileError(f"{path}: the first line has a CR before its end, but lines should end with LF or CRLF: "
                        "convert the file, for example with tr '\\r' '\\n'")
    try:
        names = next(csv.reader(io.StringIO(header.decode("utf-8-sig")), delimiter=delimiter), [])
    except UnicodeDecodeError:
        raise FileError(f"{path}: the first line is not UTF-8 text, but should name the columns") from None
    except csv.Error as error:
        raise FileError(f"{path}: the first line should name each column, but cannot be read: {error}") from None
    if any("\n" in name or "\r" in name for name in names):
        raise FileError(f"{path}: a column has a name with a line end, but the first line should name all columns")
    if not names or len(set(names)) < len(names) or "" in names:
        raise FileError(f"{path}: the first line should name each column once, but reads {header[:80]!r}")
    for name in overrides:
        if name not in names:
            raise UsageError(f"--dtype {name}: {path} has no column of this name; its columns are {', '.join(names)}")
    ranges = _ranges(path, start, mark[1])
    found = {name: _Column() for name in names}
    pieces: List[List[int]] = []
    rows = 0
    try:
        known = {name: _override_type(kind) for name, kind in overrides.items()}
        for place in ranges:
            table = _read_range(path, place, names, known, delimiter, first_row=rows)
            rows += table.num_rows
            if table.num_rows:
                pieces.append([table.num_rows, *place])
            for name in names:
                found[name].add(table.column(name))
                if known.get(name) == pa.string():
                    found[name].add_width(_width(table.column(name), path, name, np.dtype(overrides[name]).kind))
        for name in names:
            if name not in overrides and found[name].kind == "double" and found[name].large:
                found[name].kind = _large_kind(path, pieces, names, name, delimiter)
        texts = [name for name in names if name not in overrides and found[name].kind in ("string", "null")]
        if texts:
            _measure_texts(path, pieces, names, texts, delimiter, found)
    except pa.ArrowInvalid as error:
        # pyarrow counts rows from the begin of the range.
        parts = re.match(r"In CSV column #(\d+): (?:Row #\d+: )?(.*)", str(error), re.DOTALL)
        if parts and names[int(parts[1])] in overrides:
            name = names[int(parts[1])]
            raise UsageError(f"--dtype {name}:{overrides[name]}: {path}: {parts[2]}") from None
        raise
    dtype = native(np.dtype([(name, _column_type(path, name, found[name], overrides.get(name))) for name in names]))
    return TableSource(path, dtype, mark, "csv", pieces, delimiter)


def _large_kind(path: str, pieces: List[List[int]], names: List[str], name: str, delimiter: str) -> str:
    """Returns the kind of a column of floats with a number beyond 2^53. They may be integers: pyarrow takes integers
    beyond 2^63 - 1 for floats, which rounds them."""
    for _, *place in pieces:
        texts = _read_range(path, place, names, {name: pa.string()}, delimiter, [name], True).column(name)
        if not pc.all(pc.match_substring_regex(texts, r"^\s*[+-]?[0-9]+\s*$"), min_count=0).as_py():
            return "double"
    try:
        for _, *place in pieces:
            _read_range(path, place, names, {name: pa.uint64()}, delimiter, [name])
    except pa.ArrowInvalid:
        raise FileError(f"{path}: the column {name} has integers that neither i8 nor u8 holds: read it as text with "
                        f"--dtype {name}:S, or as rounded floats with --dtype {name}:f8") from None
    return "uint64"


def _measure_texts(path: str, pieces: List[List[int]], names: List[str], texts: List[str], delimiter: str,
                   found: Dict[str, _Column]) -> None:
    types = {name: pa.string() for name in texts}
    for _, *place in pieces:
        table = _read_range(path, place, names, types, delimiter, texts)
        for name in texts:
            found[name].add_width(_width(table.column(name), path, name))


def _column_type(path: str, name: str, column: _Column, override: Optional[str]) -> str:
    if override in ("S", "U"):
        return f"{override}{max(1, column.width)}"
    if override:
        kind = np.dtype(override)
        width = kind.itemsize // 4 if kind.kind == "U" else kind.itemsize
        if kind.kind in "SU" and column.width > width:
            raise UsageError(f"--dtype {name}:{override}: the column {name} of {path} has a text longer than {width} "
                             f"{'characters' if kind.kind == 'U' else 'bytes'}")
        if column.nulls and kind.kind in "biu":
            remedy = "" if column.kind == "bool" else f"as floats (exact up to 2^53) with --dtype {name}:f8, or "
            raise UsageError(f"--dtype {name}:{override}: the column {name} of {path} has missing values, which this "
                             f"type does not hold: read it {remedy}as text with --dtype {name}:S")
        return override
    if column.kind in ("string", "null"):
        return f"S{max(1, column.width)}"
    if column.kind in ("int64", "uint64") and not column.nulls:
        return "i8" if column.kind == "int64" else "u8"
    if column.kind in ("int64", "uint64") and column.large:
        raise FileError(f"{path}: the column {name} has integers beyond 2^53 and missing values, which no type holds: "
                        f"read it as text with --dtype {name}:S")
    if column.kind == "bool":
        if column.nulls:
            raise FileError(f"{path}: the column {name} has missing values beside true and false: read it as text "
                            f"with --dtype {name}:S")
        return "?"
    return "f8"


def _override_type(kind: str) -> Any:
    return pa.string() if kind in ("S", "U") else _arrow_type(np.dtype(kind))


def _arrow_type(dtype: np.dtype) -> Any:
    return pa.string() if dtype.kind in "SU" else pa.from_numpy_dtype(dtype)


def _is_column(dtype: np.dtype, name: str) -> bool:
    """Returns whether a column of a CSV or Parquet file can have a type."""
    if dtype.subdtype is not None or dtype.names is not None or dtype.kind not in "biufSUMm" or dtype.itemsize == 0:
        return False
    try:
        return name != "csv" or not pa.types.is_float16(_arrow_type(dtype))  # pyarrow does not read them.
    except pa.ArrowNotImplementedError:
        return False


# ---- Parquet --------------------------------------------------------------------------------------------------


def _plan_parquet(path: str, mark: List[int]) -> TableSource:
    try:
        file = pa.parquet.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise FileError(f"{path} is not a Parquet file: {error}") from None
    groups = file.metadata.num_row_groups
    pieces = [[file.metadata.row_group(number).num_rows, number] for number in range(groups)]
    schema = file.schema_arrow
    if len(set(schema.names)) < len(schema.names) or "" in schema.names:
        raise FileError(f"{path}: each column should have a name of its own, but the names are {schema.names!r}")
    fields = []
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if pa.types.is_fixed_size_binary(kind):
            fields.append((field.name, f"S{kind.byte_width}"))
        elif _is_arrow_text(kind):
            width = max([_width(file.read_row_group(number, [field.name]).column(0), path, field.name)
                         for number in range(groups)], default=0)
            fields.append((field.name, f"S{max(1, width)}"))
        else:
            fields.append((field.name, _number_type(file, field, kind, path)))
    dtype = np.dtype(fields)
    check_dtype(dtype, path)
    return TableSource(path, native(dtype), mark, "parquet", [piece for piece in pieces if piece[0]], "")


def _is_arrow_text(kind: Any) -> bool:
    types = pa.types
    return (types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind)
            or types.is_large_binary(kind))


_NUMBERS = {"halffloat": "f2", "float": "f4", "double": "f8", "bool": "?"}


def _number_type(file: Any, field: Any, kind: Any, path: str) -> str:
    types = pa.types
    is_time = types.is_date32(kind) or types.is_timestamp(kind) and kind.tz is None
    if is_time:
        found = f"M8[{'D' if types.is_date32(kind) else kind.unit}]"
    elif types.is_integer(kind) or types.is_boolean(kind) or types.is_floating(kind):
        found = np.dtype(_NUMBERS.get(str(kind), str(kind))).str
    else:
        raise FileError(f"{path}: the column {field.name} of type {field.type} is not supported: the command takes "
                        "numbers, booleans, text, dates and times without a time zone")
    if types.is_floating(kind) or not field.nullable:
        return found
    for number in range(file.metadata.num_row_groups):
        if file.read_row_group(number, [field.name]).column(0).null_count:
            raise FileError(f"{path}: the column {field.name} of type {field.type} has missing values, which only "
                            f"floats have as NaN: fill them{'' if is_time else ', or store the column as float'}")
    return found


# ---- conversion -----------------------------------------------------------------------------------------------


def _as_binary(values: Any) -> Any:
    """Returns a text column with offsets of 64 bits, because a row group can have more than 2 GiB of text."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return values.cast(pa.large_binary())


def _width(values: Any, path: str, name: str, kind: str = "S") -> int:
    """Returns the length of the longest text of a column: in bytes, or in characters for a type `U`."""
    if values.null_count:
        raise FileError(f"{path}: the text column {name} has missing values: fill them with an empty text")
    lengths = pc.utf8_length(values) if kind == "U" else pc.binary_length(_as_binary(values))
    return int(pc.max(lengths).as_py() or 0)


def _text_matrix(values: Any, width: int, path: str, name: str) -> np.ndarray:
    """Returns a text column as fixed-width bytes, without a Python object for each value."""
    array = _as_binary(values).combine_chunks()
    count = len(array)
    matrix = np.zeros((count, width), np.uint8)
    _, offsets, data = array.buffers()
    if count and data is not None:
        edges = np.frombuffer(offsets, np.int64)[array.offset:array.offset + count + 1]
        lengths = np.diff(edges)
        if lengths.max(initial=0) > width:
            raise FileError(f"{path}: the column {name} has a text longer than {width} bytes: the file changed while "
                            "it was read")
        source = np.frombuffer(data, np.uint8)[edges[0]:edges[-1]]
        places = np.repeat(np.arange(count) * width - (edges[:-1] - edges[0]), lengths) + np.arange(len(source))
        if (source == 0).any():
            raise FileError(f"{path}: the column {name} has texts with zero bytes, which fixed-width text cannot hold")
        matrix.reshape(-1)[places] = source
    return matrix.reshape(-1).view(f"S{width}") if count else np.zeros(0, f"S{width}")


def _unicode(values: Any, kind: np.dtype, path: str, name: str) -> np.ndarray:
    """Returns a text column as texts of a type `U`."""
    width = kind.itemsize // 4
    if (pc.max(pc.utf8_length(values)).as_py() or 0) > width:
        raise FileError(f"{path}: the column {name} has a text longer than {width} characters: the file changed while "
                        "it was read")
    if pc.any(pc.ends_with(values, "\0")).as_py():
        raise FileError(f"{path}: the column {name} has texts that end with a zero character, which fixed-width text "
                        "cannot hold")
    return np.asarray(values.to_pylist(), dtype=kind)


def to_rows(table: Any, dtype: np.dtype, path: str) -> np.ndarray:
    """Returns an Arrow table as rows of `dtype`."""
    rows = np.zeros(table.num_rows, dtype)
    for name in dtype.names or ():
        values, kind = table.column(name), dtype[name]
        if kind.kind == "S":
            rows[name] = _text_matrix(values, kind.itemsize, path, name)
        elif kind.kind == "U":
            rows[name] = _unicode(values, kind, path, name)
        elif kind.kind in "biu" and values.null_count:
            # NumPy would receive floats.
            raise FileError(f"{path}: the column {name} has missing values, which {describe(kind)} does not hold")
        else:
            rows[name] = values.to_numpy()
    unify_nan(rows)
    return rows


def check_columns(dtype: np.dtype, path: str, name: str) -> None:
    """Refuses rows that a table cannot hold, before any work is done."""
    need_pyarrow(name)
    for field, kind in _fields(dtype):
        if kind.kind == "m" or not _is_column(kind, name):
            raise FileError(f"{path}: the field {field} of type {describe(kind)} cannot be a column of a {name} file: "
                            "write a .npy file")
        if name == "csv" and ("\n" in field or "\r" in field):
            raise FileError(f"{path}: the name of the field {field!r} has a line end, which a csv file cannot hold: "
                            "write a .npy or Parquet file")


def _fields(dtype: np.dtype) -> List[Tuple[str, np.dtype]]:
    return [(name, dtype[name]) for name in dtype.names] if dtype.names else [("value", dtype)]


def _has_line_end(values: np.ndarray) -> bool:
    units = values.view(np.uint8 if values.dtype.kind == "S" else np.uint32)
    return bool(((units == 10) | (units == 13)).any())


def _to_arrow(rows: np.ndarray, name: str) -> Any:
    fields = _fields(rows.dtype)
    # A missing number is an empty cell, except in a CSV file of one column, where other readers skip empty lines.
    empty_cells = name == "parquet" or len(fields) > 1
    columns = []
    for field, kind in fields:
        values = np.ascontiguousarray(rows[field] if rows.dtype.names else rows)
        if name == "csv" and kind.kind in "SU" and _has_line_end(values):
            raise FileError(f"the field {field} holds a text with a line end, which a csv file cannot hold: write a "
                            ".npy or Parquet file")
        array = pa.array(values, from_pandas=kind.kind == "f" and empty_cells)
        if kind.kind == "S":
            try:
                array = array.cast(pa.string())
            except pa.ArrowInvalid:
                raise FileError(f"the field {field} holds bytes that are not UTF-8 text, which a {name} file cannot "
                                "hold: write a .npy file") from None
        columns.append(array)
    return pa.table(columns, names=[field for field, _ in fields])


def write_table(source: Source, path: str, name: str, delimiter: str, progress: Progress = ignore) -> None:
    """Writes all rows of a binary file as CSV or Parquet, and makes the file permanent."""
    schema = _to_arrow(np.zeros(0, source.dtype), name).schema
    with open(path, "wb") as file:
        if name == "parquet":
            with pa.parquet.ParquetWriter(file, schema) as writer:
                _write_rows(writer, source, name, schema, progress)
        else:
            _write_csv(file, source, schema, delimiter, progress)
        file.flush()
        os.fsync(file.fileno())


def _write_csv(file: Any, source: Source, schema: Any, delimiter: str, progress: Progress) -> None:
    header = io.StringIO()
    csv.writer(header, delimiter=delimiter, lineterminator="\n").writerow(schema.names)
    # Quotes around all texts, as "needed" writes them, are seldom necessary.
    for style in ("none", "needed") if len(schema.names) > 1 else ("needed",):
        file.seek(0)
        file.truncate()
        file.write(header.getvalue().encode())
        options = pa.csv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style=style)
        try:
            with pa.csv.CSVWriter(file, schema, write_options=options) as writer:
                _write_rows(writer, source, "csv", schema, progress)
            return
        except pa.ArrowInvalid:
            if style == "needed":
                raise


def _write_rows(writer: Any, source: Source, name: str, schema: Any, progress: Progress) -> None:
    step = max(1, min(ROWS * 16 if name == "parquet" else ROWS, (1 << 26) // source.dtype.itemsize))
    for start in range(0, source.rows, step):
        rows = source.read(start, min(start + step, source.rows))
        writer.write_table(_to_arrow(rows, name).cast(schema))
        progress(rows.nbytes)


def reopen(path: str, name: str, dtype: np.dtype, delimiter: str) -> Source:
    """Returns a source for a table that `write_table` wrote, with the types of its rows, to check it."""
    if name == "parquet":
        pieces = _plan_parquet_pieces(path)
        return TableSource(path, np.dtype(_fields(dtype)), fingerprint(path), name, pieces, "")
    mark = fingerprint(path)
    with open(path, "rb") as file:
        file.readline()
        start = file.tell()
    dtype = np.dtype(_fields(dtype))
    names = [field for field, _ in _fields(dtype)]
    types = {field: _arrow_type(kind) for field, kind in _fields(dtype)}
    pieces = [[_read_range(path, place, names, types, delimiter).num_rows, *place]
              for place in _ranges(path, start, mark[1])]
    return TableSource(path, dtype, mark, name, [piece for piece in pieces if piece[0]], delimiter)


def _plan_parquet_pieces(path: str) -> List[List[int]]:
    metadata = pa.parquet.ParquetFile(path).metadata
    return [[metadata.row_group(number).num_rows, number] for number in range(metadata.num_row_groups)]


def canonical(rows: np.ndarray) -> np.ndarray:
    """Returns rows as a table holds them, to compare digests: packed fields, and one NaN."""
    fields = _fields(rows.dtype)
    packed = np.zeros(len(rows), np.dtype([(name, kind) for name, kind in fields]))
    for name, _ in fields:
        packed[name] = rows[name] if rows.dtype.names else rows
    unify_nan(packed)
    return packed
