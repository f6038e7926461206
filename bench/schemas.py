"""Encoding of rows with a schema on one core: ours by whole columns; fastavro, protobuf and json row by row.

    python -m bench.schemas [--rows N] [--repeat N] [--encoders]     writes docs/benchmarks/schemas.md

The page also has the same rows in Spark (schemas_spark.py), unless --encoders is given.

The rows have ten columns of mixed types, about 100 bytes in Avro. Our encoder gets an Arrow batch, as from Spark; the
others get Python dictionaries, which are created before the measurement. The benchmark measures CPU time, because other
load on the machine affects it less than wall-clock time.
"""

from __future__ import annotations

import argparse
import decimal
import io
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from bench import schemas_spark
from bench.report import conditions, machine, with_conclusion
from kafka_sink.formats.schemas.derive import derive_avro_schema
from kafka_sink.formats.schemas.match import plan
from kafka_sink.formats.schemas.protobuf import ProtobufSchema

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks" / "schemas.md"
PREFIX = b"\x00\x00\x00\x00\x07"
BATCH_ROWS = 10_000
_PROTO_TYPES = {"int64": 3, "string": 9, "double": 1, "int32": 5, "bool": 8}
_PROTO_FIELDS = (
    ("id", "int64"), ("user", "string"), ("seen", "int64"), ("amount", "double"), ("count", "int32"), ("flag", "bool"),
    ("price", "int64"), ("city", "string"), ("day", "int32"), ("note", "string"),
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    name: str
    rows_per_second: float
    spread: float
    bytes_per_row: float


def batch(row_count: int) -> pa.StructArray:
    draw = np.random.default_rng(1)
    numbers = draw.integers(0, 10**7, row_count)
    columns = {
        "id": pa.array(draw.integers(0, 2**40, row_count)),
        "user": pa.array([f"user-{number}" for number in draw.integers(0, 10**6, row_count)]),
        "seen": pa.array(draw.integers(1.6e15, 1.7e15, row_count)).cast(pa.timestamp("us", "UTC")),
        "amount": pa.array(draw.random(row_count)),
        "count": pa.array(draw.integers(0, 100, row_count).astype(np.int32), mask=draw.random(row_count) < 0.1),
        "flag": pa.array(draw.random(row_count) < 0.5),
        "price": pa.array([decimal.Decimal(int(number)) / 100 for number in numbers], pa.decimal128(12, 2)),
        "city": pa.array([f"city number {number % 500}" if number % 10 else None for number in numbers]),
        "day": pa.array(draw.integers(18_000, 20_000, row_count).astype(np.int32)).cast(pa.date32()),
        "note": pa.array(["x" * int(size) for size in draw.integers(5, 40, row_count)]),
    }
    fields = [pa.field(name, array.type, array.null_count > 0) for name, array in columns.items()]
    return pa.StructArray.from_arrays(list(columns.values()), fields=fields)


def for_protobuf(rows: pa.StructArray) -> pa.StructArray:
    """Times, dates and decimals as numbers, as in most .proto files."""
    columns = {field.name: rows.field(field.name) for field in rows.type}
    columns["seen"] = columns["seen"].view(pa.int64())
    columns["day"] = columns["day"].view(pa.int32())
    columns["price"] = pa.array([int(price * 100) for price in columns["price"].to_pylist()], pa.int64())
    return pa.StructArray.from_arrays(list(columns.values()), list(columns))


def measure(name: str, work: Callable[[], Any], row_count: int, byte_count: int, repeat: int) -> Result:
    work()
    rates = []
    for _ in range(repeat):
        begun = time.process_time()
        work()
        rates.append(row_count / (time.process_time() - begun))
    return Result(name, statistics.median(rates), (max(rates) - min(rates)) / max(rates), byte_count / row_count)


def ours(name: str, rows: pa.StructArray, schema: Any, repeat: int) -> Result:
    encoder = plan(rows.type, schema)
    size = encoder.encode(rows, PREFIX, "value").array.nbytes
    return measure(name, lambda: encoder.encode(rows, PREFIX, "value"), len(rows), size, repeat)


def by_fastavro(rows: pa.StructArray, repeat: int) -> Result:
    schema = fastavro.parse_schema(json.loads(derive_avro_schema(rows.type, "Row").text))
    values = rows.to_pylist()

    def work() -> int:
        size = 0
        for value in values:
            stream = io.BytesIO()
            stream.write(PREFIX)
            fastavro.schemaless_writer(stream, schema, value)
            size += len(stream.getvalue())
        return size

    return measure("Avro, fastavro", work, len(values), work(), repeat)


def by_protobuf(rows: pa.StructArray, descriptors: bytes, repeat: int) -> Result:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor_pb2.FileDescriptorSet.FromString(descriptors).file[0])
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("Row"))
    values = [{name: value for name, value in row.items() if value is not None} for row in rows.to_pylist()]

    def work() -> int:
        return sum(len(PREFIX + made(**value).SerializeToString()) for value in values)

    return measure("Protobuf, protobuf", work, len(values), work(), repeat)


