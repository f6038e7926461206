"""Exports in chunks: `kafka_sink.write_in_chunks`. Only names that every PySpark from 3.4 on has: `make compat` runs
the tests about the chunks with each of them."""

from __future__ import annotations

import datetime
import os
import threading
import time
import zlib
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import kafka_sink
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.spark import chunks
from kafka_sink.spark.planning import PlannedWrite
from kafka_sink.spark.second_door import write_planned
from tests.spark.parity import values, writable_topic
from tests.spark.writes import named
from tests.support.commanding import Sink, rows
from tests.support.open_transactions import open_transactions
from tools.kafka_cluster import KafkaCluster

ROWS = 60


def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 2).selectExpr("CAST(id % 20 AS STRING) AS key", "CAST(id AS STRING) AS value")


def all_values() -> list[bytes | None]:
    return sorted((b"%d" % number for number in range(ROWS)), key=repr)


def jobs(spark: SparkSession, group: str) -> int:
    """How many jobs this job group has had. Others run at the same time."""
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def meeting(frame: DataFrame, folder: Path) -> DataFrame:
    """No chunk of four goes on before a second one has begun."""
    path = str(folder)

    def meet(key: str, value: str) -> str:
        Path(path, str(zlib.crc32(key.encode()) % 4)).touch()
        patience_s = 300.0
        while len(os.listdir(path)) < 2:
            time.sleep(0.05)
            patience_s -= 0.05
            if patience_s < 0:
                raise TimeoutError("chunks are written one after the other")
        return value

    met = F.udf(lambda key, value: meet(key, value))
    return frame.coalesce(1).select("key", met("key", "value").alias("value"))


@pytest.mark.parametrize("parallel", [1, 3])
def test_each_row_is_in_one_chunk_and_a_second_run_starts_no_task(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path, parallel: int
) -> None:
    writable_topic(kafka_4, topic_name)
    given, told = named(kafka_4, topic_name), []
    frame = numbers(spark) if parallel == 1 else meeting(numbers(spark), tmp_path)
    spark.sparkContext.setJobGroup(topic_name, "an export")
    try:
        first = kafka_sink.write_in_chunks(frame, given, chunks=4, by="key", parallel=parallel, on_chunk=told.append)
        jobs_before = jobs(spark, topic_name)
        second = kafka_sink.write_in_chunks(numbers(spark), given, chunks=4, by="key", parallel=parallel)
        assert jobs(spark, topic_name) == jobs_before >= 4
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    assert values(kafka_4, topic_name) == all_values()
    assert [(each.rows, each.skipped, len(each.chunks)) for each in (first, second)] == [(ROWS, 0, 4), (ROWS, 4, 4)]
    assert sorted(told, key=lambda chunk: chunk.number) == list(first.chunks)
    assert [chunk.batch_id for chunk in first.chunks] == [f"day-1/{number}-of-4-by-key" for number in range(1, 5)]
    assert [chunk.rows for chunk in second.chunks] == [chunk.rows for chunk in first.chunks]
    assert first.bytes > 0 == second.bytes
    offsets = [written for chunk in first.chunks if chunk.write for written in chunk.write.partitions]
    assert sum(written.row_count for written in offsets) == ROWS
    assert open_transactions(kafka_4.bootstrap_servers, given["sink.id"]) == []


