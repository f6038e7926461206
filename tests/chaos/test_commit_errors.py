"""commit() raises at each of its steps, and Spark calls abort() with the same messages, in another process.

The batch is then wholly there or wholly absent, according to whether the decision had been made; none of its
transactions is open; and after a restart each row is there once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from kafka_sink.errors import CommitAborted, CommitError, CommitPending
from kafka_sink.wire.api import Api
from kafka_sink.wire.apis import ADD_PARTITIONS_TO_TXN, DESCRIBE_TRANSACTIONS, END_TXN, INIT_PRODUCER_ID, PRODUCE
from tests.chaos.bare_spark import (
    ROWS,
    TASKS,
    BareQuery,
    Checkpoint,
    open_transactions,
    problems,
    run_on,
    settings_of,
    sink_id_of,
)
from tests.chaos.extent import NEWEST_MAINLY
from tests.chaos.faults import Harm, Request
from tests.chaos.kafka_proxy import KafkaProxy
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

TOPIC_REFUSED, ID_REFUSED = 29, 53
Body = Mapping[str, Any]


@pytest.fixture(params=NEWEST_MAINLY)
def kafka(request: pytest.FixtureRequest, kafka_of: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_of(request.param, 1)


def of_the_driver(request: Request) -> bool:
    body = request.body
    owner = body.get("transactional_id") or body.get("v3_and_below_transactional_id") or "-driver"
    return str(owner).endswith("-driver")


def of_a_task(request: Request) -> bool:
    return not of_the_driver(request)


def refused(_: Body) -> Body:
    return {"throttle_time_ms": 0, "error_code": ID_REFUSED, "producer_id": -1, "producer_epoch": -1}


def produce_refused(body: Body) -> Body:
    (topic,) = body["topic_data"]
    row = {
        "index": topic["partition_data"][0]["index"], "error_code": TOPIC_REFUSED, "base_offset": -1,
        "log_append_time_ms": -1, "log_start_offset": -1, "record_errors": [], "error_message": None,
    }  # fmt: skip
    return {"responses": [{"name": topic["name"], "partition_responses": [row]}], "throttle_time_ms": 0}


def add_refused(body: Body) -> Body:
    topics = [
        {
            "name": topic["name"],
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": TOPIC_REFUSED} for index in topic["partitions"]
            ],
        }
        for topic in body["v3_and_below_topics"]
    ]
    return {"throttle_time_ms": 0, "results_by_topic_v3_and_below": topics}


def describe_refused(body: Body) -> Body:
    rows = [
        {
            "error_code": ID_REFUSED, "transactional_id": one, "transaction_state": "", "transaction_timeout_ms": 0,
            "transaction_start_time_ms": -1, "producer_id": -1, "producer_epoch": -1, "topics": [],
        }
        for one in body["transactional_ids"]
    ]  # fmt: skip
    return {"throttle_time_ms": 0, "transaction_states": rows}


class Step(NamedTuple):
    api: Api
    refusal: Callable[[Body], Body]
    where: Callable[[Request], bool]
    nth: int
    error: type[CommitError]


STEPS = {
    "fence": Step(INIT_PRODUCER_ID, refused, of_the_driver, 1, CommitAborted),
    "claim": Step(PRODUCE, produce_refused, of_the_driver, 1, CommitAborted),
    "check": Step(DESCRIBE_TRANSACTIONS, describe_refused, lambda _: True, 1, CommitAborted),
    "write-the-intent": Step(PRODUCE, produce_refused, of_the_driver, 2, CommitAborted),
    "decide": Step(END_TXN, refused, of_the_driver, 1, CommitAborted),
    **{f"commit-{k}-of-{TASKS}": Step(END_TXN, refused, of_a_task, k, CommitPending) for k in range(1, TASKS + 1)},
    "write-done": Step(PRODUCE, produce_refused, of_the_driver, 3, CommitPending),
    "close": Step(END_TXN, refused, of_the_driver, 2, CommitPending),
}
FIRST_GENERATION_STEPS = {
    "add-the-ledger": Step(ADD_PARTITIONS_TO_TXN, add_refused, of_the_driver, 1, CommitAborted),
    "renew": Step(INIT_PRODUCER_ID, refused, of_the_driver, 2, CommitPending),
    "add-the-ledger-again": Step(ADD_PARTITIONS_TO_TXN, add_refused, of_the_driver, 2, CommitPending),
}


def open_of_tasks(kafka: KafkaCluster, settings: Mapping[str, str]) -> list[str]:
    """A driver's own transaction may stay: it holds back nobody who reads rows, and the next driver ends it."""
    found = open_transactions(kafka.bootstrap_servers, sink_id_of(settings), patience_s=2)
    return [one for one in found if "-driver " not in one]


