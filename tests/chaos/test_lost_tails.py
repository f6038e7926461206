"""A broker loses the end of its logs, acknowledged rows of a batch that is not committed yet: power fails, and what was
only in the memory of its host is gone. The tests kill it, cut the logs, and start it again.

A leader shows the loss by the number of the producer's last record, which a commit compares with the receipts.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.commit.receipt import TaskReceipt
from kafka_sink.errors import CommitAborted
from kafka_sink.kafka.client.ask import Leaders
from kafka_sink.kafka.wire.apis import DESCRIBE_PRODUCERS
from tests.chaos.bare_spark import PARTITIONS
from tests.chaos.bare_stream import BareStream
from tests.conftest import VERSIONS, or_without_kafka
from tests.support.asking import client_of
from tools.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.chaos, pytest.mark.kafka, pytest.mark.timeout(300)]

# Several batches for each task and partition.
SMALL = {"kafka__batch__size": 300, "kafka__linger__ms": 0}
PREFIX = struct.Struct(">qi")


@pytest.fixture(params=VERSIONS)
def own_kafka(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with or_without_kafka(KafkaCluster(request.param)) as cluster:
        yield cluster


def receipts(messages: list[Any]) -> list[TaskReceipt]:
    return [message.receipt for message in messages]


def told_of(kafka: KafkaCluster, topic: str) -> dict[tuple[int, int], tuple[int, int]]:
    """Epoch and number of the last record, by partition and producer id."""
    indexes = list(range(PARTITIONS))
    body = {"topics": [{"name": topic, "partition_indexes": indexes}]}
    with client_of(kafka.bootstrap_servers) as client:
        answer = client.ask(Leaders(tuple((topic, index) for index in indexes)), DESCRIBE_PRODUCERS, body)
    return {
        (told["partition_index"], one["producer_id"]): (one["producer_epoch"], one["last_sequence"])
        for told in answer["topics"][0]["partitions"]
        for one in told["active_producers"]
    }


def test_leaders_tell_the_number_of_a_tasks_last_row_as_soon_as_it_is_acknowledged(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster
) -> None:
    """Also where a transactional id is used again, with an epoch that nobody has asked for."""
    stream = stream_on(kafka, is_direct=True, **SMALL)
    with stream.query() as query:
        for _ in range(3):
            query.plan()
            messages = query.write_tasks()
            told = told_of(kafka, stream.topic)
            for receipt in receipts(messages):
                assert receipt.transaction is not None and len(receipt.written) == PARTITIONS
                for part in receipt.written:
                    expected = (receipt.transaction.producer_epoch, part.row_count - 1)
                    assert told[part.partition, receipt.transaction.producer_id] == expected
            query.commit(messages)
    stream.check(3)


def cut_last_batch(segment: Path) -> None:
    """As if it had never reached the disk."""
    data, ends = segment.read_bytes(), [0]
    while ends[-1] + PREFIX.size <= len(data):
        _, length = PREFIX.unpack_from(data, ends[-1])
        if length <= 0:
            break
        ends.append(ends[-1] + PREFIX.size + length)
    with segment.open("r+b") as opened:
        opened.truncate(ends[-2])
    for index in segment.parent.glob("*index"):
        index.unlink()


def test_a_batch_whose_acknowledged_rows_a_broker_has_lost_is_refused_and_runs_again(
    stream_on: Callable[..., BareStream], own_kafka: KafkaCluster
) -> None:
    stream = stream_on(own_kafka, is_direct=True, **SMALL)
    with stream.query() as query:
        query.run_batch()
        query.plan()
        messages = query.write_tasks()
        own_kafka.kill(1)
        cut_last_batch(own_kafka.data_folder(1) / f"{stream.topic}-0" / "00000000000000000000.log")
        own_kafka.start(1)
        with pytest.raises(CommitAborted, match=f"have lost acknowledged rows: .* rows to {stream.topic}-0"):
            query.commit(messages)
        query.abort(messages)
    stream.run()
    stream.check(2)
