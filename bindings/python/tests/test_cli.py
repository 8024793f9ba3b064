"""The command `ftsort`, every subcommand and format, on ranks without failures.

test_cli_failures.py kills ranks, and test_cli_files.py has the tests without MPI.
"""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

LIMIT = 90  # seconds of a run
RANKS = "4"
STARS = np.dtype([("id", "i8"), ("magnitude", "f4"), ("name", "S6")])


def command(*arguments, limit=LIMIT, **variables):
    """Runs the command, and returns its status, standard output and standard error."""
    line = [sys.executable, "-m", "ftsort.cli", *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=limit, stdin=subprocess.DEVNULL,
                          env=dict(os.environ, **variables))
    return done.returncode, done.stdout, done.stderr


def good(*arguments):
    """Runs the command, which has to succeed; returns its standard output."""
    status, output, errors = command(*arguments)
    assert status == 0, output + errors
    return output


def bad(status, text, *arguments):
    """Runs the command, which has to end with `status` and one line of error that contains `text`."""
    found, output, errors = command(*arguments)
    assert found == status and text in errors, (found, output, errors)
    assert "Traceback" not in errors


def stars(count=3000, seed=1):
    """Returns a catalogue with duplicate magnitudes."""
    numbers = np.random.default_rng(seed)
    rows = np.zeros(count, STARS)
    rows["id"] = np.arange(count)
    rows["magnitude"] = np.round(numbers.normal(9, 2, count), 1)
    rows["name"] = [b"S%d" % number for number in numbers.integers(0, 9999, count)]
    return rows


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Makes the folder of the test the working directory; the command leaves no temporary file in it."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert [name for name in os.listdir(tmp_path) if ".ftsort-" in name] == []


# ---- sort and formats -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f8", "i4", "u1", "S7", ">i8"])
def test_sorts_plain_values(folder, dtype):
    values = np.random.default_rng(1).integers(0, 200, 5000).astype(dtype)
    np.save("in.npy", values)
    assert good("sort", "in.npy", "-o", "out.npy", "-n", RANKS) == ""
    assert np.array_equal(np.load("out.npy"), np.sort(values))
    assert "in order and holds the rows of in.npy" in good("verify", "out.npy", "in.npy")


def test_sorts_structs_by_a_field_and_keeps_the_order_of_equal_keys(folder):
    rows = stars()
    np.save("in.npy", rows)
    good("sort", "in.npy", "-o", "out.npy", "--key", "magnitude", "-n", RANKS)
    assert np.array_equal(np.load("out.npy"), rows[np.argsort(rows["magnitude"], kind="stable")])
    good("sort", "in.npy", "-o", "out.npy", "--key", "magnitude", "--descending", "-n", RANKS)
    assert np.array_equal(np.load("out.npy"), rows[np.argsort(-rows["magnitude"], kind="stable")])


def test_sorts_by_several_keys_and_by_text(folder):
    rows = stars()
    np.save("in.npy", rows)
    good("sort", "in.npy", "-o", "out.npy", "--key", "magnitude:desc", "--key", "name", "-n", RANKS)
    order = np.lexsort((rows["name"], -rows["magnitude"]))
    assert np.array_equal(np.load("out.npy"), rows[order])
    assert good("verify", "out.npy", "in.npy", "--key", "magnitude:desc", "--key", "name")
    words = np.array([str(number) for number in rows["id"]])
    np.save("words.npy", words)
    good("sort", "words.npy", "-o", "sorted.npy", "-n", RANKS)
    assert np.array_equal(np.load("sorted.npy"), np.sort(words))


def test_sorts_texts_with_zeros_inside(folder):
    np.save("in.npy", np.array(["b\0z", "b\0a", "a\0z", "c"] * 20))
    good("sort", "in.npy", "-o", "out.npy", "-n", RANKS)
    assert [text[0] for text in np.load("out.npy")] == ["a"] * 20 + ["b"] * 40 + ["c"] * 20


def test_outputs_have_the_permissions_of_the_file_that_they_replace(folder):
    np.save("in.npy", np.arange(50.0))
    mask = os.umask(0o027)
    try:
        for name in ("out.npy", "out.csv", "large.npy"):
            if name == "out.csv":
                pytest.importorskip("pyarrow")
            more = ["--external"] if name == "large.npy" else []
            for mode in (0o640, 0o600, 0o644):
                if mode != 0o640:
                    os.chmod(name, mode)
                good("sort", "in.npy", "-o", name, "-n", "2", *more)
                assert os.stat(name).st_mode & 0o777 == mode, (name, oct(mode))
    finally:
        os.umask(mask)


