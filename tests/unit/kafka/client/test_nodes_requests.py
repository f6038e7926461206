"""Requests on a working connection: order, time limits, throttling, what closes a connection, and its effect."""

from __future__ import annotations

import struct

import pytest

from kafka_sink.errors import AuthenticationError, RemoteProtocolError, TransportError
from kafka_sink.kafka.client.cluster import Endpoint
from kafka_sink.kafka.client.commands import Disconnect, Disconnected, Received, RequestObserved
from kafka_sink.kafka.client.connection import FRAME_BYTES_MAX, NEGOTIATION_FRAME_BYTES_MAX, THROTTLE_MS_MAX
from kafka_sink.kafka.wire.apis import API_VERSIONS, PRODUCE
from kafka_sink.kafka.wire.frames import encode_response
from tests.unit.kafka.client.network_driver import Driver, notices, produce, produce_body
from tests.unit.producer.engine.fake_cluster import FakeCluster


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
    assert (answer.request, answer.node_id, asked.version) == (asked, 0, PRODUCE.version_max)
    assert answer.body is not None and answer.body["responses"] == []
    assert (answer.failure, answer.was_sent) == (None, True)
    assert RequestObserved(0, PRODUCE.key, 30, 0) in commands
    assert driver.nodes.in_flight_count(0) == 0


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


def test_a_request_that_is_written_has_no_time_limit_any_more() -> None:
    driver = ready()
    body = {"acks": 0, "timeout_ms": 1000, "topic_data": []}
    driver.send(produce(body=body, expects_answer=False))
    driver.sleep(30_000)
    assert driver.nodes.is_ready(0, driver.now_ms) and driver.nodes.losses == 0


def test_back_at_the_bootstrap_servers_their_names_are_resolved_again_even_if_a_connection_is_open() -> None:
    driver = Driver(knows_brokers=False)
    driver.await_ready(-2)
    driver.cluster.addresses["a"] = ((2, ("b", 9092)),)
    driver.cluster.brokers[0] = ("b", 9092)
    driver.nodes.rebootstrap(driver.now_ms)
    driver.await_ready(-2)
    assert [command.address[1][0] for command in driver.connects()] == ["a", "b"]


def test_a_broker_that_moved_is_reached_at_its_new_host_at_once() -> None:
    """Neither the other addresses of its old host nor the back-off after their failure count any more."""
    driver = Driver()
    driver.cluster.addresses["a"] = ((2, ("a1", 9092)), (2, ("a2", 9092)))
    driver.connect()
    assert driver.delay_ms() > 0
    driver.cluster.brokers[0] = ("b", 9092)
    driver.nodes.set_brokers(driver.now_ms, {0: Endpoint("b", 9092)})
    driver.await_ready()
    assert [command.address[1][0] for command in driver.connects()] == ["a1", "b"]


def test_a_request_in_flight_on_a_bootstrap_connection_is_answered_by_the_broker_that_takes_it_over() -> None:
    driver = Driver(knows_brokers=False)
    driver.await_ready(-2)
    asked = driver.send(produce(), node_id=-2)
    driver.nodes.set_brokers(driver.now_ms, {0: Endpoint("a", 9092, "rack")})
    assert driver.nodes.in_flight_count(0) == 1 and driver.nodes.in_flight_count(-2) == 0
    driver.cluster.answer(driver.cluster.pending[0], produce_body(None))
    driver.run()
    (answer,) = driver.take_answers()
    assert (answer.request, answer.node_id, answer.failure) == (asked, 0, None)
    driver.send(produce())
    driver.cluster.disconnect(0)
    driver.run()
    (lost,) = driver.take_answers()
    assert "a:9092 (node 0)" in str(lost.failure)


