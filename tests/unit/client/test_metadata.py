"""When metadata is asked for, and for which topics."""

from __future__ import annotations

import pytest
from fake_cluster import FakeCluster
from metadata_driver import AGE_MS, asked_topics, start, tracker, two_topics, until_due_ms
from network_driver import notices

from kafka_sink.client.metadata import MetadataRequest
from kafka_sink.client.request import Answer, Request
from kafka_sink.errors import AuthorizationError, BrokerError, TransportError
from kafka_sink.wire.apis import METADATA

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
    asked = MetadataRequest((), False)
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
    assert isinstance(error, error_type) and error.name == {29: "PKS-4005", 17: "PKS-3002"}[code]
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
