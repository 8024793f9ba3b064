#!/usr/bin/env python3
"""Compares external sorts of records of the Sort Benchmark, by turns, with the same limit of memory.

  roofline  reads and writes as many bytes as a sort with two passes: the source twice, and two outputs, on all cores
  ftsort    c_examples/external.c on some ranks, each with an equal part of the memory
  killed    the same, and one rank is killed at a random instant
  sort      GNU sort on the same file, as lines of text with the key in the first ten bytes
  duckdb    ORDER BY key of the same records in a Parquet file, into another one
  polars    the same by a lazy sort; Polars has no limit of memory

The file has printable records (`gensort -a`) if --gensort names that program of the Sort Benchmark, and valsort checks the
outputs and their checksums; otherwise random printable records, which scripts/check_records.c checks. DuckDB and Polars are
measured if --python names an interpreter that has them, with pyarrow.

Each figure is the median of the turns: seconds, and the peak memory of all processes of a program, as the kernel counts it
(VmHWM). The caches of the system are dropped before each turn, if the script may do that.

--phases FILE writes a table of the bytes that each rank had read and written over time, in the last turns of ftsort and killed;
then the rank is killed after 60 % of the time.
"""

import argparse
import concurrent.futures
import contextlib
import math
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import launch
import outside
import tables

RECORD, PIECE = 100, 8 << 20

# The most rows of a rank in the table of phases.
SAMPLES = 150
LETTERS = bytes(range(32, 127))

PARQUET = """
import sys, pyarrow as pa, pyarrow.parquet as pq
schema = pa.schema([("key", pa.binary(10)), ("rest", pa.binary(90))])
with open(sys.argv[1], "rb") as file, pq.ParquetWriter(sys.argv[2], schema, compression="none") as writer:
    while data := file.read(100 << 18):
        rows = [data[at:at + 100] for at in range(0, len(data), 100)]
        key = pa.array([row[:10] for row in rows], pa.binary(10))
        writer.write_table(pa.table([key, pa.array([row[10:] for row in rows], pa.binary(90))], schema))
"""
DUCKDB = """
import sys, duckdb
source, output, scratch, memory, threads = sys.argv[1:]
run = duckdb.connect().execute
run(f"SET memory_limit='{memory}MiB'; SET threads={threads}; SET temp_directory='{scratch}'")
run("SET preserve_insertion_order=false")
run(f"COPY (SELECT * FROM '{source}' ORDER BY key) TO '{output}' (FORMAT parquet, COMPRESSION uncompressed)")
"""
POLARS = """
import sys, polars
polars.scan_parquet(sys.argv[1]).sort("key").sink_parquet(sys.argv[2], compression="uncompressed")
"""


def numbers_of(pid, file):
    """Returns the numbers of a file of /proc by name."""
    lines = pathlib.Path("/proc", str(pid), file).read_text().splitlines()
    words = [line.split() for line in lines]
    return {line[0].rstrip(":"): int(line[1]) for line in words if len(line) > 1 and line[1].isdigit()}


