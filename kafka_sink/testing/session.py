"""The session of a connection: the steps of SASL authentication, and when re-authentication is due.

    VERSIONS -> HANDSHAKE -> EXCHANGE -> READY
                    ^ ______________________|   re-authentication (KIP-368), if connections.max.reauth.ms is set

Before READY nothing but ApiVersions (once), SaslHandshake and SaslAuthenticate is served. After SaslHandshake v0 the
tokens are raw, without a request around them. An expired session is closed by the next request that does not begin a
new authentication, which must use the same mechanism and result in the same principal; Kafka accepts another mechanism
at first and disconnects at the next token (WRONG_MECHANISM). On a listener without SASL a session is READY from the
start and its principal is User:ANONYMOUS.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kafka_sink.testing.acl import ANONYMOUS
from kafka_sink.testing.errors import AuthenticationFailed
from kafka_sink.testing.sasl import SaslServer

# Kafka rejects a re-authentication within a second of the previous one.
REAUTHENTICATION_INTERVAL_MS = 1000


class Stage(Enum):
    VERSIONS = "ApiVersions or SaslHandshake"
    HANDSHAKE = "SaslHandshake"
    EXCHANGE = "tokens"
    WRONG_MECHANISM = "a token, to be refused"
    READY = "requests"


@dataclass(slots=True)
class Session:
    stage: Stage = Stage.READY
    principal: str = ANONYMOUS
    mechanism: str = ""
    expires_ms: int | None = None
    has_bare_tokens: bool = False
    exchange: SaslServer | None = None
    reauthentication_began_ms: int | None = None

    @property
    def is_ready(self) -> bool:
        return self.stage is Stage.READY

    @property
    def awaits_bare_token(self) -> bool:
        return self.has_bare_tokens and self.stage in (Stage.EXCHANGE, Stage.WRONG_MECHANISM)

    @property
    def is_reauthenticating(self) -> bool:
        return self.reauthentication_began_ms is not None and not self.is_ready

    def has_expired(self, now_ms: int) -> bool:
        return self.expires_ms is not None and now_ms > self.expires_ms

    def may_authenticate_again(self, now_ms: int) -> bool:
        began_ms = self.reauthentication_began_ms
        is_early = began_ms is not None and now_ms - began_ms < REAUTHENTICATION_INTERVAL_MS
        return self.is_ready and self.expires_ms is not None and not is_early

    def authenticate_again(self, now_ms: int) -> None:
        self.reauthentication_began_ms = now_ms
        self.has_bare_tokens = False
        self.stage = Stage.HANDSHAKE

    def on_handshake(self, mechanism: str, exchange: SaslServer, *, has_bare_tokens: bool) -> None:
        """The mechanism must be an enabled one."""
        self.has_bare_tokens = has_bare_tokens
        if self.is_reauthenticating and mechanism != self.mechanism:
            self.stage = Stage.WRONG_MECHANISM
            return
        self.mechanism = mechanism
        self.exchange = exchange
        self.stage = Stage.EXCHANGE

    def on_token(self, token: bytes, now_ms: int, lifetime_ms: int) -> bytes:
        """The response to the client's token; after the last one the session is READY. Raises AuthenticationFailed."""
        assert self.exchange is not None
        attempt = "re-authentication" if self.is_reauthenticating else "authentication"
        try:
            answer = self.exchange.step(token)
        except AuthenticationFailed as failure:
            raise AuthenticationFailed(
                failure.reason
                or f"Authentication failed during {attempt} due to invalid credentials"
                f" with SASL mechanism {self.mechanism}"
            ) from None
        if self.exchange.user is not None:
            principal = f"User:{self.exchange.user}"
            if self.is_reauthenticating and principal != self.principal:
                old, new = self.principal.replace(":", ".", 1), principal.replace(":", ".", 1)
                raise AuthenticationFailed(f"Cannot change principals during re-authentication from {old}: {new}")
            self.principal = principal
            self.exchange = None
            self.expires_ms = now_ms + lifetime_ms if lifetime_ms > 0 else None
            self.stage = Stage.READY
        return answer
