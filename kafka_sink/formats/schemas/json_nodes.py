"""JSON by column, as Spark's to_json writes it: a null field is omitted, a null in an array or a map is null, a
non-finite number is a string, binary is base64.

Numbers, dates and times are equal to Spark's but may be formatted differently: 1e+20 for 1.0E20; times are in UTC, with
microseconds if they are not 0 (Spark truncates them). The scalar reference is tests/property/slow_json.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.formats.records.arrays import read_flags, read_lists, read_numbers
from kafka_sink.formats.records.bytes_column import BytesColumn, to_plain
from kafka_sink.formats.records.pieces import (
    Elements,
    Piece,
    bytes_elements,
    choice,
    constant_elements,
    join_pieces,
    mask_pieces,
)
from kafka_sink.formats.records.varint import Array
from kafka_sink.formats.schemas.json_text import encode_base64, escape_strings, format_times
from kafka_sink.formats.schemas.misfit import MisfitScope
from kafka_sink.formats.schemas.node import Numbers, ValueNode, encode_present, refuse_invalid_utf8
from kafka_sink.frozen import frozen

NULL_REFUSED = "is null, and the schema requires it"
ITEM_NULL_REFUSED = "is null, and the schema has no null there"
_NOT_FINITE = [b"NaN", b"Infinity", b"-Infinity"]
_NOT_FINITE_VALUES = [b'"%s"' % word for word in _NOT_FINITE]
# Below this no release of Arrow writes an exponent; where it starts to differs between releases.
_NO_EXPONENT_BELOW = 1e7


def encode_nullable(node: ValueNode, has_null: bool, array: pa.Array, scope: MisfitScope) -> list[Piece]:
    """An item of a list or a map, or the column itself: nulls are written as null, if the schema has it there."""
    inner, valid = encode_present(node, array, scope, None if has_null else ITEM_NULL_REFUSED)
    if valid is None:
        return inner
    return [*mask_pieces([constant_elements(b"null", len(array))], ~valid), *inner]


def encode_boolean(array: pa.Array, scope: MisfitScope) -> list[Piece]:
    return [choice([b"false", b"true"], read_flags(array).view(np.uint8))]


def encode_number(array: pa.Array, scope: MisfitScope) -> list[Piece]:
    """Whole numbers and decimals."""
    text = array.cast(pa.string())
    if pa.types.is_decimal(array.type) and _writes_lone_points():
        text = pc.replace_substring(text, ".E", "E")
    return [bytes_elements(BytesColumn.from_arrow(text))]


@cache
def _writes_lone_points() -> bool:
    """pyarrow before 18 writes 0.E-18, which is no number of JSON, for 0E-18."""
    zero = pa.array([0], pa.int8()).cast(pa.decimal128(38, 18))
    return bool(pc.match_substring(zero.cast(pa.string()), ".E")[0].as_py())


def encode_float(is_strict: bool, is_key: bool, array: pa.Array, scope: MisfitScope) -> list[Piece]:
    """`is_strict`: a non-finite number does not fit, because the JSON schema requires a number. `is_key`: of a map; the
    map writes the quotes."""
    numbers = read_numbers(array)
    finite = np.isfinite(numbers)
    is_whole = (np.floor(numbers) == numbers) & finite
    if (np.abs(numbers, where=is_whole, out=np.zeros(len(numbers))) >= _NO_EXPONENT_BELOW).any():
        has_exponent = pc.match_substring(array.cast(pa.string()), "e").fill_null(False)
        is_whole &= ~has_exponent.to_numpy(zero_copy_only=False)
    point = mask_pieces([constant_elements(b".0", len(array))], is_whole)
    if finite.all():
        return [_cast_to_text(array), *point]
    if is_strict:
        scope.refuse(~finite, "is not a finite number, and JSON has no others")
    texts = _NOT_FINITE if is_key else _NOT_FINITE_VALUES
    words = choice(texts, np.where(np.isnan(numbers), 0, np.where(numbers > 0, 1, 2)))
    return [*mask_pieces([_cast_to_text(array)], finite), *point, *mask_pieces([words], ~finite)]


def encode_text(array: pa.Array, scope: MisfitScope) -> list[Piece]:
    column = BytesColumn.from_arrow(refuse_invalid_utf8(array, scope))
    return _quote([escape_strings(column)], len(array))


def encode_binary(array: pa.Array, scope: MisfitScope) -> list[Piece]:
    return _quote([encode_base64(BytesColumn.from_arrow(array))], len(array))


def encode_moment(
    form: Callable[[Array], list[Piece]], numbers: Numbers, array: pa.Array, scope: MisfitScope
) -> list[Piece]:
    """A date, a timestamp or an interval, of which `form` makes texts."""
    return _quote(form(numbers.read(array, scope)), len(array))


def encode_time(array: pa.Array, scope: MisfitScope) -> list[Piece]:
    return _quote([format_times(array)], len(array))


def encode_array(item: ValueNode, array: pa.Array, scope: MisfitScope) -> list[Piece]:
    offsets, (child,) = read_lists(array)
    return _wrap_items(b"[", offsets, item(child, scope.items(offsets, "[]")), b"]")


def encode_map(
    key: ValueNode, needs_quotes: bool, value: ValueNode, array: pa.Array, scope: MisfitScope
) -> list[Piece]:
    """Keys are texts; those of numbers need quotes."""
    offsets, (keys, items) = read_lists(array)
    names = key(to_plain(keys), scope.items(offsets, "{key}"))
    if needs_quotes:
        names = _quote(names, len(keys))
    values = value(items, scope.items(offsets, "{}"))
    return _wrap_items(b"{", offsets, [*names, constant_elements(b":", len(keys)), *values], b"}")


@frozen
class JsonField:
    """`opening` is its name and the colon. `writes_null`: a null is written, because the schema requires the property
    and allows null as its value."""

    name: str
    opening: bytes
    index: int
    node: ValueNode
    is_required: bool
    writes_null: bool = False


def encode_object(fields: tuple[JsonField, ...], array: pa.Array, scope: MisfitScope) -> list[Piece]:
    count = len(array)
    pieces: list[Piece] = []
    # The rows that already have a field before this one: None means all.
    is_begun: Array | None = np.zeros(count, np.bool_)
    for field in fields:
        inner, column = scope.field(field.name), array.field(field.index)
        if field.writes_null:
            own, valid = encode_nullable(field.node, True, column, inner), None
        else:
            own, valid = encode_present(field.node, column, inner, NULL_REFUSED if field.is_required else None)
        pieces += [*mask_pieces([_begin_field(field.opening, is_begun, count)], valid), *own]
        is_begun = None if valid is None or is_begun is None else is_begun | valid
    if is_begun is None:
        return [*pieces, constant_elements(b"}", count)]
    return [*pieces, choice([b"{}", b"}"], is_begun.view(np.uint8))]


def _begin_field(opening: bytes, is_begun: Array | None, count: int) -> Elements:
    if is_begun is None:
        return constant_elements(b"," + opening, count)
    if not is_begun.any():
        return constant_elements(b"{" + opening, count)
    return choice([b"{" + opening, b"," + opening], is_begun.view(np.uint8))


def _wrap_items(begin: bytes, offsets: Array, items: list[Piece], end: bytes) -> list[Piece]:
    """The items of each element, with a comma before each except the first."""
    is_later = np.ones(int(offsets[-1]), np.uint8)
    is_later[offsets[:-1][np.diff(offsets) > 0]] = 0
    flat = join_pieces([choice([b"", b","], is_later), *items], len(is_later))
    count = len(offsets) - 1
    return [constant_elements(begin, count), flat.elements(offsets), constant_elements(end, count)]


def _cast_to_text(array: pa.Array) -> Elements:
    return bytes_elements(BytesColumn.from_arrow(array.cast(pa.string())))


def _quote(pieces: list[Piece], count: int) -> list[Piece]:
    return [constant_elements(b'"', count), *pieces, constant_elements(b'"', count)]
