"""Settings of Spark that change how its Python processes run: no row is lost or written twice, no secret is printed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_sink.testing import EmbeddedBroker
from tests.spark.jobs.unusual_settings import ROWS

JOB = "tests.spark.jobs.unusual_settings"
SECRET = "never-print-this"
PATIENCE_S = 300
UDF = "spark.sql.execution.pyspark.udf"
# Rows reach Python by another way, in small pieces.
TRANSFER = {
    "spark.python.udf.pipelined.enabled": "true",
    "spark.sql.execution.arrow.compression.codec": "zstd",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.buffer.size": "1024",
}
# Processes are watched, measured and logged, and errors show local variables.
WATCHED = {
    "spark.sql.pyspark.dataSource.profiler": "perf",
    "spark.sql.pyspark.worker.logging.enabled": "true",
    "spark.sql.planner.pythonExecution.memory": "500",
    f"{UDF}.faulthandler.enabled": "true",
    f"{UDF}.tracebackDumpIntervalSeconds": "1",
    f"{UDF}.tracebackWithLocals.enabled": "true",
    f"{UDF}.simplifiedTraceback.enabled": "false",
    "spark.sql.pyspark.jvmStacktrace.enabled": "true",
}
# Each task starts a process of its own.
SHORT_LIVED = {"spark.python.worker.reuse": "false", "spark.python.use.daemon": "false"}


@pytest.mark.slow
@pytest.mark.parametrize("settings", [TRANSFER, WATCHED, SHORT_LIVED], ids=["transfer", "watched", "short-lived"])
def test_unusual_settings_lose_no_row_and_print_no_secret(settings: dict[str, str], tmp_path: Path) -> None:
    settings = {**settings, "spark.master": "local[2,2]", "spark.ui.enabled": "false"}
    arguments = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": " ".join([*arguments, "pyspark-shell"]),
    }
    with EmbeddedBroker(topics={"batch": 3, "stream": 3}) as kafka:
        command = [sys.executable, "-m", JOB, kafka.bootstrap_servers, str(tmp_path / "checkpoint"), SECRET]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
        assert run.returncode == 0, run.stderr[-5_000:]
        batch, stream = kafka.records("batch"), kafka.records("stream")
    assert len(batch) == len({record.value for record in batch}) == ROWS
    assert len(stream) == len({record.value for record in stream}) == 3 * ROWS
    assert "failed: " in run.stdout and "bad row" in run.stdout
    assert SECRET not in run.stdout and SECRET not in run.stderr
