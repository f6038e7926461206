"""A table of a hundred commits as a change feed to Apache Kafka, with tasks and drivers that die: what a foreign reader
rebuilds from either envelope is the table. Without Spark; with Spark and Delta: tests/spark/test_delta_changes.py."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructType

from kafka_sink.commit.identity import run_of_query, sink_id_of_query
from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.commit.session import Conclusion
from kafka_sink.producer.pool import POOL
from kafka_sink.spark.driver import FinishedBatch, commit_batch
from kafka_sink.spark.planning import plan_query
from kafka_sink.spark.task import write_task
from kafka_sink.spark.task_context import TaskPlace
from tests.support.change_events import rebuild_from_events, rebuild_from_rows, versions_per_key
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster

COMMITS, KEYS, TASKS, PARTITIONS = 100, 20, 2, 3
ROW = StructType().add("id", LongType()).add("name", StringType())
SCHEMA = (
    StructType().add("key", StringType()).add("timestamp", LongType()).add("_change_type", StringType())
    .add("_commit_version", LongType()).add("id", LongType()).add("name", StringType()).add("before", ROW)
)  # fmt: skip
KINDS = {
    "key": pa.string(), "timestamp": pa.int64(), "_change_type": pa.string(), "_commit_version": pa.int64(),
    "id": pa.int64(), "name": pa.string(), "before": pa.struct([("id", pa.int64()), ("name", pa.string())]),
}  # fmt: skip
OPTIONS = {
    "upsert": {"envelope": "upsert", "value.columns": "id,name,_commit_version"},
    "debezium": {"envelope": "debezium", "value.columns": "id,name", "before.column": "before"},
}

Change = dict[str, Any]


class Died(Exception):
    pass


class Source(NamedTuple):
    """A table, and the changes of each commit, as Delta's change data feed has them."""

    table: dict[str, str]
    commits: list[list[Change]]


def make_source(dice: random.Random) -> Source:
    table: dict[int, str] = {}
    commits = []
    for version in range(COMMITS):
        changes: list[Change] = []
        for key in dice.sample(range(KEYS), 5):
            held, name = table.get(key), f"name {version}"
            about = {"key": str(key), "timestamp": 1_700_000_000_000 + version, "_commit_version": version, "id": key}
            before = None if held is None else {"id": key, "name": held}
            if held is None:
                table[key] = name
                changes.append({**about, "_change_type": "insert", "name": name, "before": None})
            elif dice.random() < 0.3:
                del table[key]
                changes.append({**about, "_change_type": "delete", "name": held, "before": None})
            else:
                table[key] = name
                changes.append({**about, "_change_type": "update_preimage", "name": held, "before": None})
                changes.append({**about, "_change_type": "update_postimage", "name": name, "before": before})
        commits.append(changes)
    return Source({str(key): name for key, name in table.items()}, commits)


def arrow_batches(changes: Sequence[Change], dies_after: int | None) -> Iterator[pa.RecordBatch]:
    for begin in range(0, len(changes), 4):
        if dies_after is not None and begin >= dies_after:
            raise Died
        rows = changes[begin : begin + 4]
        yield pa.RecordBatch.from_pydict({name: pa.array([row[name] for row in rows], KINDS[name]) for name in KINDS})
    if dies_after is not None:
        raise Died


class Feed:
    """Spark's part: micro-batches of some commits, tasks by key, attempts and runs."""

    def __init__(self, kafka: KafkaCluster, topic: str, envelope: str, dice: random.Random) -> None:
        settings = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic, "sink.id": topic[-60:].lstrip("-"),
            "value.format": "json", **OPTIONS[envelope],
        }  # fmt: skip
        self._planned = plan_query(settings, SCHEMA)
        assert self._planned.sink_id is not None
        # Queries of other tests are in the same ledger.
        self._query_id = topic
        self._sink_id = sink_id_of_query(self._planned.sink_id, topic)
        self._dice = dice
        self._attempts = self._starts = 0
        self.crashes = {"task": 0, "before commit": 0, "after commit": 0}

    def write(self, batch_id: int, changes: Sequence[Change]) -> None:
        """Until Spark knows that it is delivered."""
        while True:
            run = run_of_query(f"run {self._starts}")
            receipts = [self._task(batch_id, run, task, changes) for task in range(TASKS)]
            fate = self._dice.random()
            if fate < 0.2:
                self._restart("before commit")
                continue
            batch = FinishedBatch(
                self._planned.options,
                self._planned.sink_id,
                BatchKey(self._query_id, batch_id),
                run,
                receipts,
                is_only_sink=True,
            )
            assert commit_batch(batch) in (Conclusion.DELIVERED, Conclusion.ALREADY_DELIVERED)
            if fate > 0.4:
                return
            self._restart("after commit")

    def _restart(self, when: str) -> None:
        """What the process knew is gone; the ledger is not."""
        self._starts += 1
        self.crashes[when] += 1

    def _task(self, batch_id: int, run: str, task: int, changes: Sequence[Change]) -> TaskReceipt:
        own = [change for change in changes if int(change["key"]) % TASKS == task]
        while True:
            self._attempts += 1
            place = TaskPlace(BatchKey(self._query_id, batch_id), run, task, self._attempts, self._sink_id)
            dies_after = self._dice.randrange(len(own) + 1) if own and self._dice.random() < 0.2 else None
            try:
                return write_task(self._planned.options, self._planned.columns, arrow_batches(own, dies_after), place)
            except Died:
                self.crashes["task"] += 1


@pytest.mark.parametrize("envelope", ["upsert", "debezium"])
def test_readers_rebuild_the_table_whatever_has_died(kafka_4: KafkaCluster, topic_name: str, envelope: str) -> None:
    # The order of all records is looked at: on a busy machine the cleaner would come before the reader. A lag would not
    # hold it back: their timestamps are years old. No log is dirtier than wholly dirty.
    never = {"min.cleanable.dirty.ratio": 1.0}
    kafka_4.create_topic(topic_name, partitions=PARTITIONS, config={"cleanup.policy": "compact", **never})
    dice = random.Random(envelope)
    source = make_source(dice)
    feed = Feed(kafka_4, topic_name, envelope, dice)
    left, batch_id = list(source.commits), 0
    while left:
        taken = [left.pop(0) for _ in range(min(len(left), dice.randint(1, 8)))]
        # As behind repartition and sortWithinPartitions, whatever order the commits came in.
        changes = sorted((change for commit in taken for change in commit), key=in_order)
        feed.write(batch_id, changes)
        batch_id += 1
    POOL.close()
    assert min(feed.crashes.values()) > 0
    records = read_topic(kafka_4.bootstrap_servers, topic_name)
    logs = [[record for record in records if record.partition == partition] for partition in range(PARTITIONS)]
    if envelope == "upsert":
        assert rebuild_from_rows(logs) == source.table
        assert all(versions == sorted(set(versions)) for versions in versions_per_key(logs).values())
    else:
        assert rebuild_from_events(logs) == source.table
    changed = [each for commit in source.commits for each in commit if each["_change_type"] != "update_preimage"]
    deletes = sum(each["_change_type"] == "delete" for each in changed)
    assert len(records) == len(changed) + (deletes if envelope == "debezium" else 0)


def in_order(change: Change) -> tuple[str, int, str]:
    return change["key"], change["_commit_version"], change["_change_type"]
