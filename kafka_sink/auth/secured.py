"""TLS and SASL for connections, each imported only if options need it: every Spark worker imports this module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_sink.options import ProducerOptions
from kafka_sink.security.mechanisms import AWS_MSK_IAM, GSSAPI, OAUTHBEARER

if TYPE_CHECKING:
    from kafka_sink.client.authentication import Authenticator
    from kafka_sink.io.tls import TlsContexts


def tls_contexts(options: ProducerOptions) -> TlsContexts | None:
    """None: connections are not encrypted."""
    if not options.has_tls:
        return None
    from kafka_sink.io.tls import TlsContexts

    return TlsContexts(options)


def authenticator(options: ProducerOptions) -> Authenticator | None:
    """None: connections are not authenticated by SASL."""
    if not options.has_sasl:
        return None
    if options.sasl_mechanism == AWS_MSK_IAM:
        from kafka_sink.auth.aws import aws_authenticator

        return aws_authenticator(options)
    if options.sasl_mechanism == GSSAPI:
        from kafka_sink.auth.kerberos import kerberos_authenticator

        return kerberos_authenticator(options)
    if options.sasl_mechanism == OAUTHBEARER:
        from kafka_sink.auth.token import token_authenticator

        return token_authenticator(options)
    from kafka_sink.auth.login import password_authenticator

    return password_authenticator(options)
