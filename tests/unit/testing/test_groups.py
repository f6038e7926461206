"""Groups of the classic protocol: rebalances, time-outs, and the members that cause them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kafka_sink.kafka.wire import apis
from kafka_sink.testing import BrokerCluster
from kafka_sink.testing.groups import CommittedOffset
from kafka_sink.testing.storage import STATE_FILE, Storage
from tests.support.cluster_client import ClusterClient


def join_body(member_id: str, instance_id: str | None = None) -> dict[str, Any]:
    return {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 5_000,
        "member_id": member_id,
        "group_instance_id": instance_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": member_id.encode()}],
    }


def promised_id(client: ClusterClient) -> str:
    client.find("g", 0)
    answer = client.ask(1, apis.JOIN_GROUP, 5, join_body(""))
    assert answer["error_code"] == 79
    return str(answer["member_id"])


def heartbeat(client: ClusterClient, member_id: str, transaction_version: int) -> int:
    body = {"group_id": "g", "generation_id": transaction_version, "member_id": member_id}
    return int(client.ask(1, apis.HEARTBEAT, 3, body)["error_code"])


def sync(client: ClusterClient, member_id: str, transaction_version: int, plan: dict[str, bytes]) -> int:
    body = {
        "group_id": "g",
        "generation_id": transaction_version,
        "member_id": member_id,
        "assignments": [{"member_id": name, "assignment": data} for name, data in plan.items()],
    }
    return client.send(1, apis.SYNC_GROUP, 3, body)


def other(client: ClusterClient) -> ClusterClient:
    """A second connection to the same core: a waiting JoinGroup blocks only its own connection."""
    return ClusterClient(client.core, connection_base=100)


def test_a_second_member_makes_the_first_join_again_and_both_get_their_part_from_the_leader(
    client: ClusterClient,
) -> None:
    first = promised_id(client)
    assert client.ask(1, apis.JOIN_GROUP, 5, join_body(first))["generation_id"] == 1
    assert client.receive(1, apis.SYNC_GROUP, 3, sync(client, first, 1, {first: b"all"}))["assignment"] == b"all"
    newcomer = other(client)
    second = promised_id(newcomer)
    waiting = newcomer.send(1, apis.JOIN_GROUP, 5, join_body(second))
    assert heartbeat(client, first, 1) == 27
    joined = client.ask(1, apis.JOIN_GROUP, 5, join_body(first))
    assert (joined["generation_id"], joined["leader"]) == (2, first)
    assert sorted(one["member_id"] for one in joined["members"]) == sorted([first, second])
    newcomer.hears_from(client)
    assert newcomer.receive(1, apis.JOIN_GROUP, 5, waiting)["members"] == []
    follower = sync(newcomer, second, 2, {})
    assert not newcomer.has_answer(follower)
    leader = sync(client, first, 2, {first: b"one", second: b"two"})
    newcomer.hears_from(client)
    assert newcomer.receive(1, apis.SYNC_GROUP, 3, follower)["assignment"] == b"two"
    assert client.receive(1, apis.SYNC_GROUP, 3, leader)["assignment"] == b"one"


def test_a_member_that_does_not_join_again_is_thrown_out_after_the_rebalance_time_out(client: ClusterClient) -> None:
    first = promised_id(client)
    client.ask(1, apis.JOIN_GROUP, 5, join_body(first))
    client.receive(1, apis.SYNC_GROUP, 3, sync(client, first, 1, {}))
    newcomer = other(client)
    second = promised_id(newcomer)
    started_ms = newcomer.now_ms
    joined = newcomer.ask(1, apis.JOIN_GROUP, 5, join_body(second))
    assert newcomer.now_ms == started_ms + 5_000
    assert (joined["error_code"], joined["leader"]) == (0, second)
    client.hears_from(newcomer)
    assert heartbeat(client, first, 1) == 25


def test_a_silent_member_is_out_after_its_session_time_out(client: ClusterClient) -> None:
    member = promised_id(client)
    client.ask(1, apis.JOIN_GROUP, 5, join_body(member))
    client.receive(1, apis.SYNC_GROUP, 3, sync(client, member, 1, {}))
    client.advance(9_999)
    assert heartbeat(client, member, 1) == 0
    client.advance(9_999)
    assert heartbeat(client, member, 1) == 0
    client.advance(10_000)
    assert heartbeat(client, member, 1) == 25


def test_a_static_member_that_comes_back_replaces_its_old_incarnation(client: ClusterClient) -> None:
    client.find("g", 0)
    old = client.ask(1, apis.JOIN_GROUP, 5, join_body("", "pod"))["member_id"]
    new = client.ask(1, apis.JOIN_GROUP, 5, join_body("", "pod"))["member_id"]
    assert old != new
    assert client.ask(1, apis.JOIN_GROUP, 5, join_body(old, "pod"))["error_code"] == 82
    body = {"group_id": "g", "generation_id": 1, "member_id": old, "group_instance_id": "pod"}
    assert client.ask(1, apis.HEARTBEAT, 3, body)["error_code"] == 82


def test_a_static_member_that_waits_is_told_that_it_is_replaced_and_its_connection_is_free(
    client: ClusterClient,
) -> None:
    slow = promised_id(client)
    client.ask(1, apis.JOIN_GROUP, 5, join_body(slow))
    old, new = other(client), ClusterClient(client.core, connection_base=200)
    waiting = old.send(1, apis.JOIN_GROUP, 5, join_body("", "pod"))
    following = old.send(1, apis.HEARTBEAT, 3, {"group_id": "g", "generation_id": 1, "member_id": slow})
    new.send(1, apis.JOIN_GROUP, 5, join_body("", "pod"))
    old.hears_from(new)
    assert old.receive(1, apis.JOIN_GROUP, 5, waiting)["error_code"] == 82
    assert old.receive(1, apis.HEARTBEAT, 3, following)["error_code"] == 27


def offsets_after_a_restart(directory: Path) -> dict[tuple[str, int], int]:
    """And after the end of the transaction."""
    core = BrokerCluster(1)
    storage = Storage(directory)
    storage.load(core)
    storage.close()
    core.groups.end_transaction(7, ["g"], is_commit=True)
    return {partition: committed.offset for partition, committed in core.groups.groups["g"].offsets.items()}


def test_offsets_are_stored_with_their_order_and_those_of_a_deleted_topic_are_not(
    client: ClusterClient, tmp_path: Path
) -> None:
    client.core.cluster.create_topic("gone", 1, 1)
    pending = {("t", 0): 50, ("t", 1): 51, ("gone", 0): 52}
    committed = {("t", 0): 100, ("gone", 0): 101}
    groups = client.core.groups
    groups.commit_in_transaction("g", 7, {key: CommittedOffset(offset, -1, "") for key, offset in pending.items()})
    groups.commit("g", {key: CommittedOffset(offset, -1, "") for key, offset in committed.items()})
    client.core.cluster.delete_topic("gone")
    Storage(tmp_path).save(client.core)
    assert offsets_after_a_restart(tmp_path) == {("t", 0): 100, ("t", 1): 51}
    # As stored by releases that did not know the order: the transaction holds.
    state = json.loads((tmp_path / STATE_FILE).read_text())
    state["groups"]["g"] = [row[:-1] for row in state["groups"]["g"]]
    state["pending_offsets"] = [
        (group, producer, [row[:-1] for row in rows]) for group, producer, rows in state["pending_offsets"]
    ]
    del state["commit_count"]
    (tmp_path / STATE_FILE).write_text(json.dumps(state))
    assert offsets_after_a_restart(tmp_path) == {("t", 0): 50, ("t", 1): 51}
