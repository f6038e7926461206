"""One node of each Kafka version and transaction level for the whole run, with the timers of peer.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.conformance.peer import PROPERTIES, KafkaPeer
from tests.conftest import without_kafka
from tools.kafka_cluster import KafkaCluster
from tools.kafka_jars import KafkaUnavailable


@dataclass(frozen=True, slots=True)
class Pair:
    """An Apache Kafka, and what the embedded broker must be to be compared with it."""

    kafka: KafkaCluster
    release: str
    transaction_version: str


@pytest.fixture(scope="session")
def pair_of() -> Iterator[Callable[[str, int], Pair]]:
    """Started at the first use. Not a parametrised session fixture: random order would restart it between tests."""
    pairs: dict[tuple[str, int], Pair] = {}
    with ExitStack() as stack:

        def running(version: str, level: int) -> Pair:
            if (version, level) not in pairs:
                # Kafka 3.9 has no such feature to set.
                feature = None if version.startswith("3.") else level
                cluster = KafkaCluster(version=version, properties=PROPERTIES, transaction_version=feature)
                try:
                    stack.enter_context(cluster)
                except KafkaUnavailable as missing:
                    without_kafka(str(missing))
                peer = KafkaPeer(cluster.bootstrap_servers)
                peer.warm_up()
                peer.close()
                pairs[version, level] = Pair(cluster, version.rpartition(".")[0], str(level))
            return pairs[version, level]

        yield running
