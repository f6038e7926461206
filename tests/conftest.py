"""Fixtures of all test folders: Apache Kafka of both generations, started once per run and only when asked for.

Where Java or Maven is missing, tests that need Apache Kafka are skipped with that reason. With
PYKAFKA_SINK_REQUIRE_KAFKA=1, as in continuous integration, the same is a failure.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.secured_kafka import SecuredKafka
    from tools.kafka_cluster import KafkaCluster

NEWEST = "4.3.1"
FIRST_GENERATION = "3.9.1"

_NUMBERS = itertools.count(1)


def without_kafka(reason: str) -> None:
    """Skip this test, or fail it where Apache Kafka is required."""
    if os.environ.get("PYKAFKA_SINK_REQUIRE_KAFKA") == "1":
        pytest.fail(f"PYKAFKA_SINK_REQUIRE_KAFKA is set: {reason}", pytrace=False)
    pytest.skip(reason)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`pytest -m "not kafka"` leaves out whatever would start a broker."""
    for item in items:
        if {"kafka_of", "secured_kafka_of"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.kafka)


@pytest.fixture(scope="session")
def kafka_of() -> Iterator[Callable[[str, int], KafkaCluster]]:
    """`kafka_of(version, nodes)`: the shared cluster of that kind, started at its first use.

    Not a parametrised session fixture: in random order pytest would stop and start clusters between tests.
    """
    # Imported here: the unit folder must not load a Kafka client.
    from tools.kafka_cluster import KafkaCluster
    from tools.kafka_jars import KafkaUnavailable

    clusters: dict[tuple[str, int], KafkaCluster] = {}

    def running(version: str, nodes: int) -> KafkaCluster:
        if (version, nodes) not in clusters:
            cluster = KafkaCluster(version, nodes)
            try:
                cluster.open()
            except KafkaUnavailable as error:
                without_kafka(str(error))
            clusters[version, nodes] = cluster
        return clusters[version, nodes]

    yield running
    for cluster in clusters.values():
        cluster.close()


@pytest.fixture
def kafka_4(kafka_of: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_of(NEWEST, 1)


@pytest.fixture
def kafka_3(kafka_of: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    return kafka_of(FIRST_GENERATION, 1)


@pytest.fixture(params=[NEWEST, FIRST_GENERATION])
def kafka(request: pytest.FixtureRequest, kafka_of: Callable[[str, int], KafkaCluster]) -> KafkaCluster:
    """One node, both versions: a test that takes this runs twice."""
    return kafka_of(request.param, 1)


@pytest.fixture
def kafka_three_nodes(kafka_of: Callable[[str, int], KafkaCluster]) -> Iterator[KafkaCluster]:
    """Three nodes for tests that break some of them; whatever is down or paused afterwards is brought back."""
    cluster = kafka_of(NEWEST, 3)
    yield cluster
    cluster.heal()


@pytest.fixture(scope="session")
def secured_kafka_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], SecuredKafka]]:
    """`secured_kafka_of(version)`: one node with TLS and SASL listeners, started at its first use."""
    from tests.secured_kafka import running
    from tools.kafka_jars import KafkaUnavailable

    clusters: dict[str, SecuredKafka] = {}
    with ExitStack() as stack:

        def of(version: str) -> SecuredKafka:
            if version not in clusters:
                try:
                    clusters[version] = stack.enter_context(running(version, tmp_path_factory.mktemp("certificates")))
                except KafkaUnavailable as error:
                    without_kafka(str(error))
            return clusters[version]

        yield of


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A name that no other test of this run has."""
    return f"{re.sub('[^a-zA-Z0-9_-]', '-', request.node.name)[:200]}-{next(_NUMBERS)}"
