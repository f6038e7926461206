"""Mistakes of operators, one at a time, on an embedded broker: which line of `check` names each, and how.

Each mistake is a function that breaks a healthy cluster, and returns the options of a job that is right otherwise.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql.types import IntegerType, StringType, StructType, TimestampType

from kafka_sink.commit.receipt import BatchKey
from kafka_sink.testing import Acl, EmbeddedBroker, EmbeddedRegistry, acl
from tests.support.certificates import Authority
from tests.support.commanding import Sink

TOPIC, SINK_ID, LEDGER = "t", "orders", "ledger"
USER, PASSWORD = "alice", "secret-of-alice"
ROWS = StructType().add("value", StringType())
SAFE = {"min.insync.replicas": "2"}
# Errors that may pass are retried until the time limit; a test uses a shorter one.
SHORT_S = 0.8
GRANTS = (
    ("write", "topic", TOPIC), ("read", "topic", TOPIC), ("describe_configs", "topic", TOPIC),
    ("write", "topic", LEDGER), ("read", "topic", LEDGER), ("describe_configs", "topic", LEDGER),
    ("write", "transactional_id", SINK_ID), ("describe", "topic", "__transaction_state"),
    ("describe_configs", "cluster", acl.CLUSTER_NAME), ("describe", "cluster", acl.CLUSTER_NAME),
)  # fmt: skip


@dataclass
class Planting:
    """The place where a mistake is planted: `stack` ends what it starts."""

    stack: ExitStack
    folder: Path
    schema: Any = ROWS

    def broker(self, brokers: int = 3, **more: Any) -> EmbeddedBroker:
        """A healthy cluster: topic and ledger exist, with safe configurations."""
        kafka = self.stack.enter_context(EmbeddedBroker(brokers, **more))
        kafka.create_topic(TOPIC, 3, SAFE if brokers > 2 else None)
        kafka.create_topic(LEDGER, 1, {"cleanup.policy": "compact", **(SAFE if brokers > 2 else {})})
        return kafka

    def guarded(self, *left_out: tuple[str, str, str]) -> EmbeddedBroker:
        """A cluster with all necessary permissions but these."""
        acls = [
            Acl(f"User:{USER}", operation, kind, name, acl.PREFIXED if kind == "transactional_id" else acl.LITERAL)
            for operation, kind, name in GRANTS
            if (operation, kind, name) not in left_out
        ]
        return self.broker(users={USER: PASSWORD}, acls=acls)

    def tls(self, *hosts: str) -> EmbeddedBroker:
        issued = Authority(self.folder).issue("broker", *hosts)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(issued.both)
        return self.broker(tls=context)

    @property
    def authority(self) -> str:
        return str(self.folder / "authority.pem")


def job(kafka: EmbeddedBroker, options: Mapping[str, str] | None = None) -> dict[str, str]:
    named = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": TOPIC, "sink.id": SINK_ID}
    return {**named, "ledger.topic": LEDGER, **(options or {})}


def login(kafka: EmbeddedBroker, options: Mapping[str, str] | None = None) -> dict[str, str]:
    named = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    return job(kafka, {**named, "kafka.sasl.username": USER, "kafka.sasl.password": PASSWORD, **(options or {})})


def encrypted(kafka: EmbeddedBroker, options: Mapping[str, str] | None = None) -> dict[str, str]:
    return job(kafka, {"kafka.security.protocol": "SSL", **(options or {})})


def closed_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass(frozen=True)
class Mistake:
    title: str
    plant: Callable[[Planting], Mapping[str, str]]
    name: str
    verdict: str
    said: str


def _wrong_port(place: Planting) -> Mapping[str, str]:
    return job(place.broker(), {"kafka.bootstrap.servers": f"127.0.0.1:{closed_port()}"})


def _unknown_host(place: Planting) -> Mapping[str, str]:
    return job(place.broker(), {"kafka.bootstrap.servers": "broker.invalid:9092"})


def _one_server_dead(place: Planting) -> Mapping[str, str]:
    kafka = place.broker()
    return job(kafka, {"kafka.bootstrap.servers": f"{kafka.bootstrap_servers},127.0.0.1:{closed_port()}"})


def _no_host_name(place: Planting) -> Mapping[str, str]:
    kafka = place.broker()
    return job(kafka, {"kafka.bootstrap.servers": f"{kafka.bootstrap_servers},broker..example:9092"})


def _advertised_elsewhere(place: Planting) -> Mapping[str, str]:
    kafka = place.broker()
    options = job(kafka)
    with kafka.control() as core:
        core.cluster.brokers[2].port = closed_port()
    return options


def _no_leader(place: Planting) -> Mapping[str, str]:
    kafka = place.broker()
    with kafka.control() as core:
        core.cluster.create_topic("lonely", 3, 1)
    options = job(kafka, {"topic": "lonely"})
    kafka.stop_broker(3)
    return options


def _plain_to_tls(place: Planting) -> Mapping[str, str]:
    return job(place.tls("127.0.0.1"))


def _tls_to_plain(place: Planting) -> Mapping[str, str]:
    return encrypted(place.broker())


def _unknown_authority(place: Planting) -> Mapping[str, str]:
    return encrypted(place.tls("127.0.0.1"))


def _other_host_name(place: Planting) -> Mapping[str, str]:
    return encrypted(place.tls("kafka.example"), {"kafka.ssl.truststore.location": place.authority})


def _certificate_not_looked_at(place: Planting) -> Mapping[str, str]:
    return encrypted(place.tls("127.0.0.1"), {"kafka.enable.ssl.certificate.verification": "false"})


def _no_sasl(place: Planting) -> Mapping[str, str]:
    return job(place.broker(users={USER: PASSWORD}))


def _sasl_not_wanted(place: Planting) -> Mapping[str, str]:
    return login(place.broker())


def _wrong_password(place: Planting) -> Mapping[str, str]:
    return login(place.broker(users={USER: PASSWORD}), {"kafka.sasl.password": "wrong"})


def _wrong_mechanism(place: Planting) -> Mapping[str, str]:
    return login(place.broker(users={USER: PASSWORD}, properties={"sasl.enabled.mechanisms": "SCRAM-SHA-512"}))


def _no_topic(place: Planting) -> Mapping[str, str]:
    return job(place.broker(properties={"auto.create.topics.enable": "false"}), {"topic": "orderz"})


def _topic_cannot_be_made(place: Planting) -> Mapping[str, str]:
    return job(place.broker(), {"topic": "new", "topic.create": "true", "topic.replication.factor": "5"})


def _topic_differs(place: Planting) -> Mapping[str, str]:
    return job(place.broker(), {"topic.create": "true", "topic.partitions": "6"})


def _letters_by_row_times(place: Planting) -> Mapping[str, str]:
    kafka = place.broker()
    kafka.create_topic("rejected", 1, {"retention.ms": "86400000", **SAFE})
    place.schema = StructType().add("value", StringType()).add("timestamp", TimestampType())
    return job(kafka, {"record.errors": "dead-letter", "dead.letter.topic": "rejected"})


def _one_replica(place: Planting) -> Mapping[str, str]:
    kafka = place.broker()
    with kafka.control() as core:
        core.cluster.create_topic("single", 1, 1)
    return job(kafka, {"topic": "single"})


def _too_few_in_sync(place: Planting) -> Mapping[str, str]:
    kafka = place.broker()
    kafka.create_topic("strict", 1, {"min.insync.replicas": "3"})
    options = job(kafka, {"topic": "strict"})
    kafka.stop_broker(3)
    return options


def _one_acknowledges(place: Planting) -> Mapping[str, str]:
    kafka = place.broker()
    kafka.create_topic("loose", 1)
    return job(kafka, {"topic": "loose"})


def _small_messages(place: Planting) -> Mapping[str, str]:
    kafka = place.broker()
    kafka.create_topic("small", 1, {**SAFE, "max.message.bytes": "65536"})
    return job(kafka, {"topic": "small"})


def _large_requests(place: Planting) -> Mapping[str, str]:
    return job(place.broker(), {"kafka.max.request.size": "10485760"})


def _hardly_large_requests(place: Planting) -> Mapping[str, str]:
    kafka = place.broker()
    kafka.create_topic("near", 1, {**SAFE, "max.message.bytes": "1048500"})
    return job(kafka, {"topic": "near"})


def _above_the_socket_s(place: Planting) -> Mapping[str, str]:
    kafka = place.broker(properties={"socket.request.max.bytes": "1050000"})
    return job(kafka)


def _no_key(place: Planting) -> Mapping[str, str]:
    kafka = place.broker()
    kafka.create_topic("latest", 1, {**SAFE, "cleanup.policy": "compact"})
    return job(kafka, {"topic": "latest"})


def _wrong_columns(place: Planting) -> Mapping[str, str]:
    place.schema = StructType().add("id", IntegerType())
    return job(place.broker())


def _misspelt(place: Planting) -> Mapping[str, str]:
    return job(place.broker(), {"kafka.lingr.ms": "5"})


def _no_write(place: Planting) -> Mapping[str, str]:
    return login(place.guarded(("write", "topic", TOPIC)))


def _no_read_of_ledger(place: Planting) -> Mapping[str, str]:
    return login(place.guarded(("read", "topic", LEDGER)))


def _topic_hidden(place: Planting) -> Mapping[str, str]:
    return login(place.guarded(("write", "topic", TOPIC), ("read", "topic", TOPIC)))


def _no_ids(place: Planting) -> Mapping[str, str]:
    kafka = place.guarded(("write", "transactional_id", SINK_ID))
    with kafka.control() as core:  # as in a cluster that has used transactions
        core.cluster.coordinator_partition("__transaction_state", "")
    return login(kafka)


def _no_transactions(place: Planting) -> Mapping[str, str]:
    kafka = place.stack.enter_context(EmbeddedBroker(3, topics={TOPIC: 3}, quirks="event-hubs"))
    return job(kafka)


def _not_verified(place: Planting) -> Mapping[str, str]:
    properties = {"transaction.partition.verification.enable": "false"}
    return job(place.broker(release="3.9", properties=properties))


def _too_long(place: Planting) -> Mapping[str, str]:
    return job(place.broker(), {"kafka.transaction.timeout.ms": "3600000"})


def _too_short(place: Planting) -> Mapping[str, str]:
    return job(place.broker(properties={"transaction.max.timeout.ms": "30000"}))


def _old_transaction(place: Planting) -> Mapping[str, str]:
    kafka = place.broker(clock_ahead_ms=-200_000)
    Sink(kafka.bootstrap_servers, TOPIC, SINK_ID, LEDGER).task(BatchKey("query-1", 0), 0)
    return job(kafka)


def _forgetful_ledger(place: Planting) -> Mapping[str, str]:
    kafka = place.broker()
    kafka.create_topic("old-ledger", 1)
    return job(kafka, {"ledger.topic": "old-ledger"})


def _lonely_ledger(place: Planting) -> Mapping[str, str]:
    kafka = place.broker()
    with kafka.control() as core:
        core.cluster.create_topic("lonely-ledger", 1, 1, {"cleanup.policy": "compact"})
    return job(kafka, {"ledger.topic": "lonely-ledger"})


def _no_ledger(place: Planting) -> Mapping[str, str]:
    return job(place.broker(), {"ledger.topic": "none", "ledger.create": "false"})


def _ledger_cannot_be_made(place: Planting) -> Mapping[str, str]:
    kafka = place.stack.enter_context(EmbeddedBroker(3, topics={TOPIC: 3}, quirks="msk-serverless"))
    return job(kafka, {"ledger.config.segment.bytes": "1048576"})


def _ledger_made_plainer(place: Planting) -> Mapping[str, str]:
    return job(place.stack.enter_context(EmbeddedBroker(3, topics={TOPIC: 3}, quirks="msk-express")))


def _open_decision(place: Planting) -> Mapping[str, str]:
    kafka = place.broker()
    Sink(kafka.bootstrap_servers, TOPIC, SINK_ID, LEDGER).decide_and_die(BatchKey("query-1", 0))
    return job(kafka)


def _other_time(place: Planting) -> Mapping[str, str]:
    return job(place.broker(clock_ahead_ms=600_000))


def _no_registry(place: Planting) -> Mapping[str, str]:
    url = f"http://127.0.0.1:{closed_port()}"
    return job(place.broker(), {"value.format": "avro", "value.columns": "value", "schema.registry.url": url})


def _registry_refuses(place: Planting) -> Mapping[str, str]:
    registry = place.stack.enter_context(EmbeddedRegistry(users={"alice": "secret"}))
    options = {"value.format": "avro", "value.columns": "value", "schema.registry.url": registry.url}
    return job(place.broker(), options)


def _columns_do_not_fit(place: Planting) -> Mapping[str, str]:
    """There is no registry: the job would write by a schema of its own."""
    schema = '{"type": "record", "name": "Row", "fields": [{"name": "value", "type": "long"}]}'
    options = {"value.format": "avro", "value.columns": "value", "value.schema": schema, "value.schema.framing": "none"}
    return job(place.broker(), options)


MISTAKES = (
    Mistake("wrong port", _wrong_port, "bootstrap", "fail", "Connection refused"),
    Mistake("unknown host", _unknown_host, "bootstrap", "fail", "broker.invalid:9092: this host name is not known"),
    Mistake("one server dead", _one_server_dead, "bootstrap", "warn", "Connection refused"),
    Mistake("no host name", _no_host_name, "bootstrap", "warn", "broker..example:9092: this is no host name"),
    Mistake("advertised elsewhere", _advertised_elsewhere, "brokers", "fail", "broker 2 is not reached"),
    Mistake("no leader", _no_leader, "topic", "fail", "lonely has no leader for partition 2"),
    Mistake("plaintext to TLS", _plain_to_tls, "login", "fail", "is a TLS listener behind this port?"),
    Mistake("TLS to plaintext", _tls_to_plain, "login", "fail", "TLS"),
    Mistake("authority not trusted", _unknown_authority, "login", "fail", "an authority that is not trusted here"),
    Mistake("certificate of another host", _other_host_name, "login", "fail", "for another"),
    Mistake("certificate not verified", _certificate_not_looked_at, "login", "warn", "nobody looked at"),
    Mistake("no SASL", _no_sasl, "login", "fail", "does this listener want SASL?"),
    Mistake("SASL not wanted", _sasl_not_wanted, "login", "fail", "does not want SASL on this port"),
    Mistake("wrong password", _wrong_password, "login", "fail", "refused the credentials for PLAIN"),
    Mistake("wrong mechanism", _wrong_mechanism, "login", "fail", "it offers SCRAM-SHA-512"),
    Mistake("no topic", _no_topic, "topic", "fail", "orderz is not there"),
    Mistake("topic that cannot be made", _topic_cannot_be_made, "topic", "fail", "INVALID_REPLICATION_FACTOR"),
    Mistake("topic that differs", _topic_differs, "topic", "warn", "partitions=3 instead of 6"),
    Mistake("letters by row times", _letters_by_row_times, "topic", "warn", "older than retention.ms=86400000"),
    Mistake("one replica", _one_replica, "replicas", "warn", "single has 1 replica, and there are 3 brokers"),
    Mistake("too few in sync", _too_few_in_sync, "replicas", "fail", "2 replicas in sync, and min.insync.replicas=3"),
    Mistake("one acknowledges", _one_acknowledges, "replicas", "warn", "acknowledged by one broker alone"),
    Mistake("small messages", _small_messages, "sizes", "warn", "max.message.bytes=65536, below batch.size=131072"),
    Mistake("large requests", _large_requests, "sizes", "warn", "below max.request.size=10485760"),
    Mistake("hardly large requests", _hardly_large_requests, "sizes", "warn", "below max.request.size=1048576"),
    Mistake("requests above the socket's", _above_the_socket_s, "sizes", "warn", "bytes=1050000, and a request"),
    Mistake("no key for a compacted topic", _no_key, "columns", "fail", "has no column key"),
    Mistake("wrong columns", _wrong_columns, "columns", "fail", "required column value not found"),
    Mistake("misspelt option", _misspelt, "options", "fail", "did you mean linger.ms?"),
    Mistake("no Write on the topic", _no_write, "permissions", "fail", "topic t: Write missing"),
    Mistake("no Read on the ledger", _no_read_of_ledger, "permissions", "fail", "topic ledger: Read missing"),
    Mistake("topic hidden", _topic_hidden, "permissions", "fail", "not authorized for topic t: not even Describe"),
    Mistake("no Write on ids", _no_ids, "permissions", "fail", "begin with orders-: Write missing"),
    Mistake("no transactions", _no_transactions, "transactions", "fail", "offer no transactions"),
    Mistake("not verified", _not_verified, "transactions", "warn", "do not verify"),
    Mistake("too long transactions", _too_long, "time limits", "fail", "transaction.timeout.ms=3600000 is above"),
    Mistake("too short transactions", _too_short, "time limits", "warn", "transactions of 30000 ms"),
    Mistake("old open transaction", _old_transaction, "ids", "warn", "more than half of their time"),
    Mistake("ledger that forgets", _forgetful_ledger, "ledger", "fail", "cleanup.policy=delete"),
    Mistake("ledger on one broker", _lonely_ledger, "ledger", "warn", "lonely-ledger has 1 replica"),
    Mistake("no ledger", _no_ledger, "ledger", "fail", "there is no ledger topic none"),
    Mistake("ledger refused by the service", _ledger_cannot_be_made, "ledger", "fail", "cannot be set here"),
    Mistake("ledger with settings that are protected", _ledger_made_plainer, "ledger", "warn", "compact alone"),
    Mistake("open decision", _open_decision, "decisions", "warn", "decided and not known to be finished"),
    Mistake("clocks", _other_time, "clock", "warn", "this clock is 600 s behind the controller's"),
    Mistake("no registry", _no_registry, "registry", "fail", "Connection refused"),
    Mistake("registry refuses", _registry_refuses, "registry", "fail", "HTTP 401"),
    Mistake("columns do not fit", _columns_do_not_fit, "schema", "fail", "the columns do not fit the Avro schema"),
)  # fmt: skip
