"""One broker, one topic of two partitions, and a client of it."""

from __future__ import annotations

import pytest

from kafka_sink.testing import BrokerCluster, Settings
from tests.support.cluster_client import ClusterClient


@pytest.fixture
def client() -> ClusterClient:
    return ClusterClient(BrokerCluster(1, topics={"t": 2}))


@pytest.fixture
def old_client() -> ClusterClient:
    """A client of a cluster with transaction.version 0."""
    settings = Settings(properties={"transaction.version": "0"})
    return ClusterClient(BrokerCluster(1, topics={"t": 2}, settings=settings))
