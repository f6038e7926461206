"""An error as a copy of its own, for each of those it is raised to."""

from __future__ import annotations

import copy

from kafka_sink.errors import KafkaSinkError


def copy_error(error: KafkaSinkError, text: str | None = None) -> KafkaSinkError:
    """A copy to raise: one error may be raised to many, and each raise would add to its one traceback."""
    told = copy.copy(error)
    if text is not None:
        told.args = (text,)
    told.__cause__ = error.__cause__
    return told
