"""Fetch, ListOffsets and what they show of transactions."""

from __future__ import annotations

from typing import Any

from kafka_sink.kafka.wire import apis
from kafka_sink.testing.batches import read_records, split_batches
from tests.conformance.end_scripts import data, open_transaction
from tests.conformance.peer import Peer
from tests.conformance.script import Seen, script
from tests.support.broker_requests import batch


def layout(peer: Peer, records: bytes) -> list[Any]:
    """What a reader gets, without times: offsets, flags, epochs, and the content of markers."""
    rows: list[Any] = []
    for one in split_batches(records):
        content = [(record.key, record.value) for record in read_records(one)] if one.is_control else one.record_count
        rows.append(
            (
                one.base_offset,
                one.last_offset,
                one.attributes,
                peer.known(one.producer_id),
                one.producer_epoch,
                one.base_sequence,
                one.leader_epoch,
                content,
            )
        )
    return rows


def note_readers(peer: Peer, seen: Seen, moment: str, offsets: tuple[int, ...] = (0,)) -> None:
    for offset in offsets:
        for committed in (False, True):
            for version in (4, 11, 12):
                one = peer.fetch(offset, topic=peer.topic, committed=committed, version=version)
                aborted = one["aborted_transactions"]
                seen.note(
                    f"{moment}, from {offset}, committed {committed}, v{version}",
                    (
                        one["error_code"],
                        one["high_watermark"],
                        one["last_stable_offset"],
                        [(peer.known(row["producer_id"]), row["first_offset"]) for row in aborted or ()],
                        layout(peer, one["records"] or b""),
                    ),
                )


