"""Option names of other clients, option values that are code, and the options object."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from kafka_sink.options.parse import parse_producer_options
from kafka_sink.options.producer_options import INT_MAX, LONG_MAX
from tests.support.option_parsing import parse, parse_named, refusal

# ---- older clients ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("request.required.acks", "-1", "acks", -1),
        ("message.send.max.retries", "3", "retries", 3),
        ("queue.buffering.max.ms", "50", "linger_ms", 50),
        ("queue.enqueue.timeout.ms", "0", "max_block_ms", 0),
        ("queue.enqueue.timeout.ms", "-1", "max_block_ms", LONG_MAX),
        ("queue.enqueue.timeout.ms", "250", "max_block_ms", 250),
        ("queue.buffering.max.messages", "500", "queue_buffering_max_messages", 500),
        ("queue.buffering.max.messages", "0", "queue_buffering_max_messages", None),
        ("batch.num.messages", "200", "batch_num_messages", 200),
        ("producer.type", "sync", "producer_type", "sync"),
        ("producer.type", "async", "producer_type", "async"),
        ("topic.metadata.refresh.interval.ms", "600000", "metadata_max_age_ms", 600_000),
        ("topic.metadata.refresh.interval.ms", "-1", "metadata_max_age_ms", LONG_MAX),
        ("queue.buffering.max.kbytes", "1024", "buffer_memory", 1_048_576),
        ("message.timeout.ms", "300000", "delivery_timeout_ms", 300_000),
        ("message.timeout.ms", "0", "delivery_timeout_ms", INT_MAX),
        ("message.max.bytes", "1000000", "max_request_size", 1_000_000),
        ("max.in.flight", "2", "max_in_flight_requests_per_connection", 2),
        ("socket.send.buffer.bytes", "0", "send_buffer_bytes", -1),
        ("allow.auto.create.topics", "false", "allow_auto_create_topics", False),
        ("partitioner", "murmur2_random", "partitioner", "default"),
        ("partitioner", "consistent_random", "partitioner", "consistent_random"),
        ("partitioner", "random", "partitioner", "random"),
    ],
)
def test_a_name_of_another_client_sets_our_option(name: str, value: str, field: str, expected: object) -> None:
    assert getattr(parse_named({name: value}), field) == expected


@pytest.mark.parametrize("name", ["queue.buffering.max.ms", "message.max.bytes", "producer.type"])
def test_a_name_of_another_client_leaves_a_notice(name: str) -> None:
    notices = parse_named({name: "sync" if name == "producer.type" else "60"}).notices
    assert len(notices) == 1 and notices[0].startswith(name)


def test_the_08_list_of_brokers_replaces_the_bootstrap_list() -> None:
    options = parse_producer_options({"metadata.broker.list": "a:1,b:2"})
    assert options.bootstrap_servers == (("a", 1), ("b", 2))


def test_a_refresh_after_every_record_is_refused() -> None:
    assert "metadata.max.age.ms" in refusal({"topic.metadata.refresh.interval.ms": 0})


def test_more_records_per_batch_than_may_wait_are_refused() -> None:
    assert "batch.num.messages=9" in refusal({"batch.num.messages": 9, "queue.buffering.max.messages": 8})


def test_an_alias_that_contradicts_its_canonical_name_is_refused_with_both_names() -> None:
    for settings in (
        {"max.block.ms": 1, "queue.enqueue.timeout.ms": 2},
        {"queue.enqueue.timeout.ms": 2, "max.block.ms": 1},
    ):
        text = refusal(dict(settings))
        assert "max.block.ms" in text and "queue.enqueue.timeout.ms" in text


def test_an_alias_that_says_the_same_is_taken() -> None:
    assert parse_named({"max.block.ms": 7, "queue.enqueue.timeout.ms": "7"}).max_block_ms == 7


# ---- hooks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spelling", ["RoundRobinPartitioner", "org.apache.kafka.clients.producer.RoundRobinPartitioner"]
)
def test_javas_round_robin_partitioner_is_known_by_its_class_name(spelling: str) -> None:
    assert parse(partitioner_class=spelling).partitioner == "round_robin"


def test_a_callable_partitioner_is_taken_under_both_names() -> None:
    def choose(*arguments: object) -> int:
        return len(arguments)

    assert parse(partitioner=choose).partitioner is choose
    assert parse(partitioner_class=choose).partitioner is choose


SERIALIZED: list[tuple[str, object, bytes | None]] = [
    ("StringSerializer", "é", b"\xc3\xa9"),
    ("ByteArraySerializer", b"x", b"x"),
    ("BytesSerializer", memoryview(b"x"), b"x"),
    ("ByteBufferSerializer", bytearray(b"x"), b"x"),
    ("ShortSerializer", -2, b"\xff\xfe"),
    ("IntegerSerializer", 1, b"\x00\x00\x00\x01"),
    ("LongSerializer", -1, b"\xff" * 8),
    ("FloatSerializer", 1.5, b"\x3f\xc0\x00\x00"),
    ("DoubleSerializer", 1.5, b"\x3f\xf8" + b"\x00" * 6),
    ("BooleanSerializer", True, b"\x01"),
    ("UUIDSerializer", UUID(int=1), b"00000000-0000-0000-0000-000000000001"),
    ("VoidSerializer", None, None),
]


@pytest.mark.parametrize(("name", "value", "expected"), SERIALIZED, ids=[case[0] for case in SERIALIZED])
def test_kafkas_own_serializers_write_the_same_bytes(name: str, value: object, expected: bytes | None) -> None:
    for spelling in (name, f"org.apache.kafka.common.serialization.{name}"):
        serializer = parse(value_serializer=spelling).value_serializer
        assert serializer is not None
        assert serializer(value) == expected
        assert serializer(None) is None


@pytest.mark.parametrize("name", [case[0] for case in SERIALIZED])
def test_kafkas_own_serializers_refuse_what_they_cannot_write(name: str) -> None:
    serializer = parse(key_serializer=name).key_serializer
    assert serializer is not None
    with pytest.raises((TypeError, ValueError, struct.error)):
        serializer(object())


def test_the_08_serializer_serves_values_and_keys_without_their_own() -> None:
    both = parse_named({"serializer.class": "kafka.serializer.StringEncoder"})
    assert both.key_serializer is both.value_serializer is not None
    own = parse_named({"serializer.class": "kafka.serializer.StringEncoder", "key.serializer.class": "LongSerializer"})
    assert own.key_serializer is not own.value_serializer is both.value_serializer


class Auditor:
    def on_send(self, record: object) -> object:
        return record


def test_interceptors_are_python_objects() -> None:
    auditor = Auditor()
    assert parse(interceptors=[auditor]).interceptors == (auditor,)
    assert parse_named({"interceptor.classes": auditor}).interceptors == (auditor,)


@pytest.mark.parametrize("value", [[object()], [Auditor], 5])
def test_what_is_no_interceptor_is_refused(value: object) -> None:
    assert "is not an interceptor" in refusal({"interceptors": value})


# ---- the options object ----------------------------------------------------------------------------------------


def test_options_are_frozen_replaceable_and_survive_pickling() -> None:
    options = parse(value_serializer="StringSerializer", transactional_id="t")
    assert pickle.loads(pickle.dumps(options)) == options
    assert replace(options, linger_ms=9).linger_ms == 9
    with pytest.raises(FrozenInstanceError):
        options.linger_ms = 1  # type: ignore[misc]


def test_the_repr_shows_what_differs_from_the_default_and_no_secret() -> None:
    def encrypt(value: Any, password: str = "") -> bytes:
        return f"{password}{value}".encode()

    hidden: Callable[[Any], bytes] = partial(encrypt, password="hunter2")
    text = repr(parse(key_serializer=hidden, value_serializer=encrypt, linger_ms=9, interceptors=[Auditor()]))
    assert "linger_ms=9" in text and "encrypt" in text and "(Auditor)" in text
    assert "hunter2" not in text and "batch_size" not in text