def test_texts_with_line_ends_are_no_csv(folder):
    pytest.importorskip("pyarrow")
    np.save("in.npy", np.array([(1, b"a\nb"), (2, b"c")], [("n", "i4"), ("s", "S3")]))
    status, output, errors = command("sort", "in.npy", "-o", "out.csv", "-n", "2", "--json")
    assert status == 1 and "Traceback" not in errors and os.listdir(folder) == ["in.npy"]
    last = json.loads(output.splitlines()[-1])
    assert last["event"] == "summary" and not last["ok"]
    assert "the field s holds a text with a line end" in last["message"]


def test_sorts_raw_files_and_a_file_in_place(folder):
    values = np.random.default_rng(2).normal(size=4000).astype("f4")
    pathlib.Path("a.bin").write_bytes(values.tobytes())
    good("sort", "a.bin", "--dtype", "f4", "-o", "a.bin", "-n", RANKS)
    assert np.array_equal(np.fromfile("a.bin", "f4"), np.sort(values))


def test_sorts_csv_and_parquet_and_converts(folder):
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = stars()
    lines = ["id,magnitude,name"] + [f"{row['id']},{row['magnitude']:.1f},{row['name'].decode()}" for row in rows]
    pathlib.Path("in.csv").write_text("\n".join(lines) + "\n")
    good("sort", "in.csv", "-o", "out.csv", "--key", "magnitude", "-n", RANKS)
    order = np.argsort(rows["magnitude"], kind="stable")
    written = pathlib.Path("out.csv").read_text().splitlines()
    assert [int(line.split(",")[0]) for line in written[1:]] == rows["id"][order].tolist()
    good("sort", "in.csv", "-o", "out.parquet", "--key", "magnitude", "-n", RANKS)
    table = parquet.read_table("out.parquet")
    assert table["id"].to_pylist() == rows["id"][order].tolist()
    assert table["name"].to_pylist() == [name.decode() for name in rows["name"][order]]
    good("sort", "out.parquet", "-o", "back.npy", "--key", "id", "-n", RANKS)
    assert np.array_equal(np.load("back.npy")["name"], rows["name"])
    assert "in order and holds" in good("verify", "out.parquet", "in.csv", "--key", "magnitude")
    bad(2, "--delimiter ';;': a delimiter is one", "sort", "out.parquet", "-o", "other.csv", "--delimiter", ";;")


def test_keeps_empty_lines_of_csv_files_with_one_column(folder):
    pytest.importorskip("pyarrow")
    pathlib.Path("in.csv").write_text("s\nb\n\na\n")
    good("sort", "in.csv", "-o", "out.csv", "-n", RANKS)
    assert pathlib.Path("out.csv").read_text() == 's\n""\n"a"\n"b"\n'
    assert "3 rows, in order and holds" in good("verify", "out.csv", "in.csv")
    pathlib.Path("other.csv").write_text("s\nb\na\n")
    bad(3, "has 3 rows, and other.csv has 2", "verify", "out.csv", "other.csv")


@pytest.mark.parametrize("name", ["csv", "parquet"])
def test_every_nan_comes_last_in_tables(folder, name):
    pytest.importorskip("pyarrow")
    rows = np.zeros(400, [("x", "f8"), ("n", "i8")])
    rows["x"], rows["n"] = np.arange(400)[::-1], np.arange(400)
    rows["x"][10:40:10] = np.nan, -np.nan, np.nan
    np.save("in.npy", rows)
    expected = np.argsort(rows["x"], kind="stable")  # NumPy takes all NaN for equal.
    good("sort", "in.npy", "-o", f"out.{name}", "--key", "x", "-n", RANKS)
    good("sort", f"out.{name}", "-o", "back.npy", "--key", "x", "-n", RANKS)
    assert np.load("back.npy")["n"].tolist() == expected.tolist()
    for arguments in ((f"out.{name}", "in.npy"), (f"out.{name}", "back.npy"), ("back.npy", f"out.{name}")):
        assert "400 rows, in order and holds" in good("verify", *arguments, "--key", "x")
    # In a .npy file the sign bit decides.
    good("sort", "in.npy", "-o", "out.npy", "--key", "x", "-n", RANKS)
    assert np.load("out.npy")["n"][0] == 20 and np.load("out.npy")["n"][1:].tolist() == [n for n in expected if n != 20]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_sorts_fewer_rows_than_ranks(folder, count):
    np.save("in.npy", np.arange(count)[::-1].astype("i8"))
    good("sort", "in.npy", "-o", "out.npy", "-n", RANKS)
    assert np.load("out.npy").tolist() == list(range(count))


