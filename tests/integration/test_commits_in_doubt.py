"""A producer that ends while its commit is in flight says so, however it ends; logins are in
tests/unit/producer/engine."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from kafka_sink import Producer
from kafka_sink.errors import KafkaSinkError, LocalProtocolError, OperationTimeout
from kafka_sink.producer import core
from kafka_sink.producer.core import _at_exit
from kafka_sink.testing import EmbeddedBroker, Fault
from tests.support.joined_threads import JoinedThreads
from tests.support.producing import break_engine, transactional
from tools.waiting import wait_until

HOUR_MS = 3_600_000


@pytest.fixture
def committing(embedded_kafka: EmbeddedBroker) -> Iterator[Producer]:
    """Its commit has timed out; the request is at the broker, which does not look at it."""
    embedded_kafka.create_topic("t")
    producer = transactional(embedded_kafka, "doubtful", max_block_ms=2000, linger_ms=0)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"v").result(20)
    fault = embedded_kafka.core.faults.add(Fault(api="EndTxn", delay_before_ms=HOUR_MS))
    with pytest.raises(OperationTimeout, match=r"commit_transaction\(\) did not end .* may be called again"):
        producer.commit_transaction()
    assert fault.times == 0
    yield producer
    producer.close(0)


def outcome_of(producer: Producer) -> KafkaSinkError:
    with pytest.raises(KafkaSinkError) as caught:
        producer.commit_transaction()
    return caught.value


def is_doubt(error: KafkaSinkError) -> bool:
    return error.name == "PKS-5009" and "whether the transaction was committed is not known" in str(error)


def test_a_close_that_runs_out_of_time_says_that_the_commit_is_in_doubt(committing: Producer) -> None:
    with pytest.raises(OperationTimeout, match=r"close\(\) did not end within 0.2 s") as caught:
        committing.close(0.2)
    assert is_doubt(caught.value) and is_doubt(outcome_of(committing))


def test_after_a_close_without_waiting_the_commit_called_again_says_that_it_is_in_doubt(committing: Producer) -> None:
    committing.close(0)
    assert is_doubt(outcome_of(committing))


def test_a_thread_that_waits_for_a_commit_is_told_when_another_one_closes(committing: Producer) -> None:
    errors: list[KafkaSinkError] = []
    waiting = threading.Thread(target=lambda: errors.append(outcome_of(committing)))
    waiting.start()
    wait_until(lambda: bool(committing._mailbox.bells), "the thread waits")
    committing.close(0)
    waiting.join(20)
    assert [is_doubt(error) for error in errors] == [True]


def test_a_bug_of_the_engine_leaves_the_commit_in_doubt(committing: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    break_engine(monkeypatch, committing)
    error = outcome_of(committing)
    assert is_doubt(error) and "unexpected ZeroDivisionError: a bug" in str(error)


def test_a_program_that_ends_while_a_commit_is_in_flight_is_told(
    committing: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="kafka_sink"):
        _at_exit()
    told = [record.getMessage() for record in caplog.records]
    assert [text for text in told if "commit_transaction() did not end" in text and "is not known" in text], told


def test_all_producers_that_a_program_has_not_closed_are_waited_for_no_longer_than_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = JoinedThreads(monkeypatch)
    unclosed = [UnclosedCore(clock) for _ in range(3)]
    monkeypatch.setattr(core, "_alive", set(unclosed))
    _at_exit()
    assert clock.waited_s == [core.STOP_S, 0, 0]


class UnclosedCore(core.Core):
    """A producer whose thread does not come to its end."""

    def __init__(self, clock: JoinedThreads) -> None:
        self.options = SimpleNamespace(client_id="stuck")  # type: ignore[assignment]
        self.mailbox = SimpleNamespace(is_ended=False, open_commits=[], sender_ident=None)  # type: ignore[assignment]
        self.appender = SimpleNamespace(buffer_pool=SimpleNamespace(used_records=1))  # type: ignore[assignment]
        self.sender = SimpleNamespace(thread=clock.thread())  # type: ignore[assignment]

    def abandon(self, text: str) -> None:
        """Its thread does not see it."""


def test_a_forked_child_refers_to_its_parent_whose_commit_goes_on(
    committing: Producer, embedded_kafka: EmbeddedBroker
) -> None:
    child = os.fork()
    if child == 0:
        try:
            committing.commit_transaction()
        except LocalProtocolError as error:
            os._exit(7 if "belongs to the process that made it" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert committing._mailbox.open_commits


def test_a_producer_that_ends_without_a_commit_in_flight_is_not_in_doubt(embedded_kafka: EmbeddedBroker) -> None:
    embedded_kafka.create_topic("t")
    producer = transactional(embedded_kafka, "sound", linger_ms=0)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"v").result(20)
    embedded_kafka.core.faults.add(Fault(api="EndTxn", delay_before_ms=HOUR_MS))
    with pytest.raises(OperationTimeout) as caught:
        producer.close(0.2)
    assert caught.value.name == "PKS-5011"
