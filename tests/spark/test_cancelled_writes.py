"""A batch write of many small tasks is cancelled while brokers stall: no transaction that a killed task's Python worker
begins later holds back readers. Through the format and through `write`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafka_sink
from tests.conftest import NEWEST, or_without_kafka
from tests.spark.conftest import require_java
from tests.spark.kernels import kernel_of_this_python
from tools.foreign_reader import end_offsets
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

if TYPE_CHECKING:
    from jupyter_client.blocking.client import BlockingKernelClient
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[2]
STALL_S = 1.5
TASKS, ROUNDS = 300, 10
DOORS = ["format", "write"]
# A transaction that nobody ends holds readers back for 15 minutes.
PATIENCE_S = 20


@pytest.fixture(scope="module")
def stalling() -> Iterator[KafkaCluster]:
    """A node of its own: other tests must not be stopped with it."""
    with or_without_kafka(KafkaCluster(NEWEST)) as kafka:
        yield kafka


@contextmanager
def stall(kafka: KafkaCluster) -> Iterator[None]:
    """What is done here is done while tasks wait for the brokers, which then stall for a while longer."""
    (node,) = kafka.node_ids
    kafka.pause(node)
    try:
        time.sleep(STALL_S / 3)
        yield
        time.sleep(STALL_S * 2 / 3)
    finally:
        kafka.resume(node)


def ends(kafka: KafkaCluster, topic: str, isolation: str = "read_uncommitted") -> int:
    return sum(end_offsets(kafka.bootstrap_servers, topic, isolation).values())  # type: ignore[arg-type]


def readers_reach_the_end(kafka: KafkaCluster, topic: str) -> bool:
    return ends(kafka, topic, "read_committed") == ends(kafka, topic)


def write_through(door: str, spark: SparkSession, rows: DataFrame, options: dict[str, str]) -> None:
    if door == "write":
        kafka_sink.write(rows, options)
        return
    kafka_sink.register(spark)
    rows.write.format("pykafka-sink").mode("append").options(**options).save()


def cancel_while_brokers_stall(
    spark: SparkSession, kafka: KafkaCluster, topic: str, door: str, *, tasks: int, interrupts: bool
) -> None:
    """A write in a thread, as of a notebook or a service whose session goes on."""
    failed: list[str] = []
    kafka.create_topic(topic)

    def write() -> None:
        spark.sparkContext.setJobGroup(topic, topic, interruptOnCancel=interrupts)
        rows = spark.range(0, tasks * 3, 1, tasks).selectExpr("CAST(id AS STRING) AS value")
        try:
            write_through(door, spark, rows, {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic})
        except Exception as error:
            failed.append(str(error))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        wait_until(lambda: failed or ends(kafka, topic), "the first task has written")
        with stall(kafka):
            spark.sparkContext.cancelJobGroup(topic)
    finally:
        thread.join()
    assert "cancelled" in failed[0], failed[0]
    wait_until(lambda: readers_reach_the_end(kafka, topic), "readers reach the end", PATIENCE_S)


@pytest.mark.parametrize("door", DOORS)
def test_a_write_that_is_cancelled_while_brokers_stall_holds_no_reader_back(
    spark: SparkSession, stalling: KafkaCluster, topic_name: str, door: str
) -> None:
    cancel_while_brokers_stall(spark, stalling, topic_name, door, tasks=40, interrupts=False)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("interrupts", [False, True], ids=["left to themselves", "interrupted"])
def test_of_many_cancelled_writes_none_holds_a_reader_back(
    spark: SparkSession, stalling: KafkaCluster, topic_name: str, interrupts: bool, door: str
) -> None:
    for number in range(ROUNDS):
        topic = f"{topic_name}-{number}"
        cancel_while_brokers_stall(spark, stalling, topic, door, tasks=TASKS, interrupts=interrupts)


# ---- a caller that is interrupted ----

# Until a task has its first row: longer than an abort waits for tasks of a job that has been cancelled.
SLOW_S = 25


def slow_rows(spark: Any, slow_s: float = SLOW_S, beats: str | None = None) -> DataFrame:
    """`beats`: a file that is written to for as long as a task waits."""

    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        for _ in range(int(slow_s)):
            time.sleep(1)
            if beats is not None:
                with open(beats, "a") as file:
                    file.write(".")
        yield from batches

    rows = spark.range(0, 20, 1, 4).selectExpr("CAST(id AS STRING) AS value")
    return rows.mapInArrow(wait, rows.schema)


@contextmanager
def interrupted(error: type[BaseException], runs: Callable[[], object]) -> Iterator[None]:
    """When the job runs, by a signal whose handler raises."""

    def raise_error(*_: object) -> None:
        raise error

    def interrupt() -> None:
        wait_until(runs, "the job runs")
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, raise_error)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)


def running_jobs(spark: SparkSession, description: str) -> list[int]:
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    found = [jobs.apply(index) for index in range(jobs.size())]
    own = [job for job in found if job.description().isDefined() and job.description().get() == description]
    return [job.jobId() for job in own if job.status().toString() == "RUNNING"]


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, pytest.param(TimeoutError, marks=pytest.mark.slow)], ids=["stop", "alarm"]
)
def test_the_job_of_an_interrupted_write_is_cancelled_and_no_reader_waits(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, error: type[BaseException]
) -> None:
    kafka_4.create_topic(topic_name)
    options = {"kafka.bootstrap.servers": kafka_4.bootstrap_servers, "topic": topic_name}
    spark.sparkContext.setLocalProperty("spark.job.description", topic_name)
    with pytest.raises(error), interrupted(error, lambda: running_jobs(spark, topic_name)):
        kafka_sink.write(slow_rows(spark), options)
    spark.sparkContext.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
    assert running_jobs(spark, topic_name) == []
    wait_until(lambda: readers_reach_the_end(kafka_4, topic_name), "readers reach the end", PATIENCE_S)
    assert kafka_sink.write(spark.range(3).selectExpr("CAST(id AS STRING) AS value"), options).rows == 3


def test_the_jobs_of_chunks_beside_each_other_are_cancelled_with_their_call(
    spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    kafka_4.create_topic(topic_name)
    options = {"kafka.bootstrap.servers": kafka_4.bootstrap_servers, "topic": topic_name}
    options |= {"sink.id": topic_name, "batch.id": "export"}
    spark.sparkContext.setLocalProperty("spark.job.description", topic_name)
    runs = interrupted(KeyboardInterrupt, lambda: len(running_jobs(spark, topic_name)) == 2)
    with pytest.raises(KeyboardInterrupt), runs:
        kafka_sink.write_in_chunks(slow_rows(spark), options, chunks=3, by="value", parallel=2)
    spark.sparkContext.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
    assert running_jobs(spark, topic_name) == []
    wait_until(lambda: readers_reach_the_end(kafka_4, topic_name), "readers reach the end", PATIENCE_S)
    rows = spark.range(20).selectExpr("CAST(id AS STRING) AS value")
    again = kafka_sink.write_in_chunks(rows, options, chunks=3, by="value", parallel=2)
    assert (again.rows, again.skipped) == (20, 0)


# ---- Ctrl-C in a notebook ----

SESSION = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
"""
# After an interrupted cell the main thread has no active session, in which Spark would find the format.
WRITE = """
import kafka_sink
from tests.spark.test_cancelled_writes import write_through
rows = spark.range(0, {rows}, 1, {tasks}).selectExpr("CAST(id AS STRING) AS value")
write_through("{door}", spark, rows, {{"kafka.bootstrap.servers": "{servers}", "topic": "{topic}"}})
"""


