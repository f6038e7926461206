"""Two releases of the package in one application: refused before a row is written, with both versions and folders. The
check names the host before."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from kafka_sink.testing import EmbeddedBroker
from kafka_sink.version import VERSION
from tests.support.releases import other_release
from tools.jvm_cluster import SparkFailed
from tools.spark_cluster import SparkCluster

ROOT = Path(__file__).parents[2]
JOB = """\
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
frame = spark.range(4).selectExpr("cast(id as string) as value")
options = {"kafka.bootstrap.servers": sys.argv[1], "topic": "t"}
import kafka_sink
print(kafka_sink.check(options, frame.schema, timeout_s=30, probe_workers=True))
frame.write.format("pykafka-sink").options(**options).mode("append").save()
"""


@pytest.mark.slow  # each process for itself in every run: tests/integration/test_same_version.py
def test_tasks_with_another_release_than_the_driver_write_nothing(spark_cluster: SparkCluster, tmp_path: Path) -> None:
    """Executors find the zip of an older one first, the driver does not have it: as on hosts with another image."""
    archive = other_release(tmp_path, "0.1.0")
    (tmp_path / "job.py").write_text(JOB)
    # Behind everything that Spark puts into the path, as an installed package is.
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{ROOT}" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    conf = {"spark.cores.max": "1", "spark.task.maxFailures": "1", "spark.executorEnv.PYTHONPATH": str(archive)}
    with EmbeddedBroker(topics={"t": 1}) as broker:
        job = spark_cluster.submit(
            tmp_path / "job.py",
            [broker.bootstrap_servers],
            conf=conf,
            environment={"PYSPARK_PYTHON": str(python)},
        )
        with pytest.raises(SparkFailed):
            job.wait(300)
        said = job.output + job.log
        ours, theirs = (
            rf"{re.escape(VERSION)} in {re.escape(str(ROOT))}/kafka_sink",
            r"0\.1\.0 in \S*other\.zip/kafka_sink",
        )
        assert re.search(rf"PKS-1110.*planned by pykafka-sink {ours}, and this process has pykafka-sink {theirs}", said)
        assert broker.records("t") == []
        # As the check had said.
        (line,) = [each for each in job.output.splitlines() if re.match(r"\S+ +workers ", each)]
        assert re.search(
            rf"has pykafka-sink 0\.1\.0 from \S*other\.zip\S*, and this process {re.escape(VERSION)}", line
        )
