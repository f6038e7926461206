"""Log lines of the sender thread. Python's loggers guard neither the filters nor the handlers of users: what one raises
comes out of the call that logs, and would end the thread that everything waits for.
"""

from __future__ import annotations

import logging
from contextlib import suppress

_LOGGER = logging.getLogger("kafka_sink")


def log(level: int, text: str, *arguments: object, exc_info: BaseException | bool | None = None) -> None:
    with suppress(Exception):
        _LOGGER.log(level, text, *arguments, exc_info=exc_info, stacklevel=2)
