"""Requests on a working connection: order, time limits, throttling, what ends a connection, and what that means."""

from __future__ import annotations

import struct

import pytest
from fake_cluster import FakeCluster
from network_driver import Driver, notices, produce, produce_body, request

from kafka_sink.client.commands import Disconnect, RequestObserved
from kafka_sink.client.connection import FRAME_BYTES_MAX, NEGOTIATION_FRAME_BYTES_MAX, THROTTLE_MS_MAX
from kafka_sink.errors import RemoteProtocolError, TransportError
from kafka_sink.wire.apis import API_VERSIONS, FIND_COORDINATOR, PRODUCE
from kafka_sink.wire.frames import encode_response


def ready(**options: object) -> Driver:
    driver = Driver(**options)
    driver.await_ready()
    return driver


def frame(length: int, rest: bytes = b"") -> bytes:
    return struct.pack(">i", length) + rest


def test_a_request_is_answered_with_the_body_version_and_latency() -> None:
    driver = ready()
    asked = driver.send(produce())
    assert driver.nodes.in_flight_count(0) == 1
    driver.now_ms += 30
    driver.cluster.answer(driver.cluster.pending[0], produce_body(None))
    commands = driver.run()
    (answer,) = driver.take_answers()
    assert (answer.request, answer.node_id, answer.version) == (asked, 0, PRODUCE.version_max)
    assert answer.body is not None and answer.body["responses"] == []
    assert (answer.failure, answer.was_sent, answer.latency_ms) == (None, True, 30)
    assert RequestObserved(0, PRODUCE.key, 30, 0) in commands
    assert driver.nodes.in_flight_count(0) == 0


def test_requests_are_pipelined_up_to_the_limit() -> None:
    driver = ready(max_in_flight_requests_per_connection=2)
    driver.send(produce())
    assert driver.nodes.is_ready(0, driver.now_ms)
    driver.send(produce())
    assert not driver.nodes.is_ready(0, driver.now_ms)
    driver.cluster.answer(driver.cluster.pending[0], produce_body(None))
    driver.run()
    assert driver.nodes.is_ready(0, driver.now_ms)


def test_correlation_ids_differ_within_a_connection() -> None:
    driver = ready(max_in_flight_requests_per_connection=100)
    for _ in range(100):
        driver.send()
    assert len({asked.correlation_id for asked in driver.cluster.requests}) == 101


def test_answers_come_in_the_order_of_the_requests_also_byte_by_byte() -> None:
    driver = ready()
    asked = [driver.send(produce(purpose=index)) for index in range(3)]
    data = b"".join(
        encode_response(PRODUCE, pending.version, pending.correlation_id, produce_body(None))
        for pending in driver.cluster.pending
    )
    for index in range(len(data)):
        driver.cluster.inject(0, data[index : index + 1])
    driver.run()
    assert [answer.request for answer in driver.take_answers()] == asked


def test_a_request_without_an_answer_ends_when_it_is_written() -> None:
    driver = ready()
    body = {"acks": 0, "timeout_ms": 1000, "topic_data": []}
    waiting = driver.send(produce())
    unanswered = driver.send(produce(body=body, expects_answer=False))
    (answer,) = driver.take_answers()
    assert answer.request is unanswered
    assert (answer.body, answer.failure, answer.was_sent) == (None, None, True)
    driver.cluster.answer(driver.cluster.pending[0], produce_body(None))
    driver.run()
    assert [answer.request for answer in driver.take_answers()] == [waiting]


def test_a_request_without_an_answer_counts_as_in_flight_until_it_is_written() -> None:
    driver = ready(max_in_flight_requests_per_connection=1)
    body = {"acks": 0, "timeout_ms": 1000, "topic_data": []}
    driver.nodes.send(0, produce(body=body, expects_answer=False), driver.now_ms)
    assert not driver.nodes.is_ready(0, driver.now_ms)


# ---- time limits


