"""What the loss of a connection says about its broker, and how loudly the log says it."""

from __future__ import annotations

from kafka_sink.errors import AuthenticationError, ConfigError, KafkaSinkError, TransportError, copy_error
from kafka_sink.kafka.client.connection import Connection, ConnectionState


def is_final(failure: KafkaSinkError) -> bool:
    """Credentials or a certificate were refused, or their source does not exist."""
    return isinstance(failure, (AuthenticationError, ConfigError))


def failure_of_loss(connection: Connection, reason: KafkaSinkError) -> KafkaSinkError:
    text = f"connection to {connection.title}"
    if is_final(reason):
        return type(reason)(f"{text} was refused: {reason}", reason.entry)
    if connection.state is ConnectionState.CONNECTING:
        return copy_error(reason, f"{text} could not be established: {reason}")
    if connection.state is ConnectionState.NEGOTIATING:
        hint = "is a TLS listener behind this port? Brokers at their limit (max.connections.per.ip) do that as well"
        return TransportError(f"{text} was closed by the peer during ApiVersions ({reason}): {hint}")
    if connection.state in (ConnectionState.HANDSHAKING, ConnectionState.AUTHENTICATING):
        return TransportError(f"{text} was lost while it authenticated: {reason}")
    hint = "; does this listener want SASL? Then set security.protocol=SASL_SSL or SASL_PLAINTEXT, and credentials"
    hint = "" if connection.has_served or connection.uses_sasl else hint
    return TransportError(f"{text} was lost with {connection.in_flight_text}: {reason}{hint}")


def notice_level(failure: KafkaSinkError, *, was_ready: bool, failures: int) -> str:
    if is_final(failure):
        return "warning"
    # Consecutive failures other than the 1st, 2nd, 4th, 8th go to debug: a dead broker must not fill the log.
    if failures & (failures - 1):
        return "debug"
    # Losing a connection that had worked is normal (a broker restarts); one that never worked needs attention.
    return "info" if was_ready and isinstance(failure, TransportError) else "warning"
