"""High watermarks and last stable offsets, from two requests to each leader, for an operator.

The distance between the two is what open transactions hold back, whichever application owns them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka_sink.client.admin_request import AdminResponse, Leaders, RequestKey
from kafka_sink.exactly_once.commit_step import CommitStep
from kafka_sink.exactly_once.log_scan import (
    LATEST,
    LIST_OFFSETS_FIRST_ISOLATED,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    offsets_body,
)
from kafka_sink.exactly_once.outcome import Meaning, describe_answer, meaning
from kafka_sink.exactly_once.session import DeliverySettings
from kafka_sink.wire.apis import LIST_OFFSETS

END, STABLE = RequestKey("log ends"), RequestKey("stable offsets")
TopicPartition = tuple[str, int]


class LogEnds(CommitStep):
    """`end` and `stable` by partition; a partition without an answer is in neither, and `last_trouble` says why."""

    def __init__(self, settings: DeliverySettings, partitions: Sequence[TopicPartition], now_ms: int) -> None:
        super().__init__(settings)
        self.end: dict[TopicPartition, int] = {}
        self.stable: dict[TopicPartition, int] = {}
        # The stable one first: records written in between must not put it above the end.
        for key, isolation in ((STABLE, READ_COMMITTED), (END, READ_UNCOMMITTED)):
            if partitions:
                body, target = offsets_body(partitions, LATEST, isolation), Leaders(tuple(partitions))
                self.queue.ask(now_ms, key, target, LIST_OFFSETS, body, version_min=LIST_OFFSETS_FIRST_ISOLATED)

    def on_lost(self, now_ms: int, answer: AdminResponse) -> None:
        """A leader that is away says nothing; the others are shown."""
        self.last_trouble = f"{answer.key.purpose}: {answer.error or 'no answer'}"
        self.on_bodies(now_ms, answer)

    def on_bodies(self, now_ms: int, answer: AdminResponse) -> None:
        super().on_bodies(now_ms, answer)
        if self.failure is None:
            self.queue.drop(answer.key)

    def on_body(self, now_ms: int, key: RequestKey, body: Mapping[str, Any]) -> None:
        found = self.stable if key == STABLE else self.end
        for topic in body["topics"]:
            for told in topic["partitions"]:
                if meaning(LIST_OFFSETS, told["error_code"]) is Meaning.DONE:
                    found[topic["name"], told["partition_index"]] = told["offset"]
                else:
                    self.last_trouble = describe_answer(LIST_OFFSETS.name, told["error_code"])
