"""Many threads share one producer, with the interpreter's shortest switch interval."""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Iterator

import pyarrow as pa
import pytest

from kafka_sink import Producer
from kafka_sink.errors import BufferExhausted
from tests.chaos.extent import NEWEST_MAINLY
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster

TIMEOUT_S = 300
THREADS = 8


@pytest.fixture
def hectic() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run_in_threads(work: object) -> None:
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)  # type: ignore[operator]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert not any(thread.is_alive() for thread in threads)
    assert not failures


def orders(kafka: KafkaCluster, topic: str) -> dict[tuple[int, bytes], list[int]]:
    """By partition and thread: the numbers in the order of the log."""
    found: dict[tuple[int, bytes], list[int]] = defaultdict(list)
    for record in read_topic(kafka.bootstrap_servers, topic):
        assert record.value is not None
        thread, number = record.value.split(b"-")
        found[record.partition, thread].append(int(number))
    return found


@NEWEST_MAINLY
@pytest.mark.usefixtures("hectic")
@pytest.mark.parametrize("linger_ms", [0, 5])
def test_records_of_many_threads_arrive_once_and_in_the_order_of_each_thread(
    kafka: KafkaCluster, topic_name: str, linger_ms: int
) -> None:
    kafka.create_topic(topic_name, partitions=3)
    callbacks: list[int] = []
    options = {"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": linger_ms, "batch.size": 2000}
    with Producer(options) as producer:

        def work(thread: int) -> None:
            for number in range(0, 2000, 10):
                for each in range(number, number + 5):
                    producer.send(
                        topic_name, b"%d-%d" % (thread, each), partition=thread % 3,
                        on_delivery=lambda metadata, error: callbacks.append(metadata.offset),  # type: ignore[union-attr]
                    )  # fmt: skip
                rows = [b"%d-%d" % (thread, each) for each in range(number + 5, number + 10)]
                partitions = pa.array([thread % 3] * 5, pa.int32())
                future = producer.send_arrow(pa.table({"value": rows, "partition": partitions}), topic_name)
                if number % 500 == 0:
                    producer.flush()
                    assert future.done()
                if number % 300 == 0:
                    assert future.result(TIMEOUT_S).row_count == 5

        run_in_threads(work)
    assert len(callbacks) == THREADS * 1000
    assert orders(kafka, topic_name) == {
        (thread % 3, b"%d" % thread): list(range(2000)) for thread in range(THREADS)
    }  # fmt: skip


@pytest.mark.usefixtures("hectic")
def test_a_buffer_that_is_always_full_loses_nothing_and_is_empty_in_the_end(
    kafka_4: KafkaCluster, topic_name: str
) -> None:
    kafka_4.create_topic(topic_name, partitions=2)
    options = {
        "bootstrap.servers": kafka_4.bootstrap_servers, "buffer.memory": 20_000, "batch.size": 1000,
        "client.id": "full",
    }  # fmt: skip
    with Producer(options) as producer:

        def work(thread: int) -> None:
            for number in range(300):
                if number % 7 == 0:
                    partition = pa.array([thread % 2], pa.int32())
                    table = pa.table({"value": [b"%d-%d" % (thread, number)], "partition": partition})
                    producer.send_arrow(table, topic_name)
                else:
                    value = b"%d-%d" % (thread, number)
                    producer.send(topic_name, value, key=bytes(100 * (number % 9)), partition=thread % 2)

        run_in_threads(work)
        producer.flush()
        free_bytes = producer.metrics()["producer-metrics", "buffer-available-bytes", (("client-id", "full"),)]
        assert free_bytes == 20_000
    assert orders(kafka_4, topic_name) == {
        (thread % 2, b"%d" % thread): list(range(300)) for thread in range(THREADS)
    }  # fmt: skip


@pytest.mark.usefixtures("hectic")
def test_closing_under_fire_ends_every_send_and_every_future(kafka_4: KafkaCluster, topic_name: str) -> None:
    kafka_4.create_topic(topic_name)
    for timeout_s in (0, None):
        producer = Producer({"bootstrap.servers": kafka_4.bootstrap_servers, "linger.ms": 1})
        producer.partitions_for(topic_name)
        futures = []
        started = threading.Barrier(THREADS)

        def work(thread: int) -> None:
            started.wait()  # noqa: B023
            if thread == 0:
                producer.close(timeout_s)  # noqa: B023
                return
            try:
                for number in range(100_000):
                    futures.append(producer.send(topic_name, b"%d-%d" % (thread, number)))  # noqa: B023
            except Exception as error:
                assert "the producer is closed" in str(error)

        run_in_threads(work)
        assert all(future.done() for future in futures)
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("kafka-sink-sender")]


def test_waiting_for_room_is_first_come_first_served(kafka_4: KafkaCluster, topic_name: str) -> None:
    """Small records do not overtake a large one for ever."""
    kafka_4.create_topic(topic_name)
    options = {"bootstrap.servers": kafka_4.bootstrap_servers, "buffer.memory": 50_000, "max.block.ms": 30_000}
    with Producer(options) as producer:
        stop = threading.Event()

        def small() -> None:
            while not stop.is_set():
                producer.send(topic_name, bytes(500))

        threads = [threading.Thread(target=small) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            futures = [producer.send(topic_name, bytes(49_000)) for _ in range(5)]
        finally:
            stop.set()
            for thread in threads:
                thread.join(TIMEOUT_S)
        assert [len({future.result(TIMEOUT_S).partition}) for future in futures] == [1] * 5


def test_a_full_buffer_and_no_patience_fail_at_once_with_the_options_in_the_text(
    kafka_4: KafkaCluster, topic_name: str
) -> None:
    kafka_4.create_topic(topic_name)
    options = {
        "bootstrap.servers": kafka_4.bootstrap_servers, "linger.ms": 60_000, "queue.buffering.max.messages": 2,
        "queue.enqueue.timeout.ms": 5000,
    }  # fmt: skip
    with Producer(options) as patient:
        offsets = [patient.send(topic_name, b"v") for _ in range(5)]
        patient.flush()
        assert [future.result(0).offset for future in offsets] == list(range(5))
    with Producer({"bootstrap.servers": kafka_4.bootstrap_servers, "buffer.memory": 1000}) as producer:
        producer.send(topic_name, b"v").result(TIMEOUT_S)
        producer._appender.buffer_pool.max_block_ms = 0

        def fill() -> None:
            for _ in range(100):
                producer.send(topic_name, bytes(500))

        with pytest.raises(BufferExhausted, match=r"max\.block\.ms=0: \d+ of buffer\.memory=1000 bytes"):
            fill()
