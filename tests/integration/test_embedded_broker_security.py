"""Other clients log in to the embedded broker, and its ACLs stop them; they get the same errors as from Kafka."""

from __future__ import annotations

import re
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka as kafka_python
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from kafka_sink import Producer
from kafka_sink.testing import Acl, EmbeddedBroker
from tests.support.certificates import Authority
from tools.waiting import wait_until

WAIT_S = 90
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USERS = {"alice": "secret of alice", "bob": "secret of bob"}


@pytest.fixture
def cluster() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(2, topics={"events": 2}, users=USERS) as kafka:
        yield kafka


def login(kafka: EmbeddedBroker, mechanism: str, user: str, password: str | None = None) -> dict[str, Any]:
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password or USERS[user],
        "log_level": 0,
    }


def write(config: dict[str, Any], values: list[bytes]) -> list[KafkaError]:
    errors: list[KafkaError] = []
    producer = confluent_kafka.Producer(config)
    for value in values:
        producer.produce("events", value, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(WAIT_S) == 0
    return errors


def read(config: dict[str, Any], count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer({**config, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["events"])
    values: list[bytes] = []
    try:
        while len(values) < count:
            message = consumer.poll(WAIT_S)
            assert message is not None
            if message.error() is not None:
                raise KafkaException(message.error())
            values.append(message.value())
    finally:
        consumer.close()
    return sorted(values)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_logs_in_and_writes_and_reads(cluster: EmbeddedBroker, mechanism: str) -> None:
    values = [b"%d" % number for number in range(10)]
    assert write({**login(cluster, mechanism, "alice"), "enable.idempotence": True}, values) == []
    assert read(login(cluster, mechanism, "bob"), 10) == values


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in_and_writes(cluster: EmbeddedBroker, mechanism: str) -> None:
    producer = kafka_python.KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_plain_username="alice",
        sasl_plain_password=USERS["alice"],
    )
    assert producer.send("events", b"v", partition=0).get(WAIT_S).offset == 0
    producer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_is_told_of_a_wrong_password_in_the_words_of_kafka(
    cluster: EmbeddedBroker, mechanism: str
) -> None:
    heard: list[KafkaError] = []
    config = {**login(cluster, mechanism, "alice", "wrong"), "error_cb": heard.append}
    producer = confluent_kafka.Producer(config)
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=2)

    def told() -> list[str]:
        producer.poll(0.1)
        return [error.str() for error in heard if error.code() == KafkaError._AUTHENTICATION]

    texts = wait_until(told, lambda: f"the refusal is told: {heard}")
    plain = "Authentication failed: Invalid username or password"
    scram = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    assert texts and all((plain if mechanism == "PLAIN" else scram) in text for text in texts)


def test_a_session_with_a_lifetime_is_renewed_by_confluent_kafka_on_its_connection() -> None:
    """After a pause of the machine the session may end before its renewal; a new connection then begins another."""
    properties = {"connections.max.reauth.ms": "1500"}
    with EmbeddedBroker(topics={"events": 1}, users=USERS, properties=properties) as kafka:
        producer = confluent_kafka.Producer(login(kafka, "SCRAM-SHA-512", "alice"))
        errors: list[object] = []
        is_renewed = False
        while not is_renewed and len(errors) < 200:
            producer.produce("events", b"%d" % len(errors), on_delivery=lambda error, _: errors.append(error))
            producer.flush(WAIT_S)
            producer.poll(0.1)
            sessions = kafka.do(lambda core: [one.session for one in core._connections.values()])
            is_renewed = any(one.reauthentication_began_ms is not None and one.is_ready for one in sessions)
        assert is_renewed
        assert errors == [None] * len(errors)
        assert kafka.do(lambda core: core.cluster.topics["events"].partitions[0].log.end_offset) == len(errors)


def test_acls_stop_a_client_and_may_be_changed_while_it_runs() -> None:
    acls = [Acl("User:bob", "read", "topic", "ev", "prefixed"), Acl("User:bob", "read", "group", "g")]
    with EmbeddedBroker(topics={"events": 1, "secret": 1}, users=USERS, acls=acls) as kafka:
        alice = login(kafka, "PLAIN", "alice")
        assert {error.code() for error in write(alice, [b"1"])} == {KafkaError.TOPIC_AUTHORIZATION_FAILED}
        kafka.do(lambda core: core.authorizer.add(Acl("User:alice", "write", "topic", "events")))
        assert write(alice, [b"2"]) == []
        assert read(login(kafka, "PLAIN", "bob"), 1) == [b"2"]
        assert set(AdminClient(login(kafka, "PLAIN", "bob")).list_topics(timeout=WAIT_S).topics) == {"events"}


def test_no_password_is_kept_in_the_cluster_or_in_its_files(tmp_path: Path) -> None:
    with EmbeddedBroker(topics={"t": 1}, users=USERS, data_dir=tmp_path) as kafka:
        kept = kafka.do(lambda core: repr(core.credentials) + repr(vars(core.credentials)) + repr(vars(core)))
    kept += "".join(path.read_text(errors="replace") for path in tmp_path.iterdir())
    assert "alice" in kept
    assert not any(password in kept for password in USERS.values())


def test_users_are_given_on_the_command_line() -> None:
    command = [sys.executable, "-m", "kafka_sink.testing", "--port", "0", "--topic", "events:1", "--user", "alice:pw"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"bootstrap.servers=(\S+)", process.stdout.readline())
        assert found is not None
        config = {"bootstrap.servers": found[1], "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
        assert write({**config, "sasl.username": "alice", "sasl.password": "pw", "log_level": 0}, [b"v"]) == []
    finally:
        process.terminate()
        process.wait(WAIT_S)
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_all_listeners_speak_tls_when_they_are_told_to(tmp_path: Path, version: ssl.TLSVersion) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("embedded", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = version
    context.load_cert_chain(issued.chain, issued.key)
    values = [b"%06d" % number * 200 for number in range(2000)]
    with EmbeddedBroker(2, topics={"events": 2}, users=USERS, tls=context) as kafka:
        secured = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(authority.path)}
        assert write({**login(kafka, "SCRAM-SHA-256", "alice"), **secured}, values[:1000]) == []
        chosen = {**login(kafka, "SCRAM-SHA-256", "alice"), **secured}
        del chosen["log_level"]
        with Producer(chosen) as producer:
            for value in values[1000:]:
                producer.send("events", value=value)
        assert read({**login(kafka, "PLAIN", "bob"), **secured}, 2000) == values


def test_a_connection_that_is_reset_before_tls_begins_ends_no_broker(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("embedded", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.chain, issued.key)
    with EmbeddedBroker(tls=context) as kafka:
        host, port = kafka.bootstrap_servers.split(":")
        with kafka.control():  # so that the server accepts the connection when it has been reset
            client = socket.create_connection((host, int(port)))
            client.sendall(b"hello")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.load_verify_locations(authority.path)
        with socket.create_connection((host, int(port))) as plain:
            trusting.wrap_socket(plain, server_hostname=host).close()
        assert kafka.is_running


def test_a_handshake_goes_on_when_the_client_has_taken_what_was_sent(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.issue("embedded", "127.0.0.1")
    long_chain = tmp_path / "long.pem"
    long_chain.write_text(issued.chain.read_text() + authority.text * 30)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(long_chain, issued.key)
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cafile=str(authority.path)).wrap_bio(
        received, sent, server_hostname="127.0.0.1"
    )
    with EmbeddedBroker(tls=context) as kafka, socket.socket() as connection:
        kafka._listeners[1].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2048)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        connection.settimeout(WAIT_S)
        connection.connect(("127.0.0.1", int(kafka.bootstrap_servers.rpartition(":")[2])))
        while not _shakes_hands(client):
            connection.sendall(sent.read())
            received.write(connection.recv(2048))
        assert client.getpeercert()


def _shakes_hands(client: ssl.SSLObject) -> bool:
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
