"""Fixtures of several files of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.conftest import FIRST_GENERATION, NEWEST

if TYPE_CHECKING:
    from kafka_sink.testing import EmbeddedBroker
    from tests.support.commanding import Shell, Sink
    from tests.support.secured_kafka import SecuredKafka
    from tools.kafka_cluster import KafkaCluster


@pytest.fixture
def broker(embedded_kafka: EmbeddedBroker) -> EmbeddedBroker:
    """The mark `embedded_kafka` of a test or a file says how it starts."""
    return embedded_kafka


@pytest.fixture
def sink(broker: EmbeddedBroker) -> Sink:
    """A sink on it, of which nothing is delivered yet; its ledger does not have the default name."""
    from tests.support.commanding import Sink

    sink = Sink(broker.bootstrap_servers, "t", "orders", "ledger")
    sink.create()
    return sink


@pytest.fixture
def sink_on_kafka(kafka: KafkaCluster, topic_name: str) -> Sink:
    """The same on Apache Kafka, with a ledger of its own."""
    from tests.support.commanding import Sink

    name = topic_name[-60:].lstrip("-")
    sink = Sink(kafka.bootstrap_servers, topic_name, name, f"ledger-{name}")
    sink.create()
    return sink


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    """Runs commands of `pykafka-sink`."""
    from tests.support.commanding import Shell

    return Shell(capsys)


@pytest.fixture
def fresh_driver() -> Iterator[None]:
    """What a driver's process keeps belongs to this test alone. Clients that an earlier test has left are closed before
    others take their place: without an owner the garbage collector would close their sockets, with a warning that fails
    whichever test runs then."""
    from kafka_sink.producer.pool import POOL
    from kafka_sink.spark import driver

    driver.CLOSINGS.value.wait()
    driver.CLIENTS.value.close()
    for kept in (driver.CLIENTS, driver.DRIVERS, driver.ANSWERS):
        kept.renew()
    yield
    driver.CLOSINGS.value.wait()
    driver.CLIENTS.value.close()
    POOL.close()


@pytest.fixture(params=[NEWEST, FIRST_GENERATION])
def secured(request: pytest.FixtureRequest, secured_kafka_of: Callable[[str], SecuredKafka]) -> SecuredKafka:
    """A test that uses this runs with both versions."""
    return secured_kafka_of(request.param)
