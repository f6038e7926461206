"""Writes that the caller's own process plans and commits: `kafka_sink.write`, `write_batch` and `foreach_batch`. Only
names that every PySpark from 3.4 on has: `make compat` runs these tests with each of them."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import kafka_sink
from tests.spark.parity import Folder, records, values, writable_topic
from tests.spark.spark_session import run_to_end
from tests.spark.writes import forget_commit, options, run
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

KEYS = (b"a", b"b")
HAS_FORMAT = find_spec("pyspark.sql.datasource") is not None
NO_CHECKPOINT = r'PKS-1111(?s:.*)for this start alone\. Set \.option\("checkpointLocation", \.\.\.\) on the writer'


# ---- batch frames ----


def test_a_write_says_what_it_wrote(spark: SparkSession, kafka_4: KafkaCluster, topic_name: str) -> None:
    writable_topic(kafka_4, topic_name)
    rows = spark.range(0, 100, 1, 3).selectExpr("CAST(id AS STRING) AS value")
    summary = kafka_sink.write(rows, options(kafka_4, topic_name))
    assert (summary.rows, summary.tasks, summary.is_repeated) == (100, 3, False)
    assert sum(each.row_count for each in summary.partitions) == 100
    assert {each.topic for each in summary.partitions} == {topic_name}
    assert values(kafka_4, topic_name) == sorted(b"%d" % number for number in range(100))


def test_an_export_that_was_delivered_is_not_delivered_again(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    named = options(kafka_4, topic_name, sink_id=f"exports-{topic_name[-40:]}", batch_id="day-1")
    rows = spark.range(0, 10, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    first, second = kafka_sink.write(rows, named), kafka_sink.write(rows, named)
    assert (first.is_repeated, second.is_repeated, second.partitions) == (False, True, ())
    assert len(values(kafka_4, topic_name)) == 10


def test_columns_are_written_whatever_the_others_are_called(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    rows = spark.range(3).selectExpr(
        "1 AS `a.b`", "2 AS twice", "3 AS Twice", "CAST(id AS STRING) AS value", "'k' AS key"
    )
    kafka_sink.write(rows, options(kafka_4, topic_name))
    assert sorted((each.key, each.value) for each in records(kafka_4, topic_name)) == [
        (b"k", b"0"),
        (b"k", b"1"),
        (b"k", b"2"),
    ]


def test_frames_without_rows_or_partitions_and_frames_behind_a_shuffle_are_written(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    given = options(kafka_4, topic_name)
    rows = spark.range(0, 60, 1, 4).selectExpr("CAST(id % 6 AS STRING) AS value")
    assert kafka_sink.write(rows.where("value = 'x'"), given).rows == 0
    assert kafka_sink.write(spark.createDataFrame([], "value string"), given).rows == 0
    kafka_sink.write(rows.groupBy("value").agg(F.count("*").alias("n")).select("value"), given)
    cached = rows.distinct().cache()
    kafka_sink.write(cached, given)
    cached.unpersist()
    assert values(kafka_4, topic_name) == sorted([b"%d" % number for number in range(6)] * 2)


def test_a_task_that_spark_repeats_is_written_once(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    writable_topic(kafka_4, topic_name)
    failed = str(tmp_path / "failed")

    def fail_once(value: str) -> str:
        if value == "29" and not Path(failed).exists():
            Path(failed).touch()
            raise ValueError("the first attempt fails after it has written some rows")
        return value

    # Small batches: the rows before reach the brokers.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "5")
    try:
        repeated = F.udf(lambda value: fail_once(value))(F.col("id").cast("string"))
        rows = spark.range(0, 30, 1, 1).select(repeated.alias("value"))
        summary = kafka_sink.write(rows, options(kafka_4, topic_name))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert summary.rows == 30 and Path(failed).exists()
    assert values(kafka_4, topic_name) == sorted(b"%d" % number for number in range(30))


def test_a_write_that_fails_leaves_nothing_and_says_why(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    rows = spark.range(0, 100, 1, 2).selectExpr("IF(id = 70, repeat('x', 5000), CAST(id AS STRING)) AS value")
    with pytest.raises(Exception, match="PKS-"):
        kafka_sink.write(rows, {**options(kafka_4, topic_name), "kafka.max.request.size": "2000"})
    assert values(kafka_4, topic_name) == []
    kafka_sink.write(rows.where("id <> 70"), options(kafka_4, topic_name))
    assert len(values(kafka_4, topic_name)) == 99


def test_options_are_in_no_plan_that_spark_keeps_for_its_ui(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    """All that an application writes and serves: test_canary_doors.py."""
    writable_topic(kafka_4, topic_name)
    secret, mode = "hidden-in-an-option", "spark.sql.ui.explainMode"
    spark.conf.set(mode, "extended")
    try:
        rows = spark.range(3).selectExpr("concat('shown-in-plans', id) AS value")
        kafka_sink.write(rows, {**options(kafka_4, topic_name), "kafka.sasl.password": secret})
    finally:
        spark.conf.unset(mode)
    kept = spark._jsparkSession.sharedState().statusStore().executionsList()
    texts = [
        f"{each.description()} {each.details()} {each.physicalPlanDescription()}"
        for each in (kept.apply(number) for number in range(kept.size()))
    ]
    assert any("shown-in-plans" in text for text in texts)
    assert not any(secret in text for text in texts)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"topik": "t"}, r"PKS-1001 .*did you mean topic(?s:.*)Data: Nothing was written"),
        ({"batch.id": None}, r"no value \(None\): batch.id"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, given: Mapping[str, str], text: str
) -> None:
    with pytest.raises(kafka_sink.ConfigError, match=text):
        kafka_sink.write(spark.range(1).selectExpr("'a' AS value"), {**options(kafka_4, topic_name), **given})


def test_a_stream_is_not_a_batch(kafka_4: KafkaCluster, topic_name: str, folder: Folder) -> None:
    with pytest.raises(
        kafka_sink.ConfigError, match=r"writeStream\.foreachBatch\(kafka_sink\.foreach_batch\(options\)\)"
    ):
        kafka_sink.write(folder.read(), options(kafka_4, topic_name))


def test_ten_threads_write_side_by_side(spark: SparkSession, kafka_4: KafkaCluster, topic_name: str) -> None:
    writable_topic(kafka_4, topic_name)

    def write(first: int) -> int:
        rows = spark.range(first, first + 50, 1, 2).selectExpr("CAST(id AS STRING) AS value")
        return kafka_sink.write(rows, options(kafka_4, topic_name)).rows

    with ThreadPoolExecutor(10) as pool:
        assert list(pool.map(write, range(0, 1000, 50))) == [50] * 20
    assert values(kafka_4, topic_name) == sorted(b"%d" % number for number in range(1000))


# ---- streams ----


def test_a_repeated_batch_is_skipped_and_a_new_checkpoint_is_not(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    function = kafka_sink.foreach_batch(options(kafka_4, topic_name, sink_id=topic_name[-60:].lstrip("-")))
    folder.add("a", "b")
    folder.add("c")
    run(folder.read(), function, checkpoint)
    forget_commit(checkpoint, 1)
    folder.add("d")
    run(folder.read(), function, checkpoint)
    assert values(kafka_4, topic_name) == [b"a", b"b", b"c", b"d"]
    run(folder.read(), function, f"{checkpoint}-2")
    assert values(kafka_4, topic_name) == sorted([b"a", b"b", b"c", b"d"] * 2)


def test_arrow_batches_of_a_query_are_limited_unless_the_user_has_said_how(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    kafka_function = kafka_sink.foreach_batch(options(kafka_4, topic_name, sink_id=topic_name[-60:].lstrip("-")))
    name, found = "spark.sql.execution.arrow.maxBytesPerBatch", []

    def write(frame: DataFrame, batch_id: int) -> None:
        kafka_function(frame, batch_id)
        found.append(frame.sparkSession.conf.get(name, None))

    before = spark.conf.get(name, None)
    folder.add("a")
    run(folder.read(), write, checkpoint)
    assert spark.conf.get(name, None) == before, "the session of the user is left alone"
    spark.conf.set(name, "1m")
    folder.add("b")
    try:
        run(folder.read(), write, checkpoint)
    finally:
        spark.conf.unset(name)
    assert found == [before or "4m", "1m"]


def test_update_and_complete_mode(kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str) -> None:
    writable_topic(kafka_4, topic_name)
    counted = folder.read().groupBy("value").count().selectExpr("value AS key", "CAST(count AS STRING) AS value")
    for mode in ("update", "complete"):
        name = f"{topic_name[-50:].lstrip('-')}-{mode}"
        function = kafka_sink.foreach_batch(options(kafka_4, topic_name, sink_id=name))
        folder.add("a", "b")
        run(counted, function, f"{checkpoint}-{mode}", mode)
        folder.add("a")
        run(counted, function, f"{checkpoint}-{mode}", mode)
    found = [(each.key, each.value) for each in records(kafka_4, topic_name)]
    of_update = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2")]
    # Under another checkpoint, the files from the first one on.
    of_complete = [
        (key, b"%d" % count)
        for counts in ((1, 1), (2, 1), (3, 2), (4, 2))
        for key, count in zip(KEYS, counts, strict=True)
    ]
    assert sorted(found) == sorted([*of_update, *of_complete])


def test_two_targets_have_names_of_their_own(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    topics = [f"{topic_name}-{each}" for each in ("large", "small")]
    for topic in topics:
        writable_topic(kafka_4, topic)
    short = topic_name[-50:].lstrip("-")

    def write(frame: DataFrame, batch_id: int) -> None:
        for topic, expression in zip(topics, ("upper(value) AS value", "value"), strict=True):
            given = options(kafka_4, topic, sink_id=f"{short}-{expression[:5]}")
            kafka_sink.write_batch(frame.selectExpr(expression), batch_id, given)

    folder.add("a", "b")
    run(folder.read(), write, checkpoint)
    forget_commit(checkpoint, 0)
    folder.add("c")
    run(folder.read(), write, checkpoint)
    assert [values(kafka_4, topic) for topic in topics] == [[b"A", b"B", b"C"], [b"a", b"b", b"c"]]


def test_two_targets_under_one_name_are_refused(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    given = options(kafka_4, topic_name, sink_id=topic_name[-60:].lstrip("-"))

    def write(frame: DataFrame, batch_id: int) -> None:
        for expression in ("value", "upper(value) AS value"):
            kafka_sink.write_batch(frame.selectExpr(expression), batch_id, given)

    folder.add("a", "b")
    with pytest.raises(Exception, match=r"each write of one batch needs its own sink\.id"):
        run(folder.read(), write, checkpoint)
    assert values(kafka_4, topic_name) == [b"a", b"b"]


def test_a_failed_batch_that_the_users_code_swallows_does_not_harm_the_next_one(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    given = options(kafka_4, topic_name, sink_id=topic_name[-60:].lstrip("-"))
    errors: list[str] = []

    def write(frame: DataFrame, batch_id: int) -> None:
        rows = frame.selectExpr("IF(value = 'b', raise_error('not b'), value) AS value")
        try:
            kafka_sink.write_batch(rows, batch_id, given)
        except Exception as error:
            errors.append(str(error))

    for line in ("a", "b", "c"):
        folder.add(line)
        run(folder.read(), write, checkpoint)
    assert len(errors) == 1 and "not b" in errors[0]
    assert values(kafka_4, topic_name) == [b"a", b"c"]


def test_in_a_thread_of_ones_own_the_query_has_to_be_named(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    given = options(kafka_4, topic_name, sink_id=topic_name[-60:].lstrip("-"))
    checkpoint = f"{checkpoint} of%20mine"  # which Spark does not decode
    errors: list[str] = []

    def write(frame: DataFrame, batch_id: int) -> None:
        with ThreadPoolExecutor(1) as pool:
            try:
                pool.submit(kafka_sink.write_batch, frame, batch_id, given).result()
            except kafka_sink.ConfigError as error:
                errors.append(str(error))
            named = {**given, "checkpointLocation": f"file:{checkpoint}"}
            pool.submit(kafka_sink.write_batch, frame, batch_id, named).result()

    folder.add("a")
    run(folder.read(), write, f"file:{checkpoint}")
    forget_commit(checkpoint, 0)
    folder.add("b")
    run(folder.read(), write, f"file:{checkpoint}")
    assert values(kafka_4, topic_name) == [b"a", b"b"]
    assert len(errors) == 3 and all("Set the option query.id" in each for each in errors)


def test_a_number_that_is_not_that_of_the_micro_batch_is_refused(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str
) -> None:
    writable_topic(kafka_4, topic_name)
    given = options(kafka_4, topic_name, sink_id=topic_name[-60:].lstrip("-"))
    folder.add("a")
    with pytest.raises(Exception, match="batch_id=1 is not that of this micro-batch, which is 0"):
        run(folder.read(), lambda frame, batch_id: kafka_sink.write_batch(frame, batch_id + 1, given), checkpoint)
    assert values(kafka_4, topic_name) == []


def test_a_query_that_is_stopped_in_the_middle_of_a_batch_ends_and_goes_on(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str, tmp_path: Path
) -> None:
    writable_topic(kafka_4, topic_name)
    function = kafka_sink.foreach_batch(options(kafka_4, topic_name, sink_id=topic_name[-60:].lstrip("-")))
    begun, may_end = tmp_path / "begun", tmp_path / "may-end"

    def wait(value: str) -> str:
        begun.touch()
        wait_until(may_end.exists, "the query may go on")
        return value

    folder.add("a", "b")
    rows = folder.read().select(F.udf(lambda value: wait(value))("value").alias("value"))
    query = rows.writeStream.foreachBatch(function).option("checkpointLocation", checkpoint).start()
    wait_until(begun.exists, "a task has begun")
    query.stop()
    may_end.touch()
    assert not query.isActive and query.exception() is None
    run(rows, function, checkpoint)
    assert values(kafka_4, topic_name) == [b"a", b"b"]


def test_a_row_that_is_a_stack_trace_ends_no_query_as_if_it_were_stopped(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path, checkpoint: str
) -> None:
    """Spark puts the row into its error."""
    writable_topic(kafka_4, topic_name)
    trace = "java.lang.RuntimeException: no\n\tat a.b(C.java:1)\nCaused by: java.lang.InterruptedException: sleep"
    source = tmp_path / "source"
    spark.createDataFrame([(trace,)], "value string").coalesce(1).write.parquet(str(source))
    rows = spark.readStream.schema("value string").parquet(str(source))
    failing = rows.select(F.raise_error(F.col("value")).cast("string").alias("value"))
    function = kafka_sink.foreach_batch(options(kafka_4, topic_name, sink_id=topic_name[-60:].lstrip("-")))
    with pytest.raises(Exception, match=r"Caused by: java\.lang\.InterruptedException: sleep") as raised:
        run(failing, function, checkpoint)
    assert "the query was stopped" not in str(raised.value)
    assert values(kafka_4, topic_name) == []


@pytest.mark.parametrize("is_among_the_options", [False, True])
def test_a_writer_without_a_checkpoint_is_refused_as_each_start_would_write_every_row_again(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder, tmp_path: Path, is_among_the_options: bool
) -> None:
    writable_topic(kafka_4, topic_name)
    name = {"checkpointLocation": str(tmp_path)} if is_among_the_options else {"sink.id": topic_name[-60:].lstrip("-")}
    folder.add("a")
    for guarantee, refused in (("exactly-once", 2), ("at-least-once", 0)):
        given = {**options(kafka_4, topic_name), **name, "delivery.guarantee": guarantee}
        for _ in range(2):
            writer = folder.read().writeStream.foreachBatch(kafka_sink.foreach_batch(given)).trigger(availableNow=True)
            with pytest.raises(Exception, match=NO_CHECKPOINT) if refused else nullcontext():
                run_to_end(writer.start())
        assert values(kafka_4, topic_name) == ([] if refused else [b"a", b"a"])


def test_a_numbered_write_inside_a_query_without_a_checkpoint_is_refused(
    kafka_4: KafkaCluster, topic_name: str, folder: Folder
) -> None:
    writable_topic(kafka_4, topic_name)
    given = options(kafka_4, topic_name, sink_id=topic_name[-60:].lstrip("-"))

    def write(frame: DataFrame, batch_id: int) -> None:
        kafka_sink.write(frame, {**given, "batch.id": str(batch_id)})

    folder.add("a")
    with pytest.raises(Exception, match=NO_CHECKPOINT):
        run_to_end(folder.read().writeStream.foreachBatch(write).trigger(availableNow=True).start())
    assert values(kafka_4, topic_name) == []


@pytest.mark.parametrize(
    "is_format",
    [False, pytest.param(True, marks=pytest.mark.skipif(not HAS_FORMAT, reason="PySpark 3 has no such formats"))],
)
def test_an_unnamed_query_in_the_checkpoint_folder_of_the_session_is_refused_and_a_named_one_goes_on(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, folder: Folder, checkpoint: str, is_format: bool
) -> None:
    writable_topic(kafka_4, topic_name)
    given = options(kafka_4, topic_name, sink_id=topic_name[-60:].lstrip("-"))

    def begin_writer() -> Any:
        writer = folder.read().writeStream.trigger(availableNow=True)
        if is_format:
            return writer.format("pykafka-sink").options(**given)
        return writer.foreachBatch(kafka_sink.foreach_batch(given))

    setting = "spark.sql.streaming.checkpointLocation"
    try:
        # For Spark all three are one folder.
        for line, spelling in (("a", checkpoint), ("b", f"file://{checkpoint}/.//"), ("c", f"{checkpoint}/x/..")):
            spark.conf.set(setting, spelling)
            folder.add(line)
            with pytest.raises(Exception, match=r"PKS-1111(?s:.*)Set \.queryName"):
                run_to_end(begin_writer().start())
            run_to_end(begin_writer().queryName("named").start())
    finally:
        spark.conf.unset(setting)
    assert values(kafka_4, topic_name) == [b"a", b"b", b"c"]
