#!/usr/bin/env python3
"""Sorts a real file on 8 ranks while 4 of them, then 7, then none are killed, and shows the progress.

The file is the largest shared library of the Rust toolchain, read as 32-bit integers: real data, which are skewed and
full of duplicates. The victims are killed with SIGKILL at random moments of the sort. A program that does not use
ftsort checks every output. The exit status is 0 only if all three outputs are right.
"""

import argparse
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import launch

LIMIT = 120
ATTEMPTS = 4
BAR = 20


def default_file():
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True)
    libraries = [path for path in pathlib.Path(sysroot.stdout.strip()).rglob("*.so*") if path.is_file()]
    if not libraries:
        sys.exit("the Rust toolchain has no shared library: name a file with FILE=")
    return max(libraries, key=lambda path: path.stat().st_size)


def whole_records(file, folder):
    """Returns the file, or a copy without the last bytes if they are no whole number."""
    size = file.stat().st_size
    if size % 4 == 0:
        return file
    print(f"(the last {size % 4} bytes are left out: they are no 32-bit number)")
    copy = folder / "input"
    shutil.copyfile(file, copy)
    with open(copy, "r+b") as out:
        out.truncate(size - size % 4)
    return copy


class Progress:
    """The state of one run, from the lines that c_examples/sort_file.c prints."""

    def __init__(self, ranks):
        self.ranks, self.round, self.rounds = ranks, 0, 0
        self.failed, self.executors, self.restored, self.replays, self.ends = [], {}, 0, 0, []
        self.phase = "starting"

    def read(self, line):
        """Takes in a line; returns a message for the log, or None."""
        word, *rest = line.split() or [""]
        if word == "protected":
            return "the input is protected"
        if word == "recovered":
            return "the blocks of failed ranks are recovered"
        if word == "round":
            self.round, self.rounds = int(rest[0]), int(rest[2])
            self.phase = "sorting" if self.round < self.rounds else "writing"
            return f"round {self.round} of {self.rounds} committed"
        if word == "failed":
            self.failed.append(int(rest[0]))
            return f"rank {rest[0]} was killed; {self.ranks - len(self.failed)} of {self.ranks} ranks go on"
        if word == "executor":
            self.executors[int(rest[0])] = int(rest[-1])
            return f"rank {rest[-1]} takes over the part of rank {rest[0]}"
        if word == "restored":
            self.restored += 1
            return f"rank {rest[2]} has restored block {rest[0]} from {' '.join(rest[4:])}"
        if word == "replay":
            self.replays, self.phase, self.rounds = self.replays + 1, "recovering", int(rest[2])
            return f"round {rest[0]} is repeated"
        if word == "finished":
            self.phase = "done"
            fields = dict(zip(rest[1::2], rest[2::2]))
            self.ends.append({name: float(value) for name, value in fields.items()})
            return None
        return line if line.startswith("rank ") else None

    def seconds(self):
        return max((end["seconds"] for end in self.ends), default=0)

    def peak(self):
        return max((end["peak"] for end in self.ends), default=0)


class PlainView:
    """Prints one line for each event: for a file or a pipe."""

    def __init__(self, progress, written, total):
        self.progress, self.written, self.total = progress, written, total
        self.start = time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.log(f"{self.written() / 1e6:.0f} of {self.total / 1e6:.0f} MB written")

    def log(self, message):
        print(f"    {time.monotonic() - self.start:6.2f} s  {message}", flush=True)

    def event(self, line):
        message = self.progress.read(line)
        if message:
            self.log(message)


