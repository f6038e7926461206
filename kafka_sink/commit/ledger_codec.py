"""Encodes and decodes ledger records; what is read is not trusted.

A value is one line of text and a body: `pykafka-sink-ledger 1 json` and JSON, or `... zlib` and compressed JSON when
that saves space. So any Kafka reader shows what it is, small records are readable as they are, and a later version is
rejected by its number rather than misread.

An intent can name thousands of transactions. Their ids are derived, not stored; their numbers are stored in columns,
delta-encoded where neighbours are similar (partitions, producer ids, offsets), so that they compress well: 10,000 fit
into a fraction of the megabyte that a broker accepts by default.

Decoding is safe on hostile bytes: every size, count and number has a bound, decompression stops at its bound, and any
defect is a `RemoteProtocolError`.

Whatever is written can be read: encoding has no bounds of its own. It decodes its result before it is sent, and raises
`Unrecordable` if that fails or differs. One unreadable record, once it is the newest of its key, would block the sink
permanently.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from kafka_sink.commit.identity import Line, has_letters_of_sink_id
from kafka_sink.commit.ledger import Kind, LedgerRecord, TransactionEntry, TransactionOutcome, ledger_key
from kafka_sink.commit.manifest import Manifest
from kafka_sink.commit.receipt import BatchId, BatchKey, WrittenPartition
from kafka_sink.errors import KafkaSinkError, RemoteProtocolError

FORMAT = "pykafka-sink-ledger"
VERSION = 1
# With this every value of every version begins.
VALUE_BEGINS = f"{FORMAT} ".encode()
COPIED_PAGE = '"A ledger that was copied" in docs/operations.md'
_HEADER_BYTES_MAX = 64
# A broker accepts 1 MiB by default; an operator may have raised the limit.
VALUE_BYTES_MAX = 8 * 1024 * 1024
JSON_BYTES_MAX = 32 * 1024 * 1024
ENTRIES_MAX = 100_000
# What JSON of that size may hold: an object takes 64 bytes of memory, and two in JSON. A record has a few lists.
ITEMS_MAX, CONTAINERS_MAX = 3_000_000, 10_000
TEXT_CHARACTERS_MAX = 1_000
TOPICS_MAX = 10_000
_COMPRESSED_FROM_BYTES = 1_024

INT16_MAX, INT32_MAX, INT64_MAX = 2**15 - 1, 2**31 - 1, 2**63 - 1

# Column (existing records use these names), attribute, bound of its numbers, whether it is delta-encoded.
_COLUMNS = (
    ("spark_partition", "spark_partition", INT64_MAX, True),
    ("attempt", "attempt", INT64_MAX, False),
    ("producer_id", "producer_id", INT64_MAX, True),
    ("producer_epoch", "producer_epoch", INT16_MAX, False),
    ("generation", "transaction_version", 2, False),
    ("partition", "partition", INT32_MAX, False),
    ("last_offset", "last_offset", INT64_MAX, True),
    ("row_count", "row_count", INT64_MAX, False),
)
# The same for the partitions of a manifest. An offset is unknown (-1) where a broker recognised a repeated request.
_RANGE_COLUMNS = (
    ("partition", INT32_MAX, True),
    ("rows", INT64_MAX, False),
    ("first_offset", INT64_MAX, True),
    ("last_offset", INT64_MAX, True),
)
# Each omitted if there are none. Releases that do not know it write manifests without them.
_DEAD_LETTERS, _TOPIC_IDS = "dead_letters", "ids"
# Omitted if every task is the one in its id. Older releases ignore it and report the number in the id.
_TASK_PARTITION = "task_partition"

# Texts that get into ids of transactions, commands and comparisons, and what they must be. A record is written if it
# can be read (`encode_record`), so this is what is written, too. An operator's command has no run. The sink id is
# compared with the key (`decode_newest`).
_SHAPES = {
    "run": re.compile(r"([0-9a-f]{16})?"),
    "cluster": re.compile(r"[!-~]{0,300}"),
    "to": re.compile(r"[a-zA-Z0-9._-]{1,249}"),
}
_SHAPE_WORDS = {"run": "hash of a run", "cluster": "id of a cluster", "to": "name of a topic"}

# What the user can do about a field that does not fit.
_ADVICE = {
    "batch": "Choose a shorter batch.id",
    "topics": "Write to fewer topics in one batch (smaller batches, for example by maxOffsetsPerTrigger)",
    "last_offset": "A broker acknowledged rows without saying where they are; the next run of the batch asks again",
    "attempt": "Start the query again: its task attempts are counted anew",
    "receipts": "Write with fewer tasks, for example after coalesce()",
    "manifest": "Write to fewer partitions in one batch, or leave the option manifest.topic out",
    "size": "Write with fewer tasks, for example after coalesce(), or to fewer topics in one batch",
}


class UnreadableRecord(RemoteProtocolError):
    """`field` is what the text is about."""

    def __init__(self, text: str, field: str = "") -> None:
        super().__init__(text)
        self.field = field


class Unrecordable(KafkaSinkError):
    """A record that could not be read again. It was not written."""


def encode_record(record: LedgerRecord) -> bytes:
    """Bytes that `decode_record` turns into an equal record; raises `Unrecordable` if there are none."""
    try:
        value = _encode(_content(record))
        found = decode_record(value)
    except UnicodeEncodeError:
        raise _unrecordable("it has a text that is not Unicode", "") from None
    except UnreadableRecord as error:
        raise _unrecordable(f"it would be {error}", error.field) from None
    if found != record:
        raise _unrecordable("it would be read as another one", "")
    return value


def _unrecordable(reason: str, field: str) -> Unrecordable:
    advice = _ADVICE.get(field, "This is a fault of the sink: report it with this text")
    return Unrecordable(f"the record of this batch cannot be written to the ledger, because {reason}. {advice}")


def _content(record: LedgerRecord) -> dict[str, Any]:
    content: dict[str, Any] = {
        "kind": record.kind.value,
        "sink": record.sink_id,
        "query": record.key.query_id,
        "batch": record.key.batch_id,
        "run": record.run,
        "runs": list(record.runs),
        "since_ms": record.since_ms,
        "wall_ms": record.wall_ms,
        "rows": record.row_count,
        "topics": dict(record.topics),
    }
    if record.digest is not None:
        content["digest"] = record.digest
    if record.cluster_id:
        content["cluster"] = record.cluster_id
    if record.label:
        content["name"] = record.label
    if record.is_accepted:
        content["accepted"] = True
    if record.entries:
        content["receipts"] = _pack_entries(record.entries)
    if record.manifest is not None:
        content["manifest"] = _pack_manifest(record.manifest)
    if record.outcomes:
        content["fates"] = "".join(outcome.value for outcome in record.outcomes)
    return content


class FoundClaim(NamedTuple):
    """`code`: of the line that is claimed; None: made by a release in which a claim was about all lines of a sink."""

    run: str
    code: str | None


def encode_claim(line: Line, run: str, wall_ms: int) -> bytes:
    """Earlier releases ignore the line."""
    return _encode({"kind": "claim", "sink": line.sink_id, "line": line.code, "run": run, "wall_ms": wall_ms})


def decode_claim(value: bytes) -> FoundClaim:
    content = _parse_content(value)
    code = _text(content["line"], "line") if "line" in content else None
    return FoundClaim(_check_shape(content.get("run"), "run"), code)


def encode_stop(sink_id: str, run: str, wall_ms: int) -> bytes:
    """For people: its key says all."""
    return _encode({"kind": "stop", "sink": sink_id, "run": run, "wall_ms": wall_ms})


def claim_time(value: bytes) -> int:
    """When a claim was written, by its driver's clock."""
    return _number(_parse_content(value).get("wall_ms"), "wall_ms", -INT64_MAX, INT64_MAX)


