"""Matches a column with a schema, and encodes it into the values of records. `plan` runs on the driver before any task,
and again in each task."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from kafka_sink.errors import DataError
from kafka_sink.errors.table.writes import ROW_TOO_LARGE
from kafka_sink.formats.records.bytes_column import TooManyBytes, plain_type
from kafka_sink.formats.records.pieces import constant_piece, join_pieces, mask_pieces
from kafka_sink.formats.schemas.avro import AvroSchema
from kafka_sink.formats.schemas.avro_match import match_avro
from kafka_sink.formats.schemas.json_match import match_json
from kafka_sink.formats.schemas.json_schema import JsonSchema
from kafka_sink.formats.schemas.misfit import Misfit, MisfitScope, make_errors
from kafka_sink.formats.schemas.naming import Problems
from kafka_sink.formats.schemas.node import ValueNode, encode_present
from kafka_sink.formats.schemas.protobuf import ProtobufSchema
from kafka_sink.formats.schemas.protobuf_match import match_protobuf
from kafka_sink.frozen import frozen


@frozen
class JsonShape:
    """JSON without a schema, in which some fields of the value itself are null where they have none, instead of left
    out."""

    shown_nulls: tuple[str, ...]


Schema = AvroSchema | JsonSchema | ProtobufSchema


@frozen
class ValueColumn:
    """`array` is binary; a null is a row whose column was null. `misfits` are rows that do not fit the schema: their
    elements of `array` are undefined."""

    array: pa.Array
    misfits: Mapping[int, DataError]


@frozen
class Encoder:
    """`node` is that of the column; its nulls stay nulls."""

    node: ValueNode

    def encode(self, column: pa.Array, prefix: bytes, name: str, first_row: int = 0) -> ValueColumn:
        """Every value begins with `prefix`. `name` is the column's, for error texts. Rows that do not fit a block are
        halved."""
        try:
            return self._encode_block(column, prefix, name, first_row)
        except TooManyBytes:
            half = len(column) // 2
        if not half:
            text = f"{name} of row {first_row} takes 2 GiB or more"
            error = DataError(text, ROW_TOO_LARGE, row=first_row, column=name)
            return ValueColumn(pa.array([b""], pa.binary()), {first_row: error})
        begin = self.encode(column.slice(0, half), prefix, name, first_row)
        end = self.encode(column.slice(half), prefix, name, first_row + half)
        arrays = [part.array.cast(pa.large_binary()) for part in (begin, end)]
        return ValueColumn(pa.concat_arrays(arrays), {**begin.misfits, **end.misfits})

    def _encode_block(self, column: pa.Array, prefix: bytes, name: str, first_row: int) -> ValueColumn:
        misfits: list[Misfit] = []
        values, valid = encode_present(self.node, column, MisfitScope(misfits))
        start = [constant_piece(prefix, len(column))] if prefix else []
        flat = join_pieces([*mask_pieces(start, valid), *values], len(column))
        bitmap = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
        buffers = [bitmap, pa.py_buffer(np.ascontiguousarray(flat.starts)), pa.py_buffer(flat.data)]
        array = pa.Array.from_buffers(pa.binary(), len(column), buffers)
        return ValueColumn(array, make_errors(misfits, name, first_row))


def plan(kind: pa.DataType, schema: Schema | JsonShape | None) -> Encoder:
    """Raises `ConfigError` with every column that does not fit, its type, and what would fit. No schema means JSON."""
    problems = Problems()
    kind = plain_type(kind)
    if isinstance(schema, AvroSchema):
        name, node = "Avro", match_avro(kind, schema.type, problems)
    elif isinstance(schema, ProtobufSchema):
        name, node = "Protobuf", match_protobuf(kind, schema, problems)
    elif isinstance(schema, JsonShape):
        name, node = "JSON", match_json(kind, None, problems, schema.shown_nulls)
    else:
        name, node = "JSON", match_json(kind, None if schema is None else schema.found, problems)
    problems.raise_any(name)
    return Encoder(node)
