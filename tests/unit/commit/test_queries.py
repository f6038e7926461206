"""The query id is part of a stream's sink id: names are shared by accident. Release 0.1.0 had no query ids.

SINK is the name (an option, or the hash of a path); the sink id of a query is made of this name and the query id.
"""

from dataclasses import replace

import pytest

from kafka_sink.commit.identity import belongs_to, run_of_label, sink_id_of_query
from kafka_sink.commit.ledger import Kind
from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.commit.session import Conclusion, DriverOperation, DriverSession
from kafka_sink.errors import CommitAborted, CommitLost
from tests.support.tiny_broker import LEDGER
from tests.unit.commit.driver_bench import FOURTH, QUERY, SECOND, SINK, THIRD, Bench, put_plain

OTHER = "query-2"
FIFTH = "5" * 16
OLDER_FENCE = "fence a driver of the release before"


def session(query: str, run: str = "1" * 16) -> DriverSession:
    return DriverSession(sink_id_of_query(SINK, query), run, named_sink_id=SINK)


def rows(bench: Bench, batch: int, query: str, run: str = "1" * 16, **more: int) -> list[TaskReceipt]:
    bench.settle()
    return bench.receipts(batch, query=query, run=run, sink_id=sink_id_of_query(SINK, query), **more)


def test_two_queries_under_one_name_are_two_sinks(bench: Bench) -> None:
    """Two pods each mount a volume at /checkpoint: batch 3 of one query must not hide batches of the other."""
    one, other = session(QUERY), session(OTHER, SECOND)
    for batch in range(4):
        assert bench.commit(rows(bench, batch, QUERY), one).conclusion is Conclusion.DELIVERED
    for batch in range(2):
        assert bench.commit(rows(bench, batch, OTHER, SECOND), other).conclusion is Conclusion.DELIVERED
    assert bench.seen() == [6, 6]
    # The first query crashed before Spark wrote its commit log: batch 3 runs again, but is already delivered.
    assert bench.commit(rows(bench, 3, QUERY, THIRD), session(QUERY, THIRD)).conclusion is Conclusion.ALREADY_DELIVERED
    # The second query was never fenced.
    bench.asked.clear()
    assert bench.commit(rows(bench, 2, OTHER, SECOND), other).conclusion is Conclusion.DELIVERED
    assert "fence older drivers" not in bench.purposes()
    assert bench.seen() == [7, 7]


def test_planning_finishes_the_open_decisions_of_all_queries_under_its_name(bench: Bench) -> None:
    """Planning does not know its query, and any process may commit what is decided."""
    for query, run in ((QUERY, "1" * 16), (OTHER, SECOND)):
        bench.decide(rows(bench, 0, query, run), session(query, run))
    assert bench.run(DriverOperation.RECOVER, session=DriverSession(SINK)).conclusion is Conclusion.RECOVERED
    assert bench.seen() == [2, 2]


def test_a_stream_of_the_release_before_goes_on_where_it_was(bench: Bench) -> None:
    for batch in range(3):
        bench.settle()
        assert bench.commit(bench.receipts(batch), bench.session()).conclusion is Conclusion.DELIVERED
    bench.asked.clear()
    # Batch 2 was delivered but is not in Spark's commit log, so it runs again.
    upgraded = session(QUERY, SECOND)
    assert bench.commit(rows(bench, 2, QUERY, SECOND), upgraded).conclusion is Conclusion.ALREADY_DELIVERED
    assert bench.purposes().count(OLDER_FENCE) == 1
    assert bench.commit(rows(bench, 3, QUERY, SECOND), upgraded).conclusion is Conclusion.DELIVERED
    assert bench.seen() == [4, 4]
    assert bench.ledger()[sink_id_of_query(SINK, QUERY)].runs[-1] == "1" * 16


def test_what_the_release_before_had_decided_is_finished_and_recorded(bench: Bench) -> None:
    bench.decide(bench.receipts(), bench.session())
    upgraded = session(QUERY, SECOND)
    assert bench.commit(rows(bench, 0, QUERY, SECOND), upgraded).conclusion is Conclusion.ALREADY_DELIVERED
    assert bench.seen() == [1, 1]
    assert bench.ledger()[SINK].kind is Kind.DONE


