"""From no connection to a usable one: resolving, connecting, negotiating versions."""

from __future__ import annotations

import errno
import os

import pytest

from kafka_sink.errors import BrokerError, LocalProtocolError, TransportError
from kafka_sink.kafka.client.commands import Buffer, Connect, Connected, Disconnected, Received, Resolved, Send
from kafka_sink.kafka.client.request import Request
from kafka_sink.kafka.io.plain_connection import failure_of
from kafka_sink.kafka.wire.apis import API_VERSIONS, INIT_PRODUCER_ID, METADATA, PRODUCE
from kafka_sink.version import CLIENT_SOFTWARE_NAME, VERSION
from tests.unit.kafka.client.network_driver import Driver, notices, produce, request
from tests.unit.producer.engine.fake_cluster import FakeCluster


def versions_body(**changes: object) -> dict[str, object]:
    rows = [{"api_key": PRODUCE.key, "min_version": 3, "max_version": 9}]
    return {"error_code": 0, "api_keys": rows, **changes}


def asked_versions(driver: Driver) -> list[int]:
    return [asked.version for asked in driver.cluster.requests_of(API_VERSIONS)]


def test_sending_to_a_node_that_is_not_connected_is_refused() -> None:
    driver = Driver()
    with pytest.raises(LocalProtocolError, match="FindCoordinator sent to node 0, which is not ready"):
        driver.nodes.send(0, request(), driver.now_ms)


def test_sending_to_an_unknown_node_is_refused() -> None:
    driver = Driver()
    with pytest.raises(LocalProtocolError, match="node 5"):
        driver.nodes.send(5, request(), driver.now_ms)
    assert not driver.nodes.is_ready(5, driver.now_ms)
    assert driver.nodes.blocked_until_ms(5, driver.now_ms) is None
    driver.nodes.connect(5, driver.now_ms)
    assert driver.nodes.take_commands() == []


def test_a_node_is_ready_after_its_versions_are_known_and_not_before() -> None:
    driver = Driver()
    driver.cluster.scripts[API_VERSIONS.key] = lambda asked: None
    driver.connect()
    (asked,) = driver.cluster.pending
    assert (asked.api, asked.version) == (API_VERSIONS, API_VERSIONS.version_max)
    assert asked.body == {"client_software_name": CLIENT_SOFTWARE_NAME, "client_software_version": VERSION}
    assert not driver.nodes.is_ready(0, driver.now_ms)
    assert driver.nodes.in_flight_count(0) == 0
    assert driver.nodes.version_of(0, PRODUCE) is None
    driver.cluster.answer(asked, versions_body())
    driver.run()
    assert driver.nodes.is_ready(0, driver.now_ms)
    assert driver.nodes.version_of(0, PRODUCE) == 9
    assert driver.take_answers() == []


def test_a_broker_that_refuses_the_version_of_api_versions_is_asked_again_with_the_version_it_names() -> None:
    driver = Driver(FakeCluster({0: ("a", 9092)}, api_versions={API_VERSIONS.key: (0, 2)}))
    driver.await_ready()
    assert asked_versions(driver) == [API_VERSIONS.version_max, 2]


def test_a_broker_that_refuses_without_naming_a_version_is_asked_again_with_version_0() -> None:
    driver = Driver()
    driver.cluster.scripts[API_VERSIONS.key] = lambda asked: (
        versions_body() if asked.version == 0 else {"error_code": 35, "api_keys": []}
    )
    driver.await_ready()
    assert asked_versions(driver) == [API_VERSIONS.version_max, 0]


def test_a_broker_that_refuses_every_version_is_given_up_after_finitely_many_questions() -> None:
    driver = Driver()
    rows = [{"api_key": API_VERSIONS.key, "min_version": 0, "max_version": 30_000}]
    driver.cluster.scripts[API_VERSIONS.key] = lambda asked: {"error_code": 35, "api_keys": rows}
    driver.connect()
    assert asked_versions(driver) == list(range(API_VERSIONS.version_max, -1, -1))
    assert driver.delay_ms() == 50


