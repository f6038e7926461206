"""Spark starts the Python processes on the driver and the executors without configuring logging: without this the line
per batch would be lost. Existing logging configuration (from a sitecustomize, for example) is kept.

In a user's own process logging is the user's: a library that adds a handler there would have its lines printed twice,
or where nobody wants them."""

from __future__ import annotations

import logging
import sys
import threading

from kafka_sink.kafka.io.per_process import PerProcess
from kafka_sink.spark.process import is_sparks

_LOGGER = logging.getLogger("kafka_sink")
LOCK = PerProcess(threading.Lock)


def show_log() -> None:
    if not is_sparks():
        return
    with LOCK.value:
        if _LOGGER.hasHandlers():
            return
        shown = logging.StreamHandler(sys.stderr)
        shown.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)s pykafka-sink: %(message)s", "%y/%m/%d %H:%M:%S")
        )
        _LOGGER.addHandler(shown)
        _LOGGER.setLevel(logging.INFO)
