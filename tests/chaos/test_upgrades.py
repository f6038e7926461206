"""This release continues a stream of the release before, whatever state that one was left in.

Decisions stood under the sink id alone, and now stand under the sink id with the query in it. So what the earlier
release has decided and not carried out must be found under the old name, and a driver of it that lives still has to be
fenced under the old name, too. It rests on Spark keeping the query's id in the checkpoint. With Spark itself:
tests/spark/test_upgrades.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from kafka_sink.wire.apis import END_TXN
from tests.chaos.bare_spark import TASKS, Checkpoint, open_transactions, problems, run_on, settings_of, sink_id_of
from tests.chaos.faults import Fault, Harm, Request
from tests.chaos.kafka_proxy import KafkaProxy
from tests.releases import BEFORE_QUERY_IDS, release_of
from tools.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

SCRIPT = Path(__file__).parent / "release_before.py"
BATCHES = 2


class ReleaseBefore:
    """A whole application of the earlier release, in a process group of its own."""

    def __init__(self, package: Path, servers: str, topic: str, checkpoint: Checkpoint) -> None:
        (package / "tests" / "chaos" / SCRIPT.name).write_bytes(SCRIPT.read_bytes())
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.release_before", servers, topic, checkpoint.query_id, str(BATCHES)],
            cwd=package,
            env={**os.environ, "PYTHONPATH": str(package)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def read_line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def begin_commit(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def send_signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        self.kill()
        self._process.communicate()


@pytest.fixture
def checkpoint() -> Checkpoint:
    """As the earlier release leaves it when the commit of its last batch does not come to an end."""
    return Checkpoint(committed=BATCHES - 1)


@pytest.fixture
def proxy(kafka: KafkaCluster, topic_name: str) -> Iterator[KafkaProxy]:
    kafka.create_topic(topic_name, partitions=3)
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        yield proxy


@pytest.fixture
def before(proxy: KafkaProxy, topic_name: str, checkpoint: Checkpoint, tmp_path: Path) -> Iterator[ReleaseBefore]:
    package = release_of(BEFORE_QUERY_IDS, tmp_path / "before")
    release = ReleaseBefore(package, proxy.bootstrap_servers, topic_name, checkpoint)
    try:
        assert release.read_line() == "written"
        yield release
    finally:
        release.close()


def of_a_task(request: Request) -> bool:
    return not request.body["transactional_id"].endswith("-driver")


def of_the_driver(request: Request) -> bool:
    return not of_a_task(request)


def continued(kafka: KafkaCluster, topic: str, checkpoint: Checkpoint) -> None:
    settings = settings_of(kafka.bootstrap_servers, topic)
    run_on(checkpoint, settings, 2)
    assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic, checkpoint.committed + 1) == []


def test_a_stream_that_the_release_before_has_ended_goes_on(
    kafka: KafkaCluster, topic_name: str, checkpoint: Checkpoint, before: ReleaseBefore
) -> None:
    before.begin_commit()
    assert before.read_line() == "committed"
    continued(kafka, topic_name, checkpoint)


KILLS = {
    "at-the-decision": (of_the_driver, 1, Harm.LOSE_REQUEST),
    "after-the-decision": (of_the_driver, 1, Harm.LOSE_ANSWER),
    **{f"before-end-{nth}": (of_a_task, nth, Harm.LOSE_REQUEST) for nth in range(1, TASKS + 1)},
    "after-the-last-end": (of_a_task, TASKS, Harm.LOSE_ANSWER),
    "before-the-done-record": (of_the_driver, 2, Harm.LOSE_REQUEST),
}


@pytest.mark.parametrize("kill", KILLS)
def test_a_stream_of_the_release_before_goes_on_wherever_that_was_killed_in_its_commit(
    kafka: KafkaCluster, topic_name: str, proxy: KafkaProxy, checkpoint: Checkpoint, before: ReleaseBefore, kill: str
) -> None:
    where, nth, harm = KILLS[kill]
    fault = proxy.on(END_TXN, harm, nth=nth, where=where, before=before.kill)
    before.begin_commit()
    assert fault.wait_until_acted(60)
    continued(kafka, topic_name, checkpoint)


@pytest.mark.parametrize("at", ["at-the-decision", "before-end-2"])
def test_a_driver_of_the_release_before_that_was_frozen_in_its_commit_and_wakes_up_does_no_harm(
    kafka: KafkaCluster, topic_name: str, proxy: KafkaProxy, checkpoint: Checkpoint, before: ReleaseBefore, at: str
) -> None:
    """Both run for a while: an upgrade without waiting for the old application to be gone."""
    where, nth, harm = KILLS[at]
    fault: Fault = proxy.on(END_TXN, harm, nth=nth, where=where, before=lambda: before.send_signal(signal.SIGSTOP))
    before.begin_commit()
    assert fault.wait_until_acted(60)
    continued(kafka, topic_name, checkpoint)
    before.send_signal(signal.SIGCONT)
    assert before.read_line().split()[0] in ("failed", "committed")
    continued(kafka, topic_name, checkpoint)
