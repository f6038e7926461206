"""`pykafka-sink readers`: what readers of a topic see and wait for. confluent-kafka is the group that reads.

Embedded broker and Apache Kafka.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafka_sink import Producer
from kafka_sink.commit.describe_transactions import TransactionDescription
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.kafka.client.ask import Leader
from kafka_sink.kafka.wire.apis import DESCRIBE_PRODUCERS
from kafka_sink.operate.cli.readers import ReaderFacts, reader_word
from kafka_sink.operate.status.facts import ClusterFacts
from kafka_sink.testing import EmbeddedBroker, Fault, acl
from kafka_sink.testing.acl import Acl
from tests.integration.statuses import FOREIGN, age, begin_foreign, forget, wall_ms
from tests.support.asking import client_of
from tests.support.commanding import ROWS_PER_TASK, Said, Shell, Sink
from tools.kafka_cluster import KafkaCluster

BATCH, NEXT = BatchKey("query-1", 0), BatchKey("query-1", 1)
GROUP = "billing"


def readers(shell: Shell, sink: Sink, *words: str) -> Said:
    return shell("readers", "--bootstrap-server", sink.servers, "--topic", sink.topic, *words)


def told(shell: Shell, sink: Sink, *words: str) -> list[dict[str, Any]]:
    partitions: list[dict[str, Any]] = readers(shell, sink, "--json", *words).content["partitions"]
    return partitions


def commit(sink: Sink, *offsets: int) -> None:
    """The group has processed each partition up to here."""
    consumer = Consumer({"bootstrap.servers": sink.servers, "group.id": GROUP})
    where = [TopicPartition(sink.topic, partition, offset) for partition, offset in enumerate(offsets)]
    consumer.commit(offsets=where, asynchronous=False)
    consumer.close()


def check_progress(sink: Sink, shell: Shell) -> None:
    sink.deliver(BATCH)
    row, other = told(shell, sink)
    assert (row["committed"], row["last_record"], row["stable"], row["end"], row["readers"]) == (
        None, ROWS_PER_TASK - 1, ROWS_PER_TASK + 1, ROWS_PER_TASK + 1, "see everything"
    )  # fmt: skip
    commit(sink, ROWS_PER_TASK, 4)
    row, other = told(shell, sink, "--group", GROUP)
    assert (row["committed"], row["readers"]) == (ROWS_PER_TASK, "caught up, only markers remain")
    assert (other["committed"], other["readers"]) == (4, f"{ROWS_PER_TASK + 1 - 4} offsets to read")
    assert [each["readers"] for each in told(shell, sink, "--group", "unheard-of")] == [
        "the group has committed nothing"
    ] * 2


def test_how_far_a_group_is_and_that_only_markers_remain(sink: Sink, shell: Shell) -> None:
    check_progress(sink, shell)


def test_how_far_a_group_is_on_apache_kafka(sink_on_kafka: Sink, shell: Shell) -> None:
    sink = sink_on_kafka
    check_progress(sink, shell)
    sink.task(NEXT, 6)
    row, other = told(shell, sink)
    assert f"wait for a transaction of sink {sink.sink_id}, open for " in row["readers"] and not other["waits_for"]


def test_the_time_that_leaders_tell_of_a_producer_is_that_of_its_rows(kafka: KafkaCluster, topic_name: str) -> None:
    """So it does not tell for how long a transaction has been open (operate/status/hanging.py)."""
    kafka.create_topic(topic_name, 1)
    with Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic_name}) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic_name, b"of 1970", timestamp_ms=1_000, partition=0).result(60)
            with client_of(kafka.bootstrap_servers) as client:
                asked = {"topics": [{"name": topic_name, "partition_indexes": [0]}]}
                answer = client.ask(Leader(topic_name, 0), DESCRIBE_PRODUCERS, asked)
    (one,) = answer["topics"][0]["partitions"][0]["active_producers"]
    assert (one["last_timestamp"], one["current_txn_start_offset"]) == (1_000, 0)


def test_whom_readers_wait_for_since_when_and_until_when(sink: Sink, broker: EmbeddedBroker, shell: Shell) -> None:
    sink.deliver(BATCH)
    sink.task(NEXT, 6)
    row, other = told(shell, sink)
    (one,) = row["waits_for"]
    assert one["transactional_id"] == f"orders-{sink.run}-6-0"
    assert 0 <= one["age_ms"] < 300_000 and one["ends_at_ms"] > wall_ms()
    assert re.fullmatch(
        r"wait for a transaction of sink orders, open for \d+ s; it ends at 20\d\d-\d\d-\d\d \S+ UTC at the latest",
        row["readers"],
    )
    assert (other["waits_for"], other["readers"]) == ([], "see everything")
    assert readers(shell, sink).exit_code == 0, "a task writes"
    begin_foreign(sink.servers, "t")
    age(broker, FOREIGN)
    said = readers(shell, sink)
    assert said.exit_code == 1 and f"wait for 2 transactions, the oldest of '{FOREIGN}', open for 3 min" in said.out
    assert f"transactions --abort --bootstrap-server {sink.servers} --transactional-id {FOREIGN}" in said.out


def test_readers_that_wait_for_a_decision_are_told_the_command_and_those_that_wait_for_ever_too(
    sink: Sink, broker: EmbeddedBroker, shell: Shell
) -> None:
    receipts = sink.decide_and_die(BATCH)
    said = readers(shell, sink)
    assert said.exit_code == 2 and f"    {sink.command('recover')}\n" in said.out
    for receipt in receipts:
        assert receipt.transaction is not None
        forget(broker, receipt.transaction.transactional_id)
    said = readers(shell, sink)
    assert said.exit_code == 2 and "wait for ever: a transaction hangs" in said.out


def test_a_topic_of_which_no_sink_knows_has_readers_too(broker: EmbeddedBroker, shell: Shell) -> None:
    sink = Sink(broker.bootstrap_servers, "t", "orders", "ledger")
    missing = readers(shell, sink)
    assert missing.exit_code == 2 and "topic t: " in missing.err
    broker.create_topic("t", 1)
    (row,) = told(shell, sink)
    assert (row["last_record"], row["end"], row["readers"]) == (None, 0, "see everything")
    begin_foreign(sink.servers, "t")
    assert "wait for a transaction of 'billing'" in readers(shell, sink).out
    age(broker, FOREIGN)
    assert readers(shell, sink).exit_code == 1


def test_who_may_read_and_nothing_else_is_not_told_that_a_healthy_transaction_hangs(shell: Shell) -> None:
    allowed = [Acl("User:ann", acl.READ, acl.TOPIC, "t"), Acl("User:bill", acl.WRITE, acl.TOPIC, "t")]
    allowed.append(Acl("User:bill", acl.WRITE, acl.TRANSACTIONAL_ID, FOREIGN))
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    as_bill, as_ann = ({**login, "sasl.username": name, "sasl.password": name} for name in ("bill", "ann"))
    with EmbeddedBroker(users={"ann": "ann", "bill": "bill"}, acls=allowed) as broker:
        broker.create_topic("t", 1)
        begin_foreign(broker.bootstrap_servers, "t", login=as_bill)
        words = [word for name, value in as_ann.items() for word in ("--option", f"kafka.{name}={value}")]
        said = readers(shell, Sink(broker.bootstrap_servers, "t", "orders", "ledger"), *words)
        assert said.exit_code == 0 and "wait for ever" not in said.out, said
        assert re.search(r"wait for producer id \d+, which no coordinator lists to this principal", said.out)
        assert "is Describe on its transactional id missing?" in said.out


def test_a_group_that_may_not_be_described_is_named(shell: Shell) -> None:
    users = {"admin": "admin", "ann": "ann"}
    allowed = [Acl("User:ann", acl.DESCRIBE, acl.TOPIC, "t"), Acl("User:ann", acl.READ, acl.TOPIC, "t")]
    with EmbeddedBroker(users=users, acls=allowed, properties={"super.users": "User:admin"}) as broker:
        broker.create_topic("t", 1)
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        options = {**login, "sasl.username": "ann", "sasl.password": "ann"}
        words = [word for name, value in options.items() for word in ("--option", f"kafka.{name}={value}")]
        sink = Sink(broker.bootstrap_servers, "t", "orders", "ledger")
        assert readers(shell, sink, *words).exit_code == 0
        said = readers(shell, sink, *words, "--group", GROUP)
        assert said.exit_code == 4 and f"not authorized to describe group {GROUP}" in said.err


def test_a_group_whose_coordinator_is_loading_or_on_another_broker_is_asked_again(shell: Shell) -> None:
    with EmbeddedBroker(brokers=3) as broker:
        sink = Sink(broker.bootstrap_servers, "t", "orders", "ledger")
        sink.create()
        sink.deliver(BATCH)
        commit(sink, 1, 2)
        loading = [Fault("FindCoordinator", error_code=15), Fault("OffsetFetch", error_code=14, times=3)]
        for fault in loading:
            broker.inject(fault)
        rows = told(shell, sink, "--group", GROUP)
    assert [row["committed"] for row in rows] == [1, 2]


# ---- words -----------------------------------------------------------------------------------------------------------

NOW_MS = 1_700_000_000_000
ONE = TransactionDescription("billing", "Ongoing", 1, 0, 60_000, NOW_MS - 5_000, (("t", 0),))
WAITS = "wait for a transaction of 'billing', open for 5 s; it ends at 2023-11-14 22:14:15 UTC at the latest"
SEEN = ReaderFacts(0, committed=None, last=9, stable=11, end=11, waits_for=(), hangs=False)
CASES = [
    (SEEN, True, "the group has committed nothing"),
    (SEEN, False, "see everything"),
    (replace(SEEN, committed=11), True, "caught up"),
    (replace(SEEN, committed=10), True, "caught up, only markers remain"),
    (replace(SEEN, committed=9), True, "2 offsets to read"),
    (replace(SEEN, committed=0, last=None), True, "caught up, only markers remain"),
    # Nothing but markers within reach, and the group is further behind than that.
    (replace(SEEN, committed=0, last=None, stable=10_001, end=10_001), True, "10001 offsets to read"),
    (replace(SEEN, end=13), False, "2 offsets are about to be seen"),
    (replace(SEEN, end=13, hangs=True), False, "wait for ever: a transaction hangs"),
    (
        replace(SEEN, end=13, unlisted=4711), False,
        "wait for producer id 4711, which no coordinator lists to this principal",
    ),
    (
        replace(SEEN, end=13, committed=11, waits_for=(ONE,)), True,
        f"caught up; {WAITS}",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "has_group", "words"), CASES, ids=[words for _, _, words in CASES])
def test_what_is_said_of_a_partition(facts: ReaderFacts, has_group: bool, words: str) -> None:
    assert reader_word(facts, ClusterFacts(NOW_MS, "here", ()), has_group=has_group) == words
