"""A second listener on every test node, with SASL and the users it knows, and the properties of an authorizer.

The first listener stays without authentication: brokers talk over it, and so does the harness itself, which is a super
user as soon as there is an authorizer. PLAIN knows its users from the configuration, SCRAM from the cluster's metadata,
into which formatting writes them.
"""

from __future__ import annotations

from collections.abc import Mapping

LISTENER = "SASL_PLAINTEXT"
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
}


def listener_properties(users: Mapping[str, str]) -> dict[str, str]:
    prefix = f"listener.name.{LISTENER.lower()}"
    known = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    return {
        "sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM_MECHANISMS)),
        f"{prefix}.plain.sasl.jaas.config": f"{plain} {known};",
        **{f"{prefix}.{mechanism.lower()}.sasl.jaas.config": scram for mechanism in SCRAM_MECHANISMS},
    }


def format_arguments(users: Mapping[str, str]) -> list[str]:
    """For Kafka's StorageTool."""
    return [
        argument
        for name, password in users.items()
        for mechanism in SCRAM_MECHANISMS
        for argument in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
    ]
