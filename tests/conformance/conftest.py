"""One node of each Kafka version for the whole run, with the timers of peer.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.conformance.peer import PROPERTIES, KafkaPeer
from tools.kafka_cluster import KafkaCluster
from tools.kafka_jars import VERSIONS, KafkaUnavailable

# Version, and the finalized level of transaction.version (None: the newest that the version has).
CLUSTERS = [pytest.param((version, None), id=version) for version in VERSIONS] + [
    pytest.param(("4.3.1", level), id=f"4.3.1-transaction.version-{level}") for level in (0, 1)
]


@dataclass(frozen=True, slots=True)
class Pair:
    """An Apache Kafka, and what the embedded broker must be to be compared with it."""

    kafka: KafkaCluster
    release: str
    transaction_version: str


@pytest.fixture(scope="session", params=CLUSTERS)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    version, level = request.param
    try:
        with KafkaCluster(version=version, properties=PROPERTIES, transaction_version=level) as cluster:
            peer = KafkaPeer(cluster.bootstrap_servers)
            peer.warm_up()
            peer.close()
            newest = "2" if version.startswith("4.") else "0"
            yield Pair(cluster, version.rpartition(".")[0], newest if level is None else str(level))
    except KafkaUnavailable as missing:
        if os.environ.get("PYKAFKA_SINK_REQUIRE_KAFKA"):
            raise
        pytest.skip(str(missing))