class Usage(threading.Thread):
    """Observes the memory and the bytes read and written of the processes below this one while a program runs."""

    def __init__(self):
        super().__init__(daemon=True)
        self.peaks, self.bytes, self.over = {}, {}, threading.Event()

    def run(self):
        while not self.over.wait(0.05):
            for pid in launch.descendants(os.getpid())[1:]:
                with contextlib.suppress(OSError, KeyError):
                    self.peaks[pid] = numbers_of(pid, "status")["VmHWM"] / 1024
                    moved = numbers_of(pid, "io")
                    self.bytes.setdefault(pid, []).append((time.monotonic(), moved["rchar"], moved["wchar"]))

    def end(self):
        """Returns the sum in MiB."""
        self.over.set()
        self.join()
        return sum(self.peaks.values())

    def phases(self, sender):
        """Returns (rank, seconds, MB read, MB written) after the start of a run."""
        rows = []
        for rank, pid in enumerate(sender.pids):
            samples = self.bytes.get(pid, [])
            before = max((sample for sample in samples if sample[0] < sender.start), default=samples[0] if samples else None)
            during = [sample for sample in samples if sample[0] >= sender.start]
            for instant, read, written in during[:: 1 + len(during) // SAMPLES]:
                rows.append((rank, instant - sender.start, (read - before[1]) / 1e6, (written - before[2]) / 1e6))
        return rows


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, pathlib.Path(folder)
        self.input, self.output, self.scratch = (self.folder / name for name in ("input", "output", "scratch"))
        self.program = launch.build_c(launch.ROOT / "tests/c/external_killed.c", folder)
        self.checker = launch.build_checker(folder, "check_records")
        self.ftsort_seconds, self.sender, self.phases = None, None, {}
        records = options.mb * 1_000_000 // RECORD
        if options.gensort:
            command = [options.gensort, "-c", "-a", str(records), self.input]
            self.checksum = subprocess.run(command, check=True, stderr=subprocess.PIPE, text=True).stderr.strip()
        else:
            draw = random.Random(1)
            with open(self.input, "wb") as file:
                for _ in range(records):
                    file.write(bytes(draw.choices(LETTERS, k=RECORD - 1)) + b"\n")
        self.parquet = self.folder / "input.parquet"
        if options.python:
            subprocess.run([options.python, "-c", PARQUET, self.input, self.parquet], check=True)

    def roofline(self):
        pieces = range(0, self.input.stat().st_size, PIECE)

        def copy(name):
            with open(self.input, "rb") as source, open(self.scratch / name, "wb") as target:
                def move(at):
                    os.pwrite(target.fileno(), os.pread(source.fileno(), PIECE, at), at)
                with concurrent.futures.ThreadPoolExecutor(2) as threads:
                    list(threads.map(move, pieces))
        copy("first")
        copy("second")

    def ftsort(self, plan=()):
        memory = self.options.memory // self.options.ranks
        command = [self.program, "--memory", memory, "--scratch", self.scratch, self.input, self.output]
        done, self.sender = outside.run(self.options.ranks, command, self.options.limit, list(plan))
        times = [float(line.split(" in ")[1].split()[0]) - 0.3 for line in done.output.splitlines() if " records in " in line]
        if not times:
            sys.exit(done.output)
        return max(times)

    def killed(self):
        # The picture of the phases has a kill during the batches.
        share = 0.6 if self.options.phases else random.random()
        instant = share * (self.ftsort_seconds or 1)
        return self.ftsort([(instant, self.options.ranks - 1, signal.SIGKILL)])

    def sort(self):
        subprocess.run(["sort", "-S", f"{self.options.memory}M", f"--parallel={os.cpu_count()}", "-T", self.scratch, "-k1.1,1.10",
                        "-o", self.output, self.input], env={**os.environ, "LC_ALL": "C"}, check=True)

    def duckdb(self):
        subprocess.run([self.options.python, "-c", DUCKDB, self.parquet, self.output, self.scratch,
                        str(self.options.memory), str(os.cpu_count())], check=True)

    def polars(self):
        subprocess.run([self.options.python, "-c", POLARS, self.parquet, self.output], check=True)

    def check(self, name):
        """Returns whether the output of a program is right."""
        if name not in ("ftsort", "killed", "sort"):
            return "not checked"
        if self.options.gensort:
            valsort = pathlib.Path(self.options.gensort).with_name("valsort")
            found = subprocess.run([valsort, self.output], stderr=subprocess.PIPE, text=True)
            right = found.returncode == 0 and f"Checksum: {self.checksum}\n" in found.stderr
            return "right" if right else f"wrong:\n{found.stderr}"
        return launch.verdict_of([self.checker, RECORD, 10, self.input, self.output])

    def turn(self, name):
        """Returns the seconds and the memory of one turn; no number of seconds if the program fails."""
        self.scratch.mkdir()
        os.sync()
        with contextlib.suppress(OSError):
            pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
        usage = Usage()
        usage.start()
        start = time.monotonic()
        try:
            seconds = getattr(self, name)() or time.monotonic() - start
        except subprocess.CalledProcessError:
            seconds = math.nan
        memory, verdict = usage.end(), "not checked" if math.isnan(seconds) else self.check(name)
        if verdict not in ("right", "not checked"):
            sys.exit(f"the output of {name} is {verdict}")
        if name in ("ftsort", "killed"):
            self.phases[name] = usage.phases(self.sender)
        shutil.rmtree(self.scratch)
        self.output.unlink(missing_ok=True)
        return seconds, memory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=3000, help="the size of the file in 10^6 bytes")
    parser.add_argument("--memory", type=int, default=300, help="the memory of each program in MiB")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--limit", type=float, default=600, help="seconds after which a run counts as hung")
    parser.add_argument("--gensort", help="the program gensort, beside valsort")
    parser.add_argument("--python", help="an interpreter with duckdb, polars and pyarrow")
    parser.add_argument("--programs", default="roofline,ftsort,killed,sort,duckdb,polars")
    parser.add_argument("--phases", type=pathlib.Path, help="write the bytes over time into this table")
    parser.add_argument("--folder", help="the folder for all files, of five times the size of the file")
    options = parser.parse_args()
    names = [name for name in options.programs.split(",") if options.python or name not in ("duckdb", "polars")]
    with tempfile.TemporaryDirectory(prefix="ftsort-external-", dir=options.folder) as folder:
        bench, found = Bench(options, folder), {name: [] for name in names}
        for _ in range(options.turns):
            for name in names:
                found[name].append(bench.turn(name))
                if name == "ftsort":
                    bench.ftsort_seconds = found[name][-1][0]
                print(f"{name}: {found[name][-1][0]:.2f} s, {found[name][-1][1]:.0f} MiB", file=sys.stderr, flush=True)
        if options.phases:
            rows = [{"program": name, "rank": rank, "seconds": f"{seconds:.2f}", "read_mb": f"{read:.0f}",
                     "written_mb": f"{written:.0f}"}
                    for name, phases in bench.phases.items() for rank, seconds, read, written in phases]
            command = f"scripts/bench_external.py --mb {options.mb} --memory {options.memory} --ranks {options.ranks}"
            tables.write(options.phases, rows, f"Made by: {command} --phases ...")
        own = statistics.median(seconds for seconds, _ in found["ftsort"]) if "ftsort" in found else 1
        rows = []
        for name, turns in found.items():
            seconds = statistics.median(seconds for seconds, _ in turns)
            memory = statistics.median(memory for _, memory in turns)
            rows.append([name, f"{seconds:.2f}", f"{seconds / own:.2f}", f"{memory:.0f}"])
        print(tables.markdown(["program", "seconds", "of ftsort", "peak memory in MiB"], rows))


if __name__ == "__main__":
    main()