@pytest.mark.parametrize("store", ["reload", "directory", "none"])
def test_sorts_with_every_store(folder, store):
    values = np.random.default_rng(3).normal(size=3000)
    np.save("in.npy", values)
    os.mkdir("store")
    good("sort", "in.npy", "-o", "out.npy", "-n", RANKS, "--store", store, "--store-directory", "store")
    assert np.array_equal(np.load("out.npy"), np.sort(values))


# ---- queries --------------------------------------------------------------------------------------------------


def test_argsort_writes_positions(folder):
    rows = stars()
    np.save("in.npy", rows)
    good("argsort", "in.npy", "-o", "order.npy", "--key", "magnitude", "-n", RANKS)
    order = np.load("order.npy")
    assert order.dtype == np.int64
    assert np.array_equal(order, np.argsort(rows["magnitude"], kind="stable"))


def test_unique_counts(folder):
    rows = stars()
    np.save("in.npy", rows)
    good("unique", "in.npy", "-o", "values.npy", "--key", "magnitude", "-n", RANKS)
    found = np.load("values.npy")
    values, first, counts = np.unique(rows["magnitude"], return_index=True, return_counts=True)
    assert np.array_equal(found["magnitude"], values) and np.array_equal(found["count"], counts)
    assert np.array_equal(found["id"], rows["id"][first])
    np.save("plain.npy", np.array([3, 1, 3, 3], "i2"))
    good("unique", "plain.npy", "-o", "plain_values.npy", "-n", RANKS)
    assert np.load("plain_values.npy").tolist() == [(1, 1), (3, 3)]


def test_positional_arguments_may_be_behind_options(folder):
    rows = stars()
    np.save("in.npy", rows)
    np.save("sorted.npy", rows[np.argsort(rows["magnitude"], kind="stable")])
    expected = good("quantiles", "in.npy", "0.5", "1", "--key", "magnitude", "-n", "2")
    assert expected.count("\n") == 3
    assert good("quantiles", "in.npy", "0.5", "--key", "magnitude", "1", "-n", "2") == expected
    assert good("quantiles", "in.npy", "--key", "magnitude", "0.5", "1", "-n", "2") == expected
    assert "holds the rows of in.npy" in good("verify", "sorted.npy", "--key", "magnitude", "in.npy")
    bad(2, "argument fractions: 2 is not between 0 and 1", "quantiles", "in.npy", "--key", "magnitude", "2")
    bad(2, "argument fractions: could not convert", "quantiles", "in.npy", "--key", "magnitude", "half")
    bad(2, "unrecognized arguments: --half 0.5", "quantiles", "in.npy", "--half", "0.5")
    bad(2, "unrecognized arguments: c.npy", "verify", "a.npy", "b.npy", "--key", "magnitude", "c.npy")
    bad(2, "unrecognized arguments: c.npy", "verify", "a.npy", "--key", "magnitude", "b.npy", "c.npy")
    bad(2, "unrecognized arguments: b.npy", "info", "a.npy", "b.npy")


def test_quantiles_and_top_print_rows(folder):
    rows = stars()
    np.save("in.npy", rows)
    np.save("values.npy", rows["magnitude"])
    lines = good("quantiles", "values.npy", "0.5", "1", "-n", RANKS).split()
    expected = np.quantile(rows["magnitude"], [0.5, 1], method="inverted_cdf")
    assert lines[:2] == ["fraction", "value"]
    assert [float(lines[3]), float(lines[5])] == pytest.approx(expected.tolist())
    order = np.argsort(rows["magnitude"], kind="stable")[:3]
    shown = [json.loads(line) for line in good("top", "in.npy", "-c", "3", "--key", "magnitude", "-n", RANKS,
                                               "--json").splitlines()]
    assert [row["id"] for row in shown[-1]["result"]] == rows["id"][order].tolist()
    np.save("empty.npy", rows[:0])
    assert json.loads(good("top", "empty.npy", "-n", RANKS, "--json").splitlines()[-1])["result"] == []
    good("top", "in.npy", "-c", "3", "--key", "magnitude", "-o", "top.npy", "-n", RANKS)
    assert np.array_equal(np.load("top.npy"), rows[order])


