"""What is asked of the session of a notebook: its settings, and the metrics of its streams, also when it is stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kafka_sink
from kafka_sink.testing import EmbeddedBroker
from tests.spark.conftest import require_java
from tools.spark_jvm import QUICK_JVM, quick_settings

PATIENCE_S = 120
SOCKETS = "spark.python.unix.domain.socket.enabled"
STOPPED = """
from pyspark.sql import SparkSession
import kafka_sink
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print("running:", list(kafka_sink.sink_metrics(spark)))
spark.stop()
try:
    kafka_sink.sink_metrics(spark)
except kafka_sink.ConfigError as error:
    print("stopped:", error)
"""


def test_check_reads_the_settings_of_the_session_and_not_the_defaults_of_others(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_on = spark.conf.get(SOCKETS, "false") == "true"
    (tmp_path / "spark-defaults.conf").write_text(f"{SOCKETS} {str(not is_on).lower()}\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    with EmbeddedBroker(topics={"t": 1}) as kafka:
        report = kafka_sink.check({"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "t"}, timeout_s=60)
    (line,) = [each for each in report if each.name == "sockets"]
    assert ("Unix domain sockets" if is_on else "in this session") in line.text


def test_a_session_that_was_stopped_is_told(tmp_path: Path) -> None:
    require_java()
    settings = "".join(f"{name} {value}\n" for name, value in quick_settings(tmp_path).items())
    (tmp_path / "spark-defaults.conf").write_text(settings)
    known = {**os.environ, "SPARK_CONF_DIR": str(tmp_path), "SPARK_LAUNCHER_OPTS": QUICK_JVM}
    command = [sys.executable, "-c", STOPPED]
    said = subprocess.run(command, env=known, capture_output=True, text=True, timeout=PATIENCE_S)
    assert said.stdout.splitlines() == [
        "running: []",
        "stopped: this session has no running Spark application, or it has been stopped",
    ], said.stderr[-3_000:]
