"""The connection's state table, every pair of state and event, and the rules that can be tested without a network."""

from __future__ import annotations

import itertools

import pytest

from kafka_sink.errors import LocalProtocolError, TransportError
from kafka_sink.kafka.client.commands import Send
from kafka_sink.kafka.client.connection import (
    CORRELATION_ID_MAX,
    TRANSITIONS,
    Connection,
    ConnectionEvent,
    ConnectionState,
)
from kafka_sink.kafka.client.request import Request
from kafka_sink.kafka.wire.apis import API_VERSIONS, APIS, METADATA, PRODUCE
from kafka_sink.kafka.wire.frames import decode_request_header, encode_response
from kafka_sink.options import ProducerOptions
from tests.unit.kafka.client.network_driver import produce

LEGAL = {
    (ConnectionState.CONNECTING, ConnectionEvent.CONNECTED): ConnectionState.NEGOTIATING,
    (ConnectionState.CONNECTING, ConnectionEvent.LOST): ConnectionState.CLOSED,
    (ConnectionState.NEGOTIATING, ConnectionEvent.VERSIONS_REFUSED): ConnectionState.NEGOTIATING,
    (ConnectionState.NEGOTIATING, ConnectionEvent.VERSIONS_AGREED): ConnectionState.READY,
    (ConnectionState.NEGOTIATING, ConnectionEvent.AUTHENTICATION_BEGUN): ConnectionState.HANDSHAKING,
    (ConnectionState.NEGOTIATING, ConnectionEvent.LOST): ConnectionState.CLOSED,
    (ConnectionState.HANDSHAKING, ConnectionEvent.MECHANISM_AGREED): ConnectionState.AUTHENTICATING,
    (ConnectionState.HANDSHAKING, ConnectionEvent.LOST): ConnectionState.CLOSED,
    (ConnectionState.AUTHENTICATING, ConnectionEvent.TOKEN_WANTED): ConnectionState.AUTHENTICATING,
    (ConnectionState.AUTHENTICATING, ConnectionEvent.AUTHENTICATED): ConnectionState.READY,
    (ConnectionState.AUTHENTICATING, ConnectionEvent.LOST): ConnectionState.CLOSED,
    (ConnectionState.READY, ConnectionEvent.AUTHENTICATION_BEGUN): ConnectionState.HANDSHAKING,
    (ConnectionState.READY, ConnectionEvent.LOST): ConnectionState.CLOSED,
}


def new_connection() -> Connection:
    options = ProducerOptions(bootstrap_servers=(("a", 9092),))
    return Connection(7, 0, "a:9092 (node 0)", options, now_ms=0, new_exchange=None, jitter=lambda: 0.0, commands=[])


def ready_connection() -> Connection:
    connection = new_connection()
    connection.on_connected(0)
    rows = [
        {"api_key": key, "min_version": api.version_min, "max_version": api.version_max} for key, api in APIS.items()
    ]
    body = {"error_code": 0, "api_keys": rows}
    assert connection.on_received(0, encode_response(API_VERSIONS, API_VERSIONS.version_max, 0, body)) == []
    connection.commands.clear()
    return connection


def correlation_ids(connection: Connection) -> list[int]:
    commands = [command for command in connection.commands if isinstance(command, Send)]
    return [decode_request_header(bytes(command.buffers[0])[4:])[2] for command in commands]


@pytest.mark.parametrize(("state", "event"), list(itertools.product(ConnectionState, ConnectionEvent)))
def test_every_transition_is_the_one_of_the_table_or_raises(state: ConnectionState, event: ConnectionEvent) -> None:
    connection = new_connection()
    connection.state = state
    if (state, event) in LEGAL:
        connection._transition(event)
        assert connection.state is LEGAL[state, event] is TRANSITIONS[state, event]
    else:
        with pytest.raises(LocalProtocolError, match=f"while {state.value}"):
            connection._transition(event)
        assert connection.state is state


@pytest.mark.parametrize("state", [ConnectionState.CONNECTING, ConnectionState.NEGOTIATING, ConnectionState.CLOSED])
def test_sending_on_a_connection_that_is_not_ready_raises(state: ConnectionState) -> None:
    connection = new_connection()
    connection.state = state
    with pytest.raises(LocalProtocolError, match="which is"):
        connection.send(produce(), 0)


def test_a_lost_connection_returns_what_was_in_flight_in_order_and_keeps_nothing() -> None:
    connection = ready_connection()
    asked = [produce(purpose=index) for index in range(3)]
    for one in asked:
        assert connection.send(one, 5) is None
    answers = connection.on_lost(TransportError("gone"))
    assert [answer.request for answer in answers] == asked
    assert (connection.in_flight_count, connection.deadline_ms) == (0, None)


def test_a_large_request_is_told_of_while_it_is_in_flight_and_a_usual_one_never() -> None:
    connection = ready_connection()
    large = Request(METADATA, {"topics": [{"name": "x" * 30_000}] * 300}, None, 1_000)
    assert connection.send(produce(), 5) is None and connection.large_bytes_in_flight == 0
    assert connection.send(large, 5) is None and connection.large_bytes_in_flight > 9_000_000
    connection.in_flight.remove(large)  # as when it is answered
    assert connection.large_bytes_in_flight == 0 and connection.in_flight_count == 1


def test_the_earliest_deadline_of_all_requests_counts() -> None:
    connection = ready_connection()
    connection.send(produce(timeout_ms=200), 10)
    connection.send(produce(timeout_ms=100), 10)
    assert connection.deadline_ms == 110


def test_correlation_ids_start_over_after_the_largest() -> None:
    connection = ready_connection()
    connection._next_correlation_id = CORRELATION_ID_MAX
    connection.send(produce(), 0)
    connection.send(produce(), 0)
    assert correlation_ids(connection) == [CORRELATION_ID_MAX, 0]
    for correlation_id in (CORRELATION_ID_MAX, 0):
        body = {"responses": []}
        (answer,) = connection.on_received(1, encode_response(PRODUCE, PRODUCE.version_max, correlation_id, body))
        assert answer.body is not None
    assert connection.failure is None


def test_nothing_is_read_after_a_failure() -> None:
    connection = ready_connection()
    connection.send(produce(), 0)
    connection.on_received(1, b"\xff\xff\xff\xff")
    assert connection.failure is not None
    assert connection.on_received(2, encode_response(PRODUCE, PRODUCE.version_max, 1, {"responses": []})) == []


def test_the_repr_shows_the_state_for_debugging() -> None:
    assert repr(ready_connection()) == "<Connection 7 to a:9092 (node 0) ready in flight 0>"


def test_an_answer_is_not_that_of_a_request_without_one_that_is_not_written_yet() -> None:
    connection = ready_connection()
    unanswered, waiting = produce(expects_answer=False), produce()
    assert connection.send(unanswered, 0) is None and connection.send(waiting, 0) is None
    body = {"responses": [], "throttle_time_ms": 0}
    data = encode_response(PRODUCE, PRODUCE.version_max, waiting.correlation_id, body)
    assert [answer.request for answer in connection.on_received(0, data)] == [waiting]
    assert [answer.request for answer in connection.on_written()] == [unanswered]
