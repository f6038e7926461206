"""Two drivers of one sink; a checkpoint or a ledger that is gone, or older than it should be.

If the sink cannot know what was delivered, it stops with an error: nothing becomes visible, nothing is skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from kafka_sink import Producer
from kafka_sink.errors import CommitAborted, ConfigError
from tests.chaos.bare_spark import ROWS, Checkpoint
from tests.chaos.bare_stream import BareStream
from tests.chaos.extent import NEWEST_MAINLY
from tools.kafka_cluster import KafkaCluster

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(600),
    NEWEST_MAINLY,
]


@pytest.fixture
def ledger(topic_name: str) -> str:
    return f"ledger-{topic_name}"


# ---- two drivers ----


def test_of_two_drivers_with_the_same_batch_one_delivers_it_and_the_other_finds_it_delivered(
    direct_stream: BareStream,
) -> None:
    with direct_stream.query() as one, direct_stream.query(direct_stream.checkpoint.copy()) as other:
        prepared = []
        for query in (one, other):
            query.plan()
            prepared.append(query.write_tasks())
        other.commit(prepared[1])
        one.commit(prepared[0])
        assert direct_stream.problems(1) == []
    assert direct_stream.open() == []


@pytest.mark.usefixtures("sweeping")
@pytest.mark.parametrize(
    ("is_late", "reason"),
    [
        (True, r"another driver of sink .* has taken over"),
        (False, r"is CompleteAbort instead of Ongoing: .* aborted by another driver of this sink"),
    ],
    ids=["prepared-after-the-takeover", "prepared-before-it"],
)
def test_of_the_older_of_two_drivers_nothing_is_seen_and_its_error_names_the_other(
    direct_stream: BareStream, is_late: bool, reason: str
) -> None:
    """The sweep of the newer driver aborts what the older one had prepared before, and the check before the decision
    finds that first. What the older one prepares later is left alone, and then the decision itself is fenced."""
    with direct_stream.query() as old:
        old.run_batch()
        old.checkpoint = direct_stream.checkpoint.copy()
        old.plan()
        messages = [] if is_late else old.write_tasks()
        direct_stream.run(2)  # another driver of the same query starts
        messages = messages or old.write_tasks()
        with pytest.raises(CommitAborted, match=reason) as caught:
            old.commit(messages)
        assert "one checkpoint or a copy of it" in str(caught.value)
        old.abort(messages)
        assert direct_stream.open() == []
        # Spark would stop here. Continuing in the same run fails as well.
        for batch in (1, 2, 3):
            old.checkpoint.committed = batch - 1
            with pytest.raises(CommitAborted, match="has taken over"):
                old.run_batch()
    direct_stream.check(3)


# ---- the checkpoint ----


def test_with_a_new_checkpoint_the_open_decision_is_finished_and_no_new_row_is_skipped(stream: BareStream) -> None:
    """A query without a checkpoint reads its source from the start, so the rows that it had delivered come again."""
    stream.kill_after_the_decision(Checkpoint())
    stream.run(2)
    assert stream.open() == []
    assert sorted(Counter(stream.times_seen().values()).items()) == [(1, ROWS), (2, ROWS)]


def test_a_checkpoint_that_was_set_back_is_refused_and_nothing_is_written_twice(direct_stream: BareStream) -> None:
    direct_stream.run()
    copy = direct_stream.checkpoint.copy()
    direct_stream.run(2)
    for _ in range(2):
        with pytest.raises(CommitAborted, match="the checkpoint has been rolled back"):
            direct_stream.run(checkpoint=copy)
        direct_stream.check(3)
    direct_stream.run()  # the newer checkpoint was restored
    assert direct_stream.problems(4) == []


# ---- the ledger ----


def test_a_ledger_that_was_deleted_is_not_taken_for_an_empty_one(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster, ledger: str
) -> None:
    stream = stream_on(kafka, is_direct=True, ledger__topic=ledger)
    stream.run(2)
    kafka.delete_topic(ledger)
    for _ in range(2):
        with pytest.raises(CommitAborted, match=f"ledger topic '{ledger}' has no record of sink"):
            stream.run()
        stream.check(2)
    stream.settings["ledger.accept.new.sink"] = "true"
    stream.run(2)
    assert stream.problems(4) == []


@pytest.mark.slow
def test_a_ledger_that_is_deleted_while_the_query_runs_stops_it_with_nothing_visible(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster, ledger: str
) -> None:
    """Long before its transactions time out."""
    stream = stream_on(kafka, is_direct=True, ledger__topic=ledger)
    with stream.query() as query:
        query.run_batch()
        kafka.delete_topic(ledger)
        with pytest.raises(CommitAborted, match=f"ledger topic {ledger}"):
            query.run_batch()
    assert stream.problems(1) == []


def test_a_ledger_that_forgets_with_age_is_refused_at_planning(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster, ledger: str
) -> None:
    stream = stream_on(kafka, is_direct=True, ledger__topic=ledger)
    kafka.create_topic(ledger, config={"cleanup.policy": "delete"})
    with stream.query() as query, pytest.raises(ConfigError, match=r"cleanup\.policy=delete"):
        query.plan()
    assert not stream.times_seen()


def test_an_open_transaction_of_somebody_else_in_the_ledger_hides_no_decision(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster, ledger: str
) -> None:
    """It holds back the last stable offset; a reader of committed records would see nothing behind it."""
    stream = stream_on(kafka, ledger__topic=ledger)
    kafka.create_topic(ledger, config={"cleanup.policy": "compact"})
    with Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"other-{ledger}"}) as other:
        other.init_transactions()
        other.begin_transaction()
        other.send(ledger, key=b"other-sink", value=b"{}")
        other.flush()
        stream.kill_after_the_decision()
        with stream.query() as query:
            query.plan()
            assert stream.problems(1) == []
        stream.run(3)
        assert stream.open() == []
        other.abort_transaction()
    assert stream.problems(3) == []
