"""InitProducerId by state of the transactional id, and which partitions can be added."""

from __future__ import annotations

from kafka_sink.kafka.wire import apis
from tests.conformance.peer import Peer
from tests.conformance.script import Seen, script
from tests.support.broker_requests import batch


def settled_init(peer: Peer, transactional_id: str, **options: int) -> tuple[int, int, int]:
    """Repeats while the answer is CONCURRENT_TRANSACTIONS."""
    for _ in range(500):
        answer = peer.init(transactional_id, **options)
        if answer[0] != 51:
            return answer
        peer.advance(10)
    raise AssertionError("CONCURRENT_TRANSACTIONS for ever")


def note_init(
    peer: Peer, seen: Seen, question: str, transactional_id: str | None, *, epoch_before: int = 0, **options: int
) -> tuple[int, int]:
    """`epoch_before`: the epoch to count from, if the steps before may have taken several tries."""
    if transactional_id is None:
        code, producer_id, epoch = peer.init(None, **options)
    else:
        code, producer_id, epoch = settled_init(peer, transactional_id, **options)
    seen.note(question, (code, peer.known(producer_id), epoch - epoch_before if epoch >= 0 else epoch))
    return producer_id, epoch


@script()
def init_refusals(peer: Peer, seen: Seen) -> None:
    tid = peer.name("tx")
    peer.find(tid)
    for name, options in {
        "empty id": {},
        "timeout 0": {"timeout_ms": 0},
        "timeout negative": {"timeout_ms": -1},
        "timeout above the maximum": {"timeout_ms": 900_001},
        "producer id without epoch": {"producer_id": 5},
        "epoch without producer id": {"epoch": 5},
    }.items():
        note_init(peer, seen, name, "" if name == "empty id" else tid, **options)
    note_init(peer, seen, "no id", None)
    note_init(peer, seen, "no id again", None)
    note_init(peer, seen, "no id, with producer", None, producer_id=1, epoch=1)
    note_init(peer, seen, "timeout at the maximum", tid, timeout_ms=900_000)


@script()
def init_in_empty(peer: Peer, seen: Seen) -> None:
    tid = peer.name("tx")
    peer.find(tid)
    producer_id, _ = note_init(peer, seen, "first", tid)
    note_init(peer, seen, "again", tid)
    note_init(peer, seen, "stale epoch", tid, producer_id=producer_id, epoch=0)
    note_init(peer, seen, "stale epoch before version 4", tid, producer_id=producer_id, epoch=0, version=3)
    note_init(peer, seen, "own epoch", tid, producer_id=producer_id, epoch=1)
    note_init(peer, seen, "own epoch, repeated", tid, producer_id=producer_id, epoch=1)
    note_init(peer, seen, "epoch of the future", tid, producer_id=producer_id, epoch=9)
    note_init(peer, seen, "other producer", tid, producer_id=producer_id + 1_000_000, epoch=2)
    note_init(peer, seen, "other producer, last epoch", tid, producer_id=producer_id + 1_000_000, epoch=32766)
    note_init(peer, seen, "current epoch", tid, producer_id=producer_id, epoch=2)


@script()
def init_of_an_unknown_id_with_a_producer(peer: Peer, seen: Seen) -> None:
    tid = peer.name("tx")
    peer.find(tid)
    note_init(peer, seen, "unknown", tid, producer_id=123_456, epoch=7)
    note_init(peer, seen, "again", tid, producer_id=123_456, epoch=7)


def open_by_adding(peer: Peer, tid: str, producer_id: int, epoch: int) -> int:
    return peer.add(tid, producer_id, epoch, 0, topic=peer.topic)


@script()
def init_on_an_open_transaction(peer: Peer, seen: Seen) -> None:
    tid = peer.name("tx")
    peer.create_topic(peer.topic)
    producer_id, epoch = peer.begin(tid)
    for name, options in {
        "without producer": {},
        "own epoch": {"producer_id": producer_id, "epoch": -2},
        "stale epoch": {"producer_id": producer_id, "epoch": 0},
    }.items():
        seen.note("add", open_by_adding(peer, tid, producer_id, epoch))
        if options.get("epoch") == -2:
            options["epoch"] = epoch
        seen.note(f"first answer {name}", peer.init(tid, **options)[0])
        seen.note("state", peer.settle(tid))
        peer.advance(50)
        note_init(peer, seen, f"then {name}", tid, **options)
        producer_id, epoch = note_init(peer, seen, "fresh", tid)
    seen.note("add", open_by_adding(peer, tid, producer_id, epoch))
    seen.note("other producer", peer.init(tid, producer_id=producer_id + 1_000_000, epoch=epoch)[0])
    seen.note("state", peer.settle(tid))


