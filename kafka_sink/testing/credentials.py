"""The users of an embedded cluster. Of passwords only salted hashes are kept.

A password is converted to SCRAM credentials (RFC 5802) when the user is created, once per mechanism. PLAIN only
compares passwords, so the client's is salted and hashed in the same way. Kafka does not normalise names and passwords
(no SASLprep): their UTF-8 bytes are used.

The salt is an argument, because the core uses no random numbers.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kafka_sink.testing.aws import AWS_MSK_IAM

PLAIN = "PLAIN"
SCRAM_HASHES: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
# Those of Apache Kafka. Amazon's must be enabled explicitly.
MECHANISMS = (PLAIN, *SCRAM_HASHES)
MECHANISMS_ON_DEMAND = (AWS_MSK_IAM,)
# Kafka's minimum and default.
ITERATIONS = 4096
SALT_BYTES = 16
_PLAIN_HASH = "SCRAM-SHA-256"


@dataclass(frozen=True, slots=True)
class ScramCredential:
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def scram_credential(mechanism: str, password: str, salt: bytes) -> ScramCredential:
    name = SCRAM_HASHES[mechanism]
    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, ITERATIONS)
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    return ScramCredential(salt, stored_key, hmac.digest(salted, b"Server Key", name))


class Credentials:
    """`random_bytes(count)` makes salts and, for the exchanges, nonces.

    `access_keys` (id -> secret key) are those of AWS_MSK_IAM, whose signatures cannot be verified with a hash.
    """

    def __init__(
        self,
        users: Mapping[str, str],
        random_bytes: Callable[[int], bytes],
        access_keys: Mapping[str, str] | None = None,
    ) -> None:
        self.random_bytes = random_bytes
        self.access_keys = dict(access_keys or {})
        self._by_mechanism: dict[tuple[str, str], ScramCredential] = {}
        for user, password in users.items():
            self.add(user, password)

    def __repr__(self) -> str:
        return f"Credentials(users={sorted({user for _, user in self._by_mechanism})})"

    def add(self, user: str, password: str) -> None:
        """Adds a user, or changes the password of a known one."""
        for mechanism in SCRAM_HASHES:
            salt = self.random_bytes(SALT_BYTES)
            self._by_mechanism[mechanism, user] = scram_credential(mechanism, password, salt)

    def remove(self, user: str) -> None:
        for mechanism in SCRAM_HASHES:
            self._by_mechanism.pop((mechanism, user), None)

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        return self._by_mechanism.get((mechanism, user))

    def is_password(self, user: str, password: str) -> bool:
        known = self.scram(_PLAIN_HASH, user)
        if known is None:
            return False
        return hmac.compare_digest(scram_credential(_PLAIN_HASH, password, known.salt).stored_key, known.stored_key)
