"""Spark's batches are read ahead by a thread: the same batches, in the same order, and never more than one ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice, pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kafka_sink.spark.read_ahead as module
from kafka_sink.spark.read_ahead import AHEAD_MAX_BYTES, AHEAD_MIN_BYTES, read_ahead
from tests.support.producing import replace_start

PATIENCE_S = 10
SMALL, MEDIUM, LARGE = 1, AHEAD_MIN_BYTES, AHEAD_MAX_BYTES + 1


def batch_of(byte_count: int, number: int = 0) -> pa.RecordBatch:
    return pa.record_batch([pa.array([bytes([number]) * byte_count])], ["value"])


class Source:
    """Counts what is read and by which thread."""

    def __init__(self, sizes: list[int], failure: BaseException | None = None) -> None:
        self.readers: list[str] = []
        self.has_ended = False
        self._changed = threading.Condition()
        self._sizes = sizes
        self._failure = failure

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for number, size in enumerate(self._sizes):
            self._note()
            yield batch_of(size, number)
        if self._failure is not None:
            raise self._failure
        self.has_ended = True

    def _note(self) -> None:
        with self._changed:
            self.readers.append(threading.current_thread().name)
            self._changed.notify_all()

    def wait_until_read(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.readers) >= count, PATIENCE_S)


def reading_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "pykafka-sink-reader"]


def wait_until_no_thread_reads() -> None:
    for thread in reading_threads():
        thread.join(PATIENCE_S)
    assert reading_threads() == []


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(0, 40), st.integers(0, 40))
def test_the_batches_and_their_order_are_those_of_the_source(sizes: list[int], least: int, most: int) -> None:
    batches = [batch_of(size, number) for number, size in enumerate(sizes)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "AHEAD_MIN_BYTES", least)
        patch.setattr(module, "AHEAD_MAX_BYTES", most)
        assert list(read_ahead(iter(batches))) == batches
    wait_until_no_thread_reads()


def test_one_batch_is_read_while_the_task_has_the_one_before_and_no_more() -> None:
    source = Source([MEDIUM] * 5)
    read = read_ahead(source)
    for taken in range(1, 5):
        next(read)
        source.wait_until_read(taken + 1)
        assert len(source.readers) == taken + 1
    assert len(list(read)) == 1 and source.has_ended
    wait_until_no_thread_reads()


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_after_a_batch_that_is_too_small_or_too_large_the_task_reads_itself(size: int) -> None:
    source = Source([size] * 3)
    for taken, _ in enumerate(read_ahead(source), 1):
        assert len(source.readers) == taken and reading_threads() == []
    assert set(source.readers) == {threading.current_thread().name} and source.has_ended


def test_task_and_thread_take_turns_as_sizes_change() -> None:
    sizes = [SMALL, MEDIUM, MEDIUM, LARGE, MEDIUM, SMALL, SMALL]
    source = Source(sizes)
    assert [batch.column(0)[0].as_py()[0] for batch in read_ahead(source)] == list(range(len(sizes)))
    expected = ["pykafka-sink-reader" if before == MEDIUM else "MainThread" for before, _ in pairwise(sizes)]
    assert source.readers == ["MainThread", *expected]
    wait_until_no_thread_reads()


@pytest.mark.parametrize("failure", [EOFError("Spark has gone"), SystemExit(3)])
def test_an_error_of_the_source_comes_after_all_batches_before_it(failure: BaseException) -> None:
    read = read_ahead(Source([MEDIUM] * 3, failure))
    assert [batch.column(0)[0].as_py()[0] for batch in islice(read, 3)] == [0, 1, 2]
    with pytest.raises(type(failure)) as raised:
        next(read)
    assert raised.value is failure
    wait_until_no_thread_reads()


def test_a_task_that_fails_stops_the_thread_which_reads_nothing_more() -> None:
    source = Source([MEDIUM] * 5)
    read = read_ahead(source)
    next(read)
    source.wait_until_read(2)
    read.close()
    wait_until_no_thread_reads()
    assert len(source.readers) == 2


def test_a_task_that_fails_while_the_thread_waits_for_spark_does_not_wait_for_it() -> None:
    is_waiting, may_end = threading.Event(), threading.Event()

    def source() -> Iterator[pa.RecordBatch]:
        yield batch_of(MEDIUM)
        is_waiting.set()
        may_end.wait(PATIENCE_S)

    read = read_ahead(source())
    next(read)
    assert is_waiting.wait(PATIENCE_S)
    read.close()
    (thread,) = reading_threads()
    assert thread.daemon and thread.is_alive()
    may_end.set()
    wait_until_no_thread_reads()


def test_a_process_that_can_start_no_thread_reads_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    source = Source([MEDIUM] * 3)
    replace_start(monkeypatch, refuse)
    assert len(list(read_ahead(source))) == 3
    assert set(source.readers) == {"MainThread"} and source.has_ended
