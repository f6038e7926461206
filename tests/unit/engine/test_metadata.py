"""When metadata is asked for, with which topics, and what follows from the answers and from their absence."""

from __future__ import annotations

from typing import Any

import pytest
from fake_cluster import Asked, FakeCluster
from network_driver import Driver, notices

from kafka_sink.engine.metadata import Metadata, MetadataQuestion
from kafka_sink.engine.request import Answer, Request
from kafka_sink.errors import AuthorizationError, BrokerError, TransportError
from kafka_sink.wire.apis import METADATA

AGE_MS = 300_000


def start(*topics: str, cluster: FakeCluster | None = None, **options: Any) -> Driver:
    driver = Driver(cluster, has_metadata=True, **options)
    for topic in topics:
        tracker(driver).want_topic(topic, driver.now_ms)
    driver.run()
    return driver


def tracker(driver: Driver) -> Metadata:
    assert driver.metadata is not None
    return driver.metadata


def asked_topics(driver: Driver) -> list[list[str]]:
    requests = driver.cluster.requests_of(METADATA)
    return [[topic["name"] for topic in asked.body["topics"]] for asked in requests]


def until_due_ms(driver: Driver) -> int:
    deadline_ms = tracker(driver).next_deadline_ms(driver.now_ms)
    assert deadline_ms is not None
    return deadline_ms - driver.now_ms


def two_topics() -> FakeCluster:
    return FakeCluster({0: ("a", 9092)}, {"t": {0: 0}, "u": {0: 0}, "v": {0: 0}})


# ---- when to ask


def test_the_first_question_is_asked_at_once_of_a_bootstrap_server() -> None:
    driver = start("t")
    assert asked_topics(driver) == [["t"]]
    (asked,) = driver.cluster.requests_of(METADATA)
    assert asked.body["allow_auto_topic_creation"] is True
    assert tracker(driver).view.leader("t", 0) == 0


def test_without_any_topic_the_brokers_are_asked_for_alone() -> None:
    driver = start()
    assert asked_topics(driver) == [[]]
    assert set(tracker(driver).view.brokers) == {0}


def test_topics_are_not_created_when_that_is_forbidden() -> None:
    driver = start("t", allow_auto_create_topics=False)
    (asked,) = driver.cluster.requests_of(METADATA)
    assert asked.body["allow_auto_topic_creation"] is False


def test_a_refresh_is_due_when_the_metadata_has_reached_its_age() -> None:
    driver = start("t")
    assert until_due_ms(driver) == AGE_MS
    driver.sleep(AGE_MS - 1)
    assert len(asked_topics(driver)) == 1
    driver.sleep(1)
    assert len(asked_topics(driver)) == 2


@pytest.mark.parametrize(("backoff_ms", "age_ms"), [(100, 1000), (1000, 100), (0, 100), (100, 0)])
def test_the_later_of_age_and_back_off_counts(backoff_ms: int, age_ms: int) -> None:
    driver = start("t", retry_backoff_ms=backoff_ms, retry_backoff_max_ms=backoff_ms, metadata_max_age_ms=age_ms)
    assert until_due_ms(driver) == max(backoff_ms, age_ms)


def test_a_requested_update_waits_for_the_back_off_only() -> None:
    driver = start("t")
    tracker(driver).request_update()
    assert until_due_ms(driver) == 100
    driver.run()
    assert len(asked_topics(driver)) == 1
    driver.sleep(100)
    assert len(asked_topics(driver)) == 2
    assert until_due_ms(driver) == AGE_MS


def test_answers_without_news_make_the_waits_longer_and_news_make_them_short_again() -> None:
    driver = start("t")
    waits = []
    for _ in range(6):
        tracker(driver).request_update()
        waits.append(until_due_ms(driver))
        driver.sleep(waits[-1])
    assert waits == [100, 100, 200, 400, 800, 1000]
    driver.cluster.move_leader("t", 0, 0)
    tracker(driver).request_update()
    driver.sleep(1000)
    tracker(driver).request_update()
    assert until_due_ms(driver) == 100


def test_an_answer_after_the_age_is_no_sign_of_being_stuck() -> None:
    driver = start("t")
    for _ in range(3):
        driver.sleep(AGE_MS)
    tracker(driver).request_update()
    assert until_due_ms(driver) == 100


