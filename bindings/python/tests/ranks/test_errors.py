"""Wrong arguments: the rank that passes one gets the reason, the others PeerArgumentError, and no rank waits."""

import ftsort

import contextlib
import ctypes
import importlib
import logging
import os
import sys
import threading
import types

import numpy as np
import pytest
from mpi4py import MPI

from ftsort import _calls, _native
from ftsort._layout import type_id

SIZE, RANK = MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank
CULPRIT = SIZE - 1
TABLE = np.zeros(3, [("a", "i4"), ("b", "f8")])
#: An extension type of NumPy's own tests: its kind is V, as that of bfloat16 of the package ml_dtypes.
RATIONAL = np.dtype(importlib.import_module(
    f"numpy.{'core' if np.__version__.startswith('1.') else '_core'}._rational_tests").rational)


def refused(call, text="", error=ftsort.ArgumentError):
    """Checks that a call with a wrong argument of the last rank raises on every rank."""
    expected = error if RANK == CULPRIT else ftsort.PeerArgumentError
    with pytest.raises(expected, match=(text or None) if RANK == CULPRIT else None):
        call()


def no_memory(*_arguments):
    """Takes the place of a function that allocates."""
    raise MemoryError("no memory")


@pytest.mark.parametrize("wrong, options, text", [
    (np.array([None]), {}, "Python objects"),
    (np.zeros((2, 2)), {}, "2 dimensions"),
    (np.zeros(2, ">i4"), {}, r"byte order.*array\.astype\(array\.dtype\.newbyteorder\('='\)\)$"),
    (np.zeros(2, [("a", ">i4")]), dict(key="a"), r"field 'a'.*array\.astype\(array\.dtype\.newbyteorder\('='\)\)$"),
    (np.zeros(2, "c16"), {}, "not a key"),
    (np.zeros(2, "g"), {}, "not a key"),
    (np.zeros(2, RATIONAL), {}, "rational, which is not a key"),
    (np.zeros(2, [("a", RATIONAL)]), dict(key="a"), "field 'a'.*rational, which is not a key"),
    (np.zeros(2), dict(key="a"), "no fields"),
    (TABLE, dict(key="x"), "the fields are a, b"),
    (TABLE, dict(key=["a"], descending=[True, False]), "2 elements"),
    (TABLE, dict(key=[]), "0 fields"),
    (np.zeros(2), dict(compare=lambda a, b: 0, descending=[True]), "compare decides"),
    (np.zeros(2), dict(compare=5), "compare is 5"),
    (TABLE, dict(key=5), "key is 5, expected a field"),
    (TABLE, dict(key=["a", ["b"]]), "the fields are a, b"),
    (TABLE, dict(descending=1), "descending is 1, expected a bool"),
    (None, {}, "pass an array, or a list of numbers"),
    (np.zeros(2, np.dtype([])), {}, "0 bytes"),
    (np.ma.masked_array([1.0, 2.0], [True, False]), {}, "masked array"),
])
def test_arrays(group, wrong, options, text):
    for method in (group.sort, group.protect):
        if RANK == CULPRIT:
            refused(lambda: method(wrong, **options), text)
        else:
            refused(lambda: method(np.zeros(2)))
    assert group.sort([1.0]).total == SIZE


def test_other_exceptions_let_the_peers_return(group):
    class Broken:
        def __array__(self, *_arguments, **_options):
            raise ZeroDivisionError("broken")

    refused(lambda: group.sort(Broken() if RANK == CULPRIT else [1.0]), "broken", ZeroDivisionError)
    refused(lambda: group.sort_many([[1.0], None if RANK == CULPRIT else [1.0]]), "Python objects")
    refused(lambda: group.sort_many(3 if RANK == CULPRIT else []), "arrays is 3")
    refused(lambda: group.set_algorithm("quick" if RANK == CULPRIT else "auto"), "expected one of")


@pytest.mark.parametrize("types", [("M8[s]", "M8[D]"), ("M8[s]", "m8[s]"), ("?", "u1"), ("S4", "V4"),
                                   ([("a", "i4"), ("b", "i4")], [("a", "i4"), ("b", "f4")])])
