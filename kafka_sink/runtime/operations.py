"""Wishes that end (flush, the steps of a transaction): posted, waited for within a limit, measured."""

from __future__ import annotations

from collections.abc import Callable

from kafka_sink.engine.commands import Input
from kafka_sink.errors import KafkaSinkError
from kafka_sink.runtime.appender import Appender
from kafka_sink.runtime.exchange import Exchange
from kafka_sink.runtime.metrics import ProducerMetrics

Wish = Callable[[int], Input]


class Operations:
    def __init__(self, exchange: Exchange, appender: Appender, metrics: ProducerMetrics, max_block_ms: int) -> None:
        self._exchange = exchange
        self._appender = appender
        self._metrics = metrics
        self._max_block_ms = max_block_ms

    def flush(self, name: str, wish: Wish, timeout_s: float | None) -> None:
        """Behind everything that was sent so far; None waits for ever."""
        exchange = self._exchange
        deadline_ms = None if timeout_s is None else exchange.clock.monotonic_ms() + int(timeout_s * 1000)
        self._run(name, wish, deadline_ms, f"{timeout_s} s", metric="flush", is_behind_rows=True)

    def step(
        self,
        name: str,
        wish: Wish,
        *,
        metric: str | None = None,
        is_behind_rows: bool = False,
        refusal: KafkaSinkError | None = None,
    ) -> object:
        """A step of a transaction, within max.block.ms."""
        deadline_ms = self._exchange.clock.monotonic_ms() + self._max_block_ms
        limit = f"max.block.ms={self._max_block_ms}"
        return self._run(name, wish, deadline_ms, limit, metric=metric, is_behind_rows=is_behind_rows, refusal=refusal)

    def _run(
        self,
        name: str,
        wish: Wish,
        deadline_ms: int | None,
        limit: str,
        *,
        metric: str | None,
        is_behind_rows: bool,
        refusal: KafkaSinkError | None = None,
    ) -> object:
        exchange = self._exchange
        exchange.refuse_to_block(name)
        started_ns = exchange.clock.monotonic_ns()
        try:
            if is_behind_rows:
                operation = self._appender.post_behind(name, wish, refusal=refusal)
            else:
                operation = exchange.post_operation(name, wish)
                exchange.wake()
            return exchange.wait_for_operation(operation, deadline_ms, limit)
        finally:
            if metric is not None:
                self._metrics.on_call(metric, duration_ns=exchange.clock.monotonic_ns() - started_ns)
