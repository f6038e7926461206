"""Requests in flight and requests that wait for a retry; every step uses one.

A request is added once (`ask`), sent when `take_due` finds it due and the limit allows, returned through `accept`, and
then either dropped by its owner (finished) or retried (`repeat`, with the back-off for the reason). The owner neither
counts tries nor reads the clock; it refers to the request by its key, and the body is the same at each try: an EndTxn
with any other content would be another request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kafka_sink.commit.session import DeliverySettings
from kafka_sink.kafka.client.admin_request import AdminRequest, AdminResponse, RequestKey, Target
from kafka_sink.kafka.client.request import VERSION_MAX
from kafka_sink.kafka.wire.apis import Api


@dataclass(slots=True)
class _PendingRequest:
    request: AdminRequest
    due_ms: int
    failures: int = 0
    # The partitions that must have a leader when the request is sent again.
    led_partitions: tuple[tuple[str, int], ...] = ()


class RetryQueue:
    def __init__(self, settings: DeliverySettings) -> None:
        self._settings = settings
        self._open: dict[RequestKey, _PendingRequest] = {}
        self._out: set[RequestKey] = set()

    def ask(
        self,
        now_ms: int,
        key: RequestKey,
        target: Target,
        api: Api,
        body: Mapping[str, Any],
        *,
        version_min: int = 0,
        version_max: int = VERSION_MAX,
        led_partitions: tuple[tuple[str, int], ...] = (),
        are_leaders_known: bool = False,
    ) -> None:
        """With `are_leaders_known`, only retries check `led_partitions`."""
        versions = (max(version_min, api.version_min), min(version_max, api.version_max))
        timeout_ms = self._settings.request_timeout_ms
        led_now = () if are_leaders_known else led_partitions
        request = AdminRequest(target, api, body, timeout_ms, *versions, key=key, led_partitions=led_now)
        self._out.discard(key)
        self._open[key] = _PendingRequest(request, now_ms, led_partitions=led_partitions)

    def take_due(self, now_ms: int) -> list[AdminRequest]:
        """The requests to send now, oldest first, and no more in flight than the settings allow."""
        found: list[AdminRequest] = []
        for key, pending in self._open.items():
            if not self._has_room():
                break
            if key not in self._out and pending.due_ms <= now_ms:
                self._out.add(key)
                found.append(pending.request)
        return found

    def wake_at_ms(self) -> int | None:
        """When the next waiting request is due; None: only responses can cause progress."""
        if not self._has_room():
            return None
        return min((pending.due_ms for key, pending in self._open.items() if key not in self._out), default=None)

    def _has_room(self) -> bool:
        return len(self._out) < self._settings.parallel_requests

    def accept(self, answer: AdminResponse) -> bool:
        """False: no such request is in flight, or its owner has dropped it."""
        if answer.key not in self._out:
            return False
        self._out.remove(answer.key)
        return True

    def repeat(self, now_ms: int, key: RequestKey, *, find_again: bool = False, soon: bool = False) -> None:
        pending = self._open[key]
        pending.failures += 1
        step = self._settings.markers_backoff_ms if soon else self._settings.retry_backoff_ms
        delay_ms = min(step * pending.failures, self._settings.backoff_max_ms)
        pending.due_ms = now_ms + delay_ms
        pending.request = replace(pending.request, find_again=find_again, led_partitions=pending.led_partitions)

    def replace(self, key: RequestKey, target: Target, body: Mapping[str, Any]) -> None:
        """The rest of a request that was answered in part."""
        pending = self._open[key]
        pending.request = replace(pending.request, target=target, body=body)

    def drop(self, key: RequestKey) -> None:
        del self._open[key]
        self._out.discard(key)

    def drop_all(self) -> None:
        self._open.clear()
        self._out.clear()

    def waiting_for_retry(self) -> list[RequestKey]:
        """Requests that were answered or lost at least once and are not in flight."""
        return [key for key, pending in self._open.items() if pending.failures and key not in self._out]

    def is_out(self, key: RequestKey) -> bool:
        return key in self._out

    @property
    def count(self) -> int:
        return len(self._open)

    def has(self, key: RequestKey) -> bool:
        return key in self._open
