"""TLS and SASL for connections, each imported only if options need it: every Spark worker imports this module."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kafka_sink.options import SecurityOptions
from kafka_sink.security.mechanisms import AWS_MSK_IAM, GSSAPI, OAUTHBEARER, SENT_IN_CLEAR, Exchange
from kafka_sink.security.this_host import is_this_host

if TYPE_CHECKING:
    from kafka_sink.kafka.client.authentication import Authenticator
    from kafka_sink.kafka.io.tls import TlsContexts


def tls_contexts(options: SecurityOptions) -> TlsContexts | None:
    """None: connections are not encrypted."""
    if not options.has_tls:
        return None
    from kafka_sink.kafka.io.tls import TlsContexts

    return TlsContexts(options)


def authenticator(options: SecurityOptions) -> Authenticator | None:
    """None: connections are not authenticated by SASL."""
    if not options.has_sasl:
        return None
    if options.sasl_mechanism == GSSAPI:
        from kafka_sink.kafka.auth.kerberos import kerberos_authenticator

        return kerberos_authenticator(options)
    made = _credential_sender(options)
    is_safe = options.has_tls or options.allow_plaintext_credentials or options.sasl_mechanism not in SENT_IN_CLEAR
    return made if is_safe else partial(_only_to_this_host, made, options.sasl_mechanism)


def _credential_sender(options: SecurityOptions) -> Authenticator:
    if options.sasl_mechanism == AWS_MSK_IAM:
        from kafka_sink.kafka.auth.aws import aws_authenticator

        return aws_authenticator(options)
    if options.sasl_mechanism == OAUTHBEARER:
        from kafka_sink.kafka.auth.token import token_authenticator

        return token_authenticator(options)
    from kafka_sink.kafka.auth.login import password_authenticator

    return password_authenticator(options)


def _only_to_this_host(made: Authenticator, mechanism: str, host: str) -> Exchange:
    """The addresses of bootstrap.servers were checked before; brokers name the others."""
    if is_this_host(host):
        return made(host)
    from kafka_sink.options.sasl_rules import in_clear_error

    raise in_clear_error(mechanism, host)