def _encode(content: dict[str, Any]) -> bytes:
    body = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    if len(body) < _COMPRESSED_FROM_BYTES:
        return f"{FORMAT} {VERSION} json\n".encode() + body
    return f"{FORMAT} {VERSION} zlib\n".encode() + zlib.compress(body, 6)


def decode_record(value: bytes) -> LedgerRecord:
    return _parse_record(_parse_content(value))


def decode_newest(key: str, value: bytes) -> LedgerRecord:
    """The newest record of a ledger key. Its sink id gets into the ids of transactions and into commands that people
    type, so it must be the one in the key."""
    record = decode_record(value)
    if ledger_key(record.sink_id, record.key) != key or not has_letters_of_sink_id(record.sink_id):
        raise UnreadableRecord("a ledger record with a sink or batch other than those in its key")
    return record


def beginning_of_plain(value: bytes | None) -> bytes:
    """What is kept of a record that was written without a transaction: of foreign bytes nothing."""
    return value[: VALUE_BYTES_MAX + 1] if value is not None and value.startswith(VALUE_BEGINS) else b""


def plain_problem(value: bytes, cluster_id: str) -> str:
    """Why such a record is not read. `cluster_id`: of the brokers."""
    origin = origin_of(value, cluster_id)
    if origin:
        return (
            f"a copy of a record of the Kafka cluster {origin!r}, written without a transaction, as tools that mirror "
            f"topics do: it does not say whether the batch is in this cluster ({COPIED_PAGE})"
        )
    what = "a copy of a ledger record" if value else "a record of something else than a sink"
    return f"{what}, written without a transaction: no sink does that, and it hides the decision before it"


