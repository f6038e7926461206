"""The records that every contestant sends: JSON lines that compress to about half of their size.

All contestants read the same file; Java's tool needs one record per line. The file is created from a fixed seed, so two
runs of the benchmark on two machines send the same bytes.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

# Far more than lz4's window of 64 KiB, and small enough for a processor's cache, so that all contestants read records
# cheaply.
PAYLOAD_BYTES = 2_000_000

_CITIES = ("Berlin", "Madrid", "Oslo", "Lisbon", "Vienna", "Prague", "Dublin", "Zagreb")
_EVENTS = ("click", "view", "purchase", "return", "search")


def write_payload(path: Path, record_bytes: int | None) -> None:
    """With `record_bytes` None lengths are 100 to 2000 bytes, short ones more often than long ones."""
    draw = random.Random(record_bytes or 0)
    lengths = [record_bytes or round(100 * 20 ** draw.random()) for _ in range(PAYLOAD_BYTES // (record_bytes or 634))]
    path.write_text("\n".join(_record(draw, length) for length in lengths))


def read_payload(path: str) -> list[bytes]:
    return Path(path).read_bytes().split(b"\n")


def _record(draw: random.Random, record_bytes: int) -> str:
    row: dict[str, object] = {
        "user": draw.randrange(10**8),
        "event": draw.choice(_EVENTS),
        "city": draw.choice(_CITIES),
        "price": draw.randrange(10**5) / 100,
    }
    number = 0
    while len(_text(row)) < record_bytes - 60:
        row[f"attribute_{number}"] = draw.choice(_CITIES)
        row[f"measure_{number}"] = draw.randrange(10**10)
        number += 1
    # Random letters fill the rest; the name of their field and its punctuation take ten bytes.
    rest = record_bytes - len(_text(row)) - 10
    row["note"] = "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=rest))
    text = _text(row)
    assert len(text) == record_bytes, (len(text), record_bytes)
    return text


def _text(row: dict[str, object]) -> str:
    return json.dumps(row, separators=(",", ":"))
