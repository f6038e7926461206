"""Tables of short histories of connections and metadata: events, and what holds after them. The format is that of
`history.py`.

    the delay after a disconnect is the first back-off and doubles when connecting fails
        ready lost delay=50 50ms delay=none down tries delay=100

Events. They concern broker 0; with `/1` after the word, broker 1:

    wish connect ready             a connection is requested; and the network carries this out; and it is usable
    tries tries:3                  one or three attempts to connect, each as soon as the back-off allows it
    asks                           a connection to the broker that is offered for a request to any broker
    down deaf up                   its port refuses; does not react at all; accepts
    silent speaks                  it does not answer; it answers again, also pending metadata requests
    refuses:ApiVersions,42         its next answer to such a request contains this error code and nothing else
    lost close                     the connection is lost; we close all connections
    send send:5000                 a request is sent; with a time limit in milliseconds
    ok throttled:100               the oldest request is answered; with this throttle time
    100ms                          time passes; the engine steps once, at the end
    dice:0.5                       sets the jitter
    known:0,1 at:b at:a,rack-2     metadata names these brokers; another host for a broker; another rack
    dead:old0 renamed              an address of `many_addresses` refuses; the host name now has the new addresses
    nowhere unnamed named          the host name has no address; the resolver does not answer; it answers
    want:u update                  metadata of topic u is requested; new metadata is requested
    empty full                     metadata responses name no broker; they name all brokers again
    moves                          the topic "t" has a new leader: the same broker with a higher epoch
    cut                            brokers 0 and 1 are disconnected and unreachable, and 720 ms pass

What holds: `usable=no`, `delay=50` (`none`: there is no delay) and so on, see `Facts`. `says:"..."`: a notice, the
failure of an answer or the last failure contains these words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from kafka_sink.errors import RemoteProtocolError
from kafka_sink.kafka.client.cluster import Endpoint
from kafka_sink.kafka.client.commands import Address, Disconnect
from kafka_sink.kafka.client.request import Answer
from kafka_sink.kafka.wire.apis import APIS, METADATA, PRODUCE
from tests.unit.kafka.client.network_driver import Driver, produce, produce_body
from tests.unit.producer.engine.fake_cluster import Asked, FakeCluster
from tests.unit.producer.engine.history import History

EVENT = re.compile(r"(\w+)(?:/(-?\d+))?(?:([:=])(.*))?")
OLD: tuple[Address, ...] = ((2, ("old0", 9092)), (2, ("old1", 9092)), (2, ("old2", 9092)))
NEW: tuple[Address, ...] = ((2, ("new0", 9092)), (2, ("new1", 9092)), (2, ("new2", 9092)))
NO_METADATA: dict[str, Any] = {"brokers": [], "topics": []}
NOTHING_ELSE: dict[str, dict[str, Any]] = {
    "ApiVersions": {"api_keys": []},
    "Metadata": NO_METADATA,
    "SaslHandshake": {"mechanisms": []},
    "SaslAuthenticate": {"error_message": None, "auth_bytes": b""},
}


class ManyAddresses(FakeCluster):
    """Broker 0 listens on every address of its host, except on those that are `dead`."""

    def __init__(self) -> None:
        super().__init__({0: ("a", 9092)})
        self.addresses["a"] = OLD
        self.dead: set[str] = set()

    def _connect(self, command: Any) -> None:
        host, port = command.address[1]
        self.refusing = {0} if host in self.dead else set()
        self.brokers = {0: (host, port)}
        super()._connect(command)
        self.brokers = {0: ("a", 9092)}


def nodes(brokers: int = 1, **options: Any) -> Driver:
    """Brokers 0, 1, ... are known, on hosts a, b, ..."""
    places = {number: ("abcd"[number], 9092) for number in range(brokers)}
    return Driver(FakeCluster(places, {"t": {0: 0}}), **options)


def many_addresses() -> Driver:
    return Driver(ManyAddresses())


def with_metadata(**options: Any) -> Driver:
    """No topic has been requested yet; t, u and v exist."""
    topics: dict[str, dict[int, int]] = {"t": {0: 0}, "u": {0: 0}, "v": {0: 0}}
    return Driver(FakeCluster({0: ("a", 9092)}, topics), has_metadata=True, **options)


def moved(**options: Any) -> Driver:
    """Brokers 0 and 1 are known. Then the whole cluster moves to broker 5, to which the bootstrap name now resolves."""
    cluster = FakeCluster({0: ("a", 9092), 1: ("b", 9092)}, {"t": {0: 0}})
    cluster.addresses["boot"] = ((2, ("a", 9092)),)
    driver = Driver(cluster, has_metadata=True, bootstrap_servers=(("boot", 9092),), **options)
    assert driver.metadata is not None
    driver.metadata.want_topic("t", driver.now_ms)
    driver.run()
    cluster.addresses["boot"] = ((2, ("new", 9092)),)
    cluster.brokers = {0: ("a", 9092), 1: ("b", 9092), 5: ("new", 9092)}
    cluster.topics = {"t": {0: 5}}
    cluster.leader_epochs["t", 0] = 1
    return driver


def check(driver: Driver, history: History) -> None:
    stage, facts = Stage(driver), Facts(driver)
    for event in history.events:
        row = EVENT.fullmatch(event)
        assert row, event
        name, node_id, sign, value = row.groups()
        if name == "says":
            assert facts.says(value.strip('"')), f"{event} among {driver.notices}"
        elif sign == "=":
            found = str(getattr(facts, name)(int(node_id or 0)))
            assert found == value, f"{event}, but it is {found}"
        elif event.endswith("ms"):
            driver.sleep(int(event[:-2]))
        else:
            getattr(stage, name)(int(node_id or 0), value)
            if name != "wish":
                driver.run()


@dataclass
class Side:
    driver: Driver

    def __post_init__(self) -> None:
        self.cluster: Any = self.driver.cluster
        self.nodes = self.driver.nodes
        self.tracker: Any = self.driver.metadata


class Stage(Side):
    """One method for each event; the arguments are the broker and the text after the colon."""

    def wish(self, node_id: int, _: str) -> None:
        self.nodes.connect(node_id, self.driver.now_ms)

    connect = wish

    def ready(self, node_id: int, _: str) -> None:
        self.driver.await_ready(node_id)

    def tries(self, node_id: int, count: str) -> None:
        for _ in range(int(count or 1)):
            self.driver.sleep(self.driver.delay_ms(node_id))
            self.driver.connect(node_id)

    def asks(self, _: int, __: str) -> None:
        node_id = self.nodes.least_loaded(self.driver.now_ms)
        assert node_id is not None
        self.driver.connect(node_id)

    def down(self, node_id: int, _: str) -> None:
        self.cluster.refusing.add(node_id)

    def deaf(self, node_id: int, _: str) -> None:
        self.cluster.deaf.add(node_id)

    def up(self, node_id: int, _: str) -> None:
        self.cluster.refusing.discard(node_id)
        self.cluster.deaf.discard(node_id)

    def silent(self, node_id: int, _: str) -> None:
        self.cluster.silent.add(node_id)

    def speaks(self, node_id: int, _: str) -> None:
        self.cluster.silent.discard(node_id)
        for asked in self.cluster.pending_of(METADATA):
            self.cluster.answer(asked, self.cluster.metadata_body(asked))

    def refuses(self, _: int, what: str) -> None:
        name, code = what.split(",")
        api = next(api for api in APIS.values() if api.name == name)
        usual = self.cluster.scripts[api.key]

        def once(asked: Asked) -> dict[str, Any]:
            self.cluster.scripts[api.key] = usual
            return {**NOTHING_ELSE[name], "error_code": int(code)}

        self.cluster.scripts[api.key] = once

    def lost(self, node_id: int, _: str) -> None:
        self.driver.lose(node_id)

    def close(self, _: int, __: str) -> None:
        self.nodes.close_all()

    def send(self, node_id: int, timeout_ms: str) -> None:
        self.driver.send(produce(timeout_ms=int(timeout_ms or 30_000)), node_id)

    def ok(self, node_id: int, throttle_ms: str) -> None:
        oldest = next(asked for asked in self.cluster.pending_of(PRODUCE) if asked.node_id == node_id)
        self.cluster.answer(oldest, produce_body(None, int(throttle_ms or 0)))

    throttled = ok

    def dice(self, _: int, jitter: str) -> None:
        self.driver.jitter = float(jitter)

    def known(self, _: int, node_ids: str) -> None:
        places = {int(node_id): self.cluster.brokers[int(node_id)] for node_id in node_ids.split(",")}
        self.nodes.set_brokers(self.driver.now_ms, {node_id: Endpoint(*place) for node_id, place in places.items()})

    def at(self, node_id: int, place: str) -> None:
        host, _, rack = place.partition(",")
        self.nodes.set_brokers(self.driver.now_ms, {node_id: Endpoint(host, 9092, rack or None)})

    def dead(self, _: int, hosts: str) -> None:
        self.cluster.dead = set(hosts.split(","))

    def renamed(self, _: int, __: str) -> None:
        self.cluster.addresses["a"] = NEW

    def nowhere(self, _: int, __: str) -> None:
        self.cluster.addresses["a"] = ()

    def unnamed(self, _: int, __: str) -> None:
        self.cluster.is_naming = False

    def named(self, _: int, __: str) -> None:
        self.cluster.is_naming = True

    def want(self, _: int, topic: str) -> None:
        self.tracker.want_topic(topic, self.driver.now_ms)

    def update(self, _: int, __: str) -> None:
        self.tracker.request_update()

    def empty(self, _: int, __: str) -> None:
        self.cluster.scripts[METADATA.key] = lambda asked: NO_METADATA

    def full(self, _: int, __: str) -> None:
        self.cluster.scripts[METADATA.key] = self.cluster.metadata_body

    def moves(self, node_id: int, _: str) -> None:
        self.cluster.move_leader("t", 0, node_id)

    def cut(self, _: int, __: str) -> None:
        self.cluster.refusing |= {0, 1}
        self.cluster.disconnect(0)
        self.cluster.disconnect(1)
        for _ in range(12):
            self.driver.sleep(60)


class Facts(Side):
    """Facts that a row may check, as `name=value`. Counts start at the beginning; times are milliseconds from now."""

    def usable(self, node_id: int) -> str:
        return _yes(self.nodes.is_ready(node_id, self.driver.now_ms))

    def reachable(self, _: int) -> str:
        return _yes(self.nodes.is_any_reachable(self.driver.now_ms))

    def refused(self, _: int) -> str:
        """Whether the nodes have given up."""
        return _yes(self.nodes.refusal is not None)

    def offered(self, _: int) -> object:
        """The broker to which a request for any broker would be sent."""
        node_id = self.nodes.least_loaded(self.driver.now_ms)
        return "none" if node_id is None else node_id

    def delay(self, node_id: int) -> object:
        return self._from_now(self.nodes.blocked_until_ms(node_id, self.driver.now_ms))

    def retry(self, _: int) -> object:
        return self._from_now(self.nodes.retry_at_ms())

    def due(self, _: int) -> object:
        """When the nodes have to be called again."""
        return self._from_now(self.nodes.update_deadline(self.driver.now_ms))

    def unavailable(self, node_id: int) -> object:
        since_ms = self.nodes.stalled_since_ms(node_id)
        return "no" if since_ms is None else self.driver.now_ms - since_ms

    def connects(self, _: int) -> int:
        return len(self.driver.connects())

    def resolves(self, _: int) -> int:
        return len(self.driver.resolves())

    def disconnects(self, _: int) -> int:
        return sum(isinstance(command, Disconnect) for command in self.cluster.commands)

    def connections(self, _: int) -> int:
        return len(self.cluster.connections)

    def losses(self, _: int) -> int:
        return self.nodes.losses

    def warnings(self, _: int) -> int:
        return sum(notice.level == "warning" for notice in self.driver.notices)

    def tried(self, _: int) -> str:
        return ",".join(str(command.address[1][0]) for command in self.driver.connects())

    def requests(self, _: int) -> str:
        return ",".join(asked.api.name for asked in self.cluster.requests)

    def in_flight(self, node_id: int) -> int:
        return self.nodes.in_flight_count(node_id)

    def answers(self, node_id: int) -> str:
        """How the requests to this broker ended; they end in the order in which they were sent."""
        answers = [answer for answer in self.driver.answers if answer.node_id == node_id]
        places = [self.driver.sent.index(answer.request) for answer in answers]
        assert places == sorted(places)
        return ",".join(map(_end, answers)) or "none"

    # ---- metadata

    def next(self, _: int) -> object:
        """When metadata is requested next."""
        return self._from_now(self.tracker.next_deadline_ms(self.driver.now_ms))

    def asked(self, _: int) -> str:
        """The topics of each metadata request; `-` for none."""
        topics = [[topic["name"] for topic in asked.body["topics"]] for asked in self.cluster.requests_of(METADATA)]
        return ",".join("+".join(names) or "-" for names in topics)

    def brokers(self, _: int) -> str:
        return ",".join(map(str, self.tracker.view.brokers)) or "none"

    def topics(self, _: int) -> str:
        return ",".join(sorted(self.tracker.view.topics)) or "none"

    def led(self, _: int) -> str:
        """Topics with a known leader, and the leader."""
        leaders = {topic: self.tracker.view.leader(topic, 0) for topic in sorted(self.tracker.view.topics)}
        return ",".join(f"{topic}:{leader}" for topic, leader in leaders.items() if leader is not None) or "none"

    def failed(self, _: int) -> str:
        return _yes(self.tracker.last_failure is not None)

    def says(self, words: str) -> bool:
        failures = [self.nodes.last_failure, *(answer.failure for answer in self.driver.answers)]
        if self.tracker is not None:
            failures.append(self.tracker.last_failure)
        return any(words in text for text in [*map(str, failures), *(notice.text for notice in self.driver.notices)])

    def _from_now(self, time_ms: int | None) -> object:
        return "none" if time_ms is None else time_ms - self.driver.now_ms


def _end(answer: Answer) -> str:
    if answer.failure is None:
        return "ok"
    return "broken" if isinstance(answer.failure, RemoteProtocolError) else "lost" if answer.was_sent else "unsent"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
