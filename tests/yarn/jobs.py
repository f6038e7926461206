"""Arguments for the jobs of spark_jobs/, and what arrived."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster

PATIENCE_S = 900
ROWS_PER_FILE = 100


def export(rows: int) -> list[str]:
    query = f"SELECT CAST(id AS STRING) AS key, concat('row ', id) AS value FROM range(0, {rows}, 1, 2)"
    return ["--sql", query]


def stream(folder: Path) -> list[str]:
    """A micro-batch for each file, until all of them are written."""
    columns = ["--select", "CAST(id AS STRING) AS key", "--select", "to_json(struct(*)) AS value"]
    source = ["--format", "json", "--schema", "id BIGINT", "--option", "maxFilesPerTrigger=1"]
    return [*source, "--path", str(folder / "in"), *columns, "--checkpoint", str(folder / "checkpoint"), "--once"]


def write_files(folder: Path, count: int) -> None:
    """Those that are missing of the first `count`, each with its own ids."""
    (folder / "in").mkdir(exist_ok=True)
    for number in range(count):
        path = folder / "in" / f"{number}.json"
        if not path.exists():
            ids = range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)
            path.write_text("".join(json.dumps({"id": each}) + "\n" for each in ids))


def keys(kafka: KafkaCluster, topic: str) -> Counter[int]:
    return Counter(int(record.key or b"-1") for record in read_topic(kafka.bootstrap_servers, topic))
