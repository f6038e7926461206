"""A topic that is deleted before the decision takes the rows of the batch with it, though every transaction is open.

`tests/chaos/test_recreated_topics.py` shows the same with Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kafka_sink.commit.commit_step import GONE_MS
from kafka_sink.commit.committer import Committer
from kafka_sink.commit.ledger import Kind
from kafka_sink.commit.manifest import Manifest
from kafka_sink.commit.receipt import UNNAMED_BATCH, BatchKey, TaskReceipt
from kafka_sink.commit.session import CommitResult, Conclusion, DriverOperation, DriverSession, Job
from kafka_sink.commit.verdict import VERDICT
from kafka_sink.errors import CommitAborted, CommitLost, CommitPending
from kafka_sink.kafka.client.ask import Ask
from tests.support.tiny_broker import LEDGER
from tests.unit.commit.driver_bench import LOST, NOT_SENT, QUERY, SINK, TOPIC_GONE, UNSUPPORTED, Bench

WRITTEN, ANOTHER = b"1" * 16, b"2" * 16


def written_under_an_id(bench: Bench, batch: int = 0) -> Sequence[TaskReceipt]:
    bench.broker.topic_ids["t"] = WRITTEN
    return [replace(receipt, topic_ids={"t": WRITTEN}) for receipt in bench.receipts(batch)]


def test_a_topic_with_the_id_that_was_written_to_delays_nothing(bench: Bench) -> None:
    began_ms = bench.now_ms
    assert bench.commit(written_under_an_id(bench)).conclusion is Conclusion.DELIVERED
    assert bench.now_ms < began_ms + GONE_MS and bench.seen() == [1, 1]


@pytest.mark.parametrize(("now", "says"), [(None, "was deleted after"), (ANOTHER, "was deleted and created again")])
@pytest.mark.parametrize("is_first", [True, False], ids=["first batch of a run", "next batch"])
def test_a_batch_whose_topic_is_gone_is_not_decided_and_its_transactions_are_aborted(
    bench: Bench, now: bytes | None, says: str, is_first: bool
) -> None:
    session = bench.session()
    if not is_first:
        bench.commit(written_under_an_id(bench), session)
    receipts = written_under_an_id(bench, 0 if is_first else 1)
    bench.broker.topic_ids["t"] = now
    verdict = bench.commit(receipts, session)
    assert isinstance(verdict.error, CommitAborted) and f"topic t {says}" in str(verdict.error)
    assert bench.seen() == [1 - is_first] * 2
    assert {bench.state_of(receipt) for receipt in receipts} == {"CompleteAbort"}


@pytest.mark.parametrize("now", [None, ANOTHER], ids=["deleted", "created again"])
def test_brokers_that_describe_no_transactions_are_asked_for_the_topic_all_the_same(
    bench: Bench, now: bytes | None
) -> None:
    receipts = written_under_an_id(bench)
    bench.broker.topic_ids["t"] = now
    verdict = bench.commit(receipts, answers={"describe transactions": [UNSUPPORTED]})
    assert isinstance(verdict.error, CommitAborted) and "topic t was deleted" in str(verdict.error)
    assert bench.seen() == [0, 0]


@pytest.mark.parametrize("is_first", [True, False], ids=["first batch of a run", "next batch"])
def test_a_ledger_that_was_deleted_is_not_waited_for_until_the_transactions_time_out(
    bench: Bench, is_first: bool
) -> None:
    session = bench.session()
    if not is_first:
        bench.commit(bench.receipts(0), session)
    receipts = bench.receipts(0 if is_first else 1)
    bench.broker.topic_ids[LEDGER] = None
    began_ms = bench.now_ms
    verdict = bench.commit(receipts, session, answers={"claim ledger": [TOPIC_GONE] * 1_000})
    assert isinstance(verdict.error, CommitAborted) and "ledger topic ledger" in str(verdict.error)
    assert bench.now_ms < began_ms + 2 * GONE_MS and bench.seen() == [1 - is_first] * 2


def test_a_batch_is_refused_if_one_of_its_tasks_wrote_to_the_topic_before(bench: Bench) -> None:
    first, second = written_under_an_id(bench)
    bench.broker.topic_ids["t"] = ANOTHER
    verdict = bench.commit([first, replace(second, topic_ids={"t": ANOTHER})])
    assert isinstance(verdict.error, CommitAborted) and bench.seen() == [0, 0]


@pytest.mark.parametrize("told", [None, ANOTHER], ids=["no-topic", "another-topic"])
def test_a_broker_that_has_not_heard_of_the_topic_yet_only_delays_the_batch(bench: Bench, told: bytes | None) -> None:
    receipts = written_under_an_id(bench)
    bench.broker.topic_ids["t"] = told
    hears_at_ms = bench.now_ms + GONE_MS // 2

    def hear(_: Ask) -> None:
        if bench.now_ms >= hears_at_ms:
            bench.broker.topic_ids["t"] = WRITTEN

    bench.before = hear
    assert bench.commit(receipts).conclusion is Conclusion.DELIVERED
    assert bench.now_ms >= hears_at_ms and bench.seen() == [1, 1]


# ---- a topic that is deleted after the decision ----

KEY, LATER = BatchKey(QUERY, 0), BatchKey(QUERY, 1)
MARKER, LOG_START = "look for marker", "find log start"


def decide_and_time_out(bench: Bench) -> None:
    receipts = bench.receipts(0)
    bench.decide(receipts)
    for receipt in receipts:
        bench.time_out(receipt)
    bench.settle()


@pytest.mark.parametrize("choice", [DriverOperation.ACCEPT, DriverOperation.REPLAY])
@pytest.mark.parametrize("asked", [VERDICT, MARKER, LOG_START])
def test_a_decision_whose_topic_is_gone_waits_for_a_choice_and_not_for_the_topic(
    bench: Bench, asked: str, choice: DriverOperation
) -> None:
    """Its transactions have timed out, and no log tells their end any more."""
    decide_and_time_out(bench)
    began_ms = bench.now_ms
    out_of_range = {VERDICT: [1, 1], MARKER: [1, 1] if asked == LOG_START else []}
    answers = {**(out_of_range if asked != VERDICT else {}), asked: [TOPIC_GONE] * 1_000}
    # Planning of the restarted query; then the command, and the query after it.
    for operation in (DriverOperation.RECOVER, DriverOperation.FINISH):
        verdict = bench.run(operation, session=bench.session(run="2" * 16), answers=answers)
        assert isinstance(verdict.error, CommitLost) and "can no longer be read: 2 rows" in str(verdict.error)
    assert bench.now_ms < began_ms + 3 * bench.settings.short_log_ms
    assert bench.run(choice, key=KEY).conclusion is Conclusion.RESOLVED
    repeated = bench.commit(bench.receipts(0, run="3" * 16, attempt=1), bench.session(run="3" * 16))
    is_accepted = choice is DriverOperation.ACCEPT
    assert repeated.conclusion is (Conclusion.ALREADY_DELIVERED if is_accepted else Conclusion.DELIVERED)


def test_the_open_decision_of_a_write_without_a_name_whose_topic_is_gone_is_taken_out_by_recover(bench: Bench) -> None:
    """Planning of any write with this ledger would help with it each time, for as long as it is open."""
    sink_id = f"{SINK}-{'7' * 16}"
    receipt = bench.receipt("", 0, query="", run="7" * 16, sink_id=sink_id)
    bench.decide([receipt], DriverSession(sink_id, "7" * 16))
    bench.time_out(receipt)
    bench.settle()
    answers = {VERDICT: [TOPIC_GONE] * 1_000}
    helped = bench.run(DriverOperation.RECOVER, session=bench.session(), answers=answers)
    assert [record.key for record in helped.others] == [UNNAMED_BATCH] and f"--sink-id {sink_id}" in helped.notes[0]
    lost = bench.run(DriverOperation.FINISH, session=DriverSession(sink_id), answers=answers)
    assert isinstance(lost.error, CommitLost)
    bench.settle()
    assert not bench.run(DriverOperation.RECOVER, session=bench.session(), answers=answers).others
    assert bench.run(DriverOperation.ACCEPT, session=DriverSession(sink_id)).conclusion is Conclusion.RESOLVED


@pytest.mark.parametrize("between", [[], [NOT_SENT] * 200], ids=["for a while", "again and again"])
def test_a_topic_that_brokers_do_not_know_for_a_while_is_searched_for_the_end_of_a_decision(
    bench: Bench, between: list[object]
) -> None:
    """A broker that has just started knows no topics. It is believed if it is never contradicted."""
    decide_and_time_out(bench)
    answers = {VERDICT: [*[TOPIC_GONE] * 20, *between, *[TOPIC_GONE] * 20]}
    verdict = bench.run(DriverOperation.FINISH, session=bench.session(), answers=answers)
    assert isinstance(verdict.error, CommitLost) and "Not committed, rows not visible: 2 rows" in str(verdict.error)


# ---- the topic of manifests is deleted ----

MANIFESTS, MANIFEST = "manifests", "write manifest"


def run_with_manifest(
    bench: Bench,
    operation: DriverOperation,
    receipts: Sequence[TaskReceipt] = (),
    *,
    partition: int = 0,
    **answers: list[Any],
) -> CommitResult:
    """As in a process that has `manifest.topic`; the record of a decision says itself where its manifest goes."""
    told = {name.replace("_", " "): listed for name, listed in answers.items()}
    job = Job(operation, KEY, receipts, manifest=Manifest(MANIFESTS, partition, SINK))
    found = bench.drive(Committer(bench.settings, bench.session(), job, bench.now_ms), told)
    assert isinstance(found, CommitResult)
    bench.settle()
    return found


def refuse_manifests(request: Ask) -> dict[str, Any] | None:
    """As a coordinator of transaction version 1 does that knows no such topic. It attempts no other partition then."""
    names = [topic["name"] for topic in request.body["v3_and_below_topics"]]
    if MANIFESTS not in names:
        return None
    codes = {name: 3 if name == MANIFESTS else 55 for name in names}
    return {
        "results_by_topic_v3_and_below": [
            {"name": name, "results_by_partition": [{"partition_index": 0, "partition_error_code": error_code}]}
            for name, error_code in codes.items()
        ]
    }


def gone(bench: Bench, count: int = 1_000) -> dict[str, list[Any]]:
    return (
        {"add_ledger_partition": [refuse_manifests] * count}
        if bench.transaction_version == 1
        else {"write_manifest": [TOPIC_GONE] * count}
    )


def manifests(bench: Bench) -> int:
    return sum(entry[2] is not None for entry in bench.broker.logs.get((MANIFESTS, 0), ()))


def decide_with_manifest(bench: Bench) -> list[TaskReceipt]:
    receipts = bench.receipts(0)
    pending = run_with_manifest(bench, DriverOperation.COMMIT, receipts, commit_transaction=[LOST] * 100_000)
    assert isinstance(pending.error, CommitPending)
    return receipts


def test_a_decision_is_closed_without_its_manifest_if_there_is_no_topic_for_it_any_more(bench: Bench) -> None:
    decide_with_manifest(bench)
    began_ms = bench.now_ms
    closed = run_with_manifest(bench, DriverOperation.FINISH, **gone(bench))
    assert closed.error is None and bench.seen() == [1, 1] and manifests(bench) == 0
    assert bench.now_ms < began_ms + 2 * bench.settings.short_log_ms
    (note,) = closed.notes
    assert f"is closed without its manifest, because brokers have said for 60 s that there is no {MANIFESTS}-0" in note
    assert {record.kind for record in bench.ledger().values()} == {Kind.DONE}
    # And the stream goes on.
    assert bench.commit(bench.receipts(1)).conclusion is Conclusion.DELIVERED


def test_a_batch_that_was_decided_when_the_topic_of_manifests_went_is_delivered_and_that_is_said(bench: Bench) -> None:
    verdict = run_with_manifest(bench, DriverOperation.COMMIT, bench.receipts(0), **gone(bench))
    assert verdict.conclusion is Conclusion.DELIVERED and "without its manifest" in verdict.notes[0]
    assert bench.seen() == [1, 1]


def test_a_lost_batch_is_accepted_without_its_manifest(bench: Bench) -> None:
    for receipt in decide_with_manifest(bench):
        bench.time_out(receipt)
    bench.settle()
    assert isinstance(run_with_manifest(bench, DriverOperation.FINISH).error, CommitLost)
    accepted = run_with_manifest(bench, DriverOperation.ACCEPT, **gone(bench))
    assert accepted.conclusion is Conclusion.RESOLVED and "without its manifest" in accepted.notes[0]


def test_a_manifest_is_written_if_brokers_know_its_topic_again(bench: Bench) -> None:
    decide_with_manifest(bench)
    closed = run_with_manifest(bench, DriverOperation.FINISH, **gone(bench, 30))
    assert closed.error is None and not closed.notes and manifests(bench) == 1


def test_a_batch_whose_manifest_would_have_no_topic_is_not_decided(bench: Bench) -> None:
    bench.broker.topic_ids[MANIFESTS] = None
    verdict = run_with_manifest(bench, DriverOperation.COMMIT, bench.receipts(0))
    assert isinstance(verdict.error, CommitAborted) and f"manifest.topic={MANIFESTS} was deleted" in str(verdict.error)
    assert bench.seen() == [0, 0] and not bench.ledger()


def test_a_batch_whose_manifest_would_have_no_partition_is_not_decided(bench: Bench) -> None:
    """The process has learnt the partition of all its manifests from the topic that was there before."""
    verdict = run_with_manifest(bench, DriverOperation.COMMIT, bench.receipts(0), partition=2)
    assert isinstance(verdict.error, CommitAborted) and f"{MANIFESTS} has no partition 2" in str(verdict.error)
    assert bench.seen() == [0, 0] and not bench.ledger()


def test_a_partition_for_manifests_of_which_a_broker_has_not_heard_yet_only_delays_the_batch(bench: Bench) -> None:
    hears_at_ms = bench.now_ms + GONE_MS // 2

    def hear(_: Ask) -> None:
        if bench.now_ms >= hears_at_ms:
            bench.broker.logs.setdefault((MANIFESTS, 2), [])

    bench.before = hear
    verdict = run_with_manifest(bench, DriverOperation.COMMIT, bench.receipts(0), partition=2)
    assert verdict.conclusion is Conclusion.DELIVERED and bench.now_ms >= hears_at_ms


def test_brokers_without_topic_ids_are_not_asked_for_them(bench: Bench) -> None:
    receipts = written_under_an_id(bench)
    del bench.broker.topic_ids["t"]
    assert bench.commit(receipts).conclusion is Conclusion.DELIVERED
