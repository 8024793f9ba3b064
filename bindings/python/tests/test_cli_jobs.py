"""The description of a job for the ranks, and the reports of the ranks, which both can be long."""

import errno
import json
import os
import secrets
import socket
import subprocess
import time
import types

import numpy as np
import pytest

import ftsort
from ftsort.cli import files, launch, progress, run, worker
from ftsort.cli.check import Key
from test_cli import folder, good  # noqa: F401


def wide(fields):
    """Returns a type whose names cannot be compressed well."""
    return np.dtype([(f"f{number}_{secrets.token_hex(20)}", "u1") for number in range(fields)])


def plan(path, command_name="sort", ranks=2, **more):
    """Returns the runner and the output of a job for a file."""
    source = files.open_source(str(path))
    output = run.Output(f"{path}.out", "npy", source.dtype, source.rows, None)
    job = run.make_job(command_name, source, [Key(None, False)], output, **more)
    runner = run.Runner(job, source, ranks, progress.Display(True), attempts=3, chaos=None, time_limit=None, mpirun=[])
    return runner, output


VALUES = np.array([5, 3, 8, 3, 9, 1, 7, 2])
COUNTED = np.dtype([("value", "i8"), ("count", "i8")])


def check_output(path, command_name, rows, missing=0, ranks=2, **more):
    """Judges an output by the findings of the ranks, as the command does. Raises run.Failed for a wrong output.

    `missing`: the number of rows that the output is to lose, because the ranks have reported fewer rows.
    """
    np.save(path / "in.npy", VALUES)
    np.save(path / "out.npy", rows)
    runner, _ = plan(path / "in.npy", command_name, ranks, **more)
    output = files.open_source(str(path / "out.npy"))
    rank = worker.Worker.__new__(worker.Worker)
    rank.job, rank.command, rank.source, rank.out_dtype = runner.job, command_name, runner.source, output.dtype
    rank.keys, rank.group, rank.moved = [Key(None, False)], types.SimpleNamespace(size=ranks), files.ignore
    attempt = run.Attempt()
    attempt.done = {"rows": output.rows - missing, "failed": []}
    for kind in worker.kinds_of(command_name):
        for part in range(ranks):
            found = {"counts": [], **rank.check_part(kind, part, output)}
            attempt.take_part({**found, "kind": kind, "part": part, "first": 0, "of": len(found["counts"])})
    runner._judge(attempt)


@pytest.mark.parametrize("command_name, more, right, wrong", [
    ("sort", {}, [1, 2, 3, 3, 5, 7, 8, 9], [[1, 2, 3, 3, 7, 5, 8, 9], [1, 2, 3, 4, 5, 7, 8, 9]]),
    ("argsort", {}, [5, 7, 1, 3, 0, 6, 2, 4], [[5, 7, 3, 1, 6, 0, 2, 4], [5, 7, 1, 1, 0, 6, 2, 4]]),
    ("top", dict(count=3), [1, 2, 3], [[2, 1, 3], [1, 2, 5], [0, 2, 3], [2, 3], [1, 2, 2, 3]]),
    ("quantiles", dict(fractions=[0.5, 1.0]), [3, 9], [[5, 9], [3, 8], [3]]),
    ("unique", {}, [(1, 1), (2, 1), (3, 2), (5, 1), (7, 1), (8, 1), (9, 1)],
     [[(1, 1), (3, 2), (2, 1), (5, 1), (7, 1), (8, 1), (9, 1)],
      [(1, 1), (2, 1), (3, 1), (5, 1), (7, 1), (8, 1), (9, 1)],
      [(1, 1), (2, 1), (3, 1), (3, 1), (5, 1), (7, 1), (8, 1), (9, 1)]]),
])
def test_wrong_outputs_are_discarded(tmp_path, command_name, more, right, wrong):
    dtype = COUNTED if command_name == "unique" else "i8"
    check_output(tmp_path, command_name, np.array(right, dtype), **more)
    for rows in wrong:
        with pytest.raises(run.Failed) as failed:
            check_output(tmp_path, command_name, np.array(rows, dtype), **more)
        assert failed.value.status == run.WRONG, rows
    if command_name in ("sort", "argsort", "top"):
        with pytest.raises(run.Failed):
            check_output(tmp_path, command_name, np.array(right, dtype), missing=1, **more)


