"""A leader that has just started knows that a transaction has ended, and does not show its marker yet: the high
watermark of its checkpoint is behind its log."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.commit.session import Conclusion, DriverOperation
from kafka_sink.errors import CommitLost
from kafka_sink.kafka.client.ask import Ask
from tests.unit.commit.driver_bench import SECOND, Bench

MARKER, END_OF_LOG = "look for marker", "find log end"


@pytest.fixture(params=[1, 2])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


def decide_and_forget(bench: Bench) -> None:
    """Both transactions are committed, and their coordinators do not know them any more."""
    receipts = bench.receipts()
    bench.decide(receipts)
    for receipt in receipts:
        assert receipt.transaction is not None
        name, producer_id, epoch, version = receipt.transaction
        assert bench.broker.end(name, producer_id, epoch, commit=True, is_first=version == 1) == 0
        bench.settle()
        del bench.broker.transactions[name]


def test_a_marker_that_a_leader_does_not_show_yet_is_waited_for(bench: Bench) -> None:
    decide_and_forget(bench)

    def behind(request: Ask) -> dict[str, Any]:
        told = bench.broker.answer(request)
        (partition,) = told["responses"][0]["partitions"]
        partition |= {"records": b"", "high_watermark": 1, "last_stable_offset": 1}
        return told

    done = bench.run(DriverOperation.FINISH, session=bench.session(SECOND), answers={MARKER: [behind] * 6})
    assert done.conclusion is Conclusion.RECOVERED, done.error
    assert bench.seen() == [1, 1]


def test_a_log_that_is_read_to_its_end_without_a_marker_tells_no_outcome(bench: Bench) -> None:
    """Retention has deleted the markers, and what is left is of others."""
    decide_and_forget(bench)
    for task in (0, 1):
        count = len(bench.broker.logs["t", task])
        bench.broker.logs["t", task] = [(1, 0, None, True)] * (count + 2)
    lost = bench.run(DriverOperation.FINISH, session=bench.session(SECOND))
    assert isinstance(lost.error, CommitLost) and "Ended in a way that can no longer be read: 2 rows" in str(lost.error)
    assert bench.purposes().count(END_OF_LOG) == 2
