"""Spark starts the Python processes on the driver and the executors, and nobody sets up logging in them: without this
the line per batch would be lost. Whoever has set up logging himself (in a sitecustomize, for example) keeps it."""

from __future__ import annotations

import logging
import sys


def show_log() -> None:
    logger = logging.getLogger("kafka_sink")
    if logger.hasHandlers():
        return
    shown = logging.StreamHandler(sys.stderr)
    shown.setFormatter(logging.Formatter("%(asctime)s %(levelname)s pykafka-sink: %(message)s", "%y/%m/%d %H:%M:%S"))
    logger.addHandler(shown)
    logger.setLevel(logging.INFO)
