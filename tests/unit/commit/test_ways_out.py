"""Texts that name an option or a thing to stop, and what follows if a user does what they say.

Those that name a command: tests/integration/advising.py.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_sink.commit.identity import sink_id_of_query
from kafka_sink.commit.messages import STILL_ACCEPTED
from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.commit.session import CommitResult, Conclusion, DriverOperation, DriverSession
from kafka_sink.errors import CommitAborted, CommitLost
from tests.unit.commit.driver_bench import QUERY, SINK, Bench

FIRST, SECOND, THIRD, FOURTH = "1" * 16, "2" * 16, "3" * 16, "4" * 16


def session(run: str, name: str = SINK, query: str = QUERY) -> DriverSession:
    return DriverSession(sink_id_of_query(name, query), run, named_sink_id=name)


def rows(bench: Bench, batch: int, run: str, name: str = SINK, query: str = QUERY) -> list[TaskReceipt]:
    bench.settle()
    return bench.receipts(batch, query=query, run=run, sink_id=sink_id_of_query(name, query))


def commit(bench: Bench, batch: int, run: str, name: str = SINK, query: str = QUERY) -> CommitResult:
    return bench.commit(rows(bench, batch, run, name, query), session(run, name, query))


def text_of(verdict: CommitResult, name: str) -> str:
    assert isinstance(verdict.error, CommitAborted) and verdict.error.name == name, verdict
    return str(verdict.error)


@pytest.mark.parametrize(("is_late", "name"), [(True, "PKS-6002"), (False, "PKS-6001")])
def test_of_a_query_that_runs_twice_one_has_to_stop_and_no_name_is_to_be_changed(
    bench: Bench, is_late: bool, name: str
) -> None:
    """The query is a part of the sink id, so the other driver is of this query, or of a copy of its checkpoint. What
    the older one has prepared before is aborted by the younger one."""
    old, younger = session(FIRST), session(SECOND)
    assert bench.commit(rows(bench, 0, FIRST), old).conclusion is Conclusion.DELIVERED
    prepared = [] if is_late else rows(bench, 1, FIRST)
    assert bench.commit(rows(bench, 1, SECOND), younger).conclusion is Conclusion.DELIVERED
    text = text_of(bench.commit(prepared or rows(bench, 1, FIRST), old), name)
    assert "stop one of the two" in text and "a sink.id of its own" not in text
    # The older one is stopped.
    assert bench.commit(rows(bench, 2, SECOND), younger).conclusion is Conclusion.DELIVERED
    assert bench.seen() == [3, 3]


def test_after_a_checkpoint_was_set_back_a_new_one_begins_and_no_sink_id_is_advised(bench: Bench) -> None:
    """Another sink.id is refused, because the ledger knows the query, and names the one that is refused here."""
    for batch in range(3):
        assert commit(bench, batch, FIRST).conclusion is Conclusion.DELIVERED
    text = text_of(commit(bench, 1, SECOND), "PKS-6003")
    assert "start with a new one if" in text and "sink.id" not in text
    assert commit(bench, 0, THIRD, query="query-of-a-new-checkpoint").conclusion is Conclusion.DELIVERED


def test_an_option_that_says_where_rows_go_is_put_back_for_one_start(bench: Bench) -> None:
    """The batch was delivered and is not in Spark's log. Dead letters make a second topic of it."""
    assert commit(bench, 0, FIRST).conclusion is Conclusion.DELIVERED
    first, *others = rows(bench, 0, SECOND)
    verdict = bench.commit([bench.write_also(first, ("dead", 0)), *others], session(SECOND))
    text = text_of(verdict, "PKS-6004")
    assert "(topic, dead.letter.topic, record.errors), put that back for one start" in text
    assert "start with a new one" not in text
    assert commit(bench, 0, THIRD).conclusion is Conclusion.ALREADY_DELIVERED
    first, *others = rows(bench, 1, THIRD)
    changed = bench.commit([bench.write_also(first, ("dead", 0)), *others], session(THIRD))
    assert changed.conclusion is Conclusion.DELIVERED and bench.seen() == [2, 2]


def test_a_copy_of_the_checkpoint_under_another_sink_id_is_stopped_and_its_id_is_not_taken_over(bench: Bench) -> None:
    """For testing a job with its own topic. Under its id the query would take the place of its driver, and find its
    batches delivered."""

    def of_copy(batch: int) -> CommitResult:
        bench.settle()
        own = sink_id_of_query("staging", QUERY)
        receipts = bench.receipts(batch, run=SECOND, sink_id=own, topic="t-staging")
        return bench.commit(receipts, DriverSession(own, SECOND, named_sink_id="staging", is_only_sink=True))

    def of_query(batch: int, run: str) -> CommitResult:
        return bench.commit(rows(bench, batch, run), replace(session(run), is_only_sink=True))

    assert of_query(0, FIRST).conclusion is Conclusion.DELIVERED
    bench.settings = replace(bench.settings, accept_unknown_sink=True)
    assert [of_copy(batch).conclusion for batch in (1, 2)] == [Conclusion.DELIVERED] * 2
    bench.settings = replace(bench.settings, accept_unknown_sink=False)
    text = text_of(of_query(1, FIRST), "PKS-6009")
    assert "That id writes to t-staging, and this one to t: is it a copy of this checkpoint? Stop it" in text
    assert "ledger.accept.new.sink=true here until the query is past what that id has delivered" in text
    assert text.index("Stop it") < text.index("Only if the query itself had that id") < text.index("sink.id=staging")
    # The copy is stopped.
    bench.settings = replace(bench.settings, accept_unknown_sink=True)
    assert [of_query(batch, THIRD).conclusion for batch in (1, 2, 3)] == [Conclusion.DELIVERED] * 3
    bench.settings = replace(bench.settings, accept_unknown_sink=False)
    assert of_query(4, FOURTH).conclusion is Conclusion.DELIVERED and bench.seen() == [5, 5]


