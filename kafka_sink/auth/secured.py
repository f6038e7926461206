"""TLS and SASL, imported only if options need them: they import the option tables, which a Spark task needs for nothing
else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_sink.options import ProducerOptions

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
    from kafka_sink.auth.login import sasl_authenticator

    return sasl_authenticator(options)
