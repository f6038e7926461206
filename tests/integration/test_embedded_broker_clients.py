"""Other clients against the embedded broker over TCP: each of them reads what the others write.

confluent-kafka (librdkafka), kafka-python, aiokafka and the Java console tools: idempotent and transactional writes,
reads from the beginning with read_committed, alone and in a group. None of them shares code with this package.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TopicPartition

from kafka_sink.testing import EmbeddedBroker, Fault
from tests.conftest import without_kafka
from tools.java import run_class
from tools.kafka_jars import KafkaUnavailable

TOPIC = "rows"
PARTITIONS = 3
WAIT_S = 90
JAVA_WAIT_S = 250
COMMITTED = [f"committed-{number}".encode() for number in range(30)]
ABORTED = [f"aborted-{number}".encode() for number in range(10)]


@pytest.fixture(params=["2", "0"], ids=["transactions-v2", "transactions-v1"])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    properties = {"transaction.version": request.param}
    with EmbeddedBroker(3, topics={TOPIC: PARTITIONS}, properties=properties) as embedded:
        yield embedded


# ---- writers: COMMITTED in committed transactions, ABORTED in an aborted one between them ----


def plan() -> list[tuple[Sequence[bytes], bool]]:
    return [(COMMITTED[:15], True), (ABORTED, False), (COMMITTED[15:], True)]


def write_with_confluent(servers: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": "confluent"})
    producer.init_transactions(WAIT_S)
    for values, commit in plan():
        producer.begin_transaction()
        for value in values:
            producer.produce(TOPIC, value, key=value)
        assert producer.flush(WAIT_S) == 0
        if commit:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)


def write_with_kafka_python(servers: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id="kafka-python")
    producer.init_transactions()
    for values, commit in plan():
        producer.begin_transaction()
        for future in [producer.send(TOPIC, value, key=value) for value in values]:
            future.get(WAIT_S)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()


def write_with_aiokafka(servers: str) -> None:
    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id="aiokafka")
        await producer.start()
        try:
            for values, commit in plan():
                await producer.begin_transaction()
                for value in values:
                    await producer.send_and_wait(TOPIC, value, key=value)
                if commit:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(write(), WAIT_S))


# ---- readers: all committed values from the beginning ----


def read_with_confluent(servers: str, count: int) -> list[bytes]:
    """Reads in a group and commits: the second reader of the group must find nothing new."""
    config = {
        "bootstrap.servers": servers,
        "group.id": "confluent",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
    }
    consumer = confluent_kafka.Consumer(config)
    consumer.subscribe([TOPIC])
    values: list[bytes] = []
    try:
        while len(values) < count:
            message = consumer.poll(WAIT_S)
            assert message is not None and message.error() is None, f"after {len(values)}: {message}"
            assert message.timestamp()[0] == TIMESTAMP_CREATE_TIME
            values.append(message.value())
        consumer.commit(asynchronous=False)
        positions = consumer.committed([TopicPartition(TOPIC, number) for number in range(PARTITIONS)], timeout=WAIT_S)
        assert any(position.offset > 0 for position in positions)
    finally:
        consumer.close()
    return values


def read_with_kafka_python(servers: str, count: int) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        TOPIC,
        bootstrap_servers=servers,
        group_id="kafka-python",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=WAIT_S * 1000,
    )
    values: list[bytes] = []
    for message in consumer:
        values.append(message.value)
        if len(values) == count:
            break
    consumer.close()
    return values


def read_with_aiokafka(servers: str, count: int) -> list[bytes]:
    async def read() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(
            TOPIC,
            bootstrap_servers=servers,
            group_id="aiokafka",
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await consumer.start()
        try:
            return [(await consumer.getone()).value for _ in range(count)]
        finally:
            await consumer.stop()

    return asyncio.run(asyncio.wait_for(read(), WAIT_S))


def run_java(version: str, main_class: str, *arguments: str, stdin: bytes = b"") -> bytes:
    try:
        return run_class(version, main_class, arguments, input_bytes=stdin, timeout_s=JAVA_WAIT_S)
    except KafkaUnavailable as missing:
        without_kafka(str(missing))
        raise


def read_with_java(servers: str, count: int, version: str = "4.3.1", *more: str) -> list[bytes]:
    output = run_java(
        version,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server",
        servers,
        "--topic",
        TOPIC,
        "--from-beginning",
        "--isolation-level",
        "read_committed",
        "--max-messages",
        str(count),
        "--timeout-ms",
        str(WAIT_S * 1000),
        *more,
    )
    return output.splitlines()


READERS: dict[str, Callable[[str, int], list[bytes]]] = {
    "confluent": read_with_confluent,
    "kafka-python": read_with_kafka_python,
    "aiokafka": read_with_aiokafka,
}
WRITERS = {
    "confluent": write_with_confluent,
    "kafka-python": write_with_kafka_python,
    "aiokafka": write_with_aiokafka,
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("writer", WRITERS)
def test_every_reader_sees_the_committed_records_of_a_writer_and_no_aborted_ones(
    cluster: EmbeddedBroker, writer: str
) -> None:
    WRITERS[writer](cluster.bootstrap_servers)
    for name, read in READERS.items():
        assert sorted(read(cluster.bootstrap_servers, len(COMMITTED))) == sorted(COMMITTED), name


@pytest.mark.timeout(300)
@pytest.mark.parametrize("cluster", ["2", pytest.param("0", marks=pytest.mark.slow)], indirect=True)
def test_the_java_consumer_sees_the_committed_records_of_all_writers_and_no_aborted_ones(
    cluster: EmbeddedBroker,
) -> None:
    """All clients write first, so that one JVM reads everything."""
    for write in WRITERS.values():
        write(cluster.bootstrap_servers)
    written = COMMITTED * len(WRITERS)
    assert sorted(read_with_java(cluster.bootstrap_servers, len(written))) == sorted(written)


# The transaction version of the cluster, and the version of Java's clients: in every run each with its own.
WITH_JAVA = pytest.mark.parametrize(
    ("cluster", "version"),
    [
        ("2", "4.3.1"),
        ("0", "3.9.1"),
        pytest.param("0", "4.3.1", marks=pytest.mark.slow),
        pytest.param("2", "3.9.1", marks=pytest.mark.slow),
    ],
    indirect=["cluster"],
)


@pytest.mark.timeout(300)
@WITH_JAVA
def test_the_java_console_tools_write_and_read(cluster: EmbeddedBroker, version: str) -> None:
    lines = [f"line {number}".encode() for number in range(500)]
    package = "org.apache.kafka.tools" if version.startswith("4.") else "kafka.tools"
    run_java(
        version,
        f"{package}.ConsoleProducer",
        "--bootstrap-server",
        cluster.bootstrap_servers,
        "--topic",
        TOPIC,
        "--compression-codec",
        "lz4",
        stdin=b"\n".join(lines),
    )
    group = ("--group", "console")
    assert sorted(read_with_java(cluster.bootstrap_servers, len(lines), version, *group)) == sorted(lines)


@pytest.mark.timeout(300)
@WITH_JAVA
def test_transactions_of_the_java_producer_are_read_back(cluster: EmbeddedBroker, version: str) -> None:
    """Transactions of 50 ms each, about five of them; with version 2 the 4.3.1 client uses transaction version 2."""
    run_java(
        version,
        "org.apache.kafka.tools.ProducerPerformance",
        "--topic",
        TOPIC,
        "--num-records",
        "300",
        "--record-size",
        "20",
        "--throughput",
        "1000",
        "--transactional-id",
        "java",
        "--transaction-duration-ms",
        "50",
        "--producer-props",
        f"bootstrap.servers={cluster.bootstrap_servers}",
        "compression.type=zstd",
    )
    assert len(read_with_confluent(cluster.bootstrap_servers, 300)) == 300
    transaction = cluster.do(lambda core: core.coordinator.transactions["java"].record)
    assert transaction.state.value == "CompleteCommit"
    is_version_2 = version == "4.3.1" and cluster.core.settings.text("transaction.version") == "2"
    assert (transaction.version == 2) is is_version_2
    assert (transaction.producer_epoch > 1) is is_version_2


def test_offsets_sent_in_a_transaction_appear_with_its_commit_only(cluster: EmbeddedBroker) -> None:
    servers = cluster.bootstrap_servers
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "copy"})
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": "copy"})
    producer.init_transactions(WAIT_S)

    def committed() -> int:
        return int(consumer.committed([TopicPartition(TOPIC, 0)], timeout=WAIT_S)[0].offset)

    for offset, commit in ((5, True), (9, False)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            [TopicPartition(TOPIC, 0, offset)], consumer.consumer_group_metadata(), WAIT_S
        )
        if commit:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)
    assert committed() == 5
    consumer.close()


def test_a_writer_survives_faults_leader_moves_and_a_broker_that_restarts(cluster: EmbeddedBroker) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 1,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    failures: list[str] = []

    def delivered(error: confluent_kafka.KafkaError | None, _message: confluent_kafka.Message) -> None:
        if error is not None:
            failures.append(str(error))

    cluster.inject(Fault("Produce", disconnect=True, after_apply=True, times=3))
    cluster.inject(Fault("Produce", error_code=6, times=2))
    values = [f"value {number}".encode() for number in range(600)]
    for number, value in enumerate(values):
        producer.produce(TOPIC, value, on_delivery=delivered)
        producer.poll(0)
        if number == 200:
            cluster.do(lambda core: core.cluster.move_leader(TOPIC, 0, 2))
        if number == 300:
            cluster.stop_broker(3)
        if number == 500:
            assert producer.flush(WAIT_S) == 0
            cluster.start_broker(3)
    assert producer.flush(WAIT_S) == 0
    assert failures == []
    assert sorted(read_with_confluent(cluster.bootstrap_servers, len(values))) == sorted(values)