def test_an_unanswered_request_closes_the_connection_and_fails_all_in_flight_in_order() -> None:
    driver = ready()
    asked = [driver.send(produce(timeout_ms=timeout_ms)) for timeout_ms in (30_000, 5_000, 30_000)]
    assert driver.nodes.next_deadline_ms(driver.now_ms) == driver.now_ms + 5_000
    driver.sleep(4_999)
    assert driver.take_answers() == []
    (notice,) = notices(driver.sleep(1))
    answers = driver.take_answers()
    assert [answer.request for answer in answers] == asked
    assert all(isinstance(answer.failure, TransportError) and answer.was_sent for answer in answers)
    assert "a:9092 (node 0) did not answer Produce v" in notice and "within 5000 ms" in notice
    assert not driver.cluster.connections
    assert driver.nodes.losses == 1


def test_the_time_limit_counts_from_the_send_and_not_from_the_last_byte() -> None:
    driver = ready()
    driver.send(produce(timeout_ms=1_000))
    driver.cluster.inject(0, frame(1_000))
    for _ in range(10):
        driver.cluster.inject(0, b"\x00")
        driver.sleep(100)
        if driver.answers:
            break
    assert isinstance(driver.take_answers()[0].failure, TransportError)


def test_nodes_time_out_separately() -> None:
    driver = Driver(FakeCluster({0: ("a", 9092), 1: ("b", 9092)}))
    driver.await_ready(0)
    driver.await_ready(1)
    driver.send(request(timeout_ms=50), 0)
    driver.send(request(timeout_ms=200), 1)
    driver.send(request(timeout_ms=100), 1)
    driver.sleep(49)
    assert driver.take_answers() == []
    driver.sleep(26)
    assert [answer.node_id for answer in driver.take_answers()] == [0]
    driver.sleep(50)
    assert [answer.node_id for answer in driver.take_answers()] == [1, 1]


def test_an_answer_after_the_time_out_is_ignored() -> None:
    driver = ready()
    driver.send(produce(timeout_ms=100))
    late = driver.cluster.pending[0]
    driver.sleep(100)
    driver.take_answers()
    driver.cluster.answer(late, produce_body(None))
    driver.run()
    assert driver.take_answers() == []


def test_an_idle_connection_is_closed_without_back_off_and_without_counting_as_a_loss() -> None:
    driver = ready(connections_max_idle_ms=60_000)
    driver.sleep(30_000)
    driver.cluster.scripts[PRODUCE.key] = produce_body
    driver.send(produce())
    assert driver.nodes.next_deadline_ms(driver.now_ms) == driver.now_ms + 60_000
    driver.sleep(59_999)
    assert driver.cluster.connections
    driver.sleep(1)
    assert not driver.cluster.connections
    assert (driver.delay_ms(), driver.nodes.losses) == (0, 0)
    assert driver.nodes.is_unavailable_since_ms(0) is None
    driver.await_ready()


def test_a_connection_with_a_request_in_flight_is_not_idle() -> None:
    driver = ready(connections_max_idle_ms=1_000)
    driver.send(produce(timeout_ms=30_000))
    driver.sleep(10_000)
    assert driver.cluster.connections


def test_idle_time_minus_one_means_never() -> None:
    driver = ready(connections_max_idle_ms=-1)
    driver.sleep(10**9)
    assert driver.nodes.is_ready(0, driver.now_ms)


# ---- throttling


def test_a_throttled_node_takes_no_request_until_the_time_is_over() -> None:
    driver = ready()
    driver.cluster.scripts[PRODUCE.key] = lambda asked: produce_body(asked, throttle_time_ms=100)
    driver.nodes.send(0, produce(), driver.now_ms)
    commands = driver.run()
    assert RequestObserved(0, PRODUCE.key, 0, 100) in commands
    assert not driver.nodes.is_ready(0, driver.now_ms)
    assert driver.nodes.blocked_until_ms(0, driver.now_ms) == driver.now_ms + 100
    assert driver.nodes.next_deadline_ms(driver.now_ms) == driver.now_ms + 100
    since_ms = driver.now_ms
    driver.sleep(50)
    assert driver.nodes.blocked_until_ms(0, driver.now_ms) == driver.now_ms + 50
    assert driver.nodes.is_unavailable_since_ms(0) == since_ms
    driver.sleep(50)
    assert driver.nodes.is_ready(0, driver.now_ms)
    assert driver.nodes.blocked_until_ms(0, driver.now_ms) is None
    assert driver.nodes.is_unavailable_since_ms(0) is None


