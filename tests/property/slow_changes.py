"""Changes of a table as records, one by one: the slow twin of kafka_sink/spark/changes.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

LETTERS = {
    **dict.fromkeys(("insert", "create", "c", "i", "+i"), "c"),
    **dict.fromkeys(("update_postimage", "update_after", "update", "upsert", "u", "+u"), "u"),
    **dict.fromkeys(("read", "snapshot", "r"), "r"),
    **dict.fromkeys(("delete", "d", "-d"), "d"),
}
LEFT_OUT = ("update_preimage", "update_before", "-u")


def records(envelope: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each with `is_wrong` and `is_second`, which the sink says beside it."""
    for row in rows:
        word, kept = row["operation"], {name: row[name] for name in row if name not in ("value", "operation", "before")}
        spelled = None if word is None else word.lower()
        if spelled in LEFT_OUT:
            continue
        letter = LETTERS.get(spelled or "")
        kept["is_wrong"] = letter is None or row["key"] is None
        kept["is_second"] = False
        is_delete = letter == "d"
        if envelope == "upsert":
            yield {**kept, "value": None if is_delete else row["value"]}
            continue
        before = row.get("before")
        if before is None and is_delete:
            before = row["value"]
        value = {"before": before, "after": None if is_delete else row["value"], "op": letter or word}
        if "timestamp" in row:
            value["ts_ms"] = None if row["timestamp"] is None else row["timestamp"]
        yield {**kept, "value": value}
        if is_delete:
            yield {**kept, "is_second": True, "value": None}
