"""Reads whole topics with code that is not ours: confluent-kafka, or Java's console consumer.

Tests check the log with these readers, never with our own decoder. Both readers start at the beginning and end where
the log ends for the requested isolation level. They ask the leader for that position first: a newly elected leader
does not yet return all of its records to a reader, and only a request for the end offset reveals this.

The markers that end a transaction are written after the coordinator has answered, so an early read_committed reader
may find the transaction still open and stop before it. Reading committed records therefore first waits until no
transaction is open; a test that does not want to wait for an open one passes `settle_timeout_s=0`.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its stubs do not re-export it

from tools.java import console_consumer, release, run_class
from tools.kafka_jars import VERSIONS
from tools.waiting import PATIENCE_S, wait_until

Isolation = Literal["read_committed", "read_uncommitted"]

_LOGGER = logging.getLogger("tools.foreign_reader")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ForeignRecord:
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def read_topic(
    bootstrap_servers: str,
    topic: str,
    isolation: Isolation = "read_committed",
    *,
    timeout_s: float = PATIENCE_S,
    settle_timeout_s: float = 60,
) -> list[ForeignRecord]:
    """All records, sorted by partition and offset."""
    records = list(
        scan_topic(bootstrap_servers, topic, isolation, timeout_s=timeout_s, settle_timeout_s=settle_timeout_s)
    )
    return sorted(records, key=lambda record: (record.partition, record.offset))


def scan_topic(
    bootstrap_servers: str,
    topic: str,
    isolation: Isolation = "read_committed",
    *,
    timeout_s: float = PATIENCE_S,
    settle_timeout_s: float = 60,
) -> Iterator[ForeignRecord]:
    """Yields the records one by one, partitions mixed, for topics that do not fit into memory. `timeout_s` limits the
    time without a record, not the whole time."""
    if isolation == "read_committed" and settle_timeout_s > 0:
        ends = wait_until_settled(bootstrap_servers, topic, timeout_s=settle_timeout_s)
    else:
        ends = end_offsets(bootstrap_servers, topic, isolation)
    consumer = _consumer(bootstrap_servers, isolation)
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        unfinished = {partition for partition, end in ends.items() if end > 0}
        heard_at = time.monotonic()
        while unfinished:
            # Any: as in _foreign_record.
            messages: list[Any] = consumer.consume(10_000, timeout=0.05)
            for message in messages:
                heard_at = time.monotonic()
                error = message.error()
                if error is None:
                    yield _foreign_record(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    if message.offset() >= ends[message.partition()]:
                        unfinished.discard(message.partition())
                elif not error.retriable() and error.code() not in _PASSING:
                    raise KafkaException(error)
            if time.monotonic() - heard_at > timeout_s:
                raise TimeoutError(f"no record of {topic} for {timeout_s} s, partitions {sorted(unfinished)} unread")
    finally:
        consumer.close()


class TopicFollower:
    """Reads committed records while others write; it survives outages."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        # By partition: the offset at which the reader last reached the end.
        self.ends: dict[int, int] = {}
        self._consumer = _consumer(bootstrap_servers, "read_committed")
        found = partition_ids(self._consumer, topic)
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in found])

    def __enter__(self) -> TopicFollower:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def poll(self, timeout_s: float) -> list[ForeignRecord]:
        """Returns new records; waits for at most `timeout_s` if there are none."""
        found = []
        # Any: as in _foreign_record.
        messages: list[Any] = self._consumer.consume(10_000, timeout=timeout_s)
        for message in messages:
            error = message.error()
            if error is None:
                found.append(_foreign_record(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                self.ends[message.partition()] = message.offset()
            elif not error.retriable() and error.code() not in _PASSING:
                raise KafkaException(error)
        return found


def _consumer(bootstrap_servers: str, isolation: Isolation) -> Consumer:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": f"foreign-reader-{uuid.uuid4()}",
        "isolation.level": isolation,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "check.crcs": True,
        "reconnect.backoff.max.ms": 500,
        # Without records a broker answers after that time: the end of each partition that is read is seen so late.
        "fetch.wait.max.ms": 50,
    }
    return Consumer(settings, logger=_LOGGER)


def _foreign_record(message: Any) -> ForeignRecord:
    # Any: the stubs say that every part may be None, which holds for error messages only.
    headers = tuple(message.headers() or ())
    return ForeignRecord(
        message.partition(), message.offset(), message.key(), message.value(), headers, message.timestamp()[1]
    )


# librdkafka reports these while it reconnects by itself; chaos tests read while brokers stop and start.
_PASSING = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)


def partition_ids(client: Consumer | AdminClient, topic: str) -> list[int]:
    """Repeats the question, because the broker that is asked may not know the topic yet."""

    def find_partitions() -> list[int]:
        told = client.list_topics(topic, timeout=20).topics[topic]
        if told.error is not None:
            raise KafkaException(told.error)
        return sorted(told.partitions)

    return _while_settling(find_partitions, f"{topic} is known to the brokers")


def end_offsets(bootstrap_servers: str, topic: str, isolation: Isolation = "read_uncommitted") -> dict[int, int]:
    """The offset after the last record, including control records; for read_committed the last stable offset."""
    return _end_offsets(_admin(bootstrap_servers), topic, isolation)


