"""What tests of producers share: a producer in one line, what foreign readers see, what is left open."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

import pyarrow as pa
import pytest

from kafka_sink import Producer
from tools.foreign_reader import Isolation, end_offsets, read_topic, wait_until_settled
from tools.waiting import PATIENCE_S

# For futures.
TIMEOUT_S = PATIENCE_S


class Servers(Protocol):
    """Any cluster: Apache Kafka, the embedded broker, a proxy."""

    @property
    def bootstrap_servers(self) -> str: ...


def producer_of(kafka: Servers, **options: object) -> Producer:
    """Names of `options` have underscores in place of dots."""
    named = {name.replace("_", "."): options[name] for name in options}
    return Producer({"bootstrap.servers": kafka.bootstrap_servers, **named})


def transactional(kafka: Servers, transactional_id: str, **more: object) -> Producer:
    return producer_of(kafka, transactional_id=transactional_id, **more)


def transact(producer: Producer, topic: str, *sent: bytes) -> None:
    """One committed transaction."""
    producer.begin_transaction()
    for value in sent:
        producer.send(topic, value=value)
    producer.commit_transaction()


def values(kafka: Servers, topic: str, isolation: Isolation = "read_committed") -> list[bytes | None]:
    return [record.value for record in read_topic(kafka.bootstrap_servers, topic, isolation)]


def rows(prefix: str, count: int) -> pa.Table:
    return pa.table({"value": pa.array([b"%s-%d" % (prefix.encode(), number) for number in range(count)])})


def is_settled(kafka: Servers, topic: str) -> bool:
    servers = kafka.bootstrap_servers
    wait_until_settled(servers, topic)
    return end_offsets(servers, topic, "read_committed") == end_offsets(servers, topic, "read_uncommitted")


def transacted_for(
    seconds: float, options: Mapping[str, object], topic: str, caplog: pytest.LogCaptureFixture
) -> tuple[list[bytes], list[str]]:
    """Runs a transaction for so many seconds, while sessions and credentials end. Returns values and log messages."""
    sent: list[bytes] = []
    with caplog.at_level(logging.DEBUG, "kafka_sink"), Producer(options) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            sent.append(b"%06d" % len(sent))
            producer.send(topic, value=sent[-1])
            time.sleep(0.03)
        producer.commit_transaction()
    return sent, [record.getMessage() for record in caplog.records]


def senders() -> list[threading.Thread]:
    """The sender threads of all producers of this process that are open."""
    return [thread for thread in threading.enumerate() if thread.name.startswith("kafka-sink-sender")]


def replace_start(monkeypatch: pytest.MonkeyPatch, act: Callable[[threading.Thread], None]) -> None:
    """`act` instead of the start of each thread that the current one starts. Other threads start theirs as always."""
    start, mine = threading.Thread.start, threading.get_ident()

    def start_or_act(thread: threading.Thread) -> None:
        (act if threading.get_ident() == mine else start)(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_act)


def break_engine(monkeypatch: pytest.MonkeyPatch, producer: Producer) -> None:
    """The next step of its engine raises ZeroDivisionError; those of other producers go on."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(producer._core.sender._engine, "step", broken)


def descriptor_count() -> int:
    return len(os.listdir("/proc/self/fd"))