def test_types_of_equal_bytes_are_different(group, types):
    if SIZE == 1:
        pytest.skip("one rank has one type")
    mine = np.zeros(2, types[0] if RANK < CULPRIT else types[1])
    key = "a" if mine.dtype.names else None
    for method in (group.sort, group.protect, group.argsort):
        with pytest.raises(ftsort.ArgumentError, match="type"):
            method(mine, key=key)
    with pytest.raises(ftsort.ArgumentError, match="type"):
        group.sort_by_key([1.0, 2.0], mine)
    assert group.sort_by_key([1.0], np.zeros(1, types[0])).total == SIZE


def test_extension_types_are_values_that_differ_from_bytes(group):
    values = np.array([3, 1], RATIONAL)
    assert group.sort_by_key([2.0, 1.0], values).total == 2 * SIZE
    if SIZE > 1:
        with pytest.raises(ftsort.ArgumentError, match="type"):
            group.sort_by_key([2.0, 1.0], values if RANK < CULPRIT else values.view("V8"))
    # Two types of 1 byte, as int4 and float8_e4m3fn of ml_dtypes.
    alike = [types.SimpleNamespace(subdtype=None, fields=None, kind="V", str="|V1", isbuiltin=2, type=kind)
             for kind in (int, float)]
    assert type_id(alike[0]) != type_id(alike[1]) and type_id(alike[0]) == type_id(alike[0])


def test_different_types_are_an_error_on_all_ranks(group):
    if SIZE == 1:
        pytest.skip("one rank has one type")
    with pytest.raises(ftsort.ArgumentError, match="type int64; an empty list has" if RANK == 0 else "type float64"):
        group.sort([1] if RANK == 0 else [])


def test_agree(group):
    assert group.agree(2**32 - 1 - (1 << RANK)) == (2**32 - 1 - (2**SIZE - 1), 0)
    assert group.agree(np.bool_(True)) == group.agree(True) == (1, 0)
    assert group.agree(np.arange(SIZE)[RANK] == 0) == (int(SIZE == 1), 0)
    assert group.fault_check() == 0
    if SIZE == 1:
        for wrong in (-1, 2**32, 1.5, "1"):
            with pytest.raises(ftsort.ArgumentError):
                group.agree(wrong)


def test_queries(group):
    ok = np.zeros(2)
    wrong = np.zeros(2, ">f8")
    mine = wrong if RANK == CULPRIT else ok
    calls = [
        lambda: group.argsort(mine), lambda: group.positions(mine), lambda: group.unique(mine),
        lambda: group.top(mine, 1), lambda: group.select(mine, 0), lambda: group.quantiles(mine, 0.5),
        lambda: group.group_by(mine, None, {"n": "count"}), lambda: group.sort_by_key(mine, ok),
        lambda: group.sort_by_key(ok, ok[:1] if RANK == CULPRIT else ok),
        lambda: group.sort_by_key(ok, np.ma.masked_array(ok, [True, False]) if RANK == CULPRIT else ok),
        lambda: group.sort_by_key(ok, np.array([None, 1]) if RANK == CULPRIT else ok),
        lambda: group.top(ok, -1 if RANK == CULPRIT else 1),
        lambda: group.select(ok, -1 if RANK == CULPRIT else 0),
        lambda: group.group_by(ok, None, {"n": "median" if RANK == CULPRIT else "count"}),
        lambda: group.group_by(ok, None, {"n": ("sum",) if RANK == CULPRIT else "count"}),
        lambda: group.group_by(ok, None, {"n": 5 if RANK == CULPRIT else "count"}),
        lambda: group.group_by(ok, None, ["count"] if RANK == CULPRIT else {"n": "count"}),
        lambda: group.group_by(TABLE, None, {"n": ("sum", None) if RANK == CULPRIT else "count"}),
        lambda: group.top(ok, True if RANK == CULPRIT else 1),
    ]
    for call in calls:
        refused(call)
    with pytest.raises(ftsort.Error):
        group.select(ok, 2 * SIZE)
    with pytest.raises(ftsort.Error):
        group.quantiles(ok, 1.5)
    assert group.unique(ok).columns["counts"].sum() in (0, 2 * SIZE)


