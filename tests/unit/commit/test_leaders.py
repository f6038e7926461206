"""A batch is committed only while each of its partitions has a leader, because of KAFKA-20734.

`tests/chaos/test_lost_disk.py` shows the same with Apache Kafka.
"""

from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.commit.preflight import Preflight
from kafka_sink.commit.receipt import TaskReceipt
from kafka_sink.commit.session import Conclusion, DriverOperation, DriverSession
from kafka_sink.errors import CommitAborted, CommitPending
from kafka_sink.kafka.client.ask import Ask, Reply, ReplyKind
from kafka_sink.kafka.wire.apis import ONGOING
from tests.support.tiny_broker import TIMEOUT_MS
from tests.unit.commit.driver_bench import COMMIT, END, LEADERLESS, LOST, NOT_SENT, SECOND, THIRD, Bench, without_rows

LEADERS, DESCRIBE = "find partitions without a leader", "describe transactions"
PARTITIONS = "find partitions of transaction"
COORDINATOR_LOADS, UNAUTHORIZED, NOT_KNOWN = 14, 53, 105
# Longer than the time-out of the driver's own transactions.
LONGER_THAN_A_DRAFT_LIVES_MS = 90_000


def lose_leader(bench: Bench, task: int, *, back_after_ms: int) -> None:
    back_at_ms = bench.now_ms + back_after_ms
    bench.broker.leaderless.add(("t", task))

    def bring_back(_: Ask) -> None:
        if bench.now_ms >= back_at_ms:
            bench.broker.leaderless.clear()

    bench.before = bring_back


def last(purposes: list[str], purpose: str) -> int:
    return max(index for index, each in enumerate(purposes) if each == purpose)


@pytest.mark.parametrize("is_first", [True, False], ids=["first batch of a run", "next batch"])
def test_nothing_is_decided_until_each_partition_of_the_batch_has_a_leader(bench: Bench, is_first: bool) -> None:
    session = bench.session()
    if not is_first:
        bench.commit(bench.receipts(0), session)
    receipts = bench.receipts(0 if is_first else 1)
    bench.asked.clear()
    lose_leader(bench, 1, back_after_ms=20_000)
    began_ms = bench.now_ms
    assert bench.commit(receipts, session).conclusion is Conclusion.DELIVERED
    assert bench.now_ms >= began_ms + 20_000
    order = bench.purposes()
    assert last(order, LEADERS) < order.index(END)
    # The descriptions from before the wait may be out of date.
    assert order.count(DESCRIBE) == 2 and last(order, LEADERS) < last(order, DESCRIBE) < order.index(COMMIT)
    assert bench.seen() == [1 + (not is_first)] * 2


def test_a_wait_that_outlives_the_drivers_open_transaction_delivers_the_batch_once(bench: Bench) -> None:
    session = bench.session()
    bench.commit(bench.receipts(0), session)
    receipts = bench.receipts(1)
    lose_leader(bench, 0, back_after_ms=LONGER_THAN_A_DRAFT_LIVES_MS)
    restored = bench.before
    assert restored is not None

    def time_out_the_draft(request: Ask) -> None:
        restored(request)
        if not bench.broker.leaderless and bench.broker.transactions["sink-driver"][2] == "Ongoing":
            bench.before = None
            bench.broker.time_out("sink-driver")

    bench.before = time_out_the_draft
    assert bench.commit(receipts, session).conclusion is Conclusion.DELIVERED
    assert bench.seen() == [2, 2]


def test_a_partition_that_gets_no_leader_in_time_is_named_and_nothing_is_decided(bench: Bench) -> None:
    receipts = bench.receipts(0)
    bench.broker.leaderless.update({("t", 0), ("t", 1)})
    verdict = bench.commit(receipts)
    assert isinstance(verdict.error, CommitAborted)
    assert "t-0 (and 1 more partitions) has no leader, and too little time is left" in str(verdict.error)
    assert END not in bench.purposes() and COMMIT not in bench.purposes()
    assert {bench.state_of(receipt) for receipt in receipts} == {"Ongoing"}


