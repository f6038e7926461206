"""Which Avro type an Arrow type can be written as: docs/schemas.md has the table.

All mismatches are collected and reported in one error before there are rows. Checks that depend on the rows (a range, a
null, a symbol, a length) are left to the nodes.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from kafka_sink.formats.records.bytes_column import plain_type
from kafka_sink.formats.schemas import avro_nodes as nodes
from kafka_sink.formats.schemas.avro import NO_DEFAULT, AvroField, AvroType
from kafka_sink.formats.schemas.avro_default import encode_default
from kafka_sink.formats.schemas.decimals import PRECISION_MAX
from kafka_sink.formats.schemas.derive import derive_scalar
from kafka_sink.formats.schemas.naming import Problems, find_columns, is_bytes, is_list, is_text, join_path
from kafka_sink.formats.schemas.node import Numbers, ValueNode, days, encode_null, integers, is_float, timestamps

_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
# What can be written as a type: the second half of an error text.
_FITS = {
    "null": "void", "boolean": "boolean", "string": "string", "enum": "string", "bytes": "binary, string",
    "int": "tinyint, smallint, int, bigint if every value is small enough, date",
    "long": "tinyint, smallint, int, bigint, timestamp, interval day to second",
    "float": "float, tinyint, smallint", "double": "double, float, tinyint, smallint, int",
    "fixed": "binary of that many bytes", "array": "array", "map": "map with string keys", "record": "struct",
    "decimal": "decimal with no more digits behind the point", "uuid": "string, binary of 16 bytes",
    "date": "date, int", "time-millis": "time", "time-micros": "time",
    **{f"timestamp-{unit}": "timestamp, bigint" for unit in _UNITS},
    **{f"local-timestamp-{unit}": "timestamp_ntz, bigint" for unit in _UNITS},
}  # fmt: skip
_DECIMAL_BYTES_MAX = 1024


def match_avro(kind: pa.DataType, schema: AvroType, problems: Problems) -> ValueNode:
    """In place of a mismatch there is a node that encodes nothing."""
    return _Matcher().value(kind, schema, "", problems)


class _Matcher:
    def __init__(self) -> None:
        # None: it does not fit. Each branch is tried once for a column: those of nested unions multiply.
        self._tried: dict[tuple[str, pa.DataType, int], ValueNode | None] = {}

    def value(self, kind: pa.DataType, schema: AvroType, path: str, problems: Problems) -> ValueNode:
        kind = plain_type(kind)
        if schema.kind != "union":
            node = self._present(kind, schema, path, problems)
            return node if node is encode_null else partial(nodes.encode_slot, node, None, None)
        null_branch = schema.null_branch
        if pa.types.is_null(kind) and null_branch is not None:
            return partial(nodes.encode_slot, encode_null, null_branch, null_branch)
        branches = [(number, branch) for number, branch in enumerate(schema.branches) if branch.kind != "null"]
        if len(branches) == 1:
            ((number, branch),) = branches
            return partial(nodes.encode_slot, self._present(kind, branch, path, problems), number, null_branch)
        # The branch that a derived schema would have is preferred; the order of others stays.
        for number, branch in sorted(branches, key=lambda each: not _is_derived(kind, each[1])):
            fitting = self._try(kind, branch, path)
            if fitting is not None:
                return partial(nodes.encode_slot, fitting, number, null_branch)
        problems.add_mismatch(path, kind, str(schema), _fitting_types(schema))
        return encode_null

    def _try(self, kind: pa.DataType, branch: AvroType, path: str) -> ValueNode | None:
        key = path, kind, id(branch)
        if key not in self._tried:
            problems = Problems()
            node = self._present(kind, branch, path, problems)
            self._tried[key] = None if problems.texts else node
        return self._tried[key]

    def _present(self, kind: pa.DataType, schema: AvroType, path: str, problems: Problems) -> ValueNode:
        node: ValueNode | None = None
        if schema.kind == "record" and pa.types.is_struct(kind):
            node = self._record(kind, schema, path, problems)
        elif schema.items is not None:
            node = self._items(kind, schema.kind, schema.items, path, problems)
        elif schema.kind not in ("record", "union"):
            node = _match_scalar(kind, schema)
        if node is None:
            problems.add_mismatch(path, kind, str(schema), _fitting_types(schema))
            return encode_null
        return node

    def _items(
        self, kind: pa.DataType, schema_kind: str, items: AvroType, path: str, problems: Problems
    ) -> ValueNode | None:
        if schema_kind == "array" and is_list(kind):
            item = self.value(kind.value_type, items, f"{path}[]", problems)
            return partial(nodes.encode_items, (("[]", item),))
        if schema_kind == "map" and pa.types.is_map(kind) and is_text(plain_type(kind.key_type)):
            key = partial(nodes.encode_slot, nodes.encode_text, None, None)
            value = self.value(kind.item_type, items, f"{path}{{}}", problems)
            return partial(nodes.encode_items, (("{key}", key), ("{}", value)))
        return None

    def _record(self, kind: pa.DataType, schema: AvroType, path: str, problems: Problems) -> ValueNode:
        members: list[nodes.AvroMember] = []
        columns = find_columns(kind, [field.name for field in schema.fields], path, problems)
        for field, index in zip(schema.fields, columns, strict=True):
            inner = join_path(path, field.name)
            if index is None:
                members.append(nodes.AvroMember(field.name, content=_default_content(field, inner, problems)))
            else:
                node = self.value(kind.field(index).type, field.type, inner, problems)
                members.append(nodes.AvroMember(field.name, index, node))
        return partial(nodes.encode_record, tuple(members))


def _default_content(field: AvroField, path: str, problems: Problems) -> bytes:
    if field.default is not NO_DEFAULT:
        return encode_default(field.type, field.default, path)
    if field.type.kind == "null":
        return b""
    if field.type.null_branch is not None:
        return encode_default(field.type, None, path)
    problems.add(
        f"there is no column for field {path} of type {field.type}, which has no default and cannot be null; what fits "
        f"there: {_fitting_types(field.type)}"
    )
    return b""


def _match_scalar(kind: pa.DataType, schema: AvroType) -> ValueNode | None:
    if schema.logical == "decimal":
        return _match_decimal(kind, schema)
    if schema.kind == "null":
        return encode_null if pa.types.is_null(kind) else None
    if schema.kind == "boolean":
        return nodes.encode_boolean if pa.types.is_boolean(kind) else None
    if schema.kind in ("int", "long"):
        numbers = _match_integer(kind, schema)
        return None if numbers is None else partial(nodes.encode_integer, numbers)
    if schema.kind in ("float", "double"):
        return _match_float(kind, 4 if schema.kind == "float" else 8)
    if schema.kind == "enum":
        symbols = {name: number for number, name in enumerate(schema.symbols)}
        return partial(nodes.encode_enum, symbols) if is_text(kind) else None
    if schema.kind == "string":
        text = nodes.encode_uuid_text if schema.logical == "uuid" else nodes.encode_text
        return text if is_text(kind) else None
    if schema.kind == "bytes":
        return nodes.encode_binary if is_text(kind) or is_bytes(kind) else None
    if schema.logical == "uuid" and is_text(kind):
        return nodes.encode_uuid
    return partial(nodes.encode_fixed, schema.size) if is_bytes(kind) else None


def _match_integer(kind: pa.DataType, schema: AvroType) -> Numbers | None:
    types = pa.types
    unit = _UNITS.get(schema.logical.rpartition("-")[2], "")
    if schema.logical.startswith("time-"):
        return timestamps(kind, unit) if types.is_time(kind) else None
    if unit:
        if types.is_timestamp(kind) and (kind.tz is None) == schema.logical.startswith("local-"):
            return timestamps(kind, unit)
        return integers(kind) if str(kind) == "int64" else None
    if schema.kind == "int":
        return days(kind) if types.is_date(kind) else integers(kind, 32)
    if types.is_timestamp(kind):
        # Without a logical type Spark's to_avro uses milliseconds.
        return timestamps(kind, "ms")
    return timestamps(kind, "us") if types.is_duration(kind) else integers(kind)


def _match_float(kind: pa.DataType, size: int) -> ValueNode | None:
    """Only without loss of precision."""
    fits = is_float(kind, size) or (pa.types.is_integer(kind) and kind.bit_width <= 4 * size)
    return partial(nodes.encode_float, size) if fits else None


def _match_decimal(kind: pa.DataType, schema: AvroType) -> ValueNode | None:
    """A schema may declare more digits and bytes; numbers here have at most 38 digits."""
    if not pa.types.is_decimal(kind) or kind.precision > PRECISION_MAX or not 0 <= kind.scale <= schema.scale:
        return None
    if schema.scale > PRECISION_MAX or schema.size > _DECIMAL_BYTES_MAX:
        return None
    precision = min(schema.precision, PRECISION_MAX)
    if schema.kind == "fixed" and 10**precision > 2 ** (8 * schema.size - 1):
        return None
    return partial(nodes.encode_decimal, precision, schema.scale, schema.size)


def _is_derived(kind: pa.DataType, schema: AvroType) -> bool:
    """Whether a derived schema would have this type, up to the unit of a time."""
    derived = derive_scalar(kind)
    is_logical = isinstance(derived, dict)
    return schema.kind == (derived["type"] if is_logical else derived) and bool(schema.logical) == is_logical


def _fitting_types(schema: AvroType) -> str:
    if schema.kind != "union":
        return _FITS[schema.logical or schema.kind]
    fitting = (_FITS[branch.logical or branch.kind] for branch in schema.branches if branch.kind != "null")
    return "; ".join(dict.fromkeys(fitting)) or _FITS["null"]