def test_a_run_that_failed_in_one_chunk_is_followed_by_one_that_writes_the_rest(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    given = named(kafka_4, topic_name)

    def refuse(key: str, value: str) -> str:
        if zlib.crc32(key.encode()) % 3 == 2:
            raise ValueError("not this chunk")
        return value

    refused = F.udf(lambda key, value: refuse(key, value))
    broken = numbers(spark).select("key", refused("key", "value").alias("value"))
    told: list[kafka_sink.ChunkSummary] = []
    with pytest.raises(Exception, match="not this chunk"):
        kafka_sink.write_in_chunks(broken, given, chunks=3, by="key", on_chunk=told.append)
    assert [chunk.number for chunk in told] == [1, 2]
    done = kafka_sink.write_in_chunks(numbers(spark), given, chunks=3, by="key")
    assert [chunk.is_skipped for chunk in done.chunks] == [True, True, False]
    assert values(kafka_4, topic_name) == all_values()


@pytest.mark.parametrize(("chunks", "by"), [(4, "key"), (3, "value")])
def test_another_number_of_chunks_or_another_column_is_refused_with_the_ones_to_go_on_with(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, chunks: int, by: str
) -> None:
    writable_topic(kafka_4, topic_name)
    given = named(kafka_4, topic_name)
    kafka_sink.write_in_chunks(numbers(spark), given, chunks=3, by="key")
    with pytest.raises(kafka_sink.ConfigError, match=r"PKS-6018 .*Go on with chunks=3, by='key'; or choose another"):
        kafka_sink.write_in_chunks(numbers(spark), given, chunks=chunks, by=by)
    # Another export under the same sink.id, whose name begins alike, has nothing to do with it.
    other = kafka_sink.write_in_chunks(numbers(spark), {**given, "batch.id": "day-10"}, chunks=chunks, by=by)
    assert (other.rows, other.skipped) == (ROWS, 0)
    assert values(kafka_4, topic_name) == sorted(all_values() * 2, key=repr)


def test_an_export_that_was_written_in_one_piece_is_not_written_again_in_chunks(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    """A scheduler repeats the day with a script that has learnt to divide it."""
    writable_topic(kafka_4, topic_name)
    given = named(kafka_4, topic_name)
    kafka_sink.write(numbers(spark), given)
    with pytest.raises(kafka_sink.ConfigError, match=rf"PKS-6018 .*in one piece: {ROWS} rows to {topic_name}"):
        kafka_sink.write_in_chunks(numbers(spark), given, chunks=3, by="key")
    assert values(kafka_4, topic_name) == all_values()


def test_an_export_that_a_dead_run_has_decided_in_one_piece_is_finished_and_not_written_in_chunks(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    sink = Sink(kafka_4.bootstrap_servers, topic_name, topic_name[-60:].lstrip("-"), f"ledger-{topic_name}"[:249])
    sink.create()
    key = BatchKey("", "day-1")
    sink.decide_and_die(key)
    given = named(kafka_4, topic_name, sink_id=sink.sink_id, ledger_topic=sink.ledger_topic)
    with pytest.raises(kafka_sink.ConfigError, match=r"PKS-6018 .*was written in one piece"):
        kafka_sink.write_in_chunks(numbers(spark), given, chunks=2, by="key")
    assert open_transactions(kafka_4.bootstrap_servers, sink.sink_id) == []
    assert values(kafka_4, topic_name) == sorted(rows(key, 0, 1))


@pytest.mark.skipif(pyspark.__version__ < "4", reason="sessions have no tags")
def test_chunks_of_other_threads_have_the_tags_by_which_their_caller_interrupts_them(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    writable_topic(kafka_4, topic_name)
    seen = []

    def write(frame: DataFrame, planned: PlannedWrite) -> kafka_sink.WriteSummary:
        seen.append((threading.current_thread().name, set(frame.sparkSession.getTags())))
        return write_planned(frame, planned)

    monkeypatch.setattr(chunks, "write_planned", write)
    spark.addTag("export")
    try:
        kafka_sink.write_in_chunks(numbers(spark), named(kafka_4, topic_name), chunks=2, by="key", parallel=2)
    finally:
        spark.clearTags()
    assert [tags for _, tags in seen] == [{"export"}] * 2
    assert all(name.startswith("kafka-sink-chunk") for name, _ in seen)
    assert values(kafka_4, topic_name) == all_values()


def test_blanks_around_the_name_of_an_export_make_no_other_export_of_it(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    """A name from a file or a command may end with a newline. The ledger has it without."""
    writable_topic(kafka_4, topic_name)
    given = named(kafka_4, topic_name)
    kafka_sink.write_in_chunks(numbers(spark), {**given, "batch.id": "day-1\n"}, chunks=2, by="key")
    assert kafka_sink.write_in_chunks(numbers(spark), {**given, "batch.id": " day-1"}, chunks=2, by="key").skipped == 2
    with pytest.raises(kafka_sink.ConfigError, match="was begun with chunks=2, by='key'"):
        kafka_sink.write_in_chunks(numbers(spark), {**given, "batch.id": " day-1"}, chunks=4, by="key")
    whole = {**given, "batch.id": "day-2\n"}
    kafka_sink.write(numbers(spark), whole)
    with pytest.raises(kafka_sink.ConfigError, match=rf"was written in one piece: {ROWS} rows"):
        kafka_sink.write_in_chunks(numbers(spark), whole, chunks=2, by="key")
    assert values(kafka_4, topic_name) == sorted(all_values() * 2, key=repr)


def test_a_column_whose_name_the_ledger_could_not_keep_is_refused_before_the_first_chunk(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    frame = numbers(spark).withColumnRenamed("key", "key ")
    with pytest.raises(kafka_sink.ConfigError, match="by='key ' ends with a blank"):
        kafka_sink.write_in_chunks(frame, named(kafka_4, topic_name), chunks=2, by="key ")
    assert values(kafka_4, topic_name) == []


def test_an_export_that_was_begun_in_chunks_is_not_written_in_one_piece(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    given = named(kafka_4, topic_name)
    kafka_sink.write_in_chunks(numbers(spark), given, chunks=3, by="key")
    with pytest.raises(kafka_sink.CommitAborted, match=r"PKS-6018 .*was begun with chunks=3, by='key'"):
        kafka_sink.write(numbers(spark), given)
    assert values(kafka_4, topic_name) == all_values()
    assert open_transactions(kafka_4.bootstrap_servers, given["sink.id"]) == []


def test_an_export_goes_on_in_the_topic_that_it_was_begun_with(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    other = f"{topic_name}-2"
    writable_topic(kafka_4, topic_name)
    writable_topic(kafka_4, other)
    given = named(kafka_4, topic_name)
    kafka_sink.write_in_chunks(numbers(spark), given, chunks=3, by="key")
    with pytest.raises(kafka_sink.ConfigError, match=rf"PKS-6018 .*other topics: 3 of .*with rows in {topic_name}\."):
        kafka_sink.write_in_chunks(numbers(spark), {**given, "topic": other}, chunks=3, by="key")
    assert values(kafka_4, other) == []
    # A topic for dead letters may be added, and rows that name their topics have always been free.
    letters = {**given, "record.errors": "dead-letter", "dead.letter.topic": other}
    assert kafka_sink.write_in_chunks(numbers(spark), letters, chunks=3, by="key").skipped == 3
    del given["topic"]
    frame = numbers(spark).withColumn("topic", F.lit(other))
    assert kafka_sink.write_in_chunks(frame, given, chunks=3, by="key").skipped == 3


def test_a_chunk_that_a_dead_run_has_decided_is_finished_before_any_task_and_skipped(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    sink = Sink(kafka_4.bootstrap_servers, topic_name, topic_name[-60:].lstrip("-"), f"ledger-{topic_name}"[:249])
    sink.create()
    key = BatchKey("", "day-1/2-of-2-by-key")
    sink.decide_and_die(key)
    given = named(kafka_4, topic_name, sink_id=sink.sink_id, ledger_topic=sink.ledger_topic)
    frame = numbers(spark).where(F.crc32(F.col("key").cast("binary")) % 2 == 0)  # nothing for the second chunk
    done = kafka_sink.write_in_chunks(frame, given, chunks=2, by="key")
    assert [chunk.is_skipped for chunk in done.chunks] == [False, True]
    assert set(rows(key, 0, 1)) < set(values(kafka_4, topic_name))
    assert done.rows == len(values(kafka_4, topic_name))


@pytest.mark.parametrize("is_closed", [False, True])
def test_what_killed_runs_of_a_delivered_chunk_left_open_is_aborted_by_the_next_run(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, is_closed: bool
) -> None:
    """One was killed while its tasks wrote. A second one decided, or even closed its decision, and was killed before it
    looked for open transactions. No later run writes this chunk, and so none commits it and looks."""
    label = "day-1/2-of-2-by-key"
    key, other = BatchKey("", label), "another export"
    sink = Sink(kafka_4.bootstrap_servers, topic_name, topic_name[-60:].lstrip("-"), f"ledger-{topic_name}"[:249])
    sink.create()
    sink.run = sink.run_of(label, "killed in a task")
    sink.task(key, 0)
    sink.run = sink.run_of(other, "alive")
    sink.task(BatchKey("", other), 1)
    sink.run = sink.run_of(label, "killed in a commit")
    sink.decide_and_die(key)
    given = named(kafka_4, topic_name, sink_id=sink.sink_id, ledger_topic=sink.ledger_topic)
    if is_closed:
        plan = chunks.plan_export({**given, "batch.id": label}, numbers(spark).schema)
        with chunks.CLIENTS.value.borrow(plan.options.producer) as client:
            chunks.Driver(plan.options, sink.sink_id, key=key).finish(client)
    frame = numbers(spark).where(F.crc32(F.col("key").cast("binary")) % 2 == 0)  # nothing for the second chunk
    assert kafka_sink.write_in_chunks(frame, given, chunks=2, by="key").skipped == 1
    (left_open,) = open_transactions(kafka_4.bootstrap_servers, sink.sink_id, 0)
    assert sink.run_of(other, "alive") in left_open


def test_the_chunk_of_a_row_follows_from_the_text_of_its_column_in_every_session(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    """As computed here with zlib: whatever the version of Spark, the time zone, and the rules of ANSI say."""
    at = datetime.datetime(2026, 3, 29, 1, 30, tzinfo=datetime.timezone.utc)
    kinds: Mapping[str, tuple[object, str, bytes]] = {
        "string": ("Köln", "STRING", "Köln".encode()),
        "binary": (bytearray(b"\0\xff"), "BINARY", b"\0\xff"),
        "int": (-7, "INT", b"-7"),
        "bigint": (1 << 60, "BIGINT", b"1152921504606846976"),
        "boolean": (True, "BOOLEAN", b"true"),
        "date": (datetime.date(2026, 11, 21), "DATE", b"2026-11-21"),
        "timestamp": (at, "TIMESTAMP", b"%d" % at.timestamp()),
        "timestamp_ntz": (at.replace(tzinfo=None), "TIMESTAMP_NTZ", b"2026-03-29 01:30:00"),
        "decimal": (Decimal(10**20), "DECIMAL(38,0)", b"%d" % 10**20),
    }
    from kafka_sink.spark.chunks import chunk_of

    chunks, before = 7, spark.conf.get("spark.sql.session.timeZone")
    schema = ", ".join(f"`{kind}` {declared}" for kind, (_, declared, _) in kinds.items())
    frame = spark.createDataFrame([tuple(value for value, _, _ in kinds.values()), (None,) * len(kinds)], schema)
    of_each = [chunk_of(frame.schema, kind, chunks) for kind in kinds]
    wanted = {kind: zlib.crc32(text) % chunks + 1 for kind, (_, _, text) in kinds.items()}
    try:
        for zone in ("UTC", "Asia/Kolkata"):
            spark.conf.set("spark.sql.session.timeZone", zone)
            found, of_nulls = frame.selectExpr(*of_each).collect()
            assert dict(zip(kinds, found, strict=True)) == wanted
            assert set(of_nulls) == {1}
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT", "DECIMAL(10,2)", "ARRAY<INT>", "STRUCT<b: INT>"])
def test_columns_whose_text_is_not_the_same_everywhere_are_refused(spark: SparkSession, kind: str) -> None:
    frame = spark.createDataFrame([], f"a {kind}, value STRING")
    given = {"kafka.bootstrap.servers": "nowhere:9092", "topic": "t", "sink.id": "s", "batch.id": "day-1"}
    with pytest.raises(kafka_sink.ConfigError, match=r"PKS-1203 .*cannot be divided by column a of type"):
        kafka_sink.write_in_chunks(frame, given, chunks=2, by="a")


@pytest.mark.parametrize(
    ("more", "arguments", "text"),
    [
        ({"sink.id": ""}, {}, "needs sink.id and batch.id"),
        ({"batch.id": "20261121"}, {}, "is only a number: name the export"),
        ({"batch.id": "day-1/2-of-3-by-a"}, {}, "is the name of a chunk"),
        ({"batch.id": "d" * 190}, {}, "choose a shorter batch.id"),
        ({"Batch.Id": "day-2"}, {}, "batch.id and Batch.Id mean the same and have different values"),
        ({"query.id": "q"}, {}, "query.id is for micro-batches"),
        ({"delivery.guarantee": "at-least-once"}, {}, "needs delivery.guarantee=exactly-once"),
        ({}, {"chunks": 0}, "chunks is 0: a whole number from 1 to 10000 is needed"),
        ({}, {"chunks": True}, "chunks is True"),
        ({}, {"parallel": 0}, "parallel is 0"),
        ({}, {"by": "Value"}, r"by='Value': there is no such column; there are key, value"),
    ],
)
def test_what_cannot_be_an_export_in_chunks_is_refused_before_anything_is_written(
    spark: SparkSession,
    kafka_4: KafkaCluster,
    topic_name: str,
    more: Mapping[str, str],
    arguments: Mapping[str, object],
    text: str,
) -> None:
    given = {**named(kafka_4, topic_name), **more}
    with pytest.raises(kafka_sink.ConfigError, match=text):
        kafka_sink.write_in_chunks(numbers(spark), given, **{"chunks": 3, "by": "key", **arguments})  # type: ignore[arg-type]


def test_a_chunk_of_a_partitioned_table_reads_its_own_folders_only(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    writable_topic(kafka_4, topic_name)
    days = [f"2026-11-{day:02}" for day in range(1, 9)]
    table = spark.range(ROWS).selectExpr(
        f"element_at(array({', '.join(map(repr, days))}), CAST(id % 8 + 1 AS INT)) AS day",
        "CAST(id AS STRING) AS value",
    )
    table.write.partitionBy("day").parquet(str(tmp_path / "table"))
    of_chunk = {day: zlib.crc32(day.encode()) % 3 + 1 for day in days}
    chosen = of_chunk[days[0]]
    frame = spark.read.schema("value STRING, day STRING").parquet(str(tmp_path / "table"))
    for folder in (tmp_path / "table").glob("day=*"):
        if of_chunk[folder.name.partition("=")[2]] != chosen:
            for file in folder.glob("*.parquet"):
                file.write_bytes(b"not to be read")
    from kafka_sink.spark.chunks import chunk_of

    found = frame.where(f"{chunk_of(frame.schema, 'day', 3)} = {chosen}").collect()
    wanted = Counter(days[number % 8] for number in range(ROWS) if of_chunk[days[number % 8]] == chosen)
    assert Counter(row["day"] for row in found) == wanted
