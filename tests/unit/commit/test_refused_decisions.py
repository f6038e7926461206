"""The request that decides has no answer, and then it is refused: the batch may be decided, and time goes by in which a
restart with other credentials or permissions could finish it."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.commit.session import Conclusion, DriverOperation
from kafka_sink.errors import CommitPending
from kafka_sink.kafka.client.ask import Ask
from kafka_sink.kafka.client.nodes import REFUSED_BACKOFF_MS
from kafka_sink.kafka.wire.codes import TRANSACTIONAL_ID_AUTHORIZATION_FAILED
from tests.unit.commit.driver_bench import END, LOST, REFUSED, SECOND, Bench, after

# A little more than a broker that alone refuses a login is left in peace.
LIMIT_MS = 80_000


@pytest.mark.parametrize("refused", [REFUSED, TRANSACTIONAL_ID_AUTHORIZATION_FAILED])
@pytest.mark.parametrize("is_decided", [True, False])
def test_a_decision_that_is_refused_after_a_lost_answer_leaves_its_time_to_the_next_start(
    bench: Bench, refused: Any, is_decided: bool
) -> None:
    began_ms = bench.now_ms
    lost = after(LOST) if is_decided else LOST
    verdict = bench.commit(bench.receipts(0), answers={END: [lost, *[refused] * 100_000]})
    assert isinstance(verdict.error, CommitPending) and "is not known" in str(verdict.error)
    told = "AUTHORIZATION_FAILED" if refused is not REFUSED else "no Write on TransactionalId"
    assert told in str(verdict.error)
    assert bench.now_ms - began_ms < LIMIT_MS
    found = bench.run(DriverOperation.FINISH, session=bench.session(SECOND))
    assert found.error is None and bench.seen() == [int(is_decided)] * 2


def test_a_refusal_that_ends_when_the_broker_is_tried_again_is_waited_for(bench: Bench) -> None:
    """One that alone refuses a login is left in peace for about a minute; brokers also hear of a permission one after
    the other."""
    began_ms = bench.now_ms
    mended_ms = began_ms + REFUSED_BACKOFF_MS * 6 // 5

    def refused(_: Ask) -> dict[str, Any] | None:
        return None if bench.now_ms >= mended_ms else {"error_code": TRANSACTIONAL_ID_AUTHORIZATION_FAILED}

    verdict = bench.commit(bench.receipts(0), answers={END: [LOST, *[refused] * 1_000]})
    assert verdict.conclusion is Conclusion.DELIVERED and bench.seen() == [1, 1]
    assert bench.now_ms >= mended_ms


def test_where_every_broker_has_refused_the_credentials_nothing_is_waited_for(bench: Bench) -> None:
    """This client tries none of them any more."""
    began_ms = bench.now_ms

    def refuse_for_good(ask: Ask) -> None:
        ask.is_hopeless = ask.purpose == END and ask.failures > 0

    bench.before = refuse_for_good
    verdict = bench.commit(bench.receipts(0), answers={END: [LOST, *[REFUSED] * 100_000]})
    assert isinstance(verdict.error, CommitPending) and "is not known" in str(verdict.error)
    assert bench.now_ms - began_ms < 5_000


def test_a_decision_that_is_refused_at_once_is_none(bench: Bench) -> None:
    verdict = bench.commit(bench.receipts(0), answers={END: [REFUSED]})
    assert verdict.error is not None and not isinstance(verdict.error, CommitPending)
    assert bench.seen() == [0, 0]
