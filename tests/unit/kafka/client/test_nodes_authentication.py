"""From negotiated versions to an authenticated connection and its next session, with any answer of the broker."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.errors import (
    AuthenticationError,
    ConfigError,
    LocalProtocolError,
    RemoteProtocolError,
    TransportError,
)
from kafka_sink.errors.table.brokers import KERBEROS_LOGIN
from kafka_sink.kafka.client.authentication import session_end_ms
from kafka_sink.kafka.client.connection import NEGOTIATION_FRAME_BYTES_MAX
from kafka_sink.kafka.wire.apis import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafka_sink.producer.engine.commands import Append
from kafka_sink.security.mechanisms import AWS_MSK_IAM, Exchange
from kafka_sink.security.oauthbearer import OAuthBearerExchange
from kafka_sink.security.passwords import password_exchange
from tests.unit.kafka.client.network_driver import Driver, notices
from tests.unit.kafka.client.network_history import check
from tests.unit.producer.engine.driver import EngineDriver, new_batch
from tests.unit.producer.engine.fake_cluster import Asked, FakeCluster
from tests.unit.producer.engine.history import History, histories

TOKEN = b"\0alice\0hunter2"
GREETING = [API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE]


def plain(_host: str = "") -> Exchange:
    return password_exchange("PLAIN", {"username": "alice", "password": "hunter2"}, "")


class TwoSteps:
    """An exchange with a second token, which checks the last message of the broker."""

    mechanism = "TWO"
    doubt = ""

    def __init__(self) -> None:
        self.heard: list[bytes] = []

    def first(self) -> bytes:
        return b"one"

    def step(self, challenge: bytes) -> bytes | None:
        self.heard.append(challenge)
        if len(self.heard) == 1:
            return b"two"
        if challenge != b"right":
            raise AuthenticationError("the server did not prove itself")
        return None


def accepted(request: Asked, lifetime_ms: int = 0) -> dict[str, Any]:
    return {"error_code": 0, "error_message": None, "auth_bytes": b"", "session_lifetime_ms": lifetime_ms}


def authenticated(make: Any = plain, *, lifetime_ms: int = 0, **more: Any) -> Driver:
    """A driver whose broker accepts every login."""
    driver = Driver(authenticator=make, **more)
    scripts = driver.cluster.scripts
    scripts[SASL_HANDSHAKE.key] = lambda asked: {"error_code": 0, "mechanisms": ["PLAIN"]}
    scripts[SASL_AUTHENTICATE.key] = lambda asked: accepted(asked, lifetime_ms)
    return driver


def apis(driver: Driver) -> list[Any]:
    return [asked.api for asked in driver.cluster.requests]


def test_nothing_but_the_greeting_is_said_before_the_connection_is_ready() -> None:
    driver = authenticated()
    driver.await_ready()
    assert apis(driver) == GREETING
    handshake, token = driver.cluster.requests[1:]
    assert (handshake.version, handshake.body) == (1, {"mechanism": "PLAIN"})
    assert token.body == {"auth_bytes": TOKEN}
    assert driver.nodes.in_flight_count(0) == 0 and driver.take_answers() == []


@pytest.mark.parametrize("stage", [SASL_HANDSHAKE, SASL_AUTHENTICATE])
def test_a_node_is_not_ready_while_an_answer_is_missing(stage: Any) -> None:
    driver = authenticated()
    driver.cluster.scripts[stage.key] = lambda asked: None
    driver.connect()
    assert not driver.nodes.is_ready(0, driver.now_ms) and driver.nodes.in_flight_count(0) == 0
    driver.sleep(driver.options.request_timeout_ms)
    assert f"did not answer {stage.name}" in str(driver.nodes.last_failure)
    assert driver.nodes.refusal is None


@pytest.mark.parametrize(("version", "lifetime_field"), [(0, False), (1, True), (2, True)])
def test_every_version_of_sasl_authenticate_is_understood(version: int, lifetime_field: bool) -> None:
    cluster = FakeCluster({0: ("a", 9092)}, api_versions={SASL_AUTHENTICATE.key: (0, version)})
    driver = authenticated(cluster=cluster, lifetime_ms=1000 if lifetime_field else 0)
    driver.await_ready()
    assert driver.cluster.requests[-1].version == version


def test_a_mechanism_of_several_steps_is_stepped_until_it_is_content() -> None:
    exchange = TwoSteps()
    driver = authenticated(lambda _host: exchange)
    words = iter([b"more", b"right"])
    driver.cluster.scripts[SASL_AUTHENTICATE.key] = lambda asked: {**accepted(asked), "auth_bytes": next(words)}
    driver.await_ready()
    assert exchange.heard == [b"more", b"right"]
    assert [asked.body["auth_bytes"] for asked in driver.cluster.requests[2:]] == [b"one", b"two"]


# ---- refusals --------------------------------------------------------------------------------------------------


def refused(driver: Driver) -> str:
    """Checks that the reason is reported once and nothing is tried again; returns the reason."""
    told = notices(driver.connect())
    assert isinstance(driver.nodes.refusal, AuthenticationError)
    connects = len(driver.connects())
    for _ in range(5):
        driver.sleep(60_000)
        told += notices(driver.connect())
    assert len(driver.connects()) == connects == 1
    assert driver.nodes.refusal is not None and told == [str(driver.nodes.refusal)]
    return f"{driver.nodes.refusal.name}: {told[0]}"


def test_wrong_credentials_are_told_once_in_the_words_of_the_broker_and_never_tried_again() -> None:
    driver = authenticated()
    driver.cluster.scripts[SASL_AUTHENTICATE.key] = lambda asked: {
        **accepted(asked), "error_code": 58, "error_message": "no such user\nfake log line" + "x" * 5000
    }  # fmt: skip
    text = refused(driver)
    assert text.startswith("PKS-4001: ")
    assert "refused the credentials for PLAIN: SASL_AUTHENTICATION_FAILED (58)" in text
    assert "the broker says: no such user fake log linexxx" in text
    assert len(text) < 2400 and "hunter2" not in text


@pytest.mark.parametrize(("version", "end"), [(0, b""), (1, bytes(8))])
def test_a_refusal_without_a_token_is_told_in_the_words_of_the_broker(version: int, end: bytes) -> None:
    """As by Azure Event Hubs: null in a field that Kafka always fills."""
    cluster = FakeCluster({0: ("a", 9092)}, api_versions={SASL_AUTHENTICATE.key: (0, version)})
    driver = authenticated(cluster=cluster)
    driver.cluster.scripts[SASL_AUTHENTICATE.key] = lambda asked: None
    driver.connect()
    (token,) = driver.cluster.pending_of(SASL_AUTHENTICATE)
    said = b"Unauthorized access. 'Listen' claim(s) are required"
    answer = token.correlation_id.to_bytes(4, "big") + b"\x00\x3a" + len(said).to_bytes(2, "big") + said
    answer += b"\xff\xff\xff\xff" + end
    driver.cluster.inject(0, len(answer).to_bytes(4, "big") + answer)
    driver.run()
    assert isinstance(driver.nodes.refusal, AuthenticationError)
    assert said.decode() in str(driver.nodes.refusal)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("written", ["${KAFKA_PW}", "{{secrets/kafka/password}}"])
def test_a_refused_password_that_looks_like_a_reference_is_told_how_one_is_written(
    mechanism: str, written: str
) -> None:
    login = {"username": "alice", "password": written}
    driver = authenticated(lambda _host: password_exchange(mechanism, login, "abc"))
    driver.cluster.scripts[SASL_HANDSHAKE.key] = lambda asked: {"error_code": 0, "mechanisms": [mechanism]}
    driver.cluster.scripts[SASL_AUTHENTICATE.key] = lambda asked: {**accepted(asked), "error_code": 58}
    text = refused(driver)
    assert "The password is taken as it is written: a variable of the environment is ${env:NAME}" in text
    assert written not in text


def test_a_token_that_is_refused_is_no_matter_of_name_and_password() -> None:
    driver = authenticated(lambda _host: OAuthBearerExchange("a.b.c", {}))
    driver.cluster.scripts[SASL_AUTHENTICATE.key] = lambda asked: {**accepted(asked), "error_code": 58}
    text = refused(driver)
    assert "Check issuer, audience, subject and expiry of the token" in text and "sasl.password" not in text


def test_a_mechanism_that_is_not_offered_is_told_with_those_that_are() -> None:
    driver = authenticated()
    offered = ["SCRAM-SHA-512", "evil\n"]
    driver.cluster.scripts[SASL_HANDSHAKE.key] = lambda asked: {"error_code": 33, "mechanisms": offered}
    text = refused(driver)
    assert text.startswith("PKS-4004: ")
    assert "does not take sasl.mechanism=PLAIN: it offers SCRAM-SHA-512, evil " in text
    assert SASL_AUTHENTICATE not in apis(driver)


def test_a_listener_without_sasl_says_so() -> None:
    driver = authenticated()
    driver.cluster.scripts[SASL_HANDSHAKE.key] = lambda asked: {"error_code": 34, "mechanisms": []}
    text = refused(driver)
    assert text.startswith("PKS-4003: ") and "does not want SASL on this port" in text


def test_a_server_that_does_not_prove_itself_is_refused_by_us() -> None:
    driver = authenticated(lambda _host: TwoSteps())
    driver.cluster.scripts[SASL_AUTHENTICATE.key] = lambda asked: {**accepted(asked), "auth_bytes": b"wrong"}
    assert "the server did not prove itself. Nothing was sent to it but" in refused(driver)


def test_a_refusal_of_ours_keeps_its_name() -> None:
    class NoTicket(TwoSteps):
        def step(self, challenge: bytes) -> bytes | None:
            raise AuthenticationError("Kerberos gives no proof", KERBEROS_LOGIN)

    text = refused(authenticated(lambda _host: NoTicket()))
    assert text.startswith(f"{KERBEROS_LOGIN.name}: ") and "Kerberos gives no proof. Nothing was sent" in text


def test_credentials_that_are_not_there_end_it_before_anything_is_sent() -> None:
    def nothing(_host: str) -> Exchange:
        raise ConfigError("sasl.password refers to ${env:X}, which is not there")

    driver = authenticated(nothing)
    driver.connect()
    assert isinstance(driver.nodes.refusal, ConfigError)
    assert apis(driver) == [API_VERSIONS]


def test_credentials_that_are_gone_when_a_session_is_renewed_end_it_at_once() -> None:
    exchanges = [plain()]

    def once(_host: str) -> Exchange:
        if not exchanges:
            raise ConfigError("the file of sasl.password is gone")
        return exchanges.pop()

    driver = authenticated(once, lifetime_ms=10_000)
    driver.await_ready()
    driver.sleep(9_500)
    driver.connect()
    assert isinstance(driver.nodes.refusal, ConfigError) and not driver.cluster.connections


def test_a_mistake_of_our_own_is_raised_and_taken_for_no_refusal() -> None:
    def mistaken(_host: str) -> Exchange:
        raise LocalProtocolError("a bug")

    driver = authenticated(mistaken)
    driver.nodes.connect(0, driver.now_ms)
    with pytest.raises(LocalProtocolError, match="a bug"):
        driver.run()


# ---- temporary failures ----------------------------------------------------------------------------------------


def test_a_broker_without_sasl_authenticate_is_told() -> None:
    driver = authenticated(cluster=FakeCluster({0: ("a", 9092)}, api_versions={SASL_HANDSHAKE.key: (0, 0)}))
    driver.connect()
    assert "offers no SaslHandshake v1" in str(driver.nodes.last_failure)


@pytest.mark.parametrize("stage", [SASL_HANDSHAKE, SASL_AUTHENTICATE])
def test_a_connection_that_is_lost_on_the_way_says_where(stage: Any) -> None:
    driver = authenticated()
    driver.cluster.scripts[stage.key] = lambda asked: None
    driver.connect()
    driver.lose()
    assert "was lost while it authenticated: connection reset by peer" in str(driver.nodes.last_failure)


@pytest.mark.parametrize("stage", [SASL_HANDSHAKE, SASL_AUTHENTICATE])
@pytest.mark.parametrize(
    ("data", "says"),
    [
        ((NEGOTIATION_FRAME_BYTES_MAX + 1).to_bytes(4, "big"), "at most 524288 are accepted"),
        (b"\x00\x00\x00\x08\x00\x00\x00\x63\x00\x00\x00\x00", "has correlation id 99"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x00", "correlation id 0"),
        (b"\xff\xff\xff\xff", "announced a frame of -1 bytes"),
        (b"HTTP/1.1 200 OK\r\n", "an HTTP server"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "TLS (an alert record)"),
    ],
)
def test_bytes_that_are_no_answer_close_the_connection(stage: Any, data: bytes, says: str) -> None:
    driver = authenticated()
    driver.cluster.scripts[stage.key] = lambda asked: None
    driver.connect()
    driver.cluster.inject(0, data)
    driver.run()
    assert isinstance(driver.nodes.last_failure, RemoteProtocolError) and says in str(driver.nodes.last_failure)
    assert not driver.nodes.is_ready(0, driver.now_ms)


class Signed:
    """As AWS_MSK_IAM: one token."""

    mechanism = AWS_MSK_IAM
    doubt = ""

    def first(self) -> bytes:
        return b"{}"

    def step(self, challenge: bytes) -> bytes | None:
        return None


MANY = "[74909301-1b7d-44fe-b02e-fe699c66c073]: Too many connects"


def counted(said: str, **options: Any) -> Driver:
    """A driver whose broker refuses each login by IAM with this text."""
    driver = authenticated(lambda _host: Signed(), **options)
    driver.cluster.scripts[SASL_HANDSHAKE.key] = lambda asked: {"error_code": 0, "mechanisms": [AWS_MSK_IAM]}
    driver.cluster.scripts[SASL_AUTHENTICATE.key] = lambda asked: {
        **accepted(asked), "error_code": 58, "error_message": said
    }  # fmt: skip
    return driver


@pytest.mark.parametrize("dice", [0.0, 0.5, 0.9999])
def test_logins_that_are_too_many_in_a_second_are_no_wrong_credentials_and_wait_longer_each_time(dice: float) -> None:
    driver = counted(MANY, jitter=dice)
    delays = []
    for _ in range(6):
        driver.connect()
        delays.append(driver.delay_ms())
        driver.sleep(delays[-1])
    assert driver.nodes.refusal is None
    assert isinstance(driver.nodes.last_failure, TransportError) and driver.nodes.last_failure.name == "PKS-4011"
    assert "takes only so many logins by IAM in a second: SASL_AUTHENTICATION_FAILED (58)" in str(
        driver.nodes.last_failure
    )
    assert "Too many connects" in str(driver.nodes.last_failure)
    assert delays[0] >= 1_000 and delays == sorted(delays) and delays[-1] <= 10_000
    driver.cluster.scripts[SASL_AUTHENTICATE.key] = accepted
    driver.await_ready()


def test_other_refusals_by_iam_and_the_same_text_by_another_mechanism_are_final() -> None:
    refused(counted("[74909301-1b7d-44fe-b02e-fe699c66c073]: Access denied"))
    driver = authenticated()
    driver.cluster.scripts[SASL_AUTHENTICATE.key] = lambda asked: {
        **accepted(asked), "error_code": 58, "error_message": MANY
    }  # fmt: skip
    refused(driver)


# ---- sessions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dice", "share"), [(0.0, 0.85), (0.5, 0.9), (0.9999, 0.95)])
def test_a_session_is_renewed_between_85_and_95_percent_of_its_life(dice: float, share: float) -> None:
    end_ms = session_end_ms(1_000, 100_000, dice)
    assert end_ms is not None and abs(end_ms - 1_000 - 100_000 * share) <= 10


@pytest.mark.parametrize("lifetime_ms", [0, -1, -(2**63)])
def test_a_session_without_a_life_never_ends(lifetime_ms: int) -> None:
    assert session_end_ms(1_000, lifetime_ms, 0.5) is None


@histories("""
a session that nobody needs is left to end
    with lifetime_ms=10000
    ready 8999ms usable=yes 1ms usable=no requests=ApiVersions,SaslHandshake,SaslAuthenticate offered=0