def test_the_time_spent_throttled_does_not_count_against_other_requests_in_flight() -> None:
    driver = ready()
    driver.send(produce(timeout_ms=1_000))
    driver.send(produce(timeout_ms=1_000))
    driver.cluster.answer(driver.cluster.pending[0], produce_body(None, throttle_time_ms=1_000))
    driver.run()
    driver.sleep(1_999)
    assert driver.nodes.in_flight_count(0) == 1
    driver.sleep(1)
    assert driver.nodes.in_flight_count(0) == 0


def test_a_throttle_never_ends_earlier_because_of_a_later_answer() -> None:
    driver = ready()
    driver.send(produce())
    driver.send(produce())
    first, second = driver.cluster.pending
    driver.cluster.answer(first, produce_body(None, throttle_time_ms=500))
    driver.cluster.answer(second, produce_body(None, throttle_time_ms=10))
    driver.run()
    assert driver.nodes.blocked_until_ms(0, driver.now_ms) == driver.now_ms + 500


def test_versions_in_which_the_broker_throttles_before_it_answers_do_not_mute_the_node() -> None:
    driver = Driver(FakeCluster({0: ("a", 9092)}, api_versions={PRODUCE.key: (3, 5)}))
    driver.cluster.scripts[PRODUCE.key] = lambda asked: produce_body(asked, throttle_time_ms=100)
    driver.await_ready()
    driver.send(produce())
    assert driver.nodes.is_ready(0, driver.now_ms)


@pytest.mark.parametrize(("asked_ms", "muted_ms"), [(2**31 - 1, THROTTLE_MS_MAX), (-5, 0)])
def test_an_absurd_throttle_time_is_cut(asked_ms: int, muted_ms: int) -> None:
    driver = ready()
    driver.cluster.scripts[PRODUCE.key] = lambda asked: produce_body(asked, throttle_time_ms=asked_ms)
    driver.send(produce())
    assert driver.delay_ms() == muted_ms


# ---- what ends a connection


def test_a_disconnect_fails_all_in_flight_in_order() -> None:
    driver = ready()
    asked = [driver.send(produce(purpose=index)) for index in range(3)]
    driver.cluster.disconnect(0, "connection reset by peer")
    (notice,) = notices(driver.run())
    answers = driver.take_answers()
    assert [answer.request for answer in answers] == asked
    assert all(answer.was_sent for answer in answers)
    assert "a:9092 (node 0) was lost with 3 requests in flight: connection reset by peer" in notice
    assert not driver.nodes.is_ready(0, driver.now_ms)
    assert driver.nodes.in_flight_count(0) == 0


