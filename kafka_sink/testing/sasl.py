"""The server side of the SASL exchanges PLAIN (RFC 4616) and SCRAM (RFC 5802): one client token in, one response out.

An exchange is fed tokens until `user` is set or AuthenticationFailed is raised. Kafka has specific messages for some
reasons and a generic one for all others, so that a client cannot find out which users exist: `reason` is None for
those. Written from the RFCs, independently of the clients in this package, which it is meant to test.

One deliberate difference: Kafka does not check SCRAM's channel binding; here a wrong one is refused, as in the RFC.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from typing import Protocol

from kafka_sink.testing.aws import AWS_MSK_IAM, AwsMskIamServer
from kafka_sink.testing.credentials import ITERATIONS, PLAIN, SCRAM_HASHES, Credentials, ScramCredential
from kafka_sink.testing.errors import AuthenticationFailed

NONCE_BYTES = 16
# Kafka accepts ASCII only; a comma and an equals sign in a name are encoded as =2C and =3D.
_SASL_NAME = r"(?:[\x01-\x2B\x2D-\x3C\x3E-\x7F]|=2C|=3D)+"
_EXTENSIONS = r"(?:,[A-Za-z]+=[\x01-\x2B\x2D-\x7F]+)*?"
_PRINTABLE = r"[\x21-\x2B\x2D-\x7E]+"
_BASE64 = r"[A-Za-z0-9/+]*={0,2}"
_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>{_SASL_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_SASL_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<unproven>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)


class SaslServer(Protocol):
    user: str | None

    def step(self, token: bytes) -> bytes: ...


def new_exchange(mechanism: str, credentials: Credentials, host: str = "", now_ms: int = 0) -> SaslServer:
    """`host`: the broker's own name, which an AWS_MSK_IAM signature includes."""
    if mechanism == AWS_MSK_IAM:
        return AwsMskIamServer(credentials.access_keys, host, now_ms)
    return PlainServer(credentials) if mechanism == PLAIN else ScramServer(mechanism, credentials)


class PlainServer:
    """One token: authorization id, user, password, with a NUL between them."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        # Kafka stops splitting at the fourth part, and reports 4 for any larger number.
        parts = token.decode(errors="replace").split("\0")[:4]
        if len(parts) != 3:
            raise AuthenticationFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise AuthenticationFailed("Authentication failed: username not specified")
        if not password:
            raise AuthenticationFailed("Authentication failed: password not specified")
        if not self._credentials.is_password(user, password):
            raise AuthenticationFailed("Authentication failed: Invalid username or password")
        _check_authorization_id(authorization_id, user)
        self.user = user
        return b""


class ScramServer:
    """Two tokens. The proof is checked against the stored key; the response proves that the server knows the server
    key."""

    def __init__(self, mechanism: str, credentials: Credentials) -> None:
        self._mechanism = mechanism
        self._hash = SCRAM_HASHES[mechanism]
        self._credentials = credentials
        self._credential: ScramCredential | None = None
        self._claimed = ""
        self._gs2_header = ""
        self._nonce = ""
        self._messages = ""
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        text = token.decode(errors="replace")
        return (self._on_first(text) if self._credential is None else self._on_final(text, self._credential)).encode()

    def _on_first(self, text: str) -> str:
        found = _CLIENT_FIRST.fullmatch(text)
        if found is None or ",tokenauth=" in found["extensions"]:  # there are no delegation tokens here
            raise AuthenticationFailed
        user = found["name"].replace("=2C", ",").replace("=3D", "=")
        self._credential = self._credentials.scram(self._mechanism, user)
        if self._credential is None:
            raise AuthenticationFailed
        _check_authorization_id(found["authzid"] or "", user)
        self._claimed = user
        self._gs2_header = found["gs2"]
        self._nonce = found["nonce"] + self._credentials.random_bytes(NONCE_BYTES).hex()
        salt = base64.b64encode(self._credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={ITERATIONS}"
        self._messages = f"{found['bare']},{answer}"
        return answer

    def _on_final(self, text: str, credential: ScramCredential) -> str:
        found = _CLIENT_FINAL.fullmatch(text)
        if found is None or found["nonce"] != self._nonce:
            raise AuthenticationFailed
        try:
            binding = base64.b64decode(found["binding"], validate=True)
            proof = base64.b64decode(found["proof"], validate=True)
        except binascii.Error:
            raise AuthenticationFailed from None
        signed = f"{self._messages},{found['unproven']}".encode()
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        if binding != self._gs2_header.encode() or len(proof) != len(signature):
            raise AuthenticationFailed
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key):
            raise AuthenticationFailed
        self.user = self._claimed
        return "v=" + base64.b64encode(hmac.digest(credential.server_key, signed, self._hash)).decode()


def _check_authorization_id(authorization_id: str, user: str) -> None:
    if authorization_id not in ("", user):
        raise AuthenticationFailed(
            "Authentication failed: Client requested an authorization id that is different from username"
        )