def origin_of(value: bytes, cluster_id: str) -> str:
    """The cluster of which this record is a copy; empty if it is of this one, or of an unknown one."""
    try:
        record = decode_record(value)
    except UnreadableRecord:
        return ""
    return record.cluster_id if record.is_of_another_cluster(cluster_id) else ""


def _parse_content(value: bytes) -> dict[str, Any]:
    if len(value) > VALUE_BYTES_MAX:
        raise UnreadableRecord(f"a ledger record of {len(value)} bytes; at most {VALUE_BYTES_MAX} are read", "size")
    encoding, body = _split(value)
    if encoding == "zlib":
        body = _decompress(body)
    if body.count(b",") > ITEMS_MAX or body.count(b"{") + body.count(b"[") > CONTAINERS_MAX:
        raise UnreadableRecord("a ledger record with more items than one has", "size")
    try:
        content = json.loads(body.decode())
    except (ValueError, RecursionError):
        raise UnreadableRecord("a ledger record whose content is not JSON") from None
    if not isinstance(content, dict):
        raise UnreadableRecord("a ledger record whose content is not an object")
    return content


# ---- writing ----


def _pack_entries(entries: tuple[TransactionEntry, ...]) -> dict[str, Any]:
    topics = sorted({entry.topic for entry in entries})
    index_of = {topic: index for index, topic in enumerate(topics)}
    packed: dict[str, Any] = {"topics": topics, "topic": [index_of[entry.topic] for entry in entries]}
    for name, attribute, _, has_differences in _COLUMNS:
        numbers = [getattr(entry, attribute) for entry in entries]
        packed[name] = _differences(numbers) if has_differences else numbers
    if any(entry.task_partition is not None for entry in entries):
        packed[_TASK_PARTITION] = _differences([entry.spark_task for entry in entries])
    return packed


def _pack_manifest(manifest: Manifest) -> dict[str, Any]:
    packed: dict[str, Any] = {"to": manifest.topic, "at": manifest.partition, "sink": manifest.sink}
    packed |= _pack_ranges(manifest.written)
    if manifest.dead_letters:
        packed[_DEAD_LETTERS] = _pack_ranges(manifest.dead_letters)
    if manifest.schemas:
        packed["schemas"] = dict(manifest.schemas)
    if manifest.topic_ids:
        packed[_TOPIC_IDS] = dict(manifest.topic_ids)
    return packed


def _pack_ranges(written: Sequence[WrittenPartition]) -> dict[str, Any]:
    topics = sorted({each.topic for each in written})
    index_of = {topic: index for index, topic in enumerate(topics)}
    packed: dict[str, Any] = {"topics": topics, "topic": [index_of[each.topic] for each in written]}
    ranges = [(one.partition, one.row_count, one.first_offset + 1, one.last_offset + 1) for one in written]
    for place, (name, _, has_differences) in enumerate(_RANGE_COLUMNS):
        numbers = [each[place] for each in ranges]
        packed[name] = _differences(numbers) if has_differences else numbers
    return packed


def _differences(numbers: list[int]) -> list[int]:
    return [number - before for before, number in zip([0, *numbers], numbers, strict=False)]


# ---- reading ----


def _split(value: bytes) -> tuple[str, bytes]:
    header, line_end, _ = value[:_HEADER_BYTES_MAX].partition(b"\n")
    words = header.decode("ascii", "replace").split(" ")
    if not line_end or len(words) != 3 or words[0] != FORMAT:
        raise UnreadableRecord("not a record of this ledger's format; does something else write to the topic?")
    if words[1] != str(VERSION):
        raise UnreadableRecord(
            f"a ledger record of version {words[1]!r}; this release reads version {VERSION}. "
            "A newer release has written to the ledger: use that one"
        )
    if words[2] not in ("json", "zlib"):
        raise UnreadableRecord(f"a ledger record in the unknown encoding {words[2]!r}")
    return words[2], value[len(header) + 1 :]


