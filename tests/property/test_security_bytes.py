"""Any bytes from a server, a token endpoint or a configuration give an answer or a named failure, nothing else."""

from __future__ import annotations

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.errors import AuthenticationError, ConfigError
from kafka_sink.security.jaas import parse_jaas
from kafka_sink.security.kerberos import GssapiExchange
from kafka_sink.security.oauthbearer import expiry_s, parse_error_answer, parse_token_answer
from kafka_sink.security.scram import ScramExchange
from tests.support.security_contexts import WRAPPED, ScriptedContext

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
NONCE = "rOprNGfwEbeRWgbNEkqO"


def new() -> ScramExchange:
    return ScramExchange("SCRAM-SHA-256", "user", "pencil", NONCE)


def challenged() -> ScramExchange:
    exchange = new()
    exchange.step(f"r={NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    return exchange


@given(st.one_of(st.binary(max_size=300), st.text(max_size=100).map(lambda text: f"r={NONCE}{text}".encode())))
def test_any_bytes_end_in_an_answer_or_a_named_failure(challenge: bytes) -> None:
    for exchange in (new(), challenged()):
        try:
            exchange.step(challenge)
        except AuthenticationError as error:
            assert str(error).isprintable()


@given(
    st.lists(
        st.one_of(st.binary(max_size=20), st.binary(max_size=6).map(lambda rest: WRAPPED + rest)),
        min_size=1,
        max_size=8,
    )
)
def test_any_messages_of_gssapi_end_in_an_answer_or_a_named_failure(challenges: list[bytes]) -> None:
    exchange = GssapiExchange(ScriptedContext(tokens=1))
    exchange.first()
    try:
        answers = [exchange.step(challenge) for challenge in challenges]
        assert answers and None not in answers[:2]
    except AuthenticationError as error:
        assert str(error).isprintable()


@given(st.text(alphabet="abA1.$ \n\t=\"'\\;/*,{}", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for whole in (text, f"a.B required {text};"):
        try:
            parse_jaas(whole)
        except ConfigError as error:
            assert str(error).startswith("sasl.jaas.config is not valid")


@given(st.text(max_size=30))
def test_whatever_java_would_escape_comes_back(password: str) -> None:
    if not set(password) & set("\r\n"):
        escaped = password.replace("\\", "\\\\").replace('"', '\\"')
        assert parse_jaas(f'{SCRAM} required password="{escaped}";').options["password"] == password


@given(st.binary(max_size=200))
def test_any_claims_are_read_or_not(claims: bytes) -> None:
    end_s = expiry_s(f"a.{base64.urlsafe_b64encode(claims).decode()}.c")
    assert end_s is None or end_s > 0


@given(st.one_of(st.binary(max_size=100), st.dictionaries(st.text(), st.text()).map(lambda d: json.dumps(d).encode())))
def test_any_answer_of_an_endpoint_is_read_or_refused(body: bytes) -> None:
    assert parse_error_answer(body).isprintable()
    try:
        assert parse_token_answer(body, "it", 0)
    except AuthenticationError:
        assert True
