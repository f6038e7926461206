"""Before Kafka 4.2 a leader takes a marker that arrives a second time for the end of the transaction that has its epoch
by then (KAFKA-19446). In transaction version 2 that is the next one, unless it has asked for an epoch of its own."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import pytest

from kafka_sink.commit.session import Conclusion, DriverOperation, DriverSession
from kafka_sink.errors import CommitAborted
from kafka_sink.kafka.client.ask import Ask
from tests.support.tiny_broker import LEDGER
from tests.unit.commit.driver_bench import END, SECOND, SINK, WRITE, Bench

RENEW = "renew driver epoch"


@pytest.fixture
def bench() -> Bench:
    made = Bench(transaction_version=2)
    made.settings = replace(made.settings, epoch_of_end_is_safe=False)
    return made


def repeat_marker_behind(bench: Bench, which: int) -> None:
    """The last marker of the ledger arrives again as soon as that record, counted from here, has been appended."""
    left = which
    append = bench.broker._append

    def changed(partition: tuple[str, int], entry: tuple[int, int, bytes | None, bool | None]) -> int:
        nonlocal left
        offset = append(partition, entry)
        left -= partition == (LEDGER, 0) and entry[2] is not None and entry[0] >= 0
        if not left:
            left = -1
            bench.broker.repeat_marker(partition)
        return offset

    bench.broker._append = changed  # type: ignore[method-assign]


def test_a_draft_that_is_given_up_stays_none_though_the_last_marker_arrives_again(bench: Bench) -> None:
    session = bench.session()
    assert bench.commit(bench.receipts(), session).conclusion is Conclusion.DELIVERED
    bench.settle()
    receipts = bench.receipts(1)
    bench.time_out(receipts[0])
    bench.settle()
    repeat_marker_behind(bench, 1)
    assert isinstance(bench.commit(receipts, session).error, CommitAborted)
    # Nobody has aborted the other transaction: a decision would be found out by planning.
    assert bench.run(DriverOperation.RECOVER, session=DriverSession(SINK, "")).conclusion is Conclusion.NOTHING_TO_DO
    assert bench.commit(bench.receipts(1, run=SECOND), bench.session(SECOND)).conclusion is Conclusion.DELIVERED
    assert bench.seen() == [2, 2]


@pytest.mark.parametrize("epoch_of_end_is_safe", [True, False])
def test_a_new_epoch_is_requested_before_each_further_record_and_only_where_it_is_needed(
    bench: Bench, epoch_of_end_is_safe: bool
) -> None:
    bench.settings = replace(bench.settings, epoch_of_end_is_safe=epoch_of_end_is_safe)
    session, requests = bench.session(), list[Ask]()
    bench.before = requests.append
    for batch in range(2):
        assert bench.commit(bench.receipts(batch), session).conclusion is Conclusion.DELIVERED
    # A request is repeated while the markers before it are being written.
    steps = [
        purpose for purpose, _ in groupby(each.purpose for each in requests if each.purpose in (RENEW, WRITE, END))
    ]
    further = [WRITE, END] if epoch_of_end_is_safe else [RENEW, WRITE, END]
    assert steps == [WRITE, END, *further * 3]
    assert bench.seen() == [2, 2]
