"""Manifests of tasks and commits without Spark, with the embedded broker."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # stubs do not re-export it
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

import kafka_sink
from kafka_sink import Producer
from kafka_sink.commit.admin import manifests as manifests_module
from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.identity import run_of_query, sink_id_of_query
from kafka_sink.commit.receipt import BatchId, BatchKey, TaskReceipt, WrittenPartition
from kafka_sink.errors import CommitAborted, CommitPending, ConfigError
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.producer.pool import POOL
from kafka_sink.spark import driver as driver_module
from kafka_sink.spark.columns import choose_columns
from kafka_sink.spark.driver import Driver, FinishedBatch, commit_batch
from kafka_sink.spark.planning import plan_query
from kafka_sink.spark.task import write_task
from kafka_sink.spark.task_context import TaskPlace
from kafka_sink.testing import BrokerCluster, EmbeddedBroker, Fault, acl
from kafka_sink.testing.acl import Acl
from tests.support.page_blocks import code_blocks
from tests.support.producing import transactional
from tools.foreign_reader import read_topic

SCHEMA = StructType().add("value", StringType()).add("topic", StringType())
RUN = run_of_query("run")
DUPLICATE_SEQUENCE = 46
PARTITIONS = 120
# Of three partitions its manifests are not in the first one.
QUERY_ELSEWHERE = "elsewhere"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(1, topics={"a": 1, "dead": 1, "manifests": 1}) as broker:
        yield broker
    POOL.close()


def options_of(broker: EmbeddedBroker, **more: str) -> dict[str, str]:
    named = {"kafka.bootstrap.servers": broker.bootstrap_servers, "sink.id": "s", "manifest.topic": "manifests"}
    return named | {name.replace("_", "."): value for name, value in more.items()}


def write(
    options: SinkOptions,
    sink: str,
    key: BatchKey,
    rows: Sequence[tuple[str, str]] = (("x", "a"),),
    *,
    run: str = RUN,
    task: int = 0,
) -> list[TaskReceipt]:
    values, topics = (pa.array(column, pa.string()) for column in zip(*rows, strict=True))
    given = pa.RecordBatch.from_arrays([values, topics], ["value", "topic"])
    place = TaskPlace(key, run, task, 0, sink_id_of_query(sink, key.query_id))
    return [write_task(options, choose_columns(SCHEMA, None), iter([given]), place)]


def deliver(named: dict[str, str], query: str, batches: int) -> None:
    """Until a reader sees the last manifest: another thread writes it, and brokers its marker, after the commit."""
    planned = plan_query(named, SCHEMA)
    assert planned.sink_id is not None
    for number in range(batches):
        key = BatchKey(query, number)
        receipts = write(planned.options, planned.sink_id, key)
        commit_batch(FinishedBatch(planned.options, planned.sink_id, key, RUN, receipts))
    assert kafka_sink.read_manifests(named, query=query, batch=batches - 1, timeout_s=60)


def found(named: dict[str, str], **chosen: Any) -> list[tuple[str, BatchId]]:
    return [(one.query_id, one.batch_id) for one in kafka_sink.read_manifests(named, **chosen)]


def test_foreign_records_in_the_topic_are_passed_over_with_one_word_about_them(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    named = options_of(broker)
    deliver(named, "q", 1)
    one = {"pykafka-sink-manifest": 1}
    foreign = [b"[" * 100_000, json.dumps(one).encode(), json.dumps({**one, "topics": []}).encode(), None]
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        for value in foreign:
            producer.send("manifests", value, b"key").result()
    deliver(named, "r", 1)
    assert found(named) == [("q", 0), ("r", 0)]
    (warned,) = [record.getMessage() for record in caplog.records if "no manifests" in record.getMessage()]
    assert "manifests has 3 records that are no manifests" in warned and "in partition 0, offset 2" in warned


def test_a_driver_that_closes_a_decision_of_another_one_tells_its_dead_letters_apart(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row may name the topic of the letters itself, too."""
    named = options_of(broker, record_errors="dead-letter", dead_letter_topic="dead", kafka_max_request_size="2000")
    options = plan_query(named, SCHEMA).options
    rows = [("x", "a"), ("y" * 3000, "a"), ("z", "dead"), ("y" * 3000, "dead"), ("x", "a")]
    key = BatchKey("query", 0)
    receipts = write(options, "s", key, rows)
    assert receipts[0].dead_letters == (WrittenPartition("dead", 0, 2, 1, 2),)
    monkeypatch.setattr(driver_module, "lives_on", lambda: True)
    with Client(options.producer) as client:
        result = Driver(options, "s", RUN, key).commit(client, key, receipts)
        # Its process ends before it writes the record.
        assert result.closing is not None and kafka_sink.read_manifests(named) == []
        Driver(options, "s", run_of_query("another"), key).finish(client)
    (manifest,) = kafka_sink.read_manifests(named)
    assert manifest.row_count == sum(each.row_count for each in manifest.partitions) == 3
    assert manifest.partitions == (WrittenPartition("a", 0, 2, 0, 1), WrittenPartition("dead", 0, 1, 0, 2))
    assert manifest.dead_letters == receipts[0].dead_letters


