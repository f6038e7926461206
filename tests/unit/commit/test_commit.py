"""The driver's commit, row by row of the design's two tables: C0 to C5, and every answer to EndTxn."""

from typing import Any

import pytest

from kafka_sink.commit.end_txn import MARKER
from kafka_sink.commit.ledger import Kind
from kafka_sink.commit.ledger_read import LedgerRead
from kafka_sink.commit.receipt import TaskReceipt
from kafka_sink.commit.session import Conclusion, DriverOperation
from kafka_sink.commit.verdict import VERDICT
from kafka_sink.errors import CommitAborted, CommitLost, CommitPending, LocalProtocolError
from kafka_sink.formats.records.batch import seal
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.scalar import Record, encode_batch
from kafka_sink.kafka.client.ask import Ask, Leader
from tests.unit.commit.driver_bench import COMMIT, END, LOST, Bench, after, without_rows


def check_delivered(bench: Bench, batch_count: int = 1) -> None:
    assert bench.seen() == [batch_count] * 2
    assert bench.ledger()["sink"].kind is Kind.DONE


def test_a_batch_is_fenced_read_checked_decided_committed_recorded_and_swept_in_this_order(bench: Bench) -> None:
    verdict = bench.commit(bench.receipts())
    assert verdict.conclusion is Conclusion.DELIVERED and verdict.error is None
    assert verdict.summary is not None and verdict.summary.row_count == 2
    check_delivered(bench)
    order = list(dict.fromkeys(bench.purposes()))
    wanted = ["fence older drivers", "claim ledger", "read ledger", "describe transactions"]
    assert [purpose for purpose in order if purpose in wanted] == wanted
    assert order.index("write ledger record") < order.index(END) < order.index(COMMIT)
    assert order.index("describe transactions") < order.index("list transactions") < order.index(COMMIT)


@pytest.mark.parametrize(
    "other", [{"batch": 1}, {"query": "query-2"}, {"run": "2" * 16}], ids=lambda other: "".join(other)
)
def test_tasks_of_two_batches_or_runs_are_never_decided_together(bench: Bench, other: dict[str, Any]) -> None:
    receipts = [bench.receipt(0, 0), bench.receipt(**{"batch": 0, "task": 1, **other})]
    with pytest.raises(LocalProtocolError, match=r"was handed in for run '1{16}' and batch 0 of query query-1"):
        bench.commit(receipts)
    assert not bench.asked


def test_c0_the_sweep_after_a_first_batch_without_rows_knows_when_its_run_began_by_the_next_batch(bench: Bench) -> None:
    session = bench.session()
    bench.commit([without_rows(0)], session)
    bench.commit(bench.receipts(1), session)
    assert bench.ledger()["sink"].since_ms > 0


def crashed_after_decision(bench: Bench, batch: int = 0, committed: int = 0) -> list[TaskReceipt]:
    """Receipts of a driver that died between the decision and the end of C4, after `committed` answers."""
    receipts = bench.receipts(batch)
    silence = {COMMIT: [None] * committed + [LOST] * 10_000, "write ledger record": [None] + [LOST] * 10_000}
    verdict = bench.run(DriverOperation.COMMIT, receipts, answers=silence)
    assert isinstance(verdict.error, CommitPending)
    return receipts


@pytest.mark.parametrize("committed", [0, 1, 2])
def test_c1_an_open_decision_of_a_crashed_run_is_finished_before_anything_else(bench: Bench, committed: int) -> None:
    crashed_after_decision(bench, committed=committed)
    verdict = bench.commit(bench.receipts(run="2" * 16), bench.session("2" * 16))
    assert verdict.conclusion is Conclusion.ALREADY_DELIVERED
    check_delivered(bench)


def test_c1_another_query_with_the_same_sink_starts_at_its_own_batch_zero(bench: Bench) -> None:
    bench.commit(bench.receipts(0))
    others = bench.receipts(0, run="2" * 16, query="query-2")
    assert bench.commit(others, bench.session("2" * 16)).conclusion is Conclusion.DELIVERED
    check_delivered(bench, 2)


@pytest.mark.parametrize("has_claims", [True, False], ids=["claims", "claims compacted"])
def test_c1_a_run_that_was_replaced_does_not_fence_its_successor_for_good(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, has_claims: bool
) -> None:
    """It finds its successor's claim, or, if the cleaner has removed the claim, its successor's record."""
    if not has_claims:
        monkeypatch.setattr(LedgerRead, "_take_claim", lambda *_: None)
    bench.commit(bench.receipts(0))
    bench.commit(bench.receipts(1, run="2" * 16), bench.session("2" * 16))
    verdict = bench.commit(bench.receipts(2), bench.session())
    assert isinstance(verdict.error, CommitAborted) and verdict.error.name == "PKS-6002"
    assert "has taken over" in str(verdict.error) and ("newer run" in str(verdict.error)) != has_claims


