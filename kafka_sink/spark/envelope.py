"""Adds constant headers, CloudEvents 1.0 and traces to an Arrow batch, in a task.

Binary mode: each attribute is a header ce_NAME, the value is the unchanged data, and a null value stays null.
Structured mode: the value is a JSON object of the attributes and the data; a null value is an event without data. The
attribute datacontenttype is the header content-type in binary mode, as in the specification's Kafka binding.

The header traceparent of W3C Trace Context: this sink writes at most one per record. Its value is the text of the
column traceparent.column; else what the row's headers column has; else, with traceparent.task, the span of the task. An
invalid text is ignored, because readers must ignore it too, and a row must not fail for its trace. This is logged once
per task.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.errors import DataError
from kafka_sink.errors.table.writes import EVENT_INCOMPLETE
from kafka_sink.formats.records.bytes_column import to_plain
from kafka_sink.formats.records.varint import Array
from kafka_sink.formats.schemas.match import plan
from kafka_sink.formats.schemas.naming import is_text
from kafka_sink.options.sink_options import (
    ATTRIBUTE_COLUMN,
    STRUCTURED_MODE,
    TRACEPARENT,
    EnvelopeOptions,
    fill_placeholders,
)
from kafka_sink.spark.added_headers import AddedHeader, add_headers, drop_header, has_header, set_column, set_header
from kafka_sink.spark.row_ids import take_row_ids

_LOGGER = logging.getLogger("kafka_sink")
SPEC_VERSION = "1.0"
STRUCTURED_TYPE = b"application/cloudevents+json; charset=UTF-8"
CONTENT_TYPE, DATA_CONTENT_TYPE = "content-type", "datacontenttype"
REQUIRED = ("id", "source", "type")
# Behind the id that a tombstone has from its row: the event before it has that.
TOMBSTONE = "/tombstone"
# Attributes defined as text by the specification; others are extensions.
TEXTS = frozenset({*REQUIRED, "subject", "time", "dataschema", DATA_CONTENT_TYPE})
# A constant for all rows, or a column.
Attribute = str | pa.Array
# Version 00 has these four parts and nothing else, later ones may have more; there is no version ff.
_HEX = "[0-9a-f]"
_FORM = (
    f"^(00-{_HEX}{{32}}-{_HEX}{{16}}-{_HEX}{{2}}"
    f"|(0[1-9a-f]|[1-9a-e]{_HEX}|f[0-9a-e])-{_HEX}{{32}}-{_HEX}{{16}}-{_HEX}{{2}}(-[!-~]*)?)$"
)
_ZERO_ID = f"^..-(0{{32}}|{_HEX}{{32}}-0{{16}})-"
# The years 0 to 9999, which the text can have, in microseconds.
_FIRST_US, _LAST_US = -62_167_219_200_000_000, 253_402_300_799_999_999


class Envelope:
    """`known`: values of the placeholders. `id_prefix`: of event ids, the same if a task is repeated. `span`: the
    traceparent of the task's span, if records refer to it."""

    def __init__(
        self, options: EnvelopeOptions, known: Mapping[str, str], id_prefix: str, span: bytes | None = None
    ) -> None:
        self._options = options
        self._traces = TraceHeader(options.traceparent_column, span)
        self._headers = [AddedHeader(name, fill_placeholders(text, known).encode()) for name, text in options.headers]
        self._constants = {name: fill_placeholders(text, known) for name, text in options.attributes}
        self._id_prefix = id_prefix
        if options.content_type is not None:
            self._constants.setdefault(DATA_CONTENT_TYPE, options.content_type)

    def apply(
        self, rows: pa.RecordBatch, first_row: int, is_tombstone: Array | None = None
    ) -> tuple[pa.RecordBatch, dict[int, DataError]]:
        """The rows in their envelope, without attribute columns; and the errors of rows that cannot be events.
        `is_tombstone`: the record comes behind the event of the same row, and has an id of its own."""
        misfits: dict[int, DataError] = {}
        ids: pa.Array | None = None
        if self._options.row_id_header is not None:
            rows, ids, without = take_row_ids(rows, self._options.row_id_column)
            ids = _name_tombstones(ids, is_tombstone)
            misfits.update(without)
        if self._options.mode is not None:
            attributes = self._attributes(rows, first_row, ids, is_tombstone)
            distant = _find_distant_times(rows, [name for name, _ in self._options.attribute_columns])
            misfits = {**distant, **_find_incomplete(attributes, rows.num_rows), **misfits}
            rows = rows.select([name for name in rows.schema.names if not name.startswith(ATTRIBUTE_COLUMN)])
            if self._options.mode == STRUCTURED_MODE:
                values, unfit = self._events(attributes, to_plain(rows.column("value")))
                misfits = {**unfit, **misfits}
                rows = set_column(rows, "value", values)
                rows = add_headers(rows, [AddedHeader(CONTENT_TYPE, STRUCTURED_TYPE)])
            else:
                rows = add_headers(rows, [_header(name, column) for name, column in attributes.items()])
        if ids is not None and self._options.row_id_header is not None:
            rows = set_header(rows, self._options.row_id_header, ids)
        rows = self._traces.add_to(add_headers(rows, self._headers), first_row)
        return rows, dict(sorted(misfits.items()))

    def _attributes(
        self, rows: pa.RecordBatch, first_row: int, ids: pa.Array | None, is_tombstone: Array | None
    ) -> dict[str, Attribute]:
        found: dict[str, Attribute] = {"specversion": SPEC_VERSION, **self._constants}
        for name, _ in self._options.attribute_columns:
            column = to_plain(rows.column(ATTRIBUTE_COLUMN + name))
            found[name] = column if self._keeps_type(name, column.type) else _text(column)
            if name == "id":
                found[name] = _name_tombstones(found[name], is_tombstone)
        if "id" not in found and ids is not None:
            found["id"] = ids
        elif "id" not in found:
            numbers = pa.array(np.arange(first_row, first_row + rows.num_rows)).cast(pa.string())
            found["id"] = pc.binary_join_element_wise(self._id_prefix, numbers, "-")
        return found

    def _keeps_type(self, name: str, kind: pa.DataType) -> bool:
        """In JSON an extension can be a number or a boolean; the specification's integers have 32 bits."""
        if self._options.mode != STRUCTURED_MODE or name in TEXTS:
            return False
        return bool(pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and kind.bit_width <= 32))

    def _events(self, attributes: Mapping[str, Attribute], data: pa.Array) -> tuple[pa.Array, dict[int, DataError]]:
        columns = [pa.repeat(each, len(data)) if isinstance(each, str) else each for each in attributes.values()]
        about = pa.StructArray.from_arrays(columns, list(attributes))
        found = plan(about.type, None).encode(about, b"", "cloudevents")
        heads = pc.binary_slice(found.array, 0, -1)
        member, contents, misfits = self._data(data)
        with_data = pc.binary_join_element_wise(heads, pa.scalar(b',"%s":' % member), contents, pa.scalar(b"}"), b"")
        without_data = pc.binary_join_element_wise(heads, pa.scalar(b"}"), b"")
        return pc.if_else(data.is_valid(), with_data, without_data), {**found.misfits, **misfits}

    def _data(self, data: pa.Array) -> tuple[bytes, pa.Array, dict[int, DataError]]:
        """The name of the member, its content as JSON, and errors of rows with invalid JSON that is declared as
        such."""
        contents = data.cast(pa.binary())
        if self._options.has_own_json:
            return b"data", contents, {}
        if _is_json_type(self._constants[DATA_CONTENT_TYPE]):
            misfits = {}
            for row, content in enumerate(contents.to_pylist()):
                if content is not None and not _is_valid_json(content):
                    text = f"the value of row {row} is no JSON, and datacontenttype says that it is"
                    misfits[row] = DataError(text, EVENT_INCOMPLETE, row=row, column="value")
            return b"data", contents, misfits
        texts = plan(data.type, None).encode(data, b"", "value")
        return b"data" if is_text(data.type) else b"data_base64", texts.array, dict(texts.misfits)


