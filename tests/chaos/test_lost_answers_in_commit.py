"""Requests of commit() and their answers get lost, cut, doubled, delayed, or arrive when nobody waits for them.

What one request can suffer, commit() gets over by itself. What arrives too late hits nothing: neither the transaction
that came after, nor the decision of a driver that came after.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pytest

from kafka_sink.errors import CommitAborted, CommitPending
from kafka_sink.wire.api import Api
from kafka_sink.wire.apis import END_TXN, INIT_PRODUCER_ID, PRODUCE
from tests.chaos.bare_spark import (
    BareQuery,
    Checkpoint,
    Killed,
    open_transactions,
    problems,
    run_on,
    settings_of,
    sink_id_of,
)
from tests.chaos.extent import NEWEST_MAINLY
from tests.chaos.faults import Harm
from tests.chaos.kafka_proxy import KafkaProxy
from tests.chaos.test_commit_errors import of_a_task, of_the_driver
from tools.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

PASSING = [Harm.LOSE_ANSWER, Harm.LOSE_REQUEST, Harm.CUT_ANSWER, Harm.CUT_REQUEST, Harm.DUPLICATE_REQUEST]


@pytest.fixture(params=NEWEST_MAINLY)
def kafka(request: pytest.FixtureRequest, kafka_of: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_of(request.param, 1)


@pytest.mark.slow
@pytest.mark.parametrize("harm", PASSING, ids=lambda harm: harm.name.lower())
def test_commit_gets_over_the_loss_of_any_one_request_or_answer(
    kafka: KafkaCluster, topic_name: str, harm: Harm
) -> None:
    """Each batch is committed by a process that begins with nothing, and hurt at another request. A copy of its
    fencing request fences the very driver that sent it: it fences again and goes on."""
    kafka.create_topic(topic_name, partitions=3)
    checkpoint = Checkpoint()
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name)
        with BareQuery(checkpoint, settings) as query:
            for nth in count(1):
                query.plan()
                messages = query.write_tasks()
                fault = proxy.on(None, harm, nth=nth)
                query.commit(messages)
                query.end_worker("commit")
                fault.stop()
                if not fault.has_acted:
                    break
        assert nth > 18
        assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic_name, checkpoint.committed + 1) == []


@pytest.mark.parametrize("harm", [Harm.LOSE_ANSWER, Harm.CUT_ANSWER], ids=lambda harm: harm.name.lower())
def test_planning_gets_over_the_loss_of_any_one_answer(kafka: KafkaCluster, topic_name: str, harm: Harm) -> None:
    kafka.create_topic(topic_name, partitions=3)
    checkpoint = Checkpoint()
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name)
        run_on(checkpoint, settings)
        for nth in count(1):
            with BareQuery(checkpoint, settings) as query:
                fault = proxy.on(None, harm, nth=nth)
                query.plan()
            fault.stop()
            if not fault.has_acted:
                break
    assert nth > 5


@pytest.mark.parametrize("harm", [Harm.LOSE_ANSWER, Harm.DUPLICATE_REQUEST], ids=lambda harm: harm.name.lower())
@pytest.mark.parametrize("owner", [of_the_driver, of_a_task], ids=["the-decision", "a-task"])
def test_an_end_of_a_transaction_whose_answer_is_lost_is_asked_for_again(
    kafka: KafkaCluster, topic_name: str, owner: object, harm: Harm
) -> None:
    kafka.create_topic(topic_name, partitions=3)
    checkpoint = Checkpoint()
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name)
        fault = proxy.on(END_TXN, harm, where=owner)
        run_on(checkpoint, settings, 2)
        assert fault.has_acted
        assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic_name, 2) == []


@pytest.mark.slow
def test_a_request_that_arrives_and_whose_answer_never_comes_is_given_up_and_repeated(
    kafka: KafkaCluster, topic_name: str
) -> None:
    """One direction of the connection is dead, and nobody says so."""
    kafka.create_topic(topic_name, partitions=3)
    checkpoint = Checkpoint()
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name, kafka__request__timeout__ms=3000)
        for nth in (1, 2):  # the decision and a task, then the done record and another task
            decision = proxy.on(END_TXN, Harm.SILENT_ANSWER, nth=nth, where=of_the_driver)
            task = proxy.on(END_TXN, Harm.SILENT_ANSWER, nth=nth, where=of_a_task)
            run_on(checkpoint, settings)
            assert decision.has_acted and task.has_acted
        assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic_name, 2) == []


# ---- what arrives late ----


@pytest.mark.parametrize(
    ("api", "owner", "nth"),
    [
        (END_TXN, of_a_task, 2),
        (END_TXN, of_the_driver, 1),
        (END_TXN, of_the_driver, 2),
        (PRODUCE, of_the_driver, 1),
        (PRODUCE, of_the_driver, 2),
        (INIT_PRODUCER_ID, of_the_driver, 1),
    ],
    ids=["commit-of-a-task", "decision", "end-of-the-done-record", "claim", "intent", "fencing"],
)
def test_a_dead_drivers_request_that_arrives_after_its_successors_batches_changes_nothing(
    kafka: KafkaCluster, topic_name: str, api: Api, owner: object, nth: int
) -> None:
    kafka.create_topic(topic_name, partitions=3)
    checkpoint = Checkpoint()
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name)
        with BareQuery(checkpoint, settings) as query:
            query.plan()
            messages = query.write_tasks()
            held = proxy.on(api, Harm.HOLD_REQUEST, nth=nth, where=owner, before=query.strike)
            with pytest.raises(Killed):
                query.commit(messages)
        with BareQuery(checkpoint, settings) as query:
            query.run_batch()
            query.plan()
            messages = query.write_tasks()
            held.release()  # the successor has prepared its next batch, and commits it now
            # The one that fences makes its successor fence again: no other run has claimed the ledger since.
            query.commit(messages)
        run_on(checkpoint, settings)
        assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic_name, checkpoint.committed + 1) == []


def test_an_abort_that_arrives_late_does_not_hit_the_batch_that_ran_again(kafka: KafkaCluster, topic_name: str) -> None:
    kafka.create_topic(topic_name, partitions=3)
    checkpoint = Checkpoint()
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name)
        with BareQuery(checkpoint, settings) as query:
            query.plan()
            messages = query.write_tasks()
            held = proxy.on(END_TXN, Harm.HOLD_REQUEST, nth=2, where=of_a_task, before=query.strike)
            with pytest.raises(Killed):
                query.abort(messages)
        with BareQuery(checkpoint, settings) as query:
            query.plan()
            messages = query.write_tasks()
            held.release()
            query.commit(messages)
            query.run_batch()
        assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic_name, 2) == []


@pytest.mark.parametrize("nth", [1, 3])
def test_a_driver_that_was_frozen_in_its_commit_and_wakes_up_after_its_successor_does_no_harm(
    kafka: KafkaCluster, topic_name: str, nth: int
) -> None:
    """Frozen after the decision; the successor finishes it and delivers more; then the old one goes on."""
    kafka.create_topic(topic_name, partitions=3)
    checkpoint = Checkpoint()
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name)
        old = BareQuery(checkpoint.copy(), settings)
        with old:
            old.plan()
            messages = old.write_tasks()
            committer = old.worker("commit")

            def freeze() -> None:
                os.kill(committer.process_id, signal.SIGSTOP)

            frozen = proxy.on(END_TXN, Harm.LOSE_ANSWER, nth=nth, where=of_a_task, before=freeze)
            old.begin_commit(messages)
            assert frozen.wait_until_acted(60)
            run_on(checkpoint, settings, 3)
            committer.send_signal(signal.SIGCONT)
            with suppress(CommitPending):
                committer.result()
            old.end_worker("commit")
            with suppress(CommitPending, CommitAborted):
                old.abort(messages)
        assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
        assert problems(kafka.bootstrap_servers, topic_name, 3) == []
        run_on(checkpoint, settings)
    assert problems(kafka.bootstrap_servers, topic_name, 4) == []
