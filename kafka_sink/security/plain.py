"""PLAIN (RFC 4616): name and password in one message, readable for whoever reads the connection.

The server proves nothing. Only TLS tells whom the password is shown to.
"""

from __future__ import annotations


class PlainExchange:
    mechanism = "PLAIN"

    def __init__(self, username: str, password: str) -> None:
        self._token = f"\0{username}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def step(self, challenge: bytes) -> bytes | None:
        del challenge  # there is nothing left to say; a refusal is an error code of the answer around it
        return None
