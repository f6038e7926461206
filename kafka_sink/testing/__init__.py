"""An embedded Kafka for tests and demonstrations: a pure core (`BrokerCluster`) and a thin server (`EmbeddedBroker`).

The servers are imported only when they are asked for, so that the cores stay free of sockets and threads. Beside it
an embedded schema registry, made in the same way: `RegistryCore` and `EmbeddedRegistry`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka_sink.testing.acl import Acl
from kafka_sink.testing.broker import BrokerCluster
from kafka_sink.testing.faults import Fault
from kafka_sink.testing.registry import RegistryCore, RegistryFault
from kafka_sink.testing.settings import Settings

if TYPE_CHECKING:
    from kafka_sink.testing.registry_server import EmbeddedRegistry
    from kafka_sink.testing.server import EmbeddedBroker

__all__ = [
    "Acl",
    "BrokerCluster",
    "EmbeddedBroker",
    "EmbeddedRegistry",
    "Fault",
    "RegistryCore",
    "RegistryFault",
    "Settings",
]


def __getattr__(name: str) -> Any:
    if name == "EmbeddedBroker":
        from kafka_sink.testing.server import EmbeddedBroker

        return EmbeddedBroker
    if name == "EmbeddedRegistry":
        from kafka_sink.testing.registry_server import EmbeddedRegistry

        return EmbeddedRegistry
    raise AttributeError(name)
