"""The user's interceptors: called in the order listed; their errors never lose a record.

`on_send(record)` may return another record, or None to keep it. `on_acknowledgement(metadata, error)` sees every
outcome once. If one raises, that is logged, and the next one gets the record as it was before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
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
        self._interceptors = interceptors

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        for name, hook in self._hooks("on_send"):
            try:
                answer = hook(record)
            except Exception:
                _LOGGER.exception("interceptor %s raised in on_send (topic %s)", name, record.topic)
                continue
            if isinstance(answer, ProducerRecord):
                record = answer
            elif answer is not None:
                _LOGGER.error(
                    "interceptor %s returned a %s from on_send for topic %s; the record stays as it was",
                    name, type(answer).__name__, record.topic,
                )  # fmt: skip
        return record

    def on_acknowledgement(self, topic: str, metadata: object, error: KafkaSinkError | None) -> None:
        for name, hook in self._hooks("on_acknowledgement"):
            try:
                hook(metadata, error)
            except Exception:
                _LOGGER.exception("interceptor %s raised in on_acknowledgement (topic %s)", name, topic)

    def close(self) -> None:
        for name, hook in self._hooks("close"):
            try:
                hook()
            except Exception:
                _LOGGER.exception("interceptor %s raised in close", name)

    def _hooks(self, name: str) -> Iterator[tuple[str, Callable[..., object]]]:
        """An interceptor need not have all of them."""
        for interceptor in self._interceptors:
            hook = getattr(interceptor, name, None)
            if hook is not None:
                yield type(interceptor).__name__, hook
