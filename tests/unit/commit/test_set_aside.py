"""A null value sets an unreadable record aside; a readable record is never set aside."""

from __future__ import annotations

import pytest

from kafka_sink.commit.commit_step import SingleStep
from kafka_sink.commit.ledger import Kind
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.commit.same_cluster import CLUSTER
from kafka_sink.commit.session import Conclusion
from kafka_sink.commit.set_aside import Aside, SetAside
from kafka_sink.errors import CommitAborted
from kafka_sink.kafka.client.ask import Reply, ReplyKind
from tests.unit.commit.driver_bench import (
    ERRORS,
    LOST,
    POISON,
    QUERY,
    REFUSED,
    SECOND,
    SINK,
    THIRD,
    Bench,
    put,
    set_aside,
)


def test_a_poisoned_sink_is_refused_until_its_record_is_set_aside_and_a_person_accepts_what_that_means(
    bench: Bench,
) -> None:
    bench.commit(bench.receipts())
    offset = put(bench, SINK, POISON)
    refused = bench.commit(bench.receipts(1, run=SECOND), bench.session(SECOND))
    assert isinstance(refused.error, CommitAborted) and "version '9'" in str(refused.error)

    bench.asked.clear()
    assert set_aside(bench, SINK, offset).outcome is Aside.DONE
    order = list(dict.fromkeys(bench.purposes()))
    wanted = ["fence older drivers", "claim ledger", "read ledger", "write ledger record", "end ledger transaction"]
    assert [purpose for purpose in order if purpose in wanted] == wanted
    assert bench.ledger() == {}

    unknown = bench.commit(bench.receipts(1, run=SECOND, attempt=1), bench.session(SECOND))
    assert isinstance(unknown.error, CommitAborted) and "ledger.accept.new.sink=true" in str(unknown.error)
    bench.settings = type(bench.settings)(
        ledger_topic=bench.settings.ledger_topic,
        transaction_version=bench.transaction_version,
        accept_unknown_sink=True,
    )
    accepted = bench.commit(bench.receipts(1, run=THIRD, attempt=2), bench.session(THIRD))
    assert accepted.conclusion is Conclusion.DELIVERED and bench.ledger()[SINK].kind is Kind.DONE


def test_only_the_key_that_was_named_is_set_aside(bench: Bench) -> None:
    bench.commit(bench.receipts("monday", query=""))
    offset = put(bench, f"{SINK}/tuesday", POISON)
    assert set_aside(bench, f"{SINK}/tuesday", offset).outcome is Aside.DONE
    assert list(bench.ledger()) == [f"{SINK}/monday"]
    tuesday = bench.receipts("tuesday", query="", run=SECOND)
    again = bench.commit(tuesday, bench.session(SECOND, tuesday[0].key))
    assert again.conclusion is Conclusion.DELIVERED


def test_a_record_that_can_be_read_is_not_set_aside(bench: Bench) -> None:
    bench.commit(bench.receipts())
    bench.settle()
    before = bench.ledger()
    for offset in range(len(bench.broker.logs["ledger", 0])):
        assert set_aside(bench, SINK, offset).outcome is Aside.CHANGED
    assert bench.ledger() == before and before[SINK].key == BatchKey(QUERY, 0)


def test_a_newer_record_than_the_one_that_was_seen_is_not_set_aside(bench: Bench) -> None:
    offset = put(bench, SINK, POISON)
    put(bench, SINK, b"other rubbish")
    assert set_aside(bench, SINK, offset).outcome is Aside.CHANGED
    assert "write ledger record" not in bench.purposes()


@pytest.mark.parametrize("purpose", ["fence older drivers", "claim ledger", "read ledger", "write ledger record"])
def test_without_an_answer_before_the_end_nothing_was_written(bench: Bench, purpose: str) -> None:
    offset = put(bench, SINK, POISON)
    verdict = set_aside(bench, SINK, offset, {purpose: [LOST] * 100_000})
    assert verdict.outcome is Aside.FAILED and str(ERRORS[LOST]) in verdict.reason
    assert set_aside(bench, SINK, offset).outcome is Aside.DONE


@pytest.mark.parametrize("purpose", ["fence older drivers", "claim ledger", "read ledger"])
def test_what_is_refused_before_the_end_is_the_reason_and_nothing_was_written(bench: Bench, purpose: str) -> None:
    offset = put(bench, SINK, POISON)
    verdict = set_aside(bench, SINK, offset, {purpose: [REFUSED]})
    assert verdict.outcome is Aside.FAILED and str(ERRORS[REFUSED]) in verdict.reason
    # The claim is sent together with the question about the cluster.
    assert [each for each in bench.purposes() if each != CLUSTER][-1] == purpose


def test_an_outdated_leader_of_the_ledger_does_not_make_a_newer_record_the_victim(bench: Bench) -> None:
    offset = put(bench, SINK, POISON)
    bench.outdated = (("ledger", 0), offset + 2, bench.now_ms + 5_000)
    put(bench, SINK, b"other rubbish")
    assert set_aside(bench, SINK, offset).outcome is Aside.CHANGED
    assert "write ledger record" not in bench.purposes()


def test_an_end_without_an_answer_is_in_doubt_and_may_be_repeated(bench: Bench) -> None:
    offset = put(bench, SINK, POISON)
    verdict = set_aside(bench, SINK, offset, {"end ledger transaction": [LOST] * 100_000})
    assert verdict.outcome is Aside.IN_DOUBT
    assert set_aside(bench, SINK, offset).outcome is Aside.DONE and bench.ledger() == {}


def test_a_null_value_means_before_compaction_what_it_means_after_it(bench: Bench) -> None:
    bench.commit(bench.receipts())
    put(bench, SINK, None)
    assert bench.ledger() == {}
    assert bench.commit(bench.receipts(0, run=SECOND), bench.session(SECOND)).conclusion is Conclusion.DELIVERED
    assert bench.ledger()[SINK].run == SECOND


def test_a_record_of_more_bytes_than_are_read_stops_its_own_key_only(bench: Bench) -> None:
    offset = put(bench, f"{SINK}/large", b"x" * (8 * 1024 * 1024 + 2))
    assert bench.commit(bench.receipts()).conclusion is Conclusion.DELIVERED
    verdict = bench.commit(bench.receipts("large", query=""))
    assert isinstance(verdict.error, CommitAborted) and f"(offset {offset})" in str(verdict.error)
    assert set_aside(bench, f"{SINK}/large", offset).outcome is Aside.DONE
    assert bench.commit(bench.receipts("large", query="", attempt=1)).conclusion is Conclusion.DELIVERED


def test_an_answer_after_the_verdict_changes_nothing(bench: Bench) -> None:
    part = SetAside(bench.settings, SINK, 0, 0)
    machine = SingleStep(part, bench.settings.patience_ms)
    (request,) = machine.step(0, ()).asks
    machine.step(0, [Reply(request, ReplyKind.REFUSED, (), ERRORS[ReplyKind.REFUSED])])
    told = part.outcome, part.reason
    assert told[0] is Aside.FAILED
    assert machine.step(1, [Reply(request, ReplyKind.LOST, (), ERRORS[LOST])]).result is part
    assert (part.outcome, part.reason) == told
