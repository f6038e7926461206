"""Makes the exchange for each new session: reads the current credentials, and generates the nonce.

So a password that was changed in a file or in the environment is used by the next connection, without a restart. HTTP
and the Kerberos library are imported only if needed: every Spark worker imports this module.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from functools import partial

from kafka_sink.client.authentication import Authenticator
from kafka_sink.error_table.brokers import LOGIN_OPTIONS
from kafka_sink.errors import ConfigError
from kafka_sink.io.files import resolve_references
from kafka_sink.options import ProducerOptions
from kafka_sink.options.sasl_rules import EXTENSION, NEEDS, read_module
from kafka_sink.security.aws_msk_iam import AwsMskIamExchange
from kafka_sink.security.mechanisms import AWS_MSK_IAM, GSSAPI, OAUTHBEARER
from kafka_sink.security.oauthbearer import OAuthBearerExchange
from kafka_sink.security.passwords import password_exchange
from kafka_sink.security.reference import is_reference

NONCE_BYTES = 24


def sasl_authenticator(options: ProducerOptions) -> Authenticator:
    module_options = partial(read_login_options, options)
    if options.sasl_mechanism == AWS_MSK_IAM:
        from kafka_sink.auth import aws

        credentials = aws.credentials_source(options, module_options)
        return lambda host: AwsMskIamExchange(credentials.current(), host, aws.find_region(options, host), time.time())
    if options.sasl_mechanism == GSSAPI:
        from kafka_sink.auth.kerberos import kerberos_authenticator

        return kerberos_authenticator(options, module_options)
    if options.sasl_mechanism == OAUTHBEARER:
        from kafka_sink.auth.token import token_source

        tokens = token_source(options, module_options)
        return lambda _host: OAuthBearerExchange(tokens.current(), _extensions(module_options()))
    return lambda _host: password_exchange(
        options.sasl_mechanism, read_password(options), nonce=secrets.token_urlsafe(NONCE_BYTES)
    )


def _extensions(named: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix(EXTENSION): value for name, value in named.items() if name.startswith(EXTENSION)}


def read_password(options: ProducerOptions) -> Mapping[str, str]:
    """Username and password, and in sasl.jaas.config perhaps more."""
    named = read_login_options(options)
    if named:
        return named
    if options.sasl_username is None or options.sasl_password is None:
        raise ConfigError(f"sasl.mechanism={options.sasl_mechanism} needs {NEEDS}", LOGIN_OPTIONS)
    return {
        "username": resolve_references("sasl.username", options.sasl_username),
        "password": resolve_references("sasl.password", options.sasl_password),
    }


def read_login_options(options: ProducerOptions) -> Mapping[str, str]:
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