def test_a_batch_whose_transaction_ended_during_the_wait_is_not_decided(bench: Bench) -> None:
    receipts = bench.receipts(0)
    lose_leader(bench, 1, back_after_ms=20_000)
    restored = bench.before
    assert restored is not None

    def time_out(request: Ask) -> None:
        restored(request)
        if not bench.broker.leaderless:
            bench.before = None
            bench.time_out(receipts[0])

    bench.before = time_out
    verdict = bench.commit(receipts)
    assert isinstance(verdict.error, CommitAborted) and "time-out" in str(verdict.error)
    assert COMMIT not in bench.purposes()


def test_a_description_that_was_under_way_during_the_whole_wait_is_not_believed(bench: Bench) -> None:
    receipts = bench.receipts(0)
    check = Preflight(bench.settings, bench.session(), receipts).begin(bench.now_ms)

    def answers() -> list[Reply]:
        due = check.asks.take_due(bench.now_ms)
        return [Reply(each, ReplyKind.ANSWERED, (bench.broker.answer(each),)) for each in due]

    bench.broker.leaderless.add(("t", 0))
    *late, leaders = answers()
    check.on_reply(bench.now_ms, leaders)
    bench.broker.leaderless.clear()
    bench.now_ms += 10_000
    check.on_reply(bench.now_ms, *answers())
    bench.time_out(receipts[0])
    for answer in (*late, *answers()):
        check.on_reply(bench.now_ms, answer)
    while not check.is_finished:
        for answer in answers():
            check.on_reply(bench.now_ms, answer)
        bench.now_ms += bench.settings.backoff_max_ms
    assert receipts[0].transaction is not None
    assert check.found[receipts[0].transaction.transactional_id].state != ONGOING


def test_a_transaction_that_its_coordinator_forgot_during_the_wait_is_not_decided(bench: Bench) -> None:
    receipts = bench.receipts(0)
    lose_leader(bench, 1, back_after_ms=20_000)
    restored = bench.before
    assert restored is not None and receipts[0].transaction is not None
    name = receipts[0].transaction.transactional_id

    def forget(request: Ask) -> None:
        restored(request)
        if not bench.broker.leaderless:
            bench.before = None
            del bench.broker.transactions[name]

    bench.before = forget
    verdict = bench.commit(receipts)
    assert isinstance(verdict.error, CommitAborted)
    assert f"transaction {name} is not known to its coordinator" in str(verdict.error)
    assert COMMIT not in bench.purposes()


def test_a_lost_question_about_leaders_is_asked_again(bench: Bench) -> None:
    verdict = bench.commit(bench.receipts(0), answers={LEADERS: [LOST] * 3})
    assert verdict.conclusion is Conclusion.DELIVERED and bench.purposes().count(LEADERS) == 4


def test_a_batch_without_rows_asks_for_no_leaders(bench: Bench) -> None:
    assert bench.commit([without_rows(0)]).conclusion is Conclusion.DELIVERED
    assert LEADERS not in bench.purposes()


def test_commits_look_at_leaders_only_when_they_are_repeated(bench: Bench) -> None:
    """The first try needs no check: the check before the decision has just been made."""
    assert bench.commit(bench.receipts(0), answers={COMMIT: [LOST, 0]}).conclusion is Conclusion.DELIVERED
    assert looked_at(bench) == [(), (), (("t", 0),)]


def test_a_repeated_commit_looks_at_every_partition_that_its_transaction_wrote_to(bench: Bench) -> None:
    first, second = bench.receipts(0)
    both = bench.write_also(first, ("t", 1))
    assert bench.commit([both, second], answers={COMMIT: [LOST, 0]}).conclusion is Conclusion.DELIVERED
    assert looked_at(bench) == [(), (), (("t", 0), ("t", 1))]


def test_a_decision_of_an_earlier_driver_is_finished_when_its_partitions_have_leaders(bench: Bench) -> None:
    bench.decide(bench.receipts(0))
    lose_leader(bench, 0, back_after_ms=20_000)
    began_ms = bench.now_ms
    verdict = bench.run(DriverOperation.RECOVER, session=bench.session("2" * 16))
    assert verdict.conclusion is Conclusion.RECOVERED and verdict.notes == ()
    assert bench.now_ms >= began_ms + 20_000
    assert bench.seen() == [1, 1]


def looked_at(bench: Bench) -> list[tuple[tuple[str, int], ...]]:
    return [request.led_now for request in bench.asked if request.purpose == COMMIT]


