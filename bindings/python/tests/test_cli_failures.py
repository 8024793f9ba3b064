"""The command `ftsort` with ranks that are killed, runs that are interrupted, and file systems that are full."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from jobs import NO_QUEUES, NOT_STARTED
from test_cli import LIMIT, bad, command, folder, stars  # noqa: F401


def chaos(*arguments):
    """Runs the command with --json, which has to succeed; returns the summary."""
    status, output, errors = command(*arguments, "--json", **NO_QUEUES)
    assert status == 0, output + errors
    return json.loads(output.splitlines()[-1])


@pytest.mark.parametrize("store", ["memory", "reload"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_sorts_although_half_of_the_ranks_are_killed(folder, seed, store):  # noqa: F811
    values = np.random.default_rng(seed).normal(size=2_000_000)
    np.save("in.npy", values)
    summary = chaos("sort", "in.npy", "-o", "out.npy", "-n", "8", "--chaos", "half", "--chaos-seed", seed,
                    "--store", store)
    assert np.array_equal(np.load("out.npy"), np.sort(values))
    assert summary["attempts"] > 1 or set(summary["killed"]) >= set(summary["failed"]) != set()


@pytest.mark.parametrize("seed", [4, 5])
def test_sorts_although_all_ranks_but_one_are_killed(folder, seed):  # noqa: F811
    rows = stars(500_000)
    np.save("in.npy", rows)
    summary = chaos("sort", "in.npy", "-o", "out.npy", "-n", "4", "--key", "magnitude", "--chaos", "all-but-one",
                    "--chaos-seed", seed)
    # Equal keys keep the order of the file, because the survivors divide the whole file again.
    assert np.array_equal(np.load("out.npy"), rows[np.argsort(rows["magnitude"], kind="stable")])
    assert summary["killed"], summary


@pytest.mark.parametrize("name", ["argsort", "unique", "top", "quantiles"])
def test_queries_complete_although_ranks_are_killed(folder, name):  # noqa: F811
    rows = stars(500_000)
    np.save("in.npy", rows)
    output = [] if name == "quantiles" else ["-o", "out.npy"]
    summary = chaos(name, "in.npy", *output, "-n", "4", "--key", "magnitude", "--chaos", "2", "--chaos-seed", "6")
    order = np.argsort(rows["magnitude"], kind="stable")
    if name == "argsort":
        assert np.array_equal(np.load("out.npy"), order)
    elif name == "unique":
        assert np.load("out.npy")["count"].sum() == len(rows)
    elif name == "top":
        assert np.array_equal(np.load("out.npy"), rows[order[:10]])
    else:
        assert summary["result"][0]["value"]["magnitude"] == pytest.approx(float(rows["magnitude"].min()))


def test_reports_each_failure_in_one_line(folder):  # noqa: F811
    np.save("in.npy", np.random.default_rng(1).normal(size=2_000_000))
    status, output, errors = command("sort", "in.npy", "-o", "out.npy", "-n", "4", "--chaos", "one", "--chaos-seed", 1,
                                     **NO_QUEUES)
    assert status == 0 and output == ""
    assert [line for line in errors.splitlines() if "failed; 3 of 4 ranks go on" in line], errors
    assert len(errors.splitlines()) <= 4, errors


def start(*arguments):
    """Starts the command; returns the process."""
    # A shell in the background starts programs with SIGINT ignored, and the command leaves it so.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen([sys.executable, "-m", "ftsort.cli", *map(str, arguments)], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)


def wait_for(condition, seconds=30):
    """Waits until `condition` returns a true value, and returns it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.005)
    raise AssertionError("the condition was not met in time")


def part_files(path="."):
    """Returns the temporary files of a run."""
    return [name for name in os.listdir(path) if ".ftsort-" in name]


def children_of(pid):
    """Returns the processes below a process."""
    from ftsort.cli import launch
    return [member for member in launch.descendants(pid) if member != pid]


