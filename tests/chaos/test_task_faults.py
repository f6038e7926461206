"""Tasks that raise, are killed at any request, run twice, are frozen during their successor's commit, or have no rows.

Only attempts whose messages Spark hands to commit() become visible; transactions of other attempts are ended at once.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from itertools import count

import pytest

from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.wire.apis import PRODUCE
from tests.chaos.bare_spark import TASKS, Killed
from tests.chaos.bare_stream import BareStream, freezer
from tests.chaos.extent import NEWEST_MAINLY
from tests.support.faults import SIDES, Harm, whose

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(600),
    NEWEST_MAINLY,
    pytest.mark.usefixtures("own_ledger"),
]


def test_a_task_that_raises_aborts_its_own_transaction_before_the_next_attempt(direct_stream: BareStream) -> None:
    with direct_stream.query() as query:
        query.plan()
        with pytest.raises(ArithmeticError):
            query.fail_task(0)
        assert direct_stream.open() == []
        query.commit(query.write_tasks())
    direct_stream.check(1)


@pytest.mark.slow
@pytest.mark.parametrize("side", SIDES)
def test_each_row_is_there_once_wherever_a_task_is_killed(stream: BareStream, side: str) -> None:
    """It is killed at each of its requests in turn; a second attempt in another process takes over."""
    hits: list[str] = []
    with stream.query() as query:
        for nth in count(1):
            query.plan()
            first = query.write_task(0)
            query.end_worker("tasks")
            fault = stream.proxy.on(None, SIDES[side], nth=nth, before=query.worker("tasks").kill)
            with suppress(Killed):
                query.write_task(1)
                break
            fault.stop()
            hits.append(whose(fault))
            query.commit([first, query.write_task(1), query.write_task(2)])
            left = stream.open()
            assert left == [], f"open after a kill at request {nth}, {hits[-1]}: {left}"
    print(f"\n{stream.kafka.version}, {side}: {len(hits)} kills: {', '.join(hits)}")
    assert {"InitProducerId of a task", "Produce of a task"} <= set(hits)
    stream.run()
    stream.check()


@pytest.mark.usefixtures("sweeping")
def test_of_two_attempts_that_both_finish_the_one_spark_chose_is_seen_and_the_other_aborted(
    direct_stream: BareStream,
) -> None:
    """Speculation, or a commit that Spark's coordinator denied: Spark drops the loser's message."""
    with direct_stream.query() as query:
        for winner in (0, 1):
            query.plan()
            pairs = [(query.write_task(number), query.write_task(number, "copies")) for number in range(TASKS)]
            assert len(direct_stream.open(patience_s=0)) == 2 * TASKS
            query.commit([pair[winner] for pair in pairs])
            assert direct_stream.open() == []
    direct_stream.check(2)


@pytest.mark.usefixtures("sweeping")
def test_a_losing_attempt_of_a_run_that_crashed_after_its_decision_is_aborted_by_the_next_batch(
    stream: BareStream,
) -> None:
    with stream.query() as query:
        query.plan()
        query.write_task(1, "copies")
    stream.kill_after_the_decision()
    stream.run(2)
    stream.check(2)


@pytest.mark.usefixtures("sweeping")
def test_a_job_that_fails_with_some_of_its_messages_leaves_nothing_visible_and_nothing_open(stream: BareStream) -> None:
    with stream.query() as query:
        query.plan()
        finished = query.write_task(0)
        query.end_worker("tasks")
        stream.proxy.on(PRODUCE, Harm.LOSE_ANSWER, before=query.worker("tasks").kill)
        with pytest.raises(Killed):
            query.write_task(1)
        query.abort([finished, None, None])
        stream.check(0)
    stream.run()
    stream.check(1)


@pytest.mark.usefixtures("sweeping")
def test_a_task_that_was_frozen_and_wakes_up_after_the_commit_changes_nothing(stream: BareStream) -> None:
    """Its records may be in the log; its transaction was aborted meanwhile, or is aborted with the next batch."""
    with stream.query() as query:
        query.plan()
        zombie = query.worker("zombie")
        frozen = stream.proxy.on(PRODUCE, Harm.DELAY_REQUEST, before=freezer(zombie))
        query.begin_task(0, "zombie")
        assert frozen.wait_until_acted()
        query.commit(query.write_tasks())
        assert stream.open() == []
        zombie.send_signal(signal.SIGCONT)
        with suppress(KafkaSinkError):
            zombie.result()
        # Checked after this batch: on a slow machine the zombie's request arrives after the first batch's sweep.
        query.run_batch()
        stream.check(2)


def test_a_batch_without_rows_makes_no_decision_and_the_next_one_is_delivered(stream: BareStream) -> None:
    stream.run()
    ends_before = stream.proxy.counts["EndTxn"]
    with stream.query() as query:
        query.plan()
        for messages in ([query.nothing(0), query.nothing(1)], []):
            query.commit(messages)
            query.checkpoint.committed -= 1  # the source had no rows: the next offsets are the same
    assert stream.proxy.counts["EndTxn"] == ends_before
    stream.run()
    stream.check(2)
