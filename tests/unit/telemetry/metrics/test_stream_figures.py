"""The figures of one stream after commits and aborts, and after a round trip through JSON."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from kafka_sink.commit.receipt import BatchKey, PreparedTransaction, TaskReceipt, WrittenPartition
from kafka_sink.telemetry.metrics.definitions import BUCKETS_S, METRICS
from kafka_sink.telemetry.metrics.figures import (
    ABORTED,
    ALREADY_DELIVERED,
    DELIVERED,
    FAILED,
    BatchReport,
    ProducerTotals,
    TaskFigures,
)
from kafka_sink.telemetry.metrics.notebook import SinkMetrics
from kafka_sink.telemetry.metrics.prometheus_text import family_name
from kafka_sink.telemetry.metrics.stream_figures import RECENT_MAX, StreamFigures, from_json, stream_of, to_json

ROOT = Path(__file__).parents[4]
KEY = BatchKey("q-1", 4)
RECEIPT = TaskReceipt(
    KEY, "run", 0, 11, transaction=PreparedTransaction("s-run-0-11", 1, 0, 2), timeout_ms=1000, remaining_ms=900,
    written=(WrittenPartition("a", 0, 3, 0, 2), WrittenPartition("b", 0, 1, 7, 7)), row_count=4, bytes=40,
    record_errors={"too large": 2},
)  # fmt: skip
TOTALS = ProducerTotals({"record-send-total": 6}, {"record_batches": 3, "throttle_seconds": 0.5}, {"NO_ANSWER": 2})
FIGURES = TaskFigures(1, 5_000, 30.0, 2.0, True, TOTALS)
REPORT = BatchReport("s", "name", KEY, "run", "c", DELIVERED, (RECEIPT,), (FIGURES,), 6_000, 6_100, 100.0)


def after(*reports: BatchReport) -> StreamFigures:
    figures = stream_of(reports[0])
    for report in reports:
        figures.take(report)
    return figures


def test_a_delivered_batch_is_counted_by_its_receipts_and_figures() -> None:
    found = after(REPORT, REPORT)
    assert found.values["rows"] == {"a": 6, "b": 2}
    assert (found.value("bytes"), found.value("tasks"), found.value("task_retries")) == (80, 2, 2)
    assert (found.value("record_batches"), found.value("throttle_seconds")) == (6, 1.0)
    assert found.values["retried_records"] == {"NO_ANSWER": 4}
    assert found.values["last_left_out_timestamp_seconds"] == {"too large": 6.1}
    assert found.values["dropped_rows"] == {"too large": 4} and "dead_letters" not in found.values
    assert found.values["transactions"] == {"new": 2}
    assert found.java == {"record-send-total": 12}
    assert found.value("last_batch_id") == 4 and found.value("last_batch_timestamp_seconds") == 6.1
    counts, total = found.histograms["batch_seconds"]  # 1.1 s, from the first task
    assert (counts[BUCKETS_S.index(2.5)], sum(counts), total) == (2, 2, pytest.approx(2.2))


def test_left_out_rows_are_dead_letters_where_there_is_a_topic_for_them() -> None:
    found = after(replace(REPORT, has_dead_letters=True))
    assert found.values["dead_letters"] == {"too large": 2} and "dropped_rows" not in found.values


@pytest.mark.parametrize("outcome", [ALREADY_DELIVERED, ABORTED])
def test_what_was_not_delivered_by_this_run_counts_as_a_batch_and_not_as_rows(outcome: str) -> None:
    found = after(replace(REPORT, outcome=outcome))
    assert found.values == {"batches": {outcome: 1}}
    assert found.recent[0]["rows"] == 0


def test_a_commit_that_raises_is_an_error_and_its_abort_the_outcome() -> None:
    failed = replace(REPORT, outcome=FAILED, error="CommitPending", error_text="why")
    found = after(failed, replace(REPORT, outcome=ABORTED))
    times = {"last_commit_error_timestamp_seconds": {"CommitPending": 6.1}}
    assert found.values == {"batches": {ABORTED: 1}, "commit_errors": {"CommitPending": 1}, **times}
    found.take(replace(failed, error="CommitAborted", ended_ms=7_100))
    times["last_commit_error_timestamp_seconds"]["CommitAborted"] = 7.1
    assert found.values == {"batches": {ABORTED: 1}, "commit_errors": {"CommitPending": 1, "CommitAborted": 1}, **times}
    assert [each["error_text"] for each in found.recent] == ["why", "", "why"]


def test_an_executor_whose_clock_is_ahead_makes_no_batch_end_before_it_began() -> None:
    """Spans, lineage and the histogram of batches use this time."""
    ahead = replace(REPORT, figures=(FIGURES._replace(began_ms=60_000),))
    assert ahead.first_task_ms == ahead.began_ms
    assert after(ahead).recent[0]["batch_ms"] == ahead.ended_ms - ahead.began_ms


def test_a_task_without_figures_has_its_rows_counted() -> None:
    found = after(replace(REPORT, figures=(None,)))
    assert (found.value("rows"), found.java) == (4, {})
    assert "task_send_seconds" not in found.histograms


def test_only_the_newest_batches_are_kept_one_by_one() -> None:
    found = after(*(replace(REPORT, key=BatchKey("q-1", number)) for number in range(RECENT_MAX + 5)))
    assert [each["batch_id"] for each in found.recent] == list(range(5, RECENT_MAX + 5))


def test_figures_come_back_from_their_json_and_go_on() -> None:
    found = from_json(to_json(after(REPORT)))
    assert found == after(REPORT)
    found.take(REPORT)
    assert found == after(REPORT, REPORT)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": 99}', '{"format": 1}', '{"format": 1, "sink": 1}'])
def test_what_is_no_figures_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_json(text)


def test_a_producers_totals_are_those_since_the_task_began() -> None:
    later = ProducerTotals({"record-send-total": 9}, {"record_batches": 5}, {"NO_ANSWER": 2, "NOT_LEADER": 1})
    before = ProducerTotals({"record-send-total": 6}, {"record_batches": 3}, {"NO_ANSWER": 2})
    assert later.since(before) == ProducerTotals({"record-send-total": 3}, {"record_batches": 2}, {"NOT_LEADER": 1})


def test_the_page_names_every_metric_with_its_meaning() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    for metric in METRICS:
        label = f"`{metric.label}`" if metric.label else ""
        assert f"| `{family_name(metric)}` | {metric.kind.value} | {label} | {metric.meaning} |" in page


def test_the_figures_of_a_name_are_those_of_its_newest_query() -> None:
    """The abort of a batch of which no task has ended knows the query's name, and not its id."""
    first = after(replace(REPORT, ended_ms=1))
    second = after(replace(REPORT, key=BatchKey("q-2", 0), ended_ms=2))
    nameless = after(replace(REPORT, key=BatchKey("", 5), outcome=ABORTED, receipts=(), figures=(), ended_ms=3))
    for streams in permutations((first, second, nameless)):
        assert SinkMetrics(streams).of("name") is second
    assert SinkMetrics((nameless, first)).of("name") is first
    assert SinkMetrics((nameless,)).of("name") is nameless
