"""An embedded Kafka for tests and demonstrations: a pure core (`BrokerCluster`) and a thin server (`EmbeddedBroker`).

Beside it an embedded schema registry, made in the same way: `RegistryCore` and `EmbeddedRegistry`.

A request goes   server -> broker -> api/* -> cluster, groups or transactions -> log -> producer_state
an answer goes   api/* -> call -> broker -> server, now or later (schedule)

    server           sockets, TLS, threads, the clock; __main__ and pytest_plugin start it; storage keeps its data
    broker           connections, one request at work on each; the wiring of what follows
    call             one request: may it (acl), shall it fail (faults), and its one answer
    api/             what each API checks, in Kafka's order, and what it tells; parts puts answers together
    cluster          brokers, leaders, epochs, replicas in sync, who waits; its plain state is in topics
    log              a partition's batches, what is stable and what was aborted; batches knows the bytes
    producer_state   sequences and epochs: duplicates, gaps, zombies
    compaction       which records of a log stay; reading: which of them a consumer sees
    transactions     which step a transaction may take; transaction_state has the steps, markers ends it in the logs
    groups           members, generations and offsets of consumer groups
    housekeeping     what happens by itself: time-outs, expiry, retention, the cleaner
    session          the stages of a login; sasl, aws and credentials judge its tokens
    settings         what may be chosen; quirks: in which ways a service is unlike Kafka
    registry/        the schema registry

Names are loaded when they are first used: the pytest plugin lies below this package and is loaded in every run of
whoever has it installed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_sink.testing.acl import Acl as Acl
    from kafka_sink.testing.broker import BrokerCluster as BrokerCluster
    from kafka_sink.testing.faults import Fault as Fault
    from kafka_sink.testing.reading import CommittedRecord as CommittedRecord
    from kafka_sink.testing.registry.core import RegistryCore as RegistryCore
    from kafka_sink.testing.registry.core import RegistryFault as RegistryFault
    from kafka_sink.testing.registry.server import EmbeddedRegistry as EmbeddedRegistry
    from kafka_sink.testing.server import EmbeddedBroker as EmbeddedBroker
    from kafka_sink.testing.settings import Settings as Settings

_HOME_OF = {
    "Acl": "acl",
    "BrokerCluster": "broker",
    "CommittedRecord": "reading",
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
