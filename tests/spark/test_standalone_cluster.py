"""The standalone cluster that tests submit jobs to: processes that die, and what it leaves behind. Executors that are
killed: test_jobs.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import require_java
from tools import kafka_watchdog
from tools.jvm_cluster import SparkFailed
from tools.spark_cluster import SparkCluster
from tools.waiting import wait_until

ROOT = Path(__file__).parents[2]


def test_a_job_that_fails_says_why(spark_cluster: SparkCluster, tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("raise SystemExit('this text is looked for')")
    with pytest.raises(SparkFailed, match="this text is looked for"):
        spark_cluster.submit(script).wait()


@pytest.mark.slow  # a tool of slow tests
def test_a_killed_worker_comes_back_for_the_next_test(spark_cluster: SparkCluster) -> None:
    killed = spark_cluster.worker_process_id(1)
    spark_cluster.kill(killed)
    spark_cluster.heal()
    assert spark_cluster.worker_process_id(1) != killed
    assert spark_cluster.alive_hosts() == {"127.0.0.2", "127.0.0.3"}


def test_only_processes_of_the_cluster_can_be_killed(spark_cluster: SparkCluster) -> None:
    with pytest.raises(ValueError, match="not a live one of this cluster"):
        spark_cluster.kill(os.getpid())


# The cluster finds executors and Python processes by a variable in their environment, as the tests above show. So here
# a small process with that variable replaces them, beside a master.


def marked_process(folder: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, kafka_watchdog.MARK: str(folder)}
    marked = subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True)
    # Linux tells the parent that the program was replaced a moment before /proc shows the new environment.
    wait_until(lambda: marked.pid in kafka_watchdog.processes_marked(str(folder)), "the mark is shown")
    return marked


@pytest.mark.slow  # the same workspace in every run: tests/integration/test_harness.py
def test_a_closed_cluster_leaves_no_process_and_no_folder() -> None:
    require_java()
    with SparkCluster(workers=0) as cluster:
        folder = cluster.folder
        other = marked_process(folder)
        assert len(kafka_watchdog.processes_using(str(folder))) == 2
    assert other.wait(60) == -signal.SIGKILL
    assert kafka_watchdog.processes_using(str(folder)) == []
    assert not folder.exists()


_OWNER = """
import sys
from tests.spark.test_standalone_cluster import marked_process
from tools.spark_cluster import SparkCluster
with SparkCluster(workers=0) as cluster:
    marked_process(cluster.folder)
    print(cluster.folder, flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow  # the same watchdog in every run: tests/integration/test_harness.py
def test_a_cluster_ends_with_its_owner_though_it_was_killed() -> None:
    require_java()
    command = [sys.executable, "-c", _OWNER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as owner:
        assert owner.stdout is not None
        folder = owner.stdout.readline().strip()
        assert len(kafka_watchdog.processes_using(folder)) == 2
        owner.send_signal(signal.SIGKILL)
    wait_until(lambda: kafka_watchdog.processes_using(folder) == [] and not Path(folder).exists(), "all is gone")
