"""Each label of a sink is a line of decisions of its own: driver, claims, open decisions and losses are its own."""

from __future__ import annotations

import pytest

from kafka_sink.commit import ledger_read, ledger_write
from kafka_sink.commit.commit_step import SingleStep
from kafka_sink.commit.committer import Committer
from kafka_sink.commit.identity import Line, code_of_label, code_of_run, parse_task_identity, run_of_label
from kafka_sink.commit.ledger import Kind, claim_key, line_of
from kafka_sink.commit.ledger_codec import _encode, decode_claim
from kafka_sink.commit.listing import LedgerListing
from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.commit.session import CommitResult, Conclusion, DriverOperation, DriverSession, Job
from kafka_sink.errors import CommitAborted
from kafka_sink.formats.records.batch import NO_TIMESTAMP, seal
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.scalar import Record, decode_batch, encode_batch
from tests.support.tiny_broker import LEDGER
from tests.unit.commit.driver_bench import REFUSED, SINK, Bench

FENCE, FENCE_OLDER = "fence older drivers", "fence a driver of the release before"
CLAIM_OF_SINK = f"/driver/{SINK}".encode()
STEPS = (FENCE, "claim ledger", "read ledger", "write ledger record", "end ledger transaction", "commit transaction")


def session_of(label: str, run: str, query: str = "") -> DriverSession:
    line = line_of(SINK, BatchKey(query, label), LEDGER)
    return DriverSession(SINK, run_of_label(label, run, LEDGER), code=line.code)


def rows(bench: Bench, label: str, run: str, attempt: int = 0) -> list[TaskReceipt]:
    bench.settle()
    return bench.receipts(label, query="", run=run_of_label(label, run, LEDGER), attempt=attempt)


def export(bench: Bench, label: str, run: str, attempt: int = 0) -> CommitResult:
    return bench.commit(rows(bench, label, run, attempt), session_of(label, run))


@pytest.mark.parametrize("step", STEPS)
def test_an_export_that_begins_and_ends_at_any_step_of_another_one_disturbs_it_nowhere(bench: Bench, step: str) -> None:
    """The transactions of each are committed by its own driver: one that was cut off from them does not matter."""
    monday, ended = rows(bench, "monday", "1"), []
    bench.before_next(step, lambda: ended.append(export(bench, "tuesday", "2", 1)))
    verdict = bench.commit(monday, session_of("monday", "1"))
    assert [one.conclusion for one in (verdict, *ended)] == [Conclusion.DELIVERED] * 2
    assert not verdict.notes and not verdict.swept and bench.seen() == [2, 2]
    # Neither was fenced: each fenced once.
    assert bench.purposes().count(FENCE) == 2


@pytest.mark.parametrize("step", STEPS)
def test_of_two_runs_of_one_export_one_delivers_and_the_other_ends_well_or_names_the_other_run(
    bench: Bench, step: str
) -> None:
    first, ended = rows(bench, "monday", "1"), []
    bench.before_next(step, lambda: ended.append(export(bench, "monday", "2", 1)))
    verdicts = [bench.commit(first, session_of("monday", "1")), *ended]
    assert bench.seen() == [1, 1]
    for verdict in verdicts:
        if verdict.error is not None:
            text = str(verdict.error)
            assert isinstance(verdict.error, CommitAborted) and "query" not in text
            assert verdict.error.name == "PKS-6008"
            assert "another run of the export 'monday'" in text and "Nothing of it is visible" in text
    assert sum(verdict.conclusion is Conclusion.DELIVERED for verdict in verdicts) == 1


@pytest.mark.parametrize("kind", [Kind.DONE, Kind.INTENT], ids=["delivered", "decided"])
def test_an_export_of_which_chunks_are_in_the_ledger_is_not_written_in_one_piece(bench: Bench, kind: Kind) -> None:
    chunk = rows(bench, "monday/2-of-3-by-day/of/sale", "1")
    if kind is Kind.DONE:
        bench.commit(chunk, session_of("monday/2-of-3-by-day/of/sale", "1"))
    else:
        bench.decide(chunk, session_of("monday/2-of-3-by-day/of/sale", "1"))
    verdict = export(bench, "monday", "2", 1)
    assert isinstance(verdict.error, CommitAborted) and verdict.error.name == "PKS-6018"
    assert "was begun with chunks=3, by='day/of/sale': 1 of these chunks" in str(verdict.error)
    assert set(bench.ledger()) == {f"{SINK}/monday/2-of-3-by-day/of/sale"}
    # Those of other exports, whose names begin alike, have nothing to do with it.
    for number, label in enumerate(("mon", "monday/2", "tuesday"), 2):
        assert export(bench, label, str(number), number).conclusion is Conclusion.DELIVERED