def _decompress(body: bytes) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        content = decompressor.decompress(body, JSON_BYTES_MAX)
    except zlib.error:
        raise UnreadableRecord("a ledger record that cannot be decompressed") from None
    if not decompressor.eof or decompressor.unused_data:
        raise UnreadableRecord(f"a ledger record that is cut off or larger than {JSON_BYTES_MAX} bytes", "size")
    return content


def _parse_record(content: dict[str, Any]) -> LedgerRecord:
    try:
        kind = Kind(_text(content.get("kind"), "kind"))
    except ValueError:
        raise UnreadableRecord(f"a ledger record of the unknown kind {content['kind']!r}") from None
    entries = _entries(content.get("receipts", {}))
    record = LedgerRecord(
        kind=kind,
        sink_id=_text(content.get("sink"), "sink"),
        key=BatchKey(_text(content.get("query"), "query"), _batch_id(content.get("batch"))),
        run=_check_shape(content.get("run"), "run"),
        runs=tuple(_check_shape(run, "run") for run in _texts(content.get("runs"), "runs", 1_000)),
        since_ms=_number(content.get("since_ms"), "since_ms", -1, INT64_MAX),
        wall_ms=_number(content.get("wall_ms"), "wall_ms", -INT64_MAX, INT64_MAX),
        row_count=_number(content.get("rows"), "rows", 0, INT64_MAX),
        topics=_topics(content.get("topics")),
        digest=_number(content["digest"], "digest", 0, INT64_MAX) if "digest" in content else None,
        entries=entries,
        outcomes=_outcomes(content.get("fates", ""), len(entries)),
        is_accepted=content.get("accepted", False) is True,
        cluster_id=_check_shape(content.get("cluster", ""), "cluster"),
        label=_label(content.get("name")),
        manifest=_manifest(content["manifest"]) if "manifest" in content else None,
    )
    needs_entries = kind in (Kind.INTENT, Kind.STUCK)
    if needs_entries != bool(record.entries) or (kind is Kind.STUCK) != bool(record.outcomes):
        raise UnreadableRecord(f"a ledger record of kind {kind.value} with the fields of another kind")
    return record


def _entries(packed: Any) -> tuple[TransactionEntry, ...]:
    if not isinstance(packed, dict):
        raise UnreadableRecord("a ledger record whose receipts are not an object")
    if not packed:
        return ()
    topics = _texts(packed.get("topics"), "topics", TOPICS_MAX)
    indexes = _numbers(packed, "topic", len(topics) - 1, has_differences=False)
    columns = [_numbers(packed, name, bound, has_differences=differs) for name, _, bound, differs in _COLUMNS]
    tasks = columns[0]  # unless they are told
    if _TASK_PARTITION in packed:
        tasks = _numbers(packed, _TASK_PARTITION, INT64_MAX, has_differences=True)
    if any(len(column) != len(indexes) for column in (*columns, tasks)):
        raise UnreadableRecord("a ledger record whose receipts have columns of different lengths")
    attributes = [attribute for _, attribute, _, _ in _COLUMNS]
    entries = []
    for index, task, numbers in zip(indexes, tasks, zip(*columns, strict=True), strict=True):
        named = dict(zip(attributes, numbers, strict=True))
        if named["transaction_version"] not in (1, 2):
            raise UnreadableRecord(f"a ledger record with a transaction of version {named['transaction_version']}")
        named[_TASK_PARTITION] = None if task == named["spark_partition"] else task
        entries.append(TransactionEntry(topic=topics[index], **named))
    return tuple(entries)


def _manifest(packed: Any) -> Manifest:
    if not isinstance(packed, dict):
        raise UnreadableRecord("a ledger record whose manifest is no object")
    return Manifest(
        topic=_check_shape(packed.get("to"), "to"),
        partition=_number(packed.get("at"), "at", 0, INT32_MAX),
        sink=_text(packed.get("sink"), "sink"),
        written=_ranges(packed),
        schemas=_topics(packed.get("schemas", {})),
        dead_letters=_ranges(packed[_DEAD_LETTERS]) if _DEAD_LETTERS in packed else (),
        topic_ids=_topic_ids(packed.get(_TOPIC_IDS, {})),
    )


