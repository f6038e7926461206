"""What a manifest says, how the ledger keeps it until then, and where it goes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kafka_sink.commit.admin.manifests import BatchManifest, Wanted, parse_manifest
from kafka_sink.commit.ledger import Kind, LedgerRecord, batch_at_hand
from kafka_sink.commit.ledger_codec import decode_record, encode_record
from kafka_sink.commit.ledger_write import LedgerWrite, ManifestPlace, WriteState, manifest_place
from kafka_sink.commit.manifest import Manifest, manifest_key
from kafka_sink.commit.preflight import ROOM, Preflight
from kafka_sink.commit.receipt import UNNAMED_BATCH, BatchKey, TaskReceipt, WrittenPartition, summarize_receipts
from kafka_sink.commit.session import DeliverySettings, DriverSession
from kafka_sink.errors import RemoteProtocolError, TransportError
from kafka_sink.kafka.client.ask import Ask, Reply, ReplyKind
from kafka_sink.kafka.client.producer_identity import ProducerIdentity
from kafka_sink.kafka.wire.apis import END_TXN
from kafka_sink.kafka.wire.codes import TOPIC_AUTHORIZATION_FAILED
from kafka_sink.options.parse_sink import parse_sink_options
from tests.support.counted_name import CountedName, written_names
from tests.unit.commit.test_ledger import record

WRITTEN = (WrittenPartition("a", 0, 3, 10, 14), WrittenPartition("a", 7, 1, -1, -1), WrittenPartition("b", 0, 2, 5, 6))
RUN = "0" * 16
LETTERS = (WrittenPartition("dead", 0, 2, 8, 9), WrittenPartition("dead", 1, 1, -1, -1))
MANIFEST = Manifest("orders.manifests", 2, "orders", WRITTEN, {"value": 17})


def made(kind: Kind, **more: Any) -> LedgerRecord:
    return record(kind, manifest=MANIFEST, digest=255, wall_ms=1_000, **more)


def test_only_the_record_that_closes_a_decision_has_one() -> None:
    intent = made(Kind.INTENT)
    assert intent.manifest_record is None
    assert made(Kind.STUCK).manifest_record is None
    assert intent.as_closed(Kind.REPLAY, 5).manifest is None
    assert record(Kind.DONE).manifest_record is None
    done = intent.as_closed(Kind.DONE, 5)
    assert done.manifest_record is not None
    key, value = done.manifest_record
    assert key == b"orders/q"
    assert json.loads(value) == {
        "pykafka-sink-manifest": 1,
        "sink": "orders",
        "query": "q",
        "batch": 5,
        "run": intent.run,
        "rows": 10,
        "digest": "00000000000000ff",
        "closed_ms": 5,
        "topics": {
            "a": {"rows": 4, "partitions": [[0, 10, 14, 3], [7, -1, -1, 1]]},
            "b": {"rows": 2, "partitions": [[0, 5, 6, 2]]},
        },
        "schemas": {"value": 17},
    }


def test_of_many_topics_each_partition_is_looked_at_a_few_times_alone() -> None:
    written = tuple(WrittenPartition(*where, 1, 0, 0) for where in written_names(300, 4))
    key_and_value = replace(made(Kind.DONE), manifest=replace(MANIFEST, written=written)).manifest_record
    assert key_and_value is not None and len(json.loads(key_and_value[1])["topics"]) == 300
    assert CountedName.compared <= 3 * len(written)


def test_it_says_in_which_cluster_and_topics_its_rows_are() -> None:
    """As far as that is known: brokers before 2.8 tell no id, and not all of them the name of their cluster."""
    ids = {"a": bytes(range(16)), "dead": b"\xff" * 16}
    receipts = [
        TaskReceipt(BatchKey("q", 5), RUN, 0, 0, written=(*WRITTEN[:2], LETTERS[0]), row_count=6,
                    dead_letters=LETTERS[:1], topic_ids=ids),
        TaskReceipt(BatchKey("q", 5), RUN, 1, 0, written=WRITTEN[2:], row_count=2),
    ]  # fmt: skip
    batch = batch_at_hand(
        "s", BatchKey("q", 5), RUN, summarize_receipts(receipts), cluster_id="here", manifest=Manifest("m", 0, "orders")
    )
    done = batch.as_closed(Kind.DONE, 5)
    # Whoever closes the decision knows it from the ledger alone.
    found = decode_record(encode_record(done)).manifest_record
    assert found is not None and found == done.manifest_record
    told = json.loads(found[1])
    assert told["cluster"] == "here"
    assert {topic: each.get("id") for topic, each in told["topics"].items()} == {
        "a": "AAECAwQFBgcICQoLDA0ODw",
        "b": None,
    }
    assert told["dead_letters"]["dead"]["id"] == "_____________________w"
    manifest = parse_manifest(found[1])
    assert manifest is not None and manifest.cluster_id == "here"
    assert manifest.topic_ids == {"a": "AAECAwQFBgcICQoLDA0ODw", "dead": "_____________________w"}


def test_dead_letters_are_apart_from_the_rows() -> None:
    done = record(Kind.DONE, manifest=replace(MANIFEST, dead_letters=LETTERS))
    assert done.manifest_record is not None and done.row_count == 10
    told = json.loads(done.manifest_record[1])
    assert (told["rows"], list(told["topics"])) == (7, ["a", "b"])
    assert told["dead_letters"] == {"dead": {"rows": 3, "partitions": [[0, 8, 9, 2], [1, -1, -1, 1]]}}


def test_a_batch_s_manifest_has_its_rows_and_its_letters_apart_also_in_one_partition() -> None:
    """A row may name the topic of the letters itself."""
    rows = (
        WrittenPartition("a", 0, 4, 0, 3),
        WrittenPartition("dead", 0, 3, 7, 9),
        WrittenPartition("dead", 1, 1, 5, 5),
    )
    letters = (WrittenPartition("dead", 0, 2, 7, 8), WrittenPartition("dead", 1, 1, 5, 5))
    key = BatchKey("q", 5)
    receipts = [
        TaskReceipt(key, "r", 0, 0, written=rows, row_count=8, dead_letters=letters),
        TaskReceipt(key, "r", 1, 0, written=(WrittenPartition("dead", 1, 1, 3, 3),), row_count=1),
    ]
    summary = summarize_receipts(receipts)
    assert summary.dead_letters == letters
    batch = batch_at_hand("s", key, "r", summary, manifest=Manifest("m", 0, "orders"))
    assert batch.manifest is not None and batch.manifest.dead_letters == letters
    assert batch.manifest.written == (
        rows[0],
        WrittenPartition("dead", 0, 1, 7, 9),
        WrittenPartition("dead", 1, 1, 3, 5),
    )


def manifest_of(batch: str | int, *, sink: str = "s", query: str = "") -> BatchManifest:
    return BatchManifest(sink, query, batch, 1, "0", 0, (), {})


def test_an_export_in_chunks_is_there_when_all_of_them_are() -> None:
    wanted = Wanted(None, None, "export")
    chunks = [manifest_of(f"export/{number}-of-3-by-key") for number in (1, 3, 2)]
    other = manifest_of("export/2-of-3-by-key", sink="t")
    assert all(map(wanted.has, [*chunks, other])) and wanted.has(manifest_of("export"))
    assert not any(map(wanted.has, [manifest_of("export-2/1-of-3-by-key"), manifest_of("other"), manifest_of(3)]))
    assert wanted.choose_whole([*chunks[:2], other]) == []
    assert wanted.choose_whole([chunks[0], other, *chunks[1:]]) == chunks
    assert wanted.choose_whole([chunks[0], manifest_of("export", sink="t")]) == [manifest_of("export", sink="t")]
    # A chunk by its own name, and all that there is.
    assert Wanted(None, None, "export/1-of-3-by-key").choose_whole(chunks[:1]) == chunks[:1]
    assert Wanted(None, None, None).choose_whole(chunks[:2]) == chunks[:2]


def test_a_batch_that_an_operator_took_as_it_is_says_so() -> None:
    accepted = made(Kind.STUCK).as_closed(Kind.DONE, 5, is_accepted=True).manifest_record
    assert accepted is not None and json.loads(accepted[1])["accepted"] is True


@pytest.mark.parametrize("kind", [Kind.INTENT, Kind.DONE, Kind.STUCK])
def test_the_ledger_keeps_it(kind: Kind) -> None:
    assert decode_record(encode_record(made(kind))) == made(kind)
    with_letters = replace(made(kind), manifest=replace(MANIFEST, dead_letters=LETTERS))
    assert decode_record(encode_record(with_letters)) == with_letters


def test_releases_without_a_place_for_dead_letters_are_read_and_read_the_rows() -> None:
    """They ignore what they do not know, here as in every record, and find the columns that they had before."""
    with_letters = encode_record(replace(made(Kind.INTENT), manifest=replace(MANIFEST, dead_letters=LETTERS)))
    header, _, body = with_letters.partition(b"\n")
    content = json.loads(body)
    del content["manifest"]["dead_letters"]
    of_before = header + b"\n" + json.dumps(content, separators=(",", ":")).encode()
    assert of_before == encode_record(made(Kind.INTENT))
    assert decode_record(of_before) == made(Kind.INTENT)


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("manifest", 5, "no object"),
        ("to", "no topic/", "name of a topic"),
        ("at", -1, "'at'"),
        ("rows", [1], "different lengths"),
        ("topic", [0, 0, 9], "'topic'"),
        ("first_offset", [-1, 0, 0], "'first_offset'"),
        ("dead_letters", 5, "dead letters are no object"),
        ("dead_letters", {}, "'topics'"),
        ("ids", ["a"], "ids of topics are no object"),
        ("ids", {"a": 5}, "'id of a topic' is no text"),
    ],
)
def test_a_manifest_that_is_none_is_refused(field: str, value: object, text: str) -> None:
    header, _, body = encode_record(made(Kind.INTENT)).partition(b"\n")
    content = json.loads(body)
    (content if field == "manifest" else content["manifest"])[field] = value
    with pytest.raises(RemoteProtocolError, match=text):
        decode_record(header + b"\n" + json.dumps(content).encode())


def test_a_repeated_end_waits_for_the_leader_of_the_manifest() -> None:
    """A marker for a partition that has no leader may be dropped, and readers of the manifests would stop there."""
    session = DriverSession("sink", "0" * 16, identity=ProducerIdentity(7, 3))
    write = LedgerWrite(DeliverySettings(), session, made(Kind.DONE, sink_id="sink")).begin(0)
    for append in write.asks.take_due(0):
        partition = {"error_code": 0, "base_offset": 5}
        body = {"responses": [{"partition_responses": [partition]}]}
        write.on_reply(0, Reply(append, ReplyKind.ANSWERED, (body,)))
    (end,) = write.asks.take_due(0)
    assert end.api is END_TXN and end.led_now == ()
    write.on_reply(0, Reply(end, ReplyKind.LOST, (), TransportError("connection closed")))
    assert end.led_now == (MANIFEST.log,)
    for at_ms in (10_000, 20_000):
        assert write.asks.take_due(at_ms) == [end]
        write.on_reply(at_ms, Reply(end, ReplyKind.LEADERLESS, (), TransportError("orders.manifests-2 has no leader")))
        assert not write.is_finished and "no leader" in write.reason
    assert write.asks.take_due(30_000) == [end]
    write.on_reply(30_000, Reply(end, ReplyKind.ANSWERED, ({"error_code": 0, "producer_id": 7, "producer_epoch": 4},)))
    assert write.state is WriteState.WRITTEN and session.identity == ProducerIdentity(7, 4)


def looking_at_room(size: int) -> tuple[Preflight, Ask]:
    session = DriverSession("sink", RUN, identity=ProducerIdentity(7, 3))
    check = Preflight(DeliverySettings(), session, (), manifest=ManifestPlace("m", 0, size)).begin(0)
    (asked,) = [one for one in check.asks.take_due(0) if one.purpose == ROOM]
    return check, asked


def told(value: str | None, error_code: int = 0) -> Mapping[str, Any]:
    rows = [] if value is None else [{"name": "max.message.bytes", "value": value}]
    return {"results": [{"error_code": error_code, "configs": rows}]}


@pytest.mark.parametrize(
    ("kind", "bodies", "size_max", "text"),
    [
        (ReplyKind.ANSWERED, (told("5000"),), 5_000, "accepts 5000: raise max.message.bytes of that topic"),
        (ReplyKind.ANSWERED, (told("2000000"),), 2_000_000, "accepts 2000000: raise"),
        (ReplyKind.ANSWERED, (told(None, TOPIC_AUTHORIZATION_FAILED),), 1_048_588, "grant DescribeConfigs on topic m"),
        (ReplyKind.REFUSED, (), 1_048_588, "grant DescribeConfigs on topic m"),
        (ReplyKind.UNSUPPORTED, (), 1_048_588, "accepts 1048588 by default"),
    ],
)
def test_a_manifest_may_be_as_large_as_its_topic_accepts_or_as_topics_do_by_default(
    kind: ReplyKind, bodies: tuple[Mapping[str, Any], ...], size_max: int, text: str
) -> None:
    for size in (size_max, size_max + 1):
        check, asked = looking_at_room(size)
        check.on_reply(0, Reply(asked, kind, bodies))
        assert check.failure is None if size == size_max else text in str(check.failure)


def test_what_a_topic_accepts_is_asked_for_again_when_the_answer_is_lost() -> None:
    check, asked = looking_at_room(2_000_000)
    check.on_reply(0, Reply(asked, ReplyKind.LOST, (), TransportError("connection closed")))
    assert check.failure is None and asked in check.asks.take_due(10_000)


def test_a_small_manifest_is_not_asked_about() -> None:
    written = tuple(WrittenPartition("orders", each, 1, each, each) for each in range(101))
    batch = replace(made(Kind.INTENT), manifest=replace(MANIFEST, written=written[:100]))
    assert manifest_place(replace(batch, manifest=None)) is None
    assert manifest_place(batch) == ManifestPlace(*MANIFEST.log, 0)
    batch = replace(batch, manifest=replace(MANIFEST, written=written))
    place, closed = manifest_place(batch), batch.as_closed(Kind.DONE, 10**13).manifest_record
    assert place is not None and closed is not None and len(closed[1]) < place.size < len(closed[1]) + 150


def test_an_id_that_is_another_producer_now_has_expired_or_used_up_its_epochs() -> None:
    """In version 1 the coordinator gives another producer id after the last epoch as well."""
    session = DriverSession("sink", RUN, identity=ProducerIdentity(7, 32_766), is_used=True)
    write = LedgerWrite(replace(DeliverySettings(), transaction_version=1), session, made(Kind.DONE)).begin(0)
    (renewal,) = write.asks.take_due(0)
    write.on_reply(0, Reply(renewal, ReplyKind.ANSWERED, ({"error_code": 0, "producer_id": 8, "producer_epoch": 0},)))
    assert write.state is WriteState.NOT_WRITTEN and write.is_fenced
    assert "has expired, or its epochs are used up, and is another producer now" in write.reason


@pytest.mark.parametrize("epoch", [4, 6, 7])
def test_an_epoch_that_is_not_the_next_one_was_renewed_by_brokers_that_fence_nobody(epoch: int) -> None:
    """Some brokers renew any epoch of the producer id. Another driver had the one in between."""
    session = DriverSession("sink", RUN, identity=ProducerIdentity(7, 4), is_used=True)
    write = LedgerWrite(replace(DeliverySettings(), transaction_version=1), session, made(Kind.DONE)).begin(0)
    (renewal,) = write.asks.take_due(0)
    answer = {"error_code": 0, "producer_id": 7, "producer_epoch": epoch}
    write.on_reply(0, Reply(renewal, ReplyKind.ANSWERED, (answer,)))
    assert write.state is WriteState.NOT_WRITTEN and write.is_fenced
    assert f"has epoch {epoch} now instead of 5: there is another driver" in write.reason
    assert session.identity is None and not write.asks.take_due(10_000)


def test_ten_thousand_partitions_fit_beside_their_transactions() -> None:
    """Into the megabyte that a broker accepts by default, as tasks write them: other writers' rows lie between."""
    written = tuple(
        WrittenPartition("orders", each, 100 + each % 7, each * 911, each * 911 + 150) for each in range(10_000)
    )
    entries = tuple(replace(made(Kind.INTENT).entries[0], spark_partition=each) for each in range(1_000))
    intent = replace(made(Kind.INTENT), manifest=Manifest("m", 0, "orders", written), entries=entries)
    assert len(encode_record(intent)) < 200_000
    found = intent.as_closed(Kind.DONE, 5).manifest_record
    assert found is not None and len(found[1]) < 500_000


def test_keys_are_those_of_a_stream_a_label_and_a_write_without_a_name() -> None:
    assert manifest_key("orders", *BatchKey("query", 7)) == b"orders/query"
    assert manifest_key("orders", *BatchKey("", "monday")) == b"orders/monday"
    assert manifest_key("batch-1", *UNNAMED_BATCH) == b"batch-1"


@pytest.mark.parametrize("name", ["topic", "dead.letter.topic", "ledger.topic"])
def test_a_topic_with_another_use_is_refused(name: str) -> None:
    more = {"record.errors": "dead-letter"} if name == "dead.letter.topic" else {}
    with pytest.raises(Exception, match=f"manifest.topic and {name} are the same"):
        parse_sink_options({"kafka.bootstrap.servers": "b:9092", "manifest.topic": "t", name: "t", **more})


def test_at_least_once_has_none_and_says_so() -> None:
    told = parse_sink_options(
        {"kafka.bootstrap.servers": "b:9092", "manifest.topic": "t", "delivery.guarantee": "at-least-once"}
    )
    assert any("manifest.topic" in notice for notice in told.notices)