# ---- names ----


def test_the_driver_of_a_label_is_in_the_prefix_of_its_sink_and_looks_like_nothing_else() -> None:
    for sink_id in ("jobs", "a-b", "jobs-0123456789abcdef", "driver", "jobs-driver"):
        line = line_of(sink_id, BatchKey("", "2026-07-03"), LEDGER)
        assert line.driver_id.startswith(f"{sink_id}-driver-") and parse_task_identity(line.driver_id) is None
        assert claim_key(line) == f"/driver/{sink_id}/{line.code}"
    assert line_of("jobs", BatchKey("q", 7), LEDGER) == Line("jobs") and Line("jobs").driver_id == "jobs-driver"


def test_the_run_of_a_label_tells_its_line_and_no_other_run_is_taken_for_one() -> None:
    for label in ("monday", "tuesday", "a/b", "\ud800"):
        run = run_of_label(label, "unique", LEDGER)
        assert code_of_run(run) == code_of_label(label, LEDGER) != "" and len(run) == 16
    assert code_of_run("7fffffffffffffff") == ""


def test_one_label_in_two_ledgers_is_two_lines() -> None:
    """Neither sees what the other has decided."""
    export = BatchKey("", "monday")
    assert line_of(SINK, export, LEDGER) != line_of(SINK, export, "another")
    assert line_of(SINK, BatchKey("q", 7), LEDGER) == line_of(SINK, BatchKey("q", 7), "another")


# ---- a driver of the release before, which had one driver for all labels of a sink ----


def claim_as_before(bench: Bench, run: str = "9" * 16) -> None:
    """That release claims the whole sink: it names no line."""
    value = _encode({"kind": "claim", "sink": SINK, "run": run, "wall_ms": 0})
    batch = encode_batch([Record(NO_TIMESTAMP, CLAIM_OF_SINK, value)], make_compressor("none"))
    bench.broker.logs.setdefault((LEDGER, 0), []).append((-1, -1, seal(batch) + batch.payload, None))


def claims_of_sink(bench: Bench) -> list[str]:
    batches = [decode_batch(entry[2]) for entry in bench.broker.logs[LEDGER, 0] if entry[2] is not None]
    records = [record for batch in batches for record in batch.records]
    return [decode_claim(record.value).run for record in records if record.key == CLAIM_OF_SINK and record.value]


def test_a_driver_of_the_release_before_is_fenced_and_reads_that_its_sink_was_claimed(bench: Bench) -> None:
    """It may be frozen in the middle of the same export. When it wakes up its decision is refused, and it reads the
    ledger: only the claim of another run makes it stop."""
    claim_as_before(bench)
    assert export(bench, "monday", "1").conclusion is Conclusion.DELIVERED
    asked = bench.purposes()
    assert asked.index(FENCE_OLDER) < asked.index("claim ledger for the release before")
    assert bench.broker.transactions[f"{SINK}-driver"][:2][1] == 0
    assert claims_of_sink(bench) == ["9" * 16, run_of_label("monday", "1", LEDGER)]


def test_a_driver_of_the_release_before_that_claims_again_in_between_is_fenced_again(bench: Bench) -> None:
    claim_as_before(bench)
    first = rows(bench, "monday", "1")
    bench.before_next("claim ledger for the release before", lambda: claim_as_before(bench))
    assert bench.commit(first, session_of("monday", "1")).conclusion is Conclusion.DELIVERED
    assert bench.purposes().count(FENCE_OLDER) == 2 and bench.purposes().count("read ledger") == 3


def test_without_a_sign_of_that_release_nothing_is_fenced_and_claimed_but_the_own_line(bench: Bench) -> None:
    bench.commit(bench.receipts())
    assert export(bench, "monday", "1", 1).conclusion is Conclusion.DELIVERED
    assert FENCE_OLDER not in bench.purposes() and claims_of_sink(bench) == ["1" * 16]


def test_what_a_label_claims_for_that_release_stops_no_stream_of_the_sink(bench: Bench) -> None:
    session = bench.session()
    bench.commit(bench.receipts(), session)
    claim_as_before(bench, "1" * 16)
    assert export(bench, "monday", "1", 1).conclusion is Conclusion.DELIVERED
    assert bench.commit(bench.receipts(1, attempt=2), session).conclusion is Conclusion.DELIVERED