@pytest.fixture
def notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[BlockingKernelClient, Callable[[], None]]]:
    """A kernel, and what the stop button does."""
    require_java()
    from jupyter_client.manager import KernelManager

    monkeypatch.setenv("JUPYTER_DATA_DIR", kernel_of_this_python(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    manager = KernelManager(kernel_name="here")
    manager.start_kernel(cwd=str(tmp_path))
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        yield client, manager.interrupt_kernel
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


# In a cell after that of the session an interrupt reaches no handler of Spark's.
SLOW_WRITE = """
import kafka_sink
from tests.spark.test_cancelled_writes import slow_rows
kafka_sink.write(slow_rows(spark, 60, "{beats}"), {{"kafka.bootstrap.servers": "{servers}", "topic": "{topic}"}})
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_an_interrupted_cell_leaves_no_job_behind(
    notebook: tuple[BlockingKernelClient, Callable[[], None]], kafka_4: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    client, interrupt = notebook
    kafka_4.create_topic(topic_name)
    beats = tmp_path / "beats"
    client.execute_interactive(SESSION, timeout=300)
    client.execute(SLOW_WRITE.format(beats=beats, servers=kafka_4.bootstrap_servers, topic=topic_name))
    wait_until(beats.exists, "a task waits", 120)
    interrupt()
    reply = client.get_shell_msg(timeout=120)
    assert reply["content"]["ename"] == "KeyboardInterrupt"
    said: list[str] = []
    client.execute_interactive(
        "print(spark.sparkContext.statusTracker().getActiveJobsIds())",
        output_hook=lambda message: said.append(message["content"].get("text", "")),
        timeout=60,
    )
    assert "".join(said).strip() in ("[]", "()"), said
    wait_until(lambda: readers_reach_the_end(kafka_4, topic_name), "readers reach the end", PATIENCE_S)


SLOW_SAVE = """
from tests.spark.test_cancelled_writes import slow_rows, write_through
write_through("format", spark, slow_rows(spark, 60, "{beats}"), {{
    "kafka.bootstrap.servers": "{servers}", "topic": "{topic}"
}})
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_what_an_interrupted_cell_leaves_to_spark_writes_nothing_once_all_jobs_are_cancelled(
    notebook: tuple[BlockingKernelClient, Callable[[], None]], stalling: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    """What docs/guides/notebooks.md says of the format, while brokers stall."""
    client, interrupt = notebook
    stalling.create_topic(topic_name)
    beats = tmp_path / "beats"
    client.execute_interactive(SESSION, timeout=300)
    client.execute(SLOW_SAVE.format(beats=beats, servers=stalling.bootstrap_servers, topic=topic_name))
    wait_until(beats.exists, "a task waits", 120)

    def active_jobs() -> str:
        said: list[str] = []
        client.execute_interactive(
            "print(spark.sparkContext.statusTracker().getActiveJobsIds())",
            output_hook=lambda message: said.append(message["content"].get("text", "")),
            timeout=60,
        )
        return "".join(said).strip()

    with stall(stalling):
        interrupt()
        assert client.get_shell_msg(timeout=120)["content"]["ename"] == "KeyboardInterrupt"
        assert active_jobs() not in ("[]", "()")
        client.execute_interactive("spark.sparkContext.cancelAllJobs()", timeout=60)
    wait_until(lambda: active_jobs() in ("[]", "()"), "the job has ended", PATIENCE_S)
    assert readers_reach_the_end(stalling, topic_name) and ends(stalling, topic_name) == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("door", DOORS)
def test_a_cell_that_is_interrupted_while_brokers_stall_holds_no_reader_back(
    notebook: tuple[BlockingKernelClient, Callable[[], None]], stalling: KafkaCluster, topic_name: str, door: str
) -> None:
    client, interrupt = notebook
    client.execute_interactive(SESSION, timeout=300)
    for number in range(ROUNDS):
        topic = f"{topic_name}-{number}"
        stalling.create_topic(topic)
        servers = stalling.bootstrap_servers
        asked = client.execute(WRITE.format(rows=TASKS * 3, tasks=TASKS, topic=topic, servers=servers, door=door))
        wait_until(lambda: ends(stalling, topic), "the first task has written")  # noqa: B023
        with stall(stalling):
            interrupt()
        reply = client.get_shell_msg(timeout=120)
        assert reply["parent_header"]["msg_id"] == asked and reply["content"]["ename"] == "KeyboardInterrupt"
        wait_until(lambda: readers_reach_the_end(stalling, topic), "readers reach the end", PATIENCE_S)  # noqa: B023


# ---- what a task sees of Spark ----

LOOK = """
import json
from pyspark.sql import SparkSession

def look(rows):
    from kafka_sink.spark.task_context import _connection, is_spark_waiting
    before = [_connection() is not None, is_spark_waiting()]
    list(rows)
    return [before, [_connection() is not None, is_spark_waiting()]]

spark = SparkSession.builder.getOrCreate()
for _ in range(2):
    print("looks", json.dumps(spark.sparkContext.parallelize(range(10_000), 4).mapPartitions(look).collect()))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"spark.python.unix.domain.socket.enabled": "false"},
        {"spark.python.unix.domain.socket.enabled": "true"},
        {"spark.python.worker.reuse": "false", "spark.python.use.daemon": "false"},
        {"spark.python.udf.pipelined.enabled": "true"},
    ],
    ids=["tcp", "unix", "short-lived", "pipelined"],
)
def test_a_task_finds_its_connection_to_spark_which_stays_open_after_the_last_row(settings: dict[str, str]) -> None:
    require_java()
    settings = {**settings, "spark.master": "local[2]", "spark.ui.enabled": "false"}
    arguments = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": " ".join([*arguments, "pyspark-shell"]),
    }
    run = subprocess.run([sys.executable, "-c", LOOK], env=environment, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-5_000:]
    looks = [json.loads(line.removeprefix("looks ")) for line in run.stdout.splitlines() if line.startswith("looks ")]
    assert looks == [[[True, True]] * 8] * 2