def test_a_driver_of_the_release_before_that_was_frozen_decides_nothing_after_the_upgrade(bench: Bench) -> None:
    frozen = bench.session()
    assert bench.commit(bench.receipts(0), frozen).conclusion is Conclusion.DELIVERED
    late = bench.receipts(1)
    bench.settle()
    upgraded = session(QUERY, SECOND)
    assert bench.commit(rows(bench, 1, QUERY, SECOND), upgraded).conclusion is Conclusion.DELIVERED
    bench.settle()
    # Like the previous release: the driver tries once, and does not continue after it is fenced.
    refused = bench.commit(late, frozen, answers={"read ledger": [29]})
    assert isinstance(refused.error, CommitAborted)
    assert bench.seen() == [2, 2]


def test_a_stream_that_begins_with_a_batch_without_any_task_is_known_in_the_next_one(bench: Bench) -> None:
    """The query id is unknown in that batch: an empty file has no partition, so no task reports it."""
    nobody = bench.run(DriverOperation.COMMIT, session=DriverSession(SINK), key=BatchKey("", 0))
    assert nobody.conclusion is Conclusion.DELIVERED
    assert bench.commit(rows(bench, 1, QUERY), session(QUERY)).conclusion is Conclusion.DELIVERED


def test_another_query_of_the_release_before_under_the_same_name_is_not_taken_for_ones_own(bench: Bench) -> None:
    assert bench.commit(bench.receipts(0), bench.session()).conclusion is Conclusion.DELIVERED
    verdict = bench.commit(rows(bench, 5, OTHER, SECOND), session(OTHER, SECOND))
    assert isinstance(verdict.error, CommitAborted) and "no record of sink" in str(verdict.error)


# ---- one query under two names ----


def stream(name: str, run: str) -> DriverSession:
    return DriverSession(sink_id_of_query(name, QUERY), run, named_sink_id=name, is_only_sink=True)


def of_stream(bench: Bench, name: str, batch: int, run: str) -> list[TaskReceipt]:
    bench.settle()
    return bench.receipts(batch, run=run, sink_id=sink_id_of_query(name, QUERY))


@pytest.mark.parametrize("batch", [0, 1])
def test_a_stream_that_the_ledger_knows_under_another_name_is_refused_at_every_try(bench: Bench, batch: int) -> None:
    """Its checkpoint was moved, or its sink.id changed."""
    bench.commit(of_stream(bench, "old", 0, "1" * 16), stream("old", "1" * 16))
    for run in (SECOND, THIRD):
        verdict = bench.commit(of_stream(bench, "new", batch, run), stream("new", run))
        assert isinstance(verdict.error, CommitAborted) and verdict.error.name == "PKS-6009"
        assert "Set sink.id=old and start" in str(verdict.error)
    assert bench.seen() == [1, 1]
    again = of_stream(bench, "old", 0, FOURTH)
    assert bench.commit(again, stream("old", FOURTH)).conclusion is Conclusion.ALREADY_DELIVERED


def test_a_decision_under_another_name_that_has_no_marker_yet_is_known(bench: Bench) -> None:
    bench.decide(of_stream(bench, "old", 0, "1" * 16), stream("old", "1" * 16))
    bench.lose_the_last_marker()
    verdict = bench.commit(of_stream(bench, "new", 0, SECOND), stream("new", SECOND))
    assert isinstance(verdict.error, CommitAborted) and verdict.error.name == "PKS-6009"


@pytest.mark.parametrize("value", [b"?", None])
def test_another_name_is_known_by_a_record_that_no_sink_wrote(bench: Bench, value: bytes | None) -> None:
    """It may have taken the place of a decision, which the cleaner has removed since."""
    put_plain(bench, sink_id_of_query("old", QUERY), value)
    verdict = bench.commit(of_stream(bench, "new", 0, SECOND), stream("new", SECOND))
    assert isinstance(verdict.error, CommitAborted) and verdict.error.name == "PKS-6009"


