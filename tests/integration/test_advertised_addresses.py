"""The bootstrap server answers but advertises an address that leads nowhere, the most frequent mistake with Kafka in a
container. The error names that address and where it comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kafka_sink import Producer
from kafka_sink.errors import BufferExhausted, DeliveryTimeout, KafkaSinkError, OperationTimeout
from kafka_sink.testing import EmbeddedBroker

ADVERTISED = "kafka-in-a-container.invalid"
LIMIT_MS = 1_000
OPTIONS = {"max.block.ms": LIMIT_MS, "request.timeout.ms": 500, "delivery.timeout.ms": LIMIT_MS, "linger.ms": 0}
PATIENT = {**OPTIONS, "delivery.timeout.ms": 60_000}


@pytest.fixture
def server() -> Iterator[str]:
    with EmbeddedBroker(topics={"rows": 1}) as kafka:
        address = kafka.bootstrap_servers
        kafka.do(lambda core: setattr(core.cluster.brokers[1], "host", ADVERTISED))
        yield address


def deliver(producer: Producer) -> None:
    producer.send("rows", b"v").result()


def wait_a_moment(producer: Producer) -> None:
    producer.send("rows", b"v").result(LIMIT_MS / 1000)


def flush(producer: Producer) -> None:
    producer.send("rows", b"v")
    producer.flush(LIMIT_MS / 1000)


def fill(producer: Producer) -> None:
    for _ in range(100):
        producer.send("rows", bytes(1000))


def close(producer: Producer) -> None:
    producer.send("rows", b"v")
    producer.close(LIMIT_MS / 1000)


@pytest.mark.parametrize(
    ("call", "options", "error"),
    [
        (deliver, OPTIONS, DeliveryTimeout),
        (wait_a_moment, PATIENT, OperationTimeout),
        (flush, PATIENT, OperationTimeout),
        (fill, {**PATIENT, "buffer.memory": 5_000}, BufferExhausted),
        (Producer.init_transactions, {**PATIENT, "transactional.id": "one"}, OperationTimeout),
        (close, PATIENT, OperationTimeout),
    ],
)
def test_whatever_runs_out_of_time_names_the_address_and_who_advertises_it(
    server: str, call: Callable[[Producer], object], options: dict[str, object], error: type[KafkaSinkError]
) -> None:
    producer = Producer({"bootstrap.servers": server, **options})
    try:
        with pytest.raises(error, match=rf"{ADVERTISED}:\d+ \(node 1\) was not resolved.*node 1 advertises this"):
            call(producer)
    finally:
        producer.close(0)