def test_a_failed_question_is_repeated_after_a_growing_back_off() -> None:
    driver = start("t")
    driver.cluster.scripts[METADATA.key] = lambda asked: {"brokers": [], "topics": []}
    tracker(driver).request_update()
    driver.sleep(100)
    waits = []
    for _ in range(4):
        waits.append(until_due_ms(driver))
        driver.sleep(waits[-1])
    assert waits == [100, 200, 400, 800]
    assert "names no broker" in str(tracker(driver).last_failure)
    driver.cluster.scripts[METADATA.key] = driver.cluster.metadata_body
    driver.sleep(1_000)
    assert tracker(driver).last_failure is None
    assert until_due_ms(driver) >= AGE_MS - 1_000


def test_an_update_requested_during_the_back_off_of_a_failure_still_waits() -> None:
    driver = start("t")
    driver.cluster.scripts[METADATA.key] = lambda asked: {"brokers": [], "topics": []}
    tracker(driver).request_update()
    driver.sleep(100)
    tracker(driver).request_update()
    assert until_due_ms(driver) == 100


def test_one_request_is_under_way_at_a_time() -> None:
    driver = start("t")
    driver.cluster.silent.add(0)
    tracker(driver).request_update()
    driver.sleep(100)
    tracker(driver).want_topic("u", driver.now_ms)
    tracker(driver).request_update()
    driver.sleep(5_000)
    assert len(asked_topics(driver)) == 2
    assert tracker(driver).next_deadline_ms(driver.now_ms) is None
    assert not tracker(driver).wants_request(driver.now_ms)
    assert tracker(driver).next_request(driver.now_ms) is None


def test_a_lost_connection_calls_for_new_metadata() -> None:
    driver = start("t")
    driver.nodes.connect(0, driver.now_ms)
    driver.run()
    driver.sleep(1_000)
    driver.cluster.disconnect(0)
    driver.run()
    driver.sleep(50)
    assert len(asked_topics(driver)) == 2


def test_a_question_that_times_out_is_asked_again() -> None:
    driver = start("t", request_timeout_ms=5_000)
    driver.cluster.silent.add(0)
    tracker(driver).request_update()
    driver.sleep(100)
    driver.sleep(5_000)
    assert isinstance(tracker(driver).last_failure, TransportError)
    driver.cluster.silent.clear()
    driver.sleep(100)
    assert len(asked_topics(driver)) == 3
    assert tracker(driver).last_failure is None


def test_an_answer_to_an_older_question_is_ignored() -> None:
    driver = start("t")
    asked = MetadataQuestion((), False)
    before = tracker(driver).view
    request = driver.cluster.requests_of(METADATA)[0]
    body = {**driver.cluster.metadata_body(request), "cluster_id": "other"}
    answer = Answer(_request(asked), 0, 12, body, None, True, 0)
    tracker(driver).on_answer(driver.now_ms, answer)
    assert tracker(driver).view is before


def _request(purpose: object) -> Request:
    return Request(METADATA, {}, purpose, 1)


# ---- topics


def test_a_new_topic_is_asked_for_at_once_and_alone() -> None:
    driver = start("t", cluster=two_topics())
    tracker(driver).want_topic("u", driver.now_ms)
    driver.run()
    assert asked_topics(driver) == [["t"], ["u"]]
    assert tracker(driver).view.leader("u", 0) == 0
    assert tracker(driver).view.leader("t", 0) == 0


def test_a_known_topic_wanted_again_is_not_asked_for() -> None:
    driver = start("t")
    tracker(driver).want_topic("t", driver.now_ms)
    assert until_due_ms(driver) == AGE_MS


def test_a_partial_refresh_neither_counts_as_the_full_one_nor_delays_it() -> None:
    driver = start("t", cluster=two_topics())
    driver.sleep(AGE_MS - 1_000)
    tracker(driver).want_topic("u", driver.now_ms)
    driver.run()
    assert until_due_ms(driver) == 1_000


def test_a_requested_update_turns_the_question_for_a_new_topic_into_one_for_all() -> None:
    driver = start("t", cluster=two_topics())
    tracker(driver).request_update()
    tracker(driver).want_topic("u", driver.now_ms)
    driver.run()
    assert asked_topics(driver) == [["t"], ["t", "u"]]
    assert until_due_ms(driver) == AGE_MS


