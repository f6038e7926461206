"""Faults of a single request or answer, of a connection, and of a link for a while.

Request and answer faults are armed (`network.Link.armed`) and hit the next message that fits; the others act at once.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.sim.network import FIN, Armed, Connection, Link, Network

GLUE_MS_MAX = 400
LATE_MS_MAX = 12_000
OVERTAKEN_MS_MAX = 600


# ---- requests --------------------------------------------------------------------------------------------------------


def reset_before(network: Network, connection: Connection, data: bytes, pick: Random) -> None:
    """The request is lost with the connection, and so is everything sent after it until the client notices."""
    connection.to_broker.end()
    network.loop.after(network.latency(), lambda: network.reset(connection))


def reset_middle(network: Network, connection: Connection, data: bytes, pick: Random) -> None:
    """Half of the request arrives, then the end of the stream."""
    connection.to_broker.push(data[: pick.randrange(1, len(data))], network.latency())
    _lose_client(network, connection)


def reset_after(network: Network, connection: Connection, data: bytes, pick: Random) -> None:
    """The request arrives, but the client sees the connection break at once."""
    connection.to_broker.push(data, network.latency())
    _lose_client(network, connection)


def late_request(network: Network, connection: Connection, data: bytes, pick: Random) -> None:
    """The request stays in a socket buffer with everything behind it; the client may have given it up long ago."""
    connection.to_broker.push(data, pick.randrange(200, LATE_MS_MAX))


def late_request_after_reset(network: Network, connection: Connection, data: bytes, pick: Random) -> None:
    """The client continues on a new connection while this request is still in transit."""
    connection.to_broker.push(data, pick.randrange(50, LATE_MS_MAX))
    _lose_client(network, connection)


def overtaken(network: Network, connection: Connection, data: bytes, pick: Random) -> None:
    """The same with a shorter delay: the request arrives while the work of its own retry is still in progress."""
    connection.to_broker.push(data, pick.randrange(20, OVERTAKEN_MS_MAX))
    _lose_client(network, connection)


def split_request(network: Network, connection: Connection, data: bytes, pick: Random) -> None:
    """The request arrives in segments of 1, 7 or 64 bytes."""
    step = pick.choice((1, 7, 64))
    for start in range(0, len(data), step):
        connection.to_broker.push(data[start : start + step], network.latency() if start == 0 else 0)


def _lose_client(network: Network, connection: Connection) -> None:
    connection.to_host.cut()
    connection.to_broker.push(FIN, network.latency())
    network.loop.after(1, lambda: network.break_here(connection, "connection reset by peer"))


# ---- answers ---------------------------------------------------------------------------------------------------------


def lost_answer(network: Network, connection: Connection, data: bytes, pick: Random) -> None:
    """The broker has done its work, but the answer never arrives and the connection breaks."""
    network.loop.after(network.latency(), lambda: network.reset(connection))


def truncated(network: Network, connection: Connection, data: bytes, pick: Random) -> None:
    connection.to_host.push(data[: pick.randrange(1, len(data))], network.latency())
    connection.to_host.push(FIN, network.latency())
    connection.is_open_there = False
    network.core.on_disconnect(connection.number)


def byte_by_byte(network: Network, connection: Connection, data: bytes, pick: Random) -> None:
    for start in range(len(data)):
        connection.to_host.push(data[start : start + 1], network.latency() if start == 0 else pick.choice((0, 0, 0, 1)))


def glued(network: Network, connection: Connection, data: bytes, pick: Random) -> None:
    """The answer waits for the next one, and both arrive in one piece."""
    connection.glue.append(data)
    network.loop.after(GLUE_MS_MAX, lambda: network.unglue(connection))


def wrong_correlation(network: Network, connection: Connection, data: bytes, pick: Random) -> None:
    other = int.from_bytes(data[4:8], "big") + pick.choice((-1, 1, 2, 1000))
    if other == next(iter(connection.unanswered), None):
        # After a lost answer that would be the next one to come: nobody could tell that it belongs to another request.
        other += 1000
    connection.to_host.push(data[:4] + (other & 0x7FFFFFFF).to_bytes(4, "big") + data[8:], network.latency())


def garbage(network: Network, connection: Connection, data: bytes, pick: Random) -> None:
    """Bytes that are not Kafka's, or an impossible length, or random bytes with a plausible length."""
    noise = bytes(pick.randrange(256) for _ in range(pick.randrange(4, 40)))
    kind = pick.randrange(3)
    if kind == 0:
        data = b"HTTP/1.1 400 Bad Request\r\n\r\n"
    elif kind == 1:
        data = b"\xff\xff\xff\xff" + noise
    else:
        data = len(noise).to_bytes(4, "big") + noise
    connection.to_host.push(data, network.latency())


