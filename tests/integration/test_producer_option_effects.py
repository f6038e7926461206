"""Options of the producer whose effect is seen in the broker's log; see tests/mistakes/wiring.py."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kafka_sink import Producer
from kafka_sink.testing import EmbeddedBroker

CODEC_AT, CODEC_BITS = 22, 7
CODES = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
WORDS = [b"%08x" % random.Random(number).getrandbits(32) for number in range(50)]
ROWS = [b"".join(random.Random(number).choices(WORDS, k=60)) for number in range(300)]


def log_after(broker: EmbeddedBroker, topic: str, **options: Any) -> bytes:
    """The bytes of a topic's only partition after these rows."""
    named = {name.replace("_", "."): value for name, value in options.items()}
    broker.create_topic(topic, 1)
    with Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 60_000, **named}) as producer:
        for row in ROWS:
            producer.send(topic, value=row, timestamp_ms=1)  # those of the clock would change the size
    with broker.control() as core:
        log = core.cluster.topics[topic].partitions[0].log
        return log.read(0, 100_000_000, log.end_offset, at_least_one=True)[0]


@pytest.mark.parametrize("codec", CODES)
def test_batches_have_the_codec_of_the_option(codec: str, broker: EmbeddedBroker) -> None:
    assert log_after(broker, "t", compression_type=codec)[CODEC_AT] & CODEC_BITS == CODES[codec]


@pytest.mark.parametrize(("codec", "low", "high"), [("gzip", 1, 9), ("lz4", 9, 17), ("zstd", -50, 19)])
def test_the_level_of_compression_is_that_of_the_option(
    codec: str, low: int, high: int, broker: EmbeddedBroker
) -> None:
    sizes = [
        len(log_after(broker, f"t{level}", compression_type=codec, **{f"compression.{codec}.level": level}))
        for level in (low, high)
    ]
    assert sizes[0] != sizes[1]


def test_with_partitioner_ignore_keys_one_batch_has_rows_of_all_keys(broker: EmbeddedBroker) -> None:
    broker.create_topic("wide", 8)
    options = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5_000}
    used: list[int] = []
    for ignores in (False, True):
        with Producer({**options, "partitioner.ignore.keys": ignores}) as producer:
            sent = [producer.send("wide", key=b"key-%d" % number, value=b"v") for number in range(50)]
            producer.flush()
            used.append(len({one.result(60).partition for one in sent}))
    assert used[0] > 1 and used[1] == 1


def test_keys_and_values_go_through_their_serializers_and_interceptors(broker: EmbeddedBroker) -> None:
    broker.create_topic("t", 1)
    seen: list[str] = []

    class Noting:
        def on_send(self, record: Any) -> Any:
            seen.append(record.topic)
            return record

    options = {"bootstrap.servers": broker.bootstrap_servers, "interceptor.classes": [Noting()]}
    encoders = {"key.serializer": lambda key: b"key " + key, "value.serializer": lambda value: b"%d" % value}
    with Producer({**options, **encoders}) as producer:
        producer.send("t", key=b"a", value=7).result(60)
    assert [(record.key, record.value) for record in broker.records("t")] == [(b"key a", b"7")]
    assert seen == ["t"]


def test_with_producer_type_sync_a_record_is_acknowledged_when_send_returns(broker: EmbeddedBroker) -> None:
    broker.create_topic("t", 1)
    options = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 2_000}
    done = []
    for kind in ("async", "sync"):
        with Producer({**options, "producer.type": kind}) as producer:
            done.append(producer.send("t", value=b"v").done())
    assert done == [False, True]


def test_only_the_topics_of_compressed_topics_are_compressed(broker: EmbeddedBroker) -> None:
    options = {"compression_type": "gzip", "compressed_topics": "t1"}
    codecs = [log_after(broker, topic, **options)[CODEC_AT] & CODEC_BITS for topic in ("t1", "t2")]
    assert codecs == [CODES["gzip"], CODES["none"]]


def test_a_producer_says_which_options_have_another_name(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    Producer({"bootstrap.servers": broker.bootstrap_servers, "queue.buffering.max.ms": 7}).close()
    assert "queue.buffering.max.ms is a name of" in caplog.text
