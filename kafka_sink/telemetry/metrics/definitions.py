"""Every metric of the sink: name, kind, label, meaning. Prometheus, OTLP and docs/metrics.md use this table.

Each has at most one own label; all have the labels of their stream: sink, query, query_id.
"""

from __future__ import annotations

from enum import Enum

from kafka_sink.frozen import frozen


class MetricKind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@frozen
class Metric:
    """`unit` is that of OTLP. `otel`: its name in the semantic conventions of messaging, if any."""

    name: str
    kind: MetricKind
    meaning: str
    label: str = ""
    unit: str = "1"
    otel: str = ""


# Upper bounds in seconds; a last bucket is unbounded.
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

_COUNTER, _GAUGE, _HISTOGRAM = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

METRICS = (
    Metric("batches", _COUNTER, "Micro-batches and batch writes by how they ended: delivered, already_delivered (by an "
           "earlier run), aborted, left_open (a decision to commit may have been made).", "outcome",
           "{batch}"),
    Metric("tasks", _COUNTER, "Tasks of delivered batches.", unit="{task}"),
    Metric("task_retries", _COUNTER, "Attempts of those tasks that had failed before the one that was delivered.",
           unit="{attempt}"),
    Metric("rows", _COUNTER, "Rows delivered.", "topic", "{row}", "messaging.client.sent.messages"),
    Metric("bytes", _COUNTER, "Bytes of keys and values delivered, before compression.", unit="By"),
    Metric("record_batches", _COUNTER, "Record batches sent, those that were sent again included.", unit="{batch}"),
    Metric("record_batch_bytes", _COUNTER, "Bytes of those record batches as they were sent, compressed.", unit="By"),
    Metric("produce_requests", _COUNTER, "Produce requests that were answered.", unit="{request}"),
    Metric("produce_request_seconds", _COUNTER, "Time between those requests and their answers, added up.", unit="s"),
    Metric("throttle_seconds", _COUNTER, "Time that brokers held answers back because of quotas.", unit="s"),
    Metric("buffer_wait_seconds", _COUNTER, "Time that tasks waited because buffer.memory was full.", unit="s"),
    Metric("retried_records", _COUNTER, "Records that were sent again, by the broker's error; NO_ANSWER: the "
           "connection was lost or the answer did not come in time.", "error", "{record}"),
    Metric("split_batches", _COUNTER, "Record batches that were too large for the broker and were split.",
           unit="{batch}"),
    Metric("commit_errors", _COUNTER, "Commits that raised, by the class of the error.", "error", "{error}"),
    Metric("dead_letters", _COUNTER, "Rows written to dead.letter.topic, by reason.", "reason", "{row}"),
    Metric("dropped_rows", _COUNTER, "Rows left out by record.errors=drop, by reason.", "reason", "{row}"),
    Metric("transactions", _COUNTER, "Transactions of delivered tasks: under a new transactional id, or under one that "
           "its process had used before (reused).", "id", "{transaction}"),
    Metric("task_send_seconds", _HISTOGRAM, "From a task's first row to the acknowledgement of its last one.", unit="s",
           otel="messaging.client.operation.duration"),
    Metric("task_prepare_seconds", _HISTOGRAM, "To prepare a task's transaction after that.", unit="s"),
    Metric("commit_seconds", _HISTOGRAM, "To commit a batch on the driver.", unit="s"),
    Metric("batch_seconds", _HISTOGRAM, "From the beginning of a batch's first task to the end of its commit.",
           unit="s"),
    Metric("last_batch_id", _GAUGE, "Number of the newest batch that was delivered (streams only).", unit="1"),
    Metric("last_batch_rows", _GAUGE, "Rows of the newest batch that was delivered.", unit="{row}"),
    Metric("last_batch_timestamp_seconds", _GAUGE, "When it was delivered, in seconds since 1970.", unit="s"),
    Metric("last_commit_error_timestamp_seconds", _GAUGE, "When a commit raised it last.", "error", "s"),
    Metric("last_left_out_timestamp_seconds", _GAUGE, "When rows were last left out for it.", "reason", "s"),
    Metric("open_decisions", _GAUGE, "Commits that began and failed, until their abort finds nothing open or a start "
           "of the query has handled them.", unit="{commit}"),
)  # fmt: skip
