"""A copy of an error for each caller."""

from __future__ import annotations

import copy

from kafka_sink.errors import KafkaSinkError


def copy_error(error: KafkaSinkError, text: str | None = None) -> KafkaSinkError:
    """A copy to raise: an error may be raised to many callers, and each raise would extend its one traceback."""
    copied = copy.copy(error)
    if text is not None:
        copied.args = (text,)
    copied.__cause__ = error.__cause__
    return copied
