"""Credentials and mechanism: the values for an exchange.

A `Login` is made from options and files; `new_exchange` makes an exchange from it, one per session of a connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kafka_sink.error_table.brokers import LOGIN_OPTIONS
from kafka_sink.errors import ConfigError
from kafka_sink.security.mechanisms import OAUTHBEARER, PLAIN, Exchange
from kafka_sink.security.oauthbearer import OAuthBearerExchange
from kafka_sink.security.plain import PlainExchange
from kafka_sink.security.scram import ScramExchange


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """For all mechanisms except AWS_MSK_IAM and GSSAPI, which have no passwords.

    `is_token`: name and password are those of a delegation token (SCRAM only).
    """

    mechanism: str
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    is_token: bool = False
    token: str = field(default="", repr=False)
    extensions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)


def new_exchange(login: Login, nonce: str) -> Exchange:
    """`nonce` is printable ASCII without a comma, and unpredictable."""
    if login.mechanism == OAUTHBEARER:
        return OAuthBearerExchange(login.token, login.extensions)
    for name, value in (("user name", login.username), ("password", login.password)):
        if not value or "\0" in value:
            fault = "is missing or empty" if not value else "contains a NUL character"
            raise ConfigError(
                f"the {name} for sasl.mechanism={login.mechanism} {fault}: set it in sasl.jaas.config, or as "
                "sasl.username and sasl.password",
                LOGIN_OPTIONS,
            )
    if login.mechanism == PLAIN:
        return PlainExchange(login.username, login.password)
    return ScramExchange(login.mechanism, login.username, login.password, nonce, is_token=login.is_token)
