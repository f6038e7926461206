"""What receivers are told of a commit and of the abort after it, by how the two have ended."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.commit.admin.marks import Marks, count_open_decisions, marked_line, remove_marks
from kafka_sink.commit.ledger import LedgerState
from kafka_sink.commit.receipt import UNNAMED_BATCH, BatchKey, PreparedTransaction, TaskReceipt, WrittenPartition
from kafka_sink.commit.session import CommitResult, Conclusion
from kafka_sink.errors import CommitAborted, CommitPending, KafkaSinkError
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.sink_options import DEFAULT_LEDGER
from kafka_sink.spark import driver, telemetry
from kafka_sink.spark.driver import FinishedBatch
from kafka_sink.spark.telemetry import abort_and_report, commit_and_report
from kafka_sink.telemetry.lineage import send
from kafka_sink.telemetry.metrics import push, store
from kafka_sink.telemetry.metrics.figures import DELIVERED, BatchReport
from kafka_sink.telemetry.metrics.store import read_streams
from kafka_sink.telemetry.metrics.stream_figures import StreamFigures

RUN = "0123456789abcdef"
MONDAY = BatchKey("", "monday")
LINEAGE = "lineage.jsonl"


def marks_of(folder: Path, key: BatchKey) -> Marks:
    return Marks(str(folder), marked_line("exports", key, DEFAULT_LEDGER))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of an application; and a clock that stands still."""
    for module in (driver, telemetry):
        monkeypatch.setattr(module, "application_folder", lambda: str(tmp_path))
    for timed in (telemetry, store, send):
        monkeypatch.setattr(timed, "time", SimpleNamespace(time=lambda: 1.5, monotonic=lambda: 1.0))
    return tmp_path


def batch_of(folder: Path, key: BatchKey = MONDAY, pushgateway: str = "") -> FinishedBatch:
    named = {} if key == UNNAMED_BATCH else {"sink.id": "exports", "batch.id": str(key.batch_id)}
    settings = {"kafka.bootstrap.servers": "h:9092", "metrics.enabled": "true", "lineage.file": str(folder / LINEAGE)}
    if pushgateway:
        settings["metrics.pushgateway.url"] = pushgateway
    receipt = TaskReceipt(
        key, RUN, 0, 11, transaction=PreparedTransaction(f"exports-{RUN}-0-11", 1, 0, 2),
        written=(WrittenPartition("rows", 0, 3, 0, 2),), row_count=3, bytes=30, record_errors={"too large": 1},
    )  # fmt: skip
    return FinishedBatch(parse_sink_options({**settings, **named}), "exports", key, RUN, [receipt], [None], write=RUN)


def answer(
    monkeypatch: pytest.MonkeyPatch, found: Conclusion | KafkaSinkError, *, has_nothing_open: bool = True
) -> None:
    """What the brokers' answers lead to."""

    def use_driver(*_: object) -> CommitResult:
        if isinstance(found, KafkaSinkError):
            raise found
        return CommitResult(found, is_swept=True, ledger=LedgerState("exports") if has_nothing_open else None)

    monkeypatch.setattr(driver, "_use_driver", use_driver)


def fail_commit(monkeypatch: pytest.MonkeyPatch, batch: FinishedBatch, error: KafkaSinkError) -> None:
    answer(monkeypatch, error)
    with pytest.raises(type(error)):
        commit_and_report(batch)


def told(folder: Path) -> StreamFigures:
    (stream,) = read_streams(str(folder))
    return stream


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / LINEAGE).read_text().splitlines()]