@pytest.mark.parametrize("options, text", [
    (dict(store="disk"), "expected one of memory, directory, none, reload"),
    (dict(algorithm=1), "algorithm is 1"), (dict(pivot="x"), "pivot"), (dict(repair="x"), "repair"),
    (dict(checks="x"), "checks"), (dict(replicas=-1), "replicas is -1"), (dict(replicas=1.5), "integer"),
    (dict(store="parity", parity=8), "set config.parity_group to more than config.parity"),
    *(({name: 0}, f"{name} is 0, expected 1 to .*, or None for the default")
      for name in ("replicas", "parity", "parity_group", "memory_limit", "threads")),
    (dict(timeout=0), "seconds"), (dict(timeout="1"), "seconds"), (dict(memory_limit=2**64), "memory_limit"),
    (dict(store_directory="a\0b", store="directory"), "NUL"), (dict(store="reload"), "needs the argument reload"),
])
def test_configurations(options, text):
    refused(lambda: ftsort.Group(**(options if RANK == CULPRIT else {})), text)


def test_unknown_options_are_named():
    with pytest.raises(TypeError, match="replica_count"):
        ftsort.Group(replica_count=2)


@pytest.mark.parametrize("comm", [3, MPI.COMM_NULL])
def test_other_objects_than_communicators(comm):
    with pytest.raises(ftsort.ArgumentError, match="expected an mpi4py.MPI.Intracomm"):
        ftsort.Group(comm)


def test_missing_directory():
    with pytest.raises(ftsort.Error):
        ftsort.Group(store="directory", store_directory="/nonexistent/ftsort")


def test_memory_limit():
    with ftsort.Group(memory_limit=1 << 16) as group:
        with pytest.raises(ftsort.MemoryLimit) as caught:
            group.sort(np.zeros(1 << 18))
        assert isinstance(caught.value, MemoryError) and caught.value.status == -21
        assert group.sort([1.0]).total == SIZE


@pytest.mark.parametrize("error, is_kept", [(ftsort.MpiError, True), (ftsort.InternalError, True),
                                            (ftsort.MemoryLimit, False)])
def test_arrays_that_mpi_may_still_read_are_kept(group, monkeypatch, error, is_kept):
    monkeypatch.setattr(_calls, "_pinned", [])
    monkeypatch.setattr(group._library, "run", lambda *_arguments: error.status)
    with pytest.raises(error):
        group.sort([3.0, 1.0])  # The array of the list has no other owner.
    assert [given.array.tolist() for given in _calls._pinned] == [[3.0, 1.0]] * is_kept


def test_closed_objects(group):
    closed = ftsort.Group()
    closed.close()
    closed.close()
    for call in (lambda: closed.sort([1]), lambda: closed.failed, closed.stats, closed.fault_check):
        with pytest.raises(ftsort.StateError, match="closed"):
            call()
    assert "closed" in repr(closed)
    result = group.sort([1])
    result.close()
    for call in (lambda: result.blocks, lambda: result.total, result.recover):
        with pytest.raises(ftsort.StateError, match="closed"):
            call()
    assert repr(result) == "Result(closed)"


@pytest.mark.parametrize("raising", ["one rank", "all ranks"])
def test_exceptions_of_compare_on_one_rank_are_errors_of_all(group, shared_path, raising):
    is_culprit = raising == "all ranks" or RANK == CULPRIT
    healthy = True

    def compare(one, other):
        if is_culprit and not healthy:
            raise KeyError("compare")
        return int(one) - int(other)

    data = np.arange(50)[::-1].copy()
    path = f"{shared_path}/numbers"
    if RANK == 0:
        data.tofile(path)
        np.zeros(3).tofile(path + ".sorted")
    MPI.COMM_WORLD.barrier()
    result = group.sort(data, compare=compare)
    protected = group.protect(data, compare=compare)
    healthy = False
    for call in (lambda: group.sort(data, compare=compare), protected.sort, lambda: result.verify(data),
                 lambda: group.external_sort(path, path + ".sorted", data.dtype, compare=compare),
                 lambda: group.external_sort(path, path, data.dtype, compare=compare),
                 lambda: group.external_sort(path, path + ".sorted", data.dtype, compare=compare, output_parts=2)):
        with pytest.raises(ftsort.CallbackError, match="compare") as caught:
            call()
        assert isinstance(caught.value.__cause__, KeyError) == is_culprit
    assert np.array_equal(np.fromfile(path, data.dtype), data) and not np.fromfile(path + ".sorted").any()
    assert sorted(os.listdir(shared_path)) == ["numbers", "numbers.sorted"]
    healthy = True
    assert protected.sort().total == 50 * SIZE
    assert result.verify(data) == 0
    assert group.sort(data, compare=compare).total == 50 * SIZE