def check_a_refusal(kafka: KafkaCluster, topic: str, step: Step) -> None:
    kafka.create_topic(topic, partitions=3)
    checkpoint = Checkpoint()
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic)
        with BareQuery(checkpoint, settings) as query:
            query.plan()
            messages = query.write_tasks()
            proxy.on(step.api, Harm.REFUSE, nth=step.nth, where=step.where, refusal=step.refusal)
            with pytest.raises(step.error) as caught:
                query.commit(messages)
            query.abort(messages)
            assert caught.value.row_count == ROWS and topic in str(caught.value)
        assert open_of_tasks(kafka, settings) == []
        visible = len(read_topic(kafka.bootstrap_servers, topic))
        assert visible == (ROWS if step.error is CommitPending else 0)
        run_on(checkpoint, settings, 2)
        assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic, 2) == []


@pytest.mark.parametrize("step", STEPS)
def test_a_batch_is_wholly_there_or_absent_after_commit_has_raised(
    kafka: KafkaCluster, topic_name: str, step: str
) -> None:
    check_a_refusal(kafka, topic_name, STEPS[step])


@pytest.mark.parametrize("step", FIRST_GENERATION_STEPS)
def test_a_batch_is_wholly_there_or_absent_after_a_step_that_only_older_brokers_need_has_raised(
    kafka_3: KafkaCluster, topic_name: str, step: str
) -> None:
    check_a_refusal(kafka_3, topic_name, FIRST_GENERATION_STEPS[step])


def test_a_permission_that_is_taken_away_after_the_decision_loses_nothing(kafka: KafkaCluster, topic_name: str) -> None:
    """commit() fails, recovery fails again and again; when the permission is back, the batch is finished."""
    kafka.create_topic(topic_name, partitions=3)
    checkpoint = Checkpoint()
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name)
        with BareQuery(checkpoint, settings) as query:
            query.plan()
            messages = query.write_tasks()
            fault = proxy.on(END_TXN, Harm.REFUSE, where=of_a_task, refusal=refused, lasts=True)
            with pytest.raises(CommitPending, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
                query.commit(messages)
            with suppress(CommitPending):
                query.abort(messages)
        for _ in range(2):
            with BareQuery(checkpoint, settings) as query, pytest.raises(CommitPending, match="3 of 3 transactions"):
                query.plan()
        assert len(open_of_tasks(kafka, settings)) == TASKS
        fault.stop()
        run_on(checkpoint, settings, 2)
        assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic_name, 2) == []


@pytest.mark.slow
@pytest.mark.parametrize("harm", [Harm.LOSE_REQUEST, Harm.LOSE_ANSWER], ids=["not-made", "made"])
def test_a_decision_in_doubt_at_the_deadline_is_settled_by_the_ledger(
    kafka: KafkaCluster, topic_name: str, harm: Harm
) -> None:
    """The driver asks to commit the intent until its time is up, and is never answered."""
    kafka.create_topic(topic_name, partitions=3)
    checkpoint = Checkpoint()
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name, kafka__transaction__timeout__ms=60_000)
        with BareQuery(checkpoint, settings) as query:
            query.plan()
            messages = query.write_tasks()
            fault = proxy.on(END_TXN, harm, where=of_the_driver, lasts=True)
            with pytest.raises(CommitPending, match="whether the decision to commit it was written"):
                query.commit(messages)
            fault.stop()
            query.abort(messages)
        visible = len(read_topic(kafka.bootstrap_servers, topic_name))
        assert visible == (ROWS if harm is Harm.LOSE_ANSWER else 0)
        assert open_of_tasks(kafka, settings) == []
        run_on(checkpoint, settings, 2)
        assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic_name, 2) == []


@pytest.mark.slow
@pytest.mark.parametrize("harm", [Harm.LOSE_REQUEST, Harm.LOSE_ANSWER], ids=["not-made", "made"])
def test_commits_that_are_not_answered_until_the_deadline_are_made_by_the_next_run(
    kafka: KafkaCluster, topic_name: str, harm: Harm
) -> None:
    """After the decision: the coordinators of the tasks cannot be reached, however often they are asked."""
    kafka.create_topic(topic_name, partitions=3)
    checkpoint = Checkpoint()
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        settings = settings_of(proxy.bootstrap_servers, topic_name, kafka__transaction__timeout__ms=60_000)
        with BareQuery(checkpoint, settings) as query:
            query.plan()
            messages = query.write_tasks()
            fault = proxy.on(END_TXN, harm, where=of_a_task, lasts=True)
            with pytest.raises(CommitPending, match="3 of 3 transactions are not known to be committed"):
                query.commit(messages)
            fault.stop()
            query.abort(messages)
        run_on(checkpoint, settings, 2)
        assert open_transactions(kafka.bootstrap_servers, sink_id_of(settings)) == []
    assert problems(kafka.bootstrap_servers, topic_name, 2) == []
