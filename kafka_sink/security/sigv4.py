"""Signature Version 4: authenticates a request to AWS without sending the secret key.

    canonical request   method, path, query, headers and hash of the body, each in canonical form
    text to sign        algorithm, time, scope (day, region, service) and the hash of the canonical request
    key                 the secret key, hashed with day, region and service one after the other
    signature           the text, hashed with that key

It is sent in the query of a URL (`presign_query`), which AWS_MSK_IAM sends to a broker. Time is an argument.
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
class AwsRole:
    """A role to assume. `region` is that of the STS endpoint; None: the region configured for this process."""

    arn: str
    session_name: str
    external_id: str | None
    region: str | None


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
    path: str = "/",
    query: Mapping[str, str],
    headers: Mapping[str, str],
) -> str:
    """Of a GET without a body. `headers`: all signed headers, with lower-case names."""
    lines = "".join(f"{name}:{' '.join(value.split())}\n" for name, value in sorted(headers.items()))
    names, no_body = ";".join(sorted(headers)), hashlib.sha256(b"").hexdigest()
    canonical = "\n".join(("GET", quote(path), canonical_query(query), lines, names, no_body))
    text = "\n".join((ALGORITHM, scope.time, str(scope), hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{secret_access_key}".encode()
    for part in str(scope).split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


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
