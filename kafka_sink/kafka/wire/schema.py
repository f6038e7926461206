"""Rows that describe messages, compiled into one decoder and one encoder per version.

A message is a dict with Kafka's field names in snake case; arrays are lists, null is None, uuids are 16 bytes.
`compile_fields(rows, version, flexible)` selects the rows of that version and returns closures over them: all branching
by version happens once. Adjacent fields of fixed width share one `struct` call.

Encoding accepts a superset of the version: a missing key means the default; a key that the version lacks is dropped if
its row is ignorable or the value is the default, otherwise it is a LocalProtocolError, like a key that no version has.
Decoding fills in the default for every field that the version lacks, so a reader need not know the version. Tagged
fields (KIP-482) that have a row are decoded by name; others are skipped.

There is no recursion on data: the depth is that of the rows. An array's count is checked against the remaining bytes
divided by the minimum size of an element, which keeps memory proportional to the frame: at worst some 100 bytes of
Python objects per byte of a hostile frame (structs with only empty fields), 20 for cluster metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from struct import Struct, error, unpack_from
from typing import Any

from kafka_sink.errors import LocalProtocolError, RemoteProtocolError
from kafka_sink.frozen import frozen
from kafka_sink.kafka.wire.primitives import (
    DEFAULTS,
    FIXED_FORMATS,
    Codec,
    Reader,
    Writer,
    array_length_codec,
    length_error,
    primitive_codec,
    read_uvarint,
    write_uvarint,
)

VERSION_LAST = 32767
INDENT = "    "
_NAMED = {"true": True, "null": None}
_TYPE_DEFAULT: Any = object()


@frozen
class Field:
    """One field of a message. `type` is a primitive, "struct", or either with "[]" before it.

    `nullable` is the version since which null is allowed; a field with a `tag` is a tagged field in all its versions.
    """

    name: str
    type: str
    fields: tuple[Field, ...] = ()
    since: int = 0
    until: int = VERSION_LAST
    nullable: int | None = None
    tag: int | None = None
    default: Any = _TYPE_DEFAULT
    ignorable: bool = False

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    def is_in(self, version: int) -> bool:
        return self.since <= version <= self.until

    def new_default(self) -> Any:
        if self.default is not _TYPE_DEFAULT:
            return self.default
        if self.is_array:
            return []
        if self.type == "struct":
            return {field.name: field.new_default() for field in self.fields}
        return DEFAULTS[self.type]

    def is_default(self, value: Any) -> bool:
        if self.type == "struct" and isinstance(value, Mapping):
            return all(field.is_default(value.get(field.name, field.new_default())) for field in self.fields)
        if self.is_array and self.default is _TYPE_DEFAULT:
            return value in ([], ())
        return bool(value == self.new_default())


def split_blocks(lines: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Each line that is not indented, with the lines indented below it, which are moved to the left."""
    blocks: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith(INDENT):
            blocks[-1][1].append(line.removeprefix(INDENT))
        elif line:
            blocks.append((line, []))
    return blocks


def parse_fields(lines: Iterable[str]) -> tuple[Field, ...]:
    """One field per line: name and type, then what else there is to say. The fields of a struct are indented below it.

    `2+` and `0-7` are the versions that have the field; `nullable 5+` means that null is allowed from version 5 on, and
    `nullable` in all of them.
    """
    return tuple(_parse_field(line, parse_fields(below)) for line, below in split_blocks(lines))


def _parse_field(line: str, fields: tuple[Field, ...]) -> Field:
    head, *words = line.split(", ")
    name, kind = head.split(": ")
    details: dict[str, Any] = {}
    for word in words:
        what, _, value = word.partition(" ")
        if what == "ignorable":
            details["ignorable"] = True
        elif what == "nullable":
            details["nullable"] = int(value.removesuffix("+") or 0)
        elif what == "tag":
            details["tag"] = int(value)
        elif what == "default":
            details["default"] = _NAMED[value] if value in _NAMED else int(value)
        else:
            since, _, until = what.removesuffix("+").partition("-")
            details["since"], details["until"] = int(since), int(until or VERSION_LAST)
    return Field(name, kind, fields, **details)


@frozen
class _Run:
    """Adjacent numbers, which share one call of `struct`."""

    names: tuple[str, ...]
    defaults: tuple[Any, ...]
    packer: Struct


@frozen
class _Single:
    name: str
    default: Any
    codec: Codec


