"""What follows from Metadata answers and leader hints, and when the bootstrap servers are asked again."""

from __future__ import annotations

from typing import Any

from fake_cluster import Asked, FakeCluster
from metadata_driver import asked_topics, start, tracker, until_due_ms
from network_driver import Driver, notices

from kafka_sink.wire.apis import METADATA

# ---- answers


def test_the_first_answer_makes_the_brokers_connectable() -> None:
    driver = start("t")
    driver.nodes.connect(0, driver.now_ms)
    driver.run()
    assert driver.nodes.is_ready(0, driver.now_ms)


def test_leader_epochs_of_answers_before_version_9_are_ignored() -> None:
    cluster = FakeCluster({0: ("a", 9092)}, {"t": {0: 0}}, api_versions={METADATA.key: (4, 8)})
    cluster.leader_epochs["t", 0] = 10
    driver = start("t", cluster=cluster)
    assert tracker(driver).view.leader_with_epoch("t", 0) == (0, -1)
    cluster.api_versions[METADATA.key] = (4, 9)
    cluster.disconnect(0)
    driver.run()
    driver.sleep(1_000)
    assert tracker(driver).view.leader_with_epoch("t", 0) == (0, 10)


def test_a_hostile_answer_changes_nothing_and_is_reported() -> None:
    driver = start("t")
    before = tracker(driver).view

    def hostile(asked: Asked) -> dict[str, Any]:
        return {**driver.cluster.metadata_body(asked), "brokers": [{"node_id": 0, "host": "/etc/passwd", "port": 1}]}

    driver.cluster.scripts[METADATA.key] = hostile
    tracker(driver).request_update()
    (notice,) = notices(driver.sleep(100))
    assert "a Metadata answer is ignored: an answer gives broker 0 the impossible address" in notice
    assert tracker(driver).view is before


def test_a_new_leader_of_a_produce_answer_is_known_and_connectable_without_asking() -> None:
    driver = start("t")
    partition = {"index": 0, "error_code": 6, "current_leader": {"leader_id": 7, "leader_epoch": 5}}
    endpoint = {"node_id": 7, "host": "b", "port": 9092}
    hints = {"responses": [{"name": "t", "partition_responses": [partition]}], "node_endpoints": [endpoint]}
    assert tracker(driver).on_leader_hints(hints, driver.now_ms)
    assert tracker(driver).view.leader_with_epoch("t", 0) == (7, 5)
    assert not tracker(driver).on_leader_hints(hints, driver.now_ms)
    driver.nodes.connect(7, driver.now_ms)
    assert len(driver.nodes.take_commands()) == 1
    assert len(asked_topics(driver)) == 1


def test_hostile_leader_hints_are_ignored_and_reported() -> None:
    driver = start("t")
    hints = {"responses": [], "node_endpoints": [{"node_id": 7, "host": "", "port": 9092}]}
    assert not tracker(driver).on_leader_hints(hints, driver.now_ms)
    assert "leader hints are ignored" in notices(driver.run())[0]


def test_a_broker_too_old_for_metadata_is_named_as_the_trouble() -> None:
    driver = start("t", cluster=FakeCluster({0: ("a", 9092)}, {"t": {0: 0}}, api_versions={METADATA.key: (0, 3)}))
    assert "offers versions 0 to 3" in tracker(driver).topic_trouble("t")


# ---- back to the bootstrap servers


def moved_cluster(**options: Any) -> Driver:
    """Brokers 0 and 1 are known; then the whole cluster moves to broker 5, where the bootstrap name points now."""
    cluster = FakeCluster({0: ("a", 9092), 1: ("b", 9092)}, {"t": {0: 0}})
    cluster.addresses["boot"] = ((2, ("a", 9092)),)
    driver = start("t", cluster=cluster, bootstrap_servers=(("boot", 9092),), **options)
    cluster.addresses["boot"] = ((2, ("new", 9092)),)
    cluster.brokers = {0: ("a", 9092), 1: ("b", 9092), 5: ("new", 9092)}
    cluster.topics = {"t": {0: 5}}
    cluster.leader_epochs["t", 0] = 1
    return driver


def cut_off(driver: Driver) -> list[str]:
    """Nobody known can be reached any more: connections are cut, and new ones refused."""
    driver.cluster.refusing |= {0, 1}
    driver.cluster.disconnect(0)
    driver.cluster.disconnect(1)
    return [text for _ in range(12) for text in notices(driver.sleep(60))]


def test_the_bootstrap_servers_are_asked_when_every_known_broker_has_just_failed() -> None:
    driver = moved_cluster()
    reported = cut_off(driver)
    assert any("back to the bootstrap servers: no known broker can be reached" in text for text in reported)
    assert tracker(driver).view.leader("t", 0) == 5


def test_without_the_recovery_strategy_the_known_brokers_are_kept() -> None:
    driver = moved_cluster(metadata_recovery_strategy="none")
    cut_off(driver)
    assert set(tracker(driver).view.brokers) == {0, 1}


def test_back_at_the_bootstrap_servers_topics_are_remembered_without_leaders() -> None:
    driver = moved_cluster()
    driver.cluster.refusing = {5}
    cut_off(driver)
    assert dict(tracker(driver).view.brokers) == {}
    assert tracker(driver).view.partition_count("t") == 1
    assert tracker(driver).view.leader("t", 0) is None
    driver.cluster.refusing.clear()
    for _ in range(30):
        driver.sleep(100)
    assert tracker(driver).view.leader("t", 0) == 5


def test_a_broker_can_send_its_clients_back_to_the_bootstrap_servers() -> None:
    driver = moved_cluster()
    asked_before = len(asked_topics(driver))

    def once(asked: Asked) -> dict[str, Any]:
        driver.cluster.scripts[METADATA.key] = driver.cluster.metadata_body
        return {"brokers": [], "topics": [], "error_code": 129}

    driver.cluster.scripts[METADATA.key] = once
    tracker(driver).request_update()
    reported = notices(driver.sleep(100))
    assert any("a broker asked for it" in text for text in reported)
    driver.sleep(100)
    assert len(asked_topics(driver)) == asked_before + 2
    assert driver.cluster.requests_of(METADATA)[-1].node_id == 5


def test_a_code_that_sends_clients_back_is_only_a_failure_without_the_strategy() -> None:
    driver = moved_cluster(metadata_recovery_strategy="none")
    driver.cluster.scripts[METADATA.key] = lambda asked: {"brokers": [], "topics": [], "error_code": 129}
    tracker(driver).request_update()
    driver.sleep(100)
    assert set(tracker(driver).view.brokers) == {0, 1}
    assert "(129)" in str(tracker(driver).last_failure)


def test_brokers_that_do_not_answer_for_the_trigger_time_are_given_up() -> None:
    driver = moved_cluster(metadata_recovery_rebootstrap_trigger_ms=20_000, request_timeout_ms=6_000)
    driver.cluster.silent = {0, 1}
    tracker(driver).request_update()
    reported = []
    for _ in range(500):
        reported += notices(driver.sleep(50))
    assert any("back to the bootstrap servers: no broker answered for 2" in text for text in reported), reported
    assert tracker(driver).view.leader("t", 0) == 5


def test_while_waiting_for_a_node_the_tracker_wakes_at_the_end_of_its_back_off() -> None:
    driver = start(cluster=FakeCluster({0: ("a", 9092)}), bootstrap_servers=(("nowhere", 1),))
    assert driver.nodes.least_loaded(driver.now_ms) is None
    assert until_due_ms(driver) == 50
    assert "nowhere:1 (bootstrap server)" in tracker(driver).topic_trouble("t")