def decide_about_two_partitions(bench: Bench) -> None:
    """The ledger names one partition of each transaction."""
    receipts = bench.receipts(0)
    assert receipts[0].transaction is not None
    bench.broker.add_partitions(receipts[0].transaction.transactional_id, [("t", 1)])
    bench.decide(receipts)
    bench.asked.clear()


def test_an_earlier_decision_looks_at_every_partition_that_coordinators_name(bench: Bench) -> None:
    decide_about_two_partitions(bench)
    answers = {PARTITIONS: [LOST, COORDINATOR_LOADS, None]}
    verdict = bench.run(DriverOperation.RECOVER, session=bench.session(SECOND), answers=answers)
    assert verdict.conclusion is Conclusion.RECOVERED and bench.seen() == [1, 1]
    assert sorted(looked_at(bench)) == [(("t", 0), ("t", 1)), (("t", 1),)]


def test_a_coordinator_that_does_not_answer_holds_back_none_of_the_commits_at_the_others(bench: Bench) -> None:
    """Their transactions are timing out."""
    bench.decide(bench.receipts(tasks=3))
    bench.asked.clear()
    answers = {PARTITIONS: [LOST, None, None, LOST, LOST]}
    verdict = bench.run(DriverOperation.RECOVER, session=bench.session(SECOND), answers=answers)
    assert verdict.conclusion is Conclusion.RECOVERED
    assert [ask.number for ask in bench.asked if ask.purpose == COMMIT] == [1, 2, 0]


@pytest.mark.parametrize("answer", [ReplyKind.UNSUPPORTED, UNAUTHORIZED, NOT_KNOWN])
def test_an_earlier_decision_is_finished_with_what_the_ledger_names_if_a_coordinator_names_nothing(
    bench: Bench, answer: Any
) -> None:
    decide_about_two_partitions(bench)
    answers = {PARTITIONS: [answer, answer]}
    verdict = bench.run(DriverOperation.RECOVER, session=bench.session(SECOND), answers=answers)
    assert verdict.conclusion is Conclusion.RECOVERED and bench.seen() == [1, 1]
    assert sorted(looked_at(bench)) == [(("t", 0),), (("t", 1),)]


def test_a_coordinator_that_never_names_partitions_keeps_no_decision_open(bench: Bench) -> None:
    decide_about_two_partitions(bench)
    answers = {PARTITIONS: [LOST] * 2_000}
    verdict = bench.run(DriverOperation.RECOVER, session=bench.session(SECOND), answers=answers)
    assert verdict.conclusion is Conclusion.RECOVERED and bench.seen() == [1, 1]


def test_a_decided_transaction_is_committed_without_a_leader_rather_than_left_to_its_time_out(bench: Bench) -> None:
    receipts = bench.receipts(0)
    bench.decide(receipts)
    bench.broker.leaderless.add(("t", 0))
    verdict = bench.run(DriverOperation.RECOVER, session=bench.session("2" * 16))
    assert verdict.conclusion is Conclusion.RECOVERED
    (note,) = verdict.notes
    assert note.startswith("t-0 has no leader now, and time was up")
    assert bench.seen() == [1, 1]


def test_a_repeated_batch_waits_until_what_it_wrote_again_is_aborted(bench: Bench) -> None:
    """Tasks of the next batch may use the same ids, and their InitProducerId would end these transactions."""
    bench.commit(bench.receipts(0))
    again = bench.receipts(0, run=SECOND)
    lose_leader(bench, 1, back_after_ms=20_000)
    began_ms = bench.now_ms
    assert bench.commit(again, bench.session(SECOND)).conclusion is Conclusion.ALREADY_DELIVERED
    assert bench.now_ms >= began_ms + 20_000
    bench.settle()
    assert {bench.state_of(receipt) for receipt in again} == {"CompleteAbort"}
    assert bench.seen() == [1, 1]


def test_a_repeated_batch_whose_partition_stays_without_a_leader_ends_the_run(bench: Bench) -> None:
    bench.commit(bench.receipts(0))
    again = bench.receipts(0, run=SECOND)
    bench.broker.leaderless.add(("t", 0))
    verdict = bench.commit(again, bench.session(SECOND))
    assert isinstance(verdict.error, CommitPending) and verdict.error.entry.name == "PKS-6016"
    assert "could not be discarded: t-0 has no leader" in str(verdict.error)
    bench.settle()
    assert sorted(bench.state_of(receipt) for receipt in again) == ["CompleteAbort", "Ongoing"]
    assert bench.seen() == [1, 1]
    bench.broker.leaderless.clear()
    session = bench.session(THIRD)
    assert bench.commit(bench.receipts(0, run=THIRD), session).conclusion is Conclusion.ALREADY_DELIVERED
    assert bench.commit(bench.receipts(1, run=THIRD), session).conclusion is Conclusion.DELIVERED
    bench.settle()
    assert {bench.state_of(receipt) for receipt in again} == {"CompleteAbort"}
    assert bench.seen() == [2, 2]


