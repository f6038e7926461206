"""Exports that take longer than brokers keep a transaction open, and drivers that die in the middle of one."""

from __future__ import annotations

import logging
import math
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import kafka_sink
from tests.spark.applications import ROOT, start_application
from tests.spark.conftest import require_java
from tests.spark.parity import values, writable_topic
from tests.spark.writes import named
from tests.support.open_transactions import open_transactions
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

JOB = ROOT / "spark_jobs" / "export_to_kafka.py"
# Seconds: what brokers allow, and how long the export takes at least. An hour against a minute is possible, too.
LIMIT_S, LENGTH_S = (int(os.environ.get(f"LONG_EXPORT_{name}_S", default)) for name, default in
                     (("LIMIT", "20"), ("LENGTH", "100")))  # fmt: skip
KILLS = int(os.environ.get("CHAOS_KILLS", "10"))
KILLED_ROWS, KILLED_CHUNKS = 1_000_000, 20
CORES = 2
# Rows of this size reach the task at once, through the pipes between Spark's processes.
ROW_BYTES = 30_000
PATIENCE_S = 900


def slow_rows(spark: SparkSession, tasks: int, rows_per_task: int, pause_ms: int) -> DataFrame:
    """With Arrow batches of one row, and rows that fill the pipe to the task, each row arrives when it is due."""
    pause = F.expr(f"java_method('java.lang.Thread', 'sleep', {pause_ms}L)")
    rows = spark.range(0, tasks * rows_per_task, 1, tasks).withColumn("pause", pause)
    value = f"rpad(concat(id, coalesce(pause, '')), {ROW_BYTES}, ' ')"
    return rows.selectExpr("CAST(id AS STRING) AS key", f"{value} AS value")


@pytest.fixture
def single_rows(spark: SparkSession) -> Iterator[None]:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.conf.set(name, "1")
    yield
    spark.conf.unset(name)


