"""The command `ftsort sort` with files that do not fit into its memory: kills, killed jobs, and --resume."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest

from ftsort.cli import external
from test_cli import LIMIT, bad, command, folder, good, stars  # noqa: F401
from test_cli_failures import chaos, children_of, is_running, small_disk, start, wait_for  # noqa: F401

RANKS = "4"
SMALL = ["-n", RANKS, "--memory", "2M"]  # A run has 100 kB.


def check_by_key(path, rows):
    """Compares a file with rows sorted by magnitude; equal keys may change their order."""
    found = np.load(path)
    assert found.dtype == rows.dtype and np.array_equal(found["magnitude"], np.sort(rows["magnitude"]))
    assert np.array_equal(np.sort(found, order="id"), rows)


@pytest.mark.parametrize("seed", [0, 1])
def test_sorts_npy_files_that_do_not_fit(folder, seed):  # noqa: F811
    rows = stars(100_000, seed)
    np.save("in.npy", rows)
    events = [json.loads(line) for line in good("sort", "in.npy", "-o", "out.npy", "--key", "magnitude", *SMALL,
                                                "--json").splitlines()]
    check_by_key("out.npy", rows)
    assert sorted(os.listdir(folder)) == ["in.npy", "out.npy"]
    phases = [event["phase"] for event in events if event["event"] == "phase"]
    assert phases[0] == "runs" and phases[-1] == "check"
    last = events[-1]
    assert last["ok"] and last["external"]["batches"] > 3 and last["external"]["resumed_rows"] == 0


def test_sorts_raw_files_in_place_and_with_scratch_directories(folder):  # noqa: F811
    values = np.random.default_rng(2).normal(size=300_000).astype("f4")
    pathlib.Path("a.bin").write_bytes(values.tobytes())
    mode = os.stat("a.bin").st_mode
    os.mkdir("one")
    os.mkdir("two")
    good("sort", "a.bin", "--dtype", "f4", "-o", "a.bin", *SMALL, "--scratch", "one", "--scratch", "two")
    assert np.array_equal(np.fromfile("a.bin", "f4"), np.sort(values))
    assert os.stat("a.bin").st_mode == mode
    assert sorted(os.listdir(folder)) == ["a.bin", "one", "two"] and os.listdir("one") == os.listdir("two") == []
    good("sort", "a.bin", "--dtype", "f4", "-o", "out.npy", "--descending", *SMALL)
    assert np.array_equal(np.load("out.npy"), np.sort(values)[::-1])


@pytest.mark.parametrize("count", [0, 1])
def test_sorts_files_with_few_rows(folder, count):  # noqa: F811
    np.save("in.npy", np.arange(count))
    good("sort", "in.npy", "-o", "out.npy", "-n", RANKS, "--external")
    assert np.load("out.npy").tolist() == list(range(count))


@pytest.mark.parametrize("seed", [1, 2])
def test_sorts_although_ranks_are_killed(folder, seed):  # noqa: F811
    rows = stars(200_000, seed)
    np.save("in.npy", rows)
    summary = chaos("sort", "in.npy", "-o", "out.npy", "--key", "magnitude", *SMALL, "--chaos", "half",
                    "--chaos-seed", seed)
    check_by_key("out.npy", rows)
    assert summary["killed"]


def merging_job(*arguments):
    """Starts a sort by runs; returns the process once batches are committed, and the processes below it.

    The tenth part of the output has many batches, and a batch is committed before the second one after it is written.
    """
    process = start("sort", "in.npy", "-o", "out.npy", *SMALL, *arguments)
    draft = pathlib.Path(".out.npy.external.partial")
    wait_for(lambda: draft.exists() and draft.stat().st_size > 3_200_000)
    return process, children_of(process.pid)


@pytest.mark.parametrize("resume", [False, True])
def test_a_killed_command_is_continued(folder, resume):  # noqa: F811
    values = np.random.default_rng(3).normal(size=4_000_000)
    np.save("in.npy", values)
    process, members = merging_job(*(["--resume"] if resume else []))
    process.kill()
    # Ranks that live on may end their sort, and without --resume they remove their state then.
    for member in members if not resume else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    process.communicate(timeout=LIMIT)
    wait_for(lambda: not any(is_running(member) for member in members))
    assert not os.path.exists("out.npy")
    summary = json.loads(good("sort", "in.npy", "-o", "out.npy", "-n", "3", "--memory", "2M", "--resume",
                              "--json").splitlines()[-1])
    assert 0 < summary["external"]["resumed_rows"] <= len(values)
    assert np.array_equal(np.load("out.npy"), np.sort(values))
    assert sorted(os.listdir(folder)) == ["in.npy", "out.npy"]


def test_a_killed_mpirun_is_continued(folder):  # noqa: F811
    values = np.random.default_rng(4).normal(size=4_000_000)
    np.save("in.npy", values)
    process, (mpirun, *ranks) = merging_job("--json")
    # Ranks outlive mpirun, and should not complete the sort meanwhile.
    for member in ranks:
        os.kill(member, signal.SIGSTOP)
    os.kill(mpirun, signal.SIGKILL)
    output, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, output + errors
    events = [json.loads(line) for line in output.splitlines()]
    assert "continuing" in [event["reason"] for event in events if event["event"] == "retry"][0]
    assert events[-1]["attempts"] == 2 and events[-1]["external"]["resumed_rows"] > 0
    assert np.array_equal(np.load("out.npy"), np.sort(values))
    assert sorted(os.listdir(folder)) == ["in.npy", "out.npy"]


def test_an_interrupted_sort_names_the_remedy(folder):  # noqa: F811
    # The ranks sort on until mpirun has ended them, and should not complete the sort meanwhile.
    np.save("in.npy", np.random.default_rng(5).normal(size=20_000_000))
    process, _ = merging_job()
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 128 + signal.SIGTERM and "with --resume continues" in errors, errors
    # Another order is another sort, which a command without --resume puts in its place.
    status, _, errors = command("sort", "in.npy", "-o", "out.npy", "--descending", *SMALL, "--resume")
    assert status == 1 and "is the state of another sort, with another key" in errors, errors
    assert "continues" not in errors, errors
    good("sort", "in.npy", "-o", "out.npy", "--descending", *SMALL)
    assert np.array_equal(np.load("out.npy"), np.sort(np.load("in.npy"))[::-1])
    assert sorted(os.listdir(folder)) == ["in.npy", "out.npy"]


def test_a_file_that_changes_after_its_sort_is_not_continued(folder):  # noqa: F811
    np.save("in.npy", np.random.default_rng(6).normal(size=100_000))
    code = ("import os, sys\nfrom ftsort import cli\nfrom ftsort.cli import run\njudge = run.Runner._judge\n"
            "def changed(*arguments):\n    os.utime('in.npy', (1, 1))\n    return judge(*arguments)\n"
            "run.Runner._judge = changed\nsys.exit(cli.main())")
    line = [sys.executable, "-c", code, "sort", "in.npy", "-o", "out.npy", *SMALL, "--resume"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and "in.npy changed while it was read" in done.stderr, done.stderr
    assert "continues" not in done.stderr and os.listdir(folder) == ["in.npy"]


def test_cached_files_are_no_memory_in_use(tmp_path):
    def group(folder, limit, **figures):
        folder.mkdir(parents=True, exist_ok=True)
        name, most = limit
        (folder / name).write_text(f"{most}\n")
        (folder / "memory.stat").write_text("".join(f"{entry} {value}\n" for entry, value in figures.items()))

    group(tmp_path / "job", ("memory.max", 1000), anon=200, file=700, shmem=50)
    group(tmp_path / "job" / "step", ("memory.max", "max"), anon=1)
    group(tmp_path / "full", ("memory.max", 100), anon=200)
    old = "memory.limit_in_bytes"
    group(tmp_path / "memory", (old, 2**63 - 4096), total_rss=1, total_shmem=0)
    group(tmp_path / "memory" / "job", (old, 900), total_rss=100, cache=500)
    for groups, rooms in (("0::/job/step\n", [750]), ("0::/\n", []), ("0::/full\n", [0]), ("0::/absent\n", []),
                          ("9:cpu,memory:/job\n1:cpu:/full\n", [800]), ("2:memory:/\n", [])):
        assert external.memory_in_groups(groups, str(tmp_path)) == rooms, groups


def test_wrong_options(folder):  # noqa: F811
    np.save("in.npy", stars(1000))
    np.save("foreign.npy", np.arange(1000, dtype=">i8"))
    pathlib.Path("in.csv").write_text("id,magnitude\n" + "1,2.5\n" * 500)
    for size in ("0", "much", "-1", "3X"):
        bad(2, "is not a size", "sort", "in.npy", "-o", "o.npy", f"--memory={size}")
    bad(2, "--scratch absent: not a directory", "sort", "in.npy", "-o", "o.npy", "--scratch", "absent")
    bad(2, "--external: only .npy and raw files", "sort", "in.csv", "-o", "o.csv", "--external")
    bad(2, "and the output is csv", "sort", "in.npy", "-o", "o.csv", "--resume")
    for size, options in (("33.6", []), ("25.6", ["--store", "reload"]), ("41.6", ["--replicas", "2"])):
        bad(1, f"in.csv takes {size} kB to sort in memory, but there are 25.0 kB", "sort", "in.csv", "-o", "o.csv",
            "--memory", str(25_000), *options)
    bad(2, "write the file in native byte order", "sort", "foreign.npy", "-o", "o.npy", "--external")
    bad(1, "--memory: ", "sort", "in.npy", "-o", "o.npy", "--memory", "1K", "-n", "2")
    bad(2, "unrecognized arguments: --external", "argsort", "in.npy", "-o", "o.npy", "--external")
    with open("in.npy", "ab") as file:
        file.write(b"more")
    bad(2, "has 4 bytes behind its last row", "sort", "in.npy", "-o", "o.npy", "--external")
    assert sorted(os.listdir(folder)) == ["foreign.npy", "in.csv", "in.npy"]


def test_too_little_space_for_runs_is_found_before_the_sort(small_disk):  # noqa: F811
    np.save("in.npy", np.arange(1_000_000))
    bad(1, "the output and the sorted runs need 16.0 MB", "sort", "in.npy", "-o", small_disk / "out.npy", "--external")
    assert os.listdir(small_disk) == []


def test_the_available_memory_is_known():
    from ftsort.cli import external
    assert 1 << 20 < external.available_memory() < 1 << 60