def test_after_a_change_of_query_id_the_old_one_ends_its_batch_first(bench: Bench) -> None:
    """From the functions over Spark Connect to the format, under one sink.id. The option alone doubles the batch."""
    for batch in range(2):
        assert commit(bench, batch, FIRST, query="people-1").conclusion is Conclusion.DELIVERED
    text = text_of(commit(bench, 1, SECOND), "PKS-6005")
    assert "or a query.id that was added, changed or left out (it has none with the format), set that again" in text
    assert text.index("until this batch has ended") < text.index("ledger.accept.new.sink=true for one start")
    assert commit(bench, 1, SECOND, query="people-1").conclusion is Conclusion.ALREADY_DELIVERED
    bench.settings = replace(bench.settings, accept_unknown_sink=True)
    assert commit(bench, 2, THIRD).conclusion is Conclusion.DELIVERED and bench.seen() == [3, 3]


def test_after_a_change_of_sink_id_the_old_one_ends_its_batch_first(bench: Bench) -> None:
    """Inside foreachBatch, where another name of the query may be another output, and so is no reason to refuse."""
    for batch in range(2):
        assert commit(bench, batch, FIRST, "old").conclusion is Conclusion.DELIVERED
    text = text_of(commit(bench, 1, SECOND, "new"), "PKS-6005")
    assert "set that again until this batch has ended" in text and "ledger.accept.new.sink=true for one start" in text
    assert commit(bench, 1, SECOND, "old").conclusion is Conclusion.ALREADY_DELIVERED
    bench.settings = replace(bench.settings, accept_unknown_sink=True)
    began = commit(bench, 2, THIRD, "new")
    assert began.conclusion is Conclusion.DELIVERED and not began.notes
    # One start: the next one says that the option is still there.
    goes_on = commit(bench, 3, "4" * 16, "new")
    assert goes_on.conclusion is Conclusion.DELIVERED and goes_on.notes == (STILL_ACCEPTED,)
    bench.settings = replace(bench.settings, accept_unknown_sink=False)
    without = commit(bench, 4, "5" * 16, "new")
    assert without.conclusion is Conclusion.DELIVERED and not without.notes and bench.seen() == [5, 5]


# ---- a lost batch that Spark counts as done ----


def lose_batch_that_spark_passes(bench: Bench) -> None:
    """Batch 1 is decided and times out. Spark counts it as done all the same, as it does if the function of
    foreachBatch catches the error, or if its log of commits is mended by hand."""
    assert commit(bench, 0, FIRST).conclusion is Conclusion.DELIVERED
    receipts = rows(bench, 1, FIRST)
    bench.decide(receipts, session(FIRST))
    for receipt in receipts:
        bench.time_out(receipt)
    bench.settle()


def resolve(bench: Bench, choice: DriverOperation) -> CommitResult:
    found = bench.run(choice, key=BatchKey(QUERY, 1), session=session(SECOND))
    bench.settle()
    return found


def check_passed_over(verdict: CommitResult) -> str:
    assert isinstance(verdict.error, CommitLost) and verdict.error.name == "PKS-6021", verdict
    text = str(verdict.error)
    assert f"Spark counts it as done: it is at batch 2 of query {QUERY}" in text and "has it run the batch" not in text
    assert "set the checkpoint back to before that batch" in text
    return text


def test_a_lost_batch_that_spark_counts_as_done_is_accepted_and_the_query_goes_on(bench: Bench) -> None:
    lose_batch_that_spark_passes(bench)
    for run in (SECOND, THIRD):  # that finds the loss, and that finds its record
        text = check_passed_over(commit(bench, 2, run))
        assert "resolve --accept" in text and "resolve --replay" in text
    assert resolve(bench, DriverOperation.ACCEPT).conclusion is Conclusion.RESOLVED
    assert commit(bench, 2, FOURTH).conclusion is Conclusion.DELIVERED and bench.seen() == [2, 2]


@pytest.mark.parametrize("is_set_back", [True, False], ids=["the checkpoint is set back", "gone on without its rows"])
def test_a_batch_that_is_to_run_again_is_not_passed_over(bench: Bench, is_set_back: bool) -> None:
    """Once the next batch is decided, a checkpoint that is set back is older than the ledger: the rows that the
    operator wanted could not be written any more."""
    lose_batch_that_spark_passes(bench)
    check_passed_over(commit(bench, 2, SECOND))
    assert resolve(bench, DriverOperation.REPLAY).conclusion is Conclusion.RESOLVED
    for run in (SECOND, THIRD):
        text = check_passed_over(commit(bench, 2, run))
        assert "chosen to run again" in text and "resolve" not in text and "ledger.accept.new.sink=true" in text
    if is_set_back:
        assert commit(bench, 1, THIRD).conclusion is Conclusion.DELIVERED
    else:
        bench.settings = replace(bench.settings, accept_unknown_sink=True)
    assert commit(bench, 2, FOURTH).conclusion is Conclusion.DELIVERED
    assert bench.seen() == [2 + is_set_back] * 2
