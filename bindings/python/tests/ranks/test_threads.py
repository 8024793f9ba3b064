"""Calls, local questions and the ends of objects in callbacks and other threads while a call uses the group."""

import ftsort

import threading
import time

import numpy as np
import pytest
from mpi4py import MPI

SIZE = MPI.COMM_WORLD.size


def test_local_questions_while_a_call_uses_the_group():
    asked = []

    def ask(_event):
        for question in (lambda: group.failed, lambda: group.is_failed(0), lambda: group.executor(0),
                         lambda: group.is_spare(0), lambda: group.lost_ranks, group.stats):
            with pytest.raises(ftsort.StateError):
                question()
        asked.append(repr(group))

    with ftsort.Group(on_event=ask) as group:
        group.sort(np.arange(50000))
        assert asked and all(text.endswith(", busy)") for text in asked)
        assert group.failed == [] and group.executor(2**40) == -1 and group.is_failed(-2**40)


@pytest.mark.parametrize("place", ["a callback", "another thread"])
def test_a_group_that_a_call_uses_cannot_be_closed(monkeypatch, place):
    refusals, freed = [], []

    def close():
        with pytest.raises(ftsort.StateError, match="busy"):
            group.close()
        refusals.append(group)

    def on_event(_event):
        if place == "a callback":
            close()
        else:
            thread = threading.Thread(target=close)
            thread.start()
            thread.join()

    group = ftsort.Group(on_event=on_event)
    free = group._library.free
    monkeypatch.setattr(group._library, "free", lambda pointer: freed.append(pointer) or free(pointer))
    assert group.sort(np.arange(50)).total == 50 * SIZE
    assert refusals and freed == []
    pointer = group._pointer()
    group.close()
    assert freed == [pointer] and "closed" in repr(group)


@pytest.mark.parametrize("question", [lambda group: group.failed, lambda group: group.executor(0), repr])
def test_a_signal_handler_in_a_local_question_cannot_close_the_group(monkeypatch, question):
    refusals, freed = [], []
    group = ftsort.Group()

    def interrupted(function):
        def call(*arguments):
            with pytest.raises(ftsort.StateError, match="busy"):
                group.close()
            refusals.append(function)
            return function(*arguments)
        return call

    library = group._library
    with monkeypatch.context() as patch:
        patch.setattr(library, "free", lambda _pointer: freed.append(1))
        for name in ("is_failed", "executor"):
            patch.setattr(library, name, interrupted(getattr(library, name)))
        question(group)
    assert refusals and not freed
    assert group.sort(np.arange(50)).total == 50 * SIZE
    group.close()


@pytest.mark.parametrize("ends", [True, False], ids=["a whole call", "the begin of a call"])
def test_a_call_during_a_local_question(monkeypatch, ends):
    """The library answers for no group while a call runs, and a question takes a call of it for each rank."""
    entered, answered = threading.Event(), threading.Event()
    threads = []

    def on_event(_event):
        entered.set()
        assert ends or answered.wait(30)

    with ftsort.Group(on_event=on_event) as group:
        is_failed = group._library.is_failed

        def begin_a_call(pointer, rank):
            if not threads:
                threads.append(threading.Thread(target=group.sort, args=(np.arange(50),)))
                threads[0].start()
                assert entered.wait(30)
                if ends:
                    threads[0].join()
            return is_failed(pointer, rank)

        monkeypatch.setattr(group._library, "is_failed", begin_a_call)
        with pytest.raises(ftsort.StateError, match="busy"):
            group.failed
        answered.set()
        threads[0].join()
        assert group.failed == [] and "failed=[]" in repr(group)


def test_local_questions_of_two_threads_are_asked_one_after_the_other(group, monkeypatch):
    is_failed, asked, most = group._library.is_failed, [], []

    def ask(pointer, rank):
        asked.append(rank)
        time.sleep(0.01)
        most.append(len(asked))
        asked.pop()
        return is_failed(pointer, rank)

    monkeypatch.setattr(group._library, "is_failed", ask)
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(group.failed)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [[]] * 3 and max(most) == 1


def test_a_call_during_a_call_is_refused_and_changes_nothing():
    refusals = []

    def call_again():
        for call in (lambda: group.sort(["a"]), group.agree, lambda: group.sort_many([[1.5], [2]])):
            with pytest.raises(ftsort.StateError, match="busy"):
                call()
            refusals.append(call)

    def compare(one, other):
        if not refusals:
            layouts = list(group._callbacks.layouts)
            thread = threading.Thread(target=call_again)
            thread.start()
            thread.join()
            assert group._callbacks.layouts == layouts
        return int(one) - int(other)

    with ftsort.Group() as group:
        assert group.sort(np.arange(50)[::-1], compare=compare).total == 50 * SIZE
        assert len(refusals) == 3
        assert group.sort(np.arange(50)).total == 50 * SIZE


@pytest.mark.parametrize("name, call", [
    ("result_recover", lambda result, protected: result.recover()),
    ("gather_sorted", lambda result, protected: result.to_numpy()),
    ("result_verify", lambda result, protected: result.verify(np.arange(50))),
    ("input_update", lambda result, protected: protected.update(np.arange(70))),
    ("run_protected", lambda result, protected: protected.sort()),
], ids=lambda value: value if isinstance(value, str) else "")
def test_objects_that_are_closed_during_a_call_are_released_after_it(group, monkeypatch, name, call):
    library, released = group._library, []
    kind = "input_free" if name in ("input_update", "run_protected") else "result_free"
    free, function = getattr(library, kind), getattr(library, name)
    monkeypatch.setattr(library, kind, lambda pointer: released.append(pointer) or free(pointer))
    result, protected = group.sort(np.arange(50)), group.protect(np.arange(50))
    closed = protected if kind == "input_free" else result

    def closing(*arguments):
        thread = threading.Thread(target=closed.close)
        thread.start()
        thread.join()
        assert released == []
        return function(*arguments)

    pointer = closed._handle.pointer
    monkeypatch.setattr(library, name, closing)
    call(result, protected)
    assert released[:1] == [pointer]
    monkeypatch.undo()
    with pytest.raises(ftsort.StateError, match="closed"):
        call(result, protected)


def test_blocks_of_a_callback_during_a_recovery_are_not_kept(group, monkeypatch):
    result, function = group.sort(np.arange(50)), group._library.result_recover
    monkeypatch.setattr(group._library, "result_recover", lambda *arguments: (result.blocks, function(*arguments))[1])
    asked = result.blocks
    result.recover()
    assert result._blocks is None and [block.node for block in result] == [block.node for block in asked]
