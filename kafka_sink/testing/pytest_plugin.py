"""A pytest plugin: the fixture `embedded_kafka` is a running Kafka with one broker, fresh for each test, and
`embedded_registry` a schema registry.

    def test_my_sink(embedded_kafka):
        embedded_kafka.create_topic("events", partitions=3)
        write_rows({"bootstrap.servers": embedded_kafka.bootstrap_servers})

Set broker properties and the number of brokers with a marker:

    @pytest.mark.embedded_kafka(brokers=3, topics={"events": 6}, properties={"transaction.version": "0"})
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafka_sink.testing.registry.server import EmbeddedRegistry
    from kafka_sink.testing.server import EmbeddedBroker

MARKER = "embedded_kafka"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARKER}(brokers, topics, properties): how the fixture {MARKER} starts its cluster"
    )


@pytest.fixture
def embedded_kafka(request: pytest.FixtureRequest) -> Iterator[EmbeddedBroker]:
    # Imported here: the plugin is loaded in every run, and most need no broker.
    from kafka_sink.testing.server import EmbeddedBroker

    marker = request.node.get_closest_marker(MARKER)
    with EmbeddedBroker(*marker.args, **marker.kwargs) if marker is not None else EmbeddedBroker() as kafka:
        yield kafka


@pytest.fixture
def embedded_registry() -> Iterator[EmbeddedRegistry]:
    from kafka_sink.testing.registry.server import EmbeddedRegistry

    with EmbeddedRegistry() as registry:
        yield registry
