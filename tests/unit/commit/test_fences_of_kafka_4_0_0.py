"""Kafka 4.0.0 raises the epoch twice when it ends a transaction by itself, so the marker of an aborted ledger record is
two above it (KAFKA-19367). An aborted record must not be taken for one whose marker was lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_sink.commit.session import Conclusion, DriverOperation
from kafka_sink.errors import CommitAborted, CommitLost, CommitPending
from kafka_sink.kafka.client.ask import Ask
from tests.support.tiny_broker import LEDGER, TinyBroker
from tests.unit.commit.driver_bench import END, LOST, SECOND, Bench, stop_before


@pytest.fixture(params=[1, 2], ids=["4.0.1 raises once", "4.0.0 raises twice"])
def bench(request: pytest.FixtureRequest) -> Bench:
    """No client can tell the two apart."""
    made = Bench(transaction_version=2)
    made.broker.fence_raises = request.param
    made.settings = replace(made.settings, fence_raises_max=2)
    return made


def test_a_draft_that_was_refused_and_aborted_is_no_decision(bench: Bench) -> None:
    """Two of the batch's rows are prepared, one of their transactions times out, and the commit sees it in time."""
    session = bench.session()
    assert bench.commit(bench.receipts(), session).conclusion is Conclusion.DELIVERED
    receipts = bench.receipts(1)
    bench.time_out(receipts[0])
    bench.settle()
    refused = bench.commit(receipts, session)
    assert isinstance(refused.error, CommitAborted)
    # Spark calls abort() in another process of the run.
    assert bench.run(DriverOperation.ABORT, receipts).conclusion is Conclusion.ABORTED
    assert bench.state_of(receipts[1]) in ("PrepareAbort", "CompleteAbort")
    assert bench.commit(bench.receipts(1, run=SECOND), bench.session(SECOND)).conclusion is Conclusion.DELIVERED
    assert bench.seen() == [2, 2]


def test_a_draft_that_its_dead_driver_left_is_no_decision(bench: Bench) -> None:
    session = bench.session()
    assert bench.commit(bench.receipts(), session).conclusion is Conclusion.DELIVERED
    bench.settle()
    receipts = bench.receipts(1)
    stop_before(bench, END, receipts, session)
    for receipt in receipts:
        bench.time_out(receipt)
    assert bench.commit(bench.receipts(1, run=SECOND), bench.session(SECOND)).conclusion is Conclusion.DELIVERED
    assert bench.seen() == [2, 2]


def test_a_fenced_done_record_leaves_the_decision_below_it(bench: Bench) -> None:
    pending = bench.commit(bench.receipts(), bench.session(), answers={END: [None, *[LOST] * 100_000]})
    assert isinstance(pending.error, CommitPending) and "committed and visible" in str(pending.error)
    assert bench.commit(bench.receipts(run=SECOND), bench.session(SECOND)).conclusion is Conclusion.ALREADY_DELIVERED
    assert bench.seen() == [1, 1]


def test_a_decided_transaction_that_has_timed_out_is_known_to_be_lost(bench: Bench) -> None:
    receipts = bench.receipts()
    bench.decide(receipts)
    bench.time_out(receipts[0])
    bench.settle()
    lost = bench.commit(bench.receipts(run=SECOND), bench.session(SECOND))
    assert isinstance(lost.error, CommitLost)
    assert "Not committed, rows not visible: 1 rows" in str(lost.error) and "no longer" not in str(lost.error)
    assert bench.seen() == [0, 1]


def test_a_record_whose_end_got_no_answer_and_that_a_fence_has_aborted_is_known_not_to_be_written(
    bench: Bench,
) -> None:
    """Another client fences the driver before its EndTxn arrives. There is no claim of another run, so it goes on."""
    done = bench.commit(bench.receipts(), answers={END: [lambda request: fence_before(bench, request)]})
    assert done.conclusion is Conclusion.DELIVERED
    assert bench.seen() == [1, 1]


def fence_before(bench: Bench, _request: Ask) -> object:
    """The answer to the first EndTxn is lost, and it was not carried out."""
    bench.take_the_drivers_id()
    bench.settle()
    return LOST


def test_the_tiny_broker_raises_as_it_is_told() -> None:
    for raises in (1, 2):
        broker = TinyBroker(((), (), 0), 2)
        broker.fence_raises = raises
        _, producer_id, epoch = broker.init("x", None)
        broker.add_partitions("x", [(LEDGER, 0)])
        broker.write((LEDGER, 0), b"draft", producer_id, epoch)
        assert broker.init("x", None)[0] == 51
        broker.complete("x")
        assert broker.logs[LEDGER, 0][-1] == (producer_id, epoch + raises, None, False)
