"""The state of transactions, as their coordinators tell it. Asking changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from kafka_sink.commit.commit_step import CommitStep
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.errors import AuthorizationError
from kafka_sink.frozen import frozen
from kafka_sink.kafka.client.ask import Ask, Coordinators, Reply
from kafka_sink.kafka.client.outcome import DriverOutcome, describe_answer, driver_outcome
from kafka_sink.kafka.client.producer_identity import ProducerIdentity
from kafka_sink.kafka.wire.apis import DESCRIBE_TRANSACTIONS, Api
from kafka_sink.kafka.wire.codes import TRANSACTIONAL_ID_AUTHORIZATION_FAILED

DESCRIBE = "describe transactions"


@frozen
class TransactionDescription:
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int
    partitions: tuple[tuple[str, int], ...] = ()

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.producer_epoch)


def described_partitions(state: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Those of one transaction in an answer to DescribeTransactions."""
    return tuple((topic["topic"], one) for topic in state["topics"] for one in topic["partitions"])


class DescribeTransactions(CommitStep):
    """The state of many transactions. An id that no coordinator knows is not in `found`.

    `passes_over_refused`: an id that this login may not describe is in `refused`, and says nothing about the others.
    Otherwise one of them fails the whole question, since an id that is missing would be taken for one that is not
    open."""

    def __init__(
        self, settings: DeliverySettings, transactional_ids: Sequence[str], *, passes_over_refused: bool = False
    ) -> None:
        super().__init__(settings)
        self.found: dict[str, TransactionDescription] = {}
        self.refused: set[str] = set()
        self._passes_over_refused = passes_over_refused
        self.is_supported = True
        self._missing = dict.fromkeys(transactional_ids)

    def ask_first(self, now_ms: int) -> None:
        self._describe(now_ms, 0)

    def _describe(self, now_ms: int, number: int) -> None:
        self.asks.add(now_ms, Ask(*self._question(), DESCRIBE, number))

    def _question(self) -> tuple[Coordinators, Api, Mapping[str, Any]]:
        ids = tuple(self._missing)
        return Coordinators(ids), DESCRIBE_TRANSACTIONS, {"transactional_ids": list(ids)}

    def on_unsupported(self, now_ms: int, reply: Reply) -> None:
        """Only this ask is over: leaders and topics can still be looked at."""
        self.asks.drop(reply.ask)
        self.is_supported = False

    def on_lost(self, now_ms: int, reply: Reply) -> None:
        self.on_bodies(now_ms, reply)

    def on_bodies(self, now_ms: int, reply: Reply) -> None:
        """Asks again for transactions whose coordinator has not answered."""
        super().on_bodies(now_ms, reply)
        if self.failure is None:
            self._ask_for_rest(now_ms, reply.ask)

    def _ask_for_rest(self, now_ms: int, ask: Ask, *, find_again: bool = True) -> None:
        if not self._missing:
            self.asks.drop(ask)
            return
        target, _, body = self._question()
        self.asks.narrow(ask, target, body)
        self.asks.repeat(now_ms, ask, find_again=find_again)

    def on_reply(self, now_ms: int, reply: Reply) -> None:
        """Who looks for the coordinator of an id needs the permission to describe it."""
        refused = reply.ask.failed_ids & self._missing.keys() if isinstance(reply.error, AuthorizationError) else set()
        if self._passes_over_refused and refused and self.asks.accept(reply):
            self._pass_over(refused)
            self._ask_for_rest(now_ms, reply.ask, find_again=False)
        else:
            super().on_reply(now_ms, reply)

    def _pass_over(self, refused: Collection[str]) -> None:
        self.refused.update(refused)
        for transactional_id in refused:
            del self._missing[transactional_id]

    def on_body(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        for state in body["transaction_states"]:
            transactional_id, error_code = state["transactional_id"], state["error_code"]
            found = driver_outcome(DESCRIBE_TRANSACTIONS, error_code)
            if transactional_id not in self._missing:
                continue
            if found is DriverOutcome.DONE:
                del self._missing[transactional_id]
                self.found[transactional_id] = TransactionDescription(
                    transactional_id,
                    state["transaction_state"],
                    state["producer_id"],
                    state["producer_epoch"],
                    state["transaction_timeout_ms"],
                    state["transaction_start_time_ms"],
                    described_partitions(state),
                )
            elif found is DriverOutcome.NEVER:
                del self._missing[transactional_id]
            elif error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED and self._passes_over_refused:
                self._pass_over([transactional_id])
            elif found is DriverOutcome.REFUSED:
                self.fail(f"{transactional_id}: {describe_answer(DESCRIBE_TRANSACTIONS.name, error_code)}")
                return
            else:
                self.last_trouble = describe_answer(DESCRIBE_TRANSACTIONS.name, error_code)