def test_a_sink_that_its_checkpoint_names_finds_its_own_manifests_alone(broker: EmbeddedBroker) -> None:
    named = options_of(broker)
    del named["sink.id"]
    deliver({**named, "checkpointLocation": "/data/one"}, "first", 2)
    deliver({**named, "checkpointLocation": "/data/two"}, "second", 1)
    assert found({**named, "checkpointLocation": "file:///data/two/"}) == [("second", 0)]
    assert found({**named, "checkpointLocation": "/data/two"}, batch=1) == []
    assert found(named, batch=0) == [("first", 0), ("second", 0)]


def test_one_of_several_queries_of_a_sink_is_chosen_by_its_id(broker: EmbeddedBroker) -> None:
    """A new checkpoint counts from 0 again."""
    named = options_of(broker)
    deliver(named, "old", 2)
    deliver(named, "new", 1)
    assert found(named, batch=0) == [("old", 0), ("new", 0)]
    assert found(named, query="new") == found({**named, "Query.id": "new"}) == [("new", 0)]
    assert found(named, query="new", batch=1) == []
    assert found({**named, "query.id": "old"}, query="new") == [("new", 0)]
    assert found({**named, "query.id": " new\n"}) == [("new", 0)]  # as a write has it


@pytest.mark.parametrize("name", ["sink.id", "query.id", "checkpointLocation"])
def test_what_has_no_value_is_no_name_of_manifests(broker: EmbeddedBroker, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"these options have no value \(None\): {name}"):
        kafka_sink.read_manifests({**options_of(broker), name: None})
    with pytest.raises(ConfigError, match=r"query\.id and Query\.Id mean the same and have different values"):
        kafka_sink.read_manifests({**options_of(broker), "query.id": "old", "Query.Id": "new"})


