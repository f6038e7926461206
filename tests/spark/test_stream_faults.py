"""Spark's own processes die, freeze and race in the middle of a micro-batch: each row is there once, for a reader of
committed records, and no transaction stays open. Streams are written through the format and through `foreach_batch`.

tests/chaos tests what does not need Spark, at every single request.
"""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.open_transactions import open_transactions
from tools.foreign_reader import read_topic
from tools.jvm_cluster import SubmittedJob
from tools.kafka_cluster import KafkaCluster
from tools.make_zip import write_zip
from tools.spark_cluster import Executor, SparkCluster
from tools.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(1200)]

JOB = Path(__file__).parent / "jobs" / "gated_stream.py"
ROWS = 60
PATIENCE_S = 400
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.minTaskRuntime": "100ms",
}
QUICK_TO_GIVE_UP = {
    "spark.network.timeout": "12s",
    "spark.network.timeoutInterval": "3s",
    "spark.executor.heartbeatInterval": "2s",
}


class GatedStream:
    """jobs/gated_stream.py while it runs, and what it must have delivered by now."""

    def __init__(self, cluster: SparkCluster, kafka: KafkaCluster, topic: str, folder: Path, door: str) -> None:
        self._cluster = cluster
        self._door = door
        self._kafka = kafka
        self._topic = topic
        self._folder = folder
        self._batches = 0
        self.sink_id = f"gated-{uuid.uuid4().hex[:8]}"
        for name in ("input", "gates", "reached"):
            (folder / name).mkdir()
        write_zip(folder / "pykafka_sink.zip")
        kafka.create_topic(topic, partitions=3)

    def start(self, **conf: str) -> None:
        options = {
            "kafka.bootstrap.servers": self._kafka.bootstrap_servers,
            "topic": self._topic,
            "sink.id": self.sink_id,
            "kafka.linger.ms": "0",
        }
        arguments = [str(self._folder), self._door, *(f"{name}={value}" for name, value in options.items())]
        zips = [self._folder / "pykafka_sink.zip"]
        self.job: SubmittedJob = self._cluster.submit(JOB, arguments, py_files=zips, conf=conf)

    def add_batch(self) -> int:
        number = self._batches
        self._batches += 1
        lines = [json.dumps({"batch": number, "id": number * ROWS + row}) for row in range(ROWS)]
        hidden = self._folder / f"{number}.json"
        hidden.write_text("\n".join(lines))
        hidden.rename(self._folder / "input" / hidden.name)
        return number

    def open_gate(self, batch: int, attempt: int | None = None) -> None:
        (self._folder / "gates" / (str(batch) if attempt is None else f"{batch}-{attempt}")).touch()

    def reached(self, batch: int, attempt: int = 0) -> int:
        """The process that holds back the rest of its rows; the earlier ones are in an open transaction."""
        path = self._folder / "reached" / f"{batch}-{attempt}"
        self.wait_until(lambda: path.exists() and path.read_text() != "", f"{path.name} is reached")
        self.wait_until(lambda: self.open() != [], "a transaction is open")
        return int(path.read_text())

    def executor_of(self, process_id: int) -> tuple[Executor, list[int]]:
        """The executor that a Python process belongs to, and its other Python processes, which write."""
        for executor in self._cluster.executors():
            found = self._cluster.python_workers(executor)
            if process_id in found:
                return executor, [one for one in found if one != process_id]
        raise AssertionError(f"process {process_id} is of no executor")

    def open(self) -> list[str]:
        return open_transactions(self._kafka.bootstrap_servers, self.sink_id, patience_s=0)

    def wait_until(self, is_true: Callable[[], bool], what: str) -> None:
        wait_until(lambda: is_true() or self.job.check(what), lambda: f"{what}:\n{self.job.log[-4000:]}", PATIENCE_S)

    def wait_until_delivered(self) -> None:
        """Waits until Spark's commit log has all batches so far."""
        commits = self._folder / "checkpoint" / "commits" / str(self._batches - 1)
        self.wait_until(commits.exists, f"batch {self._batches - 1} is committed")

    def check(self) -> None:
        """Checks what was delivered until now."""
        assert open_transactions(self._kafka.bootstrap_servers, self.sink_id) == []
        records = read_topic(self._kafka.bootstrap_servers, self._topic)
        assert Counter(int(record.key or b"-1") for record in records) == Counter(range(self._batches * ROWS))

    def finish(self) -> None:
        (self._folder / "end").touch()
        self.job.wait(PATIENCE_S)
        self.check()


