"""What an operator does to topics and transactions with Kafka's own tools while a batch is on its way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]  # its stubs do not re-export it

from kafka_sink.errors import CommitAborted
from tests.chaos.bare_spark import PARTITIONS
from tests.chaos.bare_stream import BareStream
from tests.chaos.clusters import TRANSACTIONS, cluster_of
from tests.chaos.outages import TRANSACTION_TOPIC, Outage
from tests.conftest import NEWEST
from tools.java import release, run_class
from tools.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LEDGER = "__pykafka_sink_ledger"
COORDINATORS = 3
ONE_REPLICA = {
    "transaction.state.log.num.partitions": COORDINATORS,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}


def ask(kafka: KafkaCluster, *words: str) -> list[list[str]]:
    """The lines of kafka-transactions.sh, without its heading."""
    lines = run_class(kafka.version, TRANSACTIONS, ["--bootstrap-server", kafka.bootstrap_servers, *words]).decode()
    return [line.split() for line in lines.splitlines()[1:]]


def test_partitions_that_are_added_to_topic_and_ledger_in_a_batch_change_nothing(
    stream_on: Callable[..., BareStream], kafka: KafkaCluster, topic_name: str
) -> None:
    ledger = f"ledger-{topic_name}"
    stream = stream_on(kafka, ledger__topic=ledger)
    with stream.query() as query:
        query.run_batch()
        query.plan()
        messages = [query.write_task(0)]
        for topic in (stream.topic, ledger):
            admin = kafka._admin()  # has to outlive its future
            admin.create_partitions([NewPartitions(topic, 2 * PARTITIONS)])[topic].result(30)
        query.commit(messages + [query.write_task(number) for number in (1, 2)])
        query.run_batch()
    stream.kill_after_the_decision()
    stream.run(2)
    stream.check(5)


@pytest.mark.slow
def test_a_transaction_that_an_operator_terminates_before_the_commit_costs_a_repetition(
    direct_stream: BareStream,
) -> None:
    if release(direct_stream.kafka.version) < (4, 1):
        pytest.skip("kafka-transactions.sh of this version has no such command")
    with direct_stream.query() as query:
        query.plan()
        messages = query.write_tasks()
        name = messages[1].receipt.transaction.transactional_id
        ask(direct_stream.kafka, "forceTerminateTransaction", "--transactionalId", name)
        with pytest.raises(CommitAborted, match=f"transaction {name} is .* another tool"):
            query.commit(messages)
        query.abort(messages)
    direct_stream.run()
    direct_stream.check(1)


@pytest.mark.slow
def test_kafkas_own_abort_in_one_partition_before_the_commit_costs_a_repetition(direct_stream: BareStream) -> None:
    """The tool writes a marker into one partition, and the coordinator does not learn of it: there the transaction
    looks open, and its commit would succeed."""
    with direct_stream.query() as query:
        query.plan()
        messages = query.write_tasks()
        place = ["--topic", direct_stream.topic, "--partition", "0"]
        starts = [int(line[-1]) for line in ask(direct_stream.kafka, "describe-producers", *place)]
        ask(direct_stream.kafka, "abort", *place, "--start-offset", str(min(starts)))
        name = messages[0].receipt.transaction.transactional_id
        with pytest.raises(CommitAborted, match=f"transaction {name} is not open in {direct_stream.topic}-0"):
            query.commit(messages)
        query.abort(messages)
    direct_stream.run()
    direct_stream.check(1)


@pytest.mark.slow
def test_batches_go_on_while_ledger_topic_and_coordinators_are_moved_from_broker_to_broker(
    stream_on: Callable[..., BareStream], tmp_path: Path
) -> None:
    with cluster_of(NEWEST, nodes=3, properties=ONE_REPLICA) as kafka:
        stream = stream_on(kafka, is_direct=True, ledger__replication__factor=1, replication_factor=1)
        stream.run()

        def move_all() -> None:
            for turn in range(6):
                homes = {TRANSACTION_TOPIC: range(COORDINATORS), LEDGER: range(1), stream.topic: range(PARTITIONS)}
                moves = [
                    {"topic": topic, "partition": one, "replicas": [(one + turn) % 3 + 1]}
                    for topic, partitions in homes.items()
                    for one in partitions
                ]
                plan = tmp_path / "plan.json"
                plan.write_text(json.dumps({"version": 1, "partitions": moves}))
                words = ["--reassignment-json-file", str(plan), "--execute", "--additional"]
                run_class(kafka.version, REASSIGN, ["--bootstrap-server", kafka.bootstrap_servers, *words])

        moving = Outage(move_all)
        moving.start()
        with stream.query() as query:
            while not moving.is_over:
                query.run_batch()
        moving.join()
        stream.run()
        stream.check()
