"""EndTxn by state, decision and epoch, in both transaction versions; fencing; time-outs; late batches."""

from __future__ import annotations

from tests.conformance.init_scripts import note_init
from tests.conformance.peer import Peer
from tests.conformance.script import Seen, script
from tests.support.broker_requests import batch

DECISIONS = ((True, "commit"), (False, "abort"))


def data(peer: Peer, producer_id: int, epoch: int, sequence: int = 0) -> bytes:
    return batch(
        b"v", producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=True, timestamp_ms=peer.now()
    )


def open_transaction(peer: Peer, tid: str, *, version: int) -> tuple[int, int]:
    """Opens a transaction at epoch 1 or above, so that there is a stale epoch."""
    peer.begin(tid)
    producer_id, epoch, is_open = try_open(peer, tid, version=version, timeout_ms=60_000)
    assert is_open
    return producer_id, epoch


def try_open(peer: Peer, tid: str, *, version: int, timeout_ms: int) -> tuple[int, int, bool]:
    """The last value says whether the batch was accepted before the time-out."""
    producer_id, epoch = peer.begin(tid, timeout_ms=timeout_ms)
    if version < 5 and peer.add(tid, producer_id, epoch, 0, topic=peer.topic) != 0:
        return producer_id, epoch, False
    records = data(peer, producer_id, epoch)
    produce_version = 12 if version == 5 else 11
    code = peer.produce(records, topic=peer.topic, transactional_id=tid, version=produce_version)[0]
    return producer_id, epoch, code == 0


def settled_end(
    peer: Peer, tid: str, producer_id: int, epoch: int, commit: bool, *, version: int
) -> tuple[int, str, int]:
    for _ in range(500):
        code, new_id, new_epoch = peer.end(tid, producer_id, epoch, commit, version=version)
        if code != 51:
            return code, peer.known(new_id), new_epoch
        peer.advance(10)
    raise AssertionError("CONCURRENT_TRANSACTIONS for ever")


def note_table(peer: Peer, seen: Seen, state: str, make_state: str, *, version: int) -> None:
    """Each cell has its own transaction, because an accepted request changes the state."""
    for commit, decision in DECISIONS:
        for epoch_step in (-1, 0, 1, 2):
            for same_producer in (True, False):
                tid = peer.name(f"tx-{state}-{decision}-{epoch_step}-{same_producer}-{version}")
                producer_id, epoch = MAKERS[make_state](peer, tid, version)
                asked_id = producer_id if same_producer else producer_id + 1_000_000
                peer.known(producer_id)
                code, new_id, new_epoch = settled_end(peer, tid, asked_id, epoch + epoch_step, commit, version=version)
                cell = f"{state}: {decision} v{version} epoch{epoch_step:+d} {'own' if same_producer else 'other'} id"
                own = new_id == peer.known(producer_id)
                seen.note(cell, (code, own, new_epoch - epoch if own else new_epoch, peer.settle(tid)))


def make_empty(peer: Peer, tid: str, version: int) -> tuple[int, int]:
    peer.begin(tid)
    return peer.begin(tid)


def make_ongoing(peer: Peer, tid: str, version: int) -> tuple[int, int]:
    return open_transaction(peer, tid, version=version)


def make_committed(peer: Peer, tid: str, version: int) -> tuple[int, int]:
    producer_id, epoch = open_transaction(peer, tid, version=version)
    assert peer.end(tid, producer_id, epoch, True, version=version)[0] == 0
    peer.settle(tid)
    return producer_id, epoch


def make_aborted(peer: Peer, tid: str, version: int) -> tuple[int, int]:
    producer_id, epoch = open_transaction(peer, tid, version=version)
    assert peer.end(tid, producer_id, epoch, False, version=version)[0] == 0
    peer.settle(tid)
    return producer_id, epoch


def make_fenced(peer: Peer, tid: str, version: int) -> tuple[int, int]:
    """Another InitProducerId has aborted the transaction and was not repeated."""
    producer_id, epoch = open_transaction(peer, tid, version=version)
    assert peer.init(tid)[0] == 51
    peer.settle(tid)
    peer.advance(50)
    return producer_id, epoch


