"""The jobs in spark_jobs/ with a PySpark that has no formats in Python. A newer one is made to look so: its module of
data sources is hidden from every Python process."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.spark.conftest import require_java
from tests.spark.doors import ROOT, Door
from tests.spark.parity import writable_topic
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster

HIDDEN = "import sys, pyspark.sql\nsys.modules['pyspark.sql.datasource'] = None\n"
ONE_AFTER_THE_OTHER = Path(__file__).parent / "jobs" / "one_after_the_other.py"
ROW = ["--select", "CAST(id AS STRING) AS key", "--select", "to_json(struct(*)) AS value"]


@pytest.fixture
def door(tmp_path: Path) -> Door:
    require_java()
    made = Door(tmp_path / "door", spark__ui__enabled="false", spark__eventLog__enabled="false")
    (made.place / "site" / "sitecustomize.py").write_text(HIDDEN)
    return made


def run_jobs(door: Door, kafka: KafkaCluster, topic: str, *jobs: Sequence[object]) -> str:
    """Each job is the name of its script, and its arguments."""
    sink = ["--to", f"kafka.bootstrap.servers={kafka.bootstrap_servers}", "--to", f"topic={topic}"]
    lines = [[*map(str, (ROOT / "spark_jobs" / script, *arguments)), *sink] for script, *arguments in jobs]
    order = door.place / "tmp" / "jobs.json"
    order.write_text(json.dumps(lines))
    return door.run("jobs", sys.executable, str(ONE_AFTER_THE_OTHER), str(order))


def ids(kafka: KafkaCluster, topic: str) -> Counter[int]:
    return Counter(int(record.key or b"-1") for record in read_topic(kafka.bootstrap_servers, topic))


def test_an_export_without_the_format_writes_each_row_once_and_says_how_many(
    door: Door, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    query = ("export_to_kafka.py", "--sql", "SELECT id FROM range(0, 300, 1, 2)")
    named = ("--to", f"sink.id=exports-{topic_name[-40:]}", "--to", "batch.id=day-1")
    first = second = (*query, *ROW, *named)
    output = run_jobs(door, kafka_4, topic_name, first, second, query)
    assert re.findall("exported.*|ended.*", output) == [*["exported 300 rows", "ended with 0"] * 2, "ended with 1"]
    assert ids(kafka_4, topic_name) == Counter(range(300))
    said = (door.place / "out" / "jobs.stderr").read_text()
    assert re.search(r"export_to_kafka: PKS-\d+(?s:.*)required column value not found", said)


def test_a_stream_without_the_format_goes_on_where_it_stopped(
    door: Door, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    writable_topic(kafka_4, topic_name)
    folder = tmp_path / "in"
    folder.mkdir()
    source = ("--format", "json", "--schema", "id BIGINT, name STRING")
    query = (*ROW, "--checkpoint", tmp_path / "checkpoint", "--once", "--name", "people")
    for run, numbers in (("first", range(200)), ("second", range(200, 230))):
        (folder / f"{run}.json").write_text("".join(json.dumps({"id": each, "name": "n"}) + "\n" for each in numbers))
    # The second file is not there for the first run.
    runs = [("stream_to_kafka.py", *source, "--path", folder / files, *query) for files in ("first*", "*")]
    output = run_jobs(door, kafka_4, topic_name, *runs)
    assert re.findall(r": (\d+) rows\n", output) == ["200", "30"]
    assert ids(kafka_4, topic_name) == Counter(range(230))
