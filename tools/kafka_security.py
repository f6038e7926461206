"""Further listeners of every test node, for clients with SASL, TLS or both, and the properties of an authorizer.

The first listener has no authentication: brokers use it, and the test harness, which is a super user if there is an
authorizer. PLAIN reads its users from the configuration, SCRAM from the cluster's metadata, where formatting writes
them.

    SASL_PLAINTEXT   with `users`
    SASL_SSL         with `users` and `tls`
    SSL              with `tls`; client certificates are requested
    MTLS             with `tls`; client certificates are required
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LISTENER = "SASL_PLAINTEXT"
SASL_SSL, SSL, MTLS = "SASL_SSL", "SSL", "MTLS"
PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", LISTENER: LISTENER, SASL_SSL: SASL_SSL, SSL: SSL,
             MTLS: "SSL"}  # fmt: skip
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
}
# OAUTHBEARER over TLS only: the tests that compare brokers byte by byte use the other listener.
MECHANISMS = ("PLAIN", *SCRAM_MECHANISMS, "OAUTHBEARER")
_PACKAGE = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True)
class BrokerTls:
    """PEM files: the broker's key and certificates in one, and the authorities that it trusts for clients."""

    key_and_certificates: Path
    trusted: Path


def listeners(*, has_users: bool, has_tls: bool) -> tuple[str, ...]:
    named: tuple[str, ...] = (LISTENER,) if has_users else ()
    named += (SASL_SSL,) if has_users and has_tls else ()
    return (*named, SSL, MTLS) if has_tls else named


def listener_properties(users: Mapping[str, str], tls: BrokerTls | None) -> dict[str, str]:
    properties = _of_tls(tls) if tls is not None else {}
    if not users:
        return properties
    known = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    plain = f"{_PACKAGE}.plain.PlainLoginModule required"
    scram = f"{_PACKAGE}.scram.ScramLoginModule required;"
    # Kafka's validator for tests: it accepts unsigned tokens.
    bearer = f'{_PACKAGE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
    properties["sasl.enabled.mechanisms"] = ",".join(("PLAIN", *SCRAM_MECHANISMS))
    properties[f"listener.name.{SASL_SSL.lower()}.sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
    for listener in (LISTENER, SASL_SSL):
        prefix = f"listener.name.{listener.lower()}"
        properties[f"{prefix}.plain.sasl.jaas.config"] = f"{plain} {known};"
        properties[f"{prefix}.oauthbearer.sasl.jaas.config"] = bearer
        for mechanism in SCRAM_MECHANISMS:
            properties[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = scram
    return properties


def _of_tls(tls: BrokerTls) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tls.key_and_certificates),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tls.trusted),
        "listener.name.ssl.ssl.client.auth": "requested",
        "listener.name.mtls.ssl.client.auth": "required",
    }


def format_arguments(users: Mapping[str, str]) -> list[str]:
    """The arguments for Kafka's StorageTool."""
    return [
        argument
        for name, password in users.items()
        for mechanism in SCRAM_MECHANISMS
        for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
    ]