def test_an_export_that_the_release_before_delivered_is_found(bench: Bench) -> None:
    """Its record is under the same key; its run has another form."""
    claim_as_before(bench)
    receipts = rows(bench, "monday", "1")
    bench.commit(receipts, session_of("monday", "1"))
    assert export(bench, "monday", "2", 1).conclusion is Conclusion.ALREADY_DELIVERED


# ---- more labels than a sink may have ----


@pytest.fixture
def crowded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A sink may have three, and has four: two exports at the same time were the third."""
    monkeypatch.setattr(ledger_write, "KEYS_MAX", 3)
    monkeypatch.setattr(ledger_read, "KEYS_READ_MAX", 6)
    for attempt, label in enumerate("ab"):
        assert export(bench, label, "1", attempt).conclusion is Conclusion.DELIVERED
    receipts, ended = rows(bench, "c", "1", 2), []
    bench.before_next("write ledger record", lambda: ended.append(export(bench, "d", "1", 3)))
    ended.append(bench.commit(receipts, session_of("c", "1")))
    assert [one.conclusion for one in ended] == [Conclusion.DELIVERED] * 2
    return bench


def test_labels_beyond_the_limit_that_came_at_the_same_time_stop_nothing_but_new_ones(crowded: Bench) -> None:
    assert export(crowded, "a", "2", 4).conclusion is Conclusion.ALREADY_DELIVERED
    planned = crowded.run(
        DriverOperation.RECOVER, session=DriverSession(SINK, code=line_of(SINK, BatchKey("", "a"), LEDGER).code)
    )
    assert planned.conclusion is Conclusion.NOTHING_TO_DO and planned.error is None
    refused = export(crowded, "e", "1", 5)
    assert isinstance(refused.error, CommitAborted) and "Choose another sink.id" in str(refused.error)
    assert crowded.seen() == [4, 4]


def test_above_what_is_read_the_text_does_not_advise_to_give_a_record_up(
    crowded: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_read, "KEYS_READ_MAX", 3)
    error = export(crowded, "a", "2", 4).error
    assert isinstance(error, CommitAborted) and "more than 3 records of sink sink. Choose another sink.id" in str(error)
    assert "set-aside" not in str(error)


@pytest.mark.parametrize("sink_id", [SINK, None])
def test_a_list_for_people_has_the_labels_beyond_the_limit_too(
    crowded: Bench, sink_id: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_read, "KEYS_READ_MAX", 3)
    step = crowded.drive(SingleStep(LedgerListing(crowded.settings, sink_id), crowded.now_ms + 10_000))
    assert [each.ledger_key for each in step.listed or ()] == [f"{SINK}/{label}" for label in "abcd"]


# ---- ends that need no second run ----


def test_a_run_that_has_committed_all_ends_well_though_another_run_has_taken_over_before_it_could_record_that(
    bench: Bench,
) -> None:
    """The other run finds the decision and will record it, or the next one will: every row is visible."""
    first = rows(bench, "monday", "1")

    def take_over() -> None:
        session = session_of("monday", "2")
        refused = {"commit transaction": [REFUSED] * 2}
        assert bench.commit(rows(bench, "monday", "2", 1), session, answers=refused).conclusion is Conclusion.FAILED

    # The first record is the decision.
    bench.before_next("write ledger record", take_over, which=2)
    verdict = bench.commit(first, session_of("monday", "1"))
    assert verdict.conclusion is Conclusion.DELIVERED and bench.seen() == [1, 1]
    assert bench.ledger()[f"{SINK}/monday"].kind is Kind.INTENT
    assert export(bench, "monday", "3", 2).conclusion is Conclusion.ALREADY_DELIVERED


@pytest.mark.parametrize("label", ["", "monday"])
def test_abort_of_a_batch_write_whose_commit_cannot_have_begun_asks_nothing_about_the_ledger(
    bench: Bench, label: str
) -> None:
    """Spark begins no commit before every task has returned its message."""
    receipts = bench.receipts(label, query="", run=run_of_label(label, "1", LEDGER))
    session = DriverSession(
        SINK, run_of_label(label, "1", LEDGER), code=line_of(SINK, BatchKey("", label), LEDGER).code
    )
    job = Job(DriverOperation.ABORT, BatchKey("", label), receipts, may_be_decided=False)
    verdict = bench.drive(Committer(bench.settings, session, job, bench.now_ms))
    assert verdict.conclusion is Conclusion.ABORTED and bench.seen() == [0, 0]
    assert not {FENCE, "claim ledger", "read ledger", "ledger stop"}.intersection(bench.purposes())
