"""This release continues a stream of an earlier release, whatever state that one has left.

Of 0.2.0, the release before, and of 0.1.0: that one's decisions are under the sink id alone, and not under the sink id
with the query in it. What it has decided and not carried out must be found, and a live driver of it fenced, under its
name. The assumption: Spark keeps the query's id in the checkpoint. With Spark itself: tests/spark/test_upgrades.py.

Exports of both have one driver for all labels of a sink, which takes a fence for another process of its own run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.kafka.wire.apis import END_TXN
from tests.chaos.bare_export import BareExport
from tests.chaos.bare_spark import PARTITIONS, TASKS, problems
from tests.chaos.bare_stream import BareStream
from tests.chaos.extent import NEWEST_MAINLY
from tests.conftest import FIRST_GENERATION, NEWEST
from tests.support.faults import Harm, of_a_task, of_the_driver
from tests.support.releases import BEFORE_NAMES, BEFORE_QUERY_IDS, release_of

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

OF_A_STREAM = Path(__file__).parent / "release_before.py"
OF_AN_EXPORT = Path(__file__).parent / "export_before.py"
BATCHES = 2
RELEASES = {"0.2.0": BEFORE_NAMES, "0.1.0": BEFORE_QUERY_IDS}
OF_BOTH = pytest.mark.parametrize(
    "package", ["0.2.0", pytest.param("0.1.0", marks=pytest.mark.slow)], indirect=True, scope="module"
)


class ReleaseBefore:
    """A whole application of the earlier release, in its own process group."""

    def __init__(self, package: Path, script: Path, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"tests.chaos.{script.stem}", *arguments],
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
def stream(stream: BareStream) -> BareStream:
    """The checkpoint as the earlier release leaves it when the commit of its last batch does not finish."""
    stream.checkpoint.committed = BATCHES - 1
    return stream


@pytest.fixture(scope="module")
def package(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return release_with(OF_A_STREAM, RELEASES[request.param], tmp_path_factory)


def release_with(script: Path, commit: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = release_of(commit, tmp_path_factory)
    (folder / "tests" / "chaos" / script.name).write_bytes(script.read_bytes())
    return folder


@pytest.fixture
def before(stream: BareStream, package: Path) -> Iterator[ReleaseBefore]:
    servers, query_id = stream.proxy.bootstrap_servers, stream.checkpoint.query_id
    yield from run_until_written(ReleaseBefore(package, OF_A_STREAM, servers, stream.topic, query_id, str(BATCHES)))


def run_until_written(release: ReleaseBefore) -> Iterator[ReleaseBefore]:
    try:
        assert release.read_line() == "written"
        yield release
    finally:
        release.close()


def check_continued(stream: BareStream) -> None:
    stream.run(2)
    stream.check()


@NEWEST_MAINLY
@OF_BOTH
def test_a_stream_that_the_release_before_has_ended_goes_on(stream: BareStream, before: ReleaseBefore) -> None:
    before.begin_commit()
    assert before.read_line() == "committed"
    check_continued(stream)


KILLS = {
    "at-the-decision": (of_the_driver, 1, Harm.LOSE_REQUEST),
    "after-the-decision": (of_the_driver, 1, Harm.LOSE_ANSWER),
    **{f"before-end-{nth}": (of_a_task, nth, Harm.LOSE_REQUEST) for nth in range(1, TASKS + 1)},
    "after-the-last-end": (of_a_task, TASKS, Harm.LOSE_ANSWER),
    "before-the-done-record": (of_the_driver, 2, Harm.LOSE_REQUEST),
}


# One for each state of brokers and ledger: nothing decided; decided, with none, one or all of the transactions ended.
STATES = ("at-the-decision", "after-the-decision", "before-end-2", "before-the-done-record")
# The two generations of brokers differ in how a transaction is ended: in one state by the earlier release before its
# death, in the other by this release afterwards.
STATES_OF_FIRST_GENERATION = ("at-the-decision", "after-the-decision")


# Of the oldest release: a decision that has to be found under its own key.
STATES_OF_THE_OLDEST = ("after-the-decision",)


def of_all_versions(cases: Iterable[str]) -> list[Any]:
    """Cases that lead to the same state as another one run only with `make slow`."""
    often = (
        ("0.2.0", NEWEST, STATES),
        ("0.2.0", FIRST_GENERATION, STATES_OF_FIRST_GENERATION),
        ("0.1.0", NEWEST, STATES_OF_THE_OLDEST),
        ("0.1.0", FIRST_GENERATION, ()),
    )
    return [
        pytest.param(release, version, case, marks=[] if case in states else [pytest.mark.slow])
        for release, version, states in often
        for case in cases
    ]


@pytest.mark.parametrize(("package", "kafka", "kill"), of_all_versions(KILLS), indirect=["package", "kafka"])
def test_a_stream_of_the_release_before_goes_on_wherever_that_was_killed_in_its_commit(
    stream: BareStream, before: ReleaseBefore, kill: str
) -> None:
    where, nth, harm = KILLS[kill]
    fault = stream.proxy.on(END_TXN, harm, nth=nth, where=where, before=before.kill)
    before.begin_commit()
    assert fault.wait_until_acted()
    check_continued(stream)


@NEWEST_MAINLY
@OF_BOTH
@pytest.mark.parametrize("at", [pytest.param("at-the-decision", marks=pytest.mark.slow), "before-end-2"])
def test_a_driver_of_the_release_before_that_was_frozen_in_its_commit_and_wakes_up_does_no_harm(
    stream: BareStream, before: ReleaseBefore, at: str
) -> None:
    """Both run for a while: an upgrade that does not wait for the old application to end."""
    where, nth, harm = KILLS[at]
    freeze = lambda: before.send_signal(signal.SIGSTOP)  # noqa: E731
    fault = stream.proxy.on(END_TXN, harm, nth=nth, where=where, before=freeze)
    before.begin_commit()
    assert fault.wait_until_acted()
    check_continued(stream)
    before.send_signal(signal.SIGCONT)
    assert before.read_line().split()[0] in ("failed", "committed")
    check_continued(stream)


# ---- exports with labels: the earlier release has one driver for all labels of a sink ----

LABEL = "2026-01-01"


@pytest.fixture(scope="module")
def package_of_exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return release_with(OF_AN_EXPORT, BEFORE_NAMES, tmp_path_factory)


@pytest.fixture
def export_before(stream: BareStream, package_of_exports: Path) -> Iterator[ReleaseBefore]:
    """Into the topic of the stream, which does not run itself."""
    arguments = (stream.proxy.bootstrap_servers, stream.topic, stream.sink_id, LABEL)
    yield from run_until_written(ReleaseBefore(package_of_exports, OF_AN_EXPORT, *arguments))


def export(stream: BareStream, topic: str, label: str) -> None:
    """By this release."""
    with BareExport({**stream.settings, "topic": topic, "sink.id": stream.sink_id, "batch.id": label}) as this:
        this.plan()
        this.write_tasks()
        this.commit()


@NEWEST_MAINLY
@pytest.mark.parametrize(
    "at", [*(pytest.param(f"{at}-the-decision", marks=pytest.mark.slow) for at in ("at", "after")), "before-end-2"]
)
def test_a_driver_of_the_release_before_that_was_frozen_in_the_commit_of_a_label_and_wakes_up_does_no_harm(
    stream: BareStream, export_before: ReleaseBefore, at: str
) -> None:
    """The next day is exported meanwhile, then the same day again, by an application that has been upgraded."""
    where, nth, harm = KILLS[at]
    freeze = lambda: export_before.send_signal(signal.SIGSTOP)  # noqa: E731
    fault = stream.proxy.on(END_TXN, harm, nth=nth, where=where, before=freeze)
    export_before.begin_commit()
    assert fault.wait_until_acted()
    tomorrow = f"{stream.topic}-tomorrow"
    stream.kafka.create_topic(tomorrow, PARTITIONS)
    export(stream, tomorrow, "2026-01-02")
    export(stream, stream.topic, LABEL)
    export_before.send_signal(signal.SIGCONT)
    assert export_before.read_line().split()[0] in ("failed", "committed")
    export(stream, stream.topic, LABEL)
    stream.check(1)
    assert problems(stream.kafka.bootstrap_servers, tomorrow, 1) == []
