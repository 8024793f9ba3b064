#!/usr/bin/env python3
"""Sorts a real file on 8 ranks while half of them, then all but one, then none are killed.

The file is the largest shared library of the Rust toolchain, read as 32-bit integers: nobody made it
for this purpose, and it is skewed and full of duplicates. Victims die by SIGKILL at random moments
of the sort. Every output is checked by a program that does not use ftsort. Exit status 0 only if all
three runs were right.
"""

import argparse
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

import launch

LIMIT = 120
ATTEMPTS = 4


def default_file():
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True)
    libraries = [path for path in pathlib.Path(sysroot.stdout.strip()).rglob("*.so*") if path.is_file()]
    if not libraries:
        sys.exit("the Rust toolchain has no shared library: name a file with FILE=")
    return max(libraries, key=lambda path: path.stat().st_size)


def whole_records(file, folder):
    """The file, or a copy without the last bytes that make no whole number."""
    size = file.stat().st_size
    if size % 4 == 0:
        return file
    print(f"(the last {size % 4} bytes are left out: they make no 32-bit number)")
    copy = folder / "input"
    shutil.copyfile(file, copy)
    with open(copy, "r+b") as out:
        out.truncate(size - size % 4)
    return copy


class Story:
    """What a run tells, as it happens."""

    def __init__(self):
        self.dead, self.replays, self.finished = [], 0, []

    def hear(self, line):
        word, *rest = line.split() or [""]
        if word == "round":
            number, _, rounds = rest
            bar = "#" * int(number) + "." * (int(rounds) - int(number))
            print(f"    round {number} of {rounds} committed  [{bar}]", flush=True)
        elif word == "died":
            self.dead.append(int(rest[0]))
            print(f"    rank {rest[0]} is dead", flush=True)
        elif word == "covered":
            print(f"    node {rest[0]} is covered by rank {rest[2]}", flush=True)
        elif word == "restored":
            print(f"    node {rest[0]}: rank {rest[2]} has its block again, from {' '.join(rest[4:])}", flush=True)
        elif word == "replay":
            self.replays += 1
            print(f"    round {rest[0]} starts again", flush=True)
        elif word == "finished":
            fields = dict(zip(rest[1::2], rest[2::2]))
            self.finished.append({name: float(value) for name, value in fields.items()})
        elif line.startswith("rank "):
            print(f"    {line}", flush=True)


class Demo:
    def __init__(self, file, ranks, folder):
        self.file, self.ranks, self.folder = file, ranks, folder
        self.sorter = launch.build_c(launch.ROOT / "c_examples/sort_file.c", folder)
        self.checker = folder / "check_sorted"
        subprocess.run(["cc", "-O2", str(launch.ROOT / "scripts/check_sorted.c"), "-o", str(self.checker)], check=True)
        self.input = whole_records(file, folder)

    def sort(self, faults, quiet=False):
        """One run: (what it told, the run, right or why not)."""
        output = self.folder / "sorted"
        output.unlink(missing_ok=True)
        story = Story()
        versions = self.folder / "versions"
        shutil.rmtree(versions, ignore_errors=True)
        versions.mkdir()
        store = ["--store", "directory", "--directory", versions]
        command = [self.sorter, "--type", "i32", "--progress", *store, self.input, output]
        run = launch.launch(self.ranks, command, LIMIT, faults, (lambda line: story.hear(line)) if not quiet else None)
        if quiet:
            for line in run.output.splitlines():
                if line.startswith("finished"):
                    story.hear(line)
        if run.hung:
            return story, run, f"not over after {LIMIT} s"
        if not output.exists():
            return story, run, "no output\n" + run.output[-2000:]
        checked = subprocess.run([self.checker, "i32", self.input, output], capture_output=True, text=True)
        return story, run, "right" if checked.returncode == 0 else checked.stdout.strip()

    def kill(self, victims, window):
        """A run in which so many ranks die; with other moments if some of them came too late."""
        for attempt in range(ATTEMPTS):
            chosen = random.sample(range(self.ranks), victims)
            faults = " ".join(f"{rank}@{random.uniform(0, window) * 1e3:.1f}ms" for rank in chosen)
            print(f"    (FTSORT_FAULTS=\"{faults}\")")
            story, run, verdict = self.sort(faults)
            if verdict != "right" or len(story.dead) == victims:
                break
            print(f"    only {len(story.dead)} of {victims} died before the sort was over: again, with earlier deaths")
            window *= 0.6
        return story, verdict

    def row(self, title, story, verdict):
        seconds = max((end["seconds"] for end in story.finished), default=0)
        peak = max((end["peak"] for end in story.finished), default=0)
        megabytes = self.input.stat().st_size / 1e6
        speed = megabytes / seconds if seconds else 0
        return (f"{title:<14} {self.ranks:>5} {len(story.dead):>6} {seconds:>8.2f} {speed:>8.0f} "
                f"{story.replays:>8} {peak / 2**20:>8.0f}  {verdict}")


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
        # How long does a sort take here? Deaths are to strike within it.
        story, _, verdict = demo.sort("none", quiet=True)
        window = 0.7 * max((end["seconds"] for end in story.finished), default=1)
        rows = []
        for victims in (options.ranks // 2, options.ranks - 1, 0):
            print(f"\n{victims} of {options.ranks} ranks are killed")
            story, verdict = demo.kill(victims, window)
            print(f"    output: {verdict}")
            if verdict == "right" and len(story.dead) != victims:
                verdict = f"right, but only {len(story.dead)} died"
            rows.append((verdict == "right", demo.row(f"{victims} killed", story, verdict)))
    print(f"\n{'':<14} ranks faults  seconds     MB/s replayed MiB/rank")
    for _, row in rows:
        print(row)
    sys.exit(0 if all(right for right, _ in rows) else 1)


if __name__ == "__main__":
    main()
