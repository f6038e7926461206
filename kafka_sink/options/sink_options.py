"""`SinkOptions`: every option of the Spark sink after parsing, as one frozen value. Spark pickles it to its tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_sink.options.envelope_options import EnvelopeOptions
from kafka_sink.options.producer_options import ProducerOptions

if TYPE_CHECKING:
    from kafka_sink.options.format_options import FormatOptions
    from kafka_sink.options.telemetry_options import TelemetryOptions

# Values of `record_errors`.
FAIL, DROP, DEAD_LETTER = "fail", "drop", "dead-letter"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What `topic.create` makes. -1: the broker's default."""

    partitions: int = -1
    replication_factor: int = -1
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """`producer` is what each task's producer is made of; its transactional id is chosen per task.

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
    preset: str | None = None
    # Where the brokers have no transactions, rows are written at least once instead of not at all.
    falls_back: bool = False
    # None: topics are not created by the sink.
    topic_plan: TopicPlan | None = None
    ledger_is_created: bool = True
    # Over those that the sink gives a ledger by itself; an empty value leaves one of them to the broker.
    ledger_configs: tuple[tuple[str, str], ...] = ()
    envelope: EnvelopeOptions | None = None
    # Used while planning only; tasks and commits get options without it.
    formats: FormatOptions | None = None
    notices: tuple[str, ...] = ()
    # Figures and lineage; None where no option asks for any.
    telemetry: TelemetryOptions | None = None
