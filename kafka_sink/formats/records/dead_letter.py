"""The headers of a dead letter, and how to restore the original record from it.

The row's headers come first, then the sink's, which begin with the error. So everything before the last error belongs
to the row, even if that row was a dead letter itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kafka_sink.formats.records.scalar import Headers

HEADER_PREFIX = "pykafka-sink."
ERROR = "error"
REASON = "reason"
# The target of the row, as far as it is known.
TOPIC = "topic"
# The one that the row itself has named, if it has.
PARTITION = "partition"
NO_PARTITION = "no such partition"
# The value or key in the letter is JSON, because the row's column was not binary.
VALUE_FORMAT, KEY_FORMAT = "value.format", "key.format"
# The value or key is not in the letter; this was its length.
VALUE_BYTES, KEY_BYTES = "value.bytes", "key.bytes"
JSON = "json"
# What the row had not become: "a change", "an event". The letter holds the row as it came.
UNFINISHED = "unfinished"


def parse_dead_letter(headers: Headers) -> tuple[Headers, Mapping[str, str]] | None:
    """The row's headers, and the letter's details by name. None: not a dead letter."""
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


def named_partition(details: Mapping[str, str]) -> int | None:
    """Into which the row wanted to go; None: it left that to its key."""
    text = details.get(PARTITION, "")
    return int(text) if re.fullmatch("[0-9]{1,10}", text) else None


def unreplayable_reason(details: Mapping[str, str]) -> str | None:
    """Why the record cannot be restored from this letter, or None."""
    if VALUE_BYTES in details or KEY_BYTES in details:
        return "too large to be kept in the letter"
    if VALUE_FORMAT in details or KEY_FORMAT in details:
        return "kept as JSON, since it did not fit its schema"
    if UNFINISHED in details:
        return f"kept as it came, since it could not become {details[UNFINISHED]}"
    return None