def test_padding_does_not_count(folder):
    dtype = np.dtype([("id", "u1"), ("x", "f8")], align=True)
    rows = np.frombuffer(np.random.default_rng(1).bytes(3000 * dtype.itemsize), dtype).copy()
    rows["x"] = np.arange(3000)[::-1]
    np.save("in.npy", rows)
    good("top", "in.npy", "-c", "300", "--key", "x", "-o", "top.npy", "-n", RANKS)
    found = np.load("top.npy")
    assert np.array_equal(found["x"], np.arange(300)) and np.array_equal(found["id"], rows["id"][::-1][:300])
    good("sort", "in.npy", "-o", "out.npy", "--key", "x", "-n", RANKS)
    assert np.array_equal(np.load("out.npy")["id"], rows["id"][::-1])


# ---- verify, info, JSON ---------------------------------------------------------------------------------------


def test_verify_finds_disorder_and_other_rows(folder):
    values = np.arange(1000.0)
    np.save("good.npy", values)
    other = values.copy()
    other[[10, 11]] = other[[11, 10]]
    np.save("swapped.npy", other)
    np.save("changed.npy", np.where(values == 5, 5.5, values))
    np.save("short.npy", values[:-1])
    bad(3, "row 11 belongs before row 10", "verify", "swapped.npy")
    bad(3, "do not hold the same rows", "verify", "good.npy", "changed.npy")
    bad(3, "and short.npy has 999", "verify", "good.npy", "short.npy")
    assert "holds the rows of swapped.npy" in good("verify", "good.npy", "swapped.npy")
    status, output, _ = command("verify", "swapped.npy", "--json")
    assert status == 3
    last = json.loads(output.splitlines()[-1])
    assert (last["ok"], last["in_order"], last["first_violation"]) == (False, False, 11)


def test_verify_takes_a_type_for_csv_and_raw_files_only(folder):
    values = np.arange(1000, dtype="f4")
    np.save("out.npy", values)
    pathlib.Path("in.bin").write_bytes(values[::-1].tobytes())
    assert "holds the rows of in.bin" in good("verify", "out.npy", "in.bin", "--dtype", "f4")
    bad(2, "leave --dtype out", "verify", "out.npy", "--dtype", "f8")
    pytest.importorskip("pyarrow")
    pathlib.Path("in.csv").write_text("value\n" + "".join(f"{value}\n" for value in values))
    assert "holds the rows of in.csv" in good("verify", "out.npy", "in.csv", "--dtype", "value:f4")


def test_verify_reads_integers_of_csv_files_as_floats(folder):
    pytest.importorskip("pyarrow")
    pathlib.Path("in.csv").write_text("n,x,y\n2,2.0,-0.0\n1,1.0,3.0\n")
    good("sort", "in.csv", "-o", "out.csv", "-n", "2")
    good("sort", "in.csv", "-o", "out.npy", "-n", "2")
    assert pathlib.Path("out.csv").read_text() == "n,x,y\n1,1,3\n2,2,-0\n"
    for other in ("in.csv", "out.npy"):
        assert "in order and holds the rows" in good("verify", "out.csv", other)
    assert "holds the rows of out.csv" in good("verify", "out.npy", "out.csv")
    pathlib.Path("other.csv").write_text("n,x,y\n1,1,3\n2,2,0\n")
    bad(3, "do not hold the same rows", "verify", "other.csv", "in.csv")
    pathlib.Path("other.csv").write_text("n,z,y\n1,1,3\n2,2,-0\n")
    bad(3, "has rows of type", "verify", "other.csv", "in.csv")