def test_a_user_may_have_the_rows_written_once_more_under_another_name(bench: Bench) -> None:
    bench.commit(of_stream(bench, "old", 0, "1" * 16), stream("old", "1" * 16))
    bench.settings = replace(bench.settings, accept_unknown_sink=True)
    accepted = bench.commit(of_stream(bench, "new", 0, SECOND), stream("new", SECOND))
    assert accepted.conclusion is Conclusion.DELIVERED
    bench.settings = replace(bench.settings, accept_unknown_sink=False)
    assert bench.commit(of_stream(bench, "new", 1, THIRD), stream("new", THIRD)).conclusion is Conclusion.DELIVERED


def accepted(bench: Bench, name: str, batch: int, run: str) -> None:
    """Delivered with ledger.accept.new.sink=true."""
    bench.settings = replace(bench.settings, accept_unknown_sink=True)
    assert bench.commit(of_stream(bench, name, batch, run), stream(name, run)).conclusion is Conclusion.DELIVERED
    bench.settings = replace(bench.settings, accept_unknown_sink=False)


def refused(bench: Bench, name: str, batch: int, run: str) -> str:
    verdict = bench.commit(of_stream(bench, name, batch, run), stream(name, run))
    assert isinstance(verdict.error, CommitAborted) and verdict.error.name == "PKS-6009"
    return str(verdict.error)


def test_a_name_of_earlier_does_not_deliver_again_what_the_later_one_has_delivered(bench: Bench) -> None:
    """A deployment is rolled back, and sink.id with it. The last batch of the later name is not in Spark's log yet."""
    bench.commit(of_stream(bench, "old", 0, "1" * 16), stream("old", "1" * 16))
    accepted(bench, "new", 1, SECOND)
    assert bench.commit(of_stream(bench, "new", 2, SECOND), stream("new", SECOND)).conclusion is Conclusion.DELIVERED
    text = refused(bench, "old", 2, THIRD)
    assert f"under this one only up to batch 0 of query {QUERY}" in text and "Set sink.id=new and start" in text
    assert bench.seen() == [3, 3]
    again = of_stream(bench, "new", 2, FOURTH)
    assert bench.commit(again, stream("new", FOURTH)).conclusion is Conclusion.ALREADY_DELIVERED
    # Now batch 2 is in Spark's log. Going back is a change like the first one.
    assert "Set sink.id=new and start" in refused(bench, "old", 3, FIFTH)
    accepted(bench, "old", 3, FIFTH)
    assert "Set sink.id=old and start" in refused(bench, "new", 4, "6" * 16)
    assert bench.commit(of_stream(bench, "old", 4, FIFTH), stream("old", FIFTH)).conclusion is Conclusion.DELIVERED


def test_a_name_under_which_the_release_before_kept_the_stream_is_one_of_earlier_too(bench: Bench) -> None:
    assert bench.commit(bench.receipts(0), bench.session()).conclusion is Conclusion.DELIVERED
    accepted(bench, "new", 1, SECOND)
    assert "Set sink.id=new and start" in refused(bench, SINK, 1, THIRD)


def test_the_right_name_goes_on_although_the_one_before_was_closed_after_it(bench: Bench) -> None:
    """By an operator's command, or by a record that a process had left to be written later."""
    bench.decide(of_stream(bench, "old", 0, "1" * 16), stream("old", "1" * 16))
    accepted(bench, "new", 0, SECOND)
    command = DriverSession(sink_id_of_query("old", QUERY))
    assert bench.run(DriverOperation.FINISH, session=command).conclusion is Conclusion.RECOVERED
    assert bench.commit(of_stream(bench, "new", 1, THIRD), stream("new", THIRD)).conclusion is Conclusion.DELIVERED


def test_of_several_names_the_text_tells_the_one_that_has_got_furthest(bench: Bench) -> None:
    bench.decide(of_stream(bench, "a-first", 0, "1" * 16), stream("a-first", "1" * 16))
    accepted(bench, "b-second", 0, SECOND)
    bench.decide(of_stream(bench, "b-second", 1, SECOND), stream("b-second", SECOND))
    command = DriverSession(sink_id_of_query("a-first", QUERY))
    assert bench.run(DriverOperation.FINISH, session=command).conclusion is Conclusion.RECOVERED
    text = refused(bench, "c-third", 1, THIRD)
    assert "another sink id (b-second, a-first), and not" in text and "Set sink.id=b-second and start" in text
    again = of_stream(bench, "b-second", 1, FOURTH)
    assert bench.commit(again, stream("b-second", FOURTH)).conclusion is Conclusion.ALREADY_DELIVERED
    assert bench.seen() == [3, 3]


