"""A bootstrap address leads to something that is not a Kafka broker, or to a broken one.

Whatever it sends, the user gets an error of this package that names the address and what it looks like, within the time
limit; the connection is closed, memory and CPU time are limited, and closing leaves no thread or descriptor.
"""

from __future__ import annotations

import gc
import re
import resource
import threading
import time
from dataclasses import dataclass

import pytest

from kafka_sink import Producer
from kafka_sink.errors import ConfigError, KafkaSinkError
from tests.integration import hostile_peer as peers
from tests.integration.hostile_peer import Behaviour, HostilePeer
from tests.support.producing import descriptor_count, senders
from tools.waiting import wait_until

MAX_BLOCK_MS = 1000
REQUEST_TIMEOUT_MS = 400
# For a busy machine, and for a request time-out that begins just before max.block.ms ends.
SLACK_S = 50.0
# Far less than the lengths claimed here would take, far more than the memory of Python itself varies.
GROWTH_BYTES_MAX = 32 * 1024 * 1024
CPU_S_MAX = 0.4
CLOSE_S = 5


@dataclass(frozen=True)
class Case:
    name: str
    behaviour: Behaviour
    says: str  # what the error must say, as a pattern


# Both requests are sent together; which of them gets the invalid answer is random.
FIRST_ASKED = "(Metadata|InitProducerId)"
CASES = (
    Case("random body", peers.random_body, "correlation id|broke the protocol"),
    Case("flood of random bytes", peers.flood, "broke the protocol"),
    Case("HTTP server", peers.http, "HTTP"),
    Case("TLS listener", peers.tls_alert, "TLS"),
    Case("SSH server", peers.ssh, "broke the protocol"),
    Case("wrong correlation id", peers.wrong_correlation_id, "correlation id"),
    Case("huge length", peers.huge_length, "2147483647"),
    Case("negative length", peers.negative_length, "-1"),
    Case("empty frame", peers.empty_frame, "broke the protocol"),
    Case("endless slow bytes", peers.endless_slow_bytes, "did not answer ApiVersions"),
    Case("immediate close", peers.close_at_once, "ApiVersions|reset|closed"),
    Case("accept and silence", peers.silence, "did not answer ApiVersions"),
    Case("answer with a wrong correlation id", peers.later_wrong_correlation_id, "correlation id"),
    Case("answer with a huge length", peers.later_huge_length, "2147483647"),
    Case("answer with a huge count", peers.later_huge_count, f"broke the protocol: {FIRST_ASKED} answer"),
    Case("answer cut off", peers.later_truncated, f"broke the protocol: {FIRST_ASKED} answer"),
    Case("requests never answered", peers.later_silence, f"did not answer {FIRST_ASKED}"),
    # The connection is reset if the peer closed it before reading another request.
    Case("closed instead of an answer", peers.later_close, "closed|Connection reset"),
    Case("answer in an endless frame", peers.later_endless_frame, f"did not answer {FIRST_ASKED}"),
)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


def settings(address: str) -> dict[str, object]:
    return {
        "bootstrap.servers": address,
        "max.block.ms": MAX_BLOCK_MS,
        "request.timeout.ms": REQUEST_TIMEOUT_MS,
        "delivery.timeout.ms": 2 * REQUEST_TIMEOUT_MS,
    }


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def cpu_s(thread: threading.Thread) -> float:
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