def test_why_a_broker_could_not_be_used_is_known_until_it_answers_a_request() -> None:
    """That it connects again says little: a listener that wants SASL answers ApiVersions as well."""
    driver = ready()
    driver.lose()
    driver.sleep(50)
    driver.await_ready()
    assert "was lost" in str(driver.nodes.failure_of(0)) and driver.nodes.last_failure is not None
    driver.send(produce())
    driver.cluster.answer(driver.cluster.pending[0], produce_body(None))
    driver.run()
    assert driver.nodes.failure_of(0) is None and driver.nodes.last_failure is None


def test_a_certificate_that_is_refused_ends_all_attempts() -> None:
    driver = ready()
    (connection_id,) = driver.cluster.connections
    driver.nodes.on_input(driver.now_ms, Disconnected(connection_id, AuthenticationError("unknown issuer")))
    assert isinstance(driver.nodes.refusal, AuthenticationError)
    assert str(driver.nodes.refusal) == "connection to a:9092 (node 0) was refused: unknown issuer"


def test_who_waits_for_a_node_is_called_when_its_back_off_is_over() -> None:
    driver = ready()
    driver.lose()
    assert not driver.nodes.is_ready(0, driver.now_ms)
    driver.nodes.prepare(0, driver.now_ms)
    assert driver.nodes.moments == [driver.now_ms + 50]


def test_bytes_of_a_closed_connection_do_not_reach_the_next_one() -> None:
    driver = ready()
    (old_id,) = driver.cluster.connections
    driver.send(produce(timeout_ms=100))
    driver.sleep(100)
    driver.sleep(50)
    driver.await_ready()
    driver.nodes.on_input(driver.now_ms, Received(old_id, frame(-1)))
    assert driver.nodes.is_ready(0, driver.now_ms)


def test_a_node_is_unavailable_from_the_request_that_fills_it_and_not_before() -> None:
    """Producers choose other partitions meanwhile, and requests fill a node without any event."""
    driver = ready(max_in_flight_requests_per_connection=2)
    driver.nodes.send(0, produce(), driver.now_ms)
    assert driver.nodes.stalled_since_ms(0) is None
    driver.nodes.send(0, produce(), driver.now_ms + 7)
    assert driver.nodes.stalled_since_ms(0) == driver.now_ms + 7


# ---- time limits


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


# ---- throttling


def test_a_throttled_node_takes_no_request_until_the_time_is_over() -> None:
    driver = ready()
    driver.cluster.scripts[PRODUCE.key] = lambda asked: produce_body(asked, throttle_time_ms=100)
    driver.nodes.send(0, produce(), driver.now_ms)
    commands = driver.run()
    assert RequestObserved(0, PRODUCE.key, 0, 100) in commands
    assert not driver.nodes.is_ready(0, driver.now_ms)
    assert driver.nodes.blocked_until_ms(0, driver.now_ms) == driver.now_ms + 100
    assert driver.nodes.update_deadline(driver.now_ms) == driver.now_ms + 100
    since_ms = driver.now_ms
    driver.sleep(50)
    assert driver.nodes.blocked_until_ms(0, driver.now_ms) == driver.now_ms + 50
    assert driver.nodes.stalled_since_ms(0) == since_ms
    driver.sleep(50)
    assert driver.nodes.is_ready(0, driver.now_ms)
    assert driver.nodes.blocked_until_ms(0, driver.now_ms) is None
    assert driver.nodes.stalled_since_ms(0) is None


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


# ---- what closes a connection


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
    driver.connect()
    driver.cluster.inject(0, frame(NEGOTIATION_FRAME_BYTES_MAX + 1))
    assert f"at most {NEGOTIATION_FRAME_BYTES_MAX}" in notices(driver.run())[0]
    driver.cluster.silent.clear()
    driver.sleep(50)
    driver.await_ready()
    driver.send(produce())
    driver.cluster.inject(0, frame(NEGOTIATION_FRAME_BYTES_MAX + 1))
    driver.run()
    assert driver.nodes.is_ready(0, driver.now_ms)


def test_every_request_for_versions_is_observed_too() -> None:
    driver = Driver()
    commands = driver.connect()
    assert RequestObserved(0, API_VERSIONS.key, 0, 0) in commands