def compile_fields(fields: Sequence[Field], version: int, flexible: bool) -> Codec:
    present = [field for field in fields if field.is_in(version)]
    steps = _steps([field for field in present if field.tag is None], version, flexible)
    tagged = {field.tag: field for field in present if field.tag is not None}
    read_tags, write_tags = _tag_section(tagged, version) if flexible else (None, None)
    size_min = sum(step.packer.size if isinstance(step, _Run) else step.codec.size_min for step in steps)
    return Codec(
        _struct_reader(fields, steps, read_tags, version),
        _struct_writer(fields, steps, write_tags, version),
        size_min + (1 if flexible else 0),
    )


def _steps(fields: list[Field], version: int, flexible: bool) -> list[_Run | _Single]:
    steps: list[_Run | _Single] = []
    for are_numbers, group in groupby(fields, lambda field: field.type in FIXED_FORMATS):
        if are_numbers:
            run = list(group)
            packer = Struct(">" + "".join(FIXED_FORMATS[field.type] for field in run))
            steps.append(_Run(tuple(f.name for f in run), tuple(f.new_default() for f in run), packer))
        else:
            steps += (_Single(f.name, f.new_default(), _field_codec(f, version, flexible)) for f in group)
    return steps


def _field_codec(field: Field, version: int, flexible: bool) -> Codec:
    nullable = field.nullable is not None and version >= field.nullable
    if field.is_array:
        element = field.type[2:]
        if element == "struct":
            codec = compile_fields(field.fields, version, flexible)
        else:
            codec = primitive_codec(element, flexible, False)
        if codec.size_min == 0:
            raise LocalProtocolError(f"elements of {field.name} may be empty: a count of them would not be bounded")
        return _array_codec(element, codec, flexible, nullable, _flat_block(field.fields, version, flexible))
    if field.type == "struct":
        return compile_fields(field.fields, version, flexible)
    return primitive_codec(field.type, flexible, nullable)


def _flat_block(fields: Sequence[Field], version: int, flexible: bool) -> _Run | None:
    """For arrays of structs that consist of numbers: all elements are decoded at once, if none has tagged fields. A
    partition may have thousands of producers (DescribeProducers)."""
    if not fields or any(one.type not in FIXED_FORMATS or one.tag is not None for one in fields):
        return None
    if not all(one.is_in(version) for one in fields):
        return None
    formats = "".join(FIXED_FORMATS[one.type] for one in fields)
    # The last byte of an element is the number of its tagged fields.
    packer = Struct(f">{formats}{'x' if flexible else ''}")
    return _Run(tuple(one.name for one in fields), (), packer)


def _array_codec(element: str, codec: Codec, flexible: bool, nullable: bool, flat: _Run | None = None) -> Codec:
    read_length, write_length, length_bytes = array_length_codec(flexible)
    read_element, write_element, size_min = codec
    # bool is left out: lists of it are rare; metadata has lists of integers.
    letter = FIXED_FORMATS.get(element)

    def read(data: bytes, position: int) -> tuple[list[Any] | None, int]:
        count, position = read_length(data, position)
        if count < 0 or count * size_min > len(data) - position:
            if count == -1 and nullable:
                return None, position
            raise length_error(count, data, position)
        if letter is not None:
            return list(unpack_from(f">{count}{letter}", data, position)), position + count * size_min
        if flat is not None:
            block = data[position : position + count * size_min]
            if not flexible or block[size_min - 1 :: size_min].count(0) == count:
                rows = [dict(zip(flat.names, row, strict=True)) for row in flat.packer.iter_unpack(block)]
                return rows, position + len(block)
        values = []
        for _ in range(count):
            value, position = read_element(data, position)
            values.append(value)
        return values, position

    def write(out: bytearray, values: Sequence[Any] | None) -> None:
        if values is None and nullable:
            write_length(out, -1)
            return
        if not isinstance(values, (list, tuple)):
            raise LocalProtocolError(f"a list is needed, not {type(values).__name__}")
        write_length(out, len(values))
        for value in values:
            write_element(out, value)

    return Codec(read, write, length_bytes)


TagReader = Callable[[bytes, int, dict[str, Any]], int]
TagWriter = Callable[[bytearray, Mapping[str, Any]], None]


