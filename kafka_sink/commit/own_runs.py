"""The runs of a stream under which transactions are open, by the first half that the stream's driver knows of them."""

from __future__ import annotations

from collections.abc import Collection

from kafka_sink.commit.commit_step import CommitStep, StepChain
from kafka_sink.commit.identity import parse_task_identity
from kafka_sink.commit.listing import OpenTransactions
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.commit.sweep import LIST_AGAIN_MS, NOT_LISTED
from kafka_sink.kafka.wire.apis import ONGOING


class AwaitedRuns(StepChain):
    """`runs`: each with its sink id, of the queries under the name, without those that are `known`. It lists until
    there is one, or until tasks of a failed job can begin no transaction any more and every broker has answered."""

    def __init__(
        self, settings: DeliverySettings, name: str, code: str, *, known: Collection[tuple[str, str]], late_ms: int
    ) -> None:
        super().__init__(settings, OpenTransactions(settings, name, [ONGOING]))
        self.runs: set[tuple[str, str]] = set()
        self._name, self._code, self._known = name, code, known
        self._late_ms = late_ms
        self._listed_ms = self._quiet_at_ms = 0

    def ask_first(self, now_ms: int) -> None:
        self._listed_ms, self._quiet_at_ms = now_ms, now_ms + self._late_ms
        super().ask_first(now_ms)

    def after(self, now_ms: int, finished: CommitStep) -> CommitStep | None:
        assert isinstance(finished, OpenTransactions)
        if not finished.is_supported:
            self.fail(NOT_LISTED)
            return None
        if finished.failure is not None:
            self.fail(finished.failure)
            return None
        found = filter(None, map(parse_task_identity, finished.ids))
        self.runs = {(one.sink_id, one.run) for one in found if one.run.startswith(self._code)} - set(self._known)
        if self.runs or (not finished.notes and self._listed_ms >= self._quiet_at_ms):
            return None
        self._listed_ms = now_ms + LIST_AGAIN_MS
        return OpenTransactions(self.settings, self._name, [ONGOING]).begin(self._listed_ms)
