"""One request on its way to a broker, and the answer to it: what the engine gives to a connection and gets back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.engine.commands import Buffer
from kafka_sink.errors import KafkaSinkError
from kafka_sink.frozen import frozen
from kafka_sink.wire.apis import Api


@dataclass(slots=True, eq=False)
class Request:
    """`purpose` belongs to whoever asked: it comes back untouched in the `Answer`.

    The body is a mapping of Kafka's field names in snake case; for Produce alone it is a function of the negotiated
    version, the correlation id and the client id that returns the buffers of the whole frame, so that record batches
    travel by reference.
    """

    api: Api
    body: Mapping[str, Any] | Callable[[int, int, str], list[Buffer]]
    purpose: object
    timeout_ms: int
    version_min: int = 0
    version_max: int = 32767
    expects_answer: bool = True


@frozen
class Answer:
    """Exactly one per request. Either `body` or `failure` is set (neither for a request that expects no answer).

    `was_sent` False means that no byte of the request left: the broker certainly does not know it.
    """

    request: Request
    node_id: int
    version: int
    body: dict[str, Any] | None
    failure: KafkaSinkError | None
    was_sent: bool
    latency_ms: int
