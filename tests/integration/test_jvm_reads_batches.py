"""Apache Kafka's own client reads what our codecs compress, at every level and with contents of many blocks."""

from __future__ import annotations

import hashlib
import random
import struct
from pathlib import Path

import pytest

from kafka_sink.formats.records.batch import seal
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.scalar import Record, encode_batch
from tests.conftest import NEWEST, without_kafka
from tools.java import run_source
from tools.kafka_jars import KafkaUnavailable

READER = Path(__file__).parents[1] / "golden" / "RecordReader.java"
LEVELS: dict[str, list[int | None]] = {
    "none": [None],
    "gzip": [None, 1, 9],
    "snappy": [None],
    "lz4": [None, 1, 12, 17, -5],
    "zstd": [None, -50, 1, 19],
}


def records(generator: random.Random, largest: int) -> list[Record]:
    return [
        Record(
            generator.randint(0, 2**40),
            generator.choice([None, b"", generator.randbytes(9)]),
            generator.choice(
                [None, b"", generator.randbytes(generator.randint(0, largest)), bytes(generator.randint(0, largest))]
            ),
            generator.choice([(), (("h", None), ("\u00fc", b"x"))]),
        )
        for _ in range(20)
    ]


def digest(rows: list[Record]) -> str:
    """The same digest as in RecordReader.java."""
    parts: list[bytes] = []

    def number(value: int) -> None:
        parts.append(struct.pack(">q", value))

    def content(value: bytes | None) -> None:
        number(-1 if value is None else len(value))
        parts.append(value or b"")

    for offset, row in enumerate(rows):
        number(offset)
        number(row.timestamp_ms)
        content(row.key)
        content(row.value)
        number(len(row.headers))
        for key, value in row.headers:
            content(key.encode())
            content(value)
    return hashlib.sha256(b"".join(parts)).hexdigest()


@pytest.mark.kafka
def test_jvm_reads_every_codec_and_level() -> None:
    generator = random.Random(5)
    lines = []
    expected = []
    for codec, levels in LEVELS.items():
        for level in levels:
            for largest in (50, 5_000, 100_000):
                rows = records(generator, largest)
                encoded = encode_batch(rows, make_compressor(codec, level))
                name = f"{codec}:{level}:{largest}"
                lines.append(f"{name} {(seal(encoded) + encoded.payload).hex()}\n")
                expected.append(f"{name} {len(rows)} {digest(rows)}")
    try:
        answer = run_source(NEWEST, READER, input_bytes="".join(lines).encode())
    except KafkaUnavailable as error:
        without_kafka(str(error))
    assert answer.decode().splitlines() == expected