def make_taken_over(peer: Peer, tid: str, version: int) -> tuple[int, int]:
    producer_id, epoch = open_transaction(peer, tid, version=version)
    peer.begin(tid)
    return producer_id, epoch


def make_timed_out(peer: Peer, tid: str, version: int) -> tuple[int, int]:
    peer.begin(tid)
    for timeout_ms in (50, 500, 5000):  # a busy machine needs the longer ones
        producer_id, epoch, is_open = try_open(peer, tid, version=version, timeout_ms=timeout_ms)
        if is_open:
            break
    assert is_open
    for _ in range(timeout_ms // 10 + 500):
        if peer.state_of(tid) == "CompleteAbort":
            break
        peer.advance(10)
    return producer_id, epoch


MAKERS = {
    "empty": make_empty,
    "ongoing": make_ongoing,
    "committed": make_committed,
    "aborted": make_aborted,
    "fenced": make_fenced,
    "taken over": make_taken_over,
    "timed out": make_timed_out,
}


def register_tables() -> None:
    """One script per state and transaction version."""
    for state in MAKERS:
        for version in (4, 5):

            def run(peer: Peer, seen: Seen, state: str = state, version: int = version) -> None:
                peer.create_topic(peer.topic)
                note_table(peer, seen, state, state, version=version)

            run.__name__ = f"end_{state.replace(' ', '_')}_v{version}"
            script(needs_version_2=version == 5)(run)


register_tables()


@script()
def end_of_what_is_not_there(peer: Peer, seen: Seen) -> None:
    peer.find("any")
    for version in (0, 1, 2, 3, 4):
        for commit, decision in DECISIONS:
            answer = peer.end(peer.name("no"), 1, 1, commit, version=version)
            seen.note(f"unknown v{version} {decision}", answer[0])
            seen.note(f"empty v{version} {decision}", peer.end("", 1, 1, commit, version=version)[0])
    tid = peer.name("tx")
    producer_id, epoch = peer.begin(tid)
    for version in (0, 1, 2, 3, 4):
        seen.note(f"stale v{version}", peer.end(tid, producer_id, epoch - 1, True, version=version)[0])


@script(needs_version_2=True)
def repeats_in_the_other_version(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    for first, second in ((4, 5), (5, 4)):
        for commit, decision in DECISIONS:
            tid = peer.name(f"tx-{first}-{decision}")
            producer_id, epoch = open_transaction(peer, tid, version=first)
            seen.note("first", peer.end(tid, producer_id, epoch, commit, version=first)[0])
            peer.settle(tid)
            for again, name in DECISIONS:
                answer = settled_end(peer, tid, producer_id, epoch, again, version=second)
                seen.note(f"{decision} v{first}, then {name} v{second}", answer[0])


@script(needs_version_2=True)
def several_transactions_of_version_2(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    tid = peer.name("tx")
    producer_id, epoch = peer.begin(tid)
    for commit, decision in (*DECISIONS, *DECISIONS):
        records = data(peer, producer_id, epoch)
        for _ in range(200):
            answer = peer.produce(records, topic=peer.topic, transactional_id=tid, version=12)
            if answer[0] != 51:
                break
        seen.note("produce", answer)
        code, producer_id, new_epoch = peer.end(tid, producer_id, epoch, commit, version=5)
        seen.note(decision, (code, peer.known(producer_id), new_epoch - epoch))
        peer.settle(tid)
        late = peer.produce(data(peer, producer_id, epoch, 1), topic=peer.topic, transactional_id=tid, version=12)
        seen.note("late batch", late)
        again = peer.produce(records, topic=peer.topic, transactional_id=tid, version=12)
        seen.note("late repeat", again)
        other = peer.produce(
            data(peer, producer_id, epoch), topic=peer.topic, partition=1, transactional_id=tid, version=12
        )
        seen.note("late in another partition", other)
        epoch = new_epoch
    seen.note(
        "sequence 1 first",
        peer.produce(data(peer, producer_id, epoch, 1), topic=peer.topic, transactional_id=tid, version=12),
    )
    seen.note(
        "sequence 0", peer.produce(data(peer, producer_id, epoch), topic=peer.topic, transactional_id=tid, version=12)
    )
    note_init(peer, seen, "end", tid)


@script(needs_version_2=True)
def sequences_of_a_version_2_transaction(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    tid = peer.name("tx")
    producer_id, epoch = peer.begin(tid)
    for sequence in (1, 0, 1, 1, 3, 2):
        records = data(peer, producer_id, epoch, sequence)
        seen.note(f"{sequence}", peer.produce(records, topic=peer.topic, transactional_id=tid, version=12))
    for name, records in {
        "stale": data(peer, producer_id, epoch - 1, 3),
        "future": data(peer, producer_id, epoch + 1),
        "other": data(peer, producer_id + 1_000_000, epoch),
    }.items():
        for partition in (0, 1):
            seen.note(
                f"{name} {partition}",
                peer.produce(records, topic=peer.topic, partition=partition, transactional_id=tid, version=12),
            )
    seen.note(
        "unknown id",
        peer.produce(
            data(peer, producer_id, epoch), topic=peer.topic, partition=1, transactional_id=peer.name("no"), version=12
        ),
    )
    seen.note("no id", peer.produce(data(peer, producer_id, epoch, 3), topic=peer.topic, version=12))


@script(needs_version_2=True, levels=("0",))
def version_2_without_its_feature(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    tid = peer.name("tx")
    producer_id, epoch = peer.begin(tid)
    records = data(peer, producer_id, epoch)
    for _ in range(2):
        answer = peer.produce(records, topic=peer.topic, transactional_id=tid, version=12)
        seen.note("produce", answer)
    seen.note("init", peer.init(tid)[0])
    for commit, decision in DECISIONS:
        tid = peer.name(f"tx-{decision}")
        producer_id, epoch = peer.begin(tid)
        seen.note("empty", peer.end(tid, producer_id, epoch, commit, version=5)[0])
        seen.note("empty, again", peer.end(tid, producer_id, epoch, commit, version=5)[0])


@script()
def late_batches_of_version_1(peer: Peer, seen: Seen) -> None:
    """The known gap of version 1: within one epoch a late batch joins the next transaction."""
    peer.create_topic(peer.topic)
    tid = peer.name("tx")
    producer_id, epoch = open_transaction(peer, tid, version=4)
    seen.note("commit", peer.end(tid, producer_id, epoch, True, version=4)[0])
    peer.settle(tid)
    late = data(peer, producer_id, epoch, 1)
    seen.note("late, not added", peer.produce(late, topic=peer.topic, transactional_id=tid, version=10))
    seen.note("late, not added, v11", peer.produce(late, topic=peer.topic, transactional_id=tid, version=11))
    seen.note(
        "repeat of the old batch",
        peer.produce(data(peer, producer_id, epoch), topic=peer.topic, transactional_id=tid, version=11),
    )
    seen.note("add", peer.add(tid, producer_id, epoch, 0, topic=peer.topic))
    seen.note("late, added", peer.produce(late, topic=peer.topic, transactional_id=tid, version=11))
    note_init(peer, seen, "init while open", tid)
    seen.note(
        "fenced", peer.produce(data(peer, producer_id, epoch, 2), topic=peer.topic, transactional_id=tid, version=11)
    )
    seen.note(
        "fenced elsewhere",
        peer.produce(data(peer, producer_id, epoch), topic=peer.topic, partition=1, transactional_id=tid, version=11),
    )
    seen.note("fenced add", peer.add(tid, producer_id, epoch, 0, topic=peer.topic))


@script()
def a_time_out_and_what_follows(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    tid = peer.name("tx")
    producer_id, epoch = make_timed_out(peer, tid, 4)
    seen.note(
        "produce", peer.produce(data(peer, producer_id, epoch, 1), topic=peer.topic, transactional_id=tid, version=11)
    )
    seen.note("add", peer.add(tid, producer_id, epoch, 0, topic=peer.topic))
    note_init(peer, seen, "init with the own epoch", tid, epoch_before=epoch, producer_id=producer_id, epoch=epoch)
    note_init(peer, seen, "init", tid, epoch_before=epoch)
