"""Produce without transactions: topics and partitions, batches, sequences."""

from __future__ import annotations

import gzip

import lz4.frame

from kafka_sink.kafka.wire import apis
from tests.conformance.peer import Peer
from tests.conformance.script import Seen, script
from tests.support.broker_requests import Closed, batch, record


def bad_batches(now_ms: int) -> dict[str, bytes | None]:
    linked = lz4.frame.compress(b"x" * 200_000, block_linked=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB)
    good_section = record(0, b"a")
    cut_gzip = gzip.compress(good_section)[:-9]
    rows = {
        "two batches": batch(b"a", timestamp_ms=now_ms) + batch(b"b", timestamp_ms=now_ms),
        "cut off": batch(b"a", timestamp_ms=now_ms)[:-1],
        "cut before the magic byte": batch(b"a")[:16],
        "length below the minimum": batch(b"a")[:8] + b"\0\0\0\x05" + batch(b"a")[12:],
        "header cut, length right": batch(b"a")[:8] + (40).to_bytes(4, "big") + batch(b"a")[12:52],
        "old format": batch(b"a", magic=1),
        "format of the future": batch(b"a", magic=3),
        "base offset": batch(b"a", base_offset=1, timestamp_ms=now_ms),
        "checksum": batch(b"a", crc=1),
        "count above offsets": batch(b"a", count=2),
        "no record": batch(b"a", count=0, last_offset_delta=-1),
        "negative count": batch(b"a", count=-1),
        "count above records": batch(b"a", count=2, last_offset_delta=1),
        "count below records": batch(b"a", b"b", count=1, last_offset_delta=0),
        "control batch": batch(b"a", attributes=0x20),
        "no sequence": batch(b"a", producer_id=1, epoch=0),
        "bytes behind the records": batch(b"a", section=good_section + b"\0"),
        "record without content": batch(b"a", section=b"\x02"),
        "record longer than the batch": batch(b"a", section=b"\x40" + good_section[1:]),
        "unknown codec": batch(b"a", attributes=5),
        "gzip of nothing": batch(b"a", attributes=1, section=b""),
        "gzip cut off": batch(b"a", attributes=1, section=cut_gzip),
        "no snappy": batch(b"a", attributes=2, section=b"\xff\xff\xff\xff\xff\xff"),
        "no lz4": batch(b"a", attributes=3, section=b"no lz4 frame"),
        "linked lz4 blocks": batch(b"a", attributes=3, section=linked),
        "no zstd": batch(b"a", attributes=4, section=b"no zstd frame"),
        "too large": batch(b"x" * 1_048_588, timestamp_ms=now_ms),
        "exactly at the limit": batch(b"x" * (1_048_588 - 72), timestamp_ms=now_ms),
        "timestamp far in the past": batch(b"a", timestamp_ms=1),
        "no timestamp": batch(b"a", timestamp_ms=-1),
        "append time flag": batch(b"a", attributes=0x08, timestamp_ms=now_ms),
        "lz4 without records": batch(b"a", attributes=3, section=lz4.frame.compress(b"", block_linked=False)),
        "lz4, good": batch(
            b"a", attributes=3, section=lz4.frame.compress(record(0, b"a"), block_linked=False), timestamp_ms=now_ms
        ),
        "gzip, good": batch(b"a", attributes=1, section=gzip.compress(record(0, b"a")), timestamp_ms=now_ms),
        "empty": b"",
    }
    return dict(rows)


