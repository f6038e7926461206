"""Random walks over a NodeSet and its Metadata: whatever the network does, each request is answered exactly once."""

from __future__ import annotations

import random

import pytest

from kafka_sink.errors import TransportError
from kafka_sink.kafka.client.commands import Connected, Disconnect, Disconnected, Received, Resolved, Written
from kafka_sink.kafka.client.request import Request
from kafka_sink.kafka.wire.apis import PRODUCE
from tests.unit.kafka.client.network_driver import Driver, produce, produce_body
from tests.unit.producer.engine.fake_cluster import FakeCluster

WALKS, STEPS = 60, 150


def disturb(driver: Driver, chance: random.Random, sent: list[Request]) -> None:
    """Does one random thing; each may happen at any time, in any state."""
    cluster, now_ms = driver.cluster, driver.now_ms
    node_id = chance.choice(list(cluster.brokers))
    connection_id = chance.randrange(1, 40)
    what = chance.randrange(12)
    if what <= 2 and driver.nodes.is_ready(node_id, now_ms):
        sent.append(produce(timeout_ms=chance.choice([500, 30_000])))
        driver.nodes.send(node_id, sent[-1], now_ms)
    elif what == 3:
        driver.nodes.connect(node_id, now_ms)
    elif what == 4 and cluster.pending_of(PRODUCE):
        cluster.answer(cluster.pending_of(PRODUCE)[0], produce_body(None, chance.choice([0, 0, 300])))
    elif what == 5:
        cluster.disconnect(node_id)
    elif what == 6:
        cluster.refusing ^= {node_id}
    elif what == 7:
        cluster.silent ^= {node_id}
    elif what == 8:
        cluster.inject(node_id, chance.choice([b"\x00", b"\xff\xff\xff\xff", b"HTTP/1.1", b"\x00\x00\x00\x04abcd"]))
    elif what == 9:
        cluster.brokers[node_id] = (chance.choice("abcd"), 9092)
    elif what == 10 and driver.metadata is not None:
        driver.metadata.request_update()
    else:
        stale = Disconnected(connection_id, TransportError("late"))
        late = chance.choice([Resolved(node_id, ()), Written(connection_id), stale])
        if isinstance(late, Disconnected):
            cluster.connections.pop(connection_id, None)
        driver.nodes.on_input(now_ms, late)


@pytest.mark.parametrize("seed", range(WALKS))
def test_whatever_happens_each_request_is_answered_once_and_the_cluster_is_found_again(seed: int) -> None:
    chance = random.Random(seed)
    cluster = FakeCluster({0: ("a", 9092), 1: ("b", 9092)}, {"t": {0: 0, 1: 1}})
    cluster.addresses["boot"] = tuple((2, (host, 9092)) for host in "abcd")
    driver = Driver(cluster, has_metadata=True, bootstrap_servers=(("boot", 9092),), request_timeout_ms=2_000)
    sent: list[Request] = []
    for _ in range(STEPS):
        disturb(driver, chance, sent)
        driver.sleep(chance.choice([0, 0, 1, 40, 300, 2_000]))
    # Without further faults, everything is answered within a minute, and every broker is usable.
    cluster.refusing, cluster.silent = set(), set()
    cluster.brokers = {0: ("a", 9092), 1: ("b", 9092)}
    assert driver.metadata is not None
    driver.metadata.request_update()
    for _ in range(600):
        driver.sleep(100)
        for node_id in (0, 1):
            driver.nodes.connect(node_id, driver.now_ms)
    assert [answer.request for answer in sorted(driver.answers, key=lambda answer: sent.index(answer.request))] == sent
    assert all(driver.nodes.is_ready(node_id, driver.now_ms) for node_id in (0, 1))
    driver.nodes.close_all()
    open_ids = set(cluster.connections)
    closed = {command.connection_id for command in driver.run() + cluster.commands if isinstance(command, Disconnect)}
    assert open_ids <= closed
    for event in (Connected(1), Received(1, b"x"), Written(1)):
        driver.nodes.on_input(driver.now_ms, event)
    assert driver.nodes.take_commands() == []
