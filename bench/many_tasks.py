"""One Python worker runs task after task: `python -m bench.many_tasks [--tasks N]`.

The benchmark shows whether its memory stays constant. Small exactly-once tasks, a thousand per write, run in an
application with one core, so that one process runs them all. Its resident memory is read from /proc after 100, 1000,
5000 and 10,000 tasks. The other processes of the write, planning and commit, are shown at the end.

The time of a task, including commit and Spark, is printed but not on the page: it is meaningful only in comparison with
another version that runs at the same time.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from bench.contest import BROKER_JVM, BROKER_PROPERTIES
from bench.process_tree import python_workers, resident_bytes
from bench.report import PAGES, PARTIAL, conditions, machine, publish
from bench.spark_arena import SOCKETS
from tools.kafka_cluster import KafkaCluster

TASKS_PER_WRITE, ROWS_PER_TASK, PARTITIONS = 1000, 10, 4
LOOKS = (100, 1000, 5000, 10_000)


@dataclass(frozen=True)
class Look:
    """The largest Python process after `task_count` tasks, which is the one that runs them. `task_ms` is the time per
    task since the previous look."""

    task_count: int
    rss_bytes: int
    task_ms: float


class Bench:
    def __init__(self, spark: SparkSession, kafka: KafkaCluster) -> None:
        self._spark = spark
        self._kafka = kafka
        self._topic = kafka.create_topic("tasks", partitions=PARTITIONS)
        self._task_count = 0

    def look_after(self, task_count: int) -> Look:
        before, began_s = self._task_count, time.monotonic()
        while self._task_count < task_count:
            self._write(min(TASKS_PER_WRITE, task_count - self._task_count))
        task_ms = (time.monotonic() - began_s) * 1000 / (self._task_count - before)
        return Look(task_count, max(self.worker_bytes()), task_ms)

    def worker_bytes(self) -> list[int]:
        """The resident memory of each live Python process, largest first."""
        jvm = self._spark.sparkContext._jvm
        assert jvm is not None
        pids = python_workers(int(jvm.java.lang.ProcessHandle.current().pid()))
        return sorted((resident_bytes(pid) for pid in pids), reverse=True)

    def _write(self, tasks: int) -> None:
        rows = self._spark.range(0, tasks * ROWS_PER_TASK, 1, tasks)
        frame = rows.selectExpr("CAST(id AS STRING) AS key", "repeat('x', 100) AS value")
        writer = frame.write.format("pykafka-sink").option("topic", self._topic).mode("append")
        writer.option("kafka.bootstrap.servers", self._kafka.bootstrap_servers).save()
        self._task_count += tasks


def markdown(looks: Sequence[Look], others: Sequence[int], about: Mapping[str, str]) -> str:
    lines = ["# One Python worker, task after task", "", "Written by `python -m bench.many_tasks`.", ""]
    lines += ["| tasks | resident memory, MiB |", "| --: | --: |"]
    lines += [f"| {each.task_count:,} | {each.rss_bytes / 2**20:.1f} |" for each in looks]
    lines += ["", "Planning and commit, at the end: " + ", ".join(f"{each / 2**20:.1f} MiB" for each in others) + "."]
    return "\n".join([*lines, "", conditions(about)]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.many_tasks", description="A worker's memory over its tasks.")
    parser.add_argument("--tasks", type=int, default=LOOKS[-1], help="fewer than the default for a short run")
    most = parser.parse_args().tasks
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    with (
        tempfile.TemporaryDirectory(prefix="pykafka-sink-bench-") as folder,
        KafkaCluster(properties=BROKER_PROPERTIES, jvm_options=BROKER_JVM) as kafka,
    ):
        builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config(SOCKETS, "true")
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.ui.showConsoleProgress", "false")
        spark = builder.config("spark.sql.warehouse.dir", str(Path(folder, "warehouse"))).getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        bench, looks = Bench(spark, kafka), []
        for task_count in (each for each in LOOKS if each <= most):
            looks.append(bench.look_after(task_count))
            print(
                f"{task_count:6} tasks  {looks[-1].rss_bytes / 2**20:7.1f} MiB  {looks[-1].task_ms:6.1f} ms", flush=True
            )
        others = bench.worker_bytes()[1:]
        spark.stop()
    about = {"rows per task": str(ROWS_PER_TASK), **machine()}
    figures = {"about": about, "looks": [asdict(each) for each in looks], "others_bytes": others}
    folder_of_page = PAGES if most >= LOOKS[-1] else PARTIAL
    publish("many-tasks", markdown(looks, others, about), figures, folder_of_page)


if __name__ == "__main__":
    main()