def short_frame(network: Network, connection: Connection, data: bytes, pick: Random) -> None:
    """The correlation id is right, but the body stops in the middle, and the length agrees with that."""
    kept = data[4 : pick.randrange(8, len(data))] if len(data) > 8 else data[4:]
    connection.to_host.push(len(kept).to_bytes(4, "big") + kept, network.latency())


def late_answer(network: Network, connection: Connection, data: bytes, pick: Random) -> None:
    connection.to_host.push(data, pick.randrange(100, LATE_MS_MAX))


MessageFault = Callable[[Network, Connection, bytes, Random], None]
REQUEST_FAULTS: dict[str, MessageFault] = {
    one.__name__: one
    for one in (
        reset_before, reset_middle, reset_after, late_request, late_request_after_reset, overtaken, split_request,
    )
}  # fmt: skip
ANSWER_FAULTS: dict[str, MessageFault] = {
    one.__name__: one
    for one in (
        lost_answer, truncated, byte_by_byte, glued, wrong_correlation, garbage, short_frame, late_answer,
    )
}  # fmt: skip


def attach(network: Network) -> None:
    def act(table: dict[str, MessageFault]) -> Callable[[Connection, bytes, Armed], None]:
        def on_fault(connection: Connection, data: bytes, armed: Armed) -> None:
            network.trace.count(f"fault {armed.kind}")
            network.trace.note(network.loop.now_ms, f"fault {armed.kind} on {connection.number}")
            table[armed.kind](network, connection, data, armed.pick)

        return on_fault

    network.on_request_fault = act(REQUEST_FAULTS)
    network.on_answer_fault = act(ANSWER_FAULTS)


# ---- connections and links -------------------------------------------------------------------------------------------


def reset_link(network: Network, link: Link, pick: Random, length_ms: int) -> None:
    for connection in _of(network, link):
        network.reset(connection)


def clog(network: Network, link: Link, pick: Random, length_ms: int) -> None:
    link.blocked_until_ms = max(link.blocked_until_ms, network.loop.now_ms + length_ms)


def silence(network: Network, link: Link, pick: Random, length_ms: int) -> None:
    """Half-open: the other end is gone without closing the connection."""
    for connection in _of(network, link):
        connection.is_silent = True


def refuse(network: Network, link: Link, pick: Random, length_ms: int) -> None:
    link.refuses_until_ms = network.loop.now_ms + length_ms
    reset_link(network, link, pick, length_ms)


def slow_connect(network: Network, link: Link, pick: Random, length_ms: int) -> None:
    link.slow_until_ms = network.loop.now_ms + length_ms
    reset_link(network, link, pick, length_ms)


def swizzle(network: Network, link: Link, pick: Random, length_ms: int) -> None:
    """A random subset of all links stops, one link after the other, and comes back in random order."""
    links = [one for one in network.links.values() if pick.random() < 0.6]
    pick.shuffle(links)
    step_ms = max(1, length_ms // (2 * len(links) + 1))
    ends = [network.loop.now_ms + length_ms - index * step_ms for index in range(len(links))]
    pick.shuffle(ends)
    for index, (one, end_ms) in enumerate(zip(links, ends, strict=True)):
        start = _clogging(network, one, end_ms)
        network.loop.after(index * step_ms, start)


def _clogging(network: Network, link: Link, end_ms: int) -> Callable[[], None]:
    def start() -> None:
        if not network.is_healed:
            link.blocked_until_ms = max(link.blocked_until_ms, end_ms)

    return start


def _of(network: Network, link: Link) -> list[Connection]:
    return [one for one in network.open_connections() if one.link is link]


LinkFault = Callable[[Network, Link, Random, int], None]
LINK_FAULTS: dict[str, LinkFault] = {
    one.__name__: one for one in (reset_link, clog, silence, refuse, slow_connect, swizzle)
}