def test_a_peer_that_is_no_broker_ends_in_an_error_that_says_so_and_costs_nothing(case: Case) -> None:
    gc.collect()
    descriptors, resident = descriptor_count(), resident_bytes()
    with HostilePeer(case.behaviour) as peer:
        address = peer.address
        with Producer(settings(address)) as producer:
            (sender,) = senders()
            started, own_cpu_s = time.monotonic(), time.thread_time()
            with pytest.raises(KafkaSinkError) as caught:
                producer.send("topic", value=b"never to be seen in a text").result(MAX_BLOCK_MS / 1000)
            waited_s = time.monotonic() - started
            spent_s = cpu_s(sender) + time.thread_time() - own_cpu_s
            grown = resident_bytes() - resident
            producer.close(timeout_s=CLOSE_S)
        wait_until(lambda: not peer.open_count, "every connection is closed")
        # With back-offs from 50 ms to 1 s there is time for a few attempts, not for a storm.
        assert 1 <= peer.connection_count <= 12
    text = str(caught.value)
    assert address in text
    assert "topic" in text
    assert re.search(case.says, text), text
    assert "never to be seen" not in text
    assert MAX_BLOCK_MS / 1000 - 0.1 <= waited_s <= MAX_BLOCK_MS / 1000 + SLACK_S
    assert spent_s <= CPU_S_MAX, f"{spent_s:.2f} s of CPU in {waited_s:.2f} s"
    assert grown <= GROWTH_BYTES_MAX, f"{grown / 2**20:.0f} MiB more"
    assert senders() == []
    gc.collect()
    # The listener and the peer's sockets are closed by now, too.
    assert descriptor_count() <= descriptors


@pytest.mark.parametrize("case", CASES[::4], ids=lambda case: case.name)
def test_transactions_also_end_in_an_error_in_time_with_a_peer_that_is_no_broker(case: Case) -> None:
    with HostilePeer(case.behaviour) as peer:
        options = {**settings(peer.address), "transactional.id": "never"}
        with Producer(options) as producer:
            started = time.monotonic()
            with pytest.raises(KafkaSinkError) as caught:
                producer.init_transactions()
            assert time.monotonic() - started <= MAX_BLOCK_MS / 1000 + SLACK_S
            assert "init_transactions" in str(caught.value)
            started = time.monotonic()
            producer.close(timeout_s=CLOSE_S)
            assert time.monotonic() - started <= CLOSE_S + SLACK_S
        wait_until(lambda: not peer.open_count, "every connection is closed")


def test_a_good_broker_among_bad_ones_is_found() -> None:
    pytest.importorskip("kafka_sink.testing")
    from kafka_sink.testing import EmbeddedBroker

    with (
        HostilePeer(peers.http) as first,
        HostilePeer(peers.silence) as second,
        HostilePeer(peers.close_at_once) as third,
        EmbeddedBroker(1, topics={"rows": 2}) as embedded,
    ):
        servers = ",".join((first.address, second.address, third.address, embedded.bootstrap_servers))
        options = {**settings(servers), "max.block.ms": 20_000, "delivery.timeout.ms": 30_000}
        with Producer(options) as producer:
            futures = [producer.send("rows", value=b"%d" % number) for number in range(100)]
            assert all(future.result(60).offset >= 0 for future in futures)


def test_nobody_listens_and_a_name_that_does_not_resolve_are_told_apart() -> None:
    with HostilePeer(peers.silence) as peer:
        closed_address = peer.address
    for address, says in (
        (closed_address, "refused"),
        ("no-such-host.invalid:9092", "not resolved|not known|resolution"),
    ):
        with Producer(settings(address)) as producer:
            with pytest.raises(KafkaSinkError, match=says) as caught:
                producer.send("topic", value=b"value").result(MAX_BLOCK_MS / 1000)
            assert address in str(caught.value)
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        Producer({"bootstrap.servers": "host-without-port"})


def test_a_thousand_futures_and_flush_end_when_the_peer_goes_silent_after_the_metadata() -> None:
    """The broker is reached, then it accepts no batch: every future ends in DeliveryTimeout, and flush returns."""
    from kafka_sink.errors import DeliveryTimeout
    from kafka_sink.testing import EmbeddedBroker

    embedded = EmbeddedBroker(1, topics={"rows": 3})
    with embedded:
        options = {**settings(embedded.bootstrap_servers), "max.block.ms": 60_000}
        producer = Producer(options)
        assert producer.send("rows", value=b"first").result(60).offset == 0
    # The broker has stopped.
    futures = [producer.send("rows", value=b"%d" % number) for number in range(1000)]
    errors = [future.exception(60) for future in futures]
    assert {type(error) for error in errors} == {DeliveryTimeout}
    assert all("rows-" in str(error) and "delivery.timeout.ms" in str(error) for error in errors)
    producer.flush(timeout_s=5)
    producer.close(timeout_s=CLOSE_S)
    assert senders() == []
