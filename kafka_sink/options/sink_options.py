"""`SinkOptions`: every option of the Spark sink after parsing, as one frozen value. Spark pickles it to its tasks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_sink.frozen import frozen
from kafka_sink.options.producer_options import ProducerOptions

if TYPE_CHECKING:
    from kafka_sink.options.format_options import FormatOptions

# Values of `delivery_guarantee`; the second one is one of `delivery_fallback`, too.
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
DEFAULT_LEDGER = "__pykafka_sink_ledger"
# Of a sink id, the beginning of transactional ids and of the ACL for them.
SINK_ID_LETTERS = "[a-zA-Z0-9._-]"
# Values of `record_errors`.
FAIL, DROP, DEAD_LETTER = "fail", "drop", "dead-letter"
# Values of `mode`, and names of the envelope options.
BINARY_MODE, STRUCTURED_MODE = "binary", "structured"
HEADER, CLOUDEVENTS, COLUMN = "header.", "cloudevents", ".column"
PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")
# Values of the option `envelope`, and the columns of a change inside a task.
UPSERT, DEBEZIUM = "upsert", "debezium"
OPERATION, BEFORE = "operation", "before"
# Prefix of the options, and the column, of row ids.
ROW_ID = "row.id."
# What Debezium writes though it is null.
SHOWN_NULLS = (BEFORE, "after")
# Prefix of columns used only for attributes, inside a task.
ATTRIBUTE_COLUMN = "cloudevents."
# The header of W3C Trace Context, and the column of its texts inside a task.
TRACEPARENT = "traceparent"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The topic that `topic.create` creates. -1: the broker's default."""

    partitions: int = -1
    replication_factor: int = -1
    configs: tuple[tuple[str, str], ...] = ()


@frozen
class EnvelopeOptions:
    """Added to every row: constant headers, the attributes of a CloudEvent, and a trace.

    Texts may contain placeholders. `attributes` have a text, `attribute_columns` a column's name. `mode` None: no
    CloudEvents.
    """

    headers: tuple[tuple[str, str], ...] = ()
    mode: str | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    attribute_columns: tuple[tuple[str, str], ...] = ()
    # Content type of the data without an attribute datacontenttype.
    content_type: str | None = None
    # The values are JSON encoded by the sink: they need no validation.
    has_own_json: bool = False
    traceparent_column: str | None = None
    # Records without a traceparent get that of the task's span.
    has_traceparent_of_task: bool = False
    # The header with the id of a row. Without a column ids are digests of the rows.
    row_id_header: str | None = None
    row_id_column: str | None = None

    @property
    def makes_ids(self) -> bool:
        """Whether the ids of events are made of the places of rows."""
        if self.row_id_header is not None:
            return False
        return self.mode is not None and "id" not in dict((*self.attributes, *self.attribute_columns))


@frozen
class ChangeOptions:
    """Rows are changes of a table. `before_column` only for the envelope of Debezium."""

    envelope: str
    operation_column: str
    before_column: str | None


@frozen
class TelemetryOptions:
    """Options for metrics and lineage.

    `lineage_fields`: names and types of the written columns, which planning knows and a commit does not.
    """

    prometheus_port: int | None
    prometheus_address: str
    pushgateway_url: str | None
    otlp_endpoint: str | None
    lineage_file: str | None
    lineage_url: str | None
    lineage_api_key_file: str | None
    lineage_namespace: str
    lineage_job: str | None
    timeout_ms: int
    lineage_fields: tuple[tuple[str, str], ...] = ()

    @property
    def wants_lineage(self) -> bool:
        return self.lineage_file is not None or self.lineage_url is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """A field has the name of its option. `producer` has the options of each task's producer; its transactional id is
    chosen per task.

    `partitioner` is the name of a user's function; it is imported where it runs.
    """

    producer: ProducerOptions
    # Set by the user, so it is an error if a broker does not allow it; otherwise the broker's limit is used.
    transaction_timeout_is_chosen: bool
    topic: str | None
    topic_create: bool
    topic_partitions: int
    topic_replication_factor: int
    topic_config: tuple[tuple[str, str], ...]
    delivery_guarantee: str
    # If the brokers have no transactions, rows may be written at least once instead of not at all.
    delivery_fallback: str
    sink_id: str | None
    batch_id: str | None
    query_id: str | None
    ledger_topic: str
    ledger_create: bool
    ledger_replication_factor: int
    # Override the sink's own configuration of a ledger; an empty value leaves one to the broker.
    ledger_config: tuple[tuple[str, str], ...]
    ledger_accept_new_sink: bool
    replay_mismatch: str
    commit_visible_timeout_ms: int
    manifest_topic: str | None
    record_errors: str
    dead_letter_topic: str | None
    summary_listener: str | None
    partitioner: str | None
    checkpoint_location: str | None
    query_name: str | None
    preset: str | None
    envelope: EnvelopeOptions | None
    # None: rows are no changes.
    changes: ChangeOptions | None
    # Used only for planning; tasks and commits get options without it.
    formats: FormatOptions | None
    notices: tuple[str, ...]
    # Metrics and lineage; None if no option enables them.
    telemetry: TelemetryOptions | None
    # No option: how many partitions `topic` had when planning asked the brokers; 0: it has not.
    partition_count: int = 0

    @property
    def is_exactly_once(self) -> bool:
        return self.delivery_guarantee == EXACTLY_ONCE

    @property
    def topic_plan(self) -> TopicPlan | None:
        """None: topics are not created by the sink."""
        plan = TopicPlan(self.topic_partitions, self.topic_replication_factor, self.topic_config)
        return plan if self.topic_create else None


def is_envelope_option(name: str) -> bool:
    return name.startswith((HEADER, f"{CLOUDEVENTS}.", ROW_ID)) or name == CLOUDEVENTS


def fill_placeholders(text: str, known: Mapping[str, str]) -> str:
    """The text of a header or an attribute with its placeholders replaced."""
    return PLACEHOLDER.sub(lambda found: known[found[1]], text)
