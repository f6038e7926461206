"""An embedded Kafka for tests and demonstrations: a pure core (`BrokerCluster`) and a thin server (`EmbeddedBroker`).

The server is imported only when it is asked for, so that the core stays free of sockets and threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka_sink.testing.acl import Acl
from kafka_sink.testing.broker import BrokerCluster
from kafka_sink.testing.faults import Fault
from kafka_sink.testing.settings import Settings

if TYPE_CHECKING:
    from kafka_sink.testing.server import EmbeddedBroker

__all__ = ["Acl", "BrokerCluster", "EmbeddedBroker", "Fault", "Settings"]


def __getattr__(name: str) -> Any:
    if name == "EmbeddedBroker":
        from kafka_sink.testing.server import EmbeddedBroker

        return EmbeddedBroker
    raise AttributeError(name)
