"""Random Spark types as Arrow types, with rows, some in arrays with an awkward layout (slices).

Every strategy here is created once: creating one per example costs more than drawing from it.
"""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

_EPOCH = dt.datetime(1970, 1, 1)
_NAMES = st.lists(
    st.sampled_from(["a", "b", "c", "d", "e", "f", "count", "order_id", "A"]),
    min_size=1, max_size=4, unique_by=str.lower,
)  # fmt: skip
_DEPTH_MAX = 5


def _decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    limit = 10**precision - 1
    context = decimal.Context(prec=60)
    edges = st.sampled_from([0, 1, -1, 127, 128, -128, -129, 2**31, -(2**63), 2**63, 2**64, limit, -limit])
    return st.one_of(st.integers(-limit, limit), edges.filter(lambda number: abs(number) <= limit)).map(
        lambda number: decimal.Decimal(number).scaleb(-scale, context)
    )


def _moments(tz: dt.timezone | None) -> st.SearchStrategy[dt.datetime]:
    return st.integers(-62_000_000_000_000_000, 250_000_000_000_000_000).map(
        lambda us: (_EPOCH + dt.timedelta(microseconds=us)).replace(tzinfo=tz)
    )


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.one_of(st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1), st.integers(-70, 70))


_TEXTS = st.one_of(st.text(max_size=8), st.sampled_from(["", "é" * 70, '"\\\n\x00\x1f', "x" * 9000]))
_LEAVES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): _integers(8),
    pa.int16(): _integers(16),
    pa.int32(): _integers(32),
    pa.int64(): _integers(64),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): _TEXTS,
    pa.large_string(): _TEXTS,
    pa.binary(): st.binary(max_size=8),
    pa.date32(): st.dates(),
    pa.timestamp("us", tz="UTC"): _moments(dt.timezone.utc),
    pa.timestamp("us"): _moments(None),
    pa.time64("ns"): st.times(),
    pa.duration("us"): st.one_of(_integers(64), st.integers(-(10**12), 10**12).map(lambda tenths: tenths * 100_000)),
    **{pa.decimal128(*shape): _decimals(*shape) for shape in ((5, 2), (18, 0), (20, 3), (38, 18), (38, 38))},
}
_SHAPES = st.sampled_from(["leaf", "struct", "list", "map", "leaf", "leaf"])
_LEAF_KINDS = st.sampled_from(list(_LEAVES))
_LIST_KINDS = st.sampled_from([pa.list_, pa.large_list])
# Hypothesis draws the first value most often, as the simplest one. An example without rows would show nothing.
_ROW_COUNTS = st.sampled_from([1, 0, 2, 3, 4, 5, 6])
_ITEM_COUNTS, _FILLER_COUNTS = st.integers(0, 4), st.integers(0, 3)
_MAP_NAMES = st.lists(st.text(max_size=3), max_size=3, unique=True)
_ARE_NULL, _YES_OR_NO = st.sampled_from([False, False, True]), st.booleans()


def _struct(draw: Any, depth: int) -> pa.DataType:
    return pa.struct([_field(draw, name, depth) for name in draw(_NAMES)])


def _field(draw: Any, name: str, depth: int) -> pa.Field:
    return pa.field(name, _kind(draw, depth + 1), draw(_YES_OR_NO))


def _kind(draw: Any, depth: int) -> pa.DataType:
    shape = draw(_SHAPES) if depth < _DEPTH_MAX else "leaf"
    if shape == "struct":
        return _struct(draw, depth)
    if shape == "list":
        return draw(_LIST_KINDS)(_field(draw, "element", depth))
    if shape == "map":
        return pa.map_(pa.string(), _field(draw, "value", depth))
    return draw(_LEAF_KINDS)


def _value(draw: Any, kind: pa.DataType, nullable: bool) -> Any:
    if nullable and draw(_ARE_NULL):
        return None
    if pa.types.is_struct(kind):
        return {field.name: _value(draw, field.type, field.nullable) for field in kind}
    if pa.types.is_map(kind):
        return [(name, _value(draw, kind.item_type, kind.item_field.nullable)) for name in draw(_MAP_NAMES)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_value(draw, kind.value_type, kind.value_field.nullable) for _ in range(draw(_ITEM_COUNTS))]
    return draw(_LEAVES[kind])


@st.composite
def structs(draw: Any) -> pa.Array:
    """A struct array of a few rows, some of them null; it may be a slice of a longer array."""
    kind = _struct(draw, 0)
    rows = [_value(draw, kind, True) for _ in range(draw(_ROW_COUNTS))]
    array = pa.array(rows, kind)
    if draw(_YES_OR_NO):
        before, behind = draw(_FILLER_COUNTS), draw(_FILLER_COUNTS)
        filler = pa.array([_value(draw, kind, False) for _ in range(before + behind)], kind)
        array = pa.concat_arrays([filler.slice(0, before), array, filler.slice(before)]).slice(before, len(rows))
    return array


def raw(scalar: pa.Scalar) -> Any:
    """A Python value in which times are the numbers that Arrow stores."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(kind):
        return {kind.field(index).name: raw(scalar[index]) for index in range(kind.num_fields)}
    if pa.types.is_map(kind):
        return [(raw(entry["key"]), raw(entry["value"])) for entry in scalar.values]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [raw(each) for each in scalar.values]
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
        return scalar.value
    return scalar.as_py()
