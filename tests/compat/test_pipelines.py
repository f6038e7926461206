"""A declarative pipeline as its guide shows it: two flows into one topic, killed in the middle and run again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.spark.parity import values, writable_topic
from tests.spark.spark_session import PATIENCE_S
from tests.support.page_blocks import BROKER, FOLDER, code_blocks, placed
from tools.driver_processes import kill_driver
from tools.kafka_cluster import KafkaCluster

pytest.importorskip("pyspark.pipelines")
pytest.importorskip("grpc")
pytest.importorskip("yaml")

FILES, ROWS_PER_FILE = 6, 50
DELIVERED = " delivered: "
CHECKED_EVERY_S = 0.2


@pytest.fixture
def project(tmp_path: Path, kafka_4: KafkaCluster, topic_name: str) -> Path:
    writable_topic(kafka_4, topic_name)
    (block,) = code_blocks("docs/guides/pipelines.md")
    places = {
        BROKER: kafka_4.bootstrap_servers,
        FOLDER: f"{tmp_path}/",
        '"topic": "orders"': f'"topic": "{topic_name}"',
    }
    for name in ("shop", "web"):
        folder = tmp_path / name
        folder.mkdir()
        for file in range(FILES):
            lines = (f"{name} {file * ROWS_PER_FILE + row}\n" for row in range(ROWS_PER_FILE))
            (folder / f"{file}.txt").write_text("".join(lines))
    project = tmp_path / "project"
    (project / "transformations").mkdir(parents=True)
    (project / "transformations" / "orders.py").write_text(placed(block.code, places))
    (project / "spark-pipeline.yml").write_text(
        f"name: orders\nstorage: file://{tmp_path}/storage\nlibraries:\n  - glob:\n      include: transformations/**\n"
    )
    # The pipeline cannot set these options of the server.
    (project / "spark-defaults.conf").write_text(
        f"spark.ui.enabled false\nspark.driver.host 127.0.0.1\nspark.local.dir {tmp_path}\n"
        f"spark.sql.warehouse.dir {tmp_path}/warehouse\n"
    )
    return project


def start_pipeline(project: Path, log: Path) -> subprocess.Popen[bytes]:
    folder = Path(sys.executable).parent
    named = {"PATH": f"{folder}:{os.environ['PATH']}", "PYSPARK_PYTHON": sys.executable}
    # SPARK_TESTING: a separate port, not the default that any other server on the machine has.
    here = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(project), "SPARK_TESTING": "1"}
    environment = os.environ | named | here
    command = [str(folder / "spark-pipelines"), "run"]
    with log.open("wb") as output:
        return subprocess.Popen(
            command, cwd=project, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )


def kill_when_delivered(pipeline: subprocess.Popen[bytes], log: Path, batch_count: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while log.read_text().count(DELIVERED) < batch_count:
        assert pipeline.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(CHECKED_EVERY_S)
    assert kill_driver(pipeline), "no process that commits was found"


def test_flows_of_one_sink_deliver_each_row_once_over_a_kill(
    project: Path, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    kill_when_delivered(start_pipeline(project, log), log, batch_count=3)
    pipeline = start_pipeline(project, log)
    assert pipeline.wait(PATIENCE_S) == 0, log.read_text()
    expected = sorted(f"{name} {row}".encode() for name in ("shop", "web") for row in range(FILES * ROWS_PER_FILE))
    assert values(kafka_4, topic_name) == expected
