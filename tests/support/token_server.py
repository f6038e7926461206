"""An OIDC token endpoint: it returns a signed token for client credentials, and the keys (JWKS) to check it.

A test can make it hostile: it then answers with what is in `answers`.
"""

from __future__ import annotations

import base64
import json
import time

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.support.certificates import Issued
from tests.support.local_server import LocalServer, QuietHandler

KEY_ID = "test-key"
ISSUER, AUDIENCE = "https://issuer.example.org", "kafka"


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _number(value: int) -> str:
    return encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def unsecured_token(subject: str = "alice", life_s: float = 3600) -> str:
    """A token without a signature, for Kafka's validator that checks none."""
    now_s = time.time()
    parts = ({"alg": "none"}, {"sub": subject, "iat": now_s, "exp": now_s + life_s})
    return ".".join(encoded(json.dumps(part).encode()) for part in parts) + "."


class TokenServer(LocalServer):
    def __init__(self, issued: Issued | None = None, *, pause_s: float = 0.0) -> None:
        self.key = rsa.generate_private_key(65537, 2048)
        self.life_s = 3600.0
        # (status, headers, body) of answers to send instead of a token, one after the other.
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.requests: list[tuple[str, str]] = []
        server = self

        class Handler(QuietHandler):
            def do_GET(self) -> None:
                self.send(200, json.dumps({"keys": [server.public_key()]}).encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                time.sleep(pause_s)
                server.requests.append((self.headers["Authorization"], body))
                if server.answers:
                    status, headers, content = server.answers.pop(0)
                    self.send(status, content, headers)
                else:
                    token = {"access_token": server.token(), "token_type": "Bearer", "expires_in": server.life_s}
                    self.send(200, json.dumps(token).encode())

        super().__init__(Handler, issued)

    @property
    def url(self) -> str:
        return f"{super().url}/token"

    def public_key(self) -> dict[str, str]:
        numbers = self.key.public_key().public_numbers()
        return {
            "kty": "RSA", "use": "sig", "alg": "RS256", "kid": KEY_ID, "n": _number(numbers.n), "e": _number(numbers.e)
        }  # fmt: skip

    def token(self) -> str:
        now_s = int(time.time())
        claims = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": now_s, "exp": now_s + self.life_s}
        head = {"alg": "RS256", "typ": "JWT", "kid": KEY_ID}
        signed = ".".join(encoded(json.dumps(part).encode()) for part in (head, claims))
        signature = self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{encoded(signature)}"