class EndsFollower:
    """The same again and again, with one client."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._admin = _admin(bootstrap_servers)

    def end_offsets(self, topic: str, isolation: Isolation = "read_uncommitted") -> dict[int, int]:
        return _end_offsets(self._admin, topic, isolation)


def wait_until_settled(bootstrap_servers: str, topic: str, *, timeout_s: float = 60) -> dict[int, int]:
    """Waits until no partition of the topic has an open transaction. Returns the end offset of each."""
    admin = _admin(bootstrap_servers)
    stable: dict[int, int] = {}

    def is_settled() -> bool:
        stable.update(_end_offsets(admin, topic, "read_committed"))
        return stable == _end_offsets(admin, topic, "read_uncommitted")

    wait_until(is_settled, lambda: f"a transaction is still open in {topic}; stable end: {stable}", timeout_s)
    return stable


# Brokers answer with these codes if a topic is new to them, and around an election: UNKNOWN_TOPIC_OR_PARTITION,
# LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, OFFSET_NOT_AVAILABLE.
# librdkafka does not retry them.
_SETTLING_CODES = frozenset({3, 5, 6, 74, 75, 78})


class _NotYet(Exception):
    pass


def _while_settling(ask: Callable[[], T], what: str) -> T:
    def try_to_ask() -> tuple[T]:
        try:
            return (ask(),)
        except KafkaException as error:
            if error.args[0].code() not in _SETTLING_CODES:
                raise
            raise _NotYet from error

    (answer,) = wait_until(try_to_ask, what, passing=(_NotYet,))
    return answer


def _end_offsets(admin: AdminClient, topic: str, isolation: Isolation) -> dict[int, int]:
    return _while_settling(lambda: _end_offsets_now(admin, topic, isolation), f"the leaders of {topic} know its end")


def _end_offsets_now(admin: AdminClient, topic: str, isolation: Isolation) -> dict[int, int]:
    level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    wanted = {TopicPartition(topic, partition): latest for partition in partition_ids(admin, topic)}
    answers = admin.list_offsets(wanted, isolation_level=level, request_timeout=20)
    return {asked.partition: answer.result(30).offset for asked, answer in answers.items()}


def _admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers}, logger=_LOGGER)


# The Java console consumer

# Its output is text. BytesDeserializer prints every byte that is not printable ASCII, and the backslash itself, as
# \xHH, so a tab, a line feed and a control character can only be separators. The word for null is printed in the same
# way and could be a value, so each call uses a new random word.
_BYTES = "org.apache.kafka.common.serialization.BytesDeserializer"
_HEADER_MARK = "\x1f"
_ESCAPED = re.compile(rb"\\x([0-9A-Fa-f]{2})")


def read_topic_java(
    bootstrap_servers: str,
    topic: str,
    isolation: Isolation = "read_committed",
    *,
    version: str = VERSIONS[0],
    silence_ms: int = 8000,
    settle_timeout_s: float = 60,
) -> list[ForeignRecord]:
    """All records as Java reads them. The console consumer does not stop at the end, but after `silence_ms` without a
    record.

    On a busy machine its first record may take longer than that. If the topic has records, it is then started again.

    Header names must be ASCII without `:` and the unit separator, which separate headers in the output.
    """
    if isolation == "read_committed" and settle_timeout_s > 0:
        wait_until_settled(bootstrap_servers, topic, timeout_s=settle_timeout_s)
    null = uuid.uuid4().hex
    shown = ("timestamp", "partition", "offset", "headers", "key", "value")
    properties = [f"print.{part}=true" for part in shown]
    properties += [f"{part}.deserializer={_BYTES}" for part in ("key", "value", "headers")]
    properties += [f"null.literal={null}", f"headers.separator={_HEADER_MARK}"]
    flag = "--property" if release(version) < (4, 2) else "--formatter-property"
    arguments = ["--bootstrap-server", bootstrap_servers, "--topic", topic, "--from-beginning"]
    arguments += ["--isolation-level", isolation]
    for text in properties:
        arguments += [flag, text]
    output = b""
    for patience_ms in (silence_ms, 8 * silence_ms):
        timeout = ["--timeout-ms", str(patience_ms)]
        output = run_class(version, console_consumer(version), arguments + timeout, timeout_s=600)
        if output or not any(end_offsets(bootstrap_servers, topic).values()):
            break
    records = [_parse_console_line(line, null.encode()) for line in output.split(b"\n") if line]
    return sorted(records, key=lambda record: (record.partition, record.offset))


def _parse_console_line(line: bytes, null: bytes) -> ForeignRecord:
    timestamp, partition, offset, headers, key, value = line.split(b"\t")
    return ForeignRecord(
        partition=int(partition.removeprefix(b"Partition:")),
        offset=int(offset.removeprefix(b"Offset:")),
        key=_unescape(key, null),
        value=_unescape(value, null),
        headers=_parse_console_headers(headers, null),
        timestamp_ms=int(timestamp.partition(b":")[2]),
    )


def _parse_console_headers(text: bytes, null: bytes) -> tuple[tuple[str, bytes | None], ...]:
    if text == b"NO_HEADERS":
        return ()
    pairs = (header.split(b":", 1) for header in text.split(_HEADER_MARK.encode()))
    return tuple((name.decode(), _unescape(value, null)) for name, value in pairs)


def _unescape(text: bytes, null: bytes) -> bytes | None:
    if text == null:
        return None
    return _ESCAPED.sub(lambda match: bytes([int(match[1], 16)]), text)