a session is renewed on the same connection behind what is in flight
    with lifetime_ms=10000
    ready send send in_flight=2 9000ms connect usable=no in_flight=2
    requests=ApiVersions,SaslHandshake,SaslAuthenticate,Produce,Produce,SaslHandshake
    ok ok answers=ok,ok usable=yes connects=1
    requests=ApiVersions,SaslHandshake,SaslAuthenticate,Produce,Produce,SaslHandshake,SaslAuthenticate
    8999ms usable=yes

wishes while a session is renewed change nothing
    with lifetime_ms=10000
    ready send 9000ms connect connect ok usable=yes
    requests=ApiVersions,SaslHandshake,SaslAuthenticate,Produce,SaslHandshake,SaslAuthenticate

a full node is not asked for a new session before the old one ends
    with lifetime_ms=10000 max_in_flight_requests_per_connection=1
    ready send 8999ms connect requests=ApiVersions,SaslHandshake,SaslAuthenticate,Produce

what was in flight fails once when the connection is lost during a renewal
    with lifetime_ms=10000
    ready send 9000ms connect lost answers=lost

a renewal that came too early is mended by a new connection
    with lifetime_ms=1000
    ready refuses:SaslHandshake,34 900ms connect refused=no says:"did not begin a new session"
    tries usable=yes connects=2

