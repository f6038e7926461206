"""Spark starts the Python processes on the driver and the executors without configuring logging: without this the line
per batch would be lost. Existing logging configuration (from a sitecustomize, for example) is kept."""

from __future__ import annotations

import logging
import sys

_LOGGER = logging.getLogger("kafka_sink")


def show_log() -> None:
    if _LOGGER.hasHandlers():
        return
    shown = logging.StreamHandler(sys.stderr)
    shown.setFormatter(logging.Formatter("%(asctime)s %(levelname)s pykafka-sink: %(message)s", "%y/%m/%d %H:%M:%S"))
    _LOGGER.addHandler(shown)
    _LOGGER.setLevel(logging.INFO)
