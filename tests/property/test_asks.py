"""The asks of a step, and how a question is divided, beside implementations that look at everything anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.commit.asks import Asks
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.kafka.client.ask import AnyBroker, Ask, Reply, ReplyKind
from kafka_sink.kafka.client.route import divide_body
from kafka_sink.kafka.wire.apis import END_TXN
from tests.property.slow_asks import SlowAsks, slowly_divided

NUMBERS = st.integers(0, 2)
ACTS = st.one_of(
    st.tuples(st.sampled_from(["add", "answer", "repeat", "drop"]), NUMBERS),
    st.tuples(st.sampled_from(["take", "wait", "drop all"]), st.just(0)),
)


class Course:
    """The same acts on one of the implementations; what it says is in `said`."""

    def __init__(self, kind: type[Asks], parallel: int) -> None:
        self.said: list[object] = []
        self._asks = kind(DeliverySettings(parallel_requests=parallel, retry_backoff_ms=10))
        self._sent: dict[int, Ask] = {}
        self._now_ms = 0

    def act(self, what: str, number: int) -> None:
        known = self._asks.find("x", number)
        if what == "add":
            self._asks.add(self._now_ms, Ask(AnyBroker(), END_TXN, {}, "x", number))
        elif what == "take":
            taken = self._asks.take_due(self._now_ms)
            self._sent.update((ask.number, ask) for ask in taken)
            self.said.append([ask.number for ask in taken])
        elif what == "wait":
            self._now_ms += 10
        elif what == "answer" and number in self._sent:
            # Perhaps of an ask that was dropped or replaced meanwhile.
            self.said.append(self._asks.accept(Reply(self._sent[number], ReplyKind.ANSWERED)))
        elif what == "repeat" and known is not None and not known.is_out:
            self._asks.repeat(self._now_ms, known)
        elif what == "drop" and known is not None:
            self._asks.drop(known)
        elif what == "drop all":
            self._asks.drop_all()
        self.said.append((len(self._asks), self._asks.wake_at_ms()))


@given(st.lists(ACTS, min_size=20, max_size=40), st.integers(1, 2))
def test_asks_are_taken_as_if_all_were_looked_at_each_time(acts: list[tuple[str, int]], parallel: int) -> None:
    quick, slow = Course(Asks, parallel), Course(SlowAsks, parallel)
    for act in acts:
        quick.act(*act)
        slow.act(*act)
    assert quick.said == slow.said


PARTITIONS = st.tuples(st.sampled_from("abc"), st.integers(0, 5))


@given(st.dictionaries(PARTITIONS, st.integers(1, 3)), st.sets(PARTITIONS), st.booleans())
def test_each_leader_gets_its_own_partitions_in_order(
    leaders: dict[tuple[str, int], int], others: set[tuple[str, int]], are_rows: bool
) -> None:
    asked: dict[str, list[int]] = {}
    for topic, index in sorted(leaders.keys() | others):
        asked.setdefault(topic, []).append(index)
    field = "partitions" if are_rows else "partition_indexes"
    topics = [
        {"name": name, field: [{"partition_index": one} for one in found] if are_rows else found}
        for name, found in asked.items()
    ]
    divided = divide_body({"replica_id": -1, "topics": topics}, leaders)
    assert list(divided) == list(dict.fromkeys(leaders.values()))
    assert all(part["replica_id"] == -1 for part in divided.values())
    found = {
        leader: [(topic["name"], one) for topic in part["topics"] for one in topic[field]]
        for leader, part in divided.items()
    }
    assert found == slowly_divided({"topics": topics}, leaders)