@script()
def fetch_of_committed_and_aborted(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    first, second = peer.name("tx1"), peer.name("tx2")
    note_readers(peer, seen, "empty")
    one = open_transaction(peer, first, version=4)
    peer.produce(batch(b"plain", timestamp_ms=peer.now()), topic=peer.topic)
    two = open_transaction(peer, second, version=4)
    note_readers(peer, seen, "both open", (0, 1, 2, 3))
    peer.end(second, *two, False, version=4)
    peer.settle(second)
    note_readers(peer, seen, "second aborted", (0, 2, 3))
    peer.end(first, *one, True, version=4)
    peer.settle(first)
    note_readers(peer, seen, "first committed", (0, 1, 2, 3, 4, 5))
    one = open_transaction(peer, first, version=4)
    peer.end(first, *one, False, version=4)
    peer.settle(first)
    note_readers(peer, seen, "first aborted", (0, 4, 5, 6, 7))


@script(needs_version_2=True)
def fetch_of_version_2_markers(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    tid = peer.name("tx")
    for commit in (True, False):
        producer_id, epoch = open_transaction(peer, tid, version=5)
        peer.end(tid, producer_id, epoch, commit, version=5)
        peer.settle(tid)
    producer_id, epoch = open_transaction(peer, tid, version=5)
    peer.begin(tid)
    note_readers(peer, seen, "end", (0, 2, 4))


@script()
def offsets_out_of_range(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    peer.produce(batch(b"a", b"b", timestamp_ms=peer.now()), topic=peer.topic)
    for offset in (-1, 0, 1, 2, 3, 100):
        one = peer.fetch(offset, topic=peer.topic)
        seen.note(f"{offset}", (one["error_code"], one["high_watermark"], len(one["records"] or b"")))
    seen.note("unknown partition", peer.fetch(topic=peer.topic, partition=9)["error_code"])
    seen.note("unknown topic", peer.fetch(topic=peer.name("no"))["error_code"])
    for epoch in (-1, 0, 1):
        body = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "topics": [
                {
                    "topic": peer.topic,
                    "partitions": [
                        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "current_leader_epoch": epoch}
                    ],
                }
            ],
        }
        answer = peer.ask(1, apis.FETCH, 11, body)["responses"][0]["partitions"][0]
        seen.note(f"leader epoch {epoch}", answer["error_code"])


@script()
def fetch_waits_and_limits(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    for _ in range(5):
        peer.produce(batch(b"x" * 100, timestamp_ms=peer.now()), topic=peer.topic)
    for limit in (0, 1, 171, 172, 400, 10_000):
        body = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 10_000,
            "topics": [
                {"topic": peer.topic, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": limit}]}
            ],
        }
        records = peer.ask(1, apis.FETCH, 11, body)["responses"][0]["partitions"][0]["records"]
        seen.note(f"partition limit {limit}", len(split_batches(records or b"")))
    started = peer.now()
    peer.fetch(5, topic=peer.topic, max_wait_ms=300)
    seen.note("waited", peer.now() - started > 250)


@script()
def list_offsets(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    # Later than the current time of the records below, even if the script takes long to get there.
    base = peer.now() + 60_000
    for step in (0, 1000, 500):
        peer.produce(batch(b"a", b"b", timestamp_ms=base + step), topic=peer.topic)
    tid = peer.name("tx")
    producer_id, epoch = peer.begin(tid)
    peer.add(tid, producer_id, epoch, 0, topic=peer.topic)
    peer.produce(data(peer, producer_id, epoch), topic=peer.topic, transactional_id=tid)

    def ask(timestamp: int, committed: bool, version: int, partition: int = 0) -> dict[str, Any]:
        body = {
            "replica_id": -1,
            "isolation_level": int(committed),
            "topics": [{"name": peer.topic, "partitions": [{"partition_index": partition, "timestamp": timestamp}]}],
        }
        one: dict[str, Any] = peer.ask(1, apis.LIST_OFFSETS, version, body)["topics"][0]["partitions"][0]
        return one

    for name, timestamp in {
        "latest": -1,
        "earliest": -2,
        "max timestamp": -3,
        "base": base,
        "between": base + 600,
        "past": 1,
        "future": base + 3_000_000,
    }.items():
        for committed in (False, True):
            for version in (2, 5, 7):
                if version < 7 and timestamp == -3:
                    continue
                one = ask(timestamp, committed, version)
                time = one["timestamp"] - base if one["timestamp"] > 0 else one["timestamp"]
                seen.note(
                    f"{name} committed {committed} v{version}",
                    (one["error_code"], one["offset"], time if time < 2000 else "late", one["leader_epoch"]),
                )
    seen.note("unknown partition", ask(-1, False, 7, 9)["error_code"])


@script()
def timestamps_of_markers(peer: Peer, seen: Seen) -> None:
    """A marker has the time of its append, and is found by it like a record."""
    peer.create_topic(peer.topic)
    tid, past = peer.name("tx"), peer.now() - 3_600_000
    producer_id, epoch = peer.begin(tid)

    def note(moment: str) -> None:
        for name, timestamp in (("record", past), ("later", past + 1), ("future", past + 9_000_000), ("max", -3)):
            for committed in (False, True):
                places = [{"partition_index": 0, "timestamp": timestamp}]
                topics = [{"name": peer.topic, "partitions": places}]
                body = {"replica_id": -1, "isolation_level": int(committed), "topics": topics}
                [row] = peer.ask(1, apis.LIST_OFFSETS, 7, body)["topics"][0]["partitions"]
                time = row["timestamp"] - past if row["timestamp"] > 0 else row["timestamp"]
                found = (row["error_code"], row["offset"], time if time < 2000 else "late", row["leader_epoch"])
                seen.note(f"{moment}, {name}, committed {committed}", found)

    for number in range(2):
        peer.add(tid, producer_id, epoch, 0, topic=peer.topic)
        records = batch(
            b"v",
            producer_id=producer_id,
            epoch=epoch,
            sequence=number,
            transactional=True,
            timestamp_ms=past + 1000 * number,
        )
        peer.produce(records, topic=peer.topic, transactional_id=tid)
        note(f"open {number}")
        peer.end(tid, producer_id, epoch, number == 0, version=4)
        peer.settle(tid)
        note(f"ended {number}")
    peer.produce(batch(b"a", b"b", timestamp_ms=past + 500), topic=peer.topic)
    note("record in the past")
    peer.produce(batch(b"a", b"b", timestamp_ms=past + 3_700_000), topic=peer.topic)
    note("record in the future")


@script()
def producers_and_transactions_described(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    tid = peer.name("tx")
    producer_id, epoch = open_transaction(peer, tid, version=4)

    def note(moment: str) -> None:
        answer = peer.ask(
            1, apis.DESCRIBE_PRODUCERS, 0, {"topics": [{"name": peer.topic, "partition_indexes": [0, 1, 9]}]}
        )
        for one in answer["topics"][0]["partitions"]:
            seen.note(
                f"{moment}: producers of {one['partition_index']}",
                (
                    one["error_code"],
                    [
                        (
                            peer.known(row["producer_id"]),
                            row["producer_epoch"],
                            row["last_sequence"],
                            row["coordinator_epoch"],
                            row["current_txn_start_offset"],
                        )
                        for row in one["active_producers"]
                    ],
                ),
            )
        state = peer.ask(1, apis.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [tid]})["transaction_states"][0]
        seen.note(
            f"{moment}: state",
            (
                state["error_code"],
                state["transaction_state"],
                state["transaction_timeout_ms"],
                peer.known(state["producer_id"]),
                state["producer_epoch"],
                state["topics"] == [{"topic": peer.topic, "partitions": [0]}],
            ),
        )
        for filters in (
            {},
            {"state_filters": ["Ongoing"]},
            {"state_filters": ["Nonsense"]},
            {"producer_id_filters": [producer_id]},
        ):
            body = {"state_filters": [], "producer_id_filters": [], **filters}
            answer = peer.ask(1, apis.LIST_TRANSACTIONS, 0, body)
            found = [row["transaction_state"] for row in answer["transaction_states"] if row["transactional_id"] == tid]
            seen.note(
                f"{moment}: list {sorted(filters)}", (answer["error_code"], found, answer["unknown_state_filters"])
            )

    note("open")
    peer.end(tid, producer_id, epoch, True, version=4)
    peer.settle(tid)
    note("committed")
    unknown = peer.ask(1, apis.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [peer.name("no"), ""]})
    seen.note("unknown", [row["error_code"] for row in unknown["transaction_states"]])


@script(needs_version_2=True)
def listing_by_pattern(peer: Peer, seen: Seen) -> None:
    tid = peer.name("tx")
    peer.begin(tid)
    for pattern in (None, "", tid, f"{tid}.+", "(", "*"):
        body = {"state_filters": [], "producer_id_filters": [], "transactional_id_pattern": pattern}
        answer = peer.ask(peer.find(tid), apis.LIST_TRANSACTIONS, 2, body)
        found = [row["transactional_id"] for row in answer["transaction_states"]]
        seen.note(repr(pattern).replace(tid, "tx"), (answer["error_code"], tid in found))


@script(needs_version_2=True)
def offsets_of_tiers(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    peer.produce(batch(b"a", b"b"), topic=peer.topic)
    for version in (9, 11):
        for timestamp in (-4, -5, -6, -7):
            places = [{"partition_index": 0, "timestamp": timestamp}]
            body = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": peer.topic, "partitions": places}]}
            [row] = peer.ask(1, apis.LIST_OFFSETS, version, body)["topics"][0]["partitions"]
            seen.note(f"v{version} {timestamp}", (row["error_code"], row["timestamp"], row["offset"]))