@script()
def batches_that_are_refused(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    for name, records in bad_batches(peer.now()).items():
        seen.note(name, peer.produce(records, topic=peer.topic))
    seen.note("end", peer.fetch(topic=peer.topic)["high_watermark"])


@script()
def timestamps_in_the_future(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic, configs={"message.timestamp.after.max.ms": "1000"})
    late = batch(b"a", b"b", timestamp_ms=peer.now() + 100_000)
    body = {
        "transactional_id": None,
        "acks": 1,
        "timeout_ms": 1000,
        "topic_data": [{"name": peer.topic, "partition_data": [{"index": 0, "records": late}]}],
    }
    one = peer.ask(1, apis.PRODUCE, 9, body)["responses"][0]["partition_responses"][0]
    seen.note("code", one["error_code"])
    seen.note("records", [error["batch_index"] for error in one["record_errors"]])


@script()
def records_without_keys_in_a_compacted_topic(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic, configs={"cleanup.policy": "compact"})
    records = batch(b"a", b"b", b"c", keys=(None, b"k", None), timestamp_ms=peer.now())
    body = {
        "transactional_id": None,
        "acks": 1,
        "timeout_ms": 1000,
        "topic_data": [{"name": peer.topic, "partition_data": [{"index": 0, "records": records}]}],
    }
    one = peer.ask(1, apis.PRODUCE, 9, body)["responses"][0]["partition_responses"][0]
    seen.note("code", one["error_code"])
    seen.note("records", [error["batch_index"] for error in one["record_errors"]])
    seen.note("with a key", peer.produce(batch(b"a", keys=(b"k",), timestamp_ms=peer.now()), topic=peer.topic))


@script()
def topic_limits(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic, configs={"max.message.bytes": "100"})
    for size in (29, 30, 31, 40):
        seen.note(f"{size}", peer.produce(batch(b"x" * size, timestamp_ms=peer.now()), topic=peer.topic))


@script()
def append_time(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic, configs={"message.timestamp.type": "LogAppendTime"})
    good = batch(b"a", b"b", timestamp_ms=5)
    seen.note("plain", peer.produce(good, topic=peer.topic))
    seen.note("flag set", peer.produce(batch(b"a", attributes=0x08), topic=peer.topic))
    records = peer.fetch(topic=peer.topic)["records"]
    seen.note("attributes", records[21:23].hex())
    seen.note("time is now", abs(int.from_bytes(records[35:43], "big") - peer.now()) < 60_000)


@script()
def wrong_places(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    good = batch(b"a", timestamp_ms=peer.now())
    seen.note("unknown topic", peer.produce(good, topic=peer.name("nowhere")))
    seen.note("unknown partition", peer.produce(good, topic=peer.topic, partition=2))
    seen.note("negative partition", peer.produce(good, topic=peer.topic, partition=-1))
    for acks in (2, -2, 0x7FFF):
        seen.note(f"acks {acks}", peer.produce(good, topic=peer.topic, acks=acks))
    for version in range(3, 12):
        seen.note(f"version {version}", peer.produce(good, topic=peer.topic, version=version))
    seen.note("transactional id, plain batch", peer.produce(good, topic=peer.topic, transactional_id="x"))
    peer.find("x")
    seen.note("transaction log", peer.produce(good, topic="__transaction_state"))
    zstd = batch(b"a", attributes=4, section=b"whatever")
    seen.note("zstd before version 7", peer.produce(zstd, topic=peer.topic, version=6))


@script()
def acks_zero(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    body = {
        "transactional_id": None,
        "acks": 0,
        "timeout_ms": 1000,
        "topic_data": [{"name": peer.topic, "partition_data": [{"index": 5, "records": batch(b"a")}]}],
    }
    try:
        peer.ask(1, apis.PRODUCE, 9, body)
    except Closed:
        seen.note("error", "closed")


@script(needs_version_2=True)
def topic_ids(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    topic_id = peer.metadata(peer.topic)["topic_id"]

    def produce(topic_id: bytes) -> int:
        answer = peer.ask(
            1,
            apis.PRODUCE,
            13,
            {
                "transactional_id": None,
                "acks": 1,
                "timeout_ms": 1000,
                "topic_data": [
                    {
                        "topic_id": topic_id,
                        "partition_data": [{"index": 0, "records": batch(b"a", timestamp_ms=peer.now())}],
                    }
                ],
            },
        )
        return int(answer["responses"][0]["partition_responses"][0]["error_code"])

    seen.note("known", produce(topic_id))
    seen.note("unknown", produce(b"\x01" * 16))
    seen.note("zero", produce(bytes(16)))
    peer.ask(1, apis.DELETE_TOPICS, 6, {"topics": [{"name": peer.topic, "topic_id": bytes(16)}], "timeout_ms": 5000})
    for _ in range(100):
        if peer.metadata(peer.topic)["error_code"]:
            break
        peer.advance(20)
    peer.create_topic(peer.topic)
    seen.note("old id", produce(topic_id))
    seen.note("new id", produce(peer.metadata(peer.topic)["topic_id"]))


# ---- sequences ----


class Producer:
    """Notes the answer to each batch of an idempotent producer."""

    def __init__(self, peer: Peer, seen: Seen, partition: int = 0, version: int = 11) -> None:
        self.peer, self.seen, self.partition, self.version = peer, seen, partition, version
        self.producer_id = peer.init(None)[1]

    def send(self, sequence: int, count: int = 1, epoch: int = 0) -> None:
        records = batch(
            *[b"v"] * count, producer_id=self.producer_id, epoch=epoch, sequence=sequence, timestamp_ms=self.peer.now()
        )
        answer = self.peer.produce(records, topic=self.peer.topic, partition=self.partition, version=self.version)
        self.seen.note(f"epoch {epoch} sequence {sequence}+{count}", answer)


@script()
def sequence_window(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    producer = Producer(peer, seen)
    for sequence in range(7):
        producer.send(sequence)
    for sequence in range(7):
        producer.send(sequence)
    producer.send(7, count=3)
    producer.send(7, count=3)
    producer.send(7, count=2)
    producer.send(8, count=2)
    producer.send(9, count=2)
    producer.send(11)
    producer.send(10)
    seen.note("end", peer.fetch(topic=peer.topic)["high_watermark"])


@script()
def sequences_of_an_unknown_producer(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    Producer(peer, seen).send(17)
    Producer(peer, seen).send(0)
    other = Producer(peer, seen)
    other.send(2147483646)
    other.send(2147483647, count=3)
    other.send(2147483647, count=3)
    other.send(2)
    other.send(0)
    other.send(3)


@script()
def sequences_and_epochs(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    producer = Producer(peer, seen)
    producer.send(0, count=2)
    producer.send(2, epoch=1)
    producer.send(5, epoch=1)
    producer.send(0, epoch=1)
    producer.send(0, count=2)
    producer.send(2)
    producer.send(0, epoch=1)
    producer.send(1, epoch=1)
    producer.send(0, epoch=32767)
    producer.send(1, epoch=32767)


@script(needs_version_2=True)
def sequences_with_the_newest_produce(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    producer = Producer(peer, seen, version=12)
    producer.send(4)
    producer.send(5)
    producer.send(5)
    producer.send(1, epoch=1)


@script()
def producer_state_expires(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    producer = Producer(peer, seen)
    producer.send(0)
    producer.send(2)
    peer.advance(9500)
    producer.send(9)
    producer.send(0, epoch=0)
