"""OAUTHBEARER: tokens from a function and from a token endpoint, valid ones, invalid ones, and ones that expire."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl

import pytest

from kafka_sink import AuthenticationError, ConfigError, KafkaSinkError, Producer, TransportError
from kafka_sink.kafka.auth import refused, renewal
from kafka_sink.kafka.auth.renewal import Renewed, _try_get
from kafka_sink.kafka.auth.secured import authenticator
from kafka_sink.kafka.auth.token import SHARED_S, token_source
from kafka_sink.kafka.client.authentication import Authenticator
from kafka_sink.kafka.io import warn_once, web
from kafka_sink.options import ProducerOptions
from kafka_sink.options.parse import parse_producer_options
from tests.conftest import NEWEST, or_without_kafka
from tests.support.certificates import Authority
from tests.support.producing import transacted_for, values
from tests.support.secured_kafka import SecuredKafka, running
from tests.support.token_server import AUDIENCE, ISSUER, TokenServer, unsecured_token
from tools.kafka_node import FAST_START
from tools.kafka_security import SASL_SSL
from tools.waiting import wait_until

WAIT_S = 90.0
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
CREDENTIALS = "sasl.oauthbearer.client.credentials."


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with TokenServer() as server:
        yield server


def options(server: TokenServer | None = None, **more: Any) -> ProducerOptions:
    chosen: dict[str, Any] = {
        "bootstrap.servers": "b:1",
        "security.protocol": "SASL_PLAINTEXT",
        "allow.plaintext.credentials": "true",
        "sasl.mechanism": "OAUTHBEARER",
        # One attempt: a test that fails does not wait.
        "sasl.login.retry.backoff.max.ms": 100,
    }
    if server is not None:
        chosen |= {ENDPOINT: server.url, f"{CREDENTIALS}client.id": "me", f"{CREDENTIALS}client.secret": "hunter2"}
    return parse_producer_options(chosen | {name.replace("_", "."): value for name, value in more.items()})


def message(chosen: ProducerOptions) -> bytes:
    new_exchange = authenticator(chosen)
    assert new_exchange is not None
    return new_exchange("b").first()


def refusal(chosen: ProducerOptions) -> KafkaSinkError:
    with pytest.raises(KafkaSinkError) as caught:
        message(chosen)
    assert "hunter2" not in str(caught.value)
    return caught.value


# ---- the token endpoint ----------------------------------------------------------------------------------------


def test_id_and_secret_are_exchanged_for_a_token(server: TokenServer) -> None:
    first = message(options(server, sasl_oauthbearer_scope="kafka read"))
    assert first.startswith(b"n,,\x01auth=Bearer ey") and first.endswith(b"\x01\x01")
    ((authorization, body),) = server.requests
    assert authorization == "Basic bWU6aHVudGVyMg=="
    assert body == "grant_type=client_credentials&scope=kafka+read"


def test_a_jaas_configuration_of_java_holds_id_secret_scope_and_extensions(server: TokenServer) -> None:
    jaas = (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'clientId="me" clientSecret="hunter2" scope="s" extension_logicalCluster="lkc-1";'
    )
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
    more = {ENDPOINT: server.url, "sasl.jaas.config": jaas, "sasl.login.callback.handler.class": handler}
    assert message(options(**more)).endswith(b"\x01logicalCluster=lkc-1\x01\x01")
    assert server.requests == [("Basic bWU6aHVudGVyMg==", "grant_type=client_credentials&scope=s")]


def test_an_assertion_in_a_file_takes_the_place_of_the_secret(server: TokenServer, tmp_path: Path) -> None:
    place = tmp_path / "assertion"
    place.write_text("hunter2.one\n")
    more = {ENDPOINT: server.url, "sasl.oauthbearer.assertion.file": str(place), "sasl.oauthbearer.scope": "s"}
    message(options(**more, **{f"{CREDENTIALS}client.id": "me"}))
    place.write_text("hunter2.two")
    message(options(**more, **{"sasl.oauthbearer.jwt.retriever.class": "JwtBearerJwtRetriever"}))
    forms = [dict(parse_qsl(body)) for _, body in server.requests]
    urn = "urn:ietf:params:oauth"
    assert forms == [
        {"grant_type": "client_credentials", "client_assertion": "hunter2.one", "client_id": "me", "scope": "s",
         "client_assertion_type": f"{urn}:client-assertion-type:jwt-bearer"},
        {"grant_type": f"{urn}:grant-type:jwt-bearer", "assertion": "hunter2.two", "scope": "s"},
    ]  # fmt: skip
    assert [authorization for authorization, _ in server.requests] == [None, None]
    place.write_text("")
    assert "assertion.file" in str(refusal(options(**more)))


def test_an_endpoint_with_a_certificate_is_verified(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with TokenServer(authority.issue("token", "127.0.0.1")) as server:
        tls = {"security_protocol": "SASL_SSL"}
        assert message(options(server, **tls, ssl_truststore_location=str(authority.path)))
        stranger = Authority(tmp_path, "stranger")
        error = refusal(options(server, **tls, ssl_truststore_location=str(stranger.path)))
        assert "certificate verify failed" in str(error) or "CERTIFICATE_VERIFY_FAILED" in str(error)
        assert len(server.requests) == 1


def test_blanks_around_the_address_of_an_endpoint_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    with TokenServer(authority.issue("token", "127.0.0.1")) as server:
        monkeypatch.setenv("TOKEN_URL", f" {server.url}\n")
        named = {ENDPOINT: "${env:TOKEN_URL}", "ssl.truststore.location": str(authority.path)}
        assert message(options(server, security_protocol="SASL_SSL", **named))


def test_lists_of_revoked_certificates_are_those_of_brokers_and_not_of_the_endpoint(tmp_path: Path) -> None:
    brokers, company = Authority(tmp_path, "brokers"), Authority(tmp_path, "company")
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(brokers.text + company.text)
    with TokenServer(company.issue("token", "127.0.0.1")) as server:
        tls = {"ssl_truststore_location": str(trusted), "ssl_crl_location": str(brokers.revoke())}
        assert message(options(server, security_protocol="SASL_SSL", **tls))


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (
            (401, {}, b'{"error": "invalid_client"}'),
            AuthenticationError,
            "answered 401 (invalid_client): check client id",
        ),
        ((400, {}, b"<html>hunter2</html>"), AuthenticationError, "answered 400: check"),
        ((302, {"Location": "http://127.0.0.1:1/"}, b""), AuthenticationError, "answered 302"),
        ((200, {}, b"x" * 1_000_000), AuthenticationError, "more than 262144 bytes"),
        ((200, {}, b"[" * 100_000), AuthenticationError, "did not answer with JSON"),
        ((200, {}, b'{"access_token": 7}'), AuthenticationError, "without an access_token"),
        (
            (200, {}, b'{"access_token": "hunter2 \\u0001"}'),
            AuthenticationError,
            "the token for OAUTHBEARER is not valid",
        ),
    ],
)
def test_an_answer_that_holds_no_token_is_told_without_its_content(
    server: TokenServer, answer: tuple[int, dict[str, str], bytes], kind: type[KafkaSinkError], says: str
) -> None:
    server.answers.append(answer)
    error = refusal(options(server))
    assert isinstance(error, kind) and says in str(error), error
    assert error.name == "PKS-4008"
    assert len(server.requests) == 1


def test_an_endpoint_in_trouble_is_asked_again(server: TokenServer) -> None:
    server.answers += [(503, {}, b""), (429, {}, b"")]
    assert message(options(server, sasl_login_retry_backoff_ms=10, sasl_login_retry_backoff_max_ms=5_000))
    assert len(server.requests) == 3


def test_an_endpoint_in_trouble_has_a_pause_whatever_the_options_say(server: TokenServer) -> None:
    server.answers += [(503, {}, b"")] * 100
    error = refusal(options(server, sasl_login_retry_backoff_ms=0, sasl_login_retry_backoff_max_ms=500))
    assert isinstance(error, TransportError) and 1 < len(server.requests) < 5


def test_pauses_begin_and_end_as_the_options_say(server: TokenServer, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, waits = [0.0], []

    def sleep(wait_s: float) -> None:
        waits.append(wait_s)
        now_s[0] += wait_s

    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: now_s[0], time=time.time)
    monkeypatch.setattr("kafka_sink.kafka.auth.renewal.time", clock)
    server.answers += [(503, {}, b"")] * 100
    refusal(options(server, sasl_login_retry_backoff_ms=300, sasl_login_retry_backoff_max_ms=2_000))
    assert waits == [0.3, 0.6]


def test_id_and_secret_are_encoded_for_the_header_if_the_option_says_so(server: TokenServer) -> None:
    server.answers += [(503, {}, b"")] * 100
    refusal(options(server, sasl_oauthbearer_header_urlencode=True, **{f"{CREDENTIALS}client.id": "me & you"}))
    assert server.requests[0][0] == f"Basic {b64encode(b'me+%26+you:hunter2').decode()}"


def test_a_slow_endpoint_has_the_time_of_the_options(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with TokenServer(authority.issue("token", "127.0.0.1"), pause_s=1.0) as server:
        tls = {"security_protocol": "SASL_SSL", "ssl_truststore_location": str(authority.path)}
        error = refusal(options(server, **tls, sasl_login_read_timeout_ms=200, sasl_login_connect_timeout_ms=20_000))
        assert isinstance(error, TransportError) and "did not answer: " in str(error) and "timed out" in str(error)
        assert message(options(server, **tls, sasl_login_read_timeout_ms=20_000))


def test_an_endpoint_that_is_down_is_named() -> None:
    with TokenServer() as server:
        chosen = options(server)
    error = refusal(chosen)
    assert isinstance(error, TransportError) and f"{server.url} did not answer" in str(error)
    assert error.name == "PKS-4008"


def test_an_answer_in_chunks_is_as_long_as_these_and_not_as_a_proxy_says(server: TokenServer) -> None:
    token = server.token()
    body = json.dumps({"access_token": token}).encode()
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    server.answers.append((200, {"Transfer-Encoding": "chunked"}, chunks))
    assert token.encode() in message(options(server))


@pytest.mark.parametrize(("url", "secret"), [("http://127.0.0.1:1/", "hunter2\nmore"), ("http://127.0.0.1:1/ /", "")])
def test_what_does_not_fit_into_a_request_is_not_shown(url: str, secret: str) -> None:
    headers, timeouts_ms = {"Authorization": f"Bearer {secret}"}, (1000, 1000)
    with pytest.raises(TransportError, match="does not fit into a request") as caught:
        web.ask("the receiver", ssl.create_default_context, url, headers=headers, bytes_max=1, timeouts_ms=timeouts_ms)
    assert "hunter2" not in str(caught.value)


def test_an_endpoint_that_hangs_up_is_not_taken_for_one_of_another_protocol() -> None:
    def hear_and_hang_up() -> None:
        with listener.accept()[0] as accepted:
            while b"grant_type" not in accepted.recv(1 << 16):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as pool:
        pool.submit(hear_and_hang_up)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        more = {f"{CREDENTIALS}client.id": "me", f"{CREDENTIALS}client.secret": "hunter2"}
        text = str(refusal(options(**{ENDPOINT: url}, **more)))
    assert "did not answer: " in text and "no HTTP" not in text


@pytest.mark.parametrize(
    "url", ["http://tokens.example.org/", "http://localhost/", "file:///etc/passwd", "ftp://127.0.0.1/", "https:///x"]
)
def test_a_secret_goes_nowhere_but_over_tls_or_to_this_host(url: str) -> None:
    chosen = options(**{ENDPOINT: url, f"{CREDENTIALS}client.id": "me", f"{CREDENTIALS}client.secret": "hunter2"})
    error = refusal(chosen)
    assert isinstance(error, ConfigError) and "must begin with https://" in str(error)


@pytest.mark.parametrize(
    "url",
    [
        "https://[::1/hunter2",
        "https://127.0.0.1:99999/",
        "https://127.0.0.1:port/",
        "https://127.0.0.1:1/a b",
        "https://127.0.0.1:1/\u00e4",
        "https://127.0.0.1:1/a\nb",
        "https://me:hunter2@127.0.0.1/",
        "https://\u2100.com/",
    ],
)
def test_an_address_that_is_none_is_refused_and_nobody_is_asked(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN_URL", url)
    more = {f"{CREDENTIALS}client.id": "me", f"{CREDENTIALS}client.secret": "hunter2"}
    error = refusal(options(**{ENDPOINT: "${env:TOKEN_URL}"}, **more))
    assert isinstance(error, ConfigError) and f"{ENDPOINT} is no address" in str(error)


# ---- a function ------------------------------------------------------------------------------------------------


def boom() -> str:
    raise RuntimeError("hunter2")


def test_a_function_is_called_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_tokens.py").write_text("def get():\n    return 'a.b.c'\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert b"auth=Bearer a.b.c\x01" in message(options(sasl_oauthbearer_token_provider="my_tokens:get"))
    sys.modules.pop("my_tokens")


@pytest.mark.parametrize(("code", "kind"), [("def get(:\n", "SyntaxError"), ("{}['hunter2']\n", "KeyError")])
def test_a_module_that_cannot_be_loaded_is_named_with_its_option(
    code: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_broken_tokens.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    error = refusal(options(sasl_oauthbearer_token_provider="my_broken_tokens:get"))
    assert isinstance(error, ConfigError) and error.name == "PKS-1007"
    assert f"my_broken_tokens:get cannot be imported here: its module raised {kind}" in str(error)


@pytest.mark.parametrize(
    ("provider", "says"),
    [
        (boom, "raised RuntimeError"),
        (lambda: 7, "returned int, not text"),
        (lambda: "hunter2 with blanks", "the token for OAUTHBEARER is not valid"),
        ("no_such_module:get", "cannot be imported here"),
        ("json:no_such_function", "cannot be imported here"),
        ("json:__name__", "is no function"),
    ],
)
def test_a_function_that_gives_no_token_is_named_and_nothing_of_it_is_shown(provider: Any, says: str) -> None:
    assert says in str(refusal(options(sasl_oauthbearer_token_provider=provider)))


# ---- tokens that expire ----------------------------------------------------------------------------------------


def test_a_renewal_that_is_refused_is_tried_again_after_a_minute_whether_the_token_lives_or_not(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(Renewed, "_set_timer", lambda _self, wait_s: waits.append(wait_s))
    tokens = token_source(options(server))
    server.answers += [(401, {}, b'{"error": "invalid_client"}')] * 10
    for _ in range(2):
        tokens.on_renewed(*_try_get(tokens._get))
    assert len(server.requests) == 2 and all(59 < wait_s <= 60 for wait_s in waits[1:]), waits
    tokens._end_s = time.time() - 1
    for _ in range(3):
        with pytest.raises(AuthenticationError, match="answered 401"):
            tokens.current()
    assert len(server.requests) == 2


def test_a_token_is_renewed_behind_the_scenes_and_used_until_then(server: TokenServer) -> None:
    server.life_s = 12
    more = {"sasl.login.refresh.window.factor": 0.5, "sasl.login.refresh.window.jitter": 0}
    new_exchange = authenticator(options(server, **more))
    assert new_exchange is not None
    first = new_exchange("b").first()
    assert new_exchange("b").first() == first and len(server.requests) == 1
    wait_until(lambda: new_exchange("b").first() != first, "the token is renewed")
    assert len(server.requests) == 2


def test_nobody_is_asked_for_tokens_that_nobody_needs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # What was refused is tried again after a minute (tests/unit/security/test_refused.py), and whoever asks once in
    # minutes would look quiet.
    monkeypatch.setattr(refused, "REFUSED_S_MIN", 0.1)
    monkeypatch.setattr(refused, "REFUSED_S_MAX", 0.1)
    asked: list[int] = []

    def next_token() -> str:
        asked.append(1)
        if len(asked) > 1:
            try:
                raise ValueError
            except ValueError as error:
                kept = error  # a cycle: the error knows this frame, and the frame the error
                raise RuntimeError from kept
        return unsecured_token(life_s=2)

    new_exchange = authenticator(options(sasl_oauthbearer_token_provider=next_token))
    wait_until(lambda: len(asked) > 2 and "no new token for OAUTHBEARER" in caplog.text, "it is asked again and again")
    del new_exchange

    def is_quiet() -> bool:
        # A request that was in progress when its owner was dropped may still end.
        count = len(asked)
        time.sleep(1.0)
        return len(asked) == count

    assert wait_until(is_quiet, "nobody asks any more", 20)


def test_a_token_that_has_ended_is_not_sent(server: TokenServer) -> None:
    server.life_s = 1
    new_exchange = authenticator(options(server))
    assert new_exchange is not None
    first = new_exchange("b").first()
    time.sleep(2.1)
    assert new_exchange("b").first() != first


def test_a_token_is_used_and_followed_by_another_though_there_is_no_thread_to_renew_it(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(renewal, "threading", SimpleNamespace(Lock=threading.Lock, Timer=TimerWithoutRoom))
    monkeypatch.setattr(warn_once.WARNED, "value", warn_once.WARNED.make())
    server.life_s = 2
    new_exchange = authenticator(options(server))
    assert new_exchange is not None
    first = new_exchange("b").first()
    wait_until(lambda: new_exchange("b").first() != first, "a new one is fetched when it has expired")
    assert caplog.text.count("no thread could be started to renew") == 1


class TimerWithoutRoom(threading.Timer):
    def start(self) -> None:
        raise RuntimeError("can't start new thread")


def opaque(token: str, **more: Any) -> tuple[int, dict[str, str], bytes]:
    """The answer of an endpoint whose tokens say nothing."""
    return 200, {}, json.dumps({"access_token": token, "token_type": "Bearer", **more}).encode()


def sent_token(new_exchange: Authenticator, host: str = "b") -> str:
    return new_exchange(host).first().partition(b"auth=Bearer ")[2].rstrip(b"\x01").decode()


def test_a_token_that_does_not_say_its_end_ends_when_the_endpoint_says(server: TokenServer) -> None:
    server.answers += [opaque("one", expires_in=3), opaque("two", expires_in="1"), opaque("three", expires_in=3600)]
    more = {"sasl.login.refresh.window.factor": 0.5, "sasl.login.refresh.window.jitter": 0}
    new_exchange = authenticator(options(server, **more))
    assert new_exchange is not None
    assert sent_token(new_exchange) == sent_token(new_exchange) == "one" and len(server.requests) == 1
    # Nobody opens a connection meanwhile: it is the timer that asks.
    wait_until(lambda: len(server.requests) == 2, "it is renewed behind the scenes")
    wait_until(lambda: sent_token(new_exchange) == "three", "and the next one, too")
    assert len(server.requests) == 3


@pytest.mark.parametrize("source", ["endpoint", "function"])
def test_a_token_whose_end_nobody_tells_is_fetched_again_for_later_connections(
    source: str, server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_sink.kafka.auth.token.SHARED_S", 1.0)
    server.answers += [opaque(f"token-{number}") for number in range(9)]
    numbers = iter(range(9))
    next_token = lambda: f"token-{next(numbers)}"  # noqa: E731
    chosen = options(server) if source == "endpoint" else options(sasl_oauthbearer_token_provider=next_token)
    new_exchange = authenticator(chosen)
    assert new_exchange is not None
    # Those that are opened at the same moment share one, whichever broker they lead to.
    assert {sent_token(new_exchange, f"broker-{number}") for number in range(50)} == {"token-0"}
    time.sleep(1.1)
    assert {sent_token(new_exchange, f"broker-{number}") for number in range(50)} == {"token-1"}


def test_threads_that_need_a_token_at_once_share_one(server: TokenServer) -> None:
    server.answers += [opaque(f"token-{number}") for number in range(99)]
    tokens = token_source(options(server))
    tokens._fetched_s -= SHARED_S
    with ThreadPoolExecutor(20) as pool:
        found = set(pool.map(lambda _: tokens.current().text, range(20)))
    assert found == {"token-1"} and len(server.requests) == 2


@pytest.mark.parametrize(
    ("answer", "says"), [((401, {}, b'{"error": "invalid_client"}'), "answered 401"), ((503, {}, b""), "answered 503")]
)
def test_a_token_that_may_still_be_good_is_used_if_there_is_no_other(
    answer: tuple[int, dict[str, str], bytes],
    says: str,
    server: TokenServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.answers += [opaque("one"), answer, opaque("two")]
    tokens = token_source(options(server))
    tokens._fetched_s -= SHARED_S
    # An endpoint that does not answer takes its time: connections share that, too.
    assert {tokens.current().text for _ in range(9)} == {"one"} and len(server.requests) == 2
    assert caplog.text.count("no new token for OAUTHBEARER, the current one is still used") == 1 and says in caplog.text
    monkeypatch.setattr(refused.RefusedLogin, "left_s", 0.0)  # a minute has passed
    tokens._fetched_s -= SHARED_S
    assert tokens.current().text == "two"


# ---- Apache Kafka ----------------------------------------------------------------------------------------------


def test_a_transaction_goes_on_while_its_token_ends(
    secured: SecuredKafka, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = secured.kafka.create_topic(topic_name)
    tokens: list[str] = []

    def next_token() -> str:
        tokens.append(unsecured_token(life_s=4))
        return tokens[-1]

    chosen = secured.options(
        SASL_SSL, "OAUTHBEARER", sasl_oauthbearer_token_provider=next_token, transactional_id=topic, linger_ms=0
    )
    sent, told = transacted_for(9, chosen, topic, caplog)
    assert values(secured.kafka, topic) == sent
    assert len(tokens) >= 3
    # Only messages of this test: the token source of the previous test may take a moment to end.
    told = [text for text in told if topic in text]
    # Normally it is renewed twice, but after a pause of the machine the session may end first.
    assert any("new session with" in text for text in told)
    assert not [text for text in told if "refused" in text or "Bearer" in text]


def test_a_token_that_kafka_does_not_take_is_told_with_its_reason(secured: SecuredKafka, topic_name: str) -> None:
    topic = secured.kafka.create_topic(topic_name)
    chosen = secured.options(
        SASL_SSL, "OAUTHBEARER", sasl_oauthbearer_token_provider=lambda: unsecured_token(life_s=-100)
    )
    with Producer(chosen) as producer, pytest.raises(AuthenticationError) as caught:
        producer.send(topic, value=b"never").result(WAIT_S)
    assert "refused the credentials for OAUTHBEARER: SASL_AUTHENTICATION_FAILED (58)" in str(caught.value)
    assert json.dumps({"status": "invalid_token"})[1:-1].replace(" ", "") in str(caught.value).replace(" ", "")


def test_kafka_takes_the_signed_token_of_an_endpoint_and_its_next_one(
    server: TokenServer, tmp_path: Path, topic_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Complete OIDC: the broker fetches the keys from the same server and checks signature and audience."""
    server.life_s = 5
    listener = "listener.name.sasl_ssl.oauthbearer"
    package = "org.apache.kafka.common.security.oauthbearer"
    properties = {
        f"{listener}.sasl.server.callback.handler.class": f"{package}.OAuthBearerValidatorCallbackHandler",
        f"{listener}.sasl.jaas.config": f"{package}.OAuthBearerLoginModule required;",
        f"{listener}.sasl.oauthbearer.jwks.endpoint.url": server.url,
        f"{listener}.sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{listener}.sasl.oauthbearer.expected.issuer": ISSUER,
        f"{listener}.sasl.oauthbearer.clock.skew.seconds": 1,
        f"{listener}.connections.max.reauth.ms": 3_600_000,
    }
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={server.url}"
    with or_without_kafka(running(NEWEST, tmp_path, properties, jvm_options=(*FAST_START, allowed))) as secured:
        topic = secured.kafka.create_topic(topic_name)
        credentials = {ENDPOINT: server.url, f"{CREDENTIALS}client.id": "me", f"{CREDENTIALS}client.secret": "hunter2"}
        chosen = {**secured.options(SASL_SSL, "OAUTHBEARER"), **credentials}
        with caplog.at_level(logging.DEBUG, "kafka_sink"), Producer(chosen) as producer:
            until_s = time.monotonic() + 9
            count = 0
            while time.monotonic() < until_s:
                producer.send(topic, value=b"%d" % count).result(WAIT_S)
                count += 1
                time.sleep(0.05)
        assert len(values(secured.kafka, topic)) == count
    assert len(server.requests) >= 2
    assert "new session with" in caplog.text and "hunter2" not in caplog.text and "refused" not in caplog.text
