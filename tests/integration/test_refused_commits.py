"""Spark plans a stream once more before it calls commit, and before it calls abort. What planning refuses then keeps no
abort from ending what the tasks have open, and is the error of the commit.

As Spark does it, each call is made in a process of its own: tests/chaos/bare_work.py. Of Spark itself:
tests/spark/test_refused_commits.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from kafka_sink.commit.identity import sink_id_of_query
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.errors import CommitAborted, KafkaSinkError
from kafka_sink.options.sink_options import DEFAULT_LEDGER
from kafka_sink.testing import EmbeddedBroker
from tests.chaos.bare_spark import PARTITIONS, BareQuery, Checkpoint, problems, settings_of, sink_id_of
from tests.integration.advising import record_loss
from tests.support.commanding import Sink
from tests.support.faults import is_drivers
from tests.support.open_transactions import open_transactions

OTHER = BatchKey("another-query", 0)
REFUSED = "was not committed"


@dataclass(frozen=True)
class Case:
    """What happens to the cluster while the tasks of a batch write, and what the commit's error says of it."""

    text: str
    happen: Callable[[EmbeddedBroker, BareQuery], object]


def delete_topic(name: str) -> Callable[[EmbeddedBroker, BareQuery], object]:
    return lambda broker, _: broker.do(lambda core: core.cluster.delete_topic(name))


def make_ledger_forget(broker: EmbeddedBroker, _: BareQuery) -> None:
    broker.do(lambda core: core.cluster.topics[DEFAULT_LEDGER].configs.update({"cleanup.policy": "delete"}))


def lower_limit(broker: EmbeddedBroker, _: BareQuery) -> None:
    def lower(core: Any) -> None:
        core.settings.properties["transaction.max.timeout.ms"] = "120000"

    broker.do(lower)


def other_query(broker: EmbeddedBroker, query: BareQuery) -> Sink:
    """Another query with the same sink.id."""
    own = sink_id_of_query(sink_id_of(query.settings), OTHER.query_id)
    return Sink(broker.bootstrap_servers, "others", own, DEFAULT_LEDGER, accepts_new_sink=True)


def lose_batch_of_other_query(broker: EmbeddedBroker, query: BareQuery) -> None:
    record_loss(other_query(broker, query), OTHER)


CASES = {
    "manifests": Case("topic manifests is not known", delete_topic("manifests")),
    "dead letters": Case("topic dead is not known", delete_topic("dead")),
    "topic": Case("topic t is not known", delete_topic("t")),
    "ledger policy": Case("cleanup.policy=delete", make_ledger_forget),
    "limit": Case("is more than the brokers allow", lower_limit),
    "lost batch": Case("batch 0 of query another-query", lose_batch_of_other_query),
}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    topics = {"t": PARTITIONS, "manifests": 1, "dead": 1, "others": 2}
    with EmbeddedBroker(topics=topics, properties={"transaction.max.timeout.ms": "900000"}) as broker:
        yield broker


@pytest.fixture
def query(broker: EmbeddedBroker) -> Iterator[BareQuery]:
    settings = settings_of(
        broker.bootstrap_servers, "t", manifest__topic="manifests", dead__letter__topic="dead",
        record__errors="dead-letter", kafka__transaction__timeout__ms=900_000, kafka__max__block__ms=2_000,
        kafka__allow__auto__create__topics="false",
    )  # fmt: skip
    with BareQuery(Checkpoint(), settings) as query:
        yield query


@pytest.mark.parametrize(
    ("batches", "case"),
    [
        *(pytest.param(0, case, id=name) for name, case in CASES.items()),
        pytest.param(2, CASES["manifests"], id="later"),
    ],
)
def test_what_planning_refuses_is_the_error_of_the_commit_and_keeps_no_reader_waiting(
    broker: EmbeddedBroker, query: BareQuery, batches: int, case: Case
) -> None:
    for _ in range(batches):
        query.run_batch()
    query.plan()
    messages = query.write_tasks()
    query.end_worker("commit")  # a process that has planned before remembers what it was told
    case.happen(broker, query)
    with pytest.raises(CommitAborted, match=REFUSED) as refused:
        query.commit(messages)
    assert case.text in str(refused.value)
    assert refused.value.batch_id == batches and refused.value.query_id == query.checkpoint.query_id
    assert len(open_tasks(broker, query)) == len(messages)
    query.abort(messages)
    assert open_tasks(broker, query) == []
    if case is not CASES["topic"]:
        assert problems(broker.bootstrap_servers, "t", batches) == []
    restarted = BareQuery(query.checkpoint, query.settings)
    with restarted, pytest.raises(KafkaSinkError, match=case.text) as first:  # before any task
        restarted.plan()
    assert REFUSED not in str(first.value)


def open_tasks(broker: EmbeddedBroker, query: BareQuery) -> list[str]:
    found = open_transactions(broker.bootstrap_servers, sink_id_of(query.settings), patience_s=1)
    return [one for one in found if not is_drivers(one.split()[0])]
