"""Spark starts the Python processes on the driver and the executors without configuring logging: without this the line
per batch would be lost. Existing logging configuration (from a sitecustomize, for example) is kept."""

from __future__ import annotations

import logging
import os
import sys
from functools import lru_cache

_LOGGER = logging.getLogger("kafka_sink")


def show_log() -> None:
    if _LOGGER.hasHandlers():
        return
    shown = logging.StreamHandler(sys.stderr)
    shown.setFormatter(logging.Formatter("%(asctime)s %(levelname)s pykafka-sink: %(message)s", "%y/%m/%d %H:%M:%S"))
    _LOGGER.addHandler(shown)
    _LOGGER.setLevel(logging.INFO)


def warn_once(text: str) -> None:
    """Once in this process, which plans and commits many batches."""
    _warn_once(text, os.getpid())


@lru_cache(maxsize=64)
def _warn_once(text: str, pid: int) -> None:
    """The process id is part of the key because a forked child inherits its parent's memory."""
    _LOGGER.warning("%s", text)
