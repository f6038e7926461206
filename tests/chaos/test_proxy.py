"""One request of a producer fails in a chosen way, on brokers of both transaction versions.

The proxy causes the harm, and a foreign reader that does not use the proxy reads the log: it must contain each record
once, in order, all records of committed transactions, and none of the others. A late request, which arrives when its
client has long begun something else, must have no effect.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kafka_sink import KafkaSinkError, OperationTimeout, Producer
from kafka_sink.kafka.wire.apis import (
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    Api,
)
from tests.chaos.extent import IS_FULL, NEWEST_MAINLY
from tests.support.kafka_proxy import Fault, Harm, KafkaProxy
from tests.support.producing import producer_of
from tools.foreign_reader import read_topic
from tools.kafka_cluster import KafkaCluster
from tools.waiting import PATIENCE_S

pytestmark = [pytest.mark.chaos]

REQUEST_TIMEOUT_MS = 1500
# No request within a second or two of work is slower than this, unless a fault delays it.
PROMPT_S = 1.0
PARTITIONS = 2
RECORDS = 60
FENCED = {47, 48, 90}
INVALID_TXN_STATE = 48

# Each harm costs a second or more for each request and version.
WITHOUT_ANSWER = [Harm.LOSE_ANSWER, Harm.CUT_REQUEST]
SILENT = [Harm.SILENT_ANSWER]
HELD = [Harm.HOLD_REQUEST]
PRODUCE_NUMBERS = [3]
if IS_FULL:
    WITHOUT_ANSWER += [Harm.LOSE_REQUEST, Harm.CUT_ANSWER]
    SILENT += [Harm.SILENCE]
    HELD += [Harm.SILENT_HOLD]
    PRODUCE_NUMBERS += [1, 2, 7]


class Place:
    """A topic of one of the brokers, and producers that write to it through a proxy."""

    def __init__(self, kafka: KafkaCluster, proxy: KafkaProxy, topic: str) -> None:
        self.kafka = kafka
        self.proxy = proxy
        self.topic = topic

    def producer(self, **settings: object) -> Producer:
        """Small batches, so that there is an n-th request; short time-outs, so that silence is noticed soon."""
        quick = {"request_timeout_ms": REQUEST_TIMEOUT_MS, "batch_size": 100, "linger_ms": 0}
        return producer_of(self.proxy, **quick | settings)

    @contextmanager
    def transactional(self, **settings: object) -> Iterator[Producer]:
        with self.producer(transactional_id=f"proxy-{uuid.uuid4()}", **settings) as producer:
            producer.init_transactions()
            yield producer

    def on(self, api: Api, harm: Harm, **more: Any) -> Fault:
        return self.proxy.on(api, harm, **more)

    def send(self, producer: Producer, name: str = "n", count: int = RECORDS) -> None:
        for number in range(count):
            producer.send(self.topic, value=b"%s %d" % (name.encode(), number), partition=number % PARTITIONS)

    def transact(self, producer: Producer, *names: str) -> None:
        """One committed transaction for each name."""
        for name in names:
            producer.begin_transaction()
            self.send(producer, name)
            producer.commit_transaction()

    def log(self) -> list[list[bytes | None]]:
        """Committed values by partition. Waits for open transactions: one that hangs is a separate error."""
        records = read_topic(self.kafka.bootstrap_servers, self.topic)
        return [[record.value for record in records if record.partition == number] for number in range(PARTITIONS)]


@pytest.fixture
def place(kafka: KafkaCluster, topic_name: str) -> Iterator[Place]:
    topic = kafka.create_topic(f"{topic_name[:150]}-{uuid.uuid4().hex[:8]}", PARTITIONS)
    with KafkaProxy(kafka.bootstrap_servers) as proxy:
        yield Place(kafka, proxy, topic)


def numbers(name: str = "n", count: int = RECORDS) -> list[list[bytes]]:
    """The values that each partition must hold."""
    return [[b"%s %d" % (name.encode(), n) for n in range(start, count, PARTITIONS)] for start in range(PARTITIONS)]


def joined(*logs: list[list[bytes]]) -> list[list[bytes]]:
    return [[value for log in logs for value in log[number]] for number in range(PARTITIONS)]


# ---- idempotent, no transaction ----


@NEWEST_MAINLY  # a producer without transactions sends the same requests to both versions
@pytest.mark.parametrize("nth", PRODUCE_NUMBERS)
@pytest.mark.parametrize(
    "harm", [*WITHOUT_ANSWER, *SILENT, Harm.DUPLICATE_REQUEST, Harm.DELAY_REQUEST], ids=lambda harm: harm.name.lower()
)
def test_records_are_there_once_and_in_order_whatever_happens_to_a_produce(harm: Harm, nth: int, place: Place) -> None:
    fault = place.on(PRODUCE, harm, nth=nth, delay_s=PROMPT_S)
    with place.producer() as producer:
        started = time.monotonic()
        place.send(producer)
        producer.flush(timeout_s=PATIENCE_S)
        took_s = time.monotonic() - started
        place.send(producer, "after")
    assert fault.has_acted
    assert place.log() == joined(numbers(), numbers("after"))
    if harm in SILENT:
        assert took_s >= REQUEST_TIMEOUT_MS / 1000


@NEWEST_MAINLY
@pytest.mark.parametrize("harm", HELD, ids=lambda harm: harm.name.lower())
@pytest.mark.parametrize("nth", [1, 3])
def test_a_produce_that_arrives_after_its_repetition_changes_nothing(nth: int, harm: Harm, place: Place) -> None:
    fault = place.on(PRODUCE, harm, nth=nth)
    with place.producer() as producer:
        place.send(producer)
        producer.flush(timeout_s=PATIENCE_S)
        assert fault.has_acted
        fault.release()
        place.send(producer, "after")
        producer.flush(timeout_s=PATIENCE_S)
    assert place.log() == joined(numbers(), numbers("after"))


@NEWEST_MAINLY
@pytest.mark.parametrize("api", [INIT_PRODUCER_ID, METADATA], ids=lambda api: api.name)
@pytest.mark.parametrize("harm", [*WITHOUT_ANSWER, *SILENT], ids=lambda harm: harm.name.lower())
def test_a_producer_starts_although_a_first_request_goes_wrong(harm: Harm, api: Api, place: Place) -> None:
    fault = place.on(api, harm)
    with place.producer() as producer:
        place.send(producer)
        producer.flush(timeout_s=PATIENCE_S)
    assert fault.has_acted
    assert place.log() == numbers()


def test_answers_that_come_in_slices_are_put_together(place: Place) -> None:
    place.proxy.slice_bytes = 7
    with place.transactional() as producer, producer.transaction():
        place.send(producer)
    assert place.proxy.slice_count > 500
    assert place.log() == numbers()


# ---- transactions ----

TRANSACTION_APIS = [INIT_PRODUCER_ID, FIND_COORDINATOR, ADD_PARTITIONS_TO_TXN, PRODUCE, END_TXN]


def skip_where_unused(api: Api, kafka: KafkaCluster) -> None:
    if api is ADD_PARTITIONS_TO_TXN and not kafka.version.startswith("3."):
        pytest.skip("brokers of transaction version 2 register partitions by themselves")


@pytest.mark.parametrize("harm", [*WITHOUT_ANSWER, *SILENT], ids=lambda harm: harm.name.lower())
@pytest.mark.parametrize("api", TRANSACTION_APIS, ids=lambda api: api.name)
def test_committed_transactions_are_there_once_whatever_happens_to_a_request(
    api: Api, harm: Harm, place: Place
) -> None:
    skip_where_unused(api, place.kafka)
    fault = place.on(api, harm)
    with place.transactional() as producer:
        place.transact(producer, "first", "second", "third")
    assert fault.has_acted
    assert place.log() == joined(numbers("first"), numbers("second"), numbers("third"))


@pytest.mark.parametrize("harm", [*WITHOUT_ANSWER, *SILENT], ids=lambda harm: harm.name.lower())
@pytest.mark.parametrize("api", [ADD_PARTITIONS_TO_TXN, PRODUCE, END_TXN], ids=lambda api: api.name)
def test_an_aborted_transaction_leaves_nothing_whatever_happens_to_a_request(
    api: Api, harm: Harm, place: Place
) -> None:
    skip_where_unused(api, place.kafka)
    with place.transactional() as producer:
        fault = place.on(api, harm)
        producer.begin_transaction()
        place.send(producer, "aborted")
        producer.flush(timeout_s=PATIENCE_S)
        producer.abort_transaction()
        place.transact(producer, "committed")
    assert fault.has_acted
    assert place.log() == numbers("committed")


@pytest.mark.parametrize("harm", [*WITHOUT_ANSWER, *SILENT, *HELD], ids=lambda harm: harm.name.lower())
@pytest.mark.parametrize("api", [ADD_PARTITIONS_TO_TXN, PRODUCE], ids=lambda api: api.name)
def test_a_transaction_that_is_aborted_before_anybody_knows_whether_it_began_leaves_nothing(
    api: Api, harm: Harm, place: Place
) -> None:
    skip_where_unused(api, place.kafka)
    # The abort has to come before the request is repeated.
    with place.transactional(retry_backoff_ms=500) as producer:
        fault = place.on(api, harm)
        producer.begin_transaction()
        place.send(producer, "aborted")
        assert fault.wait_until_acted()
        producer.abort_transaction()
        place.transact(producer, "committed")
        if harm in HELD:
            fault.release()
    assert place.log() == numbers("committed")


# ---- late requests of an earlier transaction ----


def assert_it_hit_nothing(fault: Fault) -> None:
    """The late request was refused, or answered as a repetition; the log shows that it had no effect."""
    answer = fault.release()
    assert answer.get("error_code", 0) in FENCED | {0}


@pytest.mark.parametrize("harm", HELD, ids=lambda harm: harm.name.lower())
@pytest.mark.parametrize("second_commits", [True, False], ids=["then-commit", "then-abort"])
@pytest.mark.parametrize("first_commits", [True, False], ids=["late-commit", "late-abort"])
def test_an_end_that_arrives_in_the_next_transaction_ends_nothing(
    first_commits: bool, second_commits: bool, harm: Harm, place: Place
) -> None:
    fault = place.on(END_TXN, harm)
    with place.transactional() as producer:
        producer.begin_transaction()
        place.send(producer, "first")
        producer.flush(timeout_s=PATIENCE_S)
        end(producer, first_commits)
        assert fault.has_acted
        producer.begin_transaction()
        place.send(producer, "second")
        producer.flush(timeout_s=PATIENCE_S)
        assert_it_hit_nothing(fault)
        place.send(producer, "more")
        end(producer, second_commits)
        place.transact(producer, "third")
    expected = [numbers("first")] if first_commits else []
    expected += [numbers("second"), numbers("more")] if second_commits else []
    assert place.log() == joined(*expected, numbers("third"))


@pytest.mark.parametrize("harm", HELD, ids=lambda harm: harm.name.lower())
@pytest.mark.parametrize("api", [PRODUCE, ADD_PARTITIONS_TO_TXN], ids=lambda api: api.name)
@pytest.mark.parametrize("moment", ["begun", "in-next", "after-next"])
def test_a_request_of_an_aborted_transaction_that_arrives_late_leaves_nothing(
    moment: str, api: Api, harm: Harm, place: Place
) -> None:
    skip_where_unused(api, place.kafka)
    with place.transactional() as producer:
        fault = place.on(api, harm)
        producer.begin_transaction()
        place.send(producer, "aborted")
        assert fault.wait_until_acted()
        producer.abort_transaction()
        producer.begin_transaction()
        if moment == "begun":
            fault.release()
        place.send(producer, "committed")
        producer.flush(timeout_s=PATIENCE_S)
        if moment == "in-next":
            fault.release()
        place.send(producer, "more")
        producer.commit_transaction()
        if moment == "after-next":
            fault.release()
        place.transact(producer, "last")
    assert place.log() == joined(numbers("committed"), numbers("more"), numbers("last"))


def end(producer: Producer, commit: bool) -> None:
    if commit:
        producer.commit_transaction()
    else:
        producer.abort_transaction()


# ---- a commit whose outcome is unknown ----


@pytest.mark.parametrize("harm", [Harm.SILENCE, Harm.SILENT_ANSWER], ids=lambda harm: harm.name.lower())
def test_a_commit_that_timed_out_is_resolved_by_calling_it_again(harm: Harm, place: Place) -> None:
    fault = place.on(END_TXN, harm)
    # The request waits longer than the call.
    with place.transactional(request_timeout_ms=15_000, max_block_ms=6000) as producer:
        producer.begin_transaction()
        place.send(producer, "first")
        timeouts = commit_until_known(producer)
        producer.begin_transaction()
        place.send(producer, "second")
        assert commit_until_known(producer) == 0
    assert fault.has_acted and timeouts > 0
    assert place.log() == joined(numbers("first"), numbers("second"))


def commit_until_known(producer: Producer) -> int:
    for timeouts in range(20):
        try:
            producer.commit_transaction()
        except OperationTimeout:
            continue
        return timeouts
    raise TimeoutError("the commit never ended")


def test_an_abort_is_refused_while_a_commit_is_under_way(place: Place) -> None:
    place.on(END_TXN, Harm.SILENT_ANSWER)
    with place.transactional(request_timeout_ms=15_000, max_block_ms=6000) as producer:
        producer.begin_transaction()
        place.send(producer, "first")
        with pytest.raises(OperationTimeout):
            producer.commit_transaction()
        with pytest.raises(KafkaSinkError, match="call it again first"):
            producer.abort_transaction()
        commit_until_known(producer)
    assert place.log() == numbers("first")
