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

# Values of `record_errors`.
FAIL, DROP, DEAD_LETTER = "fail", "drop", "dead-letter"
# Values of `mode`, and how options are called that say what stands around a value.
BINARY_MODE, STRUCTURED_MODE = "binary", "structured"
HEADER, CLOUDEVENTS, COLUMN = "header.", "cloudevents", ".column"
PLACEHOLDER = re.compile(r"\$\{([^}]*)\}")
# In front of the names of columns that only attributes are made of, on their way through a task.
ATTRIBUTE_COLUMN = "cloudevents."
# The header that W3C Trace Context names, and the column of its texts on the way through a task.
TRACEPARENT = "traceparent"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What `topic.create` makes. -1: the broker's default."""

    partitions: int = -1
    replication_factor: int = -1
    configs: tuple[tuple[str, str], ...] = ()


@frozen
class EnvelopeOptions:
    """What stands around the value of every row: constant headers, the attributes of a CloudEvent, and a trace.

    Texts may have placeholders in them. `attributes` come with a text, `attribute_columns` with a column's name. `mode`
    None: no CloudEvents.
    """

    headers: tuple[tuple[str, str], ...] = ()
    mode: str | None = None
    attributes: tuple[tuple[str, str], ...] = ()
    attribute_columns: tuple[tuple[str, str], ...] = ()
    # What the data is, if no attribute datacontenttype says so.
    content_type: str | None = None
    # The values are JSON of the sink's own making: nobody has to look whether they are.
    has_own_json: bool = False
    traceparent_column: str | None = None
    # Records without a traceparent get that of the task's span.
    has_traceparent_of_task: bool = False


@frozen
class TelemetryOptions:
    """What leaves a job beside its rows: figures and lineage.

    `lineage_fields`: names and types of what is written, which planning knows and a commit does not.
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
    """A field that is called after an option has its value as it is.

    `producer` is what each task's producer is made of; its transactional id is chosen per task.

    `partitioner` is the name of a user's function; it is imported where it runs.
    """

    producer: ProducerOptions
    # The user named it, so a broker that does not allow it is an error; otherwise what the broker allows is taken.
    transaction_timeout_is_chosen: bool
    topic: str | None
    is_exactly_once: bool
    sink_id: str | None
    batch_id: str | None
    query_id: str | None
    ledger_topic: str
    ledger_replication_factor: int
    ledger_accepts_new_sink: bool
    replay_mismatch: str
    commit_visible_timeout_ms: int
    record_errors: str
    dead_letter_topic: str | None
    summary_listener: str | None
    partitioner: str | None
    checkpoint_location: str | None
    query_name: str | None
    preset: str | None
    # Where the brokers have no transactions, rows are written at least once instead of not at all.
    falls_back: bool
    # None: topics are not created by the sink.
    topic_plan: TopicPlan | None
    ledger_is_created: bool
    # Over those that the sink gives a ledger by itself; an empty value leaves one of them to the broker.
    ledger_configs: tuple[tuple[str, str], ...]
    envelope: EnvelopeOptions | None
    # Used while planning only; tasks and commits get options without it.
    formats: FormatOptions | None
    notices: tuple[str, ...]
    # Figures and lineage; None where no option asks for any.
    telemetry: TelemetryOptions | None


def is_envelope_option(name: str) -> bool:
    return name.startswith((HEADER, f"{CLOUDEVENTS}.")) or name == CLOUDEVENTS


def fill_placeholders(text: str, known: Mapping[str, str]) -> str:
    """The text of a header or an attribute, its placeholders replaced."""
    return PLACEHOLDER.sub(lambda found: known[found[1]], text)
