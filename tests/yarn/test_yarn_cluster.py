"""The YARN cluster of the tests leaves nothing behind."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.conftest import or_without_kafka
from tests.yarn.jobs import PATIENCE_S
from tools import kafka_watchdog
from tools.waiting import wait_until
from tools.yarn_cluster import YarnCluster

JOB = """\
import time
from pyspark.sql import SparkSession

SparkSession.builder.getOrCreate()
time.sleep(3600)
"""


@pytest.mark.timeout(1800)
def test_closing_ends_also_what_runs_in_containers(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    with or_without_kafka(YarnCluster()) as yarn:
        folder = yarn.folder
        submit = "spark-submit --master yarn --deploy-mode cluster job.py"
        job = yarn.run(f"PYSPARK_PYTHON={shlex.quote(sys.executable)} {submit}", tmp_path)

        def has_executor() -> bool:
            job.check("its executor")
            return len(yarn.containers()) == 2

        wait_until(has_executor, lambda: job.log, PATIENCE_S, poll_s=1.0)
        process_ids = [process_id for container in yarn.containers() for process_id in container.process_ids]
    assert kafka_watchdog.processes_using(str(folder)) == []
    assert not folder.exists()
    # In a container without an init process nobody collects what has ended.
    assert {tuple(kafka_watchdog.process_stat(process_id)[:1]) for process_id in process_ids} <= {(), ("Z",)}