def test_interrupts_in_compare(group):
    def compare(_a, _b):
        if RANK == CULPRIT:
            raise KeyboardInterrupt
        return 0

    with pytest.raises(KeyboardInterrupt if RANK == CULPRIT else ftsort.CallbackError):
        group.sort(np.arange(50), compare=compare)


def test_interrupts_in_a_call_that_succeeds_release_its_results(monkeypatch):
    def interrupt(_event):
        if RANK == CULPRIT:
            raise KeyboardInterrupt

    released = []
    with ftsort.Group(on_event=interrupt) as group:
        for name in ("result_free", "input_free"):
            def release(pointer, free=getattr(group._library, name)):
                released.append(pointer)
                free(pointer)

            monkeypatch.setattr(group._library, name, release)
        for call, count in ((lambda: [group.sort(np.arange(50))], 1), (lambda: [group.protect(np.arange(50))], 1),
                            (lambda: group.sort_many([np.arange(50), np.arange(9)]), 2)):
            released.clear()
            if RANK == CULPRIT:
                with pytest.raises(KeyboardInterrupt):
                    call()
                assert len([pointer for pointer in released if getattr(pointer, "value", pointer)]) == count
            else:
                assert len(call()) == count


def test_interrupts_before_compare_begins(group):
    """A signal handler can raise an exception at the entry of a callback, before its first statement."""
    def interrupt(frame, event, _argument):
        if event == "call" and frame.f_code.co_name == "call":
            sys.setprofile(None)
            raise KeyboardInterrupt

    hook = sys.unraisablehook
    if RANK == CULPRIT:
        sys.setprofile(interrupt)
    with pytest.raises(KeyboardInterrupt if RANK == CULPRIT else ftsort.CallbackError):
        group.sort(np.arange(50)[::-1], compare=lambda a, b: int(a) - int(b))
    assert sys.unraisablehook is hook
    assert group.sort(np.arange(50)).total == 50 * SIZE


def test_interrupts_outside_of_compare_and_reload_concern_one_rank():
    """The rank of the signal raises the exception when the call ends; on the others it succeeds."""
    def interrupt(frame, event, _argument):
        if event == "call" and frame.f_code.co_name == "_event":
            sys.setprofile(None)
            raise KeyboardInterrupt

    with ftsort.Group(reload=lambda rank: 1 / 0) as group:
        protected = group.protect(np.arange(50))
        for call in (lambda: group.sort(np.arange(50)[::-1]), lambda: protected.update(np.arange(70))):
            if RANK != CULPRIT:
                call()
                continue
            sys.setprofile(interrupt)
            with pytest.raises(KeyboardInterrupt):
                call()
        assert protected.sort().total == 70 * SIZE


@pytest.mark.parametrize("place", ["begin", "middle"])
def test_interrupts_of_the_rank_that_receives_a_result_concern_that_rank(monkeypatch, place):
    """The result stays open. The other ranks succeed unless the signal kept the function from its first statement."""
    def interrupt(*arguments):
        if place == "middle" or (arguments[1] == "call" and arguments[0].f_code.co_name == "consume"):
            sys.setprofile(None)
            raise KeyboardInterrupt

    with ftsort.Group(reload=lambda rank: 1 / 0) as group:
        result = group.sort(np.arange(50))
        if RANK == CULPRIT:
            with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
                if place == "begin":
                    sys.setprofile(interrupt)
                else:
                    patched.setattr(ctypes, "memmove", interrupt)
                result.to_numpy(CULPRIT)
        else:
            # A callback that does not begin returns any number.
            with contextlib.suppress(*[ftsort.CallbackError] if place == "begin" else []):
                assert result.to_numpy(CULPRIT) is None
        whole = result.to_numpy(CULPRIT)
        assert RANK != CULPRIT or whole.tolist() == sorted(list(range(50)) * SIZE)