@script()
def init_after_a_decision(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    for commit in (True, False):
        tid = peer.name(f"tx-{commit}")
        producer_id, epoch = peer.begin(tid)
        seen.note("add", open_by_adding(peer, tid, producer_id, epoch))
        seen.note("end", peer.end(tid, producer_id, epoch, commit, version=4)[0])
        seen.note("state", peer.settle(tid))
        note_init(peer, seen, "stale", tid, producer_id=producer_id, epoch=epoch + 3)
        note_init(peer, seen, "own", tid, producer_id=producer_id, epoch=epoch)
        note_init(peer, seen, "own, repeated", tid, producer_id=producer_id, epoch=epoch)
        note_init(peer, seen, "without producer", tid)


@script()
def transactional_id_expires(peer: Peer, seen: Seen) -> None:
    tid = peer.name("tx")
    producer_id, epoch = peer.begin(tid)
    peer.known(producer_id)
    peer.advance(10_500)
    seen.note("state", peer.state_of(tid))
    seen.note("end", peer.end(tid, producer_id, epoch, True, version=4)[0])
    note_init(peer, seen, "init with the old producer", tid, producer_id=producer_id, epoch=epoch)


@script()
def adding_partitions(peer: Peer, seen: Seen) -> None:
    tid = peer.name("tx")
    peer.create_topic(peer.topic)
    peer.find(tid)
    seen.note("unknown id", peer.add(tid, 1, 0, 0, topic=peer.topic))
    producer_id, epoch = peer.begin(tid)
    topic = peer.topic
    seen.note("unknown partition", peer.add(tid, producer_id, epoch, 7, topic=topic))
    both = peer.ask(
        1,
        apis.ADD_PARTITIONS_TO_TXN,
        3,
        {
            "v3_and_below_transactional_id": tid,
            "v3_and_below_producer_id": producer_id,
            "v3_and_below_producer_epoch": epoch,
            "v3_and_below_topics": [{"name": topic, "partitions": [0, 7]}],
        },
    )["results_by_topic_v3_and_below"][0]["results_by_partition"]
    seen.note("one known, one not", sorted((one["partition_index"], one["partition_error_code"]) for one in both))
    seen.note("unknown topic", peer.add(tid, producer_id, epoch, 0, topic=peer.name("nowhere")))
    seen.note("empty id", peer.add("", producer_id, epoch, 0, topic=topic))
    seen.note("other producer", peer.add(tid, producer_id + 1_000_000, epoch, 0, topic=topic))
    for version in (0, 1, 2, 3):
        seen.note(f"stale v{version}", peer.add(tid, producer_id, epoch - 1, 0, topic=topic, version=version))
    seen.note("future epoch", peer.add(tid, producer_id, epoch + 1, 0, topic=topic))
    seen.note("state", peer.state_of(tid))
    seen.note("good", peer.add(tid, producer_id, epoch, 0, topic=topic))
    seen.note("again", peer.add(tid, producer_id, epoch, 0, topic=topic))
    seen.note("more", peer.add(tid, producer_id, epoch, 0, 1, topic=topic))
    seen.note("state", peer.state_of(tid))


@script()
def producing_without_adding(peer: Peer, seen: Seen) -> None:
    tid = peer.name("tx")
    peer.create_topic(peer.topic)
    producer_id, epoch = peer.begin(tid)

    def data(sequence: int = 0, epoch: int = epoch, producer_id: int = producer_id) -> bytes:
        return batch(
            b"v", producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=True, timestamp_ms=peer.now()
        )

    for version in (3, 7, 8, 9, 10, 11):
        for name, records in {
            "not added": data(),
            "stale epoch": data(epoch=epoch - 1),
            "future epoch": data(epoch=epoch + 1),
            "other producer": data(producer_id=producer_id + 1_000_000),
        }.items():
            answer = peer.produce(records, topic=peer.topic, version=version, transactional_id=tid)
            seen.note(f"v{version} {name}", answer)
        seen.note(
            f"v{version} unknown id",
            peer.produce(data(), topic=peer.topic, version=version, transactional_id=peer.name("other")),
        )
        seen.note(f"v{version} no id", peer.produce(data(), topic=peer.topic, version=version))
    seen.note("add", peer.add(tid, producer_id, epoch, 0, topic=peer.topic))
    seen.note("sequence 5", peer.produce(data(5), topic=peer.topic, transactional_id=tid))
    seen.note("sequence 3", peer.produce(data(3), topic=peer.topic, transactional_id=tid))
    seen.note("sequence 6", peer.produce(data(6), topic=peer.topic, transactional_id=tid))
    seen.note("sequence 4", peer.produce(data(4), topic=peer.topic, transactional_id=tid))
    seen.note("stale, open", peer.produce(data(4, epoch - 1), topic=peer.topic, transactional_id=tid))
    seen.note("future, open", peer.produce(data(0, epoch + 1), topic=peer.topic, transactional_id=tid))
    plain = batch(b"v", producer_id=producer_id, epoch=epoch, sequence=6, timestamp_ms=peer.now())
    seen.note("plain batch, open", peer.produce(plain, topic=peer.topic))
    seen.note("other partition", peer.produce(data(0), topic=peer.topic, partition=1, transactional_id=tid))