def is_running(pid):
    """Returns whether a process exists and has not ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("number, delay", [(signal.SIGTERM, 0.0), (signal.SIGTERM, 0.5), (signal.SIGINT, 0.25)])
def test_an_interrupted_run_leaves_nothing_behind(folder, number, delay):  # noqa: F811
    np.save("in.npy", np.random.default_rng(1).normal(size=10_000_000))
    process = start("sort", "in.npy", "-o", "out.npy", "-n", "4")
    try:
        wait_for(part_files)
        members = wait_for(lambda: children_of(process.pid))
        time.sleep(delay)
        members = children_of(process.pid) or members
        process.send_signal(number)
        _, errors = process.communicate(timeout=LIMIT)
        assert process.returncode == 128 + number, errors
        assert "no output was written" in errors
        wait_for(lambda: not any(is_running(member) for member in members))
    finally:
        process.kill()
    assert os.listdir(folder) == ["in.npy"]


@pytest.mark.parametrize("name", ["replace", "sync_directory"])
@pytest.mark.parametrize("number, more", [(signal.SIGTERM, []), (signal.SIGINT, ["--external"])])
def test_a_signal_comes_too_late_when_the_output_gets_its_name(folder, name, number, more):  # noqa: F811
    values = np.random.default_rng(1).normal(size=3000)
    np.save("in.npy", values)
    code = (f"import os, sys\nfrom ftsort import cli\nfrom ftsort.cli import files\nfunction = files.{name}\n"
            f"def interrupted(*names):\n    os.kill(os.getpid(), {number:d})\n    return function(*names)\n"
            f"files.{name} = interrupted\nsys.exit(cli.main())")
    line = [sys.executable, "-c", code, "sort", "in.npy", "-o", "in.npy", "-n", "2", "--json", *more]
    done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["event"] == "summary" and last["ok"] and os.listdir(folder) == ["in.npy"]
    assert np.array_equal(np.load("in.npy"), np.sort(values))


def test_a_killed_command_ends_its_ranks(folder):  # noqa: F811
    np.save("in.npy", np.random.default_rng(1).normal(size=3_000_000))
    process = start("sort", "in.npy", "-o", "out.npy", "-n", "4")
    wait_for(part_files)
    members = wait_for(lambda: children_of(process.pid))
    process.kill()
    process.communicate(timeout=LIMIT)
    wait_for(lambda: not any(is_running(member) for member in members))
    assert not os.path.exists("out.npy")
    for name in part_files():
        os.unlink(name)


def test_a_file_that_grows_while_it_is_sorted_is_an_error(folder):  # noqa: F811
    np.save("in.npy", np.arange(100_000))
    process = start("sort", "in.npy", "-o", "out.npy", "-n", "4")
    wait_for(part_files)
    with open("in.npy", "ab") as file:
        file.write(b"more")
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 1 and "changed while it was read" in errors, errors
    assert os.listdir(folder) == ["in.npy"]


def test_a_time_limit_ends_the_job(folder):  # noqa: F811
    np.save("in.npy", np.arange(100_000))
    bad(1, "--time-limit", "sort", "in.npy", "-o", "out.npy", "-n", "4", "--time-limit", "0.2")
    assert os.listdir(folder) == ["in.npy"]


@pytest.fixture
def small_disk(folder):  # noqa: F811
    """Mounts a file system of 12 MB."""
    path = folder / "disk"
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "none", str(path)], capture_output=True)
    if done.returncode != 0:
        pytest.skip("a small file system cannot be mounted")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def test_too_little_space_is_found_before_the_sort(small_disk):
    np.save("in.npy", np.arange(2_000_000))
    bad(1, "needs 16.0 MB", "sort", "in.npy", "-o", small_disk / "out.npy", "-n", "4")
    assert os.listdir(small_disk) == []


def test_a_disk_that_fills_up_leaves_nothing_behind(small_disk):
    np.save("in.npy", np.random.default_rng(1).normal(size=1_200_000))
    process = start("sort", "in.npy", "-o", small_disk / "out.npy", "-n", "4")
    wait_for(lambda: part_files(small_disk) and children_of(process.pid))
    (small_disk / "other").write_bytes(b"1" * 9_000_000)
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 1 and "No space left on device" in errors, errors
    assert os.listdir(small_disk) == ["other"]


def fail_once(folder, monkeypatch, text):  # noqa: F811
    """Lets the first start of mpirun fail with a text, and create the file `tried`."""
    from ftsort import mpirun
    script = folder / "mpirun"
    script.write_text(f'#!/bin/sh\nif [ -e tried ]; then exec "{mpirun.find_mpirun()}" "$@"; fi\n'
                      f'touch tried\necho "{text}" >&2\nexit 1\n')
    script.chmod(0o755)
    monkeypatch.setenv("MPIRUN", str(script))


def test_starts_again_if_mpirun_fails(folder, monkeypatch):  # noqa: F811
    np.save("in.npy", np.arange(1000)[::-1])
    fail_once(folder, monkeypatch, "some failure of MPI")
    status, output, errors = command("sort", "in.npy", "-o", "out.npy", "-n", "2")
    assert status == 0 and "attempt 2: some failure of MPI: starting again from the file" in errors
    assert np.load("out.npy")[0] == 0
    os.unlink("tried")
    bad(1, "some failure of MPI", "sort", "in.npy", "-o", "out2.npy", "-n", "2", "--attempts", "1")
    assert not os.path.exists("out2.npy")


def test_ranks_are_killed_although_an_earlier_mpirun_could_not_start(folder, monkeypatch):  # noqa: F811
    np.save("in.npy", np.random.default_rng(1).normal(size=2_000_000))
    fail_once(folder, monkeypatch, NOT_STARTED)
    summary = chaos("sort", "in.npy", "-o", "out.npy", "-n", "4", "--chaos", "all-but-one", "--chaos-seed", "4")
    assert os.path.exists("tried") and summary["killed"], summary


def test_the_progress_of_a_terminal_is_one_line(folder):  # noqa: F811
    import pty
    np.save("in.npy", np.random.default_rng(1).normal(size=2_000_000))
    own, terminal = pty.openpty()
    line = [sys.executable, "-m", "ftsort.cli", "sort", "in.npy", "-o", "out.npy", "-n", "4", "--chaos", "one",
            "--chaos-seed", "1"]
    variables = dict(os.environ, **NO_QUEUES)
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=terminal, env=variables) as process:
        os.close(terminal)
        shown = b""
        try:
            while True:
                shown += os.read(own, 65536)
        except OSError:
            pass  # The terminal is closed when the command has ended.
        assert process.wait(timeout=LIMIT) == 0
    os.close(own)
    text = shown.decode()
    assert "failed; 3 of 4 ranks go on" in text and "complete and checked" in text
    assert text.count("\r\x1b[K") > 3 and "ranks 4/4" in text


def test_ranks_that_do_not_end_are_ended(folder, monkeypatch):  # noqa: F811
    from ftsort import mpirun
    np.save("in.npy", np.arange(1000)[::-1])
    script = folder / "mpirun"
    script.write_text(f'#!/bin/sh\n"{mpirun.find_mpirun()}" "$@"\nsleep 300\n')
    script.chmod(0o755)
    monkeypatch.setenv("MPIRUN", str(script))
    status, _, errors = command("sort", "in.npy", "-o", "out.npy", "-n", "2")
    assert status == 0, errors
    assert np.load("out.npy")[0] == 0


def test_a_killed_mpirun_leads_to_another_attempt(folder):  # noqa: F811
    np.save("in.npy", np.random.default_rng(1).normal(size=3_000_000))
    process = start("sort", "in.npy", "-o", "out.npy", "-n", "4", "--json")
    members = wait_for(lambda: len(found := children_of(process.pid)) > 4 and found)
    os.kill(members[0], signal.SIGKILL)
    output, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, output + errors
    assert json.loads(output.splitlines()[-1])["attempts"] == 2
    assert not any(is_running(member) for member in members)
    assert np.array_equal(np.load("out.npy"), np.sort(np.load("in.npy")))
