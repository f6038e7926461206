"""Shows that each fault of the simulated network acts, as seen from both ends of one connection."""

from __future__ import annotations

from random import Random

import pytest

from kafka_sink.kafka.client.commands import Connect, Connected, Disconnected, NetworkEvent, Received, Send
from kafka_sink.kafka.wire import frames
from kafka_sink.kafka.wire.apis import METADATA
from kafka_sink.testing import BrokerCluster
from kafka_sink.testing.topics import BrokerState
from tests.sim import network_faults
from tests.sim.dice import Dice
from tests.sim.loop import Loop
from tests.sim.network import Armed, Network
from tests.sim.trace import Trace


class Host:
    """Requests metadata over one connection and keeps what it receives."""

    def __init__(self, latency_ms: float = 0) -> None:
        self.name = "h"
        self.loop = Loop()
        self.core = BrokerCluster([BrokerState(1, "b1", 9092)], topics={"t": 1})
        self.asked = 0
        self.handled: list[int] = []
        self.network = Network(self.loop, self.core, Dice(1), Trace(), latency_ms=latency_ms)
        network_faults.attach(self.network)
        self.core.faults.interceptor = lambda *_: self.handled.append(self.loop.now_ms)
        self.events: list[tuple[int, NetworkEvent]] = []
        self.network.carry_out(self, Connect(1, 1, (2, ("b1", 9092))))

    def on_network(self, event: NetworkEvent) -> None:
        self.events.append((self.loop.now_ms, event))

    def ask(self) -> None:
        self.asked += 1
        data = frames.encode_request(
            METADATA, 9, correlation_id=self.asked, client_id="h", body={"topics": [{"name": "t"}]}
        )
        self.network.carry_out(self, Send(1, [data]))

    def run(self, until_ms: int = 60_000) -> None:
        while (next_ms := self.loop.next_ms) is not None and next_ms <= until_ms:
            self.loop.run_next()

    def arm(self, kind: str, *, seed: int = 1) -> None:
        direction = "request" if kind in network_faults.REQUEST_FAULTS else "answer"
        self.network.link("h", 1).armed[direction].append(Armed(kind, Random(seed), 1 << 40))

    @property
    def received(self) -> list[bytes]:
        return [bytes(event.data) for _, event in self.events if isinstance(event, Received)]

    @property
    def is_broken(self) -> bool:
        return any(isinstance(event, Disconnected) for _, event in self.events)


def connected(**options: float) -> Host:
    host = Host(**options)
    host.run()
    assert isinstance(host.events[0][1], Connected)
    return host


def after(kind: str, *, asks: int = 1) -> Host:
    host = connected()
    host.arm(kind)
    for _ in range(asks):
        host.ask()
    host.run()
    return host


def whole_answers(host: Host) -> list[int]:
    buffer = frames.FrameBuffer(1 << 20)
    for data in host.received:
        buffer.feed(data)
    found = []
    while (frame := buffer.next_frame()) is not None:
        found.append(frames.peek_correlation_id(frame))
    return found


def test_without_faults_answers_come_in_order() -> None:
    host = connected(latency_ms=20)
    for _ in range(20):
        host.ask()
    host.run()
    assert whole_answers(host) == list(range(1, 21))
    assert not host.is_broken


@pytest.mark.parametrize(
    ("kind", "is_handled", "answers", "is_broken"),
    [
        ("reset_before", False, [], True),
        ("reset_middle", False, [], True),
        ("reset_after", True, [], True),
        ("late_request", True, [1], False),
        ("late_request_after_reset", True, [], True),
        ("split_request", True, [1], False),
        ("lost_answer", True, [], True),
        ("truncated", True, [], True),
        ("byte_by_byte", True, [1], False),
        ("late_answer", True, [1], False),
    ],
)
def test_what_a_fault_does_to_one_request(kind: str, is_handled: bool, answers: list[int], is_broken: bool) -> None:
    host = after(kind)
    assert (bool(host.handled), whole_answers(host), host.is_broken) == (is_handled, answers, is_broken)
    assert host.network.trace.counts[f"fault {kind}"] == 1


