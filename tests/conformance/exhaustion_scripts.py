"""The end of a producer id: epochs 32766 and 32767, reached with some thirty thousand requests for an epoch."""

from __future__ import annotations

from kafka_sink.kafka.wire import apis
from tests.conformance.end_scripts import data, settled_end
from tests.conformance.init_scripts import note_init, settled_init
from tests.conformance.peer import Peer
from tests.conformance.script import Seen, script

EPOCH_LAST = 32766
AT_ONCE = 500


def used_up(peer: Peer, tid: str) -> int:
    """A producer id whose epoch is the last one a client may have."""
    producer_id, epoch = peer.begin(tid)
    body = {"transactional_id": tid, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    while epoch < EPOCH_LAST:
        answers = peer.ask_many(apis.INIT_PRODUCER_ID, 4, [body] * min(AT_ONCE, EPOCH_LAST - epoch))
        assert all(answer["error_code"] == 0 for answer in answers)
        epoch = answers[-1]["producer_epoch"]
    assert (answers[-1]["producer_id"], epoch) == (producer_id, EPOCH_LAST)
    peer.known(producer_id)
    return producer_id


@script()
def init_at_the_last_epoch(peer: Peer, seen: Seen) -> None:
    tid = peer.name("tx")
    producer_id = used_up(peer, tid)
    note_init(peer, seen, "stale epoch", tid, producer_id=producer_id, epoch=5)
    note_init(peer, seen, "own epoch", tid, producer_id=producer_id, epoch=EPOCH_LAST)
    note_init(peer, seen, "own epoch, repeated", tid, producer_id=producer_id, epoch=EPOCH_LAST)
    note_init(peer, seen, "new", tid)


@script()
def a_version_1_transaction_at_the_last_epoch(peer: Peer, seen: Seen) -> None:
    tid = peer.name("tx")
    peer.create_topic(peer.topic)
    producer_id = used_up(peer, tid)
    for commit in (True, False):
        seen.note("add", peer.add(tid, producer_id, EPOCH_LAST, 0, topic=peer.topic))
        seen.note("end", peer.end(tid, producer_id, EPOCH_LAST, commit, version=4)[0])
        peer.settle(tid)
        seen.note("end again", peer.end(tid, producer_id, EPOCH_LAST, commit, version=4)[0])
    seen.note("add", peer.add(tid, producer_id, EPOCH_LAST, 0, topic=peer.topic))
    seen.note("fence", peer.init(tid)[0])
    seen.note("state", peer.settle(tid))
    peer.advance(50)
    seen.note("end by the fenced", peer.end(tid, producer_id, EPOCH_LAST, True, version=4)[0])
    code, new_id, epoch = settled_init(peer, tid)
    seen.note("then", (code, peer.known(new_id), epoch))
    for partition in (0, 1):
        records = data(peer, producer_id, EPOCH_LAST)
        answer = peer.produce(records, topic=peer.topic, partition=partition, transactional_id=tid, version=11)
        seen.note(f"late batch {partition}", answer)


@script(needs_version_2=True)
def a_version_2_transaction_at_the_last_epoch(peer: Peer, seen: Seen) -> None:
    tid = peer.name("tx")
    peer.create_topic(peer.topic)
    producer_id = used_up(peer, tid)
    records = data(peer, producer_id, EPOCH_LAST)
    seen.note("produce", peer.produce(records, topic=peer.topic, transactional_id=tid, version=12))
    code, new_id, epoch = peer.end(tid, producer_id, EPOCH_LAST, True, version=5)
    seen.note("commit", (code, peer.known(new_id), epoch))
    seen.note("state", peer.settle(tid))
    for version, commit in ((5, True), (5, False), (4, True)):
        answer = settled_end(peer, tid, producer_id, EPOCH_LAST, commit, version=version)
        seen.note(f"repeated {version} {commit}", answer)
    seen.note("stale", settled_end(peer, tid, producer_id, EPOCH_LAST - 1, True, version=5))
    seen.note("late batch", peer.produce(records, topic=peer.topic, transactional_id=tid, version=12))
    seen.note("abort of nothing", settled_end(peer, tid, new_id, epoch, False, version=5))
    peer.settle(tid)
    seen.note("the old one again", settled_end(peer, tid, producer_id, EPOCH_LAST, True, version=5))
    note_init(peer, seen, "init by the old one", tid, producer_id=producer_id, epoch=EPOCH_LAST)
    note_init(peer, seen, "init", tid)