def test_a_write_that_takes_too_long_is_warned_about_refused_and_told_to_be_divided(
    spark: SparkSession,
    kafka_4: KafkaCluster,
    topic_name: str,
    single_rows: None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Four turns of tasks, of which the first alone takes a third of the time that all have."""
    writable_topic(kafka_4, topic_name)
    given = {**named(kafka_4, topic_name), "kafka.transaction.timeout.ms": "4000"}
    with (
        caplog.at_level(logging.WARNING, "kafka_sink"),
        pytest.raises(kafka_sink.CommitAborted, match=r"PKS-6017 (?s:.*)The write took longer than") as caught,
    ):
        kafka_sink.write(slow_rows(spark, 8, 13, 100), given)
    assert "kafka_sink.write_in_chunks(frame, options" in str(caught.value)
    warned = [record.getMessage() for record in caplog.records if "will be refused at its end" in record.getMessage()]
    assert len(warned) == 1 and "of 8 tasks have ended" in warned[0] and "write_in_chunks" in warned[0]
    assert values(kafka_4, topic_name) == []


def test_a_task_that_takes_too_long_is_told_to_be_divided(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, single_rows: None
) -> None:
    """Brokers look every ten seconds for transactions whose time is over."""
    writable_topic(kafka_4, topic_name)
    given = {**named(kafka_4, topic_name), "kafka.transaction.timeout.ms": "1000", "kafka.linger.ms": "0"}
    with pytest.raises(Exception, match=r"PKS-6017 .*(the task|The write) took longer than") as caught:
        kafka_sink.write(slow_rows(spark, 1, 150, 100), given)
    assert "kafka_sink.write_in_chunks(frame, options" in str(caught.value)
    assert values(kafka_4, topic_name) == []


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_an_export_of_many_times_the_brokers_limit_is_delivered_in_chunks(
    spark: SparkSession, topic_name: str, single_rows: None
) -> None:
    allowed_s = LIMIT_S * 3 / 4
    chunks = math.ceil(LENGTH_S / (allowed_s / 3))
    rows, pause_ms = chunks * 40, math.ceil(LENGTH_S * 1000 * CORES / (chunks * 40))
    with KafkaCluster(properties={"transaction.max.timeout.ms": LIMIT_S * 1000}) as kafka:
        writable_topic(kafka, topic_name)
        given, began_s = named(kafka, topic_name), time.monotonic()
        # Spark chooses the rows of a chunk before it calls a function that is deterministic: only they take time.
        slowly = F.pandas_udf(lambda texts: time.sleep(pause_ms / 1000) or texts.str.ljust(ROW_BYTES), "string")
        frame = spark.range(0, rows, 1, CORES).selectExpr("CAST(id AS STRING) AS key")
        slow = frame.select("key", slowly("key").alias("value"))
        done = kafka_sink.write_in_chunks(slow, given, chunks=chunks, by="key")
        print(f"\n{rows} rows in {chunks} chunks: {time.monotonic() - began_s:.0f} s, brokers allow {LIMIT_S} s")
        assert (done.rows, done.skipped) == (rows, 0)
        assert Counter(int(value or b"") for value in values(kafka, topic_name)) == Counter(range(rows))
        assert open_transactions(kafka.bootstrap_servers, given["sink.id"]) == []


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_each_row_of_an_export_is_there_once_though_its_driver_was_killed_ten_times(
    kafka_4: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    require_java()
    writable_topic(kafka_4, topic_name)
    seed = random.SystemRandom().randrange(1 << 31)
    print(f"\nseed {seed}")
    dice = random.Random(seed)
    value = "concat(id, '-', sha2(repeat(id, 50), 512))"
    query = f"SELECT CAST(id AS STRING) AS key, {value} AS value FROM range(0, {KILLED_ROWS}, 1, 4)"
    given = {
        "kafka.bootstrap.servers": kafka_4.bootstrap_servers,
        "topic": topic_name,
        "sink.id": topic_name[-60:].lstrip("-"),
    }
    command = ["--sql", query, "--chunks", str(KILLED_CHUNKS), "--chunk-by", "key"]
    command += ["--chunks-at-once", "2", "--to", "batch.id=export-1"]
    command += [word for name, value in given.items() for word in ("--to", f"{name}={value}")]
    for number in range(KILLS):
        kill_at_random(command, tmp_path, number, dice)
    last = start_application(JOB, command, tmp_path, KILLS, stdin=subprocess.DEVNULL)
    assert last.wait(PATIENCE_S) == 0, (tmp_path / f"errors-{KILLS}").read_text()[-4000:]
    output = (tmp_path / f"output-{KILLS}").read_text()
    print(output.splitlines()[-1])
    assert f"exported {KILLED_ROWS} rows in {KILLED_CHUNKS} chunks" in output
    found = Counter(
        int((record.value or b"").partition(b"-")[0]) for record in read_topic(kafka_4.bootstrap_servers, topic_name)
    )
    assert (len(found), found.total(), max(found)) == (KILLED_ROWS, KILLED_ROWS, KILLED_ROWS - 1)
    assert open_transactions(kafka_4.bootstrap_servers, given["sink.id"]) == []


def kill_at_random(command: Sequence[str], folder: Path, number: int, dice: random.Random) -> None:
    """Driver and JVM, at any moment: in start, planning, the first chunk that it writes, or a later one."""
    running = start_application(JOB, command, folder, number, stdin=subprocess.DEVNULL)
    output, errors = folder / f"output-{number}", folder / f"errors-{number}"
    is_later = dice.random() < 0.6
    if is_later:
        wait_until(
            lambda: b" delivered, " in output.read_bytes() or running.poll() is not None,
            lambda: f"a chunk: {errors.read_text()[-4000:]}",
            PATIENCE_S,
        )
    with suppress(subprocess.TimeoutExpired):
        running.wait(dice.uniform(0, 1.0 if is_later else 12.0))
    assert running.poll() is None, f"it ended before kill {number}: {errors.read_text()[-4000:]}"
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait(60)
    lines = output.read_text().splitlines()
    new = [line for line in lines if " delivered, " in line and " before, " not in line]
    print(f"kill {number + 1:3}: {len(lines)} chunks known, {len(new)} of them by this run", flush=True)
