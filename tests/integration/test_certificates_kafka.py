"""Certificates on Apache Kafka that are wrong in one respect each, and certificates that change while a producer runs.

A dynamic configuration of the listener replaces the broker's certificate, so one broker serves all cases.
"""

from __future__ import annotations

import datetime
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from cryptography.hazmat.primitives.serialization import Encoding

from kafka_sink import AuthenticationError, Producer
from kafka_sink.commit.admin.client import Client
from kafka_sink.options.parse import parse_producer_options
from tests.conftest import FIRST_GENERATION, NEWEST, started_when_asked
from tests.support.certificates import DAY, Authority, Issued
from tests.support.secured_kafka import SecuredKafka, running
from tools.foreign_reader import read_topic
from tools.kafka_security import MTLS, SSL
from tools.waiting import wait_until

pytestmark = pytest.mark.kafka
WAIT_S = 90.0
HOUR_MS = 3_600_000
NOW = datetime.datetime.now(datetime.timezone.utc)
_NUMBERS = count()
NETWORK_THREADS = 2


class Broker:
    """One node, whose certificate on the listener SSL can be replaced. It listens at 127.0.0.1."""

    def __init__(self, secured: SecuredKafka, folder: Path) -> None:
        self.secured = secured
        self.authority = secured.authority
        self._folder = folder

    def use(self, issued: Issued) -> None:
        """From the next connection on the broker shows this certificate."""
        place = self._folder / f"used-{next(_NUMBERS)}.pem"
        place.write_bytes(issued.both.read_bytes())
        entry = ConfigEntry(
            "listener.name.ssl.ssl.keystore.location", str(place), incremental_operation=AlterConfigOpType.SET
        )
        admin = AdminClient({"bootstrap.servers": self.secured.kafka.bootstrap_servers})
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(WAIT_S)
        # The controller has it now. Each network thread follows by itself; connections go to them in turn.
        wanted = issued.certificate.public_bytes(Encoding.DER)
        # A handshake that meets the exchange ends without an answer.
        wait_until(
            lambda: all(self._shown() == wanted for _ in range(NETWORK_THREADS)),
            "every thread shows the certificate",
            passing=(ssl.SSLEOFError,),
        )

    def _shown(self) -> bytes | None:
        host, port = self.secured.kafka.bootstrap_servers_of(SSL).split(":")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with socket.create_connection((host, int(port)), WAIT_S) as plain, context.wrap_socket(plain) as secured:
            return secured.getpeercert(binary_form=True)

    def good(self, name: str = "good") -> Issued:
        return self.authority.issue(f"{name}-{next(_NUMBERS)}", "127.0.0.1")

    def options(self, **more: Any) -> dict[str, Any]:
        return {**self.secured.options(SSL), **more}


@pytest.fixture(scope="module")
def broker_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Broker]]:
    # Otherwise Kafka refuses a certificate for another name.
    properties = {
        "num.network.threads": NETWORK_THREADS,
        "ssl.allow.dn.changes": "true",
        "ssl.allow.san.changes": "true",
    }

    @contextmanager
    def start(version: str) -> Iterator[Broker]:
        folder = tmp_path_factory.mktemp("certificates")
        with running(version, folder, properties) as secured:
            yield Broker(secured, folder)

    with started_when_asked(start) as of:
        yield of


@pytest.fixture(params=[NEWEST, pytest.param(FIRST_GENERATION, marks=pytest.mark.slow)])
def broker(request: pytest.FixtureRequest, broker_of: Callable[[str], Broker]) -> Broker:
    """The client judges certificates; test_security_kafka.py tests with both versions what differs between brokers."""
    return broker_of(request.param)


@pytest.fixture
def topic(broker: Broker, topic_name: str) -> str:
    return broker.secured.kafka.create_topic(topic_name)


# case: the certificate, and what the error says
WRONG: dict[str, tuple[Callable[[Authority], Issued], str]] = {
    "self-signed": (lambda by: by.issue("self", "127.0.0.1", is_self_signed=True), "it is self-signed and not trusted"),
    "expired": (lambda by: by.issue("old", "127.0.0.1", valid_from=NOW - 2 * DAY, valid_until=NOW - DAY),
                "it has expired: the broker needs a new one"),
    "not valid yet": (lambda by: by.issue("new", "127.0.0.1", valid_from=NOW + DAY, valid_until=NOW + 2 * DAY),
                      "it is not valid yet: compare the clocks"),
    "an address against a certificate for names": (lambda by: by.issue("named", "localhost", "broker.example.org"),
                                                   "it is for another address"),
    "another address": (lambda by: by.issue("other", "127.0.0.2"), "it is for another address"),
    "a client's certificate": (lambda by: by.issue("shop", "127.0.0.1", is_for_clients=True),
                               "it is not meant for servers"),
}  # fmt: skip