@pytest.mark.parametrize("fields", [1, 3000, 9000])
def test_a_job_is_divided_between_variables(fields):
    job = {"dtype": files.dtype_to_json(wide(fields)), "digest_key": 1}
    variables = worker.encode_job(job, "token")
    assert all(name.startswith("FTSORT_JOB_token_") for name in variables)
    assert max(map(len, variables.values())) <= 100_000 and (len(variables) > 1) == (fields > 1)
    others = {**os.environ, **worker.encode_job({"other": 1}, "tok"), **worker.encode_job({"other": 2}, "token_0")}
    assert worker.decode_job("token", {**others, **variables}) == json.loads(json.dumps(job))


def test_the_last_argument_of_the_ranks_belongs_to_one_job(tmp_path, monkeypatch):
    lines = []

    class Job:
        def __init__(self, line, variables):
            forwarded = [name for option, name in zip(line, line[1:]) if option == "-x"]
            assert set(variables) <= set(forwarded)
            assert worker.decode_job(line[-1], variables)["command"] == "sort"
            lines.append(line)
            raise launch.TooLarge

    monkeypatch.setattr(launch, "Job", Job)
    np.save(tmp_path / "a.npy", np.arange(10))
    for _ in range(2):
        with pytest.raises(run.Failed):
            runner, output = plan(tmp_path / "a.npy")
            runner._once(output)
    assert "ftsort.cli.worker" in lines[0][-2] and len({line[-1] for line in lines}) == 2


@pytest.mark.parametrize("place", ["mpirun", "ranks"])
def test_a_job_that_is_too_long_for_the_system_is_a_failure(tmp_path, monkeypatch, place):
    starts = []

    def refuse(*_line, **_options):
        starts.append(1)
        raise OSError(errno.E2BIG, "Argument list too long")

    script = tmp_path / "mpirun"
    script.write_text('#!/bin/sh\ntouch "$0.$$"\necho "Error:    Argument list too long" >&2\nexit 213\n')
    script.chmod(0o755)
    monkeypatch.setenv("MPIRUN", str(script))
    if place == "mpirun":
        monkeypatch.setattr(subprocess, "Popen", refuse)
    np.save(tmp_path / "a.npy", np.zeros(10, [("x", "f8")]))
    runner, output = plan(tmp_path / "a.npy")
    with pytest.raises(run.Failed, match="a.npy: the description of its fields.*ulimit -s") as failed:
        runner.run(output)
    assert failed.value.status == run.FAILED
    assert len(starts) + len(list(tmp_path.glob("mpirun.*"))) == 1


def test_sorts_a_table_with_thousands_of_fields(folder):  # noqa: F811
    dtype = wide(4000)
    rows = np.frombuffer(np.random.default_rng(1).bytes(50 * dtype.itemsize), dtype)
    header = files.npy_header(dtype, len(rows))
    with open("in.npy", "wb") as file:
        file.write(header + rows.tobytes())
    runner, _ = plan("in.npy")
    assert len(worker.encode_job(runner.job, "token")) > 1
    name = dtype.names[0]
    good("sort", "in.npy", "-o", "out.npy", "--key", name, "-n", "2")
    with open("out.npy", "rb") as file:
        found = np.frombuffer(file.read()[len(header):], dtype)
    assert np.array_equal(found, rows[np.argsort(rows[name], kind="stable")])


