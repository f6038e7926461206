"""AWS_MSK_IAM: a presigned AWS request for one broker's host name, as one JSON message.

The broker has IAM verify the signature and answers with a request id. The message is valid for 15 minutes and for that
host only; it does not contain the secret key. A client whose clock is off by more than that is refused.
"""

from __future__ import annotations

import json
import re

from kafka_sink.errors import AuthenticationError
from kafka_sink.security.mechanisms import AWS_MSK_IAM
from kafka_sink.security.sigv4 import AwsCredentials, presign_query, scope_at
from kafka_sink.version import CLIENT_SOFTWARE_NAME, VERSION

FORMAT, SERVICE, LIFE_S = "2020_10_22", "kafka-cluster", 900
# A version and a request id. Brokers send about 80 bytes.
ANSWER_BYTES_MAX = 4096
# As in b-1.orders.abc123.c2.kafka.eu-west-1.amazonaws.com, also kafka-serverless, VPC endpoints and China.
_HOST = re.compile(r"(?:.*\.)?(?P<region>[a-z]{2}(?:-[a-z]+){1,3}-[0-9]{1,2})\.(?:vpce\.)?amazonaws\.com(?:\.cn)?\.?")


def region_of(host: str) -> str | None:
    """None: the name has no region."""
    found = _HOST.fullmatch(host.lower())
    return found["region"] if found is not None else None


class AwsMskIamExchange:
    mechanism = AWS_MSK_IAM
    doubt = ""

    def __init__(self, credentials: AwsCredentials, host: str, region: str, now_s: float) -> None:
        action = {"Action": "kafka-cluster:Connect"}
        query = presign_query(credentials, scope_at(now_s, region, SERVICE), host, action, LIFE_S)
        message = {
            "version": FORMAT,
            "host": host,
            "user-agent": f"{CLIENT_SOFTWARE_NAME}/{VERSION}",
            **{name.lower(): value for name, value in query.items()},
        }
        self._message = json.dumps(message).encode()

    def first(self) -> bytes:
        return self._message

    def step(self, challenge: bytes) -> bytes | None:
        try:
            answer = json.loads(challenge) if len(challenge) <= ANSWER_BYTES_MAX else None
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or answer.get("version") != FORMAT:
            raise AuthenticationError(f"{AWS_MSK_IAM} with the server failed: its answer is not one of this mechanism")
        return None
