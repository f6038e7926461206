"""The ledger's topic is changed while a query runs, so that brokers would delete its decisions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_sink.commit.session import Conclusion
from kafka_sink.errors import CommitAborted
from tests.unit.commit.driver_bench import LOST, REFUSED, UNSUPPORTED, Bench

LOOK = "look at the ledger's policy"
HOUR_MS = 3_600_000


@pytest.fixture
def looking(bench: Bench) -> Bench:
    bench.settings = replace(bench.settings, ledger_look_ms=HOUR_MS)
    return bench


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_first_commit_and_one_an_hour_later_are_refused_by_a_ledger_that_forgets(looking: Bench, policy: str) -> None:
    session = looking.session()
    assert looking.commit(looking.receipts(), session).conclusion is Conclusion.DELIVERED
    looking.broker.cleanup_policy = policy
    assert looking.commit(looking.receipts(1), session).conclusion is Conclusion.DELIVERED
    assert looking.purposes().count(LOOK) == 1
    looking.now_ms += HOUR_MS
    for again in (session, looking.session("2" * 16)):
        refused = looking.commit(looking.receipts(2, run=again.run), again)
        assert isinstance(refused.error, CommitAborted) and f"cleanup.policy={policy}" in str(refused.error)
        assert "kafka-configs --alter" in str(refused.error)
    assert looking.seen() == [2, 2]
    looking.broker.cleanup_policy = "compact"
    third = looking.session("3" * 16)
    assert looking.commit(looking.receipts(2, run=third.run), third).conclusion is Conclusion.DELIVERED


@pytest.mark.parametrize("answer", [LOST, REFUSED, UNSUPPORTED])
def test_a_policy_that_is_not_told_stops_no_batch_and_is_asked_for_again(looking: Bench, answer: object) -> None:
    session = looking.session()
    for batch in range(2):
        verdict = looking.commit(looking.receipts(batch), session, answers={LOOK: [answer]})
        assert verdict.conclusion is Conclusion.DELIVERED
    assert looking.purposes().count(LOOK) == 2
    looking.broker.cleanup_policy = None
    assert looking.commit(looking.receipts(2), session).conclusion is Conclusion.DELIVERED
