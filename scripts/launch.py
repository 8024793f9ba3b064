"""Builds C programs against the library and runs them under mpirun with a time limit.

The other scripts use this module. It finds everything through the environment: MPICC and MPIRUN (default: from
PATH), CARGO_TARGET_DIR (default: target).
"""

import math
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import queues
import settings

ROOT = pathlib.Path(__file__).resolve().parent.parent

# mpirun itself aborts after ten SIGPIPEs, so it is started with that signal blocked.
LAUNCH = [
    "env", "--block-signal=PIPE",
    os.environ.get("MPIRUN", "mpirun"), "--with-ft", "ulfm", "--oversubscribe", *settings.mca_arguments(),
]
# The message of an mpirun that gives up before it has started any rank (about once in a thousand runs).
NOT_STARTED = "PMIx server's listener thread failed to start"
# The seconds after which an mpirun without ranks is ended: it does not always end after its ranks.
PATIENCE = 5
# The values of ftsort_algorithm.
ALGORITHMS = {"auto": 0, "hyperquicksort": 1, "quickmerge": 2, "quickmerge_modified": 3, "bitonic": 4}
C_FLAGS = ["-std=c99", "-D_XOPEN_SOURCE=700", "-D_FILE_OFFSET_BITS=64", "-O2",
           "-Wall", "-Wextra", "-Wpedantic", "-Werror"]

# SIGTERM ends a script by an exception, as Ctrl-C does, so that `launch` ends the ranks too.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def target_dir():
    """Returns the folder of cargo's build output."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return target if target.is_absolute() else ROOT / target


def simulator():
    """Returns the path of ftsort-papers."""
    return target_dir() / "release" / "ftsort-papers"


def library_dir(profile="release"):
    """Returns the folder of libftsort.so, and makes the link there with the name that the loader asks for."""
    library = target_dir() / ("debug" if profile == "dev" else profile) / "libftsort.so"
    if not library.exists():
        sys.exit(f"{library} does not exist: run `make build` first")
    dynamic = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True)
    soname = next(line for line in dynamic.stdout.splitlines() if "SONAME" in line)
    soname = soname[soname.index("[") + 1 : soname.index("]")]
    link = library.with_name(soname)
    if not link.is_symlink():
        temporary = link.with_name(f"{soname}.{os.getpid()}")
        temporary.symlink_to(library.name)
        temporary.replace(link)
    return library.parent


def build_c(source, out_dir, profile="release"):
    """Compiles a C program against the library, and returns its path."""
    libraries = library_dir(profile)
    program = pathlib.Path(out_dir) / pathlib.Path(source).stem
    subprocess.run(
        [os.environ.get("MPICC", "mpicc"), *C_FLAGS, f"-I{ROOT / 'include'}", str(source), "-o", str(program),
         f"-L{libraries}", "-lftsort", "-lm", f"-Wl,-rpath,{libraries}"],
        check=True,
    )
    return program


def build_checker(folder, name="check_sorted"):
    """Compiles scripts/NAME.c, which checks an output without ftsort, and returns its path."""
    program = pathlib.Path(folder) / name
    subprocess.run(["cc", "-O2", str(ROOT / f"scripts/{name}.c"), "-o", str(program)], check=True)
    return program


def verdict_of(checker):
    """Runs a command that checks an output; returns "right" or the checker's message."""
    done = subprocess.run(list(map(str, checker)), capture_output=True, text=True)
    return "right" if done.returncode == 0 else done.stdout.strip()


class Run:
    """The result of a run: exit code, output, seconds, and whether it was ended at the time limit (`hung`).

    `stacks`: the call stacks of a hung run, if gdb is installed, and the reason if its queues were not examined.
    `cut`: the ranks of a hung run that have broken queues in shared memory (see queues.py).
    """

    def __init__(self, code, output, seconds, hung, stacks, cut):
        self.code, self.output, self.seconds, self.hung = code, output, seconds, hung
        self.stacks, self.cut = stacks, cut


