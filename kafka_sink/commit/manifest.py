"""The manifest of a batch: one record that says what readers find where, once all of it is committed.

The transactions of a batch become visible one after the other, and its partitions are read one by one. With
`manifest.topic` the record that closes a decision is written together with a manifest, in one transaction of the
driver: both are in the log, or neither. So there is one for each decision that is closed, whoever closes it, and none
for a batch that was found delivered. The intent holds what it says, because whoever closes a decision may know nothing
else of the batch.

It does not wait until readers see the rows. An open transaction of another application may hide them for 15 minutes, at
each batch, and for so long the decision would be open: it is the reader who waits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kafka_sink.commit.receipt import BatchId, WrittenPartition, group_by_topic
from kafka_sink.kafka.client.ask import Leader

FORMAT_VERSION = 1
_MULTIPLIER, _MASK = 0x5BD1E995, 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Manifest:
    """Where it goes, and what the ledger's record does not say otherwise. `sink`: as the user named it."""

    topic: str
    partition: int
    sink: str
    # Rows of the whole batch, one for each partition; others' records may lie between the offsets.
    written: tuple[WrittenPartition, ...] = ()
    # Ids in the registry, of key and value where all rows have the same.
    schemas: Mapping[str, int] = field(default_factory=dict)
    # Letters about rows that could not be sent. Who reads the batch does not want them.
    dead_letters: tuple[WrittenPartition, ...] = ()
    # Of topics, as far as brokers have told them: another topic of the same name has other rows at these offsets.
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def letter_count(self) -> int:
        return sum(each.row_count for each in self.dead_letters)

    @property
    def log(self) -> Leader:
        return Leader(self.topic, self.partition)


def manifest_key(sink: str, query_id: str, batch_id: BatchId) -> bytes:
    """All manifests of a stream have one key, so they are in one partition, in order. Each labelled write has its own:
    in a compacted topic they all stay."""
    rest = query_id or (batch_id if isinstance(batch_id, str) else "")
    return f"{sink}/{rest}".encode() if rest else sink.encode()


def manifest_value(manifest: Manifest, named: Mapping[str, object]) -> bytes:
    """`named`: what names and describes the batch, in the order in which people read it."""
    content = {
        "pykafka-sink-manifest": FORMAT_VERSION,
        **named,
        "topics": _by_topic(manifest.written, manifest.topic_ids),
    }
    if manifest.dead_letters:
        content["dead_letters"] = _by_topic(manifest.dead_letters, manifest.topic_ids)
    if manifest.schemas:
        content["schemas"] = dict(manifest.schemas)
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


def _by_topic(written: Sequence[WrittenPartition], ids: Mapping[str, str]) -> dict[str, dict[str, object]]:
    return {
        topic: {
            **({"id": ids[topic]} if topic in ids else {}),
            "rows": sum(each.row_count for each in ranges),
            "partitions": [[each.partition, each.first_offset, each.last_offset, each.row_count] for each in ranges],
        }
        for topic, ranges in sorted(group_by_topic(written).items())
    }


def partition_of_key(key: bytes, count: int) -> int:
    """As Kafka's producers place keys (murmur2). For one key: the hash of columns would load numpy, which takes longer
    than a commit."""
    hashed = 0x9747B28C ^ len(key)
    words = len(key) // 4 * 4
    for position in range(0, words, 4):
        word = int.from_bytes(key[position : position + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        hashed = (hashed * _MULTIPLIER & _MASK) ^ word
    if key[words:]:
        hashed = (hashed ^ int.from_bytes(key[words:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return ((hashed ^ hashed >> 15) & 0x7FFFFFFF) % count
