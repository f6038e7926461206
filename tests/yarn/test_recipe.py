"""The guide's commands for YARN, word for word, with the jobs of spark_jobs/: each row is there once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.yarn.jobs import PATIENCE_S, ROWS_PER_FILE, export, keys, stream, write_files
from tests.yarn.recipe import Mode, Recipe
from tools.kafka_cluster import KafkaCluster

pytestmark = pytest.mark.timeout(1800)
MODES = pytest.mark.parametrize("mode", ["cluster", "client"])


@MODES
def test_an_export_by_the_guides_commands_is_there_once(
    recipe: Recipe, kafka_4: KafkaCluster, topic_name: str, mode: Mode
) -> None:
    kafka_4.create_topic(topic_name, partitions=3)
    recipe.submit(mode, "export_to_kafka.py", *export(300), *to(kafka_4, topic_name)).wait(PATIENCE_S)
    assert keys(kafka_4, topic_name) == Counter(range(300))


@MODES
def test_a_stream_by_the_guides_commands_goes_on_where_it_stopped(
    recipe: Recipe, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path, mode: Mode
) -> None:
    kafka_4.create_topic(topic_name, partitions=3)
    for files in (2, 3):
        write_files(tmp_path, files)
        job = recipe.submit(mode, "stream_to_kafka.py", *stream(tmp_path), *to(kafka_4, topic_name))
        job.wait(PATIENCE_S)
        assert keys(kafka_4, topic_name) == Counter(range(files * ROWS_PER_FILE))


def to(kafka: KafkaCluster, topic: str) -> list[str]:
    return ["--to", f"kafka.bootstrap.servers={kafka.bootstrap_servers}", "--to", f"topic={topic}"]
