"""Warnings that are logged once in a process, which plans and commits many batches."""

from __future__ import annotations

import logging
import os
from functools import lru_cache

_LOGGER = logging.getLogger("kafka_sink")
WARNINGS_MAX = 256


def warn_once(text: str) -> None:
    _warn_once(text, os.getpid())


@lru_cache(maxsize=WARNINGS_MAX)
def _warn_once(text: str, pid: int) -> None:
    """The process id is part of the key because a forked child inherits its parent's memory."""
    _LOGGER.warning("%s", text)
