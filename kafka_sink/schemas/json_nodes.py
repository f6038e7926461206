"""JSON by whole columns, as Spark's to_json writes it: a field that is null is left out, a null in an array or a map is
null, what is not a finite number is a string, binary is base64.

Numbers, dates and times mean the same as Spark's and may be spelled otherwise: 1e+20 for 1.0E20; times are in UTC, and
have microseconds where they are not 0 (Spark cuts them off). The slow twin is tests/property/slow_json.py.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.frozen import frozen
from kafka_sink.records.bytes_column import BytesColumn, plain
from kafka_sink.records.varint import Array
from kafka_sink.schemas.arrays import flags_of, lists_of, numbers_of, valid_of
from kafka_sink.schemas.json_text import base64_texts, escaped
from kafka_sink.schemas.json_time import date_texts, time_pieces
from kafka_sink.schemas.misfit import MisfitScope
from kafka_sink.schemas.node import Numbers, ValueNode
from kafka_sink.schemas.pieces import Elements, Piece, bytes_elements, choice, joined, masked, text
from kafka_sink.schemas.utf8 import checked_text

NULL_REFUSED = "is null, and the schema requires it"
_NOT_FINITE = [b'"NaN"', b'"Infinity"', b'"-Infinity"']
# Below this no release of Arrow writes an exponent; from where on it does is not the same in all of them.
_NO_EXPONENT_BELOW = 1e7


@frozen
class JsonSlot:
    """A place in a list, or the column itself: null where there is nothing."""

    node: ValueNode

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        array = plain(array)
        valid = valid_of(array)
        if valid is None:
            return self.node.pieces(array, scope)
        null = masked([text(b"null", len(array))], ~valid)
        return [*null, *masked(self.node.pieces(array, scope.where(valid)), valid)]


@frozen
class JsonNull:
    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        return []


@frozen
class JsonBoolean:
    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        return [choice([b"false", b"true"], flags_of(array).view(np.uint8))]


@frozen
class JsonNumber:
    """Whole numbers and decimals."""

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        return [_cast(array)]


@frozen
class JsonFloat:
    """`is_strict`: what is not finite does not fit, because a JSON schema says number."""

    source: Any
    is_strict: bool

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        numbers = numbers_of(array, self.source)
        finite = np.isfinite(numbers)
        is_whole = (np.floor(numbers) == numbers) & finite
        if (np.abs(numbers, where=is_whole, out=np.zeros(len(numbers))) >= _NO_EXPONENT_BELOW).any():
            has_exponent = pc.match_substring(array.cast(pa.string()), "e").fill_null(False)
            is_whole &= ~has_exponent.to_numpy(zero_copy_only=False)
        point = masked([text(b".0", len(array))], is_whole)
        if finite.all():
            return [_cast(array), *point]
        if self.is_strict:
            scope.refuse(~finite, "is not a finite number, and JSON has no others")
        words = choice(_NOT_FINITE, np.where(np.isnan(numbers), 0, np.where(numbers > 0, 1, 2)))
        return [*masked([_cast(array)], finite), *point, *masked([words], ~finite)]


@frozen
class JsonText:
    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        column = BytesColumn.from_arrow(checked_text(array, scope), "")
        return _quoted([escaped(column)], len(array))


@frozen
class JsonBase64:
    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        return _quoted([base64_texts(BytesColumn.from_arrow(array, ""))], len(array))


@frozen
class JsonDate:
    numbers: Numbers

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        return _quoted([date_texts(self.numbers.read(array, scope))], len(array))


@frozen
class JsonTimestamp:
    """`ending` is Z, or nothing for a time without a zone."""

    numbers: Numbers
    ending: bytes

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        microseconds = self.numbers.read(array, scope)
        return _quoted([*time_pieces(microseconds), text(self.ending, len(array))], len(array))


@frozen
class JsonTime:
    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        return _quoted([_cast(array)], len(array))


@frozen
class JsonItems:
    slot: JsonSlot

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        offsets, (child,) = lists_of(array)
        items = self.slot.pieces(child, scope.items(offsets, "[]"))
        return _bracketed(b"[", offsets, [_comma(offsets), *items], b"]")


@frozen
class JsonEntries:
    """A map. Keys are texts; those of `quotes` have to be put into quotes."""

    key: ValueNode
    quotes: bool
    slot: JsonSlot

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        offsets, (keys, items) = lists_of(array)
        names = self.key.pieces(plain(keys), scope.items(offsets, "{key}"))
        if self.quotes:
            names = _quoted(names, len(keys))
        values = self.slot.pieces(items, scope.items(offsets, "{}"))
        return _bracketed(b"{", offsets, [_comma(offsets), *names, text(b":", len(keys)), *values], b"}")


@frozen
class JsonObjectField:
    name: str
    node: ValueNode
    is_required: bool = False
    is_null: bool = False


@frozen
class JsonObject:
    fields: tuple[JsonObjectField, ...]

    def pieces(self, array: pa.Array, scope: MisfitScope) -> list[Piece]:
        count = len(array)
        pieces: list[Piece] = []
        # In which rows a field stands before this one: None is in all of them.
        is_begun: Array | None = np.zeros(count, np.bool_)
        for index, field in enumerate(self.fields):
            if field.is_null:
                continue
            column = plain(array.field(index))
            valid = valid_of(column)
            inner = scope.field(field.name)
            if valid is not None and field.is_required:
                inner.refuse(~valid, NULL_REFUSED)
            name = json.dumps(field.name, ensure_ascii=False).encode() + b":"
            own = [_opening(name, is_begun, count), *field.node.pieces(column, inner.where(valid))]
            pieces += masked(own, valid)
            is_begun = None if valid is None or is_begun is None else is_begun | valid
        if is_begun is None:
            return [*pieces, text(b"}", count)]
        return [*pieces, choice([b"{}", b"}"], is_begun.view(np.uint8))]


def _opening(name: bytes, is_begun: Array | None, count: int) -> Elements:
    if is_begun is None:
        return text(b"," + name, count)
    if not is_begun.any():
        return text(b"{" + name, count)
    return choice([b"{" + name, b"," + name], is_begun.view(np.uint8))


def _comma(offsets: Array) -> Elements:
    """In front of each item but the first of its list."""
    is_later = np.ones(int(offsets[-1]), np.uint8)
    is_later[offsets[:-1][np.diff(offsets) > 0]] = 0
    return choice([b"", b","], is_later)


def _bracketed(opening: bytes, offsets: Array, items: list[Piece], closing: bytes) -> list[Piece]:
    count = len(offsets) - 1
    flat = joined(items, int(offsets[-1]))
    return [text(opening, count), flat.ranges(offsets), text(closing, count)]


def _cast(array: pa.Array) -> Elements:
    return bytes_elements(BytesColumn.from_arrow(array.cast(pa.string()), ""))


def _quoted(pieces: list[Piece], count: int) -> list[Piece]:
    return [text(b'"', count), *pieces, text(b'"', count)]