@pytest.mark.parametrize("is_above", [True, False])
def test_a_record_under_another_name_that_cannot_be_read_counts_if_it_is_the_newest(
    bench: Bench, is_above: bool
) -> None:
    """A newer release may have written it, and release and name are set back together. An old one stops nobody."""
    if not is_above:
        put_plain(bench, sink_id_of_query("other", QUERY), b"?")
    accepted(bench, "old", 0, "1" * 16)
    if is_above:
        put_plain(bench, sink_id_of_query("other", QUERY), b"?")
        assert "Set sink.id=other" in refused(bench, "old", 1, SECOND)
    else:
        verdict = bench.commit(of_stream(bench, "old", 1, SECOND), stream("old", SECOND))
        assert verdict.conclusion is Conclusion.DELIVERED


def test_a_decision_under_a_later_name_that_has_no_marker_yet_is_known(bench: Bench) -> None:
    bench.commit(of_stream(bench, "old", 0, "1" * 16), stream("old", "1" * 16))
    bench.settings = replace(bench.settings, accept_unknown_sink=True)
    bench.decide(of_stream(bench, "new", 1, SECOND), stream("new", SECOND))
    bench.lose_the_last_marker()
    bench.settings = replace(bench.settings, accept_unknown_sink=False)
    assert "Set sink.id=new and start" in refused(bench, "old", 1, THIRD)


def test_two_writes_of_a_batch_inside_foreach_batch_have_two_names(bench: Bench) -> None:
    """After a crash between them the second one has no record of its own, and the first one's is of an earlier run."""
    bench.commit(of_stream(bench, "one", 0, "1" * 16), replace(stream("one", "1" * 16), is_only_sink=False))
    other = replace(stream("other", SECOND), is_only_sink=False)
    assert bench.commit(of_stream(bench, "other", 0, SECOND), other).conclusion is Conclusion.DELIVERED


@pytest.mark.parametrize(
    ("sink_id", "belongs"),
    [
        (SINK, True),
        (sink_id_of_query(SINK, QUERY), True),
        (f"{SINK}-orders", False),
        (f"{SINK}s", False),
        (f"{sink_id_of_query(SINK, QUERY)}-more", False),
        (f"other-{SINK}", False),
    ],
)
def test_a_name_covers_its_queries_and_no_other_name(sink_id: str, belongs: bool) -> None:
    assert belongs_to(sink_id, SINK) is belongs


def test_a_lost_batch_of_a_query_stops_it_at_planning_already(bench: Bench) -> None:
    """Planning knows only the name; the error text names the query."""
    receipts = rows(bench, 0, QUERY)
    bench.times_out_before_its_commit(receipts[0])
    lost = bench.commit(receipts, session(QUERY))
    assert isinstance(lost.error, CommitLost)
    planned = bench.run(DriverOperation.RECOVER, session=DriverSession(SINK))
    assert isinstance(planned.error, CommitLost) and QUERY in str(planned.error)


def test_of_two_exports_side_by_side_the_first_to_end_leaves_the_other_alone(bench: Bench) -> None:
    """Both have labels under one sink id. The tasks of the other export began earlier; its commit has not arrived."""
    other = bench.receipts("tuesday", run=run_of_label("tuesday", "2", LEDGER), query="")
    bench.settle()
    bench.broker.clock += 1_000
    monday, key = run_of_label("monday", "1", LEDGER), BatchKey("", "monday")
    first = bench.commit(bench.receipts("monday", query="", run=monday), bench.session(monday, key))
    assert first.conclusion is Conclusion.DELIVERED and not first.swept
    assert {bench.state_of(receipt) for receipt in other} == {"Ongoing"}
