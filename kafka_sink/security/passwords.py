"""Logins with a name and a password: PLAIN (RFC 4616) sends both in one message, in clear text; SCRAM proves them."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.brokers import LOGIN_OPTIONS
from kafka_sink.security.mechanisms import PLAIN, Exchange
from kafka_sink.security.reference import AS_WRITTEN, is_like_reference
from kafka_sink.security.scram import ScramExchange


class PlainExchange:
    """The server is not authenticated, except by TLS."""

    mechanism = PLAIN
    doubt = ""

    def __init__(self, username: str, password: str) -> None:
        self._token = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def step(self, challenge: bytes) -> bytes | None:
        del challenge  # the exchange is complete; a refusal is an error code of the enclosing response
        return None


def password_exchange(mechanism: str, login: Mapping[str, str], nonce: str) -> Exchange:
    """`login`: the options of Java's login modules; tokenauth: name and password are those of a delegation token (SCRAM
    only). `nonce` is printable ASCII without a comma, and unpredictable."""
    username, password = login.get("username", ""), login.get("password", "")
    for name, value in (("user name", username), ("password", password)):
        if not value or "\0" in value:
            fault = "is missing or empty" if not value else "contains a NUL character"
            raise ConfigError(
                f"the {name} for sasl.mechanism={mechanism} {fault}: set it in sasl.jaas.config, or as sasl.username "
                "and sasl.password",
                LOGIN_OPTIONS,
            )
    is_token = login.get("tokenauth", "").lower() == "true"
    exchange: Exchange = (
        PlainExchange(username, password)
        if mechanism == PLAIN
        else ScramExchange(mechanism, username, password, nonce, is_token=is_token)
    )
    if is_like_reference(password):
        exchange.doubt = f"The password {AS_WRITTEN}"
    return exchange
