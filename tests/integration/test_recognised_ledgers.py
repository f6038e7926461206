"""`status` and `watch` look for ledgers in every compacted topic of one partition. They read little of those that are
none, and not at every look; and whatever becomes a ledger is found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient  # type: ignore[attr-defined]  # stubs do not re-export it

from kafka_sink import Producer
from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.command_texts import UNKNOWN_BROKERS
from kafka_sink.commit.ledger_codec import VALUE_BEGINS
from kafka_sink.kafka.client.commands import Received
from kafka_sink.kafka.client.nodes import NodeSet
from kafka_sink.kafka.io.network import Network
from kafka_sink.operate.status import collect
from kafka_sink.operate.status.collect import ClusterLook
from kafka_sink.options.sink_options import DEFAULT_LEDGER
from kafka_sink.testing import EmbeddedBroker
from tests.support.asking import client_of

pytestmark = pytest.mark.embedded_kafka(1, properties={"log.cleaner.backoff.ms": "100000000"})
DECISION = VALUE_BEGINS + b"1 json\n{}"
LARGE, ROWS, TOPICS = 100_000, 20, 6
# Metadata, and offsets of topics.
ABOUT_BYTES = 20_000


@pytest.fixture
def client(broker: EmbeddedBroker) -> Iterator[Client]:
    make(broker, DEFAULT_LEDGER)
    with client_of(broker.bootstrap_servers) as client:
        yield client


def make(broker: EmbeddedBroker, topic: str, *values: bytes) -> None:
    broker.create_topic(topic, 1, {"cleanup.policy": "compact", "max.message.bytes": "2000000"})
    append(broker, topic, *values)


def append(broker: EmbeddedBroker, topic: str, *values: bytes) -> None:
    """A batch for each."""
    with Producer({"bootstrap.servers": broker.bootstrap_servers, "max.request.size": 2_000_000}) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, b"k%d" % number)
            producer.flush()


class Traffic:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent, self.received = Counter[str](), 0
        send, poll = NodeSet.send, Network.poll

        def count_requests(nodes: NodeSet, node: object, request: object, now_ms: int) -> object:
            self.sent[request.api.name] += 1  # type: ignore[attr-defined]
            return send(nodes, node, request, now_ms)  # type: ignore[arg-type]

        def count_bytes(network: Network, *given: object) -> object:
            events = poll(network, *given)  # type: ignore[arg-type]
            self.received += sum(len(each.data) for each in events if isinstance(each, Received))
            return events

        monkeypatch.setattr(NodeSet, "send", count_requests)
        monkeypatch.setattr(Network, "poll", count_bytes)

    def of(self, look: ClusterLook) -> tuple[list[str], Counter[str], int]:
        self.sent, self.received = Counter(), 0
        found, notes = look.look_for_ledgers()
        assert notes == []
        return [topic for topic in found if topic != DEFAULT_LEDGER], self.sent, self.received


def look_of(client: Client) -> ClusterLook:
    return ClusterLook(client, UNKNOWN_BROKERS, (), 30_000)


def test_of_large_topics_that_are_no_ledgers_the_beginning_is_read_once_in_a_while(
    broker: EmbeddedBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(TOPICS):
        make(broker, f"changelog-{number}", *[b"v" * LARGE] * ROWS)
    look, traffic = look_of(client), Traffic(monkeypatch)
    found, sent, received = traffic.of(look)
    assert (found, sent["Fetch"]) == ([], TOPICS) and received <= TOPICS * LARGE * 1.1 + ABOUT_BYTES
    found, sent, received = traffic.of(look)
    assert (found, sent["Fetch"], sent["ListOffsets"]) == ([], 0, 0) and received <= ABOUT_BYTES
    # Compaction may bring something else to the beginning.
    monkeypatch.setattr(collect, "AGAIN_MS", 0)
    look = look_of(client)
    assert [traffic.of(look)[1]["Fetch"] for _ in range(2)] == [TOPICS, TOPICS]


def test_a_small_topic_is_read_again_when_something_was_written_to_it(
    broker: EmbeddedBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(broker, "empty")
    make(broker, "small", b"another program's", b"two")
    look, traffic = look_of(client), Traffic(monkeypatch)
    assert traffic.of(look)[:2] == ([], traffic.sent) and traffic.sent["Fetch"] == 1
    assert traffic.of(look)[0] == [] and traffic.sent["Fetch"] == 0
    append(broker, "empty", DECISION)
    append(broker, "small", DECISION)
    assert traffic.of(look)[0] == ["empty", "small"]
    assert traffic.of(look)[0] == ["empty", "small"], "a ledger stays one"


def test_a_topic_that_was_created_again_is_another_one(
    broker: EmbeddedBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(broker, "again", *[b"v" * LARGE] * 2)
    look, traffic = look_of(client), Traffic(monkeypatch)
    assert traffic.of(look)[0] == []
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["again"])["again"].result(30)
    make(broker, "again", DECISION, DECISION)
    assert traffic.of(look)[0] == ["again"]


@pytest.mark.parametrize("before", [0, 10, 60])
def test_a_large_decision_is_recognised_behind_other_records(
    before: int, broker: EmbeddedBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer is cut in the middle of it. The next one begins with it, and has it whole."""
    make(broker, "ledger", *[b"v" * 1_000] * before, DECISION + b" " * 10 * LARGE)
    assert Traffic(monkeypatch).of(look_of(client))[0] == ["ledger"]
