"""An embedded Kafka for tests and demonstrations: a pure core (`BrokerCluster`) and a thin server (`EmbeddedBroker`).

Also an embedded schema registry with the same structure: `RegistryCore` and `EmbeddedRegistry`.

A request goes   server -> broker -> api/* -> cluster, groups or transactions -> log -> producer_state
a response goes  api/* -> call -> broker -> server, now or later (schedule)

    server           sockets, TLS, threads, the clock; __main__ and pytest_plugin start it; storage keeps its data
    broker           frames in, one request in progress on each connection; core has the parts that requests work on
    call             one request: authorization (acl), injected faults (faults), and its one response
    api/             the checks of each API, in Kafka's order, and its response; parts assembles responses
    cluster          brokers, leaders, epochs, in-sync replicas, waiters; its plain state is in topics
    log              a partition's batches, last stable offset, aborted transactions; batches has the format
    producer_state   sequences and epochs: duplicates, gaps, zombies
    compaction       which records of a log are kept
    transactions     the allowed steps of a transaction; transaction_state has the steps, markers ends it
    groups           members, generations and offsets of consumer groups
    housekeeping     periodic work: time-outs, expiry, retention, the cleaner
    session          the states of authentication; sasl, aws and credentials verify its tokens
    settings         the configuration; quirks: differences of services from Kafka
    registry/        the schema registry

Names are imported on first use: the pytest plugin is in this package and is loaded in every pytest run where it is
installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_sink.testing.acl import Acl as Acl
    from kafka_sink.testing.broker import BrokerCluster as BrokerCluster
    from kafka_sink.testing.faults import Fault as Fault
    from kafka_sink.testing.log import CommittedRecord as CommittedRecord
    from kafka_sink.testing.registry.core import RegistryCore as RegistryCore
    from kafka_sink.testing.registry.core import RegistryFault as RegistryFault
    from kafka_sink.testing.registry.server import EmbeddedRegistry as EmbeddedRegistry
    from kafka_sink.testing.server import EmbeddedBroker as EmbeddedBroker
    from kafka_sink.testing.settings import Settings as Settings

_HOME_OF = {
    "Acl": "acl",
    "BrokerCluster": "broker",
    "CommittedRecord": "log",
    "EmbeddedBroker": "server",
    "EmbeddedRegistry": "registry.server",
    "Fault": "faults",
    "RegistryCore": "registry.core",
    "RegistryFault": "registry.core",
    "Settings": "settings",
}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = found
    return found
