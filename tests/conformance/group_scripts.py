"""Groups and committed offsets: errors of the membership APIs, offsets inside and outside of transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka_sink.kafka.wire import apis
from tests.conformance.peer import Peer
from tests.conformance.script import Seen, script

REBALANCE_TIMEOUT_MS = 10_000


def offsets(peer: Peer, group: str, *, topic: str = "", stable: bool = False) -> list[tuple[int, int]]:
    body = {
        "groups": [{"group_id": group, "topics": [{"name": topic or peer.topic, "partition_indexes": [0, 1]}]}],
        "require_stable": stable,
    }
    answer = peer.ask(1, apis.OFFSET_FETCH, 8, body)["groups"][0]
    if answer["error_code"]:
        return [(answer["error_code"], -1)]
    return [(one["error_code"], one["committed_offset"]) for one in answer["topics"][0]["partitions"]]


def settled_offsets(peer: Peer, group: str, topic: str = "") -> list[tuple[int, int]]:
    """After the end of a transaction: the group's coordinator gets the marker a moment later."""
    found = offsets(peer, group, topic=topic, stable=True)
    for _ in range(100):
        if found[0][0] == 0:
            break
        peer.advance(20)
        found = offsets(peer, group, topic=topic, stable=True)
    return found


def join_body(
    group: str,
    member_id: str = "",
    *,
    instance: str | None = None,
    session_ms: int = 10_000,
    protocol_type: str = "consumer",
    protocols: tuple[str, ...] = ("range",),
) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout_ms": session_ms,
        "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
        "member_id": member_id,
        "group_instance_id": instance,
        "protocol_type": protocol_type,
        "protocols": [{"name": name, "metadata": b"m"} for name in protocols],
    }


def join(peer: Peer, group: str, member_id: str = "", *, version: int = 5, **options: Any) -> dict[str, Any]:
    return peer.ask(1, apis.JOIN_GROUP, version, join_body(group, member_id, **options))


def sync_body(group: str, member_id: str, generation: int, instance: str | None = None) -> dict[str, Any]:
    """The leader gives the plan to itself."""
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": instance,
        "assignments": [{"member_id": member_id, "assignment": b"plan"}],
    }


def beat(peer: Peer, group: str, member_id: str, generation: int, instance: str | None = None) -> int:
    body = {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": instance,
    }
    return int(peer.ask(1, apis.HEARTBEAT, 3, body)["error_code"])


def leave(peer: Peer, group: str, *members: tuple[str, str | None]) -> list[int]:
    asked = [{"member_id": member_id, "group_instance_id": instance} for member_id, instance in members]
    answer = peer.ask(1, apis.LEAVE_GROUP, 4, {"group_id": group, "members": asked})
    return [answer["error_code"], *(one["error_code"] for one in answer["members"])]


def commit(
    peer: Peer,
    group: str,
    offset: int,
    *,
    member_id: str = "",
    generation: int = -1,
    partition: int = 0,
    instance: str | None = None,
    topic: str = "",
    metadata: str = "",
) -> int:
    asked = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
    body = {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "group_instance_id": instance,
        "topics": [{"name": topic or peer.topic, "partitions": [asked]}],
    }
    return int(peer.ask(1, apis.OFFSET_COMMIT, 7, body)["topics"][0]["partitions"][0]["error_code"])


