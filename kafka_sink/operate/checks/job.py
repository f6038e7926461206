"""The subject of a check: the options of a job, the columns that it writes, and the timeout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.identity import UNNAMED, sink_id_of_checkpoint, transactional_id_prefix
from kafka_sink.options import ProducerOptions
from kafka_sink.options.sink_options import AT_LEAST_ONCE, SinkOptions

ANSWER_SHARE = 0.4


@dataclass(frozen=True)
class CheckedJob:
    """`schema` is Spark's, or None: unknown. `timeout_s` is for the whole check. `writes`: a record may be written and
    aborted. `batch_ms`: how long the longest batch takes, or None: unknown."""

    settings: Mapping[str, str]
    options: SinkOptions
    schema: Any | None = None
    timeout_s: float = 2.0
    writes: bool = False
    batch_ms: int | None = None

    @property
    def sink_id(self) -> str | None:
        if self.options.sink_id is not None:
            return self.options.sink_id
        location = self.options.checkpoint_location
        return None if location is None else sink_id_of_checkpoint(location)

    @property
    def probing_id(self) -> str:
        """A transactional id covered by the permissions for the job's own ids, but used by no task."""
        return f"{transactional_id_prefix(self.sink_id or UNNAMED)}check"

    @property
    def unused_id(self) -> str:
        """Like `probing_id`, but no transaction is ever begun under it."""
        return f"{self.probing_id}-permission"

    @property
    def topics(self) -> tuple[str, ...]:
        named = (self.options.topic, self.options.dead_letter_topic)
        return tuple(topic for topic in named if topic is not None)

    def is_exactly_once(self, client: Client) -> bool:
        """As planning decides it: with delivery.fallback not if the brokers have no transactions."""
        if self.options.is_exactly_once and self.options.delivery_fallback == AT_LEAST_ONCE:
            return not client.transaction_support(is_sweeping=False).missing
        return self.options.is_exactly_once

    def options_with_deadline(self, share: float = 1.0) -> ProducerOptions:
        """The job's own connection options, with this share of the timeout."""
        limit_ms = max(1, int(self.timeout_s * share * 1000))
        # Leaves time for another broker if the first one does not answer.
        answer_ms = max(1, int(limit_ms * ANSWER_SHARE))
        producer = self.options.producer
        return replace(
            producer,
            max_block_ms=limit_ms,
            request_timeout_ms=answer_ms,
            socket_connection_setup_timeout_ms=min(answer_ms, producer.socket_connection_setup_timeout_ms),
            client_id=producer.client_id or "pykafka-sink-check",
        )

    def client(self, share: float = 1.0) -> Client:
        return Client(self.options_with_deadline(share))
