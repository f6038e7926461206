"""Adds, finds and drops headers, by column. Added headers come after a row's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.formats.records.arrays import read_lists, valid_mask
from kafka_sink.formats.records.bytes_column import to_plain
from kafka_sink.formats.records.varint import Array

_ENTRY = pa.struct([("key", pa.string()), ("value", pa.binary())])


class AddedHeader(NamedTuple):
    """`content`: the same for all rows, or a binary column. `is_there`: which rows get it; None: all."""

    name: str
    content: bytes | pa.Array
    is_there: Array | None = None


def add_headers(rows: pa.RecordBatch, added: Sequence[AddedHeader]) -> pa.RecordBatch:
    if not added:
        return rows
    count = rows.num_rows
    names = rows.schema.names
    if "headers" in names:
        offsets, entries = _entries(rows.column("headers"))
    else:
        offsets, entries = np.zeros(count + 1, np.int64), pa.array([], _ENTRY)
    masks = [np.ones(count, np.bool_) if each.is_there is None else each.is_there for each in added]
    counts = np.diff(offsets)
    joined = np.zeros(count + 1, np.int64)
    np.cumsum(counts + np.sum(masks, axis=0), out=joined[1:])
    places = np.empty(int(joined[-1]), np.int64)
    places[np.arange(len(entries)) + np.repeat(joined[:-1] - offsets[:-1], counts)] = np.arange(len(entries))
    parts, taken = [entries], len(entries)
    position = joined[:-1] + counts
    for header, mask in zip(added, masks, strict=True):
        part = _header_entries(header)
        sources = taken if isinstance(header.content, bytes) else taken + np.flatnonzero(mask)
        places[position[mask]] = sources
        position = position + mask
        parts.append(part)
        taken += len(part)
    array = pa.ListArray.from_arrays(pa.array(joined, pa.int32()), pa.concat_arrays(parts).take(pa.array(places)))
    if "headers" in names:
        return set_column(rows, "headers", array)
    return pa.RecordBatch.from_arrays([*rows.columns, array], [*names, "headers"])


def has_header(rows: pa.RecordBatch, name: str) -> Array:
    """A mask of the rows with that header."""
    if "headers" not in rows.schema.names:
        return np.zeros(rows.num_rows, np.bool_)
    offsets, entries = _entries(rows.column("headers"))
    return np.diff(_count_before(offsets, _match_name(entries, name))) > 0


def drop_header(rows: pa.RecordBatch, name: str, which: Array) -> pa.RecordBatch:
    """Removes every header of that name in the rows of `which`."""
    if "headers" not in rows.schema.names:
        return rows
    offsets, entries = _entries(rows.column("headers"))
    is_out = _match_name(entries, name) & np.repeat(which, np.diff(offsets))
    if not is_out.any():
        return rows
    kept = _count_before(offsets, ~is_out)
    array = pa.ListArray.from_arrays(pa.array(kept, pa.int32()), entries.take(pa.array(np.flatnonzero(~is_out))))
    return set_column(rows, "headers", array)


def set_header(rows: pa.RecordBatch, name: str, texts: pa.Array) -> pa.RecordBatch:
    """In place of those of that name."""
    rows = drop_header(rows, name, np.ones(rows.num_rows, np.bool_))
    return add_headers(rows, [AddedHeader(name, texts.cast(pa.binary()), valid_mask(texts))])


def set_column(rows: pa.RecordBatch, name: str, array: pa.Array) -> pa.RecordBatch:
    names = rows.schema.names
    arrays = [array if each == name else column for each, column in zip(names, rows.columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names)


def _match_name(entries: pa.StructArray, name: str) -> Array:
    found: Array = pc.fill_null(pc.equal(entries.field("key"), name), False).to_numpy(zero_copy_only=False)
    return found


def _count_before(offsets: Array, mask: Array) -> Array:
    """How many of the entries before each offset are in the mask."""
    sums = np.zeros(len(mask) + 1, np.int64)
    np.cumsum(mask, out=sums[1:])
    return sums[offsets]


def _header_entries(header: AddedHeader) -> pa.StructArray:
    if isinstance(header.content, bytes):
        return pa.array([{"key": header.name, "value": header.content}], _ENTRY)
    name = pa.repeat(pa.scalar(header.name), len(header.content))
    return pa.StructArray.from_arrays([name, header.content], fields=list(_ENTRY))


def _entries(column: pa.Array) -> tuple[Array, pa.Array]:
    """All headers of all rows, as structs of key and value, and where those of each row begin. A null list has none,
    whatever is under it."""
    column = to_plain(column)
    offsets, children = read_lists(column)
    keys, values = children if len(children) == 2 else to_plain(children[0]).flatten()
    entries = pa.StructArray.from_arrays([keys.cast(pa.string()), values.cast(pa.binary())], fields=list(_ENTRY))
    valid = valid_mask(column)
    if valid is None:
        return offsets, entries
    counts = np.diff(offsets)
    kept = np.zeros(len(offsets), np.int64)
    np.cumsum(np.where(valid, counts, 0), out=kept[1:])
    return kept, entries.take(pa.array(np.flatnonzero(np.repeat(valid, counts))))