def descendants(pid):
    """Returns a process and all processes below it."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = pathlib.Path("/proc", entry, "stat").read_text()
                parent = int(stat[stat.rindex(")") + 2 :].split()[1])
                children.setdefault(parent, []).append(int(entry))
            except (OSError, ValueError):
                pass  # The process has just ended.
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo += children.get(found[-1], [])
    return found


def is_running(pid):
    """Tells whether a process exists and has not ended."""
    try:
        stat = pathlib.Path("/proc", str(pid), "stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] != "Z"


def ranks_of(pid, program):
    """Yields the processes below `pid` that run `program`."""
    for member in descendants(pid):
        try:
            command = pathlib.Path("/proc", str(member), "cmdline").read_text().split("\0")[0]
        except OSError:
            continue
        if command == str(program):
            yield member


def stacks_of(pid, program):
    """Returns the call stacks of the processes below `pid` that run `program`, as text."""
    if shutil.which("gdb") is None:
        return ""
    stacks = ""
    for member in ranks_of(pid, program):
        ask = ["gdb", "-p", str(member), "-batch", "-ex", "thread apply all backtrace 40"]
        stacks += f"process {member}\n" + subprocess.run(ask, capture_output=True, text=True).stdout
    return stacks


def broken_queues(pid, program):
    """Returns the ranks with a broken queue, and a message if the queues cannot be examined.

    Without a trusted layout no rank is named, so that the run counts as a hang, which is a failure.
    """
    try:
        return queues.broken_queues(list(ranks_of(pid, program))), ""
    except queues.LayoutUnknown as reason:
        message = (f"launch.py: cannot examine the message queues of this Open MPI: {reason}. "
                   "The run counts as a hang. Adapt scripts/queues.py to this version.")
        print(message, file=sys.stderr, flush=True)
        return [], message + "\n"


def end(pid):
    """Ends a process that this program started, and all processes below it."""
    for member in descendants(pid):
        try:
            os.kill(member, signal.SIGKILL)
        except ProcessLookupError:
            pass


def launch(ranks, command, limit, faults=None, on_line=None, extra=()):
    """Runs a command on `ranks` ranks for at most `limit` seconds without those in which the machine is suspended; returns
    a Run.

    `faults`: the value of FTSORT_FAULTS. `on_line`: is called with each line of output as it arrives.
    `extra`: further arguments of mpirun.
    """
    TRIES = 3
    for _ in range(TRIES):
        run = launch_once(ranks, command, limit, faults, on_line, extra)
        if NOT_STARTED not in run.output:
            break
    return run


def launch_once(ranks, command, limit, faults, on_line, extra):
    """Does the same as `launch`, but mpirun may fail before it has started a rank."""
    environment = dict(os.environ)
    environment.pop("FTSORT_FAULTS", None)
    if faults is not None:
        environment["FTSORT_FAULTS"] = faults
    line = [*LAUNCH, *extra, "-np", str(ranks), *map(str, command)]
    start = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            line, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if on_line else output, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True,
        )
        over, hung, stacks, cut = threading.Event(), threading.Event(), [], []

        def end_hung_run():
            hung.set()
            ranks_with_broken_queues, message = broken_queues(process.pid, command[0])
            cut.extend(ranks_with_broken_queues)
            stacks.append(message + stacks_of(process.pid, command[0]))
            end(process.pid)

        def watch():
            living, has_started, idle = [], False, 0
            # A virtual machine may be suspended for minutes, which does not count.
            for _ in range(math.ceil(limit)):
                if over.wait(1):
                    return
                # The processes are searched again only if none of those that were found is left.
                living = list(filter(is_running, living)) or list(filter(is_running, descendants(process.pid)[1:]))
                has_started = has_started or bool(living)
                idle = 0 if living else idle + 1
                if has_started and idle >= PATIENCE:
                    # The outcome is the output of the ranks: the exit code of this mpirun says nothing.
                    return end(process.pid)
            end_hung_run()

        threading.Thread(target=watch, daemon=True).start()
        try:
            if on_line:
                for text in process.stdout:
                    output.write(text)
                    on_line(text.rstrip("\n"))
            code = process.wait()
        except BaseException:
            end(process.pid)
            raise
        finally:
            over.set()
        output.flush()
        output.seek(0)
        return Run(code, output.read(), time.monotonic() - start, hung.is_set(), "".join(stacks), cut)


def shown(ranks, command, faults):
    """Returns the command line that repeats a run."""
    return shlex.join([f"FTSORT_FAULTS={faults}", *LAUNCH, "-np", str(ranks), *map(str, command)])
