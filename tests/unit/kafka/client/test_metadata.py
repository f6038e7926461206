"""The content of metadata requests, and the effect of responses and leader hints. When metadata is requested, and for
which topics: `test_network_histories.py`."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.errors import AuthorizationError, BrokerError
from kafka_sink.kafka.client.metadata import Metadata, MetadataRequest
from kafka_sink.kafka.client.request import Answer, Request
from kafka_sink.kafka.wire.apis import METADATA
from tests.unit.kafka.client.network_driver import Driver, notices
from tests.unit.kafka.client.network_history import moved
from tests.unit.producer.engine.fake_cluster import Asked, FakeCluster

AGE_MS = 300_000


def start(*topics: str, cluster: FakeCluster | None = None, **options: Any) -> tuple[Driver, Metadata]:
    driver = Driver(cluster, has_metadata=True, **options)
    assert driver.metadata is not None
    for topic in topics:
        driver.metadata.want_topic(topic, driver.now_ms)
    driver.run()
    return driver, driver.metadata


def until_due_ms(driver: Driver, tracker: Metadata) -> int:
    deadline_ms = tracker.next_deadline_ms(driver.now_ms)
    assert deadline_ms is not None
    return deadline_ms - driver.now_ms


# ---- requests


@pytest.mark.parametrize("is_allowed", [True, False])
def test_topics_are_created_unless_that_is_forbidden(is_allowed: bool) -> None:
    driver, tracker = start("t", **({} if is_allowed else {"allow_auto_create_topics": False}))
    (asked,) = driver.cluster.requests_of(METADATA)
    assert asked.body["allow_auto_topic_creation"] is is_allowed
    assert tracker.view.leader("t", 0) == 0


@pytest.mark.parametrize(("backoff_ms", "age_ms"), [(100, 1000), (1000, 100), (0, 100), (100, 0)])
def test_the_later_of_age_and_back_off_counts(backoff_ms: int, age_ms: int) -> None:
    options = {"retry_backoff_ms": backoff_ms, "retry_backoff_max_ms": backoff_ms, "metadata_max_age_ms": age_ms}
    assert until_due_ms(*start("t", **options)) == max(backoff_ms, age_ms)


def test_the_wait_after_failures_grows_up_to_its_limit() -> None:
    driver, tracker = start("t", retry_backoff_ms=100, retry_backoff_max_ms=250)
    driver.cluster.scripts[METADATA.key] = lambda asked: {"topics": [], "brokers": []}
    waits = []
    for _ in range(4):
        tracker.request_update()
        driver.sleep(tracker.next_deadline_ms(driver.now_ms) - driver.now_ms)  # type: ignore[operator]
        waits.append(tracker._allowed_at_ms - driver.now_ms)
    assert max(waits) == 250


def test_one_request_is_under_way_at_a_time() -> None:
    driver, tracker = start("t")
    driver.cluster.silent.add(0)
    tracker.request_update()
    driver.sleep(100)
    tracker.want_topic("u", driver.now_ms)
    tracker.request_update()
    driver.sleep(5_000)
    assert len(driver.cluster.requests_of(METADATA)) == 2
    assert tracker.next_deadline_ms(driver.now_ms) is None
    tracker.ask(driver.now_ms)
    assert driver.nodes.take_commands() == []


# ---- answers


def test_an_answer_to_an_older_question_is_ignored() -> None:
    driver, tracker = start("t")
    before = tracker.view
    body = {**driver.cluster.metadata_body(driver.cluster.requests_of(METADATA)[0]), "cluster_id": "other"}
    older = Request(METADATA, {}, MetadataRequest((), False), 1)
    tracker.on_answer(driver.now_ms, Answer(older, 0, body))
    assert tracker.view is before


def test_news_are_the_answer_to_a_refresh_that_was_requested_after_the_doubt() -> None:
    driver, tracker = start("t")
    driver.sleep(1_000)
    driver.cluster.scripts[METADATA.key] = lambda _: None
    tracker.request_update()
    driver.run()
    (older,) = driver.cluster.pending_of(METADATA)
    refresh = tracker.request_news()
    tracker.want_topic("u", driver.now_ms)
    driver.cluster.scripts[METADATA.key] = driver.cluster.metadata_body
    driver.cluster.answer(older, driver.cluster.metadata_body(older))
    driver.run()
    assert not tracker.has_answered(refresh) and not tracker.is_just_asked(driver.now_ms)
    driver.sleep(100)
    assert tracker.has_answered(refresh)
    asked = driver.cluster.requests_of(METADATA)[-1]
    assert [topic["name"] for topic in asked.body["topics"]] == ["t", "u"], "not only the new topic"


def test_an_answer_from_far_away_has_just_come_and_one_that_waited_to_be_read_has_not() -> None:
    for delay_ms, is_young in ((600, True), (5_000, False)):
        driver, tracker = start("t")
        driver.sleep(1_000)
        driver.cluster.scripts[METADATA.key] = lambda _: None
        refresh = tracker.request_news()
        driver.run()
        asked = driver.cluster.requests_of(METADATA)[-1]
        driver.cluster.scripts[METADATA.key] = driver.cluster.metadata_body
        driver.sleep(delay_ms)
        driver.cluster.answer(asked, driver.cluster.metadata_body(asked))
        driver.run()
        assert tracker.has_answered(refresh)
        assert not tracker.is_just_asked(driver.now_ms)
        assert tracker.is_just_answered(driver.now_ms) is is_young


def test_a_lost_refresh_is_no_news() -> None:
    driver, tracker = start("t")
    driver.sleep(1_000)
    driver.cluster.scripts[METADATA.key] = lambda _: None
    refresh = tracker.request_news()
    driver.run()
    driver.lose()
    assert not tracker.has_answered(refresh)
    driver.cluster.scripts[METADATA.key] = driver.cluster.metadata_body
    driver.sleep(1_000)
    assert tracker.has_answered(refresh)


def test_leader_epochs_of_answers_before_version_9_are_ignored() -> None:
    cluster = FakeCluster({0: ("a", 9092)}, {"t": {0: 0}}, api_versions={METADATA.key: (4, 8)})
    cluster.leader_epochs["t", 0] = 10
    driver, tracker = start("t", cluster=cluster)
    assert tracker.view.leader_with_epoch("t", 0) == (0, -1)
    cluster.api_versions[METADATA.key] = (4, 9)
    driver.lose()
    driver.sleep(1_000)
    assert tracker.view.leader_with_epoch("t", 0) == (0, 10)


def test_a_hostile_answer_changes_nothing_and_is_reported() -> None:
    driver, tracker = start("t")
    before = tracker.view

    def hostile(asked: Asked) -> dict[str, Any]:
        return {**driver.cluster.metadata_body(asked), "brokers": [{"node_id": 0, "host": "/etc/passwd", "port": 1}]}

    driver.cluster.scripts[METADATA.key] = hostile
    tracker.request_update()
    (notice,) = notices(driver.sleep(100))
    assert "a Metadata answer is ignored: an answer gives broker 0 the impossible address" in notice
    assert tracker.view is before


def test_a_new_leader_of_a_produce_answer_is_known_and_connectable_without_asking() -> None:
    driver, tracker = start("t")
    partition = {"index": 0, "error_code": 6, "current_leader": {"leader_id": 7, "leader_epoch": 5}}
    endpoint = {"node_id": 7, "host": "b", "port": 9092}
    hints = {"responses": [{"name": "t", "partition_responses": [partition]}], "node_endpoints": [endpoint]}
    tracker.on_leader_hints(hints, driver.now_ms)
    view = tracker.view
    assert view.leader_with_epoch("t", 0) == (7, 5)
    tracker.on_leader_hints(hints, driver.now_ms)
    assert tracker.view is view
    driver.nodes.connect(7, driver.now_ms)
    assert len(driver.nodes.take_commands()) == 1
    assert len(driver.cluster.requests_of(METADATA)) == 1


def test_hostile_leader_hints_are_ignored_and_reported() -> None:
    driver, tracker = start("t")
    hints = {"responses": [], "node_endpoints": [{"node_id": 7, "host": "", "port": 9092}]}
    view = tracker.view
    tracker.on_leader_hints(hints, driver.now_ms)
    assert tracker.view is view
    assert "leader hints are ignored" in notices(driver.run())[0]


def test_a_broker_too_old_for_metadata_is_named_as_the_trouble() -> None:
    _, tracker = start("t", cluster=FakeCluster({0: ("a", 9092)}, {"t": {0: 0}}, api_versions={METADATA.key: (0, 3)}))
    assert "offers versions 0 to 3" in tracker.topic_trouble("t")


def test_brokers_that_do_not_answer_for_the_trigger_time_are_given_up() -> None:
    driver = moved(metadata_recovery_rebootstrap_trigger_ms=20_000, request_timeout_ms=6_000)
    assert driver.metadata is not None
    driver.cluster.silent = {0, 1}
    driver.metadata.request_update()
    for _ in range(500):
        driver.sleep(50)
    reported = [notice.text for notice in driver.notices]
    assert any("back to the bootstrap servers: no broker answered for 2" in text for text in reported), reported
    assert driver.metadata.view.leader("t", 0) == 5


def test_while_waiting_for_a_node_the_tracker_wakes_at_the_end_of_its_back_off() -> None:
    driver, tracker = start(cluster=FakeCluster({0: ("a", 9092)}), bootstrap_servers=(("nowhere", 1),))
    assert driver.nodes.least_loaded(driver.now_ms) is None
    assert until_due_ms(driver, tracker) == 50
    assert "nowhere:1 (bootstrap server)" in tracker.topic_trouble("t")


# ---- topics


def test_a_topic_that_is_wanted_while_a_request_is_under_way_is_asked_for_after_the_back_off() -> None:
    driver, tracker = start("t")
    script = driver.cluster.scripts[METADATA.key]
    driver.cluster.scripts[METADATA.key] = lambda _asked: None
    tracker.request_update()
    driver.sleep(100)
    tracker.want_topic("u", driver.now_ms)
    driver.cluster.scripts[METADATA.key] = script
    (asked,) = driver.cluster.pending_of(METADATA)
    driver.cluster.answer(asked, driver.cluster.metadata_body(asked))
    driver.run()
    assert until_due_ms(driver, tracker) == 100
    driver.sleep(100)
    assert [topic["name"] for topic in driver.cluster.requests_of(METADATA)[-1].body["topics"]] == ["u"]


def test_an_unknown_topic_is_asked_for_again_until_it_exists_and_touches_no_other() -> None:
    driver, tracker = start("t", "new")
    assert tracker.topic_error("new") is None
    assert "UNKNOWN_TOPIC_OR_PARTITION (3)" in tracker.topic_trouble("new")
    assert (tracker.view.leader("t", 0), tracker.topic_trouble("t")) == (0, "")
    reported = len(driver.notices)
    for _ in range(5):
        driver.sleep(until_due_ms(driver, tracker))
    assert len(driver.cluster.requests_of(METADATA)) == 6
    assert len(driver.notices) == reported, "an error is told once"
    driver.cluster.topics["new"] = {0: 0}
    driver.sleep(1_000)
    assert tracker.view.leader("new", 0) == 0
    assert tracker.topic_trouble("new") == ""
    assert until_due_ms(driver, tracker) == AGE_MS


def test_a_topic_of_an_earlier_operation_is_forgotten_and_can_be_wanted_again() -> None:
    driver, tracker = start("t", "gone")
    tracker.forget_topics(["t"])
    assert set(tracker.view.topics) == {"t"}
    driver.sleep(until_due_ms(driver, tracker))
    assert until_due_ms(driver, tracker) == AGE_MS, "nothing is missing any more"
    driver.cluster.topics["gone"] = {0: 0}
    tracker.want_topic("gone", driver.now_ms)
    driver.run()
    assert tracker.view.leader("gone", 0) == 0


def test_a_partition_without_leader_is_asked_for_again() -> None:
    driver, tracker = start("t", cluster=FakeCluster({0: ("a", 9092)}, {"t": {0: -1, 1: 0}}))
    assert tracker.view.available_partitions("t") == (1,)
    driver.cluster.move_leader("t", 0, 0)
    driver.sleep(100)
    assert tracker.view.available_partitions("t") == (0, 1)
    assert until_due_ms(driver, tracker) == AGE_MS


@pytest.mark.parametrize(("code", "error_type"), [(29, AuthorizationError), (17, BrokerError)])
def test_a_topic_error_that_waiting_cannot_cure_is_surfaced_and_asked_for_again_only_when_it_is_wanted_again(
    code: int, error_type: type[Exception]
) -> None:
    driver, tracker = start()
    driver.cluster.topic_errors["t"] = code
    tracker.want_topic("t", driver.now_ms)
    (notice,) = notices(driver.run())
    error = tracker.topic_error("t")
    assert isinstance(error, error_type) and error.name == {29: "PKS-4005", 17: "PKS-3002"}[code]
    assert "t" in str(error) and f"({code})" in notice
    assert until_due_ms(driver, tracker) == AGE_MS
    driver.cluster.topic_errors.clear()
    tracker.want_topic("t", driver.now_ms)
    driver.sleep(100)
    assert tracker.topic_error("t") is None
    assert tracker.view.leader("t", 0) == 0


def test_another_cluster_that_answers_about_a_new_topic_is_asked_about_the_others_too() -> None:
    driver, tracker = start("t", cluster=FakeCluster({0: ("a", 9092)}, {"t": {0: 0}, "u": {0: 0}}))
    driver.cluster.scripts[METADATA.key] = lambda asked: {**driver.cluster.metadata_body(asked), "cluster_id": "other"}
    tracker.want_topic("u", driver.now_ms)
    driver.run()
    assert "t" not in tracker.view.topics
    driver.sleep(100)
    assert tracker.view.leader("t", 0) == 0
