"""Records that something else than a driver of this release writes to a ledger."""

from __future__ import annotations

from confluent_kafka import Producer as ConfluentProducer

from kafka_sink.commit.ledger import Kind, LedgerRecord
from kafka_sink.commit.ledger_codec import encode_record
from kafka_sink.commit.receipt import BatchKey
from tests.support.commanding import Sink

RUN = "a" * 16


def put(sink: Sink, key: str | bytes, value: bytes | None, count: int = 1) -> None:
    """In a transaction, so that it is read. `count`: as many of them, in one batch."""
    packed = {"compression.type": "gzip", "message.max.bytes": 20_000_000, "linger.ms": 5_000}
    one_batch = {"batch.size": 20_000_000, "batch.num.messages": count}
    producer = ConfluentProducer(
        {"bootstrap.servers": sink.servers, "transactional.id": f"{sink.sink_id}-foreign", **packed, **one_batch}
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    for _ in range(count):
        producer.produce(sink.ledger_topic, key=key, value=value)
    producer.commit_transaction(20)


def put_plain(sink: Sink, key: str, value: bytes | None) -> None:
    producer = ConfluentProducer({"bootstrap.servers": sink.servers})
    producer.produce(sink.ledger_topic, key=key, value=value)
    producer.flush(20)


def copied(sink: Sink, key: BatchKey, cluster_id: str = "the-old-cluster") -> bytes:
    """A delivered batch of another cluster."""
    rows = {sink.topic: 20}
    record = LedgerRecord(Kind.DONE, sink.sink_id, key, RUN, row_count=20, topics=rows, cluster_id=cluster_id)
    return encode_record(record)