def _name_tombstones(ids: pa.Array, is_tombstone: Array | None) -> pa.Array:
    if is_tombstone is None or not is_tombstone.any():
        return ids
    return pc.if_else(pa.array(is_tombstone), pc.binary_join_element_wise(ids, TOMBSTONE, ""), ids)


def _header(name: str, column: Attribute) -> AddedHeader:
    title = CONTENT_TYPE if name == DATA_CONTENT_TYPE else f"ce_{name}"
    if isinstance(column, str):
        return AddedHeader(title, column.encode())
    is_there: Array = column.is_valid().to_numpy(zero_copy_only=False)
    return AddedHeader(title, column.cast(pa.binary()), is_there)


def _text(column: pa.Array) -> pa.Array:
    """The specification's text form of attributes."""
    if pa.types.is_timestamp(column.type):
        # Neither with a zone nor by strftime: both ask the system's database of time zones, which small images lack.
        plain = column.cast(pa.timestamp("us", "UTC")).view(pa.timestamp("us")).cast(pa.string())
        return pc.binary_join_element_wise(pc.binary_replace_slice(plain, 10, 11, "T"), "Z", "")
    return column.cast(pa.string())


def _find_incomplete(attributes: Mapping[str, Attribute], count: int) -> dict[int, DataError]:
    misfits: dict[int, DataError] = {}
    for name in REQUIRED:
        column = attributes[name]
        column = pa.repeat(column, count) if isinstance(column, str) else column
        is_bad = pc.fill_null(pc.equal(pc.binary_length(column), 0), True)
        misfits |= _misfits(is_bad, f"has no {name}, which every CloudEvent must have", f"cloudevents.{name}")
    return misfits


