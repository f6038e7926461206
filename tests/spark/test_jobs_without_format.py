"""The jobs in spark_jobs/ with a PySpark that has no formats in Python. A newer one is made to look so: its module of
data sources is hidden from every Python process."""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import NEWEST
from tests.spark.conftest import require_java
from tests.spark.doors import ROOT, Door
from tests.spark.parity import writable_topic
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster

HIDDEN = "import sys, pyspark.sql\nsys.modules['pyspark.sql.datasource'] = None\n"
ONE_AFTER_THE_OTHER = Path(__file__).parent / "jobs" / "one_after_the_other.py"
ROW = ["--select", "CAST(id AS STRING) AS key", "--select", "to_json(struct(*)) AS value"]


@dataclass(frozen=True)
class Ran:
    """What the jobs of an application have printed, and the topics that they wrote to."""

    kafka: KafkaCluster
    exports: str
    stream: str
    output: str
    said: str

    def ids(self, topic: str) -> Counter[int]:
        records = read_topic(self.kafka.bootstrap_servers, topic)
        return Counter(int(record.key or b"-1") for record in records)


@pytest.fixture(scope="module")
def ran(kafka_of: Callable[[str, int], KafkaCluster], tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One process runs all jobs: to start Spark takes longer than what they do."""
    require_java()
    kafka, folder = kafka_of(NEWEST, 1), tmp_path_factory.mktemp("jobs")
    door = Door(folder / "door", spark__ui__enabled="false", spark__eventLog__enabled="false")
    (door.place / "site" / "sitecustomize.py").write_text(HIDDEN)
    exports, stream = (writable_topic(kafka, f"{kind}-{uuid.uuid4()}") for kind in ("exports", "stream"))
    (folder / "in").mkdir()
    jobs = [*jobs_of_a_stream(folder, stream), *jobs_of_an_export(exports)]
    order = door.place / "tmp" / "jobs.json"
    servers = ["--to", f"kafka.bootstrap.servers={kafka.bootstrap_servers}"]
    order.write_text(json.dumps([[*map(str, (ROOT / "spark_jobs" / script, *job)), *servers] for script, *job in jobs]))
    output = door.run("jobs", sys.executable, str(ONE_AFTER_THE_OTHER), str(order))
    return Ran(kafka, exports, stream, output, (door.place / "out" / "jobs.stderr").read_text())


def jobs_of_an_export(topic: str) -> list[Sequence[object]]:
    """Twice, and once with a mistake. A job is the name of its script, and its arguments."""
    query = ("export_to_kafka.py", "--sql", "SELECT id FROM range(0, 300, 1, 2)", "--to", f"topic={topic}")
    named = (*query, *ROW, "--to", f"sink.id={topic}", "--to", "batch.id=day-1")
    return [named, named, query]


def jobs_of_a_stream(folder: Path, topic: str) -> list[Sequence[object]]:
    source = ("--format", "json", "--schema", "id BIGINT, name STRING")
    query = (*ROW, "--checkpoint", folder / "checkpoint", "--once", "--name", "people", "--to", f"topic={topic}")
    for run, numbers in (("first", range(200)), ("second", range(200, 230))):
        lines = (json.dumps({"id": each, "name": "n"}) + "\n" for each in numbers)
        (folder / "in" / f"{run}.json").write_text("".join(lines))
    # The second file is not there for the first run.
    return [("stream_to_kafka.py", *source, "--path", folder / "in" / files, *query) for files in ("first*", "*")]


def test_an_export_without_the_format_writes_each_row_once_and_says_how_many(ran: Ran) -> None:
    said = re.findall("exported.*|ended with.*", ran.output)
    # The jobs of the stream come first.
    assert said == [*["ended with 0"] * 2, *["exported 300 rows", "ended with 0"] * 2, "ended with 1"]
    assert ran.ids(ran.exports) == Counter(range(300))
    assert re.search(r"export_to_kafka: PKS-\d+(?s:.*)required column value not found", ran.said)


def test_a_stream_without_the_format_goes_on_where_it_stopped(ran: Ran) -> None:
    assert re.findall(r": (\d+) rows\n", ran.output) == ["200", "30"]
    assert ran.ids(ran.stream) == Counter(range(230))
