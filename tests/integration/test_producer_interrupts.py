"""Ctrl-C, or a signal handler that raises, at every moment of a call at which Python looks for signals.

Python does so where a function begins and where a call ends. `sys.setprofile` sees both.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from types import FrameType

import pyarrow as pa
import pytest

import kafka_sink.producer
from kafka_sink import KafkaSinkError, Producer
from kafka_sink.testing import EmbeddedBroker
from tests.support.producing import TIMEOUT_S, producer_of, senders, transactional
from tools.waiting import wait_until

PRODUCER = os.path.dirname(kafka_sink.producer.__file__)
INTERRUPTED, ENGINE = (PRODUCER, threading.__file__), os.path.join(PRODUCER, "engine")
HOUR_MS = 3_600_000


class Interrupt:
    """Raises at the n-th moment that is in the producer's own code or in Python's locks."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.where = ""

    def __enter__(self) -> None:
        gc.disable()  # in a finalizer it would be ignored
        sys.setprofile(self._observe)

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        gc.enable()

    def _observe(self, frame: FrameType, event: str, argument: object) -> None:
        file = frame.f_code.co_filename
        if event not in ("call", "c_return") or not file.startswith(INTERRUPTED) or file.startswith(ENGINE):
            return
        self.left -= 1
        if not self.left:
            self.where = f"{event} in {frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 1}) as started:
        yield started


def is_finished(producer: Producer) -> bool:
    """The interrupt came while rows were put into batches: the producer says that it is of no use any more."""
    return producer._mailbox.broken is not None


def moments(make: Callable[[], Producer], call: Callable[[Producer], object]) -> Iterator[tuple[Producer, str]]:
    """Interrupts the call of a new producer at each moment in turn, until the call ends before it comes."""
    for number in count(1):
        producer, interrupt = make(), Interrupt(number)
        try:
            with interrupt:
                call(producer)
        except KeyboardInterrupt:
            pass
        except KafkaSinkError:  # it was told why the call before failed
            assert is_finished(producer), interrupt.where
        assert not producer._mailbox.lock._is_owned(), interrupt.where  # type: ignore[attr-defined]
        assert not producer._appender.lock._is_owned(), interrupt.where  # type: ignore[attr-defined]
        assert not producer._appender.buffer_pool.waiters, interrupt.where
        assert not producer._mailbox.bells, interrupt.where
        yield producer, interrupt.where
        try:
            producer.close(TIMEOUT_S)
        except KafkaSinkError:
            assert is_finished(producer), interrupt.where
        if not interrupt.where:
            break
    assert number > 50


def fill(producer: Producer) -> None:
    for _ in range(4):
        producer.send("t", bytes(800))


ROWS = pa.table({"value": [bytes(100)] * 10})
CALLS: dict[str, Callable[[Producer], object]] = {
    "send": lambda producer: producer.send("t", b"v"),
    "send_arrow": lambda producer: producer.send_arrow(ROWS, "t"),
    "wait for room": fill,
    "result": lambda producer: producer.send_arrow(ROWS, "t").result(TIMEOUT_S),
    "flush": lambda producer: (producer.send("t", b"v"), producer.flush()),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_producer_goes_on_after_an_interrupt_or_says_that_it_is_finished(broker: EmbeddedBroker, name: str) -> None:
    def make() -> Producer:
        linger_ms = 0 if name in ("send_arrow", "result") else HOUR_MS
        return producer_of(broker, linger_ms=linger_ms, buffer_memory=3000, batch_size=1000)

    for producer, where in moments(make, CALLS[name]):
        if not is_finished(producer):
            future = producer.send("t", b"after")
            producer.flush(TIMEOUT_S)
            assert future.done(), where
            assert producer._appender.buffer_pool.used_bytes == 0, where
            assert producer._appender.buffer_pool.used_records == 0, where


def test_an_interrupted_close_ends_the_producer_or_can_be_repeated(broker: EmbeddedBroker) -> None:
    def make() -> Producer:
        producer = producer_of(broker, linger_ms=HOUR_MS)
        producer.send("t", b"v")
        return producer

    for producer, _ in moments(make, Producer.close):
        producer.close()
    wait_until(lambda: not senders(), "the threads have ended")


def test_the_outcome_of_a_step_is_told_at_the_next_call_whenever_the_interrupt_came(broker: EmbeddedBroker) -> None:
    numbers = count()

    def make() -> Producer:
        producer = transactional(broker, f"interrupted-{next(numbers)}", linger_ms=60_000, max_block_ms=3000)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v")
        return producer

    for producer, where in moments(make, Producer.commit_transaction):
        if where and not is_finished(producer):
            producer.commit_transaction()
            producer.begin_transaction()
