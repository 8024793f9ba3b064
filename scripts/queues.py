"""Finds queues of Open MPI's shared memory that a killed process left in a broken state.

A sender appends a message to the queue of another rank in two steps (sm_fifo_write): it makes the message the
last entry, and then it links the message to the entry before, or makes it the first entry. If the sender is
killed between these steps, the owner of the queue finds none of the later messages and waits for ever. That is a
defect of Open MPI and not of the program which it runs.

This module reads the private memory of Open MPI. The layout is known for version 5.0 only. Before a value is
trusted, the version, the name of the library and the content of the queue's header are checked. If one of them is
unexpected, `LayoutUnknown` is raised: a hang is then never excused.
"""

import pathlib
import re
import struct
import time

VERSION = re.compile(r"5\.0\.\d+")
LIBRARY = "libopen-pal.so.80"
# The header of a queue (sm_fifo_t): first and last entry, number of free fast boxes, and padding. An entry is the
# local rank of the sender in the upper 32 bits, and an offset in the segment of that rank in the lower ones.
HEADER = struct.Struct("=qqi4x5q")
FREE = -2
MOST_FAST_BOXES = 256


class LayoutUnknown(Exception):
    """The memory of this Open MPI is not laid out as this module knows it."""


class Queue:
    """The header of the queue of one rank."""

    def __init__(self, rank, content, segment_bytes, ranks):
        self.rank = rank
        self.first, self.last, self.fast_boxes, *self.padding = HEADER.unpack(content[: HEADER.size])
        self.check(segment_bytes, ranks)

    def check(self, segment_bytes, ranks):
        """Raises LayoutUnknown unless the header has the signature of a queue of Open MPI 5.0."""
        for name, entry in (("first", self.first), ("last", self.last)):
            sender, offset = entry >> 32, entry & 0xFFFFFFFF
            if entry != FREE and not (0 <= sender < ranks and HEADER.size <= offset < segment_bytes):
                raise LayoutUnknown(f"the {name} entry of the queue of rank {self.rank} is {entry:#x}, which is neither "
                                    f"empty nor an address in a segment of {segment_bytes} bytes of {ranks} ranks")
        if not 0 <= self.fast_boxes <= MOST_FAST_BOXES or any(self.padding):
            raise LayoutUnknown(f"the header of the queue of rank {self.rank} continues with {self.fast_boxes} and "
                                f"{self.padding}, where a number of fast boxes and zeros are expected")

    def is_broken(self):
        """Returns whether the queue has a last entry, but no first one."""
        return self.first == FREE != self.last

    def state(self):
        return self.rank, self.first, self.last


def environment_of(pid):
    words = pathlib.Path("/proc", str(pid), "environ").read_text(errors="replace").split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)


def check_version(environment, libraries):
    """Raises LayoutUnknown unless a process runs the known version of Open MPI."""
    version = environment.get("OMPI_VERSION", "")
    if not VERSION.fullmatch(version):
        raise LayoutUnknown(f"OMPI_VERSION is {version!r}, and only the layout of 5.0 is known")
    if LIBRARY not in libraries:
        raise LayoutUnknown(f"the process has not loaded {LIBRARY}")


def queue_of(pid):
    """Returns the queue of a process; None if it does not use shared memory.

    The queue is at the start of the segment that belongs to the process (opal/mca/btl/sm).
    """
    environment = environment_of(pid)
    rank = environment.get("OMPI_COMM_WORLD_RANK")
    if rank is None:
        return None
    maps = [line.split() for line in pathlib.Path("/proc", str(pid), "maps").read_text().splitlines()]
    maps = [words for words in maps if len(words) > 5]
    # Segments end with the local rank, which is the rank, since all ranks run on this host.
    segments = [words for words in maps if "/sm_segment." in words[5]]
    if not segments:
        return None
    check_version(environment, {pathlib.PurePath(words[5]).name for words in maps})
    own = [words[0] for words in segments if words[5].endswith(f".{rank}")]
    if not own:
        raise LayoutUnknown(f"rank {rank} has mapped {segments[0][5]}, but no segment with the name ending .{rank}")
    begin, end = (int(address, 16) for address in own[0].split("-"))
    with open(f"/proc/{pid}/mem", "rb") as memory:
        memory.seek(begin)
        content = memory.read(HEADER.size)
    return Queue(int(rank), content, end - begin, int(environment.get("OMPI_COMM_WORLD_SIZE", 0)))


def broken_queues(pids):
    """Returns the ranks among these processes with a queue that is broken, and stays so for a second.

    Raises LayoutUnknown if a queue does not look as expected.
    """
    observed = []
    for observation in range(2):
        # In a working queue this state lasts for some nanoseconds.
        time.sleep(observation)
        states = set()
        for pid in pids:
            try:
                queue = queue_of(pid)
            except (OSError, struct.error):
                continue  # The process has just ended.
            if queue is not None and queue.is_broken():
                states.add(queue.state())
        observed.append(states)
    return sorted(rank for rank, _, _ in observed[0] & observed[1])
