"""The guide on change feeds with real Delta Lake and Apache Kafka: its code is run, and killed while it runs.

Delta has releases for one PySpark at a time, so this runs with that PySpark. What a foreign reader rebuilds from the
topics is the table.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import without_kafka
from tests.spark.conftest import require_java
from tests.support.change_events import rebuild_from_events, rebuild_from_rows, versions_per_key
from tools.compat import spark_python
from tools.foreign_reader import ForeignRecord, read_topic
from tools.kafka_cluster import KafkaCluster
from tools.kafka_jars import KafkaUnavailable
from tools.spark_jars import DELTA_PYSPARK, delta_jars

ROOT = Path(__file__).parents[2]
JOB = Path(__file__).parent / "jobs" / "delta_changes.py"
COMMITS, KILLS = 100, 6
TOPICS = ("customers", "customer-events", "merged", "people")


class DeltaJob:
    def __init__(self, kafka: KafkaCluster, folder: Path, topics: str) -> None:
        self._kafka = kafka
        self._topics = topics
        self._folder = folder
        self._python = spark_python(DELTA_PYSPARK)
        jars = ",".join(map(str, delta_jars()))
        self._command = [str(self._python), str(JOB), jars, kafka.bootstrap_servers, str(folder), topics]
        for topic in TOPICS:
            kafka.create_topic(topics + topic, partitions=3)

    def start(self, *words: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(self._python)}
        environment.pop("SPARK_HOME", None)
        with open(self._folder / "log", "a") as log:
            return subprocess.Popen(
                [*self._command, *words], stdout=subprocess.PIPE, stderr=log, text=True, cwd=self._folder,
                env=environment, start_new_session=True,
            )  # fmt: skip

    def read(self, topic: str) -> list[list[ForeignRecord]]:
        """By partition."""
        records = read_topic(self._kafka.bootstrap_servers, self._topics + topic)
        return [[record for record in records if record.partition == partition] for partition in range(3)]

    def run(self, *words: str) -> None:
        process = self.start(*words)
        process.communicate()
        assert process.returncode == 0, (self._folder / "log").read_text()[-3000:]

    def run_and_kill(self, dice: random.Random) -> bool:
        """True if it was killed: driver, tasks and workers at once, somewhere in its second micro-batch."""
        process = self.start("follow")
        assert process.stdout is not None
        begun = 0
        for line in process.stdout:
            begun += line.startswith("batch ")
            if begun == 2:
                time.sleep(dice.uniform(0, 4))
                break
        is_killed = process.poll() is None
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return is_killed


@pytest.fixture
def job(kafka_4: KafkaCluster, tmp_path: Path, topic_name: str) -> DeltaJob:
    require_java()
    try:
        return DeltaJob(kafka_4, tmp_path, f"{topic_name[-30:].lstrip('-')}-")
    except KafkaUnavailable as error:
        without_kafka(str(error))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_readers_rebuild_a_table_of_a_hundred_commits_from_both_envelopes_whatever_was_killed(
    job: DeltaJob, tmp_path: Path
) -> None:
    job.run("make", str(COMMITS))
    made: dict[str, Any] = json.loads((tmp_path / "rows.json").read_text())
    assert made["versions"] == COMMITS and made["rows"]
    dice, kills = random.Random(11), 0
    while kills < KILLS and job.run_and_kill(dice):
        kills += 1
    assert kills >= 3
    job.run("follow")
    rows, events = job.read("customers"), job.read("customer-events")
    assert rebuild_from_rows(rows) == rebuild_from_events(events) == made["rows"]
    assert all(versions == sorted(set(versions)) for versions in versions_per_key(rows).values())
    # One micro-batch held several commits, else there was no order to keep.
    assert sum(map(len, rows)) > 3 * KILLS


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_code_of_the_guide_runs_with_delta(job: DeltaJob, tmp_path: Path) -> None:
    job.run("make", "8")
    made = json.loads((tmp_path / "rows.json").read_text())
    job.run("page")
    assert rebuild_from_rows(job.read("customers")) == made["rows"]
    assert job.read("merged") != [[], [], []]
