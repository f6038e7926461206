"""A process with another release of the package refuses a plan, also one from before versions were compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql.types import StringType, StructType

from kafka_sink.commit.receipt import BatchKey
from kafka_sink.operate.checks.workers import make_probe, worker_findings
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.spark.columns import choose_columns
from kafka_sink.spark.writers import BatchWriter
from kafka_sink.version import VERSION
from tests.support.releases import other_release

COMPARES = (
    rf"planned by pykafka-sink {re.escape(VERSION)} in .*and this process has pykafka-sink 0\.1\.0 in .*other\.zip"
)


@pytest.mark.parametrize(
    ("compares", "says"), [(True, COMPARES), (False, "No module named 'kafka_sink.spark.same_version'")]
)
def test_a_process_with_another_release_refuses_the_plan(compares: bool, says: str, tmp_path: Path) -> None:
    options = parse_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t"})
    columns = choose_columns(StructType().add("value", StringType()), "t")
    writer = BatchWriter(options, columns, BatchKey("", "x"), run="run", sink_id="sink")
    (tmp_path / "plan").write_bytes(cloudpickle.dumps(writer))
    archive = other_release(tmp_path, "0.1.0", compares_versions=compares)
    code = "import pickle, sys; pickle.loads(open(sys.argv[1], 'rb').read())"
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "plan")], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(archive)},
    )  # fmt: skip
    assert run.returncode == 1 and re.search(says, run.stderr), run.stderr


def test_the_check_asks_a_worker_for_its_own_release_by_a_function_that_needs_no_release(tmp_path: Path) -> None:
    """As Spark ships it. A release that has no such module answers, too."""
    (tmp_path / "probe").write_bytes(cloudpickle.dumps(make_probe()))
    archive = other_release(tmp_path, "0.1.0")
    code = (
        "import pickle, sys\n"
        "(row,) = next(pickle.loads(open(sys.argv[1], 'rb').read())(iter(()))).to_pylist()\n"
        "print(row['release'], row['place'], 'kafka_sink.operate' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "probe")], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(archive)},
    )  # fmt: skip
    release, place, has_more = run.stdout.split()
    assert (release, has_more) == ("0.1.0", "False") and "other.zip" in place, run.stderr
    (line,) = worker_findings([("host", release, place)])
    assert "its tasks are refused" in line.text