def test_verify_reports_a_file_that_cannot_be_read(folder, monkeypatch, capfd):
    from ftsort import cli
    np.save("in.npy", np.arange(50.0))

    def read(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", read)
    assert cli.main(["verify", "in.npy", "--json"]) == 1
    last = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert last["event"] == "summary" and last["message"] == "in.npy: Input/output error"


def test_verify_prints_its_line_once_on_a_terminal(folder, monkeypatch, capfd):
    from ftsort import cli
    np.save("in.npy", np.arange(50.0))
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    assert cli.main(["verify", "in.npy"]) == 0
    assert "".join(capfd.readouterr()).count("in order") == 1


def test_info_prints_the_type_and_versions(folder):
    np.save("in.npy", stars(5))
    output = good("info", "in.npy")
    assert "id:i8, magnitude:f4, name:S6" in output and "Open MPI" in output
    members = json.loads(good("info", "in.npy", "--json"))
    assert (members["format"], members["rows"], members["row_bytes"]) == ("npy", 5, 18)
    assert "ftsort" in good("--version")


def test_prints_texts_that_the_terminal_cannot_show(folder, monkeypatch):
    np.save("in.npy", np.array(["\u00fc", "b"]))
    os.rename("in.npy", b"caf\xe9.npy")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    assert r"\xfc" in good("top", b"caf\xe9.npy".decode(errors="surrogateescape"), "-n", "2")
    assert r"caf\udce9.npy" in good("info", b"caf\xe9.npy".decode(errors="surrogateescape"))


def test_ranks_import_no_module_of_the_working_directory(folder):
    np.save("in.npy", np.arange(100)[::-1])
    (folder / "queue.py").write_text('raise SystemExit("imported")\n')
    # As the installed program does, which has no empty entry in its path.
    code = "import sys; sys.path = [*filter(None, sys.path)]; from ftsort import cli; sys.exit(cli.main())"
    for arguments in (["sort", "in.npy", "-o", "out.npy", "-n", "2"], ["--version"]):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=LIMIT,
                              stdin=subprocess.DEVNULL)
        assert done.returncode == 0 and "not usable" not in done.stdout, done.stdout + done.stderr
    assert np.array_equal(np.load("out.npy"), np.arange(100))