def _ranges(packed: Any) -> tuple[WrittenPartition, ...]:
    if not isinstance(packed, dict):
        raise UnreadableRecord("a ledger record whose dead letters are no object")
    topics = _texts(packed.get("topics"), "topics", TOPICS_MAX)
    indexes = _numbers(packed, "topic", len(topics) - 1, has_differences=False, field="manifest")
    columns = [
        _numbers(packed, name, bound, has_differences=differs, field="manifest")
        for name, bound, differs in _RANGE_COLUMNS
    ]
    if any(len(column) != len(indexes) for column in columns):
        raise UnreadableRecord("a ledger record whose manifest has columns of different lengths")
    return tuple(
        WrittenPartition(topics[index], partition, rows, first - 1, last - 1)
        for index, partition, rows, first, last in zip(indexes, *columns, strict=True)
    )


def _numbers(
    content: dict[str, Any], name: str, bound: int, *, has_differences: bool, field: str = "receipts"
) -> list[int]:
    """`field`: what a list that is too long is about."""
    found = content.get(name)
    if not isinstance(found, list) or len(found) > ENTRIES_MAX:
        raise UnreadableRecord(f"a ledger record whose column {name!r} is no list of at most {ENTRIES_MAX}", field)
    lowest = -INT64_MAX if has_differences else 0
    numbers = [_number(number, name, lowest, INT64_MAX) for number in found]
    if has_differences:
        numbers = list(accumulate(numbers))
    for number in numbers:
        _number(number, name, 0, bound)
    return numbers


def _number(number: Any, name: str, lowest: int, highest: int) -> int:
    if type(number) is not int or not lowest <= number <= highest:
        raise UnreadableRecord(f"a ledger record whose {name!r} is no number from {lowest} to {highest}", name)
    return number


def _text(found: Any, name: str) -> str:
    if not isinstance(found, str) or len(found) > TEXT_CHARACTERS_MAX:
        raise UnreadableRecord(f"a ledger record whose {name!r} is no text of at most {TEXT_CHARACTERS_MAX}", name)
    if not _is_unicode(found):
        raise UnreadableRecord(f"a ledger record whose {name!r} is not Unicode", name)
    return found


def _is_unicode(text: str) -> bool:
    """JSON may hold half of a pair of surrogates, which is no character: nothing that writes it out can encode it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_shape(found: Any, name: str) -> str:
    text = _text(found, name)
    if not _SHAPES[name].fullmatch(text):
        raise UnreadableRecord(f"a ledger record whose {name!r} is not the {_SHAPE_WORDS[name]}", name)
    return text


def _label(found: Any) -> str:
    """Nothing depends on it, so an invalid one is not an error."""
    is_valid = isinstance(found, str) and len(found) <= TEXT_CHARACTERS_MAX and _is_unicode(found)
    return found if is_valid else ""


def _texts(found: Any, name: str, count_max: int) -> list[str]:
    if not isinstance(found, list) or len(found) > count_max:
        raise UnreadableRecord(f"a ledger record whose {name!r} is no list of at most {count_max}", name)
    return [_text(one, name) for one in found]


def _batch_id(found: Any) -> BatchId:
    return _text(found, "batch") if isinstance(found, str) else _number(found, "batch", 0, INT64_MAX)


def _topics(found: Any) -> dict[str, int]:
    if not isinstance(found, dict) or len(found) > TOPICS_MAX:
        raise UnreadableRecord(f"a ledger record whose topics are no object of at most {TOPICS_MAX}", "topics")
    return {_text(topic, "topics"): _number(rows, "topics", 0, INT64_MAX) for topic, rows in found.items()}


def _topic_ids(found: Any) -> dict[str, str]:
    if not isinstance(found, dict) or len(found) > TOPICS_MAX:
        raise UnreadableRecord(f"a ledger record whose ids of topics are no object of at most {TOPICS_MAX}", "topics")
    return {_text(topic, "topics"): _text(topic_id, "id of a topic") for topic, topic_id in found.items()}


def _outcomes(found: Any, count: int) -> tuple[TransactionOutcome, ...]:
    if not isinstance(found, str) or len(found) not in (0, count):
        raise UnreadableRecord("a ledger record whose fates do not fit its receipts")
    try:
        return tuple(TransactionOutcome(letter) for letter in found)
    except ValueError:
        raise UnreadableRecord("a ledger record with an unknown fate") from None