def test_no_memory_for_a_whole_result_leaves_it_open(monkeypatch):
    with ftsort.Group(reload=lambda rank: 1 / 0) as group:
        result = group.sort(np.arange(50))
        with monkeypatch.context() as patched:
            if RANK == CULPRIT:
                patched.setattr("ftsort._result.np.empty", no_memory)
            with pytest.raises(ftsort.CallbackError) as raised:
                result.to_numpy(CULPRIT)
            assert isinstance(raised.value.__cause__, MemoryError) == (RANK == CULPRIT)
        whole = result.to_numpy(CULPRIT)
        assert RANK != CULPRIT or whole.tolist() == sorted(list(range(50)) * SIZE)


def test_interrupts_while_a_group_is_made_concern_one_rank():
    """The library reports that the group is ready before the call ends."""
    def interrupt(frame, event, _argument):
        if event == place and frame.f_code.co_name == "_log":
            sys.setprofile(None)
            raise KeyboardInterrupt

    for place in ("call", "return"):
        if RANK == CULPRIT:
            sys.setprofile(interrupt)
            with pytest.raises(KeyboardInterrupt):
                ftsort.Group()
            assert sys.getprofile() is None
        else:
            ftsort.Group().close()


def test_no_memory_for_selected_elements_lets_the_peers_return(group, monkeypatch):
    for call in (lambda: group.select(np.arange(50), [3]), lambda: group.quantiles(np.arange(50), [0.5])):
        with monkeypatch.context() as patched:
            if RANK == CULPRIT:
                patched.setattr("ftsort._queries.np.empty", no_memory)
            refused(call, "no memory", MemoryError)
        assert len(call()) == 1


@pytest.mark.parametrize("function", ["verdict", "_agree"])
def test_interrupts_between_a_call_and_its_agreement_concern_one_rank(function):
    """The other ranks are in the agreement already."""
    def interrupt(frame, event, _argument):
        if event == "call" and frame.f_code.co_name == function:
            sys.setprofile(None)
            raise KeyboardInterrupt

    with ftsort.Group(reload=lambda rank: 1 / 0) as group:
        for _ in range(2):
            if RANK != CULPRIT:
                assert group.sort(np.arange(50)).total == 50 * SIZE
                continue
            sys.setprofile(interrupt)
            with pytest.raises(KeyboardInterrupt):
                group.sort(np.arange(50))
        assert group.sort(np.arange(9)).total == 9 * SIZE


@pytest.mark.parametrize("place", ["here", "in another thread"])
def test_errors_in_callbacks_of_other_packages_are_not_those_of_the_call(group, monkeypatch, place):
    foreign, seen, threads = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1 // 0), [], []
    monkeypatch.setattr(sys, "unraisablehook", lambda ignored: seen.append(ignored.exc_type))

    def compare(one, other):
        if RANK == CULPRIT and not threads:
            threads.append(threading.Thread(target=foreign))
            if place == "here":
                threads[0].run()
            else:
                threads[0].start()
                threads[0].join()
        return int(one) - int(other)

    assert group.sort(np.arange(50)[::-1], compare=compare).total == 50 * SIZE
    assert seen == ([ZeroDivisionError] if RANK == CULPRIT else [])


def test_callbacks_are_known_by_their_names(group, monkeypatch):
    """Python 3.13 names the callback in the message, and earlier versions pass it as the object."""
    failed, foreign, callbacks = [], [], group._callbacks
    functions = [callbacks._event, callbacks._log, callbacks._reload_input]
    for name in ("COMPARE_FN", "CONSUME_FN"):
        def made(*function, kind=getattr(_native, name)):
            functions.extend(function)
            return kind(*function)

        monkeypatch.setattr(_native, name, made)
    group.sort([1], compare=lambda a, b: 0).to_numpy()
    assert len(functions) == 5
    monkeypatch.setattr(callbacks, "fail", lambda error: failed.append("all ranks"))
    monkeypatch.setattr(callbacks, "fail_here", lambda error: failed.append("this rank"))
    monkeypatch.setattr(sys, "unraisablehook", foreign.append)
    with callbacks.running():
        for function in [*functions, made]:
            for text, shown in ((f" {function!r}", None), ("", function)):
                message = f"Exception ignored on calling ctypes callback function{text}"
                sys.unraisablehook(types.SimpleNamespace(err_msg=message, object=shown, exc_value=None))
    expected = ["this rank"] * 4 + ["all ranks"] * 4 + ["this rank"] * 2
    assert failed == expected and len(foreign) == 2