def test_c1_a_ledger_of_a_later_version_is_refused_by_its_number(bench: Bench) -> None:
    session = bench.session()
    bench.commit(bench.receipts(), session)
    log = bench.broker.logs["ledger", 0]
    bench.settle()
    batch = encode_batch([Record(0, b"sink", b"pykafka-sink-ledger 9 json\n{}")], make_compressor("none"))
    header = seal(batch, producer_id=77, producer_epoch=0, base_sequence=0, is_transactional=True)
    log += [(77, 0, header + batch.payload, None), (77, 0, None, True)]
    verdict = bench.commit(bench.receipts(1))
    assert isinstance(verdict.error, CommitAborted)
    assert verdict.error.name == "PKS-6031"
    assert "version '9'" in str(verdict.error) and "this release reads version 1" in str(verdict.error)


def test_c2_a_transaction_with_another_epoch_than_the_receipts_aborts_the_batch(bench: Bench) -> None:
    receipts = bench.receipts()
    bench.settle()
    bench.receipt(0, 0)
    verdict = bench.commit(receipts)
    assert isinstance(verdict.error, CommitAborted) and "somebody else uses the id" in str(verdict.error)


def test_c2_too_little_time_is_refused_with_the_settings_that_give_more(bench: Bench) -> None:
    receipts = [bench.receipt(0, 0, remaining_ms=TIME - 1), bench.receipt(0, 1, remaining_ms=TIME - 990_000)]
    verdict = bench.commit(receipts, age_max_ms=TIME)
    assert isinstance(verdict.error, CommitAborted)
    assert "transaction.max.timeout.ms" in str(verdict.error) and "at-least-once" in str(verdict.error)


TIME = 1_000_000


def test_c3_is_tried_as_long_as_the_oldest_transaction_has_time_by_the_brokers_clock(bench: Bench) -> None:
    """The first task ended long before the last one: what its receipt says of its time is old."""
    early = bench.receipt(0, 0)
    bench.broker.clock += TIME // 2
    late = bench.receipt(0, 1)
    verdict = bench.commit([early, late], age_max_ms=3 * TIME, answers={END: [LOST] * 100_000})
    assert isinstance(verdict.error, CommitPending)
    assert bench.now_ms <= 5_000 + TIME // 2 - bench.settings.margin_ms


@pytest.mark.parametrize("lost", [LOST, after(LOST), 51, 14, 15, 16, 7, 13, -1], ids=str)
def test_c3_an_unknown_answer_to_the_decision_is_repeated_until_it_is_known(bench: Bench, lost: object) -> None:
    assert bench.commit(bench.receipts(), answers={END: [lost, lost]}).conclusion is Conclusion.DELIVERED
    check_delivered(bench)


@pytest.mark.parametrize("unknown", [LOST, after(LOST), 51, 14, 15, 16, 7, 13, -1, 9999], ids=str)
def test_c4_an_unknown_answer_is_repeated_as_the_same_request_of_the_same_version(
    bench: Bench, unknown: object
) -> None:
    verdict = bench.run(DriverOperation.COMMIT, bench.receipts(), answers={COMMIT: [unknown, unknown, unknown]})
    assert verdict.conclusion is Conclusion.DELIVERED
    check_delivered(bench)
    tries = [request for request in bench.asked if request.purpose == COMMIT and request.number == 0]
    assert len(tries) >= 2
    assert all(one.body == tries[0].body and one.version_max == tries[0].version_max for one in tries)
    assert tries[0].version_max == (4 if bench.transaction_version == 1 else 5)
    if unknown in (LOST, 14, 15, 16, 7, 13, -1):
        assert tries[1].find_again


def test_c4_48_and_an_abort_marker_mean_lost_and_the_ledger_keeps_it_until_an_operator_chooses(bench: Bench) -> None:
    receipts = bench.receipts()
    bench.times_out_before_its_commit(receipts[0])
    verdict = bench.run(DriverOperation.COMMIT, receipts, answers={COMMIT: [48]})
    error = verdict.error
    assert isinstance(error, CommitLost) and error.name == "PKS-6021"
    for word in ("batch 0 of query", "Spark partition 0", "t-0", "resolve --replay", "resolve --accept", "1 rows"):
        assert word in str(error)
    assert (error.batch_id, error.row_count, error.topics) == (0, 2, ("t",))
    assert bench.ledger()["sink"].kind is Kind.STUCK
    again = bench.commit(bench.receipts(run="2" * 16), bench.session("2" * 16))
    assert isinstance(again.error, CommitLost) and str(again.error) == str(error)
    planned = bench.run(DriverOperation.RECOVER)
    assert str(planned.error) == str(error)


@pytest.mark.parametrize("wrong", [48, 49, 47, 90, 120, 59, 105])
def test_c4_a_coordinator_that_says_it_is_over_is_asked_again_while_the_log_shows_it_open(
    bench: Bench, wrong: int
) -> None:
    """Such a coordinator was frozen, or does not know of its successor yet (E10)."""
    verdict = bench.run(DriverOperation.COMMIT, bench.receipts(), answers={COMMIT: [wrong] * 30})
    assert verdict.conclusion is Conclusion.DELIVERED
    check_delivered(bench)
    tries = [request for request in bench.asked if request.purpose == COMMIT and request.number == 0]
    assert len(tries) > 2 and all(request.find_again for request in tries[1:])


