"""The headers of a dead letter, and how the record that it was made of is read from it.

The headers of the row come first, then the sink's own, of which the first is the error. So everything before the last
error is the row's, even if that row was a dead letter itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_sink.records.scalar import Headers

HEADER_PREFIX = "pykafka-sink."
ERROR = "error"
REASON = "reason"
# Says that the value or the key in the letter is JSON, because what was in the row has no bytes of its own.
VALUE_FORMAT, KEY_FORMAT = "value.format", "key.format"
# Says that the value or the key is not in the letter, and how long it was.
VALUE_BYTES, KEY_BYTES = "value.bytes", "key.bytes"
JSON = "json"


def parse_dead_letter(headers: Headers) -> tuple[Headers, Mapping[str, str]] | None:
    """The headers of the row, and what the letter says by name. None: this is no dead letter."""
    names = [name for name, _ in headers]
    if HEADER_PREFIX + ERROR not in names:
        return None
    first = len(names) - 1 - names[::-1].index(HEADER_PREFIX + ERROR)
    details = {
        name.removeprefix(HEADER_PREFIX): (value or b"").decode(errors="replace")
        for name, value in headers[first:]
        if name.startswith(HEADER_PREFIX)
    }
    return headers[:first], details


def unreplayable_reason(details: Mapping[str, str]) -> str | None:
    """Why the record cannot be made from this letter again, or None."""
    if VALUE_BYTES in details or KEY_BYTES in details:
        return "too large to be kept in the letter"
    if VALUE_FORMAT in details or KEY_FORMAT in details:
        return "kept as JSON, since it did not fit its schema"
    return None
