"""What an answer of a broker changes in the view of the cluster, and what it must not change."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.errors import RemoteProtocolError
from kafka_sink.kafka.client.cluster import (
    BROKERS_MAX,
    NO_TOPIC_ID,
    PARTITIONS_MAX,
    ClusterView,
    Endpoint,
    PartitionLeader,
    is_host_plausible,
    merge,
    with_leader_hints,
    without_brokers,
    without_topics,
)

ID_A, ID_B = b"A" * 16, b"B" * 16


def broker(node_id: int, host: str = "h", port: int = 9092) -> dict[str, Any]:
    return {"node_id": node_id, "host": host, "port": port}


def topic(
    name: str | None = "t",
    *,
    leaders: dict[int, int] | None = None,
    epoch: int = 0,
    error: int = 0,
    topic_id: bytes = ID_A,
) -> dict[str, Any]:
    partitions = [
        {"error_code": 0, "partition_index": index, "leader_id": leader, "leader_epoch": epoch}
        for index, leader in (({0: 1} if leaders is None else leaders) if not error else {}).items()
    ]
    return {"name": name, "error_code": error, "topic_id": bytes(16) if error else topic_id, "partitions": partitions}


def body(*topics: dict[str, Any], brokers: tuple[dict[str, Any], ...] = (), **changes: Any) -> dict[str, Any]:
    return {"brokers": brokers or (broker(1), broker(2)), "topics": topics, "cluster_id": "c", **changes}


def view_of(*topics: dict[str, Any]) -> ClusterView:
    return merge(ClusterView(), body(*topics))


def hints(
    leader_id: int, epoch: int, *, index: int = 0, endpoints: tuple[Any, ...] = (), **name: Any
) -> dict[str, Any]:
    partition = {"index": index, "error_code": 6, "current_leader": {"leader_id": leader_id, "leader_epoch": epoch}}
    return {"responses": [{**(name or {"name": "t"}), "partition_responses": [partition]}], "node_endpoints": endpoints}


def test_an_unknown_topic_has_neither_count_nor_leader() -> None:
    view = ClusterView()
    assert view.partition_count("t") is None
    assert view.leader("t", 0) is None
    assert view.available_partitions("t") == ()


def test_a_first_answer_is_taken_as_it_is() -> None:
    view = merge(ClusterView(), body(topic(leaders={0: 1, 1: 2}, epoch=4), controller_id=2))
    assert view.partition_count("t") == 2
    assert view.leader_with_epoch("t", 1) == (2, 4)
    assert view.leader("t", 0) == 1
    assert (view.topics["t"].topic_id, view.topic_name(ID_A)) == (ID_A, "t")
    assert (view.cluster_id, view.controller_id) == ("c", 2)
    assert view.brokers[1] == Endpoint("h", 9092, None)


def test_a_partition_without_leader_is_counted_but_not_available() -> None:
    view = view_of(topic(leaders={0: -1, 1: 2}))
    assert view.partition_count("t") == 2
    assert view.available_partitions("t") == (1,)
    assert view.leader("t", 0) is None


def test_a_leader_without_an_address_is_no_leader() -> None:
    view = view_of(topic(leaders={0: 77}))
    assert view.leader("t", 0) is None
    assert view.available_partitions("t") == ()


@pytest.mark.parametrize(
    ("epoch", "leader"), [(9, 1), (10, 2), (11, 2)], ids=["older is ignored", "equal is taken", "newer is taken"]
)
def test_the_leader_epoch_guards_against_older_answers(epoch: int, leader: int) -> None:
    view = merge(view_of(topic(leaders={0: 1}, epoch=10)), body(topic(leaders={0: 2}, epoch=epoch)))
    assert view.leader_with_epoch("t", 0) == (leader, max(epoch, 10))


def test_a_topic_missing_from_an_answer_that_was_asked_for_it_loses_its_leaders_but_not_its_epochs() -> None:
    view = merge(view_of(topic(epoch=100)), body(), asked=("t", "never seen"))
    assert view.partition_count("t") is None
    assert view.topics["never seen"].error_code == 3
    view = merge(view, body(topic(epoch=99)), asked=("t",))
    assert view.leader("t", 0) is None
    view = merge(view, body(topic(epoch=100)), asked=("t",))
    assert view.leader("t", 0) == 1


def test_a_topic_that_was_not_asked_for_stays_as_it_was() -> None:
    view = merge(view_of(topic("t"), topic("u", topic_id=ID_B)), body(topic("t", leaders={0: 2}, epoch=1)))
    assert (view.leader("t", 0), view.leader("u", 0)) == (2, 1)


def test_an_error_takes_the_leaders_away_and_keeps_the_epochs() -> None:
    view = merge(view_of(topic(epoch=10)), body(topic(error=3)))
    assert view.topics["t"].error_code == 3
    assert view.partition_count("t") is None
    assert view.topics["t"].partitions[0] == PartitionLeader(-1, 10)


def test_an_error_for_a_topic_does_not_tell_that_its_partitions_have_leaders() -> None:
    view = view_of(topic(leaders={0: 1, 1: -1}, epoch=4))
    for _ in range(2):
        view = merge(view, body(topic(error=3)))
        assert not view.is_leaderless("t", 0) and view.is_leaderless("t", 1)
    assert not with_leader_hints(view, hints(2, 5, index=1)).is_leaderless("t", 1)
    assert not merge(view, body(topic(leaders={0: 1, 1: 2}, epoch=5))).is_leaderless("t", 1)
    assert not merge(view, body(topic(error=3), cluster_id="another")).is_leaderless("t", 1)


def test_a_topic_created_again_starts_with_new_epochs_even_lower_ones() -> None:
    view = merge(view_of(topic(epoch=10)), body(topic(error=3)))
    view = merge(view, body(topic(epoch=5, topic_id=ID_B)))
    assert view.leader_with_epoch("t", 0) == (1, 5)
    assert view.topics["t"].topic_id == ID_B


@pytest.mark.parametrize("epoch", [3, 20])
def test_a_changed_topic_id_overrides_the_epoch_without_an_error_in_between(epoch: int) -> None:
    view = merge(view_of(topic(epoch=12)), body(topic(epoch=epoch, topic_id=ID_B)))
    assert view.leader_with_epoch("t", 0) == (1, epoch)


def test_the_first_topic_id_ever_seen_overrides_the_epoch() -> None:
    view = merge(view_of(topic(epoch=100, topic_id=bytes(16))), body(topic(epoch=10)))
    assert view.leader_with_epoch("t", 0) == (1, 10)
    assert merge(view, body(topic(epoch=9))).leader_with_epoch("t", 0) == (1, 10)


def test_an_answer_without_topic_id_removes_the_id_and_keeps_the_guard() -> None:
    view = merge(view_of(topic(epoch=10)), body(topic(epoch=9, leaders={0: 2}, topic_id=bytes(16))))
    assert view.topics["t"].topic_id == NO_TOPIC_ID
    assert view.leader_with_epoch("t", 0) == (1, 10)
    assert view.topic_name(bytes(16)) is None


def test_epochs_of_old_answer_versions_are_not_believed() -> None:
    view = merge(view_of(topic(epoch=10)), body(topic(leaders={0: 2}, epoch=3)), has_reliable_epochs=False)
    assert view.leader_with_epoch("t", 0) == (2, -1)
    assert merge(view, body(topic(epoch=1))).leader_with_epoch("t", 0) == (1, 1)


def test_new_partitions_are_seen_and_an_older_answer_does_not_take_them_away() -> None:
    view = merge(view_of(topic(leaders={0: 1})), body(topic(leaders={0: 1, 1: 2})))
    assert view.partition_count("t") == 2
    assert merge(view, body(topic(leaders={0: 1}))).partition_count("t") == 2


def test_a_topic_created_again_with_fewer_partitions_has_fewer() -> None:
    view = merge(view_of(topic(leaders={0: 1, 1: 2})), body(topic(leaders={0: 1}, topic_id=ID_B)))
    assert view.partition_count("t") == 1


def test_another_cluster_id_drops_everything_known_of_topics() -> None:
    view = merge(view_of(topic(epoch=10), topic("u")), body(topic(epoch=1, topic_id=ID_A), cluster_id="other"))
    assert view.leader_with_epoch("t", 0) == (1, 1)
    assert "u" not in view.topics


def test_brokers_are_those_of_the_last_answer() -> None:
    view = merge(view_of(topic()), body(brokers=(broker(2, "x", 1),)))
    assert dict(view.brokers) == {2: Endpoint("x", 1)}
    assert view.leader("t", 0) is None


def test_a_view_never_changes() -> None:
    old = view_of(topic(leaders={0: 1}, epoch=1))
    merge(old, body(topic(leaders={0: 2}, epoch=2)))
    with_leader_hints(old, hints(2, 5))
    assert old.leader_with_epoch("t", 0) == (1, 1)
    with pytest.raises(TypeError):
        old.topics["x"] = old.topics["t"]  # type: ignore[index]


def test_topics_and_brokers_can_be_forgotten_separately() -> None:
    view = view_of(topic("t"), topic("u", topic_id=ID_B))
    assert set(without_topics(view, {"u"}).topics) == {"t"}
    lost = without_brokers(view)
    assert (lost.partition_count("t"), lost.leader("t", 0)) == (1, None)


# ---- leader hints (KIP-951)


def test_a_newer_leader_of_a_produce_answer_is_taken_with_its_address() -> None:
    view = with_leader_hints(view_of(topic(epoch=1)), hints(9, 2, endpoints=(broker(9, "new", 9093),)))
    assert view.leader_with_epoch("t", 0) == (9, 2)
    assert view.brokers[9] == Endpoint("new", 9093)


def test_a_hint_by_topic_id_is_understood() -> None:
    view = with_leader_hints(view_of(topic(epoch=1)), hints(2, 2, topic_id=ID_A))
    assert view.leader("t", 0) == 2


@pytest.mark.parametrize(
    "useless",
    [
        hints(2, 1),
        hints(2, 0),
        hints(-1, 5),
        hints(9, 5),
        hints(2, 5, index=7),
        hints(2, 5, name="unknown"),
        hints(2, 5, topic_id=ID_B),
        {"responses": [{"name": "t", "partition_responses": [{"index": 0, "error_code": 0}]}]},
    ],
    ids=["same epoch", "older", "no leader", "no address", "no partition", "no topic", "no topic id", "no hint"],
)
def test_a_hint_that_is_old_incomplete_or_about_something_unknown_changes_nothing(useless: dict[str, Any]) -> None:
    view = view_of(topic(epoch=1))
    assert with_leader_hints(view, useless) is view


def test_hints_do_not_touch_other_partitions_and_topics() -> None:
    view = view_of(topic("t", leaders={0: 1, 1: 1}, epoch=1), topic("u", topic_id=ID_B))
    changed = with_leader_hints(view, hints(2, 2))
    assert changed.leader_with_epoch("t", 1) == (1, 1)
    assert changed.topics["u"] == view.topics["u"]
    assert changed.topics["t"].topic_id == ID_A


def test_an_older_metadata_answer_does_not_undo_a_hint() -> None:
    view = with_leader_hints(view_of(topic(epoch=1)), hints(2, 2))
    assert merge(view, body(topic(leaders={0: 1}, epoch=1))).leader("t", 0) == 2


# ---- hostile answers


@pytest.mark.parametrize(
    "bad",
    [broker(1, ""), broker(1, "a/b"), broker(1, "a b"), broker(1, "x" * 256), broker(1, "h", 0), broker(1, "h", 65_536),
     broker(1, "http://h"), broker(1, "h\n"), broker(1, "\u0430pache.org"), broker(-2)],
)  # fmt: skip
def test_an_impossible_broker_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError, match="an answer"):
        merge(ClusterView(), body(brokers=(bad,)))
    with pytest.raises(RemoteProtocolError):
        with_leader_hints(view_of(topic()), hints(1, 9, endpoints=(bad,)))


@pytest.mark.parametrize(
    "host", ["kafka_1", "10.0.0.1", "::1", "fe80::1%eth0", "b-1.msk.amazonaws.com", "xn--bcher-kva.de"]
)
def test_hosts_that_people_use_are_accepted(host: str) -> None:
    assert is_host_plausible(host)


def test_absurd_counts_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match=f"more than {BROKERS_MAX} brokers"):
        merge(ClusterView(), body(brokers=tuple(broker(index) for index in range(BROKERS_MAX + 1))))
    with pytest.raises(RemoteProtocolError, match="partition -1"):
        view_of(topic(leaders={-1: 1}))
    with pytest.raises(RemoteProtocolError, match=f"partition {PARTITIONS_MAX}"):
        view_of(topic(leaders={PARTITIONS_MAX: 1}))
    crowded = {**topic(), "partitions": range(PARTITIONS_MAX + 1)}
    with pytest.raises(RemoteProtocolError, match=f"more than {PARTITIONS_MAX}"):
        view_of(crowded)


def test_an_answer_by_topic_id_is_passed_over() -> None:
    assert dict(view_of(topic(None)).topics) == {}
