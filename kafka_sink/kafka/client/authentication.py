"""Interprets the responses to SaslHandshake and SaslAuthenticate: next token, end of the session, or a refusal.

The mechanism's exchange makes the tokens; this handles the broker's error codes. A refusal is an `AuthenticationError`,
which ends the producer: retrying wrong credentials can lock the account. Other codes are broker problems, and the
connection is retried. So is a login that Amazon MSK refuses because there were too many in this second: it has the code
of wrong credentials, and only its text says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafka_sink.errors import AuthenticationError, KafkaSinkError, TransportError, foreign_text
from kafka_sink.errors.table.brokers import MECHANISM_NOT_OFFERED, TLS_MISMATCH, TOO_MANY_LOGINS
from kafka_sink.kafka.client.outcome import describe
from kafka_sink.kafka.wire.codes import ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM
from kafka_sink.security.mechanisms import AWS_MSK_IAM, GSSAPI, OAUTHBEARER, Exchange

# Makes the exchange for a new session with the current credentials, for the broker with that host name.
Authenticator = Callable[[str], Exchange]

# Java's values: a session is renewed at a random point between these shares of its lifetime, to spread the load. By
# then the next token must be there (kafka/auth/renewal.py): with the old one the renewed session is short, and its own
# renewal comes within the second that Kafka refuses.
RENEWED_FROM, RENEWED_UNTIL = 0.85, 0.95
# The end of what a broker of Amazon MSK says if IAM clients log in more often than its size allows.
TOO_MANY_CONNECTS = "too many connects"
WHERE = "sasl.jaas.config, or sasl.username and sasl.password"
_WHERE_OF = {
    AWS_MSK_IAM: "the policy of the IAM identity (kafka-cluster:Connect), its keys, sasl.aws.region, and this host's "
    "clock",
    GSSAPI: "sasl.kerberos.service.name, the broker's keytab, and the clocks of both hosts",
    OAUTHBEARER: "issuer, audience, subject and expiry of the token against what the broker expects",
}


def step_exchange(exchange: Exchange, title: str, answer: Mapping[str, Any]) -> bytes | None:
    """The next token after a response to SaslAuthenticate; None: authentication is complete."""
    error_code = answer["error_code"]
    if error_code:
        raise _refusal_error(exchange, title, error_code, answer["error_message"])
    try:
        return exchange.step(answer["auth_bytes"] or b"")
    except AuthenticationError as error:
        text = f"{title}: {error}. Nothing was sent to it but what the mechanism demands"
        raise AuthenticationError(text, error.entry) from None


def check_handshake(exchange: Exchange, title: str, answer: Mapping[str, Any], *, is_renewal: bool) -> None:
    error_code = answer["error_code"]
    if is_renewal and error_code:
        # For example a second time within a second, which Kafka forbids: use a new connection.
        raise TransportError(f"{title} did not begin a new session: {describe(error_code)}")
    if error_code == UNSUPPORTED_SASL_MECHANISM:
        offered = foreign_text(", ".join(answer["mechanisms"])) or "none"
        raise AuthenticationError(
            f"{title} does not take sasl.mechanism={exchange.mechanism}: it offers {offered}",
            MECHANISM_NOT_OFFERED,
        )
    if error_code == ILLEGAL_SASL_STATE:
        raise AuthenticationError(
            f"{title} does not want SASL on this port: {describe(error_code)}. Choose security.protocol=PLAINTEXT or "
            "SSL, or the port of its SASL listener",
            TLS_MISMATCH,
        )
    if error_code:
        raise _refusal_error(exchange, title, error_code, None)


def session_end_ms(now_ms: int, lifetime_ms: int, share: float) -> int | None:
    """When to renew the session; None: it has no end."""
    if lifetime_ms <= 0:
        return None
    return now_ms + int(lifetime_ms * (RENEWED_FROM + (RENEWED_UNTIL - RENEWED_FROM) * share))


def _refusal_error(exchange: Exchange, title: str, error_code: int, broker_text: str | None) -> KafkaSinkError:
    if exchange.mechanism == AWS_MSK_IAM and (broker_text or "").rstrip(". ").lower().endswith(TOO_MANY_CONNECTS):
        return TransportError(
            f"{title} takes only so many logins by IAM in a second: {describe(error_code, broker_text)}",
            TOO_MANY_LOGINS,
        )
    if error_code not in (SASL_AUTHENTICATION_FAILED, ILLEGAL_SASL_STATE):
        return TransportError(f"{title} could not authenticate this client: {describe(error_code, broker_text)}")
    return AuthenticationError(
        f"{title} refused the credentials for {exchange.mechanism}: {describe(error_code, broker_text)}. They are not "
        f"tried again. {exchange.doubt or 'Check ' + _WHERE_OF.get(exchange.mechanism, WHERE)}"
    )
