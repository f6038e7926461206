"""What kind of process the sink believes to be in, asked in real ones: the user's driver process and its children,
Spark's workers of tasks, and those that plan and commit. tests/compat/test_connect.py asks in one of Spark Connect."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import require_java
from tests.spark.process_facts import Facts, facts_in, writer_of_facts
from tools.spark_jvm import QUICK_JVM, quick_settings

ROOT = Path(__file__).parents[2]
JOB = """
import json, os, sys, threading, time
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from kafka_sink import ConfigError, sink_metrics
from kafka_sink.spark.process import moment_here, time_since
from kafka_sink.telemetry.metrics.notebook import application_folder_of

__FACTS__

class Asking(DataSource):
    @classmethod
    def name(cls):
        return "asking"

    def writer(self, schema, overwrite):
        tell("planning")
        return Writer()

    def streamWriter(self, schema, overwrite):
        tell("planning")
        return StreamWriter()

class Writer(DataSourceWriter):
    def write(self, rows):
        tell("task")
        return WriterCommitMessage()

    def commit(self, messages):
        tell("commit")

class StreamWriter(DataSourceStreamWriter):
    def __init__(self):
        self.planned = moment_here()

    def write(self, rows):
        tell("task")
        message = WriterCommitMessage()
        message.planned, message.begun = self.planned, moment_here()
        return message

    def commit(self, messages, batch_id):
        tell("commit")
        tell_times(messages)
        threading.Thread(target=tell_later, daemon=True).start()

def tell_times(messages, seen=SEEN + ".times"):
    times = [[each.planned.at_ms, each.begun.at_ms] for each in messages]
    with open(seen, "a") as opened:
        opened.write(json.dumps([times, time_since(each.planned for each in messages)]) + chr(10))

def tell_later():
    time.sleep(0.2)
    tell("commit has returned")

def in_child(place):
    child = os.fork()
    if child == 0:
        tell(place)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0

def ask(rows):
    tell("task")
    return rows

os.environ["SPARK_LOCAL_DIRS"] = os.path.dirname(SEEN)  # an operator's setting for all applications
tell("before")
spark = SparkSession.builder.getOrCreate()
in_child("uninformed child")
tell("driver")
in_child("child")
print("folder", application_folder_of(spark))
spark.range(0, 4, 1, 2).mapInArrow(ask, "id long").collect()
spark.dataSource.register(Asking)
spark.range(0, 4, 1, 2).write.format("asking").mode("append").save()
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "1").load().writeStream.format("asking")
query = rows.option("checkpointLocation", os.path.dirname(SEEN) + "/checkpoint").start()
while query.lastProgress is None or query.lastProgress["batchId"] < 1:
    time.sleep(0.1)
while os.environ["AWAITED"] and os.environ["AWAITED"] not in open(SEEN).read():
    time.sleep(0.1)
query.stop()
print("metrics", list(sink_metrics(spark)))
spark.stop()
tell("after")
try:
    sink_metrics(spark)
except ConfigError as error:
    print("metrics", error)
spark = SparkSession.builder.getOrCreate()
print("folder", application_folder_of(spark))
tell("again")
"""


@pytest.mark.parametrize(
    ("settings", "lives_on"),
    [
        ({}, True),
        pytest.param({"spark.python.unix.domain.socket.enabled": "true"}, True, marks=pytest.mark.slow),
        pytest.param({"spark.python.worker.reuse": "false"}, False, marks=pytest.mark.slow),
        pytest.param({"spark.python.use.daemon": "false"}, False, marks=pytest.mark.slow),
    ],
    ids=["tcp", "unix", "without-reuse", "without-daemon"],
)
def test_each_process_of_an_application_knows_what_it_is_and_metrics_of_a_stopped_session_are_refused(
    settings: dict[str, str], lives_on: bool, tmp_path: Path
) -> None:
    """One that lives on after its commit goes on with what another thread has begun there."""
    require_java()
    seen = tmp_path / "seen"
    settings = {**settings, "spark.master": "local[2]", "spark.ui.enabled": "false", **quick_settings(tmp_path)}
    arguments = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "AWAITED": "commit has returned" if lives_on else "",
        "SPARK_LAUNCHER_OPTS": QUICK_JVM,
        "PYSPARK_SUBMIT_ARGS": shlex.join([*arguments, "pyspark-shell"]),
    }
    job = JOB.replace("__FACTS__", writer_of_facts(seen))
    run = subprocess.run([sys.executable, "-c", job], env=environment, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stderr[-5_000:]
    first, second = [line.removeprefix("folder ") for line in run.stdout.splitlines() if line.startswith("folder ")]
    found = facts_in(seen)
    users = Facts(is_sparks=False, ends=False, lives_on=True, folder=None, handlers=0)
    workers = Facts(is_sparks=True, ends=True, lives_on=lives_on, folder=first, handlers=1)
    # The thread of a process that ends may be in time.
    later = found.pop("commit has returned", set())
    assert later == {workers} or (not lives_on and not later)
    in_driver = users._replace(folder=first)
    assert found == {
        "before": {users},
        # Nobody had asked for the folder before the fork, and a child must not use its parent's way to the JVM.
        "uninformed child": {users},
        "driver": {in_driver},
        "child": {in_driver},
        "task": {workers},
        "planning": {workers},
        "commit": {workers},
        "after": {users},
        "again": {users._replace(folder=second)},
    }
    assert second != first
    assert [line.removeprefix("metrics ") for line in run.stdout.splitlines() if line.startswith("metrics ")] == [
        "[]",
        "this session has no running Spark application, or it has been stopped",
    ]
    check_times([json.loads(line) for line in Path(f"{seen}.times").read_text().splitlines()])


def check_times(batches: list[tuple[list[tuple[int, int]], int]]) -> None:
    """Each micro-batch of a stream is planned, anew and before its tasks, on the host of its commit."""
    assert len(batches) >= 2
    planned = [{one for one, _ in tasks} for tasks, _ in batches]
    assert all(len(each) == 1 for each in planned) and planned == sorted(planned, key=min)
    assert len({min(each) for each in planned}) == len(planned)
    assert all(one <= begun for tasks, _ in batches for one, begun in tasks)
    assert all(age_ms >= 0 for _, age_ms in batches)
