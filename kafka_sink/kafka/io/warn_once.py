"""Warnings that are logged once in a process, which plans and commits many batches."""

from __future__ import annotations

import logging
import threading

from kafka_sink.kafka.io.per_process import PerProcess

_LOGGER = logging.getLogger("kafka_sink")
WARNINGS_MAX = 256


class _Warned:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._texts: dict[str, None] = {}  # least recently warned first

    def add(self, text: str) -> bool:
        """False: it is known."""
        with self._lock:
            is_first = text not in self._texts
            self._texts.pop(text, None)
            self._texts[text] = None
            if len(self._texts) > WARNINGS_MAX:
                del self._texts[next(iter(self._texts))]
        return is_first


WARNED = PerProcess(_Warned)


def warn_once(text: str) -> None:
    if WARNED.value.add(text):
        _LOGGER.warning("%s", text)