def test_a_repeated_export_does_not_wait_since_nobody_uses_its_ids_again(bench: Bench) -> None:
    bench.commit(bench.receipts("a", query=""))
    again = bench.receipts("a", query="", run=SECOND)
    bench.broker.leaderless.add(("t", 0))
    began_ms = bench.now_ms
    verdict = bench.commit(again, bench.session(SECOND, again[0].key))
    assert verdict.conclusion is Conclusion.ALREADY_DELIVERED and bench.now_ms - began_ms < 10_000
    assert "could not be aborted" in verdict.notes[0]


def test_a_transaction_that_is_unfinished_for_another_reason_is_not_said_to_lack_a_leader(bench: Bench) -> None:
    """It lacked one before; then a leader was there, and the coordinator did not answer."""
    verdict = bench.commit(bench.receipts(0), answers={COMMIT: [LOST, 0, LEADERLESS, *[LOST] * 100_000]})
    assert isinstance(verdict.error, CommitPending) and "connection reset" in str(verdict.error)
    assert verdict.notes == ()


def receipts_of_a_long_batch(bench: Bench, session: DriverSession) -> list[TaskReceipt]:
    """In two waves: the transaction of the first task has half of its time left, which only coordinators know."""
    bench.commit(bench.receipts(0), session)
    early = bench.receipt(1, 0)
    bench.broker.clock += TIMEOUT_MS // 2
    bench.asked.clear()
    return [early, bench.receipt(1, 1)]


def test_a_leader_that_comes_back_when_time_is_up_leads_to_no_decision(bench: Bench) -> None:
    session = bench.session()
    receipts = receipts_of_a_long_batch(bench, session)
    lose_leader(bench, 1, back_after_ms=TIMEOUT_MS // 2 - bench.settings.margin_ms + 10_000)
    verdict = bench.commit(receipts, session, age_max_ms=TIMEOUT_MS // 2)
    assert isinstance(verdict.error, CommitAborted)
    assert "t-1 has no leader, and too little time is left" in str(verdict.error)
    assert END not in bench.purposes() and COMMIT not in bench.purposes()


def test_a_leader_is_waited_for_no_longer_than_the_oldest_transaction_of_the_batch_allows(bench: Bench) -> None:
    session = bench.session()
    receipts = receipts_of_a_long_batch(bench, session)
    began_ms = bench.now_ms
    bench.broker.leaderless.add(("t", 1))
    verdict = bench.commit(receipts, session, age_max_ms=TIMEOUT_MS // 2)
    assert isinstance(verdict.error, CommitAborted)
    assert bench.asked[-1].due_ms - began_ms <= TIMEOUT_MS // 2


@pytest.mark.parametrize("is_described_late", [True, False])
def test_a_check_whose_last_answer_comes_when_time_is_up_leads_to_no_decision(
    bench: Bench, is_described_late: bool
) -> None:
    """Whichever answer that is: also the one that tells how little time there was."""
    session = bench.session()
    receipts = receipts_of_a_long_batch(bench, session)
    late = DESCRIBE if is_described_late else LEADERS

    def delay(request: Ask) -> None:
        if request.purpose == late:
            bench.now_ms += TIMEOUT_MS // 2

    bench.before = delay
    verdict = bench.commit(receipts, session, age_max_ms=TIMEOUT_MS // 2)
    assert isinstance(verdict.error, CommitAborted) and "too little time is left" in str(verdict.error)
    assert END not in bench.purposes()


def test_a_decision_that_was_never_asked_for_is_no_decision_in_doubt(bench: Bench) -> None:
    """Its request could not be sent, again and again until time was up."""
    verdict = bench.commit(bench.receipts(0), answers={END: [NOT_SENT] * 100_000})
    assert isinstance(verdict.error, CommitAborted) and "connection refused" in str(verdict.error)
    assert not any(bench.seen())
