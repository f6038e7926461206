"""SASL and TLS against Apache Kafka 4.3.1 and 3.9.1: which clients get in, and which errors the others get."""

from __future__ import annotations

import logging
import pickle
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kafka_sink import AuthenticationError, ConfigError, OperationTimeout, Producer
from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.commit_step import Progress
from kafka_sink.kafka.client.ask import Ask, Leader, Reply
from kafka_sink.kafka.wire.apis import FIND_COORDINATOR
from kafka_sink.options.parse import parse_producer_options
from tests.conftest import FIRST_GENERATION, NEWEST, or_without_kafka
from tests.support.asking import said
from tests.support.certificates import Authority
from tests.support.producing import transacted_for
from tests.support.secured_kafka import MECHANISMS, SHORT, SHORT_SESSION_MS, USERS, SecuredKafka, running
from tools.foreign_reader import read_topic
from tools.kafka_security import LISTENER, MTLS, SASL_SSL, SSL
from tools.waiting import wait_until

WAIT_S = 90.0
# A mark: with the older version only `make slow`, where versions do not differ.
NEWEST_MAINLY = pytest.mark.parametrize(
    "secured", [NEWEST, pytest.param(FIRST_GENERATION, marks=pytest.mark.slow)], indirect=True
)


@pytest.fixture
def topic(secured: SecuredKafka, topic_name: str) -> str:
    return secured.kafka.create_topic(topic_name)


def values(secured: SecuredKafka, topic: str) -> list[bytes | None]:
    """The committed values, read by librdkafka over the listener without SASL and TLS."""
    return sorted(record.value or b"" for record in read_topic(secured.kafka.bootstrap_servers, topic))


def write_and_transact(options: dict[str, Any], secured: SecuredKafka, topic: str) -> None:
    with Producer(options) as producer:
        assert producer.send(topic, value=b"1").result(WAIT_S).offset == 0
    with Producer({**options, "transactional.id": topic}) as producer:
        producer.init_transactions()
        for number, commits in ((2, True), (3, False), (4, True)):
            producer.begin_transaction()
            producer.send(topic, value=b"%d" % number)
            if commits:
                producer.commit_transaction()
            else:
                producer.flush()
                producer.abort_transaction()
    assert values(secured, topic) == [b"1", b"2", b"4"]
    with Client(parse_producer_options(options)) as client:
        assert [info.partition for info in client.describe_topic(topic)] == [0]


# ---- logins that succeed ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", [LISTENER, SASL_SSL])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_name_and_password_get_in_and_transact(
    secured: SecuredKafka, topic: str, listener: str, mechanism: str
) -> None:
    write_and_transact(secured.options(listener, mechanism), secured, topic)


