"""Builds C programs against the library and runs them under mpirun, with a time limit that holds.

Used by the other scripts. Everything is found through the environment: MPICC and MPIRUN (default:
from PATH), CARGO_TARGET_DIR (default: target).
"""

import contextlib
import os
import pathlib
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

# What survivors need of Open MPI; README.md has the reasons. mpirun itself aborts after ten
# SIGPIPEs, so it is started with that signal blocked.
LAUNCH = [
    "env", "--block-signal=PIPE",
    os.environ.get("MPIRUN", "mpirun"), "--with-ft", "ulfm", "--oversubscribe",
    "--mca", "async_mpi_finalize", "1",
    "--mca", "btl_sm_free_list_max", "-1",
    "--mca", "btl_tcp_flags", "send,inplace",
    "--mca", "coll_ftagree_era_topology", "3",
]
# What mpirun says, once in a thousand times, when it gives up before it has started any rank.
NOT_STARTED = "PMIx server's listener thread failed to start"
C_FLAGS = ["-std=c99", "-D_XOPEN_SOURCE=700", "-D_FILE_OFFSET_BITS=64", "-O2",
           "-Wall", "-Wextra", "-Wpedantic", "-Werror"]

# Whoever ends a script ends its ranks with it, as Ctrl-C does: by an exception, which `launch` and others see.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def library_dir(profile="release"):
    """A folder with libftsort.so and the name that programs ask the loader for."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    if not target.is_absolute():
        target = ROOT / target
    library = target / profile / "libftsort.so"
    if not library.exists():
        sys.exit(f"{library} is not there: run `make build` first")
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
    """Compiles a C program against the library; returns its path."""
    libraries = library_dir(profile)
    program = pathlib.Path(out_dir) / pathlib.Path(source).stem
    subprocess.run(
        [os.environ.get("MPICC", "mpicc"), *C_FLAGS, f"-I{ROOT / 'include'}", str(source), "-o", str(program),
         f"-L{libraries}", "-lftsort", "-lm", f"-Wl,-rpath,{libraries}"],
        check=True,
    )
    return program


class Run:
    """What came of a program: its output, its time, and whether it had to be ended. `stacks`: where
    its processes were then, if there is a gdb to ask. `cut`: see cut_queues."""

    def __init__(self, code, output, seconds, hung, stacks, cut):
        self.code, self.output, self.seconds, self.hung = code, output, seconds, hung
        self.stacks, self.cut = stacks, cut


def descendants(pid):
    """The process and all below it."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = pathlib.Path("/proc", entry, "stat").read_text()
                parent = int(stat[stat.rindex(")") + 2 :].split()[1])
                children.setdefault(parent, []).append(int(entry))
            except (OSError, ValueError):
                pass  # It has just ended.
    found, todo = [], [pid]
    while todo:
        found.append(todo.pop())
        todo += children.get(found[-1], [])
    return found


def ranks_of(pid, program):
    """The processes below `pid` that run `program`."""
    for member in descendants(pid):
        try:
            command = pathlib.Path("/proc", str(member), "cmdline").read_text().split("\0")[0]
        except OSError:
            continue
        if command == str(program):
            yield member


def stacks_of(pid, program):
    """The call stacks of the processes below `pid` that run `program`."""
    if shutil.which("gdb") is None:
        return ""
    stacks = ""
    for member in ranks_of(pid, program):
        ask = ["gdb", "-p", str(member), "-batch", "-ex", "thread apply all backtrace 40"]
        stacks += f"process {member}\n" + subprocess.run(ask, capture_output=True, text=True).stdout
    return stacks


def queue_of(member):
    """The rank of a process, and the first and the last entry of its queue in Open MPI's shared memory.

    The queue is at the beginning of the process's own segment (Open MPI 5: opal/mca/btl/sm).
    """
    environment = pathlib.Path("/proc", str(member), "environ").read_text().split("\0")
    rank = next(word.split("=")[1] for word in environment if word.startswith("OMPI_COMM_WORLD_RANK="))
    for line in pathlib.Path("/proc", str(member), "maps").read_text().splitlines():
        words = line.split()
        if len(words) > 5 and "/sm_segment." in words[5] and words[5].endswith(f".{rank}"):
            with open(f"/proc/{member}/mem", "rb") as memory:
                memory.seek(int(words[0].split("-")[0], 16))
                return int(rank), struct.unpack("=qq", memory.read(16))
    return int(rank), None


def cut_queues(pid, program):
    """The ranks whose queue in Open MPI's shared memory is cut: it has a last entry, but no first.

    Whoever puts a message into the queue of another rank makes it the last entry, and then links it to the
    entry before, or makes it the first (sm_fifo_write). If it is killed in between, the owner finds nothing
    that comes into this queue any more, and waits for ever, whatever library it is in.
    """
    FREE = -2
    looks = []
    for _ in range(2):
        looks.append(set())
        for member in ranks_of(pid, program):
            with contextlib.suppress(OSError, StopIteration):
                rank, queue = queue_of(member)
                if queue and queue[0] == FREE != queue[1]:
                    looks[-1].add((rank, queue))
        # In a living queue this lasts for some nanoseconds.
        time.sleep(1)
    return sorted(rank for rank, _ in looks[0] & looks[1])


def end(pid):
    """Ends a process that we started, and what it started."""
    for member in descendants(pid):
        try:
            os.kill(member, signal.SIGKILL)
        except ProcessLookupError:
            pass


def launch(ranks, command, limit, faults=None, on_line=None, extra=()):
    """Runs a command on so many ranks, for at most `limit` seconds.

    `faults`: the schedule, for FTSORT_FAULTS. `on_line` is told each line of output as it comes.
    """
    TRIES = 3
    for _ in range(TRIES):
        run = launch_once(ranks, command, limit, faults, on_line, extra)
        if NOT_STARTED not in run.output:
            break
    return run


def launch_once(ranks, command, limit, faults, on_line, extra):
    """As launch; but mpirun may not have started anything."""
    environment = dict(os.environ)
    environment.pop("FTSORT_FAULTS", None)
    if faults is not None:
        environment["FTSORT_FAULTS"] = faults
    line = [*LAUNCH, *extra, "-np", str(ranks), *map(str, command)]
    began = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as kept:
        process = subprocess.Popen(
            line, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if on_line else kept, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True,
        )
        hung, stacks, cut = threading.Event(), [], []

        def watch():
            hung.set()
            cut.extend(cut_queues(process.pid, command[0]))
            stacks.append(stacks_of(process.pid, command[0]))
            end(process.pid)

        watchdog = threading.Timer(limit, watch)
        watchdog.start()
        try:
            if on_line:
                for text in process.stdout:
                    kept.write(text)
                    on_line(text.rstrip("\n"))
            code = process.wait()
        except BaseException:
            end(process.pid)
            raise
        finally:
            watchdog.cancel()
        kept.flush()
        kept.seek(0)
        return Run(code, kept.read(), time.monotonic() - began, hung.is_set(), "".join(stacks), cut)


def shown(ranks, command, faults):
    """The command as somebody would type it again."""
    return shlex.join([f"FTSORT_FAULTS={faults}", *LAUNCH, "-np", str(ranks), *map(str, command)])