@pytest.fixture(params=["format", "foreach_batch"])
def stream(
    spark_cluster: SparkCluster, kafka_4: KafkaCluster, topic_name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> GatedStream:
    return GatedStream(spark_cluster, kafka_4, topic_name, tmp_path, request.param)


def test_a_python_process_that_is_killed_while_it_writes_costs_one_attempt(
    stream: GatedStream, spark_cluster: SparkCluster
) -> None:
    stream.start()
    batch = stream.add_batch()
    _, writing = stream.executor_of(stream.reached(batch))
    assert writing
    for process_id in writing:
        spark_cluster.kill(process_id)
    stream.open_gate(batch)
    stream.wait_until_delivered()
    stream.check()
    stream.open_gate(stream.add_batch())
    stream.finish()


def test_an_executor_that_is_killed_while_its_task_writes_makes_spark_run_the_stage_again_and_doubles_nothing(
    stream: GatedStream, spark_cluster: SparkCluster
) -> None:
    """The executor's share of the shuffle is lost with it, so Spark repeats the previous stage as well."""
    stream.start()
    batch = stream.add_batch()
    executor, _ = stream.executor_of(stream.reached(batch))
    spark_cluster.kill(executor.process_id)
    stream.open_gate(batch)
    stream.wait_until_delivered()
    assert "FetchFailed" in stream.job.log
    stream.check()
    stream.open_gate(stream.add_batch())
    stream.finish()


def test_a_machine_that_freezes_past_the_network_time_out_and_goes_on_after_the_commit_changes_nothing(
    stream: GatedStream, spark_cluster: SparkCluster
) -> None:
    stream.start(**QUICK_TO_GIVE_UP)
    batch = stream.add_batch()
    waiting = stream.reached(batch)
    executor, writing = stream.executor_of(waiting)
    # All processes of the machine: otherwise the Spark worker would kill the executor when Spark gives it up.
    number = next(one for one in (1, 2) if spark_cluster.host_of(one) == executor.host)
    frozen = [spark_cluster.worker_process_id(number), executor.process_id, waiting, *writing]
    for process_id in frozen:
        spark_cluster.pause(process_id)
    # Spark gives up the executor and repeats its task.
    stream.open_gate(batch)
    stream.wait_until_delivered()
    stream.check()
    assert all(is_frozen(process_id) for process_id in frozen)
    for process_id in frozen:
        os.kill(process_id, signal.SIGCONT)
    stream.check()
    stream.open_gate(stream.add_batch())
    stream.finish()
    assert not any(is_frozen(process_id) for process_id in frozen)


def test_of_two_attempts_that_go_to_their_end_at_the_same_moment_one_is_seen(stream: GatedStream) -> None:
    """Spark starts a copy of the slow task on the other executor; then both continue at the same time."""
    stream.start(**SPECULATION)
    for _ in range(3):
        batch = stream.add_batch()
        first, copy = stream.reached(batch, 0), stream.reached(batch, 1)
        assert first != copy
        stream.open_gate(batch)
        stream.wait_until_delivered()
    # The loser may write once more after the commit has looked for open transactions. The next batch ends that one.
    stream.open_gate(stream.add_batch())
    stream.finish()


@pytest.mark.parametrize("winner", [0, 1], ids=["the-first-wins", "the-copy-wins"])
def test_a_speculative_race_leaves_no_trace_of_the_loser(stream: GatedStream, winner: int) -> None:
    stream.start(**SPECULATION)
    batch = stream.add_batch()
    for attempt in (0, 1):
        stream.reached(batch, attempt)
    stream.open_gate(batch, winner)
    stream.wait_until_delivered()
    stream.check()
    stream.finish()


def test_a_driver_that_is_told_to_end_in_the_middle_of_a_batch_is_followed_by_one_that_delivers_it(
    stream: GatedStream,
) -> None:
    """After SIGTERM Spark shuts down in order and cancels its tasks."""
    stream.start()
    stream.open_gate(stream.add_batch())
    stream.wait_until_delivered()
    batch = stream.add_batch()
    stream.reached(batch)
    stream.job.process.send_signal(signal.SIGTERM)
    stream.job.process.wait(60)
    stream.open_gate(batch)
    stream.start()
    stream.wait_until_delivered()
    stream.check()
    stream.finish()


def is_frozen(process_id: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False