def test_a_name_that_does_not_resolve_backs_off_and_names_the_host() -> None:
    driver = Driver(FakeCluster({0: ("badhost", 1234)}))
    driver.nodes.connect(0, driver.now_ms)
    driver.nodes.take_commands()
    driver.nodes.on_input(driver.now_ms, Resolved(0, (), TransportError("no such name")))
    (notice,) = notices(driver.nodes.take_commands())
    assert "badhost:1234 (node 0) was not resolved: no such name" in notice
    assert driver.delay_ms() == 50
    assert not driver.nodes.is_ready(0, driver.now_ms)


@pytest.mark.parametrize("is_connecting", [False, True])
@pytest.mark.parametrize(
    ("number", "name"),
    [
        (errno.EMFILE, "PKS-5008"),
        (errno.EADDRNOTAVAIL, "PKS-3003"),
        (errno.ENOBUFS, "PKS-3003"),
        (errno.ENOMEM, "PKS-3003"),
    ],
)
def test_what_this_host_lacks_is_not_blamed_on_what_a_broker_advertises(
    number: int, name: str, is_connecting: bool
) -> None:
    driver = Driver()
    reason = failure_of("a:9092", OSError(number, os.strerror(number)))
    driver.nodes.connect(0, driver.now_ms)
    driver.nodes.take_commands()
    if is_connecting:
        driver.nodes.on_input(driver.now_ms, Resolved(0, ((2, ("10.0.0.1", 9092)),)))
        (connect,) = [each for each in driver.nodes.take_commands() if isinstance(each, Connect)]
        driver.nodes.on_input(driver.now_ms, Disconnected(connect.connection_id, reason))
    else:
        driver.nodes.on_input(driver.now_ms, Resolved(0, (), reason))
    (notice,) = notices(driver.nodes.take_commands())
    assert os.strerror(number) in notice
    assert "advertise" not in notice
    assert driver.nodes.last_failure is not None and driver.nodes.last_failure.name == name
    assert driver.delay_ms() == 50


def test_an_event_of_a_closed_connection_is_ignored() -> None:
    driver = Driver()
    driver.await_ready()
    stale_id = driver.connects()[0].connection_id
    driver.lose()
    for event in (Connected(stale_id), Received(stale_id, b"\x00" * 40)):
        driver.nodes.on_input(driver.now_ms, event)
    assert driver.nodes.take_commands() == []
    assert driver.nodes.take_answers() == []


def test_an_answer_of_the_resolver_that_nobody_waits_for_is_ignored() -> None:
    driver = Driver()
    driver.nodes.on_input(driver.now_ms, Resolved(0, ((2, ("10.0.0.1", 9092)),)))
    driver.nodes.on_input(driver.now_ms, Resolved(77, ((2, ("10.0.0.1", 9092)),)))
    assert driver.nodes.take_commands() == []


def test_a_broker_without_the_needed_version_answers_at_once_with_a_text_that_names_both() -> None:
    driver = Driver(FakeCluster({0: ("a", 9092)}, api_versions={INIT_PRODUCER_ID.key: (0, 1)}))
    driver.await_ready()
    asked = driver.send(request(api=INIT_PRODUCER_ID, body={}, version_min=3))
    (answer,) = driver.take_answers()
    assert answer.request is asked
    assert isinstance(answer.failure, BrokerError)
    assert (answer.failure.code, answer.failure.api, answer.was_sent) == (35, "InitProducerId", False)
    assert "a:9092 (node 0) offers versions 0 to 1" in str(answer.failure)
    assert f"3 to {INIT_PRODUCER_ID.version_max}" in str(answer.failure)
    assert driver.nodes.in_flight_count(0) == 0


def test_a_broker_without_the_api_answers_at_once() -> None:
    driver = Driver(FakeCluster({0: ("a", 9092)}, api_versions={INIT_PRODUCER_ID.key: None}))
    driver.await_ready()
    driver.send(request(api=INIT_PRODUCER_ID, body={}, version_min=0))
    (answer,) = driver.take_answers()
    assert answer.failure is not None and answer.failure.name == "PKS-3008"
    assert "does not offer it" in str(answer.failure)
    assert driver.nodes.version_of(0, INIT_PRODUCER_ID) is None


