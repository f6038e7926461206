"""Reads the expiry of an access token, and when to get the next one. Signatures are checked by brokers, not here.

A token may be opaque: if it is no JSON web token, or has no expiry, it is used until a broker refuses it or ends the
session.
"""

from __future__ import annotations

import base64
import json
import re

from kafka_sink.error_table.brokers import TOKEN_UNUSABLE
from kafka_sink.errors import AuthenticationError
from kafka_sink.security.oauthbearer import TOKEN_CHARACTERS_MAX

# The response of a token endpoint: a token and a few fields.
ANSWER_BYTES_MAX = 2 * TOKEN_CHARACTERS_MAX
# The year 9999: anything later is an error.
EXPIRY_S_MAX = 253_402_300_799
_ERROR_WORD = re.compile(r"[\x20-\x21\x23-\x5B\x5D-\x7E]{1,100}")


def expiry_s(token: str) -> float | None:
    """The token's expiry in seconds since 1970; None: unknown."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    end = claims.get("exp") if isinstance(claims, dict) else None
    if isinstance(end, bool) or not isinstance(end, (int, float)) or not 0 < end <= EXPIRY_S_MAX:
        return None
    return float(end)


def renewal_s(now_s: float, end_s: float, *, factor: float, jitter: float, least_s: float, buffer_s: float) -> float:
    """When to get the next token, as the Java client chooses it.

    After a share of its lifetime, but not in the last `buffer_s`, and not before `least_s` have passed; if the lifetime
    is too short for both, only the share counts.
    """
    life_s = max(0.0, end_s - now_s)
    wanted_s = now_s + life_s * min(1.0, factor + jitter)
    if least_s + buffer_s >= life_s:
        return wanted_s
    return min(max(wanted_s, now_s + least_s), end_s - buffer_s)


def parse_token_answer(body: bytes, source: str) -> str:
    """The token in the JSON response of a token endpoint (RFC 6749, 5.1). Nothing of it gets into an error text."""
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
    return token.strip()


def parse_error_answer(body: bytes) -> str:
    """The error code of a token endpoint (RFC 6749, 5.2), such as invalid_client; or empty."""
    try:
        answer = json.loads(body[:ANSWER_BYTES_MAX])
    except (ValueError, RecursionError):
        return ""
    word = answer.get("error") if isinstance(answer, dict) else None
    return word if isinstance(word, str) and _ERROR_WORD.fullmatch(word) else ""
