"""Threads that close a stream's decisions end before the brokers, and proxies, that they write to."""

from __future__ import annotations

import sys


def finish_closings() -> None:
    closings = sys.modules.get("kafka_sink.spark.closings")
    if closings is not None:
        closings.CLOSINGS.value.wait()