@NEWEST_MAINLY
def test_an_existing_jaas_configuration_gets_in(
    secured: SecuredKafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    jaas = (
        'org.apache.kafka.common.security.scram.ScramLoginModule required\n  username="bob"\n'
        '  password="${env:PASSWORD_OF_BOB}";'
    )
    monkeypatch.setenv("PASSWORD_OF_BOB", USERS["bob"])
    options = secured.options(SASL_SSL, sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=jaas)
    write_and_transact(options, secured, topic)


def test_tls_alone_gets_in(secured: SecuredKafka, topic: str) -> None:
    write_and_transact(secured.options(SSL), secured, topic)


def test_a_client_certificate_gets_in(secured: SecuredKafka, topic: str) -> None:
    more = {"ssl_keystore_location": str(secured.client.both), "ssl_key_password": "of the key"}
    write_and_transact(secured.options(MTLS, **more), secured, topic)


@NEWEST_MAINLY
def test_names_of_librdkafka_get_in(secured: SecuredKafka, topic: str) -> None:
    options = {
        "bootstrap.servers": secured.kafka.bootstrap_servers_of(MTLS),
        "security.protocol": "ssl",
        "ssl.ca.pem": secured.authority.text,
        "ssl.certificate.location": str(secured.client.chain),
        "ssl.key.location": str(secured.client.key),
        "ssl.key.password": "of the key",
    }
    write_and_transact(options, secured, topic)


@NEWEST_MAINLY
def test_megabytes_pass_through_tls_unharmed(secured: SecuredKafka, topic: str) -> None:
    sent = [b"%06d" % number + bytes(range(256)) * 40 for number in range(1500)]
    with Producer({**secured.options(SASL_SSL, "PLAIN"), "batch.size": 200_000}) as producer:
        for value in sent:
            producer.send(topic, value=value)
    assert values(secured, topic) == sent


# ---- logins that fail ------------------------------------------------------------------------------------------


def attempts(secured: SecuredKafka) -> int:
    """Failed logins in the broker's log so far."""
    log = secured.kafka.log_path(1).read_text(errors="replace")
    return len(re.findall(r"Failed (?:re-)?authentication with", log))


def check_attempts(secured: SecuredKafka, count: int) -> None:
    """A failed login appears in the log a moment later; repeated logins would go on."""
    wait_until(lambda: attempts(secured) >= count, lambda: f"{count} failed logins in the log: {attempts(secured)}")
    time.sleep(0.5)
    assert attempts(secured) == count


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told_at_once_and_tried_once(
    secured: SecuredKafka, topic: str, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = secured.options(SASL_SSL, mechanism, sasl_password="hunter2")
    before = attempts(secured)
    with caplog.at_level(logging.DEBUG), Producer(options) as producer:
        with pytest.raises(AuthenticationError) as caught:
            producer.send(topic, value=b"never").result(WAIT_S)
        with pytest.raises(AuthenticationError):
            producer.send(topic, value=b"never")
    text = str(caught.value)
    assert f"refused the credentials for {mechanism}: SASL_AUTHENTICATION_FAILED (58)" in text
    assert "They are not tried again. Check sasl.jaas.config" in text
    assert [text in record.getMessage() for record in caplog.records].count(True) == 1
    assert "hunter2" not in caplog.text + repr(pickle.loads(pickle.dumps(caught.value))) + repr(options and producer)
    check_attempts(secured, before + 1)


@NEWEST_MAINLY
def test_transactions_and_questions_hear_of_wrong_credentials_at_once(secured: SecuredKafka, topic: str) -> None:
    options = secured.options(LISTENER, "SCRAM-SHA-256", sasl_username="nobody")
    with (
        Producer({**options, "transactional.id": topic}) as producer,
        pytest.raises(AuthenticationError, match="refused the credentials"),
    ):
        producer.init_transactions()
    before = attempts(secured)
    with Client(parse_producer_options(options)) as client:
        for ask in (client.reach, lambda: client.describe_topic(topic), client.list_apis):
            with pytest.raises(AuthenticationError, match="refused the credentials"):
                ask()
    check_attempts(secured, before + 3)


@NEWEST_MAINLY
def test_a_client_that_was_refused_gets_in_once_the_password_is_right(
    secured: SecuredKafka, topic: str, tmp_path: Path
) -> None:
    secrets = tmp_path / "kafka.properties"
    secrets.write_text("password = wrong\n")
    options = secured.options(LISTENER, "PLAIN", sasl_password=f"${{file:{secrets}:password}}")
    with Client(parse_producer_options(options)) as client:
        with pytest.raises(AuthenticationError):
            client.reach()
        secrets.write_text(f"password = {USERS['alice']}\n")
        client.reach()
        assert client.describe_topic(topic)


@NEWEST_MAINLY
def test_a_mechanism_that_the_broker_lacks_is_told_with_those_it_has(secured: SecuredKafka) -> None:
    unknown = secured.kafka.bootstrap_servers_of(LISTENER)
    options = parse_producer_options(secured.options(LISTENER, "PLAIN", bootstrap_servers=unknown))
    object.__setattr__(options, "sasl_mechanism", "SCRAM-SHA-1")
    with pytest.MonkeyPatch.context() as patch, Client(options) as client:
        patch.setattr("kafka_sink.security.scram.SCRAM_HASHES", {"SCRAM-SHA-1": "sha1"})
        with pytest.raises(AuthenticationError, match=r"does not take sasl.mechanism=SCRAM-SHA-1: it offers .*PLAIN"):
            client.reach()


@NEWEST_MAINLY
def test_a_missing_reference_is_told_by_name(secured: SecuredKafka, topic: str) -> None:
    options = secured.options(LISTENER, "PLAIN", sasl_password="${env:NOT_THERE_AT_ALL}")
    with Producer(options) as producer, pytest.raises(ConfigError, match=r"sasl.password refers to \$\{env:NOT_THERE"):
        producer.send(topic, value=b"never").result(WAIT_S)


WRONG_DOORS = {
    # listener of the client, listener that it connects to, kind of error, what the error says
    "plaintext to TLS": ("PLAINTEXT", SSL, OperationTimeout, "TLS"),
    "TLS to plaintext": (SSL, "PLAINTEXT", OperationTimeout, "does not speak TLS on this port|TLS handshake"),
    "SASL to plaintext": (LISTENER, "PLAINTEXT", AuthenticationError, "does not want SASL on this port"),
    "SASL to TLS": (LISTENER, SSL, OperationTimeout, "TLS"),
    "plaintext to SASL": ("PLAINTEXT", LISTENER, OperationTimeout, "want SASL. Then set security.protocol=SASL_SSL"),
    "TLS to SASL over TLS": (SSL, SASL_SSL, OperationTimeout, "does this listener want SASL"),
    "no client certificate": (SSL, MTLS, AuthenticationError, "demands? a client certificate|certificate"),
}


@NEWEST_MAINLY
@pytest.mark.parametrize("door", WRONG_DOORS)
def test_the_wrong_port_is_recognised(secured: SecuredKafka, door: str) -> None:
    ours, theirs, kind, says = WRONG_DOORS[door]
    kafka = secured.kafka
    address = kafka.bootstrap_servers if theirs == "PLAINTEXT" else kafka.bootstrap_servers_of(theirs)
    options: dict[str, Any] = {}
    if ours != "PLAINTEXT":
        options = secured.options(ours, "PLAIN" if ours == LISTENER else "")
    error = said({**options, "bootstrap.servers": address}, 5_000 if kind is OperationTimeout else 90_000)
    assert isinstance(error, kind), error
    assert re.search(says, str(error)), error


def test_an_unknown_authority_is_told_at_once(secured: SecuredKafka, topic: str, tmp_path: Path) -> None:
    options = secured.options(SASL_SSL, "PLAIN", ssl_truststore_location=str(Authority(tmp_path, "stranger").path))
    with Producer(options) as producer, pytest.raises(AuthenticationError, match="authority that is not trusted here"):
        producer.send(topic, value=b"never").result(WAIT_S)


def test_a_broker_that_does_not_trust_the_client_says_so(secured: SecuredKafka, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger").issue("mallory", is_for_clients=True)
    error = said(secured.options(MTLS, ssl_keystore_location=str(stranger.both)))
    assert isinstance(error, AuthenticationError) and "certificate" in str(error)


# ---- sessions that expire --------------------------------------------------------------------------------------


def test_a_transaction_goes_on_through_new_sessions(
    secured: SecuredKafka, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = secured.options(SASL_SSL, SHORT, transactional_id=topic, linger_ms="0")
    sent, told = transacted_for(2.5 * SHORT_SESSION_MS / 1000, options, topic, caplog)
    assert values(secured, topic) == sent
    # After a pause of the machine the session may end before it is renewed, and the broker closes the connection;
    # otherwise it is renewed twice.
    assert any("new session with" in text for text in told)
    # Other tests' credentials are renewed in this process, too, as long as something refers to them.
    assert not [text for text in told if topic in text and "refused" in text]


@NEWEST_MAINLY
def test_a_session_that_ended_while_nobody_wrote_is_renewed_before_the_next_record(
    secured: SecuredKafka, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "kafka_sink"), Producer(secured.options(SASL_SSL, SHORT)) as producer:
        assert producer.send(topic, value=b"1").result(WAIT_S).offset == 0
        time.sleep(1.2 * SHORT_SESSION_MS / 1000)
        assert producer.send(topic, value=b"2").result(WAIT_S).offset == 1
    told = [record.getMessage() for record in caplog.records]
    assert any("new session with" in text for text in told)


# ---- three nodes -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_three_nodes_are_written_to_in_one_transaction_while_one_of_them_restarts(
    tmp_path: Path, topic_name: str
) -> None:
    """Leaders, coordinator and bootstrap server are different nodes: each connection verifies and authenticates."""
    with or_without_kafka(running(NEWEST, tmp_path, nodes=3)) as secured:
        kafka = secured.kafka
        topic = kafka.create_topic(topic_name, partitions=6)
        options = secured.options(SASL_SSL, SHORT, transactional_id=topic, batch_size=1000)
        sent = []
        with Producer(options) as producer:
            producer.init_transactions()
            for _ in range(3):
                producer.begin_transaction()
                for _ in range(60):
                    sent.append(b"%06d" % len(sent))
                    producer.send(topic, value=sent[-1], partition=len(sent) % 6)
                    time.sleep(0.03)
                if len(sent) == 60:
                    kafka.restart(kafka.leader_of(topic, 0))
                producer.commit_transaction()
        assert values(secured, topic) == sent
        with Client(parse_producer_options(secured.options(SASL_SSL, SHORT))) as client:
            assert len(client.describe_topic(topic)) == 6 and client.transaction_support().transaction_version == 2


# ---- the driver's machine --------------------------------------------------------------------------------------


@NEWEST_MAINLY
def test_a_commit_whose_credentials_are_refused_tries_them_once_whatever_it_has_to_ask(secured: SecuredKafka) -> None:
    """Each request gets an answer, but the broker sees only one login."""

    class Curious:
        """Sends five requests, repeats refused ones, and ends after twenty answers."""

        def __init__(self) -> None:
            self.heard: list[Reply] = []
            self.asked = 0

        def step(self, now_ms: int, answers: Sequence[Reply]) -> Progress[bool]:
            self.heard += answers
            wanted = 5 if not self.asked else len(answers)
            numbers = range(self.asked, self.asked + wanted)
            self.asked += wanted
            body = {"key_type": 1, "coordinator_keys": ["x"]}
            asks = [Ask(Leader("t", 0), FIND_COORDINATOR, body, "curious", one, timeout_ms=5_000) for one in numbers]
            return Progress(asks, None, True if len(self.heard) >= 20 else None)

    before = attempts(secured)
    machine = Curious()
    options = secured.options(LISTENER, "PLAIN", sasl_password="hunter2")
    with Client(parse_producer_options(options)) as client:
        assert client.run(machine)
    assert all(isinstance(answer.error, AuthenticationError) for answer in machine.heard)
    check_attempts(secured, before + 1)
