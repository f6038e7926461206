"""The user's interceptors: called in the order listed; their errors never lose a record.

`on_send(record)` may return another record, or None to keep it. `on_acknowledgement(metadata, error)` sees every
outcome once. If one raises, that is logged, and the next one gets the record as it was before.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from kafka_sink.errors import KafkaSinkError
from kafka_sink.frozen import frozen

_LOGGER = logging.getLogger("kafka_sink")

HeaderList = Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]


@frozen
class ProducerRecord:
    """What was passed to `send`, before serialization."""

    topic: str
    value: Any = None
    key: Any = None
    headers: HeaderList | None = None
    timestamp_ms: int | None = None
    partition: int | None = None


class Interceptors:
    def __init__(self, interceptors: Sequence[object]) -> None:
        self._interceptors = tuple(interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        for interceptor in self._interceptors:
            hook = getattr(interceptor, "on_send", None)
            if hook is None:
                continue
            try:
                answer = hook(record)
            except Exception:
                _report(interceptor, "on_send", record.topic)
                continue
            if isinstance(answer, ProducerRecord):
                record = answer
            elif answer is not None:
                _LOGGER.error(
                    "interceptor %s returned a %s from on_send for topic %s; the record stays as it was",
                    type(interceptor).__name__, type(answer).__name__, record.topic,
                )  # fmt: skip
        return record

    def on_acknowledgement(self, topic: str, metadata: object, error: KafkaSinkError | None) -> None:
        for interceptor in self._interceptors:
            hook = getattr(interceptor, "on_acknowledgement", None)
            if hook is None:
                continue
            try:
                hook(metadata, error)
            except Exception:
                _report(interceptor, "on_acknowledgement", topic)

    def close(self) -> None:
        for interceptor in self._interceptors:
            hook = getattr(interceptor, "close", None)
            if hook is None:
                continue
            try:
                hook()
            except Exception:
                _LOGGER.exception("interceptor %s raised in close", type(interceptor).__name__)


def _report(interceptor: object, hook: str, topic: str) -> None:
    _LOGGER.exception("interceptor %s raised in %s (topic %s)", type(interceptor).__name__, hook, topic)