@script()
def group_of_one(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    group = peer.name("g")
    peer.find(group, 0)
    seen.note("empty group id", join(peer, "")["error_code"])
    seen.note("session too short", join(peer, group, session_ms=10)["error_code"])
    seen.note("unknown member", join(peer, group, "nobody")["error_code"])
    seen.note("no protocol", join(peer, group, protocols=())["error_code"])
    seen.note("no protocol type", join(peer, group, protocol_type="")["error_code"])
    first = join(peer, group)
    seen.note("member id required", (first["error_code"], bool(first["member_id"])))
    member = first["member_id"]
    joined = join(peer, group, member)
    seen.note(
        "joined",
        (
            joined["error_code"],
            joined["generation_id"],
            joined["leader"] == member,
            joined["protocol_name"],
            len(joined["members"]),
        ),
    )

    def sync(generation: int, member_id: str) -> tuple[int, bytes]:
        answer = peer.ask(1, apis.SYNC_GROUP, 3, sync_body(group, member_id, generation))
        return answer["error_code"], answer["assignment"]

    generation = joined["generation_id"]
    seen.note("commit before sync", commit(peer, group, 1, member_id=member, generation=generation))
    seen.note("sync, other generation", sync(generation + 1, member)[0])
    seen.note("sync, other member", sync(generation, "nobody")[0])
    seen.note("sync", sync(generation, member))
    seen.note("sync again", sync(generation, member))
    seen.note("heartbeat", beat(peer, group, member, generation))
    seen.note("heartbeat, other generation", beat(peer, group, member, generation + 1))
    seen.note("heartbeat, other member", beat(peer, group, "nobody", generation))
    seen.note("commit", commit(peer, group, 5, member_id=member, generation=generation))
    seen.note("commit, other generation", commit(peer, group, 6, member_id=member, generation=generation + 1))
    seen.note("commit from outside", commit(peer, group, 7))
    seen.note(
        "commit of an unknown partition", commit(peer, group, 7, member_id=member, generation=generation, partition=9)
    )
    seen.note("offsets", offsets(peer, group))
    seen.note("other protocol", join(peer, group, protocol_type="connect")["error_code"])
    seen.note("leave", leave(peer, group, (member, None), ("nobody", None)))
    seen.note("heartbeat after", beat(peer, group, member, generation))
    seen.note("commit from outside, empty", commit(peer, group, 9))
    seen.note("commit of somebody without a generation, empty", commit(peer, group, 10, member_id="nobody"))
    seen.note("commit of an instance, empty", commit(peer, group, 11, instance="nobody"))
    seen.note("offsets", offsets(peer, group))
    seen.note("old versions need no id", join(peer, group, version=3)["error_code"])


@script()
def offsets_without_a_group(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    group = peer.name("g")
    peer.find(group, 0)
    seen.note("nothing", offsets(peer, group))
    seen.note("commit", commit(peer, group, 3))
    seen.note("there", offsets(peer, group))
    seen.note("with a generation", commit(peer, peer.name("other"), 3, member_id="m", generation=4))


def transactional_commit(
    peer: Peer,
    tid: str,
    producer_id: int,
    epoch: int,
    group: str,
    offset: int,
    *,
    version: int,
    generation: int = -1,
    member_id: str = "",
    instance: str | None = None,
    topic: str = "",
    metadata: str = "",
) -> int:
    asked = {"partition_index": 0, "committed_offset": offset, "committed_metadata": metadata}
    body = {
        "transactional_id": tid,
        "group_id": group,
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": instance,
        "topics": [{"name": topic or peer.topic, "partitions": [asked]}],
    }
    answer = peer.ask(1, apis.TXN_OFFSET_COMMIT, version, body)
    return int(answer["topics"][0]["partitions"][0]["error_code"])


def add_offsets(peer: Peer, tid: str, producer_id: int, epoch: int, group: str) -> int:
    body = {"transactional_id": tid, "producer_id": producer_id, "producer_epoch": epoch, "group_id": group}
    return int(peer.ask(1, apis.ADD_OFFSETS_TO_TXN, 3, body)["error_code"])


def begin_with_offsets(peer: Peer, tid: str, group: str) -> tuple[int, int]:
    peer.find(group, 0)
    producer_id, epoch = peer.begin(tid)
    assert add_offsets(peer, tid, producer_id, epoch, group) == 0
    return producer_id, epoch


def end_with_offsets(peer: Peer, tid: str, producer_id: int, epoch: int) -> None:
    assert peer.end(tid, producer_id, epoch, True, version=4)[0] == 0
    peer.settle(tid)


@script()
def offsets_in_a_transaction(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    group, tid = peer.name("g"), peer.name("tx")
    peer.find(group, 0)
    producer_id, epoch = peer.begin(tid)

    for commits in (True, False):
        seen.note("add, stale", add_offsets(peer, tid, producer_id, epoch - 1, group))
        seen.note("add, other producer", add_offsets(peer, tid, producer_id + 1_000_000, epoch, group))
        seen.note("add", add_offsets(peer, tid, producer_id, epoch, group))
        for version in (0, 2, 3, 4):
            seen.note(
                f"commit v{version}",
                transactional_commit(
                    peer, tid, producer_id, epoch, group, 10 + version if commits else 50, version=version
                ),
            )
        seen.note("pending", offsets(peer, group))
        seen.note("pending, stable", offsets(peer, group, stable=True))
        seen.note("end", peer.end(tid, producer_id, epoch, commits, version=4)[0])
        peer.settle(tid)
        seen.note("after", settled_offsets(peer, group))
    seen.note(
        "unknown generation",
        transactional_commit(peer, tid, producer_id, epoch, group, 1, version=3, generation=5, member_id="m"),
    )


@script()
def offsets_of_a_deleted_topic(peer: Peer, seen: Seen) -> None:
    """Those of a transaction that is open meanwhile, too; those of other topics stay."""
    other, group, tid = peer.name("other"), peer.name("g"), peer.name("tx")
    producer_id, epoch = begin_with_offsets(peer, tid, group)
    for topic in (peer.topic, other):
        peer.create_topic(topic)
        seen.note("commit", commit(peer, group, 5, topic=topic))
        code = transactional_commit(peer, tid, producer_id, epoch, group, 9, version=3, topic=topic)
        seen.note("commit in a transaction", code)
    peer.delete_topic(peer.topic)
    for _ in range(100):
        if offsets(peer, group)[0][1] < 0:
            break
        peer.advance(20)
    seen.note("deleted", offsets(peer, group))
    seen.note("deleted, stable", offsets(peer, group, stable=True))
    peer.create_topic(peer.topic)
    seen.note("created again", offsets(peer, group))
    end_with_offsets(peer, tid, producer_id, epoch)
    seen.note("the other topic", settled_offsets(peer, group, other))
    seen.note("committed", settled_offsets(peer, group))


@script()
def plain_commits_during_a_transaction(peer: Peer, seen: Seen) -> None:
    """The later of two commits holds, not that of the transaction."""
    peer.create_topic(peer.topic)
    group = peer.name("g")
    first, second = peer.name("tx1"), peer.name("tx2")
    one, two = begin_with_offsets(peer, first, group), begin_with_offsets(peer, second, group)
    seen.note("in the first", transactional_commit(peer, first, *one, group, 50, version=3))
    seen.note("plain", commit(peer, group, 100))
    seen.note("in the second", transactional_commit(peer, second, *two, group, 70, version=3))
    seen.note("pending", offsets(peer, group, stable=True))
    end_with_offsets(peer, first, *one)
    peer.advance(100)
    seen.note("the first has ended", offsets(peer, group))
    end_with_offsets(peer, second, *two)
    seen.note("the second has ended", settled_offsets(peer, group))
    one, two = begin_with_offsets(peer, first, group), begin_with_offsets(peer, second, group)
    seen.note("in the first again", transactional_commit(peer, first, *one, group, 30, version=3))
    seen.note("in the second again", transactional_commit(peer, second, *two, group, 40, version=3))
    end_with_offsets(peer, second, *two)
    peer.advance(100)
    seen.note("the later one has ended", offsets(peer, group))
    end_with_offsets(peer, first, *one)
    seen.note("both have ended", settled_offsets(peer, group))


@script()
def metadata_of_offsets(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    group, tid = peer.name("g"), peer.name("tx")
    producer_id, epoch = begin_with_offsets(peer, tid, group)
    for length in (4096, 4097):
        seen.note(f"plain {length}", commit(peer, group, length, metadata="m" * length))
    partitions = [
        {"partition_index": index, "committed_offset": length, "committed_metadata": "m" * length}
        for index, length in enumerate((4097, 4096))
    ]
    body = {
        "transactional_id": tid,
        "group_id": group,
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "topics": [{"name": peer.topic, "partitions": partitions}],
    }
    answer = peer.ask(1, apis.TXN_OFFSET_COMMIT, 3, body)["topics"][0]["partitions"]
    # Kafka answers in the order of a hash map.
    seen.note("in a transaction", sorted((one["partition_index"], one["error_code"]) for one in answer))
    code = transactional_commit(peer, tid, producer_id, epoch, group, 1, version=3, metadata="m" * 5000)
    seen.note("in a transaction, alone", code)
    end_with_offsets(peer, tid, producer_id, epoch)
    seen.note("after", settled_offsets(peer, group))


@script()
def static_member_that_is_replaced(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    group, tid = peer.name("g"), peer.name("tx")
    producer = begin_with_offsets(peer, tid, group)

    def start() -> tuple[str, int]:
        joined = join(peer, group, instance="pod")
        member_id, generation = joined["member_id"], joined["generation_id"]
        body = sync_body(group, member_id, generation, "pod")
        seen.note("starts", (joined["error_code"], peer.ask(1, apis.SYNC_GROUP, 3, body)["error_code"]))
        return member_id, generation

    old, _ = start()
    new, generation = start()
    seen.note("another id", new != old)
    for name, member in (("old", old), ("new", new), ("unknown", "nobody"), ("none", "")):
        for instance in ("pod", "nobody", None):
            codes = (
                beat(peer, group, member, generation, instance),
                peer.ask(1, apis.SYNC_GROUP, 3, sync_body(group, member, generation, instance))["error_code"],
                commit(peer, group, 1, member_id=member, generation=generation, instance=instance),
                commit(peer, group, 2, member_id=member, instance=instance),
                transactional_commit(
                    peer,
                    tid,
                    *producer,
                    group,
                    3,
                    version=3,
                    member_id=member,
                    generation=generation,
                    instance=instance,
                ),
            )
            seen.note(f"{name} as {instance}: heartbeat, sync, commits", codes)
    for name, member, instance in (("old", old, "pod"), ("old", old, None), ("new", new, "nobody")):
        seen.note(f"{name} as {instance}: join", join(peer, group, member, instance=instance)["error_code"])
        seen.note(f"{name} as {instance}: leave", leave(peer, group, (member, instance)))
    seen.note("no rebalance", beat(peer, group, new, generation, "pod"))
    seen.note("the instance leaves", leave(peer, group, ("", "nobody"), ("", "pod")))
    seen.note("it has left", beat(peer, group, new, generation, "pod"))


@script()
def static_member_that_is_replaced_while_it_waits(peer: Peer, seen: Seen) -> None:
    """In JoinGroup for a member that is slow, and in SyncGroup for the plan."""
    group = peer.name("g")
    peer.find(group, 0)

    def join_as_pod() -> Callable[[], dict[str, Any]]:
        return peer.ask_later(1, apis.JOIN_GROUP, 5, join_body(group, instance="pod"))

    joined = join(peer, group, instance="slow")
    slow, generation = joined["member_id"], joined["generation_id"]
    peer.ask(1, apis.SYNC_GROUP, 3, sync_body(group, slow, generation, "slow"))
    old = join_as_pod()
    while beat(peer, group, slow, generation, "slow") == 0:
        peer.advance(20)
    new = join_as_pod()
    fenced = old()
    seen.note("waited in JoinGroup", (fenced["error_code"], fenced["leader"], fenced["members"]))
    joined = join(peer, group, slow, instance="slow")
    seen.note("all have joined", (joined["error_code"], len(joined["members"])))
    joined = new()
    seen.note("the new one", (joined["error_code"], joined["leader"] == slow))
    body = sync_body(group, joined["member_id"], joined["generation_id"], "pod")
    waiting = peer.ask_later(1, apis.SYNC_GROUP, 3, body)
    peer.advance(100)
    join_as_pod()
    seen.note("waited in SyncGroup", waiting()["error_code"])


@script(needs_version_2=True)
def offsets_in_a_version_2_transaction(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    group, tid = peer.name("g"), peer.name("tx")
    peer.find(group, 0)
    producer_id, epoch = peer.begin(tid)
    seen.note("stale", transactional_commit(peer, tid, producer_id, epoch - 1, group, 1, version=5))
    seen.note("other producer", transactional_commit(peer, tid, producer_id + 1_000_000, epoch, group, 1, version=5))
    seen.note("commit", transactional_commit(peer, tid, producer_id, epoch, group, 77, version=5))
    seen.note("pending, stable", offsets(peer, group, stable=True))
    seen.note("end", peer.end(tid, producer_id, epoch, True, version=5)[0])
    peer.settle(tid)
    seen.note("after", settled_offsets(peer, group))


@script(needs_version_2=True)
def describing_an_unknown_group(peer: Peer, seen: Seen) -> None:
    group = peer.name("g")
    peer.find(group, 0)
    for version in (5, 6):
        [row] = peer.ask(peer.find(group, 0), apis.DESCRIBE_GROUPS, version, {"groups": [group]})["groups"]
        seen.note(f"v{version}", (row["error_code"], row["group_state"]))
