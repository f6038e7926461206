"""Records whose content shows whether they are missing, duplicated, torn or out of order.

A value holds (stream, number, position, checksum) and filling. A stream is a partition key: all its records go to one
partition, and their numbers count 0, 1, 2... The position counts over all streams in the order of sending; a single
thread sends, so within a partition positions only grow, over streams and over both ways of sending.

The checker gets records one by one and keeps one number per stream and partition, so it can check any number of them.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

VALUE_BYTES = 100
_HEAD = struct.Struct(">iqq")
_CHECKSUM = struct.Struct(">I")
_FILLING = bytes(range(VALUE_BYTES - _HEAD.size - _CHECKSUM.size))


def numbered_value(stream: int, number: int, position: int) -> bytes:
    body = _HEAD.pack(stream, number, position) + _FILLING
    return body + _CHECKSUM.pack(zlib.crc32(body))


@dataclass
class StreamChecker:
    """It gets every record of the topic, in the order of each partition, and then compares them with what was sent."""

    problems: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    record_count: int = 0
    _expected: dict[int, int] = field(default_factory=dict)
    _partition_of: dict[int, int] = field(default_factory=dict)
    _last_position: dict[int, int] = field(default_factory=dict)

    def on_record(self, partition: int, value: bytes | None) -> None:
        self.record_count += 1
        if value is None or len(value) != VALUE_BYTES or zlib.crc32(value[:-4]) != _CHECKSUM.unpack(value[-4:])[0]:
            self._note("damaged", f"partition {partition}: a value is not what was sent")
            return
        stream, number, position = _HEAD.unpack_from(value)
        expected = self._expected.get(stream, 0)
        if number < expected:
            self._note("doubled or late", f"stream {stream}: {number} came after {expected - 1}")
        elif number > expected:
            self._note("missing before", f"stream {stream}: {number} came, {expected} was next")
        self._expected[stream] = max(expected, number + 1)
        if self._partition_of.setdefault(stream, partition) != partition:
            self._note("elsewhere", f"stream {stream}: {number} is in partition {partition}")
        if position <= self._last_position.get(partition, -1):
            self._note("out of order", f"partition {partition}: position {position} is behind a later one")
        self._last_position[partition] = position

    def verdict(self, sent: Mapping[int, int]) -> list[str]:
        """Empty if each stream is complete; `sent` is stream -> number of records."""
        ends = [
            f"stream {stream}: {self._expected.get(stream, 0)} of {count} records seen to the end"
            for stream, count in sent.items()
            if self._expected.get(stream, 0) != count
        ]
        total = sum(sent.values())
        if self.record_count != total:
            ends.append(f"{self.record_count} records instead of {total}")
        strangers = [f"stream {stream} was never sent" for stream in self._expected.keys() - sent.keys()]
        return [f"{name}: {count} times" for name, count in self.problems.items()] + self.examples + ends + strangers

    def _note(self, name: str, text: str) -> None:
        self.problems[name] += 1
        if len(self.examples) < 10:
            self.examples.append(text)


def check_all(records: Iterable[tuple[int, bytes | None]], sent: Mapping[int, int]) -> list[str]:
    checker = StreamChecker()
    for partition, value in records:
        checker.on_record(partition, value)
    return checker.verdict(sent)
