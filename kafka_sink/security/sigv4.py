"""Signature Version 4: authenticates a request to AWS without sending the secret key.

    canonical request   method, path, query, headers and hash of the body, each in canonical form
    text to sign        algorithm, time, scope (day, region, service) and the hash of the canonical request
    key                 the secret key, hashed with day, region and service one after the other
    signature           the text, hashed with that key

It is sent in a header (`sign_headers`, for requests to STS) or in the query of a URL (`presign_query`, also used by
AWS_MSK_IAM). Time is an argument.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime, timezone
from urllib.parse import quote

from kafka_sink.frozen import frozen

ALGORITHM = "AWS4-HMAC-SHA256"


@frozen
class AwsCredentials:
    """`end_s`: expiry in seconds since 1970; None: they do not expire."""

    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)
    end_s: float | None = None


@frozen
class CredentialScope:
    """The scope of a signature. `time` as in 20150830T123600Z."""

    time: str
    region: str
    service: str

    def __str__(self) -> str:
        return f"{self.time[:8]}/{self.region}/{self.service}/aws4_request"


def scope_at(now_s: float, region: str, service: str) -> CredentialScope:
    return CredentialScope(datetime.fromtimestamp(now_s, timezone.utc).strftime("%Y%m%dT%H%M%SZ"), region, service)


def canonical_query(pairs: Mapping[str, str]) -> str:
    encoded = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in pairs.items())
    return "&".join(f"{name}={value}" for name, value in encoded)


def signature(
    secret_access_key: str,
    scope: CredentialScope,
    *,
    method: str = "GET",
    path: str = "/",
    query: Mapping[str, str],
    headers: Mapping[str, str],
    body: bytes = b"",
) -> str:
    """`headers`: all signed headers, with lower-case names."""
    lines = "".join(f"{name}:{' '.join(value.split())}\n" for name, value in sorted(headers.items()))
    hashed = hashlib.sha256(body).hexdigest()
    canonical = "\n".join((method, quote(path), canonical_query(query), lines, signed_header_names(headers), hashed))
    text = "\n".join((ALGORITHM, scope.time, str(scope), hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{secret_access_key}".encode()
    for part in str(scope).split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


def signed_header_names(headers: Mapping[str, str]) -> str:
    return ";".join(sorted(headers))


def presign_query(
    credentials: AwsCredentials, scope: CredentialScope, host: str, query: Mapping[str, str], life_s: int
) -> dict[str, str]:
    """The query of GET / at that host, including the signature."""
    whole = {
        **query,
        "X-Amz-Algorithm": ALGORITHM,
        "X-Amz-Credential": f"{credentials.access_key_id}/{scope}",
        "X-Amz-Date": scope.time,
        "X-Amz-Expires": str(life_s),
        "X-Amz-SignedHeaders": "host",
    }
    if credentials.session_token:
        whole["X-Amz-Security-Token"] = credentials.session_token
    signed = signature(credentials.secret_access_key, scope, query=whole, headers={"host": host})
    return {**whole, "X-Amz-Signature": signed}


def sign_headers(
    credentials: AwsCredentials, scope: CredentialScope, headers: Mapping[str, str], body: bytes
) -> dict[str, str]:
    """The headers of POST /, including the signature."""
    whole = {**headers, "x-amz-date": scope.time}
    if credentials.session_token:
        whole["x-amz-security-token"] = credentials.session_token
    signed = signature(credentials.secret_access_key, scope, method="POST", query={}, headers=whole, body=body)
    credential = f"Credential={credentials.access_key_id}/{scope}"
    whole["authorization"] = f"{ALGORITHM} {credential}, SignedHeaders={signed_header_names(whole)}, Signature={signed}"
    return whole
