"""Tests with special clusters: ids that expire, a transaction version that changes, slow markers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_sink import Producer
from kafka_sink.errors import CommitLost
from kafka_sink.kafka.client.ask import Coordinators
from kafka_sink.kafka.wire.apis import DESCRIBE_TRANSACTIONS, END_TXN
from tests.chaos.bare_spark import PARTITIONS, ROWS, Killed
from tests.chaos.bare_stream import BareStream
from tests.chaos.clusters import cluster_of
from tests.chaos.outages import TRANSACTION_TOPIC
from tests.conftest import FIRST_GENERATION, NEWEST
from tests.support.asking import answers_to, client_of, request
from tests.support.commanding import Shell
from tests.support.faults import Harm, is_drivers, of_a_task, of_the_driver
from tools.java import run_class
from tools.kafka_cluster import KafkaCluster
from tools.listed_transactions import listed_transactions
from tools.waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600)]

FORGETFUL = {
    "transactional.id.expiration.ms": 4000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 500,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "producer.id.expiration.ms": 2000,
    "producer.id.expiration.check.interval.ms": 500,
}
FORGOTTEN_S = 90
NOT_FOUND = 105  # TRANSACTIONAL_ID_NOT_FOUND
FOREIGN = bytes(100_000)


def change_transaction_version(kafka: KafkaCluster, old: int, new: int) -> None:
    way = "upgrade" if new > old else "downgrade"
    arguments = ["--bootstrap-server", kafka.bootstrap_servers, way, "--feature", f"transaction.version={new}"]
    run_class(kafka.version, "org.apache.kafka.tools.FeatureCommand", arguments)

    def is_seen() -> bool:
        with client_of(kafka.bootstrap_servers) as client:
            return (client.transaction_support().transaction_version >= 2) == (new >= 2)

    wait_until(is_seen, f"transaction.version {new} is known to the brokers")


@pytest.mark.parametrize(("old", "new"), [(2, 1), (1, 2)], ids=["lowered", "raised"])
def test_a_transaction_version_that_changes_between_a_task_and_its_commit_changes_nothing(
    stream_on: Callable[..., BareStream], old: int, new: int
) -> None:
    """Each transaction ends by the rules of the version in which it began."""
    with cluster_of(NEWEST, transaction_version=old) as kafka:
        stream = stream_on(kafka, is_direct=True)
        with stream.query() as query:
            query.run_batch()
            query.plan()
            messages = query.write_tasks()
            change_transaction_version(kafka, old, new)
            query.commit(messages)
            query.run_batch()
        stream.run(2)
        stream.check(5)


def ids_of(stream: BareStream) -> list[str]:
    with client_of(stream.kafka.bootstrap_servers) as client:
        listed = {row["transactional_id"] for row in listed_transactions(client)}
    return sorted(name for name in listed if name.startswith(f"{stream.sink_id}-"))


def wait_until_forgotten(stream: BareStream, ids: list[str]) -> None:
    """Until the coordinator knows none of these ids, of the tasks and of the driver."""
    assert len(ids) > 1 and any(map(is_drivers, ids)), ids
    ask = request(Coordinators(tuple(ids)), DESCRIBE_TRANSACTIONS, {"transactional_ids": ids})
    with client_of(stream.kafka.bootstrap_servers) as client:

        def codes() -> set[int]:
            (reply,) = answers_to(client, ask)
            return {row["error_code"] for body in reply.bodies for row in body["transaction_states"]}

        wait_until(lambda: codes() == {NOT_FOUND}, lambda: f"the ids are forgotten: {codes()}", FORGOTTEN_S, poll_s=0.5)


@pytest.mark.parametrize("version", [NEWEST, FIRST_GENERATION])
def test_a_query_that_was_idle_until_the_brokers_forgot_its_ids_goes_on(
    stream_on: Callable[..., BareStream], version: str
) -> None:
    """Days later. Spark keeps an idle Python process for a minute, so the driver has another process by then."""
    with cluster_of(version, properties=FORGETFUL) as kafka:
        stream = stream_on(kafka, is_direct=True)
        with stream.query() as query:
            query.run_batch()
            wait_until_forgotten(stream, ids_of(stream))
            query.end_worker("commit")
            query.run_batch()
        stream.check(2)


@pytest.mark.parametrize("version", [NEWEST, FIRST_GENERATION])
def test_a_decision_whose_ids_the_brokers_have_forgotten_is_reported_by_what_the_log_says(
    stream_on: Callable[..., BareStream], version: str
) -> None:
    """The driver dies between the commits of its tasks. Before it is back, the ids have expired, those of committed
    transactions and those that timed out: the coordinator knows none of them."""
    with cluster_of(version, properties=FORGETFUL) as kafka:
        stream = stream_on(kafka, kafka__transaction__timeout__ms=20_000)
        stream.kill_after_the_decision(nth=3)
        ids = ids_of(stream)
        assert stream.open(patience_s=60) == []
        wait_until_forgotten(stream, ids)
        texts = set()
        for _ in range(2):
            with pytest.raises(CommitLost) as caught:
                stream.run()
            texts.add(str(caught.value))
        assert stream.open() == []
        (text,) = texts
        hidden = ROWS - stream.times_seen().total()
        assert f"Not committed, rows not visible: {hidden} rows of Spark partition" in text
        assert "can no longer be read" not in text


@pytest.mark.parametrize("version", [NEWEST, FIRST_GENERATION])
def test_a_committed_batch_whose_ids_are_forgotten_is_told_and_finished_by_its_rows(
    stream_on: Callable[..., BareStream], version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The driver dies before the record that closes its decision. Others write to the topic; then the ids expire."""
    with cluster_of(version, properties=FORGETFUL) as kafka:
        stream = stream_on(kafka)
        with stream.query() as query:
            query.plan()
            messages = query.write_tasks()
            stream.proxy.on(END_TXN, Harm.LOSE_REQUEST, nth=2, where=of_the_driver, before=query.strike)
            with pytest.raises(Killed):
                query.commit(messages)
        ids = ids_of(stream)
        with Producer({"bootstrap.servers": kafka.bootstrap_servers, "batch.size": 500_000}) as producer:
            for number in range(60):
                producer.send(stream.topic, value=FOREIGN, partition=number % PARTITIONS)
        wait_until_forgotten(stream, ids)
        shell, servers = Shell(capsys), ("--bootstrap-server", kafka.bootstrap_servers)
        kinds = {found["kind"] for found in shell("status", *servers, "--json").content["findings"]}
        assert "overdue" not in kinds
        assert "committed" in shell("ledger", *servers, "--sink-id", stream.sink_id).out
        assert shell("recover", *servers, "--sink-id", stream.sink_id).exit_code == 0
        seen = stream.times_seen()
        assert seen.pop(FOREIGN) == 60 and seen.total() == ROWS and max(seen.values()) == 1


def test_a_commit_whose_markers_are_late_shows_its_rows_later(stream_on: Callable[..., BareStream]) -> None:
    """EndTxn is answered when the coordinator has decided. A leader of rows is paused at that moment."""
    alone = {
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        "broker.session.timeout.ms": 60_000,
    }
    with cluster_of(NEWEST, nodes=3, properties=alone) as kafka:
        stream = stream_on(kafka, replication_factor=1, ledger__replication__factor=1)
        with stream.query() as query:
            query.run_batch()
            needed = {kafka.leader_of(TRANSACTION_TOPIC, 0), kafka.leader_of("__pykafka_sink_ledger", 0)}
            victim = next(node for node in kafka.node_ids if node not in needed)
            assert victim in {kafka.leader_of(stream.topic, partition) for partition in range(PARTITIONS)}
            query.plan()
            messages = query.write_tasks()
            fault = stream.proxy.on(END_TXN, Harm.DELAY_REQUEST, where=of_a_task, before=lambda: kafka.pause(victim))
            query.commit(messages)
            assert fault.has_acted
            kafka.resume(victim)
            assert stream.open(patience_s=30) == []
            assert stream.problems(2) == []
            query.run_batch()
        assert stream.problems(3) == []