def test_a_server_without_metadata_is_taken_for_a_controller() -> None:
    driver = Driver(FakeCluster({0: ("a", 9092)}, api_versions={METADATA.key: None}))
    driver.await_ready()
    driver.send(request(api=METADATA, body={}, version_min=0))
    (answer,) = driver.take_answers()
    assert "Is this the port of a KRaft controller" in str(answer.failure)


def test_a_field_that_the_negotiated_version_cannot_carry_is_answered_and_not_sent() -> None:
    driver = Driver(FakeCluster({0: ("a", 9092)}, api_versions={INIT_PRODUCER_ID.key: (0, 2)}))
    driver.await_ready()
    driver.send(request(api=INIT_PRODUCER_ID, body={"producer_id": 7, "producer_epoch": 1}, version_min=0))
    (answer,) = driver.take_answers()
    assert isinstance(answer.failure, LocalProtocolError)
    assert not answer.was_sent
    assert driver.cluster.requests_of(INIT_PRODUCER_ID) == []
    assert driver.nodes.is_ready(0, driver.now_ms)


def test_a_request_travels_in_the_highest_version_that_all_three_allow() -> None:
    driver = Driver(FakeCluster({0: ("a", 9092)}, api_versions={PRODUCE.key: (3, 8)}))
    driver.await_ready()
    driver.send(produce())
    driver.send(produce(version_max=6))
    assert [asked.version for asked in driver.cluster.requests_of(PRODUCE)] == [8, 6]


def test_a_request_written_by_hand_travels_by_reference() -> None:
    driver = Driver()
    driver.await_ready()
    payload = memoryview(b"payload")
    calls = []

    class ByHand(Request):
        def encode(self, version: int, correlation_id: int, client_id: str) -> list[Buffer]:
            calls.append((version, correlation_id, client_id))
            return [b"head", payload]

    driver.nodes.send(0, ByHand(PRODUCE, {}, "test", 30_000), driver.now_ms)
    (command,) = driver.nodes.take_commands()
    assert isinstance(command, Send)
    assert command.buffers[1] is payload
    assert calls == [(PRODUCE.version_max, 1, driver.options.client_id)]


def test_the_finalized_features_with_the_highest_epoch_win() -> None:
    cluster = FakeCluster({0: ("a", 9092), 1: ("b", 9092), 2: ("c", 9092)})
    levels = {0: (5, 2), 1: (4, 1), 2: (-1, 0)}

    def body(asked: object) -> dict[str, object]:
        epoch, level = levels[asked.node_id]  # type: ignore[attr-defined]
        feature = {"name": "transaction.version", "max_version_level": level, "min_version_level": 1}
        return versions_body(finalized_features_epoch=epoch, finalized_features=[feature])

    cluster.scripts[API_VERSIONS.key] = body
    driver = Driver(cluster)
    for node_id in (1, 0, 2, 1):
        driver.await_ready(node_id)
    assert driver.nodes.finalized_features == {"transaction.version": 2}
    assert driver.nodes.finalized_features_epoch == 5


def test_bytes_after_the_answer_to_api_versions_belong_to_no_request() -> None:
    driver = Driver()
    driver.cluster.scripts[API_VERSIONS.key] = lambda asked: None
    driver.connect()
    driver.cluster.answer(driver.cluster.pending[0], versions_body())
    (event,) = driver.cluster.deliver((), driver.now_ms)
    assert isinstance(event, Received)
    driver.nodes.on_input(driver.now_ms, Received(event.connection_id, bytes(event.data) + b"\x00"))
    assert not driver.nodes.is_ready(0, driver.now_ms)
    assert "1 bytes that nobody asked for, before the first request" in str(driver.nodes.last_failure)


def test_the_time_for_connecting_doubles_up_to_its_limit() -> None:
    limits = {"socket_connection_setup_timeout_ms": 1_000, "socket_connection_setup_timeout_max_ms": 1_500}
    driver = Driver(reconnect_backoff_ms=0, reconnect_backoff_max_ms=0, **limits)
    driver.cluster.deaf.add(0)
    waits = []
    for _ in range(3):
        driver.connect()
        deadline_ms = driver.nodes.update_deadline(driver.now_ms)
        assert deadline_ms is not None
        waits.append(deadline_ms - driver.now_ms)
        driver.sleep(waits[-1])
    assert waits == [1_000, 1_500, 1_500]
