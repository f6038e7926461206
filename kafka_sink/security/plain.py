"""PLAIN (RFC 4616): name and password in one message, in clear text.

The server is not authenticated, except by TLS.
"""

from __future__ import annotations


class PlainExchange:
    mechanism = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        self._token = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def step(self, challenge: bytes) -> bytes | None:
        del challenge  # the exchange is complete; a refusal is an error code of the enclosing response
        return None
