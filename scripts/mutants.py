#!/usr/bin/env python3
"""Changes the protocol in many small ways, one at a time, and counts the changes that the tests detect.

crates/mutate puts all changes into a copy of the sources: a function returns at once, an operator is another one, a
condition is always true or false, a statement is left out. One build has all of them, and the environment variable
FTSORT_CHANGE switches one on. For each change the tests run until one fails: the unit tests of the changed module, some
tests of the simulator, those of the group, and all quick tests of the simulator. The program prints the share of the
changes that a test detected, and lists the others. --output has a line of JSON for each change; with --resume the
changes that it has are not tried again.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = ROOT / "target" / "mutants"
TREE = TARGET / "tree"
SOURCES = "crates/core/src"
FILES = [
    "engine/*.rs", "engine/redundancy/*.rs", "group/*.rs", "members/*.rs", "rounds/mod.rs", "rounds/hypercube.rs", "store/*.rs",
    "transport/comparison.rs", "transport/protocol/*.rs",
]
# Figures for people: no result depends on them.
EXCLUDED = ["engine/stats.rs"]
ACTIVE = """
#[doc(hidden)]
pub mod changes {
    static ACTIVE: std::sync::LazyLock<usize> =
        std::sync::LazyLock::new(|| std::env::var("FTSORT_CHANGE").map_or(usize::MAX, |text| text.parse().unwrap()));
    pub fn active(number: usize) -> bool {
        *ACTIVE == number
    }
}
"""
# Seconds after which tests count as failed, beyond twice those without a change.
PATIENCE = 10
MEMORY = 12 << 30


def cargo(*words, **options):
    # The changed sources have many needless parentheses.
    environment = {**os.environ, "CARGO_TARGET_DIR": str(TARGET / "build"), "RUSTFLAGS": "-Awarnings"}
    return subprocess.run(["cargo", *words], env=environment, text=True, stdout=subprocess.PIPE, check=False, **options)


def copy_sources():
    """Copies the files of the repository, with the times of those that did not change, so that cargo builds little."""
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout
    for name in filter(None, tracked.split("\0")):
        source, copy = ROOT / name, TREE / name
        if source.is_file() and not name.startswith(SOURCES):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy)
    shutil.rmtree(TREE / SOURCES, ignore_errors=True)
    shutil.copytree(ROOT / SOURCES, TREE / SOURCES)


def files():
    found = {path.relative_to(ROOT / SOURCES).as_posix() for glob in FILES for path in (ROOT / SOURCES).glob(glob)}
    return sorted(name for name in found - set(EXCLUDED) if not name.endswith("tests.rs"))


def put_changes(skipped):
    """Changes the copy; returns the changes."""
    copy_sources()
    (TREE / SOURCES / "lib.rs").write_text((ROOT / SOURCES / "lib.rs").read_text(encoding="utf-8") + ACTIVE, encoding="utf-8")
    done = cargo("run", "-q", "--manifest-path", str(ROOT / "crates/mutate/Cargo.toml"), "--", "--skip",
                 ",".join(map(str, sorted(skipped))), str(TREE / SOURCES), *files())
    if done.returncode != 0:
        sys.exit("mutants: the sources were not changed; the lines above have the reason")
    return json.loads(done.stdout)


def errors(output):
    """Yields the file and the lines of each place that an error of the compiler names."""
    for line in output.splitlines():
        message = json.loads(line).get("message") if line.startswith("{") else None
        if isinstance(message, dict) and message.get("level") == "error":
            for span in message["spans"]:
                yield span["file_name"], span["line_start"], span["line_end"]


def build():
    """Returns the changes that compile, and the test programs by name."""
    skipped = set()
    while True:
        changes = put_changes(skipped)
        done = cargo("test", "--profile", "sim", "--no-run", "--message-format", "json", "-p", "ftsort-core", "-p", "ftsort-sim",
                     "--features", "ftsort-core/testing", "--lib", "--test", "group", "--test", "simulator",
                     cwd=TREE, stderr=subprocess.DEVNULL)
        places = list(errors(done.stdout))
        if done.returncode == 0:
            break
        # The cause is in a line that an error names, or, if it is an assignment that the loop around needs, near it.
        for around in (0, 5):
            refused = {change["number"] for change in changes for name, first, last in places
                       if name.endswith(f"{SOURCES}/{change['file']}") and change["last"] - change["first"] <= around
                       and first - around <= change["first"] and change["last"] <= last + around}
            if refused:
                break
        if not refused:
            sys.exit("mutants: the changed sources do not compile:\n" + "\n".join(map(str, places)))
        print(f"{len(refused)} changes in lines that do not compile are left out", flush=True)
        skipped |= refused
    programs = {}
    for line in done.stdout.splitlines():
        artifact = json.loads(line)
        if artifact.get("executable"):
            target = artifact["target"]
            programs[target["name"] if "test" in target["kind"] else f"{target['name']}/lib"] = artifact["executable"]
    return changes, programs, len(skipped)


def stages(change, programs):
    """Yields the test programs and the parts of the names of the tests that look at a change, fast ones first."""
    core = next(path for name, path in programs.items() if name.startswith("ftsort_core") or name.startswith("ftsort-core"))
    yield core, [change["file"].split("/")[0].removesuffix(".rs") + "::"] if change else []
    yield programs["simulator"], ["random_trials_of_up_to_eight_ranks", "crashes_of_three_ranks_in_every"]
    yield programs["group"], []
    yield programs["simulator"], []


def run(program, filters, number, limit):
    """Runs tests until one fails. Returns the name of the failed test, "limit", or None."""
    environment = {**os.environ, "FTSORT_TESTS": "quick", "RUST_BACKTRACE": "0"}
    environment.pop("FTSORT_CHANGE", None)
    if number is not None:
        environment["FTSORT_CHANGE"] = str(number)
    process = subprocess.Popen([program, "--test-threads", "1", *filters], env=environment, text=True, cwd=TREE / "crates/sim",
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
                               preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)))
    ended = threading.Timer(limit, process.send_signal, [signal.SIGKILL])
    ended.start()
    failed, complete = None, False
    for line in process.stdout:
        if line.rstrip().endswith("FAILED") and line.startswith("test "):
            failed = line.split()[1]
            break
        complete |= line.startswith("test result: ok")
    expired = not ended.is_alive()
    ended.cancel()
    process.kill()
    process.wait()
    if failed or complete:
        return failed
    return "limit" if expired else "crash"


def outcome(change, programs, limits):
    for stage, (program, filters) in enumerate(stages(change, programs)):
        found = run(program, filters, change["number"], limits[stage])
        if found:
            return found
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shard", default="0/16", help="the changes to try: every N-th from the K-th, as K/N")
    parser.add_argument("--only", help="tries the changes of files with this in their names")
    parser.add_argument("--output", type=pathlib.Path, default=TARGET / "outcomes.jsonl")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    changes, programs, refused = build()
    part, parts = map(int, options.shard.split("/"))
    known = []
    if options.resume and options.output.exists():
        known = [json.loads(line) for line in options.output.read_text(encoding="utf-8").splitlines()]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    done = {change["number"] for change in known}
    chosen = [change for change in changes if change["number"] % parts == part and (options.only or "") in change["file"]]
    chosen = [change for change in chosen if change["number"] not in done]
    print(f"{len(changes)} changes compile, {refused} do not; {len(chosen)} are tried", flush=True)

    limits = []
    for program, filters in stages(None, programs):
        start = time.monotonic()
        if failed := run(program, filters, None, 1200):
            sys.exit(f"mutants: {failed} without a change")
        limits.append(2 * (time.monotonic() - start) + PATIENCE)
    print("limits of the stages:", " ".join(f"{limit:.0f} s" for limit in limits), flush=True)

    tried = known
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool, \
            open(options.output, "a" if options.resume else "w", encoding="utf-8") as output:
        pending = {pool.submit(outcome, change, programs, limits): change for change in chosen}
        for future in concurrent.futures.as_completed(pending):
            change = {**pending[future], "test": future.result()}
            tried.append(change)
            print(json.dumps(change), file=output, flush=True)
    missed = [change for change in tried if not change["test"]]
    late = sum(change["test"] == "limit" for change in tried)
    print(f"{len(tried) - len(missed)} of {len(tried)} changes were detected "
          f"({100 * (1 - len(missed) / max(len(tried), 1)):.1f} %), {late} of them by the time limit")
    for change in sorted(missed, key=lambda change: change["number"]):
        print(f"not detected: {change['file']}:{change['first']} {change['function']}: {change['change']}")


if __name__ == "__main__":
    main()
