"""The log line of each batch, the listener, and the text about a failed batch."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from types import ModuleType
from typing import Any

import pytest

from kafka_sink.commit.identity import sink_id_of_query
from kafka_sink.commit.receipt import (
    UNNAMED_BATCH,
    BatchKey,
    BatchSummary,
    PreparedTransaction,
    TaskReceipt,
    TopicSummary,
    WrittenPartition,
    summarize_receipts,
)
from kafka_sink.commit.session import Conclusion
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.spark import summary as summary_module
from kafka_sink.spark.driver import FinishedBatch
from kafka_sink.spark.summary import PARTITIONS_SHOWN_MAX, report_aborted, report_delivered, summary_line

KEY = BatchKey("q-1", 7)
FIRST = TaskReceipt(
    KEY, "run", 0, 11,
    written=(WrittenPartition("a", 0, 2, 10, 11), WrittenPartition("b", 0, 1, 0, 0)),
    row_count=3, bytes=30, retry_count=1, send_ms=40, record_errors={"too large": 1},
)  # fmt: skip
SECOND = TaskReceipt(
    KEY, "run", 1, 12,
    written=(WrittenPartition("a", 0, 1, 5, 5), WrittenPartition("a", 1, 4, 0, 3)),
    row_count=5, bytes=50, retry_count=0, send_ms=90, record_errors={"too large": 2, "no topic": 1},
)  # fmt: skip
EMPTY = TaskReceipt(KEY, "run", 2, 13)


# The sink id of a stream ends with a hash of its query.
SINK = sink_id_of_query("orders", KEY.query_id)


def finished(key: BatchKey, receipts: list[TaskReceipt], sink_id: str | None = "orders") -> FinishedBatch:
    return FinishedBatch(options(), sink_id, key, "run", receipts)


def options(**settings: str) -> SinkOptions:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return parse_sink_options({"kafka.bootstrap.servers": "127.0.0.1:9092", **named})


class Log:
    """Replaces the logger, which reads the clock."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def info(self, text: str, *arguments: object) -> None:
        self.said.append(("info", text % arguments))

    def warning(self, text: str, *arguments: object) -> None:
        self.said.append(("warning", text % arguments))

    def error(self, text: str, *arguments: object) -> None:
        self.said.append(("error", text % arguments))

    def exception(self, text: str, *arguments: object) -> None:
        self.said.append(("exception", f"{text % arguments} {sys.exc_info()[1]}"))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()
    monkeypatch.setattr(summary_module, "_LOGGER", log)
    monkeypatch.setattr(summary_module, "show_log", lambda: None)
    return log


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A module `heard` with a function that records its arguments, and two that fail."""
    module, heard = ModuleType("heard"), []

    def told(key: BatchKey, summary: BatchSummary) -> None:
        heard.append((key, summary))

    def failing(key: BatchKey, summary: BatchSummary) -> None:
        raise ValueError("the listener is broken")

    def leaving(key: BatchKey, summary: BatchSummary) -> None:
        sys.exit("the listener leaves")

    module.told, module.failing, module.leaving = told, failing, leaving  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "heard", module)
    return heard


def test_receipts_fold_into_one_summary() -> None:
    assert summarize_receipts([FIRST, SECOND, EMPTY]) == BatchSummary(
        receipt_count=3,
        empty_count=1,
        row_count=8,
        bytes=80,
        retry_count=1,
        send_ms_max=90,
        topics={"a": TopicSummary(7, 2), "b": TopicSummary(1, 1)},
        written=(
            WrittenPartition("a", 0, 3, 5, 11),
            WrittenPartition("a", 1, 4, 0, 3),
            WrittenPartition("b", 0, 1, 0, 0),
        ),
        record_errors={"no topic": 1, "too large": 3},
    )


def test_the_order_of_receipts_changes_nothing() -> None:
    assert summarize_receipts([EMPTY, SECOND, FIRST]) == summarize_receipts([FIRST, SECOND, EMPTY])


def test_a_summary_can_be_written_as_json_as_listeners_do() -> None:
    summary = summarize_receipts([replace(FIRST, topic_ids={"orders": bytes(range(16))}), SECOND])
    assert json.loads(json.dumps(asdict(summary)))["topic_ids"] == {"orders": "AAECAwQFBgcICQoLDA0ODw"}


def test_no_receipts_are_a_summary_of_nothing() -> None:
    assert summarize_receipts([]) == BatchSummary(0, 0, 0, 0, 0, 0, {}, (), {})


def test_the_line_names_query_batch_figures_partitions_and_what_was_left_out() -> None:
    said = summary_line(options(queryName="orders"), KEY, summarize_receipts([FIRST, SECOND, EMPTY]))
    assert said == (
        "query orders, batch 7 of query q-1 delivered: 8 rows, 80 bytes, 3 tasks, 1 records retried, slowest task 90 "
        "ms, 1 rows left out: no topic, 3 rows left out: too large (a-0: 3 rows at 5..11; a-1: 4 rows at 0..3; "
        "b-0: 1 rows at 0..0)"
    )


def test_the_line_is_one_line_whatever_the_query_is_called() -> None:
    said = summary_line(options(queryName="größe\nERROR"), BatchKey("q\r\u202e", 7), summarize_receipts([EMPTY]))
    assert said.startswith(r"query größe\nERROR, batch 7 of query q\r\u202e delivered: ") and said.isprintable()


def test_the_line_of_a_batch_without_rows_is_short() -> None:
    said = summary_line(options(), BatchKey("", ""), summarize_receipts([EMPTY]))
    assert said == "the batch write delivered: 0 rows, 0 bytes, 1 tasks, 0 records retried, slowest task 0 ms"


def test_the_line_does_not_name_a_thousand_partitions() -> None:
    many = replace(FIRST, written=tuple(WrittenPartition("t", number, 1, 0, 0) for number in range(1000)))
    said = summary_line(options(), KEY, summarize_receipts([many]))
    assert said.count(" rows at ") == PARTITIONS_SHOWN_MAX
    assert said.endswith(f"and {1000 - PARTITIONS_SHOWN_MAX} partitions more)")


def test_the_listener_gets_key_and_summary(listener: list[Any], log: Log) -> None:
    report_delivered(options(summary_listener="heard:told"), KEY, [FIRST], Conclusion.DELIVERED)
    assert listener == [(KEY, summarize_receipts([FIRST]))]
    assert log.said == [("info", summary_line(options(), KEY, summarize_receipts([FIRST])))]


@pytest.mark.parametrize(("name", "said"), [("failing", "the listener is broken"), ("leaving", "the listener leaves")])
def test_a_listener_that_fails_is_logged_and_changes_nothing(
    listener: list[Any], log: Log, name: str, said: str
) -> None:
    report_delivered(options(summary_listener=f"heard:{name}"), KEY, [FIRST], Conclusion.DELIVERED)
    text = f"summary.listener heard:{name} failed; the batch is delivered all the same {said}"
    assert log.said[1] == ("exception", text)


def test_a_listener_that_is_not_there_any_more_is_logged_too(log: Log) -> None:
    report_delivered(options(summary_listener="no_such_module:told"), KEY, [FIRST], Conclusion.DELIVERED)
    assert log.said[1][0] == "exception"
    assert "summary.listener=no_such_module:told cannot be imported here" in log.said[1][1]


def test_a_batch_that_an_earlier_run_had_delivered_is_told_to_nobody(listener: list[Any], log: Log) -> None:
    report_delivered(options(summary_listener="heard:told"), KEY, [FIRST], Conclusion.ALREADY_DELIVERED)
    assert listener == []
    assert "batch 7 of query q-1 was delivered by an earlier run" in log.said[0][1]


@pytest.mark.parametrize(
    ("conclusion", "said"),
    [
        (Conclusion.ABORTED, "aborted, except those that a warning above names; nothing of the batch is visible"),
        (
            Conclusion.LEFT_ALONE,
            f"`pykafka-sink recover --bootstrap-server 127.0.0.1:9092 --sink-id {SINK}`, finishes it",
        ),
    ],
)
def test_a_batch_that_failed_says_what_stays(log: Log, conclusion: Conclusion | None, said: str) -> None:
    report_aborted(finished(KEY, [FIRST]), conclusion)
    ((level, text),) = log.said
    assert level == "warning"
    assert "batch 7 of query q-1 failed after 1 of its tasks had written 3 rows" in text
    assert said in text


def test_a_batch_of_which_no_task_left_a_transaction_left_nothing_visible(log: Log) -> None:
    report_aborted(finished(KEY, []), None)
    ((_, text),) = log.said
    assert (
        text == "batch 7 of query q-1 failed after 0 of its tasks had written 0 rows: nothing of the batch is visible"
    )


@pytest.mark.parametrize("receipts", [[FIRST], []])
def test_at_least_once_rows_stay_also_those_of_tasks_that_failed_without_a_receipt(
    log: Log, receipts: list[TaskReceipt]
) -> None:
    report_aborted(finished(KEY, receipts, None), None)
    ((_, text),) = log.said
    assert "what other tasks sent before they failed, stay and will be there again when the batch is repeated" in text
    assert "visible" not in text


def test_rows_in_transactions_that_no_commit_can_reach_any_more_do_not_stay(log: Log) -> None:
    written = replace(FIRST, transaction=PreparedTransaction("orders-run-0-11", 1, 0, 2))
    report_aborted(finished(KEY, [written], None), None)
    ((_, text),) = log.said
    assert text.endswith("written 3 rows: nothing of the batch is visible")


def test_of_a_write_without_a_label_that_may_be_decided_it_is_said_where_that_is_shown(log: Log) -> None:
    report_aborted(finished(UNNAMED_BATCH, [FIRST]), Conclusion.LEFT_ALONE)
    ((_, text),) = log.said
    assert "the batch write failed after 1 of its tasks" in text
    assert (
        "Do not write it again yet: `pykafka-sink ledger --bootstrap-server 127.0.0.1:9092 --sink-id orders` shows"
        in text
    )


def test_a_write_that_its_abort_has_finished_is_said_to_be_visible_and_not_to_be_written_again(
    log: Log, listener: list[Any]
) -> None:
    """Spark reports it as failed, and the commit's process cannot say anything any more."""
    batch = finished(UNNAMED_BATCH, [FIRST])._replace(options=options(summary_listener="heard:told"))
    report_aborted(batch, Conclusion.RECOVERED)
    assert listener == [(UNNAMED_BATCH, summarize_receipts([FIRST]))]
    ((level, text),) = log.said
    assert level == "error" and "all of its 3 rows are visible" in text and "do not write it again" in text
    assert "failed after" not in text
