"""Rows that a transactional producer accepted and could not put into a batch: the transaction cannot be committed.

`send` and `send_arrow` have returned by then, and whoever looks at no future would commit a part of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from kafka_sink import Producer
from kafka_sink.errors import BufferExhausted, DataError, TransactionAborted
from kafka_sink.testing import EmbeddedBroker, Fault


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(topics={"t": 2}) as started:
        yield started


def transactional(broker: EmbeddedBroker, **more: object) -> Producer:
    named = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "rejected", **more}
    producer = Producer(named)
    producer.init_transactions()
    producer.begin_transaction()
    return producer


def assert_only_an_abort_helps(producer: Producer) -> None:
    for end in (producer.commit_transaction, producer.prepare_transaction):
        with pytest.raises(TransactionAborted, match="must be aborted"):
            end()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("t", b"next", partition=0)
    producer.commit_transaction()


def test_a_call_of_which_a_part_found_no_room_prevents_the_commit(broker: EmbeddedBroker) -> None:
    rows = pa.table({"value": [b"x" * 1000] * 400})
    small = {"buffer.memory": 100_000, "batch.size": 1000, "max.block.ms": 2000}
    with transactional(broker, **small) as producer:
        broker.inject(Fault("Produce", delay_before_ms=3000))
        future = producer.send_arrow(rows, topic="t")
        assert isinstance(future.failure, BufferExhausted)
        assert_only_an_abort_helps(producer)
    assert [record.value for record in broker.records("t")] == [b"next"]


@pytest.mark.parametrize("partition", [7, "none"])
def test_a_row_that_the_partitioner_cannot_place_prevents_the_commit(broker: EmbeddedBroker, partition: object) -> None:
    def place(topic: str, rows: object, view: object) -> list[int]:
        if partition == 7:
            return [7] * rows.row_count  # type: ignore[attr-defined]
        raise RuntimeError("no place")

    with transactional(broker, partitioner=place) as producer:
        future = producer.send("t", b"lost")
        with pytest.raises(TransactionAborted):
            producer.commit_transaction()
        assert isinstance(future.exception(0), DataError)
        producer.abort_transaction()
    assert broker.records("t") == []