def test_who_waits_for_a_manifest_finds_it_in_a_partition_that_is_added_meanwhile(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = options_of(broker)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    is_added = False

    def sleep(_: float) -> None:
        nonlocal is_added
        if not is_added:
            admin.create_partitions([NewPartitions("manifests", 3)])["manifests"].result(30)
            deliver(named, QUERY_ELSEWHERE, 1)
            is_added = True

    monkeypatch.setattr(manifests_module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    (manifest,) = kafka_sink.read_manifests(named, batch=0, timeout_s=60)
    assert manifest.query_id == QUERY_ELSEWHERE and is_added
    assert {record.partition for record in read_topic(broker.bootstrap_servers, "manifests")} != {0}


def test_the_reader_of_the_guide_waits_for_rows_behind_another_s_open_transaction(broker: EmbeddedBroker) -> None:
    named = options_of(broker)
    other = transactional(broker, "another application", linger_ms=0, transaction_timeout_ms=900_000)
    other.init_transactions()
    other.begin_transaction()
    other.send("a", b"of another").result(20)
    deliver(named, "query", 1)
    (manifest,) = kafka_sink.read_manifests(named, timeout_s=60)  # another thread closes the decision
    assert manifest.partitions == (WrittenPartition("a", 0, 1, 1, 1),) and broker.records("a") == []
    rows_of = reader_of_the_guide()
    (told,) = read_topic(broker.bootstrap_servers, "manifests")
    with pytest.raises(RuntimeError, match="a-0 has 0 rows up to 1, not 1"):
        rows_of(told.value, broker.bootstrap_servers, patience_s=0.5)
    threading.Timer(1, other.abort_transaction).start()
    assert rows_of(told.value, broker.bootstrap_servers) == [b"x"]
    other.close()


def test_the_reader_of_the_guide_does_not_take_rows_of_another_chunk_for_those_of_its_own(
    broker: EmbeddedBroker,
) -> None:
    """Two chunks at a time: the one task of the second ends between the two tasks of the first."""
    named = options_of(broker)
    options = plan_query(named, SCHEMA).options
    first, second = (BatchKey("", f"export/{number}-of-2-by-key") for number in (1, 2))
    another_run = run_of_query("another run")
    receipts = write(options, "s", first, [("of the first", "a")] * 2, task=0)
    others = write(options, "s", second, [("of the second", "a")] * 3, run=another_run)
    receipts += write(options, "s", first, [("of the first", "a")] * 2, task=1)
    commit_batch(FinishedBatch(options, "s", first, RUN, receipts))
    commit_batch(FinishedBatch(options, "s", second, another_run, others))
    values = [record.value or b"" for record in read_topic(broker.bootstrap_servers, "manifests")]
    told = {json.loads(value)["batch"]: value for value in values}
    rows_of = reader_of_the_guide()
    assert rows_of(told[second.batch_id], broker.bootstrap_servers) == [b"of the second"] * 3
    with pytest.raises(RuntimeError, match=r"a-0 has 7 rows up to \d, not 4"):
        rows_of(told[first.batch_id], broker.bootstrap_servers)


def test_the_reader_of_the_guide_takes_no_error_for_a_row() -> None:
    """A topic that may not be read, and an offset that it does not have, as after retention."""
    allowed = [Acl(acl.ANONYMOUS, acl.READ, acl.TOPIC, "a"), Acl(acl.ANONYMOUS, acl.READ, acl.GROUP, "manifests")]
    allowed.append(Acl(acl.ANONYMOUS, acl.DESCRIBE, acl.TOPIC, "b"))
    with EmbeddedBroker(1, topics={"a": 1, "b": 1}, acls=allowed) as broker:
        for topic, first, reason in (("b", 0, "authorization"), ("a", 7, "out of range")):
            value = json.dumps({"topics": {topic: {"rows": 1, "partitions": [[0, first, first, 1]]}}}).encode()
            with pytest.raises(KafkaException, match=f"(?i){reason}"):
                reader_of_the_guide()(value, broker.bootstrap_servers, patience_s=20)


def reader_of_the_guide() -> Callable[..., list[bytes]]:
    names: dict[str, Any] = {}
    exec(next(block.code for block in code_blocks("docs/guides/manifests.md") if "def rows_of" in block.code), names)
    rows_of: Callable[..., list[bytes]] = names["rows_of"]
    return rows_of


def test_manifests_of_rows_that_are_elsewhere_are_left_out_and_a_batch_that_has_no_other_is_an_error(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """A mirror has other offsets, and a topic that was made again has other rows at the same ones."""
    named = options_of(broker)
    deliver(named, "old", 1)
    (copied,) = read_topic(broker.bootstrap_servers, "manifests")
    with EmbeddedBroker(1, topics={"a": 1, "manifests": 1}) as mirror:
        mirror.do(lambda core: setattr(core.cluster, "cluster_id", "mirror"))
        with Producer({"bootstrap.servers": mirror.bootstrap_servers}) as producer:
            producer.send("manifests", copied.value, copied.key).result()
        there = options_of(mirror)
        with pytest.raises(ConfigError, match="is in the cluster embedded-kafka-cluster, and this one is m") as caught:
            kafka_sink.read_manifests(there, batch=0)
        assert caught.value.name == "PKS-6019"
        assert found(there) == []
        deliver(there, "here", 1)
        assert found(there, batch=0) == [("here", 0)]
    assert found(named, batch=0) == [("old", 0)]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["a"])["a"].result(30)
    assert found(named, batch=0) == [("old", 0)]  # nobody can take other rows for these
    broker.create_topic("a", 1)
    with pytest.raises(ConfigError, match="in a topic a that was deleted: the present one has other rows"):
        kafka_sink.read_manifests(named, batch=0)
    POOL.close()
    deliver(named, "new", 1)
    assert found(named) == [("new", 0)]
    warned = [record.getMessage() for record in caplog.records if "rows that are not here" in record.getMessage()]
    assert any("batch 0 of query old is in a topic a that was deleted" in text for text in warned)


def test_a_topic_of_dead_letters_may_be_made_again(broker: EmbeddedBroker) -> None:
    named = options_of(broker, record_errors="dead-letter", dead_letter_topic="dead", kafka_max_request_size="2000")
    options = plan_query(named, SCHEMA).options
    key = BatchKey("query", 0)
    receipts = write(options, "s", key, [("x", "a"), ("y" * 3000, "a")])
    commit_batch(FinishedBatch(options, "s", key, RUN, receipts))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["dead"])["dead"].result(30)
    broker.create_topic("dead", 1)
    (manifest,) = kafka_sink.read_manifests(named, batch=0)
    assert set(manifest.topic_ids) == {"a", "dead"} and manifest.dead_letters


def test_manifests_without_cluster_and_ids_are_read_as_they_are(broker: EmbeddedBroker) -> None:
    """As brokers without them, and older releases, have written them."""
    named = options_of(broker)
    deliver(named, "query", 1)
    (told,) = read_topic(broker.bootstrap_servers, "manifests")
    content = json.loads(told.value or b"")
    assert content.pop("cluster") and content["topics"]["a"].pop("id")
    with Producer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        producer.send("manifests", json.dumps({**content, "query": "before"}).encode(), told.key).result()
    assert found(named) == [("query", 0), ("before", 0)]


def test_who_waits_for_an_export_in_chunks_gets_all_of_them(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = options_of(broker)
    options = plan_query(named, SCHEMA).options
    left = [BatchKey("", f"export/{number}-of-3-by-key") for number in (2, 3, 1)]

    def deliver_next(_: float = 0) -> None:
        key = left.pop(0)
        run = run_of_query(str(key))
        commit_batch(FinishedBatch(options, "s", key, run, write(options, "s", key, run=run)))

    deliver_next()
    assert found(named, batch="export") == [] and len(found(named)) == 1
    monkeypatch.setattr(manifests_module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=deliver_next))
    chunks = kafka_sink.read_manifests(named, batch="export", timeout_s=60)
    assert [one.batch_id for one in chunks] == [f"export/{number}-of-3-by-key" for number in (2, 3, 1)]
    assert left == [] and sum(one.row_count for one in chunks) == 3


def test_a_range_of_which_a_broker_has_not_told_a_part_is_unknown_and_the_batch_is_committed(
    broker: EmbeddedBroker,
) -> None:
    """The leader recognises a request that was sent again, and has forgotten where its records are."""
    named = options_of(broker, kafka_linger_ms="0", kafka_batch_size="1000")
    options = plan_query(named, SCHEMA).options
    broker.inject(Fault(api="Produce", topic="a", error_code=DUPLICATE_SEQUENCE, after_apply=True, skip=1))
    key = BatchKey("query", 0)
    receipts = write(options, "s", key, [(f"{number}" * 900, "a") for number in range(3)])
    assert receipts[0].written == (WrittenPartition("a", 0, 3, 0, 2),) and receipts[0].unknown == (("a", 0),)
    commit_batch(FinishedBatch(options, "s", key, RUN, receipts))
    assert len(broker.records("a")) == 3
    (manifest,) = kafka_sink.read_manifests(named)
    assert manifest.partitions == (WrittenPartition("a", 0, 3, -1, -1),)


def write_to_many_partitions(options: SinkOptions, key: BatchKey) -> list[TaskReceipt]:
    """One row to each of `PARTITIONS`: so many that the manifest takes kilobytes."""
    numbers = range(PARTITIONS)
    given = pa.RecordBatch.from_arrays(
        [pa.array([str(each) for each in numbers]), pa.array(["wide"] * PARTITIONS), pa.array(numbers, pa.int32())],
        ["value", "topic", "partition"],
    )
    columns = choose_columns(StructType([*SCHEMA.fields, StructField("partition", IntegerType())]), None)
    return [write_task(options, columns, iter([given]), TaskPlace(key, RUN, 0, 0, sink_id_of_query("s", key.query_id)))]


def limit_manifests(broker: EmbeddedBroker, size: int) -> None:
    def change(core: BrokerCluster) -> None:
        core.cluster.topics["manifests"].config.own["max.message.bytes"] = str(size)

    broker.do(change)


def test_a_manifest_that_its_topic_would_refuse_is_refused_before_anything_is_decided(broker: EmbeddedBroker) -> None:
    """Afterwards no run could close the decision. When the topic accepts more, the batch is delivered."""
    named = options_of(broker)
    options = plan_query(named, SCHEMA).options
    broker.create_topic("wide", PARTITIONS)
    limit_manifests(broker, 1500)
    key = BatchKey("query", 0)
    with pytest.raises(CommitAborted) as caught:
        commit_batch(FinishedBatch(options, "s", key, RUN, write_to_many_partitions(options, key)))
    (size,) = re.findall(r"its manifest would take (\d+) bytes", str(caught.value))
    assert "topic manifests accepts 1500: raise max.message.bytes of that topic" in str(caught.value)
    assert read_topic(broker.bootstrap_servers, "wide") == []
    limit_manifests(broker, int(size))
    commit_batch(FinishedBatch(options, "s", key, RUN, write_to_many_partitions(options, key)))
    (manifest,) = kafka_sink.read_manifests(named, timeout_s=60)
    assert len(manifest.partitions) == PARTITIONS
    assert len(read_topic(broker.bootstrap_servers, "wide")) == PARTITIONS


def test_a_topic_that_accepts_less_since_the_decision_is_named_and_the_next_batch_goes_on_when_it_is_mended(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost: the manifest is written with the next batch. Until then each batch says what to do."""
    monkeypatch.setattr(driver_module, "lives_on", lambda: False)  # else a log says it, and only the next batch stops
    named = options_of(broker)
    options = plan_query(named, SCHEMA).options
    first, second = BatchKey("query", 0), BatchKey("query", 1)
    limit_manifests(broker, 100)
    raising = "raise max.message.bytes of topic manifests to that first"
    with pytest.raises(CommitPending, match=raising) as caught:
        commit_batch(FinishedBatch(options, "s", first, RUN, write(options, "s", first)))
    assert caught.value.name == "PKS-6013" and "fewer" not in str(caught.value)
    with pytest.raises(CommitPending, match=raising) as caught:
        commit_batch(FinishedBatch(options, "s", second, RUN, write(options, "s", second)))
    assert caught.value.name == "PKS-6015"
    assert re.search(r"batch 1 of query query .*cannot be committed; nothing of it is visible", str(caught.value))
    limit_manifests(broker, 2000)
    commit_batch(FinishedBatch(options, "s", second, RUN, write(options, "s", second)))
    assert found(named, batch=1, timeout_s=60) == [("query", 1)] and found(named) == [("query", 0), ("query", 1)]
    assert [record.value for record in read_topic(broker.bootstrap_servers, "a")] == [b"x", b"x"]
