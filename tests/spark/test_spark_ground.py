"""The ground that the tests of the sink stand on: Spark's own sink, the foreign reader, the standalone cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.spark_session import TopicRow, as_sets, read_rows, run_to_end
from tools import kafka_watchdog
from tools.kafka_cluster import KafkaCluster
from tools.spark_cluster import SparkCluster, SparkFailed
from tools.waiting import wait_until

JOBS = Path(__file__).parent / "jobs"
PATIENCE_S = 400


def test_rows_of_sparks_own_sink_are_read_back_whole(
    jvm_spark: SparkSession, kafka_4: KafkaCluster, topic_name: str
) -> None:
    kafka_4.create_topic(topic_name, partitions=2)
    frame = jvm_spark.range(100).selectExpr(
        "cast(id as string) as key",
        "if(id = 7, null, concat('value ', id)) as value",
        "cast(id % 2 as int) as partition",
        "if(id = 8, array(named_struct('key', 'h', 'value', cast('x' as binary))), null) as headers",
    )
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", kafka_4.bootstrap_servers)
    writer.option("topic", topic_name).save()
    rows = read_rows(kafka_4.bootstrap_servers, topic_name)
    expected = [
        TopicRow(
            topic_name,
            number % 2,
            str(number).encode(),
            None if number == 7 else f"value {number}".encode(),
            (("h", b"x"),) if number == 8 else (),
            0,
        )
        for number in range(100)
    ]
    assert as_sets(rows) == as_sets(expected)
    assert all(row.timestamp_ms > 1_600_000_000_000 for row in rows)


def test_a_stream_of_sparks_own_sink_ends_and_is_read_back(
    jvm_spark: SparkSession, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path, checkpoint: str
) -> None:
    kafka_4.create_topic(topic_name)
    jvm_spark.range(100).selectExpr("cast(id as string) as value").write.parquet(str(tmp_path / "source"))
    source = jvm_spark.readStream.schema("value string").parquet(str(tmp_path / "source"))
    writer = source.writeStream.format("kafka").option("kafka.bootstrap.servers", kafka_4.bootstrap_servers)
    writer = writer.option("topic", topic_name).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    run_to_end(query)
    values = [row.value for row in read_rows(kafka_4.bootstrap_servers, topic_name)]
    assert sorted(values, key=lambda value: int(value or b"-1")) == [str(number).encode() for number in range(100)]


def test_python_workers_of_the_session_run_the_interpreter_of_the_tests(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect()
    assert found == [sys.executable]


def test_a_task_that_fails_once_is_tried_again(spark: SparkSession) -> None:
    def attempt(numbers: object) -> list[int]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            raise ValueError("the first attempt fails")
        return [context.attemptNumber()]

    assert spark.sparkContext.parallelize([0], 1).mapPartitions(attempt).collect() == [1]


def test_a_job_that_fails_says_why(spark_cluster: SparkCluster, tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("raise SystemExit('this text is looked for')")
    with pytest.raises(SparkFailed, match="this text is looked for"):
        spark_cluster.submit(script).wait()


def test_a_killed_executor_is_replaced_and_a_paused_python_worker_goes_on(
    spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    job = spark_cluster.submit(JOBS / "wait_in_tasks.py", [str(gate)])
    wait_until(lambda: len(spark_cluster.python_workers()) == 2, "both tasks run", PATIENCE_S)
    killed, other = spark_cluster.executors()
    assert (killed.host, other.host) == ("127.0.0.2", "127.0.0.3")
    (paused,) = spark_cluster.python_workers(other)
    spark_cluster.pause(paused)
    spark_cluster.kill(killed.process_id)
    hosts = ["127.0.0.2", "127.0.0.3"]
    wait_until(lambda: [one.host for one in spark_cluster.executors()] == hosts, "it is replaced", PATIENCE_S)
    assert killed.process_id not in [one.process_id for one in spark_cluster.executors()]
    gate.touch()
    spark_cluster.resume(paused)
    assert job.wait().split() == ["4950"]


def test_a_killed_worker_comes_back_for_the_next_test(spark_cluster: SparkCluster) -> None:
    killed = spark_cluster.worker_process_id(1)
    spark_cluster.kill(killed)
    spark_cluster.heal()
    assert spark_cluster.worker_process_id(1) != killed
    assert spark_cluster.alive_hosts() == {"127.0.0.2", "127.0.0.3"}


def test_only_processes_of_the_cluster_can_be_killed(spark_cluster: SparkCluster) -> None:
    with pytest.raises(ValueError, match="not a live one of this cluster"):
        spark_cluster.kill(os.getpid())


def test_a_closed_cluster_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    with SparkCluster(workers=1, cores=2) as cluster:
        folder = cluster.folder
        cluster.submit(JOBS / "wait_in_tasks.py", [str(tmp_path / "never")])
        wait_until(lambda: len(cluster.python_workers()) == 2, "both tasks run", PATIENCE_S)
    assert kafka_watchdog.processes_using(str(folder)) == []
    assert not folder.exists()


_OWNER = """
import sys
from tools.spark_cluster import SparkCluster
with SparkCluster(workers=1, cores=2) as cluster:
    cluster.submit(sys.argv[1], [sys.argv[2]])
    print(cluster.folder, flush=True)
    while len(cluster.python_workers()) < 2:
        pass
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_cluster_ends_with_its_owner_though_it_was_killed(tmp_path: Path) -> None:
    arguments = [str(JOBS / "wait_in_tasks.py"), str(tmp_path / "never")]
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    with owner:
        assert owner.stdout is not None
        folder = owner.stdout.readline().strip()
        assert owner.stdout.readline() == "ready\n"
        owner.send_signal(signal.SIGKILL)
    wait_until(lambda: kafka_watchdog.processes_using(folder) == [] and not Path(folder).exists(), "all is gone")
