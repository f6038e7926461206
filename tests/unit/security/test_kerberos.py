"""GSSAPI: the order of messages, and invalid messages of a server. A scripted context replaces that of the library."""

from __future__ import annotations

import pytest

from kafka_sink.errors import AuthenticationError, ConfigError
from kafka_sink.security.kerberos import MESSAGE_BYTES_MAX, TOKENS_MAX, GssapiExchange, KerberosLogin, kerberos_login
from tests.support.security_contexts import WRAPPED, ScriptedContext

NO_LAYER = b"\x01\x00\x01\x00"


def established() -> GssapiExchange:
    exchange = GssapiExchange(ScriptedContext(tokens=1))
    exchange.first()
    exchange.step(b"proof")
    return exchange


def test_the_client_chooses_no_layer_and_says_its_name() -> None:
    exchange = GssapiExchange(ScriptedContext(tokens=1))
    assert exchange.first() == b"token 0"
    assert exchange.step(b"proof") == b""
    assert exchange.step(WRAPPED + NO_LAYER) == WRAPPED + b"\x01\x00\x00\x00alice@R"
    assert exchange.step(b"") is None


@pytest.mark.parametrize("offer", [b"\x01\x00\x00\x00", b"\x07\x00\xff\xff"])
def test_an_offer_with_layers_is_taken_when_none_is_among_them(offer: bytes) -> None:
    assert established().step(WRAPPED + offer) == WRAPPED + b"\x01\x00\x00\x00alice@R"


@pytest.mark.parametrize(
    ("challenge", "says"),
    [
        (WRAPPED + b"\x06\x00\xff\xff", "it demands a security layer"),
        (WRAPPED + b"\x01\x00\x00", "its offer of security layers is not one"),
        (WRAPPED + b"\x01\x00\x00\x00\x00", "its offer of security layers is not one"),
        (WRAPPED, "its offer of security layers is not one"),
        (b"", "an empty message in the place of its proof"),
        (b"x" * (MESSAGE_BYTES_MAX + 1), f"{MESSAGE_BYTES_MAX + 1} bytes, at most"),
        (b"not wrapped", "scripted"),
    ],
)
def test_what_is_no_offer_is_a_failure(challenge: bytes, says: str) -> None:
    with pytest.raises(AuthenticationError, match=says):
        established().step(challenge)


@pytest.mark.parametrize("challenge", [b"", b"x" * (MESSAGE_BYTES_MAX + 1)])
def test_what_is_no_proof_is_a_failure(challenge: bytes) -> None:
    exchange = GssapiExchange(ScriptedContext(tokens=1))
    exchange.first()
    with pytest.raises(AuthenticationError, match=r"GSSAPI with the server failed: it sent"):
        exchange.step(challenge)


def test_a_server_that_never_ends_is_left() -> None:
    exchange = GssapiExchange(ScriptedContext(tokens=1000))
    exchange.first()
    for _ in range(TOKENS_MAX):
        exchange.step(b"more")
    with pytest.raises(AuthenticationError, match=f"does not come to an end after {TOKENS_MAX} tokens"):
        exchange.step(b"more")


def test_a_server_that_goes_on_talking_is_left() -> None:
    exchange = established()
    exchange.step(WRAPPED + NO_LAYER)
    with pytest.raises(AuthenticationError, match="went on talking"):
        exchange.step(b"more")


def test_a_keytab_is_used_before_a_ticket_cache() -> None:
    module = {"useKeyTab": "true", "useTicketCache": "true", "keyTab": "f", "principal": "a@R", "ticketCache": "c"}
    assert kerberos_login("kafka", None, None, module) == KerberosLogin(service="kafka", principal="a@R", keytab="f")


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ({"useTicketCache": "true"}, KerberosLogin(service="kafka")),
        ({"useTicketCache": "true", "principal": "a@R"}, KerberosLogin(service="kafka", principal="a@R")),
        (
            {"useTicketCache": "true", "principal": "a@R", "ticketCache": "/c"},
            KerberosLogin(service="kafka", principal="a@R", ticket_cache="/c"),
        ),
    ],
)
def test_a_ticket_is_of_the_named_principal_and_from_the_named_cache(
    module: dict[str, str], expected: KerberosLogin
) -> None:
    assert kerberos_login("kafka", None, None, module) == expected
    assert kerberos_login(None, None, None, {"serviceName": "kafka", **module}) == expected


def test_the_options_name_principal_and_keytab_and_nothing_else_names_them_too() -> None:
    expected = KerberosLogin(service="kafka", principal="a@R", keytab="f")
    assert kerberos_login("kafka", "a@R", "f", None) == expected
    with pytest.raises(ConfigError, match=r"^sasl\.kerberos\.keytab and sasl\.jaas\.config contradict each other"):
        kerberos_login("kafka", None, "f", {"useTicketCache": "true"})
