"""What the engines, which log nothing themselves, want operators to read."""

from __future__ import annotations

import logging

from kafka_sink.kafka.client.commands import Notice

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING}


def log_notice(logger: logging.Logger, client_id: str, notice: Notice) -> None:
    logger.log(_LEVELS[notice.level], "[%s] %s", client_id, notice.text)
