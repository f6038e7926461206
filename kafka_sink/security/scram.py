"""SCRAM (RFC 5802, RFC 7677): both sides prove that they know the password, and neither sends it.

    client-first   n,,n=<user>,r=<client nonce>
    server-first   r=<client nonce><server nonce>,s=<salt>,i=<iterations>
    client-final   c=biws,r=<both nonces>,p=<proof>
    server-final   v=<signature of the server>, or e=<error>

The server is not trusted before its signature has been checked: it must extend the client's nonce, and require no fewer
iterations than Kafka allows (fewer would make it easy to guess the password from the proof) and no more than a short
computation.

Names and passwords are used as UTF-8 bytes. Kafka does not apply SASLprep on either side, although the RFC requires it,
and a client that did would be refused wherever it changes something. Channel binding is not part of Kafka.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping

from kafka_sink.errors import AuthenticationError
from kafka_sink.security.mechanisms import SCRAM_SHA_256, SCRAM_SHA_512

SCRAM_HASHES: Mapping[str, str] = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
# Kafka's minimum and default.
ITERATIONS_MIN = 4096
# About half a second of one CPU with SHA-512. Brokers with more than 50,000 are rare.
ITERATIONS_MAX = 1_000_000
# Nonces, a salt and a count. Brokers send about 150 bytes.
MESSAGE_BYTES_MAX = 4096

_BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>[\x21-\x2B\x2D-\x7E]+),s=(?P<salt>{_BASE64}),i=(?P<iterations>[1-9][0-9]{{0,9}})"
    r"(?:,[A-Za-z]=[^,\0]*)*"
)
_SERVER_FINAL = re.compile(rf"v=(?P<signature>{_BASE64})(?:,[A-Za-z]=[^,\0]*)*")
_SERVER_ERROR = re.compile(r"e=(?P<error>[\x21-\x2B\x2D-\x7E]{1,100})(?:,.*)?", re.DOTALL)


class ScramExchange:
    def __init__(self, mechanism: str, username: str, password: str, nonce: str, *, is_token: bool = False) -> None:
        self.mechanism = mechanism
        self.doubt = ""
        self._hash = SCRAM_HASHES[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        # A delegation token is a name and a password, looked up elsewhere by the broker (KIP-48).
        self._first_bare = f"n={name},r={nonce}" + (",tokenauth=true" if is_token else "")
        self._signature: bytes | None = None

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def step(self, challenge: bytes) -> bytes | None:
        text = self._decode_message(challenge)
        if self._signature is None:
            return self._client_final(text)
        self._verify(text, self._signature)
        return None

    def _client_final(self, server_first: str) -> bytes:
        found = _SERVER_FIRST.fullmatch(server_first)
        if found is None:
            raise self._failure("its first message is not one of SCRAM")
        nonce, iterations = found["nonce"], int(found["iterations"])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise self._failure("its nonce does not continue ours")
        if iterations < ITERATIONS_MIN:
            raise self._failure(f"it asks for {iterations} iterations, at least {ITERATIONS_MIN} are safe")
        if iterations > ITERATIONS_MAX:
            raise self._failure(f"it asks for {iterations} iterations, at most {ITERATIONS_MAX} are carried out")
        unproven = f"c=biws,r={nonce}"
        signed = f"{self._first_bare},{server_first},{unproven}".encode()
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, base64.b64decode(found["salt"]), iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        proof = bytes(
            one ^ other for one, other in zip(client_key, hmac.digest(stored_key, signed, self._hash), strict=True)
        )
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), signed, self._hash)
        return f"{unproven},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, server_final: str, expected: bytes) -> None:
        found = _SERVER_FINAL.fullmatch(server_final)
        if found is None:
            raise self._failure("its last message is not one of SCRAM")
        if not hmac.compare_digest(base64.b64decode(found["signature"]), expected):
            raise self._failure("its signature is wrong: it does not know the password and may be an impostor")

    def _decode_message(self, challenge: bytes) -> str:
        if len(challenge) > MESSAGE_BYTES_MAX:
            raise self._failure(f"it sent {len(challenge)} bytes, at most {MESSAGE_BYTES_MAX} make sense")
        try:
            text = challenge.decode()
        except UnicodeDecodeError:
            raise self._failure("it sent bytes that are no text") from None
        told = _SERVER_ERROR.fullmatch(text)
        if told is not None:
            raise self._failure(f"it says {told['error']}")
        return text

    def _failure(self, reason: str) -> AuthenticationError:
        return AuthenticationError(f"{self.mechanism} with the server failed: {reason}")
