"""Checks that the batch is visible, after the last EndTxn was answered, if an option says so.

Coordinators answer EndTxn when the outcome is settled and write the markers afterwards, which takes milliseconds. A
read_committed reader sees the rows of a partition once its last stable offset is above them. One request per broker
that leads a written partition is enough.

A lower last stable offset may have another cause: any open transaction in the partition holds it back, including those
of other applications. So rows that are not visible in time are reported but cause no failure; the batch is committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka_sink.commit.commit_step import CommitStep
from kafka_sink.commit.log_scan import LATEST, READ_COMMITTED, offsets_body
from kafka_sink.commit.messages import some
from kafka_sink.commit.receipt import WrittenPartition
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.kafka.client.ask import Ask, Leaders, Reply
from kafka_sink.kafka.client.outcome import DriverOutcome, describe_answer, driver_outcome
from kafka_sink.kafka.wire.apis import LIST_OFFSETS

STABLE = "last stable offsets"


class Visible(CommitStep):
    def __init__(self, settings: DeliverySettings, written: Sequence[WrittenPartition]) -> None:
        super().__init__(settings)
        # Last offset of the batch by partition, while the last stable offset is not above it.
        self._unseen = {(each.topic, each.partition): each.last_offset for each in written if each.last_offset >= 0}
        self._stable: dict[tuple[str, int], int] = {}
        self._is_stale = False

    def ask_first(self, now_ms: int) -> None:
        if self._unseen:
            target, body = self._question()
            ask = Ask(target, LIST_OFFSETS, body, STABLE, version_min=LIST_OFFSETS.isolated_since)
            self.asks.add(now_ms, ask)

    @property
    def note(self) -> str:
        """For an operator; empty if every row can be seen."""
        if not self._unseen:
            return ""
        if self.failure is not None:
            return f"whether the batch is visible was not found out: {self.failure}"
        named = some(
            [
                f"{topic}-{partition} (stable up to {self._stable.get((topic, partition), 'an unknown offset')}, "
                f"written up to {last})"
                for (topic, partition), last in sorted(self._unseen.items())
            ],
            "partitions more",
        )
        return (
            f"the batch is committed, and after {self.settings.visible_ms} ms read_committed readers do not see all of "
            f"it yet: {named}. An open transaction of somebody else in the partition does that until it ends, a "
            "partition without a leader or with too few replicas in sync until it has them again, and a partition that "
            "had no leader when the transaction was committed for ever (KAFKA-20734): kafka-transactions.sh "
            "find-hanging tells the last one apart"
        )

    def _question(self) -> tuple[Leaders, dict[str, Any]]:
        return Leaders(tuple(self._unseen)), offsets_body(self._unseen, LATEST, READ_COMMITTED)

    def on_lost(self, now_ms: int, reply: Reply) -> None:
        self._is_stale = True
        self.on_bodies(now_ms, reply)

    def on_bodies(self, now_ms: int, reply: Reply) -> None:
        """Asks again for partitions that are not visible yet, at once or after finding the leader."""
        super().on_bodies(now_ms, reply)
        if self.failure is not None:
            return
        if not self._unseen:
            self.asks.drop(reply.ask)
            return
        self.asks.narrow(reply.ask, *self._question())
        self.asks.repeat(now_ms, reply.ask, find_again=self._is_stale, soon=not self._is_stale)
        self._is_stale = False

    def on_body(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        for topic in body["topics"]:
            for told in topic["partitions"]:
                where = topic["name"], told["partition_index"]
                if where in self._unseen:
                    self._on_told(where, told["error_code"], told["offset"])

    def _on_told(self, where: tuple[str, int], error_code: int, offset: int) -> None:
        found = driver_outcome(LIST_OFFSETS, error_code)
        if found is DriverOutcome.DONE:
            self._stable[where] = offset
            if offset > self._unseen[where]:
                del self._unseen[where]
        elif found.is_again:
            self._is_stale = True
            self.last_trouble = describe_answer(LIST_OFFSETS.name, error_code)
        else:
            self.fail(f"{where[0]}-{where[1]}: {describe_answer(LIST_OFFSETS.name, error_code)}")