def test_behind_a_lost_request_nothing_of_its_connection_arrives() -> None:
    """A byte stream has no gaps; otherwise the client could take the second answer for the first."""
    host = connected(latency_ms=20)
    host.arm("reset_before")
    for _ in range(20):
        host.ask()
    host.run()
    assert (host.handled, host.is_broken) == ([], True)


def test_a_late_request_arrives_after_its_client_gave_up() -> None:
    host = connected()
    host.arm("late_request_after_reset")
    host.ask()
    host.run()
    broken_ms = next(at for at, event in host.events if isinstance(event, Disconnected))
    assert host.handled[0] > broken_ms


def test_bytes_come_one_by_one_and_answers_glued() -> None:
    assert {len(data) for data in after("byte_by_byte").received} == {1}
    host = after("glued", asks=2)
    assert len(host.received) == 1
    assert whole_answers(host) == [1, 2]


@pytest.mark.parametrize("kind", ["wrong_correlation", "garbage", "short_frame"])
def test_a_broken_answer_is_no_answer(kind: str) -> None:
    good, bad = after("late_answer").received, after(kind).received
    assert bad
    assert b"".join(bad) != b"".join(good)


def test_a_clogged_link_holds_everything_back_and_loses_nothing() -> None:
    host = connected()
    network_faults.clog(host.network, host.network.link("h", 1), Random(1), 500)
    start_ms = host.loop.now_ms
    host.ask()
    host.run()
    assert host.handled == [start_ms + 500]
    assert whole_answers(host) == [1]


def test_a_silent_connection_says_nothing_and_is_not_broken() -> None:
    host = connected()
    network_faults.silence(host.network, host.network.link("h", 1), Random(1), 0)
    host.ask()
    host.run()
    assert (host.handled, host.received, host.is_broken) == ([], [], False)


def test_a_link_that_refuses_breaks_old_connections_and_makes_no_new_one() -> None:
    host = connected()
    network_faults.refuse(host.network, host.network.link("h", 1), Random(1), 500)
    host.network.carry_out(host, Connect(2, 1, (2, ("b1", 9092))))
    host.run()
    ends = [event.connection_id for _, event in host.events if isinstance(event, Disconnected)]
    assert ends == [1, 2]


def test_a_slow_connect_takes_its_time() -> None:
    host = connected()
    network_faults.slow_connect(host.network, host.network.link("h", 1), Random(1), 500)
    start_ms = host.loop.now_ms
    host.network.carry_out(host, Connect(2, 1, (2, ("b1", 9092))))
    host.run()
    assert host.events[-1] == (start_ms + 500, Connected(2))


def test_swizzling_stops_links_and_lets_them_go_again() -> None:
    host = connected()
    network_faults.swizzle(host.network, host.network.link("h", 1), Random(1), 500)
    start_ms = host.loop.now_ms
    host.run(start_ms)
    host.ask()
    host.run()
    assert host.handled[0] > start_ms
    assert whole_answers(host) == [1]


def test_a_crashed_broker_breaks_its_connections_and_refuses_new_ones() -> None:
    host = connected()
    host.core.stop_broker(1, is_crash=True)
    host.network.hang_up(1)
    host.run()
    host.network.carry_out(host, Connect(2, 1, (2, ("b1", 9092))))
    host.run()
    assert [type(event).__name__ for _, event in host.events] == ["Connected", "Disconnected", "Disconnected"]


def test_what_a_dead_host_had_written_still_arrives_unless_its_cable_was_cut() -> None:
    for is_silent in (False, True):
        host = connected(latency_ms=5)
        host.ask()
        host.network.forget_host("h", is_silent=is_silent)
        host.run()
        assert bool(host.handled) is not is_silent
