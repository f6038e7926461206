"""The topic of manifests: what planning wants of it, and reading what is in it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka_sink.commit.admin.client import Client, topic_query
from kafka_sink.commit.admin.topic_reader import PartitionReader
from kafka_sink.commit.admin.topics import NOT_TOLD, WRITE, metadata_of
from kafka_sink.commit.division import Division, division_of
from kafka_sink.commit.identity import name_of_stream
from kafka_sink.commit.manifest import FORMAT_VERSION
from kafka_sink.commit.receipt import BatchId, BatchKey, WrittenPartition
from kafka_sink.errors import AuthorizationError, ConfigError
from kafka_sink.errors.table.commits import ROWS_ELSEWHERE
from kafka_sink.kafka.client.cluster import NO_TOPIC_ID, topic_id_text
from kafka_sink.kafka.io.warn_once import warn_once
from kafka_sink.options.parse_sink import make_texts, parse_sink_options, take_option

_LOOK_AGAIN_S = 0.2
# It needs batch.id, which a reader chooses and the functions know.
_QUERY_ID = "query.id"
# Of Spark's own source.
_EARLIEST, _LATEST = -2, -1


def check_manifest_topic(client: Client, topic: str) -> None:
    """A manifest that cannot be written is noticed when its batch is decided already: look before any task runs. Call
    `reach` with the topic first."""
    if not client.look_for_topic(topic):
        client.describe_topic(topic)
    allowed = metadata_of(client, topic)["topic_authorized_operations"]
    if allowed != NOT_TOLD and not allowed >> WRITE & 1:
        raise AuthorizationError(
            f"manifest.topic={topic}: the principal may not write there, and no batch could be closed. It needs Write "
            "on this topic"
        )


@dataclass(frozen=True)
class BatchManifest:
    """One delivered batch. `batch_id`: the number of a micro-batch, or the batch.id of an export. Between the offsets
    of a partition there may be records of other writers, and there are markers of transactions.
    `dead_letters` are not in `row_count` and `partitions`."""

    sink: str
    query_id: str
    batch_id: BatchId
    row_count: int
    digest: str
    closed_ms: int
    partitions: tuple[WrittenPartition, ...]
    schemas: Mapping[str, int]
    # An operator has accepted a batch of which rows were lost: these are the rows that it should have.
    is_accepted: bool = False
    dead_letters: tuple[WrittenPartition, ...] = ()
    # Where the offsets are; empty as far as brokers did not tell, and in manifests of older releases.
    cluster_id: str = ""
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def spark_options(self) -> dict[str, str]:
        """Options for `spark.read.format("kafka")` that read exactly the offsets of this batch."""
        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for topic, partition, _, first, last in self.partitions:
            starts.setdefault(topic, {})[str(partition)] = first if first >= 0 else _EARLIEST
            ends.setdefault(topic, {})[str(partition)] = last + 1 if last >= 0 else _LATEST
        assigned = {topic: sorted(map(int, partitions)) for topic, partitions in starts.items()}
        return {
            "assign": json.dumps(assigned),
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(ends),
            "kafka.isolation.level": "read_committed",
        }


class Wanted(NamedTuple):
    """None: any. `batch` may also be an export in chunks, each of which is a batch of its own."""

    sink: str | None
    query: str | None
    batch: BatchId | None

    def has(self, found: BatchManifest) -> bool:
        is_wanted = self.batch in (None, found.batch_id, _export_of(found))
        return is_wanted and self.sink in (None, found.sink) and self.query in (None, found.query_id)

    def choose_whole(self, found: Sequence[BatchManifest]) -> list[BatchManifest]:
        """Without the chunks of an export of which some are missing, if that is what is wanted."""
        if self.batch is None:
            return list(found)
        chunks: dict[tuple[str, Division], set[BatchId]] = {}
        for one in found:
            division = _division_of(one)
            if division is not None:
                chunks.setdefault((one.sink, division), set()).add(one.batch_id)
        whole = {export for export, labels in chunks.items() if len(labels) == export[1].chunks}
        return [one for one in found if one.batch_id == self.batch or (one.sink, _division_of(one)) in whole]


def _division_of(found: BatchManifest) -> Division | None:
    return division_of(found.batch_id) if isinstance(found.batch_id, str) else None


def _export_of(found: BatchManifest) -> str | None:
    division = _division_of(found)
    return None if division is None else division.batch_id


def read_manifests(
    options: Mapping[str, object],
    *,
    sink: str | None = None,
    query: str | None = None,
    batch: BatchId | None = None,
    timeout_s: float = 0.0,
) -> list[BatchManifest]:
    """The manifests in `manifest.topic`, oldest first in each partition. `options`: those of the sink, or
    manifest.topic and what reaches the brokers. `sink`, `query` and `batch` select; by default sink.id or
    checkpointLocation, and query.id, of the options. The `batch` of an export in chunks selects all of them, or none
    while some are missing. Waits until there is one, or `timeout_s` has passed."""
    settings, of_options = take_option(make_texts(options), _QUERY_ID)
    parsed = parse_sink_options(settings)
    topic = parsed.manifest_topic
    if topic is None:
        raise ConfigError("read_manifests needs the option manifest.topic")
    wanted = Wanted(sink or name_of_stream(parsed.sink_id, parsed.checkpoint_location), query or of_options, batch)
    deadline_s = time.monotonic() + timeout_s
    # Where each partition is read from next. There may be more of them later.
    begins: dict[int, int] = {}
    foreign: list[str] = []
    found: list[BatchManifest] = []
    elsewhere: list[str] = []
    with Client(parsed.producer) as client:
        while True:
            new: list[BatchManifest] = []
            for each in client.describe_topic(topic):
                reader = PartitionReader(client, topic, each.partition, parsed.producer.request_timeout_ms)
                first, end = reader.extent()
                begin = begins.get(each.partition, first)
                new += [one for one in _manifests(reader, begin, end, foreign) if wanted.has(one)]
                begins[each.partition] = max(begin, end)
            found += _choose_here(client, new, elsewhere)
            whole = wanted.choose_whole(found)
            if whole or time.monotonic() >= deadline_s:
                break
            time.sleep(_LOOK_AGAIN_S)
    if foreign:
        warn_once(f"{topic} has {len(foreign)} records that are no manifests, and were passed over: "
                  f"the first one is in {foreign[0]}")  # fmt: skip
    if elsewhere:
        text = f"{topic} has {len(elsewhere)} manifests of rows that are not here: {elsewhere[0]}"
        if batch is not None and not whole:
            raise ConfigError(text, ROWS_ELSEWHERE)
        warn_once(text)
    return whole


def _choose_here(client: Client, manifests: Sequence[BatchManifest], elsewhere: list[str]) -> list[BatchManifest]:
    """Another cluster, or a topic that was made again, has other rows at the same offsets. `elsewhere` gets reasons."""
    cluster = client.cluster_id()
    ids = _ids_now(client, sorted({topic for one in manifests for topic in one.topic_ids}))
    chosen = []
    for one in manifests:
        reason = _reason_elsewhere(one, cluster, ids)
        if reason:
            elsewhere.append(reason)
        else:
            chosen.append(one)
    return chosen


def _ids_now(client: Client, topics: Sequence[str]) -> dict[str, str]:
    """Of those that the brokers tell: others may not be described by this principal, or are gone."""
    if not topics:
        return {}
    rows = client.ask_metadata(topic_query(*topics))["topics"]
    told = {row["name"]: row.get("topic_id") or NO_TOPIC_ID for row in rows}
    return {topic: topic_id_text(found) for topic, found in told.items() if found != NO_TOPIC_ID}


def _reason_elsewhere(found: BatchManifest, cluster: str, ids: Mapping[str, str]) -> str:
    """What brokers do not tell is not compared. Dead letters may be elsewhere: nobody reads them by the manifest."""
    batch = str(BatchKey(found.query_id, found.batch_id))
    if found.cluster_id and cluster and found.cluster_id != cluster:
        return f"{batch} is in the cluster {found.cluster_id}, and this one is {cluster}: read its rows there"
    for topic in sorted({each.topic for each in found.partitions}):
        told = found.topic_ids.get(topic)
        if told is not None and ids.get(topic, told) != told:
            return f"{batch} is in a topic {topic} that was deleted: the present one has other rows at its offsets"
    return ""


def _manifests(reader: PartitionReader, begin: int, end: int, foreign: list[str]) -> Iterator[BatchManifest]:
    """`foreign` gets the places of records that are none."""
    for records, _ in reader.read(begin, end):
        for offset, record in records:
            manifest = None if record.value is None else parse_manifest(record.value)
            if manifest is not None:
                yield manifest
            elif record.value is not None:
                foreign.append(f"partition {reader.partition}, offset {offset}")


def parse_manifest(value: bytes) -> BatchManifest | None:
    """None: something else that somebody wrote to the topic."""
    try:
        content = _object(json.loads(value))
        if content.get("pykafka-sink-manifest") != FORMAT_VERSION:
            return None
        batch = content.get("batch")
        return BatchManifest(
            sink=_text(content.get("sink")),
            query_id=_text(content.get("query")),
            batch_id=batch if isinstance(batch, str) else _number(batch),
            row_count=_number(content.get("rows")),
            digest=_text(content.get("digest")),
            closed_ms=_number(content.get("closed_ms"), None),
            partitions=_partitions(content.get("topics")),
            schemas={_text(name): _number(found) for name, found in _object(content.get("schemas", {})).items()},
            is_accepted=content.get("accepted") is True,
            dead_letters=_partitions(content.get("dead_letters", {})),
            cluster_id=_text(content.get("cluster", "")),
            topic_ids=_topic_ids(content.get("topics")) | _topic_ids(content.get("dead_letters", {})),
        )
    except (ValueError, RecursionError):
        return None


def _partitions(topics: Any) -> tuple[WrittenPartition, ...]:
    return tuple(
        WrittenPartition(topic, *_range(each))
        for topic, found in _object(topics).items()
        for each in _list(_object(found).get("partitions"))
    )


def _topic_ids(topics: Any) -> dict[str, str]:
    return {topic: _text(found["id"]) for topic, found in _object(topics).items() if "id" in _object(found)}


def _range(found: Any) -> tuple[int, int, int, int]:
    partition, first, last, rows = _list(found)  # another count is a ValueError
    return _number(partition), _number(rows), _number(first, -1), _number(last, -1)


def _object(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found


def _list(found: Any) -> list[Any]:
    if not isinstance(found, list):
        raise ValueError("no list")
    return found


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise ValueError("no text")
    return found


def _number(found: Any, lowest: int | None = 0) -> int:
    if type(found) is not int or (lowest is not None and found < lowest):
        raise ValueError("no number")
    return found
