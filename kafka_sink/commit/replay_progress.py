"""The progress of a replay of dead letters: a ledger record, written in the same transaction as the rows.

Rows and progress become visible together or not at all, so an interrupted run is resumed where its last committed
transaction ended. There is one record per replay, with its total progress. A consumer group would do as well while it
exists; brokers delete an idle group's offsets after a week, and every dead letter would be replayed again.

A run reads this after InitProducerId under the replay's transactional id: every transaction of earlier runs has ended
by then, and none can begin. It reads up to its own claim record, which only the current leader of the ledger can get
acknowledged (see takeover.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_sink.commit.ledger_found import Newest, Unmarked
from kafka_sink.commit.ledger_read import LedgerRead
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.errors import RemoteProtocolError, foreign_text

# No sink id is empty, so no ledger key of a sink begins with a slash.
KEY_PREFIX = "/replay/"
RUN_PREFIX = "/replaying/"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """`next_offsets`: for each source partition the first offset that was not processed. `source_id` is the topic id,
    or empty where brokers have none: a recreated topic is another source. `cluster_id` is empty where brokers tell
    none, and in records of releases before 0.3.0. It is kept because a ledger may be copied."""

    name: str
    source: str
    source_id: str
    target: str
    filters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    next_offsets: Mapping[int, int] = field(default_factory=dict)
    written_count: int = 0
    # Dead letters that were processed but not written, by reason.
    left_out: Mapping[str, int] = field(default_factory=dict)
    wall_ms: int = 0
    cluster_id: str = ""

    def is_of_another_cluster(self, cluster_id: str) -> bool:
        return bool(self.cluster_id and cluster_id) and self.cluster_id != cluster_id

    @property
    def ledger_key(self) -> str:
        return KEY_PREFIX + self.name

    @property
    def seen_count(self) -> int:
        return self.written_count + sum(self.left_out.values())


def encode_progress(progress: ReplayProgress) -> bytes:
    content = {
        "version": _VERSION,
        "name": progress.name,
        "source": progress.source,
        "source_id": progress.source_id,
        "target": progress.target,
        "filters": {name: list(wanted) for name, wanted in progress.filters.items()},
        "next_offsets": {str(partition): offset for partition, offset in sorted(progress.next_offsets.items())},
        "written": progress.written_count,
        "left_out": dict(progress.left_out),
        "wall_ms": progress.wall_ms,
        "cluster": progress.cluster_id,
    }
    return json.dumps(content, separators=(",", ":")).encode()


def decode_progress(value: bytes) -> ReplayProgress:
    try:
        found = json.loads(value)
        if found["version"] != _VERSION:
            version = foreign_text(str(found["version"])[:20])
            raise RemoteProtocolError(f"the progress of a replay has version {version}, not {_VERSION}")
        return ReplayProgress(
            name=_text(found["name"]),
            source=_text(found["source"]),
            source_id=_text(found["source_id"]),
            target=_text(found["target"]),
            filters={name: tuple(map(_text, wanted)) for name, wanted in found["filters"].items()},
            next_offsets={int(partition): _count(offset) for partition, offset in found["next_offsets"].items()},
            written_count=_count(found["written"]),
            left_out={reason: _count(count) for reason, count in found["left_out"].items()},
            wall_ms=_count(found["wall_ms"]),
            cluster_id=_text(found.get("cluster", "")),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RemoteProtocolError(f"this is no progress of a replay: {foreign_text(repr(error))}") from None


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError(f"{found!r} is no text")
    return found


def _count(found: Any) -> int:
    if type(found) is not int or found < 0:
        raise TypeError(f"{found!r} is no count")
    return found


class ReplayListing(LedgerRead):
    """The progress of every replay in a ledger. `claim_offset`: offset of an own record, written after the fence.
    `unreadable`: why a progress cannot be read; it stops its own replay only."""

    awaits_markers = True

    def __init__(self, settings: DeliverySettings, *, claim_offset: int | None = None) -> None:
        self.found: dict[str, ReplayProgress] | None = None
        self.unreadable: dict[str, str] = {}
        # Replays whose newest record has no marker: whether it was committed is unknown.
        self.in_doubt: frozenset[str] = frozenset()
        super().__init__(settings, "", claim_offset=claim_offset)

    def _is_own(self, ledger_key: str) -> bool:
        return ledger_key.startswith(KEY_PREFIX)

    def _on_newest(self, found: Newest, unmarked: Unmarked) -> None:
        self.in_doubt = frozenset(key.removeprefix(KEY_PREFIX) for key in unmarked)
        self.found = {}
        for key, one in found.items():
            name = key.removeprefix(KEY_PREFIX)
            try:
                if one.is_plain:
                    raise RemoteProtocolError("it was written without a transaction, which no replay does")
                self.found[name] = decode_progress(one.value)
            except RemoteProtocolError as error:
                self.unreadable[name] = str(error)
