"""After the last EndTxn the driver checks whether read_committed readers see the batch, if an option requests it."""

from dataclasses import replace

import pytest

from kafka_sink.commit.ledger import Kind
from kafka_sink.commit.session import Conclusion
from tests.unit.commit.driver_bench import Bench

STABLE = "last stable offsets"


@pytest.fixture
def asking(bench: Bench) -> Bench:
    bench.settings = replace(bench.settings, visible_ms=500)
    return bench


def test_a_commit_waits_until_the_stable_offset_has_passed_each_partition(asking: Bench) -> None:
    verdict = asking.commit(asking.receipts())
    assert verdict.conclusion is Conclusion.DELIVERED and not verdict.notes
    # This is true when the commit returns; the test has not waited for the markers.
    assert [asking.broker.last_stable_offset(("t", task)) for task in (0, 1)] == [2, 2]
    question = next(request for request in asking.asked if request.purpose == STABLE)
    assert question.body["isolation_level"] == 1
    assert [asked["partition_index"] for asked in question.body["topics"][0]["partitions"]] == [0, 1]
    order = asking.purposes()
    assert order.index("commit transaction") < order.index(STABLE)


def test_a_partition_that_lost_its_marker_is_named_and_the_batch_is_delivered(asking: Bench) -> None:
    """KAFKA-20734: the coordinator reports the commit as complete, but readers of that partition stop for ever."""
    receipts = asking.receipts()
    lost = receipts[1].transaction
    assert lost is not None

    def without_marker(request: object) -> None:
        if asking.broker.transactions[lost.transactional_id][2] == "PrepareCommit":
            asking.broker.complete(lost.transactional_id, is_lost=True)

    asking.before = without_marker
    began_ms = asking.now_ms
    verdict = asking.commit(receipts)
    assert verdict.conclusion is Conclusion.DELIVERED and verdict.error is None
    (note,) = verdict.notes
    assert "t-1 (stable up to 0, written up to 0)" in note and "t-0" not in note and "KAFKA-20734" in note
    assert 500 <= asking.now_ms - began_ms < 1_000
    assert asking.ledger()["sink"].kind is Kind.DONE


def test_an_open_transaction_of_somebody_else_holds_it_back_and_that_is_said(asking: Bench) -> None:
    asking.broker.write_in_task("another application", ("t", 0), b"another")
    verdict = asking.commit(asking.receipts())
    assert verdict.conclusion is Conclusion.DELIVERED
    assert "t-0 (stable up to 0, written up to 1)" in verdict.notes[0] and "somebody else" in verdict.notes[0]


def test_only_what_was_not_seen_is_asked_about_again(asking: Bench) -> None:
    asking.broker.write_in_task("another application", ("t", 0), b"another")
    asking.commit(asking.receipts())
    asked = [
        [each["partition_index"] for each in request.body["topics"][0]["partitions"]]
        for request in asking.asked
        if request.purpose == STABLE
    ]
    assert len(asked) > 2 and asked[-1] == [0]
