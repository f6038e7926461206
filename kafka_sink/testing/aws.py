"""The server side of AWS_MSK_IAM: one message, whose signature is recomputed with the access key's secret.

Written from the description of the mechanism and of Signature Version 4, independently of the client in this package,
which it is meant to test. The principal is the access key id, instead of the ARN of the identity as with Amazon's
brokers.
"""

from __future__ import annotations

import calendar
import hashlib
import hmac
import json
import re
from collections.abc import Mapping
from urllib.parse import quote

from kafka_sink.testing.errors import AuthenticationFailed

AWS_MSK_IAM = "AWS_MSK_IAM"
_EMPTY = hashlib.sha256(b"").hexdigest()
_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z")
# Signed fields, by their names in the query; the message has them in lower case.
_SIGNED = ("Action", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-Security-Token",
           "X-Amz-SignedHeaders")  # fmt: skip


class AwsMskIamServer:
    """`access_keys`: id to secret key. `host` is the broker's own name."""

    def __init__(self, access_keys: Mapping[str, str], host: str, now_ms: int) -> None:
        self._access_keys = access_keys
        self._host = host
        self._now_ms = now_ms
        self.user: str | None = None

    def step(self, token: bytes) -> bytes:
        try:
            message = json.loads(token)
            text = {name: str(value) for name, value in message.items()}
            key_id = self._verify(text)
        except (ValueError, KeyError, AttributeError, OverflowError, RecursionError):
            raise AuthenticationFailed("[0]: Invalid request") from None
        if key_id is None:
            raise AuthenticationFailed("[0]: Access denied")
        self.user = key_id
        return json.dumps({"version": "2020_10_22", "request-id": "0"}).encode()

    def _verify(self, message: Mapping[str, str]) -> str | None:
        fixed = {"version": "2020_10_22", "action": "kafka-cluster:Connect", "x-amz-algorithm": "AWS4-HMAC-SHA256",
                 "x-amz-signedheaders": "host", "host": self._host}  # fmt: skip
        if any(message[name] != value for name, value in fixed.items()) or not message["user-agent"]:
            return None
        key_id, day, region, service, end = message["x-amz-credential"].split("/")
        time, life_s = message["x-amz-date"], int(message["x-amz-expires"])
        found = _TIME.fullmatch(time)
        if found is None or (service, end) != ("kafka-cluster", "aws4_request") or not time.startswith(day):
            return None
        began_s = calendar.timegm(tuple(int(part) for part in found.groups()))
        if not 0 < life_s <= 900 or not began_s - 300 <= self._now_ms / 1000 <= began_s + life_s:
            return None
        query = "&".join(
            f"{name}={quote(message[name.lower()], safe='')}" for name in _SIGNED if name.lower() in message
        )
        request = f"GET\n/\n{query}\nhost:{message['host']}\n\nhost\n{_EMPTY}"
        text = f"AWS4-HMAC-SHA256\n{time}\n{day}/{region}/kafka-cluster/aws4_request\n{_hash(request)}"
        key = ("AWS4" + self._access_keys.get(key_id, "")).encode()
        for part in (day, region, "kafka-cluster", "aws4_request"):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        expected = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
        is_right = hmac.compare_digest(expected.encode(), message["x-amz-signature"].encode())
        return key_id if is_right and key_id in self._access_keys else None


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
