"""Two looks: what may end by itself is a finding only if both have found it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.commit.command_texts import BrokerArguments
from kafka_sink.commit.ledger import Kind, LedgerRecord, TransactionEntry, TransactionOutcome
from kafka_sink.commit.listing import Listed
from kafka_sink.commit.open_decisions import OpenDecision, Standing
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.operate.status.collect import BETWEEN_LOOKS_S, examine
from kafka_sink.operate.status.facts import ClusterFacts, LedgerFacts, OpenProducer
from kafka_sink.operate.status.findings import Limits, Trouble

NOW = 10_000_000_000
ENTRY = TransactionEntry(0, 0, 4711, 3, 2, "t", 0, 9, 20)
OPEN = LedgerRecord(
    Kind.INTENT, "orders", BatchKey("query", 7), "0123456789abcdef", wall_ms=NOW - 60_000, row_count=20,
    topics={"t": 20}, entries=(ENTRY,),
)  # fmt: skip
NEXT = replace(OPEN, key=BatchKey("query", 8))
DONE = OPEN.as_closed(Kind.DONE, NOW)
STUCK = replace(OPEN, kind=Kind.STUCK, outcomes=(TransactionOutcome.LOST,))


FINE = ClusterFacts(NOW, "here", [])
# Nobody lists it: seen for the first time, and again.
NEW = replace(FINE, unlisted=[OpenProducer("t", 3, 4711, 3, 42, NOW)])
OLD = replace(FINE, unlisted=[OpenProducer("t", 3, 4711, 3, 42, NOW - 1)])


def facts_of(record: LedgerRecord, standing: Standing = Standing.OPEN) -> ClusterFacts:
    judged = {"orders": OpenDecision(record, standing, 60_000)} if record.kind is Kind.INTENT else {}
    return ClusterFacts(NOW, "here", [LedgerFacts("ledger", [Listed("orders", 5, record)], judged)])


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([facts_of(DONE)], []),
        ([facts_of(OPEN), facts_of(DONE)], []),
        # A query that runs: another batch is open now.
        ([facts_of(OPEN), facts_of(NEXT)], []),
        ([facts_of(OPEN, Standing.OVERDUE), facts_of(DONE)], []),
        ([facts_of(OPEN), facts_of(OPEN)], [Trouble.OPEN]),
        ([facts_of(OPEN), facts_of(OPEN, Standing.OVERDUE)], [Trouble.OVERDUE]),
        # It became a loss meanwhile, and that does not pass.
        ([facts_of(OPEN), facts_of(STUCK)], [Trouble.LOST]),
        ([NEW, FINE], []),
        ([NEW, OLD], []),
        ([OLD], []),
        # Nothing that may pass: no second look.
        ([facts_of(STUCK)], [Trouble.LOST]),
    ],
)
def test_what_may_pass_is_a_finding_if_two_looks_find_it(
    looks: Sequence[ClusterFacts], expected: Sequence[Trouble]
) -> None:
    coming, pauses = list(looks), list[int]()
    cluster: Any = SimpleNamespace(look=lambda: coming.pop(0), brokers=BrokerArguments())
    facts, found = examine(cluster, Limits(60_000, 0), pauses.append)
    assert [each.trouble for each in found] == expected
    assert coming == [] and facts is looks[-1]
    assert pauses == [BETWEEN_LOOKS_S] * (len(looks) - 1)
