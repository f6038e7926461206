"""The rows of the demo: their creation, and the comparison with the rows in the topic.

Every row is identified by its file, its number in that file, and a checksum over both and its text. A row goes to the
partition (row number % partitions), so the expected content of each partition is known.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

from tools.foreign_reader import ForeignRecord

END = "_END"


@dataclass(frozen=True)
class Plan:
    """`files_per_s` files of `rows_per_file` rows each, for `seconds` seconds."""

    seconds: float
    rows_per_file: int
    partitions: int
    files_per_s: int = 8

    @property
    def file_count(self) -> int:
        return round(self.seconds * self.files_per_s)

    @property
    def row_count(self) -> int:
        return self.file_count * self.rows_per_file

    def rows_in_partition(self, partition: int) -> int:
        return self.file_count * len(range(partition, self.rows_per_file, self.partitions))


def checksum(file: int, row: int, text: str) -> int:
    return zlib.crc32(f"{file},{row},{text}".encode())


class Feed:
    """Files that appear complete: each is written beside the folder that Spark watches, then moved into it."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        self._plan = plan
        self.input = folder / "input"
        # Spark reads only this path, and ignores names that begin with _.
        self.end = self.input / END
        self._staging = folder / "staging"
        self.file_count = 0
        self.is_over = False
        for path in (self.input, self._staging):
            path.mkdir()

    @property
    def row_count(self) -> int:
        return self.file_count * self._plan.rows_per_file

    @property
    def written(self) -> Plan:
        """The plan of exactly the files that were written."""
        return replace(self._plan, seconds=self.file_count / self._plan.files_per_s)

    def write_until(self, seconds: float, *, goes_on: bool = False) -> None:
        """Writes the files due `seconds` after the start; with `goes_on`, one more per second after the plan."""
        due = min(self._plan.file_count, int(seconds * self._plan.files_per_s))
        if goes_on:
            due += max(0, int(seconds - self._plan.seconds))
        for number in range(self.file_count, due):
            self._write_file(number)
            self.file_count += 1
        if not goes_on and self.file_count >= self._plan.file_count:
            self.is_over = True
            self.end.touch()

    def _write_file(self, number: int) -> None:
        lines = []
        for row in range(self._plan.rows_per_file):
            text = f"something that looks like event {row} of file {number}"
            lines.append(
                json.dumps({"file": number, "row": row, "text": text, "crc": checksum(number, row, text)}) + "\n"
            )
        name = f"{number:06d}.json"
        (self._staging / name).write_text("".join(lines))
        os.rename(self._staging / name, self.input / name)


Reader = Callable[[bytes], Any]


def avro_reader(registry_url: str, topic: str) -> Reader:
    """Confluent's deserializer, which finds the schema by the id before the value."""
    read = AvroDeserializer(SchemaRegistryClient({"url": registry_url}))
    context = SerializationContext(topic, MessageField.VALUE)

    def value(content: bytes) -> Any:
        try:
            return read(content, context)
        except SerializationError as error:
            raise ValueError(str(error)) from error

    return value


class Tally:
    """How often each row was seen, by file. A row in the wrong partition counts as damaged."""

    def __init__(self, plan: Plan, read: Reader = json.loads) -> None:
        self._plan = plan
        self._read = read
        self._seen = [bytearray(plan.rows_per_file) for _ in range(plan.file_count)]
        self.seen_count = 0
        self.duplicate_count = 0
        self.damaged_count = 0

    def add(self, partition: int, value: bytes | None) -> None:
        place = self._place(partition, value)
        if place is None:
            self.damaged_count += 1
            return
        file, row = place
        times = self._seen[file][row]
        self._seen[file][row] = min(255, times + 1)
        self.seen_count += times == 0
        self.duplicate_count += times > 0

    def add_all(self, records: Iterable[ForeignRecord]) -> None:
        for record in records:
            self.add(record.partition, record.value)

    def in_partition(self, partition: int) -> tuple[int, int]:
        """The number of rows seen, and of repetitions."""
        shares = [seen[partition :: self._plan.partitions] for seen in self._seen]
        distinct = sum(len(share) - share.count(0) for share in shares)
        return distinct, sum(map(sum, shares)) - distinct

    @property
    def missing_count(self) -> int:
        return self._plan.row_count - self.seen_count

    def _place(self, partition: int, value: bytes | None) -> tuple[int, int] | None:
        try:
            found = self._read(value or b"")
            file, row = int(found["file"]), int(found["row"])
            is_whole = found["crc"] == checksum(file, row, found["text"]) and row % self._plan.partitions == partition
        except (ValueError, KeyError, TypeError):
            return None
        is_known = 0 <= file < self._plan.file_count and 0 <= row < self._plan.rows_per_file
        return (file, row) if is_whole and is_known else None


def table(plan: Plan, tally: Tally) -> str:
    lines = [f"{'':12}{'rows in':>12}{'rows seen':>12}{'missing':>10}{'duplicates':>12}"]
    for partition in range(plan.partitions):
        expected = plan.rows_in_partition(partition)
        seen, twice = tally.in_partition(partition)
        lines.append(f"{f'partition {partition}':12}{expected:>12,}{seen:>12,}{expected - seen:>10,}{twice:>12,}")
    totals = (plan.row_count, tally.seen_count, tally.missing_count, tally.duplicate_count)
    lines.append("{:12}{:>12,}{:>12,}{:>10,}{:>12,}".format("all", *totals))
    return "\n".join(lines)