@pytest.mark.parametrize("count", [0, 1, 80, 81, 1000])
def test_a_report_fits_into_one_read_of_mpirun(monkeypatch, count):
    lines = []
    monkeypatch.setattr(os, "write", lambda _, line: lines.append(line))
    largest = 2**63 - 1
    counts = [[largest - number, largest] for number in range(count)]
    worker.report_part("out", 12345, {"counts": counts, "digest": 2**64 - 1, "wrong": largest})
    assert max(map(len, lines)) < 4096 and len(lines) == max(1, -(-count // 80))
    reports = [line.decode()[len(launch.PREFIX):] for line in lines]
    assert all(json.loads(one)["digest"] == 2**64 - 1 for one in reports)
    runner = run.Runner.__new__(run.Runner)
    for missing in range(len(reports)):
        attempt = run.Attempt()
        for one in reports[:missing] + reports[missing + 1:]:
            runner._take(attempt, one)
        assert attempt.parts == {}
        # Another rank repeats the check, because the first one failed.
        for one in reports[::-1]:
            runner._take(attempt, one)
        assert attempt.parts[("out", 12345)]["counts"] == counts


def test_the_reason_of_an_error_is_that_of_the_rank_that_knows_it():
    """All ranks report an error on which they have agreed, in any order."""
    runner = run.Runner.__new__(run.Runner)
    reports = [dict(event="error", kind="file", message=message, is_own=is_own)
               for message, is_own in (("another rank has the details", False), ("a file is gone", True), ("late", True))]
    for first in ([0, 1, 2], [1, 0, 2], [1, 2, 0]):
        attempt = run.Attempt()
        for number in first:
            runner._take(attempt, json.dumps(reports[number]))
        assert attempt.error == ("file", "a file is gone")


def test_ranks_are_killed_although_the_report_of_one_start_was_lost(monkeypatch):
    events, pids = [], []
    monkeypatch.setattr(launch, "kill_rank", lambda pid: not pids.append(pid))
    runner = run.Runner.__new__(run.Runner)
    runner.ranks, runner.killed, runner.chaos = 4, [], run.Chaos(3, 4, 4, 0)
    runner.display = types.SimpleNamespace(state=types.SimpleNamespace(phase="start"),
                                           event=lambda kind, **fields: events.append((kind, fields)))
    victims = [rank for _, _, rank in runner.chaos.moments]
    attempt = run.Attempt()
    for rank in range(4):
        runner._kill(attempt)
        if rank != victims[0]:
            runner._take(attempt, json.dumps(dict(event="ready", rank=rank, pid=100 + rank, host=socket.gethostname())))
    for phase in ("read", "sort"):
        runner.display.state.phase = "check"
        # The report may be late in the first part of the job, and is lost in the second.
        runner._take(attempt, json.dumps(dict(event="phase", phase=phase)))
        runner._kill(attempt)
        assert bool(pids) == (phase == "sort")
    assert sorted(pids) == sorted(100 + rank for rank in victims[1:]) and runner.killed == victims[1:]
    assert [fields["message"] for kind, fields in events if kind == "note"] == [
        f"--chaos cannot kill rank {victims[0]}: the report of its start was lost"]


@pytest.mark.parametrize("host, ends", [(socket.gethostname(), True), ("elsewhere", False)])
def test_a_job_whose_ranks_have_ended_without_a_report_ends(tmp_path, monkeypatch, host, ends):
    """Every rank crashes, and mpirun does not end. Nothing is known about ranks on other machines."""
    with subprocess.Popen(["true"]) as ended:
        pass
    reports = [json.dumps(dict(event="ready", rank=rank, pid=ended.pid, host=host)) for rank in range(2)]

    class Job:
        other = []
        ended, stop = (lambda _: False), (lambda _: None)

        def __init__(self, *_arguments):
            pass

        def lines(self, _wait):
            return [reports.pop()] if reports else []

    monkeypatch.setattr(launch, "Job", Job)
    monkeypatch.setattr(run, "END_LIMIT", 0.0)
    np.save(tmp_path / "a.npy", np.arange(10))
    runner, output = plan(tmp_path / "a.npy")
    runner.deadline = time.monotonic() + 0.5
    if ends:
        attempt, _ = runner._once(output)
        assert attempt.done is None and len(attempt.ready) == 2
    else:
        with pytest.raises(run.Failed, match="--time-limit"):
            runner._once(output)


@pytest.mark.parametrize("error, kind", [
    (ftsort.MpiError, "mpi"), (ftsort.InternalError, "mpi"), (ftsort.NoUlfm, "ulfm"), (ftsort.LibraryError, "ulfm"),
    (ftsort.MemoryLimit, "memory"), (ftsort.StoreError, "library"),
])
def test_only_errors_of_mpi_lead_to_another_attempt(tmp_path, monkeypatch, error, kind):
    assert worker.kind_of(error("reason")) == kind
    np.save(tmp_path / "a.npy", np.arange(10))
    runner, output = plan(tmp_path / "a.npy")
    starts = []

    def once(_output):
        starts.append(1)
        attempt = run.Attempt()
        attempt.error = (kind, "reason")
        return attempt, ""

    monkeypatch.setattr(runner, "_once", once)
    with pytest.raises((run.Failed, launch.NoMpi), match="reason"):
        runner.run(output)
    assert len(starts) == (3 if kind == "mpi" else 1)


def test_hundreds_of_quantiles(folder):  # noqa: F811
    values = np.random.default_rng(1).permutation(2000)
    np.save("in.npy", values)
    fractions = [f"{number / 500:.3f}" for number in range(501)]
    shown = json.loads(good("quantiles", "in.npy", *fractions, "-n", "4", "--json").splitlines()[-1])["result"]
    expected = np.quantile(values, [float(one) for one in fractions], method="inverted_cdf")
    assert [row["value"] for row in shown] == expected.tolist()
