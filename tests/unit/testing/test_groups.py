"""Groups of the classic protocol: rebalances, time-outs, and the members that cause them."""

from __future__ import annotations

from typing import Any

from kafka_sink.kafka.wire import apis
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
