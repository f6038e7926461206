"""OAUTHBEARER (RFC 7628): a token in one message. The token's source is not known here.

A server that refuses it may send the reason as JSON, which the client answers with a single 0x01; then the refusal
follows as an error code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kafka_sink.error_table.brokers import LOGIN_OPTIONS, TOKEN_UNUSABLE
from kafka_sink.errors import AuthenticationError, ConfigError

TOKEN_CHARACTERS_MAX = 128 * 1024
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7E \t\r\n]+")


class OAuthBearerExchange:
    mechanism = "OAUTHBEARER"

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        if not _TOKEN.fullmatch(token) or len(token) > TOKEN_CHARACTERS_MAX:
            raise AuthenticationError(
                "the token for OAUTHBEARER is not valid: expected 1 to "
                f"{TOKEN_CHARACTERS_MAX} letters, digits and -._~+/ without blanks, got {len(token)} characters",
                TOKEN_UNUSABLE,
            )
        for name, value in extensions.items():
            # The name auth is the token's own (RFC 7628, 3.1).
            if name == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
                raise ConfigError(
                    f"the SASL extension {name!a} is not valid: letters as name, printable text as value", LOGIN_OPTIONS
                )
        pairs = "".join(f"{name}={value}\x01" for name, value in extensions.items())
        self._is_refused = False
        self._message = f"n,,\x01auth=Bearer {token}\x01{pairs}\x01".encode()

    def first(self) -> bytes:
        return self._message

    def step(self, challenge: bytes) -> bytes | None:
        if self._is_refused:
            raise AuthenticationError(
                "OAUTHBEARER with the server failed: it refused the token but did not end the login", TOKEN_UNUSABLE
            )
        self._is_refused = bool(challenge)
        return b"\x01" if challenge else None
