"""What tells an operator whether a query still works under a sink id, before its transactions are aborted.

No client can know that for sure: a query between two batches does nothing. So this collects when the sink was last seen
at work, and looks twice whether anything moves. Ages are differences between this machine's clock and that of the
driver or the broker.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from kafka_sink.commit.describe_transactions import TransactionDescription
from kafka_sink.commit.identity import parse_task_identity
from kafka_sink.commit.ledger import LedgerRecord
from kafka_sink.commit.ledger_codec import claim_time, decode_claim
from kafka_sink.commit.ledger_read import LedgerRead
from kafka_sink.commit.listing import ProducerMarks
from kafka_sink.errors import RemoteProtocolError
from kafka_sink.frozen import frozen
from kafka_sink.operate.cli.report import batch_named, verdict_word
from kafka_sink.operate.cli.sink_client import SinkClient
from kafka_sink.operate.status.collect import BETWEEN_LOOKS_S
from kafka_sink.operate.status.findings import span

# A sink that was at work so recently is taken for a running query.
LIVE_MS = 300_000
MOVES = "its tasks are writing now"


class LedgerWithClaims(LedgerRead):
    """Of all lines of a sink. Also knows the newest claim of a run, and when it was written. An operator's command
    claims without a run."""

    claim: tuple[str, int] | None = None

    def _take_claim(self, offset: int, key: bytes, value: bytes) -> None:
        super()._take_claim(offset, key, value)
        with suppress(RemoteProtocolError):
            found = decode_claim(value)
            if found.run and self._is_own_claim(key, found.code):
                self.claim = found.run, claim_time(value)


@frozen
class Signs:
    """Of one sink id. A named sink has one for each of its queries."""

    sink_id: str
    claim: tuple[str, int] | None
    records: Sequence[LedgerRecord]
    transactions: Sequence[TransactionDescription]
    is_moving: bool
    at_ms: int

    @property
    def newest(self) -> LedgerRecord | None:
        return max(self.records, key=lambda record: record.wall_ms, default=None)

    def reason_to_think_it_lives(self) -> str | None:
        if self.is_moving:
            return MOVES
        seen = {f"its open transactions began {span(age)} ago": age for age in self._ages_of_transactions()[-1:]}
        if self.newest is not None:
            age = self.at_ms - self.newest.wall_ms
            seen[f"its newest decision is {span(age)} old"] = age
        if self.claim is not None:
            age = self.at_ms - self.claim[1]
            seen[f"it claimed the ledger {span(age)} ago"] = age
        last = min(seen, key=lambda text: seen[text], default="")
        return last if last and seen[last] < LIVE_MS else None

    def _ages_of_transactions(self) -> list[int]:
        """The oldest first."""
        return sorted((self.at_ms - one.start_ms for one in self.transactions), reverse=True)

    def lines(self) -> list[str]:
        lines = [f"sink {self.sink_id}:"]
        if self.claim is not None:
            lines.append(f"  last claimed the ledger: run {self.claim[0]}, {span(self.at_ms - self.claim[1])} ago")
        if (newest := self.newest) is not None:
            what = f"{batch_named(newest.key)}, {verdict_word(newest)}, run {newest.run}"
            lines.append(f"  newest decision: {what}, {span(self.at_ms - newest.wall_ms)} ago")
        by_run: dict[str, list[TransactionDescription]] = {}
        for one in self.transactions:
            by_run.setdefault(_run_of(one), []).append(one)
        for run, found in by_run.items():
            oldest_ms = min(one.start_ms for one in found)
            lines.append(f"  open transactions: {len(found)} of run {run}, for {span(self.at_ms - oldest_ms)}")
        if reason := self.reason_to_think_it_lives():
            lines.append(f"  A query seems to be running: {reason}")
        return lines

    def content(self) -> dict[str, Any]:
        newest, ages = self.newest, self._ages_of_transactions()
        return {
            "sink_id": self.sink_id,
            "claim_run": None if self.claim is None else self.claim[0],
            "claim_age_ms": None if self.claim is None else self.at_ms - self.claim[1],
            "decision_age_ms": None if newest is None else self.at_ms - newest.wall_ms,
            "open_transactions": len(ages),
            "oldest_transaction_age_ms": ages[0] if ages else None,
            "seems_to_run": self.reason_to_think_it_lives(),
        }


def _run_of(one: TransactionDescription) -> str:
    identity = parse_task_identity(one.transactional_id)
    return "" if identity is None else identity.run


def look_for_signs(sink: SinkClient) -> list[Signs]:
    """Of each sink id that has open transactions."""
    before = sink.list_open_transactions().found
    marks = _marks(sink, before)
    time.sleep(BETWEEN_LOOKS_S)
    now = sink.list_open_transactions().found
    moved = {key[2] for key, last in _marks(sink, now).items() if marks.get(key, last) != last}
    known = {(one.transactional_id, one.producer_epoch, one.partitions) for one in before}
    by_sink: dict[str, list[TransactionDescription]] = {}
    for one in now:
        identity = parse_task_identity(one.transactional_id)
        if identity is not None:
            by_sink.setdefault(identity.sink_id, []).append(one)
    found = []
    for sink_id, transactions in sorted(by_sink.items()):
        ledger = sink.run_step(LedgerWithClaims(sink.settings(), sink_id, code=None), "the ledger")
        records = list(ledger.state.newest.values()) if ledger.state is not None else []
        is_moving = any(
            one.producer_id in moved or (one.transactional_id, one.producer_epoch, one.partitions) not in known
            for one in transactions
        )
        found.append(Signs(sink_id, ledger.claim, records, transactions, is_moving, sink.wall_ms))
    return found


def _marks(sink: SinkClient, found: Sequence[TransactionDescription]) -> Mapping[tuple[str, int, int], int]:
    return sink.run_step(ProducerMarks(sink.settings(), found), "the producers").last