credentials that were revoked end it at the renewal
    with lifetime_ms=10000
    ready refuses:SaslAuthenticate,58 9000ms connect refused=yes says:"refused the credentials"

a renewal does not keep an idle connection alive
    with lifetime_ms=10000 connections_max_idle_ms=60000
    ready 60000ms connections=0

a throttled connection is not asked for a new session
    with lifetime_ms=10000
    ready send 8500ms throttled:2000 1000ms connect requests=ApiVersions,SaslHandshake,SaslAuthenticate,Produce
    1000ms connect usable=yes

another error code is a trouble of the broker and tried again
    refuses:SaslHandshake,-1 connect refused=no losses=1 tries usable=yes lost
    refuses:SaslAuthenticate,7 tries refused=no losses=3 tries usable=yes lost
    refuses:SaslAuthenticate,56 tries refused=no losses=5 tries usable=yes
""")
def test_sessions_and_troubles_that_may_pass(history: History) -> None:
    check(authenticated(**history.options), history)


# ---- the whole engine ------------------------------------------------------------------------------------------


def test_a_refusal_fails_what_waits_and_what_comes_at_once() -> None:
    driver = EngineDriver()
    driver.engine.nodes._authenticator = plain
    scripts = driver.cluster.scripts
    scripts[SASL_HANDSHAKE.key] = lambda asked: {"error_code": 0, "mechanisms": []}
    scripts[SASL_AUTHENTICATE.key] = lambda asked: {**accepted(asked), "error_code": 58}
    driver.disconnect()
    batch = new_batch()
    driver.run(Append([batch]))
    driver.sleep(1_000)
    assert isinstance(driver.engine.refusal, AuthenticationError)
    assert "refused the credentials" in str(driver.error_of(batch)) and "not in the log" in str(driver.error_of(batch))
    late = driver.send()
    assert isinstance(driver.error_of(late).__cause__, AuthenticationError)