def test_interrupts_while_an_argument_is_converted(group):
    class Interrupted:
        def __array__(self, *_arguments, **_options):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt if RANK == CULPRIT else ftsort.PeerArgumentError):
        group.sort(Interrupted() if RANK == CULPRIT else np.arange(50))
    assert group.sort(np.arange(50)).total == 50 * SIZE


def test_float16_keys_that_overlap_other_fields(group):
    def table(fields):
        names, formats, offsets = zip(*fields)
        return np.zeros(5, np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": 8}))

    same = table([("half", "f2", 0), ("raw", "u2", 0), ("all", "V4", 0), ("next", "f2", 1)])
    for call in (lambda: group.sort(same, key=["raw", "half"]), lambda: group.sort(same, key=["half", "all"]),
                 lambda: group.sort(same, key=["half", "next"]),
                 lambda: group.group_by(same, "half", {"most": ("max", "raw")})):
        with pytest.raises(ftsort.ArgumentError, match="overlaps"):
            call()
    with group.protect(same, key="half") as protected:
        with pytest.raises(ftsort.ArgumentError, match="overlaps"):
            protected.sort(key="raw")
        assert protected.sort(key=["half", "half"]).total == 5 * SIZE
    with group.protect(same, key="all") as protected:
        with pytest.raises(ftsort.ArgumentError, match="was a key when the records were protected"):
            protected.sort(key="half")
    with pytest.raises(ftsort.ArgumentError, match="not a number for it"):
        group.group_by(same, "all", {"most": ("max", "half")})
    assert group.sort(same, key=["raw", "all"]).total == 5 * SIZE


def test_wrong_uses_of_results_on_one_rank(group):
    result, closed = group.sort(np.arange(50)), group.sort(np.arange(50))
    protected = group.protect(np.arange(50))
    if RANK == CULPRIT:
        closed.close()
        protected.close()
    for call, error in ((lambda: result.to_numpy(None if RANK == CULPRIT else 0), ftsort.ArgumentError),
                        (closed.to_numpy, ftsort.StateError), (closed.recover, ftsort.StateError),
                        (lambda: closed.verify(np.arange(50)), ftsort.StateError),
                        (lambda: protected.update(np.arange(50)), ftsort.StateError),
                        (protected.sort, ftsort.StateError)):
        with pytest.raises(error if RANK == CULPRIT else ftsort.PeerArgumentError):
            call()
    assert (result.to_numpy() is None) == (RANK != 0)


def test_leave_with_a_wrong_exit_code(group):
    for wrong in ("zero", 2**31):
        refused(lambda: group.leave(wrong if RANK == CULPRIT else 0), "exit_code")
    with pytest.raises(ftsort.ArgumentError, match="exit_code"):
        group.leave(None)
    assert group.sort([1.0]).total == SIZE


def test_exceptions_of_callbacks(group):
    data = np.arange(50)

    def on_event(_event):
        raise KeyError("event")

    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logging.getLogger("ftsort").addHandler(handler)
    try:
        with ftsort.Group(on_event=on_event) as other:
            assert other.sort(data).total == 50 * SIZE
            with pytest.raises(ftsort.Error):
                other.sort(object() if RANK == CULPRIT else data)
    finally:
        logging.getLogger("ftsort").removeHandler(handler)
    assert any("on_event" in record.getMessage() for record in records)


def test_classes():
    assert issubclass(ftsort.ArgumentError, ValueError)
    assert issubclass(ftsort.MemoryLimit, MemoryError)
    for name in ("DataLost", "NoUlfm", "LibraryError", "StateError"):
        assert issubclass(getattr(ftsort, name), ftsort.Error)
