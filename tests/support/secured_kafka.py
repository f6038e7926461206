"""Apache Kafka with every kind of secured listener, and the options with which a client can connect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.certificates import Authority, Issued
from tools.kafka_cluster import KafkaCluster
from tools.kafka_security import MTLS, BrokerTls

USERS = {"alice": "secret-of-alice", "bob": "secret of bob"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
KEY_PASSWORD = "of the key"
# Sessions on the listener SASL_SSL with this mechanism are short.
SHORT, SHORT_SESSION_MS = "SCRAM-SHA-512", 3_000


@dataclass(frozen=True)
class SecuredKafka:
    kafka: KafkaCluster
    authority: Authority
    client: Issued

    def options(self, listener: str, mechanism: str = "", **more: Any) -> dict[str, Any]:
        """The options of alice; names in `more` have underscores instead of dots."""
        protocol = "SSL" if listener == MTLS else listener
        chosen: dict[str, Any] = {
            "bootstrap.servers": self.kafka.bootstrap_servers_of(listener),
            "security.protocol": protocol,
        }
        if protocol.endswith("SSL"):
            chosen["ssl.truststore.location"] = str(self.authority.path)
        if mechanism in MECHANISMS and "sasl_jaas_config" not in more:
            chosen |= {"sasl.username": "alice", "sasl.password": USERS["alice"]}
        if mechanism:
            chosen["sasl.mechanism"] = mechanism
        return chosen | {name.replace("_", "."): value for name, value in more.items()}


@contextmanager
def running(
    version: str, folder: Path, properties: Mapping[str, object] | None = None, **more: Any
) -> Iterator[SecuredKafka]:
    """`more` holds further arguments for the cluster."""
    authority = Authority(folder)
    broker = authority.issue("broker", "localhost", "127.0.0.1")
    client = authority.issue("client", is_for_clients=True, password=KEY_PASSWORD)
    short = f"listener.name.sasl_ssl.{SHORT.lower()}.connections.max.reauth.ms"
    every = {short: SHORT_SESSION_MS, **(properties or {})}
    tls = BrokerTls(broker.both, authority.path)
    with KafkaCluster(version, users=USERS, tls=tls, properties=every, **more) as kafka:
        yield SecuredKafka(kafka, authority, client)
