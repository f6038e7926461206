"""A table rebuilt from its change feed, by code that knows nothing of the sink. A log: the records of a partition."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tools.foreign_reader import ForeignRecord


def rebuild_from_rows(logs: list[list[ForeignRecord]]) -> dict[str, str]:
    """As a compacted topic is read: the newest record of a key counts."""
    table: dict[str, str] = {}
    for record in (record for log in logs for record in log):
        assert record.key is not None
        row = None if record.value is None else json.loads(record.value)
        table.pop(record.key.decode(), None)
        if row is not None:
            assert str(row["id"]) == record.key.decode()
            table[record.key.decode()] = row["name"]
    return table


def rebuild_from_events(logs: list[list[ForeignRecord]]) -> dict[str, str]:
    """As a reader of Debezium's events does it that checks each `before` against what it has."""
    table: dict[str, str] = {}
    for log in logs:
        for place, record in enumerate(log):
            assert record.key is not None
            key = record.key.decode()
            if record.value is None:
                assert json.loads(log[place - 1].value or b"null")["op"] == "d" and log[place - 1].key == record.key
                continue
            event = json.loads(record.value)
            held = table.pop(key, None)
            assert (event["before"] or {}).get("name") == held, f"{event} of {key}, and the reader has {held}"
            assert event["op"] == ("d" if event["after"] is None else "c" if held is None else "u")
            assert event["ts_ms"] == record.timestamp_ms
            if event["op"] == "d":
                following = log[place + 1]
                assert (following.key, following.value, following.offset) == (record.key, None, record.offset + 1)
            else:
                table[key] = event["after"]["name"]
    return table


def versions_per_key(logs: list[list[ForeignRecord]]) -> Mapping[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for record in (record for log in logs for record in log if record.value is not None):
        found.setdefault(record.key or b"", []).append(json.loads(record.value)["_commit_version"])
    return found
