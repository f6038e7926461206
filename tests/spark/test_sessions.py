"""What is asked of the session of a notebook: its settings. Metrics of one that was stopped: test_process_kinds.py."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kafka_sink
from kafka_sink.testing import EmbeddedBroker

SOCKETS = "spark.python.unix.domain.socket.enabled"


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
