"""The time from the plan of a write to its commit, by the clock of the driver's host."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StringType, StructType

from kafka_sink.commit.receipt import BatchKey, HostMoment, PreparedTransaction, TaskReceipt
from kafka_sink.commit.session import CommitResult, Conclusion, DeliverySettings, Job
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.spark import driver, process, task, task_context, task_writer
from kafka_sink.spark.columns import choose_columns
from kafka_sink.spark.writers import StreamWriter

RECEIPT = TaskReceipt(BatchKey("q-1", 7), "run", 0, 11, PreparedTransaction("sink-run-0-11", 1, 0, 2))
OPTIONS = parse_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t"})


def at(at_ms: int, boot_id: str = "boot-1", *, wall_ms: int | None = None) -> HostMoment:
    return HostMoment(boot_id, at_ms, at_ms if wall_ms is None else wall_ms)


def show(monkeypatch: pytest.MonkeyPatch, now: HostMoment | None) -> None:
    monkeypatch.setattr(process, "moment_here", lambda: now)


def test_the_clock_goes_on_and_is_that_of_this_boot() -> None:
    first, second = process.moment_here(), process.moment_here()
    assert first is not None and second is not None
    assert first.boot_id == second.boot_id and first.at_ms <= second.at_ms
    told = process.time_since([first])
    assert told is not None and told >= 0


def test_where_the_kernel_tells_no_boot_there_is_no_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(process, "_BOOT_ID", tmp_path / "none")
    assert process.moment_here() is None and process.time_since([at(0)]) is None


@pytest.mark.parametrize(
    ("moments", "age_ms"),
    [
        ([at(400)], 600),
        ([at(400), at(300), at(900)], 700),  # the earliest counts
        ([at(400), at(300, "boot-2")], None),
        ([at(400), None], None),
        ([], None),
        ([at(400, wall_ms=100)], 900),  # it stood still for 300 ms and does not know it, or its clock was set
        ([at(400, wall_ms=5_000)], 600),  # set back
    ],
)
def test_the_time_is_told_only_if_each_moment_was_here(
    monkeypatch: pytest.MonkeyPatch, moments: list[HostMoment | None], age_ms: int | None
) -> None:
    show(monkeypatch, at(1_000))
    assert process.time_since(moments) == age_ms


def test_a_receipt_has_the_moment_at_which_its_write_was_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_writer, "moment_here", lambda: at(400))
    monkeypatch.setattr(task, "write_task", lambda *_: RECEIPT)
    monkeypatch.setattr(task_context, "place_in_stream", lambda *_: None)
    planned = StreamWriter(OPTIONS, choose_columns(StructType().add("value", StringType()), "t"), "sink")
    monkeypatch.setattr(task_writer, "moment_here", lambda: at(900, "an executor"))
    message = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(planned)).write(iter([]))))
    assert message.receipt == replace(RECEIPT, planned_at=at(400))


def test_a_commit_is_told_for_how_long_its_transactions_can_have_been_open(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[Job] = []

    class Client:
        def now_ms(self) -> int:
            return 0

        def run(self, job: Job) -> CommitResult:
            jobs.append(job)
            return CommitResult(Conclusion.DELIVERED)

        def look_ahead(self, *_: object) -> None: ...

    def settings(*_: object) -> DeliverySettings:
        """Asking the cluster takes time, which counts."""
        show(monkeypatch, at(61_000))
        return DeliverySettings()

    show(monkeypatch, at(1_000))
    monkeypatch.setattr(driver, "time", SimpleNamespace(time=lambda: 0.0))
    monkeypatch.setattr(driver, "Committer", lambda _settings, _session, job, _now_ms: job)
    monkeypatch.setattr(driver.Driver, "_delivery_settings", settings)
    client: Any = Client()
    empty = TaskReceipt(RECEIPT.key, "run", 1, 12)
    receipts = [replace(RECEIPT, planned_at=at(400)), replace(empty, planned_at=None)]
    driver.Driver(OPTIONS, "sink", "run", RECEIPT.key).commit(client, RECEIPT.key, receipts)
    assert [job.age_max_ms for job in jobs] == [60_600]