class TerminalView(PlainView):
    """Keeps a status line below the messages, and draws it again ten times a second."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.over, self.lock = threading.Event(), threading.Lock()
        self.painter = threading.Thread(target=self.paint, daemon=True)

    def __enter__(self):
        self.painter.start()
        return self

    def __exit__(self, *error):
        self.over.set()
        self.painter.join()
        print("\r\x1b[K", end="")
        super().__exit__(*error)

    def paint(self):
        while not self.over.wait(0.1):
            with self.lock:
                print(f"\r\x1b[K{self.status()}", end="", flush=True)

    def status(self):
        """Returns the status line: a bar of rounds, bytes, and a mark for each rank."""
        state = self.progress
        done = BAR * state.round // state.rounds if state.rounds else 0
        text = (f"    {time.monotonic() - self.start:6.2f} s  [{'#' * done}{'.' * (BAR - done)}] "
                f"round {state.round}/{state.rounds or '?'}  {self.written() / 1e6:.0f}/{self.total / 1e6:.0f} MB written  {state.phase}")
        alive = f"  alive {state.ranks - len(state.failed)}/{state.ranks} "
        marks = "".join("x" if rank in state.failed else "o" for rank in range(state.ranks))
        room = shutil.get_terminal_size().columns - 1
        if len(text + alive + marks) > room:
            return (text + alive)[:room]
        return text + alive + marks.replace("x", "\x1b[31mx\x1b[0m").replace("o", "\x1b[32mo\x1b[0m")

    def log(self, message):
        colour = {"was killed": "31", "takes over": "33", "has restored": "32", "is repeated": "33"}
        code = next((code for words, code in colour.items() if words in message), "0")
        with self.lock:
            seconds = time.monotonic() - self.start
            print(f"\r\x1b[K    {seconds:6.2f} s  \x1b[{code}m{message}\x1b[0m", flush=True)


class Demo:
    def __init__(self, file, ranks, folder):
        self.ranks, self.folder = ranks, folder
        self.sorter = launch.build_c(launch.ROOT / "c_examples/sort_file.c", folder)
        self.checker = launch.build_checker(folder)
        self.input = whole_records(file, folder)
        self.output = folder / "sorted"

    def written(self):
        """Returns the bytes of the output that have been written so far."""
        for path in (self.output, self.output.with_name(self.output.name + ".part")):
            try:
                status = path.stat()
            except OSError:
                continue
            return min(status.st_blocks * 512, self.input.stat().st_size)
        return 0

    def sort(self, faults, quiet=False):
        """Runs one sort; returns its progress and the verdict: "right" or an explanation."""
        self.output.unlink(missing_ok=True)
        versions = self.folder / "versions"
        shutil.rmtree(versions, ignore_errors=True)
        versions.mkdir()
        store = ["--store", "directory", "--directory", versions]
        command = [self.sorter, "--type", "i32", "--progress", *store, self.input, self.output]
        progress = Progress(self.ranks)
        if quiet:
            run = launch.launch(self.ranks, command, LIMIT, faults)
            for line in run.output.splitlines():
                progress.read(line)
        else:
            view = TerminalView if sys.stdout.isatty() else PlainView
            with view(progress, self.written, self.input.stat().st_size) as shown:
                run = launch.launch(self.ranks, command, LIMIT, faults, shown.event)
        if run.hung:
            return progress, f"not finished after {LIMIT} s"
        if not self.output.exists():
            return progress, "no output\n" + run.output[-2000:]
        return progress, launch.verdict_of([self.checker, "i32", self.input, self.output])

    def kill(self, victims, window):
        """Runs a sort in which `victims` ranks are killed; repeats it if some kills came after the sort."""
        for attempt in range(ATTEMPTS):
            chosen = random.sample(range(self.ranks), victims)
            faults = " ".join(f"{rank}@{random.uniform(0, window) * 1e3:.1f}ms" for rank in chosen)
            if faults:
                print(f"    FTSORT_FAULTS=\"{faults}\"")
            progress, verdict = self.sort(faults)
            if verdict != "right" or len(progress.failed) == victims:
                break
            print(f"    only {len(progress.failed)} of {victims} ranks were killed before the sort had finished"
                  + (": again, with earlier kills" if attempt + 1 < ATTEMPTS else ""))
            window *= 0.6
        return progress, verdict

    def row(self, title, progress, verdict):
        seconds = progress.seconds()
        speed = self.input.stat().st_size / 1e6 / seconds if seconds else 0
        return (f"{title:<14} {self.ranks:>5} {len(progress.failed):>8} {seconds:>8.2f} {speed:>8.0f} "
                f"{progress.replays:>8} {progress.peak() / 2**20:>8.0f}  {verdict}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=pathlib.Path, help="another file to sort, as 32-bit integers")
    parser.add_argument("--ranks", type=int, default=8)
    options = parser.parse_args()
    file = options.file or default_file()
    if not file.is_file():
        sys.exit(f"{file} is no file")
    with tempfile.TemporaryDirectory(prefix="ftsort-demo-") as folder:
        demo = Demo(file, options.ranks, pathlib.Path(folder))
        print(f"{file}: {file.stat().st_size / 1e6:.0f} MB, as 32-bit integers, on {options.ranks} ranks")
        # The time of an undisturbed sort on this machine: the kills must fall into it.
        progress, verdict = demo.sort("none", quiet=True)
        window = 0.7 * (progress.seconds() or 1)
        rows = []
        for victims in (options.ranks // 2, options.ranks - 1, 0):
            print(f"\nSort in which {victims} of {options.ranks} ranks are killed", flush=True)
            progress, verdict = demo.kill(victims, window)
            print(f"    output compared with an independent sort: {verdict}", flush=True)
            if verdict == "right" and len(progress.failed) != victims:
                verdict = f"right, but only {len(progress.failed)} ranks were killed"
            rows.append((verdict == "right", demo.row(f"{victims} killed", progress, verdict)))
    print(f"\n{'':<14} ranks failures  seconds     MB/s repeated MiB/rank  output")
    for _, row in rows:
        print(row)
    sys.exit(0 if all(right for right, _ in rows) else 1)


if __name__ == "__main__":
    main()
