"""The jobs in spark_jobs/ with a PySpark that has no formats in Python. A newer one is made to look so: its module of
data sources is hidden from every Python process."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.spark.conftest import require_java
from tests.spark.doors import ROOT, Door
from tests.spark.parity import writable_topic
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster

HIDDEN = "import sys, pyspark.sql\nsys.modules['pyspark.sql.datasource'] = None\n"
ROW = ["--select", "CAST(id AS STRING) AS key", "--select", "to_json(struct(*)) AS value"]


@pytest.fixture
def door(tmp_path: Path) -> Door:
    require_java()
    made = Door(tmp_path / "door", spark__ui__enabled="false", spark__eventLog__enabled="false")
    (made.place / "site" / "sitecustomize.py").write_text(HIDDEN)
    return made


def job(door: Door, name: str, script: str, kafka: KafkaCluster, topic: str, *arguments: object) -> str:
    sink = ["--to", f"kafka.bootstrap.servers={kafka.bootstrap_servers}", "--to", f"topic={topic}"]
    command = [sys.executable, ROOT / "spark_jobs" / script, *arguments, *sink]
    return door.run(name, *map(str, command))


def ids(kafka: KafkaCluster, topic: str) -> Counter[int]:
    return Counter(int(record.key or b"-1") for record in read_topic(kafka.bootstrap_servers, topic))


def test_an_export_without_the_format_writes_each_row_once_and_says_how_many(
    door: Door, kafka_4: KafkaCluster, topic_name: str
) -> None:
    writable_topic(kafka_4, topic_name)
    query = ("--sql", "SELECT id FROM range(0, 300, 1, 2)")
    named = ("--to", f"sink.id=exports-{topic_name[-40:]}", "--to", "batch.id=day-1")
    for run in ("first", "second"):
        output = job(door, run, "export_to_kafka.py", kafka_4, topic_name, *query, *ROW, *named)
        assert output.endswith("exported 300 rows\n")
    assert ids(kafka_4, topic_name) == Counter(range(300))
    with pytest.raises(AssertionError, match=r"export_to_kafka: PKS-\d+(?s:.*)required column value not found"):
        job(door, "wrong", "export_to_kafka.py", kafka_4, topic_name, *query)


def test_a_stream_without_the_format_goes_on_where_it_stopped(
    door: Door, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    writable_topic(kafka_4, topic_name)
    folder = tmp_path / "in"
    folder.mkdir()
    source = ("--format", "json", "--schema", "id BIGINT, name STRING", "--path", folder)
    query = ("--checkpoint", tmp_path / "checkpoint", "--once", "--name", "people")
    for run, numbers in (("first", range(200)), ("second", range(200, 230))):
        (folder / f"{run}.json").write_text("".join(json.dumps({"id": each, "name": "n"}) + "\n" for each in numbers))
        output = job(door, run, "stream_to_kafka.py", kafka_4, topic_name, *source, *ROW, *query)
        assert f": {len(numbers)} rows\n" in output
        assert ids(kafka_4, topic_name) == Counter(range(numbers.stop))
