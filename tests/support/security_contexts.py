"""A scripted security context for tests that are not about the Kerberos library."""

from __future__ import annotations

from kafka_sink.errors import AuthenticationError

WRAPPED = b"wrapped:"


class ScriptedContext:
    """It is established after `tokens` tokens of the server; wrapping adds a prefix."""

    def __init__(self, tokens: int) -> None:
        self._missing = tokens

    @property
    def is_established(self) -> bool:
        return self._missing <= 0

    def step(self, token: bytes | None) -> bytes | None:
        if token is None:
            return b"token 0"
        self._missing -= 1
        return None if self.is_established else b"token"

    def wrap(self, message: bytes) -> bytes:
        return WRAPPED + message

    def unwrap(self, message: bytes) -> bytes:
        if not message.startswith(WRAPPED):
            raise AuthenticationError("scripted")
        return message.removeprefix(WRAPPED)

    def initiator(self) -> str:
        return "alice@R"