def test_json_has_an_object_in_each_line(folder):
    np.save("in.npy", np.random.default_rng(4).normal(size=3000))
    events = [json.loads(line) for line in good("sort", "in.npy", "-o", "out.npy", "-n", RANKS, "--json").splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[0] == "start" and kinds[-1] == "summary"
    assert [event["phase"] for event in events if event["event"] == "phase"] == ["read", "sort", "write", "check"]
    last = events[-1]
    assert last["ok"] and last["status"] == 0 and last["rows"] == 3000 and last["failed"] == []
    assert all(event["seconds"] >= 0 for event in events)


# ---- errors ---------------------------------------------------------------------------------------------------


def test_wrong_usage_is_status_2(folder):
    np.save("in.npy", stars(50))
    np.save("plain.npy", np.arange(5))
    bad(2, "invalid choice", "order", "in.npy")
    bad(2, "name a command")
    bad(2, "-o/--output", "sort", "in.npy")
    bad(2, "no field of this name; its fields are id, magnitude, name", "sort", "in.npy", "-o", "o.npy", "--key", "mag")
    bad(2, "plain values", "sort", "plain.npy", "-o", "o.npy", "--key", "x")
    bad(2, "--dtype float64: in.npy holds", "sort", "in.npy", "-o", "o.npy", "--dtype", "f8")
    bad(2, "not a NumPy type", "sort", "in.npy", "-o", "o.npy", "--dtype", "f9", "--format", "raw")
    np.save("wide.npy", np.zeros(5, [(f"f{number}", "i4") for number in range(65)]))
    bad(2, "--key: wide.npy has 65 fields to sort by, but at most 64 are possible", "sort", "wide.npy", "-o", "o.npy")
    bad(2, "--store-directory", "sort", "in.npy", "-o", "o.npy", "--store", "directory")
    bad(2, "has to survive", "sort", "in.npy", "-o", "o.npy", "--chaos", "4", "-n", "4")
    bad(2, "is below 1", "sort", "in.npy", "-o", "o.npy", "-n", "0")
    for line in (["sort", "in.npy", "-o", ""], ["top", "in.npy", "-o", ""], ["verify", "in.npy", ""],
                 ["verify", "in.npy", "--key", "id", ""], ["sort", "in.npy", "-o", "o.npy", "--scratch", ""]):
        bad(2, "the path is empty", *line)
    for limit in ("0", "-1", "nan", "inf"):
        bad(2, "is not a number of seconds above 0", "sort", "in.npy", "-o", "o.npy", f"--time-limit={limit}")
    bad(2, "is not a size", "sort", "in.npy", "-o", "o.npy", "--memory", "9" * 310)
    bad(2, "is not half, one, all-but-one or a number", "sort", "in.npy", "-o", "o.npy", "--chaos", "\u00b2")
    assert sorted(os.listdir(folder)) == ["in.npy", "plain.npy", "wide.npy"]
    good("sort", "wide.npy", "-o", "o.npy", "-n", "2", *[f"--key=f{number}" for number in range(64)])


def test_wrong_arguments_have_a_summary(folder):
    for line, text in ((["order", "in.npy"], "invalid choice"), (["sort", "in.npy"], "are required: -o/--output"),
                       (["quantiles", "in.npy", "2"], "is not between 0 and 1"), ([], "unrecognized arguments"),
                       (["verify", "in.npy", "--slow"], "unrecognized arguments: --slow")):
        status, output, errors = command(*line, "--json")
        error, summary = (json.loads(line) for line in output.splitlines())
        assert status == 2 and errors.startswith("usage: ftsort") and "Traceback" not in errors
        assert error["event"] == "error" and summary["event"] == "summary"
        assert not summary["ok"] and summary["status"] == 2 and text in summary["message"]


def test_files_that_cannot_be_used_are_status_1(folder):
    np.save("in.npy", np.arange(50))
    bad(1, "No such file", "sort", "absent.npy", "-o", "o.npy")
    bad(1, "is not a directory", "sort", "in.npy", "-o", "absent/o.npy")
    bad(1, "is a directory", "sort", "in.npy", "-o", ".", "--output-format", "npy")
    os.mkfifo("pipe.npy")
    bad(1, "pipe.npy is no regular file", "sort", "in.npy", "-o", "pipe.npy")
    bad(1, "pipe.npy is not a regular file", "sort", "pipe.npy", "-o", "o.npy")
    header = np.lib.format.magic(1, 0) + (118).to_bytes(2, "little")
    text = "{'descr': '<f8', 'fortran_order': False, 'shape': (-2,), }"
    pathlib.Path("negative.npy").write_bytes(header + text.ljust(117).encode() + b"\n")
    bad(1, "its shape is (-2,)", "sort", "negative.npy", "-o", "o.npy")
    pathlib.Path("in.bin").write_bytes(b"12345678")
    bad(2, "name the type of its rows", "sort", "in.bin", "-o", "o.bin")
    bad(2, "not a multiple of the 3 bytes", "sort", "in.bin", "-o", "o.bin", "--dtype", "S3")
    pathlib.Path("in.xyz").write_bytes(b"12345678")
    bad(2, "--format is missing", "sort", "in.xyz", "-o", "o.xyz")


def test_no_mpirun_is_status_4(folder, monkeypatch):
    np.save("in.npy", np.arange(50))
    monkeypatch.setenv("MPIRUN", "/absent/mpirun")
    bad(4, "MPIRUN=/absent/mpirun is not a program", "sort", "in.npy", "-o", "o.npy")


def test_an_mpi_without_ulfm_is_status_4(folder, monkeypatch):
    from ftsort import mpirun
    np.save("in.npy", np.arange(50))
    script = folder / "mpirun"
    # An mpirun that is started without its option for fault tolerance.
    script.write_text(f'#!/bin/sh\nshift 2\nexec "{mpirun.find_mpirun()}" "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("MPIRUN", str(script))
    bad(4, "ulfm", "sort", "in.npy", "-o", "o.npy", "-n", "2")
    assert not os.path.exists("o.npy")


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write to every directory")
def test_a_directory_without_permission_is_status_1(folder):
    np.save("in.npy", np.arange(50))
    os.mkdir("closed", 0o500)
    bad(1, "Permission denied", "sort", "in.npy", "-o", "closed/o.npy")


def test_an_mpi4py_that_does_not_start_is_status_4(folder, monkeypatch):
    np.save("in.npy", np.arange(50))
    os.makedirs("other/mpi4py")
    pathlib.Path("other/mpi4py/__init__.py").write_text('raise ImportError("no libmpi")\n')
    monkeypatch.setenv("PYTHONPATH", f"{folder}/other", prepend=os.pathsep)
    bad(4, "mpi4py does not start (no libmpi)", "sort", "in.npy", "-o", "o.npy", "-n", "2")