def broken_frames() -> list[object]:
    other_id = encode_response(PRODUCE, PRODUCE.version_max, 99, produce_body(None))
    truncated = encode_response(PRODUCE, PRODUCE.version_max, 1, produce_body(None))[4:-1]
    return [
        pytest.param(other_id, "correlation id 99, expected 1", id="correlation id"),
        pytest.param(frame(len(truncated), truncated), "Produce answer", id="truncated body"),
        pytest.param(frame(2, b"ab"), "no room for a correlation id", id="no header"),
        pytest.param(frame(2**31 - 1), f"at most {FRAME_BYTES_MAX}", id="huge length"),
        pytest.param(frame(-1), "a frame of -1 bytes", id="negative length"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n", "HTTP", id="http"),
        pytest.param(b"\x15\x03\x03\x00\x02\x02\x46", "TLS", id="tls alert"),
    ]


@pytest.mark.parametrize(("data", "text"), broken_frames())
def test_a_broken_answer_closes_the_connection_and_fails_all_in_flight_in_order(data: bytes, text: str) -> None:
    driver = ready()
    asked = [driver.send(produce(purpose=index)) for index in range(2)]
    driver.cluster.inject(0, data)
    (notice,) = notices(driver.run())
    answers = driver.take_answers()
    assert [answer.request for answer in answers] == asked
    assert all(isinstance(answer.failure, RemoteProtocolError) and answer.was_sent for answer in answers)
    assert text in notice and "a:9092 (node 0) broke the protocol" in notice
    assert isinstance(driver.cluster.commands[-1], Disconnect)
    assert driver.delay_ms() == 50


def test_answers_before_a_broken_frame_count() -> None:
    driver = ready()
    driver.send(produce(purpose="good"))
    driver.send(produce(purpose="bad"))
    good = encode_response(PRODUCE, PRODUCE.version_max, 1, produce_body(None))
    driver.cluster.inject(0, good + frame(-1) + good)
    driver.run()
    first, second = driver.take_answers()
    assert (first.request.purpose, first.failure) == ("good", None)
    assert second.request.purpose == "bad" and isinstance(second.failure, RemoteProtocolError)


def test_an_answer_to_no_request_closes_the_connection() -> None:
    driver = ready()
    driver.cluster.inject(0, encode_response(PRODUCE, PRODUCE.version_max, 1, produce_body(None)))
    (notice,) = notices(driver.run())
    assert "to no request" in notice
    assert not driver.cluster.connections
    assert driver.take_answers() == []


def test_a_frame_above_the_small_limit_is_refused_before_versions_are_known_and_taken_afterwards() -> None:
    driver = Driver()
    driver.cluster.silent.add(0)
    driver.nodes.connect(0, driver.now_ms)
    driver.run()
    driver.cluster.inject(0, frame(NEGOTIATION_FRAME_BYTES_MAX + 1))
    assert f"at most {NEGOTIATION_FRAME_BYTES_MAX}" in notices(driver.run())[0]
    driver.cluster.silent.clear()
    driver.sleep(50)
    driver.await_ready()
    driver.send(produce())
    driver.cluster.inject(0, frame(NEGOTIATION_FRAME_BYTES_MAX + 1))
    driver.run()
    assert driver.nodes.is_ready(0, driver.now_ms)


def test_close_all_closes_every_connection_and_answers_every_request() -> None:
    driver = Driver(FakeCluster({0: ("a", 9092), 1: ("b", 9092)}))
    driver.await_ready(0)
    driver.await_ready(1)
    asked = [driver.send(produce(), 0), driver.send(produce(), 1)]
    driver.nodes.close_all()
    driver.nodes.close_all()
    driver.run()
    answers = driver.take_answers()
    assert [answer.request for answer in answers] == asked
    assert "because the producer was closed" in str(answers[0].failure)
    assert not driver.cluster.connections
    driver.nodes.connect(0, driver.now_ms)
    assert driver.nodes.take_commands() == []


def test_other_nodes_do_not_notice_a_lost_connection() -> None:
    driver = Driver(FakeCluster({0: ("a", 9092), 1: ("b", 9092)}))
    driver.await_ready(0)
    driver.await_ready(1)
    asked = driver.send(request(), 0)
    driver.cluster.disconnect(1)
    driver.run()
    assert driver.nodes.in_flight_count(0) == 1
    body = {"error_code": 0, "coordinators": []}
    driver.cluster.answer(driver.cluster.pending_of(FIND_COORDINATOR)[0], body)
    driver.run()
    assert [answer.request for answer in driver.take_answers()] == [asked]


def test_every_request_for_versions_is_observed_too() -> None:
    driver = Driver()
    driver.nodes.connect(0, driver.now_ms)
    commands = driver.run()
    assert RequestObserved(0, API_VERSIONS.key, 0, 0) in commands
