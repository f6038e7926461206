"""One request to a broker and the answer to it: what the engine passes to a connection and gets back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_sink.errors import KafkaSinkError
from kafka_sink.frozen import frozen
from kafka_sink.kafka.client.commands import Buffer
from kafka_sink.kafka.wire.apis import Api
from kafka_sink.kafka.wire.frames import decode_response, encode_request

VERSION_MAX = 32767


class Request:
    """A request and its state: the connection sets the last four fields when it is sent.

    `purpose` belongs to the caller: it is returned unchanged in the `Answer`. The body maps Kafka's field names in
    snake case; a request with its own codec overrides `encode` and `decode`.
    """

    __slots__ = (
        "api", "body", "correlation_id", "deadline_ms", "expects_answer", "purpose", "sent_ms", "timeout_ms",
        "version", "version_max", "version_min",
    )  # fmt: skip

    def __init__(
        self,
        api: Api,
        body: Mapping[str, Any],
        purpose: Any,
        timeout_ms: int,
        version_min: int = 0,
        version_max: int = VERSION_MAX,
        expects_answer: bool = True,
    ) -> None:
        self.api = api
        self.body = body
        self.purpose = purpose
        self.timeout_ms = timeout_ms
        self.version_min = version_min
        self.version_max = version_max
        self.expects_answer = expects_answer
        self.correlation_id = self.version = -1
        self.sent_ms = self.deadline_ms = 0

    def encode(self, version: int, correlation_id: int, client_id: str) -> list[Buffer]:
        """The buffers of the whole frame."""
        return [encode_request(self.api, version, correlation_id=correlation_id, client_id=client_id, body=self.body)]

    def decode(self, frame: bytes) -> tuple[Any, int]:
        """The body of the response, and the throttle time in milliseconds."""
        body = decode_response(self.api, self.version, frame, self.correlation_id)
        return body, body.get("throttle_time_ms") or 0


@frozen
class Answer:
    """Exactly one per request. At most one of `body` and `failure` is set (none for a request that expects no answer).

    `was_sent` False: no byte of the request was sent, so the broker certainly does not know it.
    """

    request: Request
    node_id: int
    body: Any = None
    failure: KafkaSinkError | None = None
    was_sent: bool = True
