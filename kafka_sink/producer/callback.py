"""Runs user code on the sender thread. Whatever it raises is logged and affects nothing else."""

from __future__ import annotations

import logging
from collections.abc import Callable

_LOGGER = logging.getLogger("kafka_sink")


def run_callback(callback: Callable[..., object], *arguments: object) -> None:
    try:
        callback(*arguments)
    except BaseException:  # sys.exit() in a callback must not end the sender thread
        _LOGGER.exception("callback %r raised", getattr(callback, "__qualname__", callback))
