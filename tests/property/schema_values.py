"""Random Spark types as Arrow has them, with rows, and arrays of awkward layout that hold the same rows."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

_EPOCH = dt.datetime(1970, 1, 1)
_NAMES = st.sampled_from(["a", "b", "c", "d", "e", "f", "count", "order_id", "A"])


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


def _leaf(kind: pa.DataType, values: st.SearchStrategy[Any]) -> tuple[pa.DataType, st.SearchStrategy[Any]]:
    return kind, values


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.one_of(st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1), st.integers(-70, 70))


_TEXTS = st.one_of(st.text(max_size=8), st.sampled_from(["", "é" * 70, '"\\\n\x00\x1f', "x" * 9000]))
_LEAVES = [
    _leaf(pa.bool_(), st.booleans()),
    _leaf(pa.int8(), _integers(8)),
    _leaf(pa.int16(), _integers(16)),
    _leaf(pa.int32(), _integers(32)),
    _leaf(pa.int64(), _integers(64)),
    _leaf(pa.float32(), st.floats(width=32)),
    _leaf(pa.float64(), st.floats()),
    _leaf(pa.string(), _TEXTS),
    _leaf(pa.large_string(), _TEXTS),
    _leaf(pa.binary(), st.binary(max_size=8)),
    _leaf(pa.date32(), st.dates()),
    _leaf(pa.timestamp("us", tz="UTC"), _moments(dt.timezone.utc)),
    _leaf(pa.timestamp("us"), _moments(None)),
    *(_leaf(pa.decimal128(*shape), _decimals(*shape)) for shape in ((5, 2), (18, 0), (20, 3), (38, 18), (38, 38))),
]


@st.composite
def _struct(draw: Any, children: Any) -> Any:
    names = draw(st.lists(_NAMES, min_size=1, max_size=4, unique_by=str.lower))
    parts = [(name, *draw(children), draw(st.booleans())) for name in names]
    kind = pa.struct([pa.field(name, kind, nullable) for name, kind, _, nullable in parts])
    values = {name: _or_null(values, nullable) for name, _, values, nullable in parts}
    return kind, st.fixed_dictionaries(values)


@st.composite
def _list(draw: Any, children: Any) -> Any:
    kind, values = draw(children)
    nullable = draw(st.booleans())
    make = draw(st.sampled_from([pa.list_, pa.large_list]))
    return make(pa.field("element", kind, nullable)), st.lists(_or_null(values, nullable), max_size=4)


@st.composite
def _map(draw: Any, children: Any) -> Any:
    kind, values = draw(children)
    nullable = draw(st.booleans())
    entries = st.lists(
        st.tuples(st.text(max_size=3), _or_null(values, nullable)), max_size=3, unique_by=lambda entry: entry[0]
    )
    return pa.map_(pa.string(), pa.field("value", kind, nullable)), entries


def _or_null(values: st.SearchStrategy[Any], nullable: bool) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values) if nullable else values


def types_with_values(leaves: int = 8) -> st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]:
    inner = st.recursive(
        st.sampled_from(_LEAVES),
        lambda children: st.one_of(_struct(children), _list(children), _map(children)),
        max_leaves=leaves,
    )
    return _struct(inner)


@st.composite
def structs(draw: Any) -> pa.Array:
    """A struct array of some rows, some of them null, perhaps a slice of a longer one."""
    kind, values = draw(types_with_values())
    rows = draw(st.lists(st.one_of(st.none(), values, values), min_size=0, max_size=6))
    array = pa.array(rows, kind)
    if draw(st.booleans()):
        before, behind = draw(st.integers(0, 3)), draw(st.integers(0, 3))
        filler = pa.array([draw(values) for _ in range(before + behind)], kind)
        array = pa.concat_arrays([filler.slice(0, before), array, filler.slice(before)]).slice(before, len(rows))
    return array


def raw(scalar: pa.Scalar) -> Any:
    """A Python value in which times are the numbers that Arrow holds."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(kind):
        return {kind.field(index).name: raw(scalar[index]) for index in range(kind.num_fields)}
    if pa.types.is_map(kind):
        return [(raw(entry["key"]), raw(entry["value"])) for entry in scalar.values]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [raw(each) for each in scalar.values]
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return scalar.value
    return scalar.as_py()