def test_a_topic_wanted_while_a_question_is_under_way_is_asked_for_next() -> None:
    driver = start("t", cluster=two_topics())
    script = driver.cluster.scripts.pop(METADATA.key)
    tracker(driver).want_topic("u", driver.now_ms)
    driver.run()
    tracker(driver).want_topic("v", driver.now_ms)
    driver.run()
    driver.cluster.scripts[METADATA.key] = script
    (asked,) = driver.cluster.pending_of(METADATA)
    driver.cluster.answer(asked, driver.cluster.metadata_body(asked))
    driver.run()
    driver.sleep(100)
    assert asked_topics(driver) == [["t"], ["u"], ["v"]]


def test_a_topic_unused_for_its_idle_time_is_forgotten_and_a_used_one_is_not() -> None:
    driver = start("t", "u", cluster=two_topics(), metadata_max_idle_ms=AGE_MS)
    driver.sleep(AGE_MS // 2)
    tracker(driver).want_topic("u", driver.now_ms)
    driver.sleep(AGE_MS // 2)
    assert set(tracker(driver).view.topics) == {"u"}
    driver.sleep(AGE_MS)
    assert asked_topics(driver)[-1] == ["u"]
    assert set(tracker(driver).view.topics) == set()


def test_a_topic_not_answered_yet_is_not_forgotten_however_old_the_wish_is() -> None:
    driver = start("t", cluster=two_topics())
    driver.cluster.refusing.add(0)
    driver.cluster.disconnect(0)
    tracker(driver).want_topic("u", driver.now_ms)
    driver.run()
    driver.cluster.refusing.clear()
    driver.sleep(2 * AGE_MS)
    assert "u" in tracker(driver).view.topics


def test_an_unknown_topic_is_asked_for_again_until_it_exists() -> None:
    driver = start("new")
    assert tracker(driver).topic_error("new") is None
    assert "UNKNOWN_TOPIC_OR_PARTITION (3)" in tracker(driver).topic_trouble("new")
    for _ in range(5):
        driver.sleep(until_due_ms(driver))
    assert len(asked_topics(driver)) == 6
    driver.cluster.topics["new"] = {0: 0}
    driver.sleep(1_000)
    assert tracker(driver).view.leader("new", 0) == 0
    assert tracker(driver).topic_trouble("new") == ""
    assert until_due_ms(driver) == AGE_MS


def test_a_partition_without_leader_is_asked_for_again() -> None:
    driver = start("t", cluster=FakeCluster({0: ("a", 9092)}, {"t": {0: -1, 1: 0}}))
    assert tracker(driver).view.available_partitions("t") == (1,)
    driver.cluster.move_leader("t", 0, 0)
    driver.sleep(100)
    assert tracker(driver).view.available_partitions("t") == (0, 1)
    assert until_due_ms(driver) == AGE_MS


@pytest.mark.parametrize(("code", "error_type"), [(29, AuthorizationError), (17, BrokerError)])
def test_a_topic_error_that_waiting_cannot_cure_is_surfaced_and_not_asked_for_in_a_loop(
    code: int, error_type: type[Exception]
) -> None:
    driver = start()
    driver.cluster.topic_errors["t"] = code
    tracker(driver).want_topic("t", driver.now_ms)
    (notice,) = notices(driver.run())
    error = tracker(driver).topic_error("t")
    assert isinstance(error, error_type)
    assert "t" in str(error) and f"({code})" in notice
    assert until_due_ms(driver) == AGE_MS


def test_a_permission_granted_later_is_seen_when_the_topic_is_wanted_again() -> None:
    driver = start()
    driver.cluster.topic_errors["t"] = 29
    tracker(driver).want_topic("t", driver.now_ms)
    driver.run()
    driver.cluster.topic_errors.clear()
    tracker(driver).want_topic("t", driver.now_ms)
    driver.sleep(100)
    assert tracker(driver).topic_error("t") is None
    assert tracker(driver).view.leader("t", 0) == 0


def test_a_topic_error_is_reported_once_per_change() -> None:
    driver = start("new")
    reported = [notices(driver.sleep(1_000)) for _ in range(3)]
    assert reported == [[], [], []]


def test_an_error_of_one_topic_does_not_touch_another() -> None:
    driver = start("t", "missing")
    assert tracker(driver).view.leader("t", 0) == 0
    assert tracker(driver).topic_trouble("t") == ""


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
