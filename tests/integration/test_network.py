"""The selector loop against real sockets of this machine: partial writes, lost peers, wake-ups, name look-ups."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from kafka_sink.kafka.client.commands import (
    Address,
    Connect,
    Connected,
    Disconnect,
    Disconnected,
    NetworkEvent,
    Received,
    Resolve,
    Resolved,
    Send,
    Written,
)
from kafka_sink.kafka.io.clock import Clock
from kafka_sink.kafka.io.network import CALLS_PER_TURN, RECEIVE_BYTES, Network, format_address
from kafka_sink.options import ProducerOptions
from tests.integration.exhausted_descriptors import no_descriptor_left

LIMIT_S = 60
OPTIONS = ProducerOptions(bootstrap_servers=(("b", 1),), send_buffer_bytes=-1, receive_buffer_bytes=-1)


@dataclass
class Peer:
    """A network connected to a plain socket."""

    network: Network
    socket: socket.socket
    address: Address

    def events(self, wanted: type[NetworkEvent]) -> list[NetworkEvent]:
        """Returns all events up to and including the first of the wanted kind."""
        found: list[NetworkEvent] = []
        deadline = time.monotonic() + LIMIT_S
        while not any(isinstance(event, wanted) for event in found):
            assert time.monotonic() < deadline, found
            found += self.network.poll(50)
        return found


@pytest.fixture
def network() -> Iterator[Network]:
    with contextlib.closing(Network(Clock(), replace(OPTIONS, send_buffer_bytes=16_384))) as network:
        yield network


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LIMIT_S)
        yield listener


@pytest.fixture
def peer(network: Network, listener: socket.socket) -> Iterator[Peer]:
    address = (int(socket.AF_INET), listener.getsockname())
    network.execute(Connect(1, 7, address))
    accepted, _ = listener.accept()
    accepted.settimeout(LIMIT_S)
    with accepted:
        peer = Peer(network, accepted, address)
        assert peer.events(Connected) == [Connected(1)]
        yield peer


def test_a_payload_larger_than_every_buffer_arrives_whole_and_in_order_without_being_joined(peer: Peer) -> None:
    payloads = [bytes([number]) * 3_000_000 for number in range(3)]
    peer.network.execute(Send(1, [b"head", payloads[0], memoryview(payloads[1]), b""]))
    last = [bytearray(payloads[2]), *[b"%03d" % number for number in range(600)]]
    peer.network.execute(Send(1, last, tells_written=True))
    expected = b"head" + b"".join(payloads) + b"".join(b"%03d" % number for number in range(600))
    received = bytearray()

    def read() -> None:
        while len(received) < len(expected):
            received.extend(peer.socket.recv(100_000))

    reader = threading.Thread(target=read)
    reader.start()
    assert peer.events(Written)[-1] == Written(1)
    reader.join(LIMIT_S)
    assert received == expected
    assert peer.network.poll(0) == []


def test_a_write_that_takes_many_parts_is_one_event_of_one_poll(peer: Peer) -> None:
    reader = threading.Thread(target=lambda: [peer.socket.recv(8_192, socket.MSG_WAITALL) for _ in range(400)])
    peer.network.execute(Send(1, [bytes(400 * 8_192)], tells_written=True))
    reader.start()
    assert peer.network.poll(None) == [Written(1)]
    reader.join(LIMIT_S)


def test_nobody_is_told_of_a_write_who_did_not_ask(peer: Peer) -> None:
    peer.network.execute(Send(1, [b"x" * 1000]))
    peer.network.execute(Send(1, [b"y"], tells_written=True))
    peer.network.execute(Send(1, [b"z" * 1000]))
    assert peer.network.poll(1000) == [Written(1)]
    assert peer.socket.recv(2001, socket.MSG_WAITALL) == b"x" * 1000 + b"y" + b"z" * 1000
    assert peer.network.poll(0) == []


def test_a_write_is_told_of_only_when_what_was_sent_after_it_is_written_too(peer: Peer) -> None:
    peer.network.execute(Send(1, [b"x"], tells_written=True))
    peer.network.execute(Send(1, [bytes(400 * 8_192 - 1)], tells_written=True))
    assert peer.network.poll(20) == []
    reader = threading.Thread(target=lambda: [peer.socket.recv(8_192, socket.MSG_WAITALL) for _ in range(400)])
    reader.start()
    assert peer.network.poll(None) == [Written(1)]
    reader.join(LIMIT_S)


def test_a_peer_that_does_not_read_never_blocks_the_loop(peer: Peer) -> None:
    peer.network.execute(Send(1, [bytes(50_000_000)]))
    for _ in range(20):
        assert peer.network.poll(1) == []
    peer.network.execute(Disconnect(1))
    assert peer.network.connection_count == 0


def test_what_arrives_is_read_in_bounded_portions(peer: Peer) -> None:
    data = os.urandom(2_000_000)
    writer = threading.Thread(target=peer.socket.sendall, args=(data,))
    writer.start()
    received = b""
    while len(received) < len(data):
        events = peer.network.poll(1000)
        portions = [event.data for event in events if isinstance(event, Received)]
        assert len(portions) <= CALLS_PER_TURN
        assert all(len(portion) <= RECEIVE_BYTES for portion in portions)
        received += b"".join(portions)
    writer.join(LIMIT_S)
    assert received == data


def test_what_a_peer_said_before_it_closed_is_told_first(peer: Peer) -> None:
    peer.socket.sendall(b"last words")
    peer.socket.close()
    received, lost = peer.events(Disconnected)
    assert received == Received(1, b"last words")
    assert isinstance(lost, Disconnected)
    assert str(lost.reason) == f"{format_address(peer.address)} closed the connection"
    assert peer.network.connection_count == 0


def test_a_reset_connection_names_the_peer_and_the_reason(peer: Peer) -> None:
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.socket.close()
    (lost,) = peer.events(Disconnected)
    assert isinstance(lost, Disconnected)
    assert str(lost.reason) == f"{format_address(peer.address)}: Connection reset by peer"
    peer.network.execute(Send(1, [b"into the void"]))
    peer.network.execute(Disconnect(1))
    assert peer.network.poll(0) == []


def test_a_refused_connection_names_the_peer_and_the_reason(network: Network, listener: socket.socket) -> None:
    address = (int(socket.AF_INET), listener.getsockname())
    listener.close()
    network.execute(Connect(3, 7, address))
    (lost,) = network.poll(1000)
    assert isinstance(lost, Disconnected)
    assert (lost.connection_id, str(lost.reason)) == (3, f"{format_address(address)}: Connection refused")


@pytest.mark.parametrize("address", [(int(socket.AF_INET), ("127.0.0.1", 99_999)), (9999, ("x", 1))])
def test_an_impossible_address_is_an_event_and_no_exception(network: Network, address: Address) -> None:
    network.execute(Connect(3, 7, address))
    assert [type(event) for event in network.poll(0)] == [Disconnected]
    assert network.connection_count == 0


def test_sockets_carry_the_options_a_producer_needs(peer: Peer) -> None:
    opened = peer.network._connections[1].socket
    assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * 16_384  # Linux doubles the size that is set
    assert opened.getblocking() is False


def test_a_socket_has_the_receive_buffer_of_the_option(listener: socket.socket) -> None:
    with contextlib.closing(Network(Clock(), replace(OPTIONS, receive_buffer_bytes=20_480))) as network:
        network.execute(Connect(1, 7, (int(socket.AF_INET), listener.getsockname())))
        listener.accept()[0].close()
        network.poll(1000)
        assert network._connections[1].socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * 20_480


def test_a_wake_up_ends_a_wait_and_many_of_them_cost_one_byte(network: Network) -> None:
    threading.Timer(0.05, network.wake).start()
    assert network.poll(None) == []
    for _ in range(100_000):
        network.wake()
    assert network.poll(None) == []
    started = time.monotonic()
    assert network.poll(20) == []
    assert time.monotonic() - started >= 0.015


def test_a_wake_up_that_is_interrupted_does_not_swallow_the_next_ones(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = network._wake_sender

    class Interrupted:
        def send(self, data: bytes) -> int:
            raise KeyboardInterrupt

    monkeypatch.setattr(network, "_wake_sender", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        network.wake()
    monkeypatch.setattr(network, "_wake_sender", sender)
    network.wake()
    assert network.poll(None) == []


def test_a_wait_may_be_longer_than_the_operating_system_counts(network: Network) -> None:
    threading.Timer(0.05, network.wake).start()
    assert network.poll(2**62) == []


def test_what_a_command_has_caused_is_told_without_a_wait(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []
    monkeypatch.setattr(network._selector, "select", lambda timeout: waits.append(timeout) or [])
    network.execute(Resolve(1, "localhost", 9092))
    assert len(network.poll(None)) == 1
    network.poll(None)
    network.poll(1500)
    assert waits == [0, None, 1.5]


def test_each_poll_measures_its_own_wait_and_work(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter((0, 1_000, 1_300, 5_000, 5_020, 5_021))
    with contextlib.closing(Network(Clock(), OPTIONS)) as network:
        monkeypatch.setattr(network._clock, "monotonic_ns", lambda: next(ticks))
        measured = []
        for _ in range(2):
            network.poll(0)
            measured.append((network.wait_ns, network.io_ns))
    assert measured == [(1_000, 300), (20, 1)]


def test_names_are_resolved_to_all_their_addresses_and_failures_name_host_and_port(network: Network) -> None:
    for command in (Resolve(1, "localhost", 9092), Resolve(2, "no-such-host.invalid", 9092), Resolve(3, "x" * 300, 1)):
        network.execute(command)
    found, missing, too_long = network.poll(0)
    assert isinstance(found, Resolved)
    assert isinstance(missing, Resolved)
    assert isinstance(too_long, Resolved)
    assert "127.0.0.1:9092" in [format_address(address) for address in found.addresses]
    assert len(set(found.addresses)) == len(found.addresses)
    assert missing.addresses == too_long.addresses == ()
    assert str(missing.failure).startswith("no-such-host.invalid:9092: ")


def test_names_that_cannot_be_looked_up_for_lack_of_a_descriptor_are_not_unknown(network: Network) -> None:
    with no_descriptor_left():
        network.execute(Resolve(1, "localhost", 9092))
        network.execute(Resolve(2, "no-such-host.invalid", 9092))
    for event in network.poll(0):
        assert isinstance(event, Resolved) and event.failure is not None
        assert event.failure.name == "PKS-5008" and event.failure.is_local


def test_closing_closes_every_descriptor_and_waking_after_that_is_harmless(listener: socket.socket) -> None:
    before = len(os.listdir("/proc/self/fd"))
    network = Network(Clock(), OPTIONS)
    network.execute(Connect(1, 7, (int(socket.AF_INET), listener.getsockname())))
    network.close()
    network.wake()
    assert len(os.listdir("/proc/self/fd")) == before


def test_addresses_are_written_as_people_write_them() -> None:
    assert format_address((int(socket.AF_INET6), ("::1", 9092, 0, 0))) == "[::1]:9092"
    assert format_address((int(socket.AF_INET), ("10.0.0.1", 9092))) == "10.0.0.1:9092"