def refused_with(options: dict[str, Any], says: str) -> None:
    """Producer and driver refuse at once: with a retry neither would return within the test."""
    options = {**options, "max.block.ms": HOUR_MS, "delivery.timeout.ms": HOUR_MS}
    with Client(parse_producer_options(options)) as client, pytest.raises(AuthenticationError) as caught:
        client.reach()
    assert says in str(caught.value), caught.value
    with Producer(options) as producer, pytest.raises(AuthenticationError) as caught:
        producer.send("t", value=b"never").result(WAIT_S)
    assert says in str(caught.value), caught.value


@pytest.mark.parametrize("case", WRONG)
def test_a_certificate_that_proves_nothing_is_refused_at_once(broker: Broker, case: str) -> None:
    issue, says = WRONG[case]
    broker.use(issue(broker.authority))
    refused_with(broker.options(), says)


def test_another_host_name_and_an_unknown_authority_are_refused_at_once(broker: Broker, tmp_path: Path) -> None:
    broker.use(broker.authority.issue("elsewhere", "broker.example.org", "127.0.0.1"))
    port = broker.secured.kafka.bootstrap_servers_of(SSL).rpartition(":")[2]
    refused_with(broker.options(**{"bootstrap.servers": f"localhost:{port}"}), "it is for another host name")
    stranger = Authority(tmp_path, "stranger")
    refused_with(
        broker.options(**{"ssl.truststore.location": str(stranger.path)}), "authority that is not trusted here"
    )


def test_a_revoked_certificate_is_refused_and_another_one_is_not(broker: Broker) -> None:
    revoked, good = broker.good("revoked"), broker.good()
    options = broker.options(**{"ssl.crl.location": str(broker.authority.revoke(revoked))})
    broker.use(revoked)
    refused_with(options, "it was revoked, or an authority of its chain was: the broker needs a new one")
    broker.use(good)
    with Client(parse_producer_options(options)) as client:
        client.reach()


def test_a_certificate_that_expires_during_a_run_stops_new_connections_and_no_open_one(
    broker: Broker, topic: str
) -> None:
    with producer_that_outlives_its_certificate(broker, topic) as producer:
        assert producer.send(topic, value=b"2").result(WAIT_S).offset == 1
        refused_with(broker.options(), "it has expired")
        broker.use(broker.good("renewed"))
        with Producer(broker.options()) as another:
            assert another.send(topic, value=b"3").result(WAIT_S).offset == 2


@contextmanager
def producer_that_outlives_its_certificate(broker: Broker, topic: str) -> Iterator[Producer]:
    """It has written one record. If a busy machine is too late for that, the certificate gets a longer life."""
    for life_s in (8, 32, 128):
        # The times of a certificate are whole seconds.
        end = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0) + datetime.timedelta(seconds=life_s)
        broker.use(broker.authority.issue(f"short-{life_s}", "127.0.0.1", valid_until=end))
        with Producer(broker.options()) as producer:
            try:
                assert producer.send(topic, value=b"1").result(WAIT_S).offset == 0
            except AuthenticationError:
                assert time.time() > end.timestamp()
                continue
            time.sleep(max(0.0, end.timestamp() + 1.5 - time.time()))
            yield producer
            return
    pytest.fail("no certificate has lived until the first record was written")


def test_certificates_rotated_on_both_sides_reach_a_running_producer_without_a_restart(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    """The broker gets a certificate of another authority, and the client's files are replaced in place."""
    second = Authority(tmp_path, "second")
    broker.use(broker.good())
    trusted, key = tmp_path / "trusted.pem", tmp_path / "key.pem"
    trusted.write_text(broker.authority.text)
    key.write_bytes(broker.authority.issue("first", is_for_clients=True).both.read_bytes())
    options = broker.options(**{"ssl.truststore.location": str(trusted), "ssl.keystore.location": str(key)})
    # The connection is closed before each record.
    options["connections.max.idle.ms"] = 300
    with Producer(options) as producer:
        producer.send(topic, value=b"1").result(WAIT_S)
        broker.use(second.issue("broker", "127.0.0.1"))
        trusted.write_text(second.text)
        key.write_bytes(broker.authority.issue("next", is_for_clients=True).both.read_bytes())
        time.sleep(1.0)
        producer.send(topic, value=b"2").result(WAIT_S)
        trusted.write_text("half a fi")
        time.sleep(1.0)
        producer.send(topic, value=b"3").result(WAIT_S)
    found = sorted(record.value or b"" for record in read_topic(broker.secured.kafka.bootstrap_servers, topic))
    assert found == [b"1", b"2", b"3"]


def test_a_client_certificate_that_has_expired_is_refused_by_the_broker(broker: Broker) -> None:
    old = broker.authority.issue("late", is_for_clients=True, valid_from=NOW - 2 * DAY, valid_until=NOW - DAY)
    refused_with(broker.secured.options(MTLS, ssl_keystore_location=str(old.both)), "certificate")