def _find_distant_times(rows: pa.RecordBatch, names: Iterable[str]) -> dict[int, DataError]:
    """Arrow would write another year, or one with five digits. Often it is milliseconds that were cast as seconds."""
    misfits: dict[int, DataError] = {}
    for name in names:
        column = to_plain(rows.column(ATTRIBUTE_COLUMN + name))
        if not pa.types.is_timestamp(column.type):
            continue
        microseconds = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        is_bad = pc.or_(pc.less(microseconds, _FIRST_US), pc.greater(microseconds, _LAST_US))
        text = f"has a time in {name} whose year is not one of 0 to 9999, as a CloudEvent must have"
        misfits |= _misfits(pc.fill_null(is_bad, False), text, f"cloudevents.{name}")
    return misfits


def _misfits(is_bad: pa.BooleanArray, text: str, column: str) -> dict[int, DataError]:
    return {
        row: DataError(f"row {row} {text}", EVENT_INCOMPLETE, row=row, column=column)
        for row in np.flatnonzero(is_bad.to_numpy(zero_copy_only=False)).tolist()
    }


def _is_json_type(content_type: str) -> bool:
    media = content_type.partition(";")[0].strip().lower()
    return media.endswith(("/json", "+json"))


def _is_valid_json(content: bytes) -> bool:
    """Must be UTF-8, since it becomes part of a UTF-8 text. From bytes Python would accept other encodings, too."""
    try:
        # Integers stay text: Python limits the digits of those that it converts.
        json.loads(content.decode(), parse_constant=_refuse_constant, parse_int=str)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse_constant(name: str) -> NoReturn:
    """NaN and Infinity are valid in Python, not in JSON."""
    raise ValueError(name)


# ---- traces ----------------------------------------------------------------------------------------------------------


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
            rows = rows.select([name for name in rows.schema.names if name != TRACEPARENT])
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