def by_json(rows: pa.StructArray, repeat: int) -> Result:
    values = [{name: value for name, value in row.items() if value is not None} for row in rows.to_pylist()]

    def work() -> int:
        return sum(len(json.dumps(value, default=str, separators=(",", ":")).encode()) for value in values)

    return measure("JSON, json.dumps", work, len(values), work(), repeat)


def descriptor_set() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="row.proto", syntax="proto3")
    message = file.message_type.add(name="Row")
    for number, (name, kind) in enumerate(_PROTO_FIELDS, 1):
        message.field.add(name=name, number=number, type=_PROTO_TYPES[kind], label=1)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def report(results: list[Result], rows: int, about: Mapping[str, str]) -> str:
    text = f"""\
# Encoding of rows with a schema

Written by `python -m bench.schemas`: {rows} rows in one Arrow batch, ten columns (bigint, three strings, timestamp,
double, int, boolean, decimal(12,2), date; in two of them a tenth of the values is null), one core, processor time,
medians.

{conditions(about)}

Ours turns Arrow columns into the column of values that the producer takes, framed for a registry. The others turn
dictionaries, which are created before, into the bytes of each row. In Protobuf, times, dates and decimals are whole
numbers for both.

| format | million rows per second | spread | bytes per row |
| --- | --- | --- | --- |
"""
    lines = [
        f"| {each.name} | {each.rows_per_second / 1e6:.2f} | {each.spread:.0%} | {each.bytes_per_row:.0f} |"
        for each in results
    ]
    return text + "\n".join(lines) + "\n"


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--rows", type=int, default=BATCH_ROWS)
    reader.add_argument("--repeat", type=int, default=15)
    reader.add_argument("--page", type=Path, default=PAGE)
    reader.add_argument("--encoders", action="store_true", help="without Spark")
    given = reader.parse_args()
    rows = batch(given.rows)
    of_proto, descriptors = for_protobuf(rows), descriptor_set()
    results = [
        ours("Avro, ours", rows, derive_avro_schema(rows.type, "Row"), given.repeat),
        by_fastavro(rows, given.repeat),
        ours("Protobuf, ours", of_proto, ProtobufSchema.of_descriptors(descriptors), given.repeat),
        by_protobuf(of_proto, descriptors, given.repeat),
        ours("JSON, ours", rows, None, given.repeat),
        by_json(rows, given.repeat),
    ]
    about = {"runs": f"{given.repeat} each, after one for warm-up", **machine()}
    page = report(results, given.rows, about)
    if not given.encoders:
        json_rate = next(each.rows_per_second for each in results if each.name == "JSON, ours")
        page += schemas_spark.report(batch(schemas_spark.ROWS), json_rate)
    given.page.write_text(with_conclusion(page, PAGE), encoding="utf-8")
    given.page.with_suffix(".json").write_text(json.dumps({"about": about}, indent=1) + "\n")
    print(given.page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