def test_c4_what_is_left_of_a_log_without_the_rows_is_not_searched(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention has deleted the rows of the first task."""
    first, start, broker = Leader("t", 0), 3, bench.broker
    receipts = bench.receipts()
    for number in range(start):
        broker.write_in_task(f"another application {number}", first, b"another")
    fetch, list_offsets = broker._on_Fetch, broker._on_ListOffsets

    def fetch_what_is_left(body: Any, request: Ask) -> dict[str, Any]:
        answer = fetch(body, request)
        if request.target == first and body["topics"][0]["partitions"][0]["fetch_offset"] < start:
            answer["responses"][0]["partitions"][0].update(error_code=1, records=b"")
        return answer

    def list_start(body: Any, request: Ask) -> dict[str, Any]:
        answer = list_offsets(body, request)
        if request.target == first:
            answer["topics"][0]["partitions"][0]["offset"] = start
        return answer

    monkeypatch.setattr(broker, "_on_Fetch", fetch_what_is_left)
    monkeypatch.setattr(broker, "_on_ListOffsets", list_start)
    verdict = bench.commit(receipts, answers={COMMIT: [after(90)] * 1_000})
    assert isinstance(verdict.error, CommitLost) and "can no longer be read: 1 rows" in str(verdict.error)
    asked = [request.purpose for request in bench.asked if request.target == first]
    assert asked[-3:] == [VERDICT, MARKER, "find log start"]


def test_c4_the_marker_of_a_later_transaction_under_the_same_id_is_not_taken_for_an_earlier_ones(
    bench: Bench,
) -> None:
    """Ids are reused. The marker of the transaction is gone with the start of the log; a later marker says commit."""
    receipts = bench.receipts()
    bench.times_out_before_its_commit(receipts[0])
    before = bench.before
    assert before is not None

    def later(request: Ask) -> None:
        before(request)
        if bench.before is None:
            log = bench.broker.logs["t", 0]
            mark = next(offset for offset, entry in enumerate(log) if entry[3] is not None)
            producer_id, epoch, _, _ = log[mark]
            # Row and marker are replaced as after compaction; the marker of a later transaction (epoch + 2) follows.
            row = next(offset for offset, entry in enumerate(log) if entry[0] == producer_id)
            log[row] = log[mark] = (producer_id + 1, 0, None, True)
            log.append((producer_id, epoch + 2, None, True))

    bench.before = later
    verdict = bench.run(DriverOperation.COMMIT, receipts, answers={COMMIT: [48]})
    assert isinstance(verdict.error, CommitLost) and "can no longer be read" in str(verdict.error)


@pytest.mark.parametrize("code", [48, 90, 47, 49, 120, 59, 105])
@pytest.mark.parametrize("was_committed", [True, False])
def test_c4_an_answer_that_says_nothing_sends_the_driver_to_the_log(
    bench: Bench, code: int, was_committed: bool
) -> None:
    receipts = bench.receipts()

    def ended() -> None:
        transaction = receipts[0].transaction
        assert transaction is not None
        if was_committed:
            name, *producer = transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
            bench.broker.end(name, *producer, commit=True, is_first=bench.transaction_version == 1)
        else:
            bench.time_out(receipts[0])

    bench.before_next(COMMIT, ended)
    verdict = bench.run(DriverOperation.COMMIT, receipts, answers={COMMIT: [code]})
    assert VERDICT in bench.purposes()
    if was_committed:
        assert verdict.conclusion is Conclusion.DELIVERED
        check_delivered(bench)
    else:
        assert isinstance(verdict.error, CommitLost) and "Not committed" in str(verdict.error)


def test_c4_without_any_marker_left_the_fate_is_unresolved_and_said_so(bench: Bench) -> None:
    receipts = bench.receipts()

    def cleaned(request: Ask) -> None:
        if request.purpose == VERDICT:
            bench.broker.logs["t", 0] = [(1, 0, None, True)] * 3

    bench.before = cleaned
    verdict = bench.run(DriverOperation.COMMIT, receipts, answers={COMMIT: [90]})
    assert isinstance(verdict.error, CommitLost) and "can no longer be read" in str(verdict.error)


def test_c4_the_deadline_ends_the_repeating_but_every_transaction_was_asked_for(bench: Bench) -> None:
    receipts = bench.receipts(tasks=2)
    verdict = bench.run(DriverOperation.COMMIT, receipts, answers={COMMIT: [LOST] * 100_000})
    assert isinstance(verdict.error, CommitPending) and verdict.error.name == "PKS-6011"
    assert "runs before they time out" in str(verdict.error)
    assert bench.now_ms >= TIME - bench.settings.margin_ms
    assert {request.number for request in bench.asked if request.purpose == COMMIT} == {0, 1}
    assert bench.run(DriverOperation.ABORT, receipts).conclusion is Conclusion.LEFT_ALONE
