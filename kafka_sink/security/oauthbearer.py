"""OAUTHBEARER (RFC 7628): a token in one message; and what can be read of a token, and of a token endpoint's answer.

A server that refuses the token may send the reason as JSON, which the client answers with a single 0x01; then the
refusal follows as an error code.

Signatures are checked by brokers, not here. A token may be opaque: it is no JSON web token, or has no expiry. Then the
endpoint may tell its lifetime, and if it does not, nobody here knows the token's end.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kafka_sink.errors import AuthenticationError, ConfigError
from kafka_sink.errors.table.brokers import LOGIN_OPTIONS, TOKEN_UNUSABLE
from kafka_sink.frozen import frozen

TOKEN_CHARACTERS_MAX = 128 * 1024
# The response of a token endpoint: a token and a few fields.
ANSWER_BYTES_MAX = 2 * TOKEN_CHARACTERS_MAX
# The year 9999: anything later is an error.
EXPIRY_S_MAX = 253_402_300_799
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7E \t\r\n]+")
_ERROR_WORD = re.compile(r"[\x20-\x21\x23-\x5B\x5D-\x7E]{1,100}")
# Some endpoints send the lifetime as text.
_SECONDS = re.compile(r"[0-9]{1,12}")


@frozen
class AccessToken:
    """`end_s`: expiry in seconds since 1970; None: unknown."""

    text: str = field(repr=False)
    end_s: float | None = None


class OAuthBearerExchange:
    mechanism = "OAUTHBEARER"
    doubt = ""

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


def expiry_s(token: str) -> float | None:
    """The token's expiry in seconds since 1970; None: unknown."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    return _seconds(claims.get("exp")) if isinstance(claims, dict) else None


def _seconds(found: Any) -> float | None:
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 < found <= EXPIRY_S_MAX:
        return None
    return float(found)


def parse_token_answer(body: bytes, source: str, asked_s: float) -> AccessToken:
    """The token in the JSON response of a token endpoint (RFC 6749, 5.1). Nothing of it gets into an error text.

    If the token names no end, its lifetime counts from `asked_s`, when the endpoint was asked.
    """
    if len(body) > ANSWER_BYTES_MAX:
        raise AuthenticationError(
            f"{source} answered with more than {ANSWER_BYTES_MAX} bytes: that is no token", TOKEN_UNUSABLE
        )
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        raise AuthenticationError(f"{source} did not answer with JSON", TOKEN_UNUSABLE) from None
    token = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(token, str) or not token.strip():
        raise AuthenticationError(f"{source} answered without an access_token", TOKEN_UNUSABLE)
    token = token.strip()
    end_s, life_s = expiry_s(token), _life_s(answer.get("expires_in"))
    if end_s is None and life_s is not None:
        end_s = asked_s + life_s
    return AccessToken(token, end_s)


def _life_s(found: Any) -> float | None:
    return _seconds(int(found) if isinstance(found, str) and _SECONDS.fullmatch(found) else found)


def parse_error_answer(body: bytes) -> str:
    """The error code of a token endpoint (RFC 6749, 5.2), such as invalid_client; or empty."""
    try:
        answer = json.loads(body[:ANSWER_BYTES_MAX])
    except (ValueError, RecursionError):
        return ""
    word = answer.get("error") if isinstance(answer, dict) else None
    return word if isinstance(word, str) and _ERROR_WORD.fullmatch(word) else ""