def _tag_section(tagged: Mapping[int, Field], version: int) -> tuple[TagReader, TagWriter]:
    codecs = {tag: (field, _field_codec(field, version, True)) for tag, field in sorted(tagged.items())}

    def read(data: bytes, position: int, values: dict[str, Any]) -> int:
        count, position = read_uvarint(data, position)
        if count * 2 > len(data) - position:
            raise RemoteProtocolError(f"{count} tagged fields at byte {position} in {len(data) - position} bytes")
        last = -1
        for _ in range(count):
            tag, position = read_uvarint(data, position)
            if tag <= last:
                raise RemoteProtocolError(f"tag {tag} after tag {last} at byte {position}: order must be ascending")
            last = tag
            size, position = read_uvarint(data, position)
            end = position + size
            if end > len(data):
                raise length_error(size, data, position)
            if tag in codecs:
                field, codec = codecs[tag]
                # A slice, so that an invalid field cannot read past its announced size.
                values[field.name], used = codec.read(data[position:end], 0)
                if used != size:
                    raise RemoteProtocolError(f"tagged field {field.name} takes {used} of its {size} bytes")
            position = end
        return position

    def write(out: bytearray, values: Mapping[str, Any]) -> None:
        section: list[tuple[int, bytearray]] = []
        for tag, (field, codec) in codecs.items():
            if field.name in values and not field.is_default(values[field.name]):
                section.append((tag, bytearray()))
                codec.write(section[-1][1], values[field.name])
        write_uvarint(out, len(section))
        for tag, encoded in section:
            write_uvarint(out, tag)
            write_uvarint(out, len(encoded))
            out += encoded

    return read, write


def _struct_reader(
    fields: Sequence[Field], steps: list[_Run | _Single], read_tags: TagReader | None, version: int
) -> Reader:
    unread = [field for field in fields if field.tag is not None or not field.is_in(version)]
    constants = {f.name: f.new_default() for f in unread if not f.is_array and f.type != "struct"}
    containers = [f for f in unread if f.name not in constants]
    # Flat tuples, because decoding spends its time in this loop.
    plan = [
        (step.names, step.packer.size, step.packer.unpack_from, None)
        if isinstance(step, _Run)
        else (step.name, 0, None, step.codec.read)
        for step in steps
    ]

    def read(data: bytes, position: int) -> tuple[dict[str, Any], int]:
        values = constants.copy()
        for field in containers:
            values[field.name] = field.new_default()
        try:
            for names, size, unpack, read_value in plan:
                if unpack is not None:
                    values.update(zip(names, unpack(data, position), strict=True))
                    position += size
                elif read_value is not None:
                    values[names], position = read_value(data, position)  # type: ignore[index]
        except error:
            raise RemoteProtocolError(f"ends inside a number after byte {position}") from None
        if read_tags is not None:
            if data[position : position + 1] == b"\0":
                position += 1
            else:
                position = read_tags(data, position, values)
        return values, position

    return read


def _struct_writer(
    fields: Sequence[Field], steps: list[_Run | _Single], write_tags: TagWriter | None, version: int
) -> Writer:
    by_name = {field.name: field for field in fields}
    allowed = frozenset(field.name for field in fields if field.is_in(version) or field.ignorable)

    def write(out: bytearray, values: Mapping[str, Any]) -> None:
        if not isinstance(values, (dict, Mapping)):
            raise LocalProtocolError(f"a mapping is needed, not {type(values).__name__}")
        if not allowed.issuperset(values):
            _check_disallowed(values, by_name, allowed)
        get = values.get
        for step in steps:
            if isinstance(step, _Run):
                try:
                    out += step.packer.pack(*map(get, step.names, step.defaults))
                except error as cause:
                    given = {name: get(name, default) for name, default in zip(step.names, step.defaults, strict=True)}
                    raise LocalProtocolError(f"{cause} in {given}") from None
            else:
                try:
                    step.codec.write(out, get(step.name, step.default))
                except LocalProtocolError as cause:
                    raise LocalProtocolError(f"{step.name}: {cause}") from None
        if write_tags is not None:
            write_tags(out, values)

    return write


def _check_disallowed(values: Mapping[str, Any], by_name: Mapping[str, Field], allowed: frozenset[str]) -> None:
    for name in values:
        if name not in by_name:
            raise LocalProtocolError(f"no field {name!r} in any version; fields: {', '.join(by_name)}")
        if name not in allowed and not by_name[name].is_default(values[name]):
            raise LocalProtocolError(f"field {name!r} is not in this version and would be lost")
