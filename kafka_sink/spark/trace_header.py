"""The header traceparent of W3C Trace Context, by column: this sink writes at most one per record.

Its value is the text of the column traceparent.column; else what the row's headers column has; else, with
traceparent.task, the span of the task. An invalid text is ignored, because readers must ignore it too, and a row must
not fail for its trace. This is logged once per task.
"""

from __future__ import annotations

import logging

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.options.sink_options import TRACEPARENT
from kafka_sink.records.bytes_column import to_plain
from kafka_sink.records.varint import Array
from kafka_sink.spark.added_headers import AddedHeader, add_headers, drop_header, has_header

_LOGGER = logging.getLogger("kafka_sink")

# Version 00 has these four parts and nothing else, later ones may have more; there is no version ff.
_HEX = "[0-9a-f]"
_FORM = (
    f"^(00-{_HEX}{{32}}-{_HEX}{{16}}-{_HEX}{{2}}"
    f"|(0[1-9a-f]|[1-9a-e]{_HEX}|f[0-9a-e])-{_HEX}{{32}}-{_HEX}{{16}}-{_HEX}{{2}}(-[!-~]*)?)$"
)
_ZERO_ID = f"^..-(0{{32}}|{_HEX}{{32}}-0{{16}})-"


class TraceHeader:
    """`column`: the option's value, for messages. `span`: for records without another traceparent."""

    def __init__(self, column: str | None, span: bytes | None) -> None:
        self._column = column
        self._span = span
        self._has_warned = False

    def add_to(self, rows: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """The rows with the header, without the column of its texts."""
        has_one = np.zeros(rows.num_rows, np.bool_)
        if self._column is not None:
            texts = to_plain(rows.column(TRACEPARENT)).cast(pa.binary())
            rows = rows.drop_columns([TRACEPARENT])
            has_one = self._check_texts(texts, first_row)
            rows = drop_header(rows, TRACEPARENT, has_one)
            rows = add_headers(rows, [AddedHeader(TRACEPARENT, texts, has_one)])
        if self._span is not None:
            is_missing = ~(has_one | has_header(rows, TRACEPARENT))
            rows = add_headers(rows, [AddedHeader(TRACEPARENT, self._span, is_missing)])
        return rows

    def _check_texts(self, texts: pa.Array, first_row: int) -> Array:
        found = is_traceparent(texts)
        bad = np.flatnonzero(~found & texts.is_valid().to_numpy(zero_copy_only=False))
        if len(bad) and not self._has_warned:
            self._has_warned = True
            _LOGGER.warning(
                "traceparent.column=%s: row %d, and %d more of the %d rows that came with it, have a text that is no "
                "traceparent (such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01). They are written "
                "without it",
                self._column,
                first_row + int(bad[0]),
                len(bad) - 1,
                len(texts),
            )
        return found


def is_traceparent(texts: pa.Array) -> Array:
    """A mask of the valid texts. A null is invalid."""
    is_good = pc.and_not(pc.match_substring_regex(texts, _FORM), pc.match_substring_regex(texts, _ZERO_ID))
    found: Array = pc.fill_null(is_good, False).to_numpy(zero_copy_only=False)
    return found