@pytest.mark.parametrize("key", [MONDAY, UNNAMED_BATCH])
def test_a_batch_that_its_abort_finishes_is_told_as_delivered(
    folder: Path, monkeypatch: pytest.MonkeyPatch, key: BatchKey
) -> None:
    batch = batch_of(folder, key)
    fail_commit(monkeypatch, batch, CommitPending("a coordinator is away"))
    answer(monkeypatch, Conclusion.RECOVERED)
    assert abort_and_report(batch) is Conclusion.RECOVERED
    found = told(folder)
    assert found.values["batches"] == {"delivered": 1}
    assert (found.values["rows"], found.value("bytes"), found.value("dropped_rows")) == ({"rows": 3}, 30, 1)
    assert found.value("last_batch_timestamp_seconds") > 0 and found.values["commit_errors"] == {"CommitPending": 1}
    assert [each["error_text"] for each in found.recent] == ["a coordinator is away", ""]
    begin, end = events(folder)
    assert (begin["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert end["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 3


def test_a_batch_whose_process_died_in_its_commit_is_told_by_its_abort_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, Conclusion.RECOVERED)
    abort_and_report(batch_of(folder))
    assert told(folder).values["batches"] == {"delivered": 1}
    assert [event["eventType"] for event in events(folder)] == ["START", "COMPLETE"]


def test_a_batch_that_was_told_as_delivered_is_not_counted_again_by_its_abort(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process died, or was interrupted, when the commit had been told and Spark did not know yet."""
    answer(monkeypatch, Conclusion.DELIVERED)
    commit_and_report(batch_of(folder))
    answer(monkeypatch, Conclusion.RECOVERED)
    abort_and_report(batch_of(folder))
    assert (told(folder).values["batches"], told(folder).value("rows")) == ({"delivered": 1}, 3)
    assert [event["eventType"] for event in events(folder)] == ["START", "COMPLETE"]


@pytest.mark.parametrize(
    ("conclusion", "outcome"),
    [(Conclusion.ABORTED, "aborted"), (None, "aborted"), (Conclusion.LEFT_ALONE, "left_open")],
)
def test_a_batch_that_is_not_there_is_told_with_the_error_of_its_commit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, conclusion: Conclusion | None, outcome: str
) -> None:
    batch = batch_of(folder)
    fail_commit(monkeypatch, batch, CommitAborted("too late"))
    monkeypatch.setattr(telemetry, "abort_batch", lambda _: conclusion)
    abort_and_report(batch)
    assert told(folder).values["batches"] == {outcome: 1} and "rows" not in told(folder).values
    assert [each["error_text"] for each in told(folder).recent] == ["too late", "too late"]
    assert [event["eventType"] for event in events(folder)] == ["START", "FAIL"]


@pytest.mark.parametrize("key", [MONDAY, UNNAMED_BATCH])
@pytest.mark.parametrize(
    ("conclusion", "has_nothing_open", "count"),
    [
        (Conclusion.ABORTED, True, 0),
        (Conclusion.RECOVERED, True, 0),
        (Conclusion.LEFT_ALONE, True, 1),
        (Conclusion.ABORTED, False, 1),  # the decision of an earlier batch
    ],
)
def test_a_commit_that_failed_is_an_open_decision_until_its_abort_has_found_nothing_open(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    key: BatchKey,
    conclusion: Conclusion,
    has_nothing_open: bool,
    count: int,
) -> None:
    """An application may go on for weeks with other labels, which no planning of this one clears up."""
    batch = batch_of(folder, key)
    fail_commit(monkeypatch, batch, CommitAborted("too late"))
    sink = marks_of(folder, key).line.sink_id
    assert count_open_decisions(str(folder), sink) == 1
    answer(monkeypatch, conclusion, has_nothing_open=has_nothing_open)
    abort_and_report(batch)
    assert count_open_decisions(str(folder), sink) == count
    assert marks_of(folder, key).find_unfinished() != [], "the next planning asks Kafka again"


def test_an_abort_settles_its_own_run_alone(folder: Path) -> None:
    marks = marks_of(folder, MONDAY)
    others = [
        Marks(str(folder), marked_line("exports", BatchKey("", label), DEFAULT_LEDGER))
        for label in ("monday", "tuesday")
    ]
    for one, run in ((marks, RUN), (others[0], "run-2"), (others[1], RUN)):
        with pytest.raises(CommitPending), one.mark_commit(run):
            raise CommitPending("away")
    died = next(path for path in folder.rglob(f"*{RUN}.failed") if marks.line.code in path.name)
    died.rename(died.with_name(died.name.replace("failed", str(2**30))))  # larger than any process id
    assert count_open_decisions(str(folder), "exports") == 3
    marks.mark_abort(RUN)
    marks.settle(RUN)
    assert count_open_decisions(str(folder), "exports") == 2
    marks.settle(RUN)
    assert count_open_decisions(str(folder), "exports") == 2
    remove_marks(marks.find_unfinished())
    marks.settle(RUN)
    assert marks.find_unfinished() == []


# ---- threads that commit at the same time ----------------------------------------------------------------------------


def test_figures_that_newer_ones_have_overtaken_are_not_sent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Pushgateway would take them for the newest ones, and Prometheus for a counter that began again."""
    pushed: list[float] = []
    monkeypatch.setattr(push, "push", lambda url, figures, *_: pushed.append(figures.value("batches")))
    answer(monkeypatch, Conclusion.DELIVERED)
    batches = [batch_of(folder, BatchKey("", label), pushgateway="http://push:9091") for label in ("a", "b", "c")]
    note = store.note

    def overtaken(application_folder: str, report: BatchReport) -> int:
        """Between its note and its push another thread commits."""
        number = note(application_folder, report)
        if report.key == batches[0].key:
            commit_and_report(batches[1])
        return number

    monkeypatch.setattr(telemetry, "note", overtaken)
    commit_and_report(batches[0])
    assert pushed == [2]
    commit_and_report(batches[2])
    assert pushed == [2, 3]


def test_of_figures_that_are_being_sent_nobody_sends_older_ones_at_the_same_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(store, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None))
    one = BatchReport("s", "", MONDAY, RUN, "c", DELIVERED, (), (), 0, 10, 5.0)
    first, second = (store.note(str(folder), one) for _ in range(2))
    with store.newest_in_turn(str(folder), one, first, 1) as figures:
        assert figures is not None and figures.value("batches") == 2, "what was noted before its turn"
        with pytest.raises(TimeoutError), store.newest_in_turn(str(folder), one, second, 1):
            pass
    with store.newest_in_turn(str(folder), one, second, 1) as figures:
        assert figures is None


def test_figures_that_began_again_are_sent_although_a_later_note_was(folder: Path) -> None:
    """Their files were lost, or are those of another release, and the number of the last one sent is not."""
    one = BatchReport("s", "", MONDAY, RUN, "c", DELIVERED, (), (), 0, 10, 5.0)
    for _ in range(3):
        number = store.note(str(folder), one)
    with store.newest_in_turn(str(folder), one, number, 1):
        pass
    for path in folder.rglob("*.[01]"):
        path.unlink()
    store.NOTED.renew()
    with store.newest_in_turn(str(folder), one, store.note(str(folder), one), 1) as figures:
        assert figures is not None and figures.value("batches") == 1
