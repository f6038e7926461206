"""Tasks that raise, are killed at any request, run twice, sleep through the commit of their successor, or come in vain.

Only the attempts whose messages Spark hands to commit() are ever seen; what the others left open is ended at once.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from itertools import count

import pytest

from kafka_sink.errors import KafkaSinkError
from kafka_sink.wire.apis import PRODUCE
from tests.chaos.bare_spark import (
    PARTITIONS,
    TASKS,
    BareQuery,
    Checkpoint,
    Killed,
    open_transactions,
    problems,
    run_on,
    settings_of,
    sink_id_of,
)
from tests.chaos.faults import Harm
from tests.chaos.kafka_proxy import KafkaProxy
from tests.chaos.test_driver_crashes import SIDES, kill_after_the_decision, whose
from tools.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]


def test_a_task_that_raises_aborts_its_own_transaction_before_the_next_attempt(
    kafka: KafkaCluster, topic_name: str
) -> None:
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    checkpoint, settings = Checkpoint(), settings_of(kafka.bootstrap_servers, topic_name)
    with BareQuery(checkpoint, settings) as query:
        query.plan()
        with pytest.raises(ArithmeticError):
            query.fail_task(0)
        assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
        query.commit(query.write_tasks())
    assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic_name, 1) == []


@pytest.mark.slow
@pytest.mark.parametrize("side", SIDES)
def test_each_row_is_there_once_wherever_a_task_is_killed(kafka: KafkaCluster, topic_name: str, side: str) -> None:
    """At each request of its own in turn; a second attempt in another process takes over."""
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    checkpoint, hits = Checkpoint(), list[str]()
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name)
        with BareQuery(checkpoint, settings) as query:
            for nth in count(1):
                query.plan()
                first = query.write_task(0)
                query.end_worker("tasks")
                fault = proxy.on(None, SIDES[side], nth=nth, before=query.worker("tasks").kill)
                with suppress(Killed):
                    query.write_task(1)
                    break
                fault.stop()
                hits.append(whose(fault))
                query.commit([first, query.write_task(1), query.write_task(2)])
                left = open_transactions(kafka.bootstrap_servers, sink_id_of(settings))
                assert left == [], f"open after a kill at request {nth}, {hits[-1]}: {left}"
    print(f"\n{kafka.version}, {side}: {len(hits)} kills: {', '.join(hits)}")
    assert {"InitProducerId of a task", "Produce of a task"} <= set(hits)
    run_on(checkpoint, settings_of(kafka.bootstrap_servers, topic_name))
    assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic_name, checkpoint.committed + 1) == []


def test_of_two_attempts_that_both_finish_the_one_spark_chose_is_seen_and_the_other_aborted(
    kafka: KafkaCluster, topic_name: str
) -> None:
    """Speculation, or a commit that Spark's coordinator denied: the loser's message reaches nobody."""
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    checkpoint, settings = Checkpoint(), settings_of(kafka.bootstrap_servers, topic_name)
    with BareQuery(checkpoint, settings) as query:
        for winner in (0, 1):
            query.plan()
            pairs = [(query.write_task(number), query.write_task(number, "copies")) for number in range(TASKS)]
            assert len(open_transactions(kafka.bootstrap_servers, sink_id_of(settings), patience_s=0)) == 2 * TASKS
            query.commit([pair[winner] for pair in pairs])
            assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic_name, 2) == []


def test_a_losing_attempt_of_a_run_that_crashed_after_its_decision_is_aborted_by_the_next_batch(
    kafka: KafkaCluster, topic_name: str
) -> None:
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    checkpoint = Checkpoint()
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name)
        with BareQuery(checkpoint, settings) as query:
            query.plan()
            query.write_task(1, "copies")
        kill_after_the_decision(checkpoint, settings, proxy)
        run_on(checkpoint, settings, 2)
    assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic_name, 2) == []


def test_a_job_that_fails_with_some_of_its_messages_leaves_nothing_visible_and_nothing_open(
    kafka: KafkaCluster, topic_name: str
) -> None:
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    checkpoint = Checkpoint()
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name)
        with BareQuery(checkpoint, settings) as query:
            query.plan()
            finished = query.write_task(0)
            query.end_worker("tasks")
            proxy.on(PRODUCE, Harm.LOSE_ANSWER, before=query.worker("tasks").kill)
            with pytest.raises(Killed):
                query.write_task(1)
            query.abort([finished, None, None])
            assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
        assert problems(kafka.bootstrap_servers, topic_name, 0) == []
        run_on(checkpoint, settings)
    assert problems(kafka.bootstrap_servers, topic_name, 1) == []


def test_a_task_that_was_frozen_and_wakes_up_after_the_commit_changes_nothing(
    kafka: KafkaCluster, topic_name: str
) -> None:
    """Its records may be in the log; its transaction was aborted meanwhile, or is when the next batch is done."""
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    checkpoint = Checkpoint()
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name)
        with BareQuery(checkpoint, settings) as query:
            query.plan()
            zombie = query.worker("zombie")

            def freeze() -> None:
                os.kill(zombie.process_id, signal.SIGSTOP)

            frozen = proxy.on(PRODUCE, Harm.DELAY_REQUEST, before=freeze)
            query.begin_task(0, "zombie")
            assert frozen.wait_until_acted(60)
            query.commit(query.write_tasks())
            assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
            zombie.send_signal(signal.SIGCONT)
            with suppress(KafkaSinkError):
                zombie.result()
            assert problems(kafka.bootstrap_servers, topic_name, 1) == []
            query.run_batch()
            assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic_name, 2) == []


def test_a_batch_without_rows_makes_no_decision_and_the_next_one_is_delivered(
    kafka: KafkaCluster, topic_name: str
) -> None:
    kafka.create_topic(topic_name, partitions=PARTITIONS)
    checkpoint = Checkpoint()
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name)
        run_on(checkpoint, settings)
        ends_before = proxy.counts["EndTxn"]
        with BareQuery(checkpoint, settings) as query:
            query.plan()
            for messages in ([query.nothing(0), query.nothing(1)], []):
                query.commit(messages)
                query.checkpoint.committed -= 1  # the source has given nothing: the next offsets are the same
        assert proxy.counts["EndTxn"] == ends_before
        run_on(checkpoint, settings)
    assert problems(kafka.bootstrap_servers, topic_name, 2) == []
