"""States of a cluster for `pykafka-sink status`: aged and hanging transactions, ledgers with many sinks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from confluent_kafka import Producer as ConfluentProducer

from kafka_sink import Producer
from kafka_sink.commit.ledger import Kind, LedgerRecord, ledger_key
from kafka_sink.commit.ledger_codec import encode_record
from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.kafka.client.ask import Coordinator
from kafka_sink.kafka.wire.apis import END_TXN
from kafka_sink.testing import EmbeddedBroker
from kafka_sink.testing.transaction_state import CoordinatorState
from tests.support.asking import client_of
from tests.support.commanding import RUN, Said, Shell, Sink
from tools.waiting import wait_until

FOREIGN = "billing"


def wall_ms() -> int:
    return int(time.time() * 1000)


def status(shell: Shell, sink: Sink, *words: str) -> Said:
    """Streams may be silent, unless `words` say otherwise."""
    return shell("status", "--bootstrap-server", sink.servers, "--silent-after", "0", *words)


def findings(shell: Shell, sink: Sink, *words: str) -> list[dict[str, Any]]:
    found = status(shell, sink, *words, "--json").content["findings"]
    assert isinstance(found, list)
    return found


def age(broker: EmbeddedBroker, transactional_id: str, by_ms: int = 200_000) -> None:
    """As if the transaction had begun so much earlier: by default more than half of the time of a `Sink`'s."""

    def make_older(core: Any) -> None:
        transaction = core.coordinator.transactions[transactional_id]
        transaction.record = replace(transaction.record, start_ms=transaction.record.start_ms - by_ms)

    broker.do(make_older)


def forget(broker: EmbeddedBroker, transactional_id: str, state: CoordinatorState = CoordinatorState.EMPTY) -> None:
    """The coordinator loses a transaction that is open: it hangs."""

    def lose(core: Any) -> None:
        transaction = core.coordinator.transactions[transactional_id]
        transaction.record = replace(transaction.record, state=state, partitions=(), start_ms=-1)

    broker.do(lose)


def end_without_leader(broker: EmbeddedBroker, servers: str, receipt: TaskReceipt, *, commit: bool) -> None:
    """Ends a transaction while its partition has no leader, which brokers from 4.3 on forget to do there."""
    one, (written,) = receipt.transaction, receipt.written
    assert one is not None
    broker.do(lambda core: core.cluster.take_offline(written.topic, written.partition))
    body = {
        "transactional_id": one.transactional_id, "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch, "committed": commit,
    }  # fmt: skip
    version = 5 if one.transaction_version >= 2 else 4
    with client_of(servers) as client:
        answer = client.ask(Coordinator(one.transactional_id), END_TXN, body, version_min=version, version_max=version)
    assert answer["error_code"] == 0

    def is_over() -> bool:
        state: CoordinatorState = broker.do(lambda core: state_of(core, one.transactional_id))
        return state in (CoordinatorState.COMPLETE_COMMIT, CoordinatorState.COMPLETE_ABORT)

    wait_until(is_over, "the coordinator calls it ended")
    broker.do(lambda core: core.cluster.bring_online(written.topic, written.partition))


def state_of(core: Any, transactional_id: str) -> CoordinatorState:
    state: CoordinatorState = core.coordinator.transactions[transactional_id].record.state
    return state


def abort_another(servers: str, transactional_id: str, topic: str, partition: int) -> None:
    """A later transaction of the id, in one partition."""
    with Producer({"bootstrap.servers": servers, "transactional.id": transactional_id}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"later", partition=partition).result(60)
        producer.abort_transaction()


def begin_foreign(servers: str, topic: str, transactional_id: str = FOREIGN, login: Mapping[str, str] = {}) -> None:
    """Another application has left a transaction open."""
    options = {
        "bootstrap.servers": servers,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": 300_000,
        **login,
    }
    with Producer(options) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"foreign", b"key", partition=0)
        producer.prepare_transaction()


def delivered(sink_id: str, topic: str, *, age_ms: int = 0, key: BatchKey | None = None) -> LedgerRecord:
    return LedgerRecord(
        Kind.DONE, sink_id, key or BatchKey("query", 7), RUN, wall_ms=wall_ms() - age_ms, row_count=20,
        topics={topic: 20},
    )  # fmt: skip


def record_all(servers: str, ledger_topic: str, records: Iterable[LedgerRecord]) -> None:
    """In one transaction, as a sink writes them one by one."""
    producer = ConfluentProducer({"bootstrap.servers": servers, "transactional.id": f"{ledger_topic}-fill"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for record in records:
        producer.produce(ledger_topic, encode_record(record), ledger_key(record.sink_id, record.key), partition=0)
        producer.poll(0)
    producer.commit_transaction(60)
