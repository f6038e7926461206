"""Groups and committed offsets: errors of the membership APIs, offsets inside and outside of transactions."""

from __future__ import annotations

from typing import Any

from kafka_sink.kafka.wire import apis
from tests.conformance.peer import Peer
from tests.conformance.script import Seen, script


def offsets(peer: Peer, group: str, *, stable: bool = False) -> list[tuple[int, int]]:
    body = {
        "groups": [{"group_id": group, "topics": [{"name": peer.topic, "partition_indexes": [0, 1]}]}],
        "require_stable": stable,
    }
    answer = peer.ask(1, apis.OFFSET_FETCH, 8, body)["groups"][0]
    if answer["error_code"]:
        return [(answer["error_code"], -1)]
    return [(one["error_code"], one["committed_offset"]) for one in answer["topics"][0]["partitions"]]


def join(
    peer: Peer,
    group: str,
    member_id: str = "",
    *,
    version: int = 5,
    session_ms: int = 10_000,
    protocol_type: str = "consumer",
    protocols: tuple[str, ...] = ("range",),
) -> dict[str, Any]:
    body = {
        "group_id": group,
        "session_timeout_ms": session_ms,
        "rebalance_timeout_ms": 10_000,
        "member_id": member_id,
        "protocol_type": protocol_type,
        "protocols": [{"name": name, "metadata": b"m"} for name in protocols],
    }
    return peer.ask(1, apis.JOIN_GROUP, version, body)


def commit(
    peer: Peer, group: str, offset: int, *, member_id: str = "", generation: int = -1, partition: int = 0
) -> int:
    body = {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "topics": [
            {
                "name": peer.topic,
                "partitions": [{"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}],
            }
        ],
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
        body = {
            "group_id": group,
            "generation_id": generation,
            "member_id": member_id,
            "assignments": [{"member_id": member, "assignment": b"plan"}],
        }
        answer = peer.ask(1, apis.SYNC_GROUP, 3, body)
        return answer["error_code"], answer["assignment"]

    def beat(generation: int, member_id: str) -> int:
        body = {"group_id": group, "generation_id": generation, "member_id": member_id}
        return int(peer.ask(1, apis.HEARTBEAT, 3, body)["error_code"])

    generation = joined["generation_id"]
    seen.note("commit before sync", commit(peer, group, 1, member_id=member, generation=generation))
    seen.note("sync, other generation", sync(generation + 1, member)[0])
    seen.note("sync, other member", sync(generation, "nobody")[0])
    seen.note("sync", sync(generation, member))
    seen.note("sync again", sync(generation, member))
    seen.note("heartbeat", beat(generation, member))
    seen.note("heartbeat, other generation", beat(generation + 1, member))
    seen.note("heartbeat, other member", beat(generation, "nobody"))
    seen.note("commit", commit(peer, group, 5, member_id=member, generation=generation))
    seen.note("commit, other generation", commit(peer, group, 6, member_id=member, generation=generation + 1))
    seen.note("commit from outside", commit(peer, group, 7))
    seen.note(
        "commit of an unknown partition", commit(peer, group, 7, member_id=member, generation=generation, partition=9)
    )
    seen.note("offsets", offsets(peer, group))
    seen.note("other protocol", join(peer, group, protocol_type="connect")["error_code"])
    leave = {"group_id": group, "members": [{"member_id": member}, {"member_id": "nobody"}]}
    answer = peer.ask(1, apis.LEAVE_GROUP, 4, leave)
    seen.note("leave", (answer["error_code"], [one["error_code"] for one in answer["members"]]))
    seen.note("heartbeat after", beat(generation, member))
    seen.note("commit from outside, empty", commit(peer, group, 9))
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
) -> int:
    body = {
        "transactional_id": tid,
        "group_id": group,
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "generation_id": generation,
        "member_id": member_id,
        "topics": [
            {
                "name": peer.topic,
                "partitions": [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}],
            }
        ],
    }
    answer = peer.ask(1, apis.TXN_OFFSET_COMMIT, version, body)
    return int(answer["topics"][0]["partitions"][0]["error_code"])


@script()
def offsets_in_a_transaction(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    group, tid = peer.name("g"), peer.name("tx")
    peer.find(group, 0)
    producer_id, epoch = peer.begin(tid)

    def add(producer_id: int = producer_id, epoch: int = epoch, group: str = group) -> int:
        body = {"transactional_id": tid, "producer_id": producer_id, "producer_epoch": epoch, "group_id": group}
        return int(peer.ask(1, apis.ADD_OFFSETS_TO_TXN, 3, body)["error_code"])

    for commits in (True, False):
        seen.note("add, stale", add(epoch=epoch - 1))
        seen.note("add, other producer", add(producer_id=producer_id + 1_000_000))
        seen.note("add", add())
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
        for _ in range(100):
            if offsets(peer, group, stable=True)[0][0] == 0:
                break
            peer.advance(20)
        seen.note("after", offsets(peer, group, stable=True))
    seen.note(
        "unknown generation",
        transactional_commit(peer, tid, producer_id, epoch, group, 1, version=3, generation=5, member_id="m"),
    )


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
    for _ in range(100):
        if offsets(peer, group, stable=True)[0][0] == 0:
            break
        peer.advance(20)
    seen.note("after", offsets(peer, group, stable=True))


@script(needs_version_2=True)
def describing_an_unknown_group(peer: Peer, seen: Seen) -> None:
    group = peer.name("g")
    peer.find(group, 0)
    for version in (5, 6):
        [row] = peer.ask(peer.find(group, 0), apis.DESCRIBE_GROUPS, version, {"groups": [group]})["groups"]
        seen.note(f"v{version}", (row["error_code"], row["group_state"]))
