"""The login that options name: its entries in sasl.jaas.config, or user and password.

It is read for each new session, so a password that was changed in a file or in the environment is used by the next
connection, without a restart.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from kafka_sink.kafka.client.authentication import Authenticator
from kafka_sink.options import SecurityOptions
from kafka_sink.options.host.files import resolve_references
from kafka_sink.options.sasl_rules import read_module
from kafka_sink.security.passwords import password_exchange
from kafka_sink.security.reference import is_reference

NONCE_BYTES = 24


def password_authenticator(options: SecurityOptions) -> Authenticator:
    return lambda _host: password_exchange(
        options.sasl_mechanism, read_password(options), nonce=secrets.token_urlsafe(NONCE_BYTES)
    )


def read_password(options: SecurityOptions) -> Mapping[str, str]:
    """Username and password, and in sasl.jaas.config perhaps more. Empty texts stand for what is missing."""
    return read_login_options(options) or {
        "username": resolve_references("sasl.username", options.sasl_username or ""),
        "password": resolve_references("sasl.password", options.sasl_password or ""),
    }


def read_login_options(options: SecurityOptions) -> Mapping[str, str]:
    """The entries of sasl.jaas.config, references replaced; empty if it is not set.

    References are replaced after parsing: a secret may contain quotes.
    """
    text = options.sasl_jaas_config
    if text is None:
        return {}
    if is_reference(text):
        text = resolve_references("sasl.jaas.config", text)
    module = read_module(text, options.sasl_mechanism)
    return {name: resolve_references("sasl.jaas.config", value) for name, value in module.options.items()}
