"""The pool of producers: the behaviour of Spark's own pool, as far as it applies to one borrower per producer.

Spark's own sink shares one producer among the tasks of an executor and counts its borrowers. Here a Python worker runs
one task at a time, so a producer has one borrower; a later borrower gets the same producer after it was given back.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kafka_sink.errors import LocalProtocolError
from kafka_sink.kafka.client.producer_identity import ProducerIdentity
from kafka_sink.options import ProducerOptions
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.producer import pool as pool_module
from kafka_sink.producer.pool import IDLE_PRODUCERS_MAX, POOL, ProducerPool
from kafka_sink.producer.producer import Producer
from kafka_sink.testing import BrokerCluster, EmbeddedBroker

TOPIC = "rows"


class Clock:
    """Replaces the module `time` in the pool, which only reads the monotonic clock."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker(1, topics={TOPIC: 2}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def options(servers: str) -> ProducerOptions:
    return parse_producer_options({"bootstrap.servers": servers})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pool_module, "time", clock)
    return clock


@pytest.fixture
def pool() -> Iterator[ProducerPool]:
    pool = ProducerPool()
    yield pool
    pool.close()


def take(pool: ProducerPool, options: ProducerOptions, transactional_id: str | None = None) -> Producer:
    return pool.borrow(options, transactional_id)[0]


def is_open(producer: Producer) -> bool:
    return repr(producer).endswith("open>")


def test_the_same_options_get_the_same_producer_again(pool: ProducerPool, options: ProducerOptions) -> None:
    first = take(pool, options)
    assert len(pool._idle) == 0
    pool.give_back(options, first)
    assert len(pool._idle) == 1
    again = take(pool, replace(options))
    assert again is first
    assert len(pool._idle) == 0
    pool.give_back(options, again)


def test_a_borrowed_producer_is_nobody_elses(pool: ProducerPool, options: ProducerOptions) -> None:
    first, second = take(pool, options), take(pool, options)
    assert first is not second
    for producer in (first, second):
        producer.send(TOPIC, b"x")
        producer.flush()
        pool.give_back(options, producer)
    assert len(pool._idle) == 2
    assert (take(pool, options), take(pool, options)) == (second, first), "those not needed any more grow old"
    for producer in (first, second):
        pool.give_back(options, producer)


def test_other_options_get_another_producer(pool: ProducerPool, options: ProducerOptions) -> None:
    other = replace(options, acks=1, enable_idempotence=False)
    first = take(pool, options)
    pool.give_back(options, first)
    second = take(pool, other)
    assert second is not first
    pool.give_back(other, second)
    assert (take(pool, options), take(pool, other)) == (first, second)
    for producer in (first, second):
        producer.close(0)


def test_a_producer_that_was_given_back_has_another_identity_for_its_next_borrower(
    pool: ProducerPool, options: ProducerOptions
) -> None:
    first = take(pool, options, "task-1")
    assert repr(first) == "<Producer pykafka-sink open>"
    first.init_transactions()
    first.begin_transaction()
    first.send(TOPIC, b"x")
    receipt = first.prepare_transaction()
    pool.give_back(options, first)
    second = take(pool, options, "task-2")
    assert second is first
    second.init_transactions()
    second.begin_transaction()
    second.send(TOPIC, b"y")
    assert second.prepare_transaction().transactional_id == "task-2" != receipt.transactional_id
    pool.give_back(options, second)


def test_an_idle_producer_has_begun_with_the_expected_identity_and_a_new_one_asks_for_its_own(
    pool: ProducerPool, options: ProducerOptions
) -> None:
    expected = ProducerIdentity(7, 3)
    new, has_begun = pool.borrow(options, "task", expected)
    assert not has_begun
    new.init_transactions()
    pool.give_back(options, new)
    again, has_begun = pool.borrow(options, "task", expected)
    assert again is new and has_begun
    receipt = again.prepare_transaction()
    assert (receipt.producer_id, receipt.producer_epoch) == expected and not receipt.is_started
    pool.give_back(options, again)


def test_a_borrowed_producer_is_never_evicted_and_an_idle_one_is_when_its_time_is_over(
    pool: ProducerPool, options: ProducerOptions, clock: Clock
) -> None:
    limit_s = options.connections_max_idle_ms / 1000
    borrowed, idle = take(pool, options), take(pool, options)
    pool.give_back(options, idle)
    clock.now_s += limit_s
    pool.give_back(options, take(pool, replace(options, linger_ms=1)))
    assert is_open(idle)  # the limit itself is still allowed
    clock.now_s += 1
    other = take(pool, replace(options, linger_ms=2))
    assert not is_open(idle)
    assert is_open(borrowed)
    pool.give_back(options, borrowed)
    clock.now_s += limit_s + 1
    pool.give_back(options, other)
    assert not is_open(borrowed)


def test_negative_idle_time_keeps_producers_for_ever(
    pool: ProducerPool, options: ProducerOptions, clock: Clock
) -> None:
    patient = replace(options, connections_max_idle_ms=-1)
    producer = take(pool, patient)
    pool.give_back(patient, producer)
    clock.now_s += 10**9
    assert take(pool, patient) is producer
    producer.close(0)


def test_no_more_than_a_few_idle_producers_are_kept(pool: ProducerPool, options: ProducerOptions) -> None:
    kinds = [replace(options, linger_ms=number) for number in range(IDLE_PRODUCERS_MAX + 2)]
    producers = [take(pool, kind) for kind in kinds]
    for kind, producer in zip(kinds, producers, strict=True):
        pool.give_back(kind, producer)
    assert len(pool._idle) == IDLE_PRODUCERS_MAX
    assert [is_open(producer) for producer in producers] == [False] * 2 + [True] * IDLE_PRODUCERS_MAX


def test_a_producer_that_broke_while_it_was_idle_is_not_handed_out(
    pool: ProducerPool, options: ProducerOptions
) -> None:
    broken = take(pool, options)
    pool.give_back(options, broken)
    broken.close(0)
    fresh = take(pool, options)
    assert fresh is not broken
    fresh.send(TOPIC, b"x")
    fresh.flush()
    pool.give_back(options, fresh)
    assert len(pool._idle) == 1


def test_a_producer_that_cannot_start_over_is_closed_and_not_handed_out(
    pool: ProducerPool, options: ProducerOptions
) -> None:
    busy = take(pool, options, "task")
    busy.init_transactions()
    busy.begin_transaction()
    pool.give_back(options, busy)
    fresh = take(pool, options)
    assert fresh is not busy
    assert not is_open(busy)
    pool.give_back(options, fresh)


def test_500_rounds_by_20_threads_never_share_a_producer_and_end_with_all_of_them_idle_or_closed(
    pool: ProducerPool, options: ProducerOptions
) -> None:
    borrowed: set[int] = set()
    everyone: set[Producer] = set()
    shared: list[Producer] = []
    lock = threading.Lock()

    def rounds() -> None:
        for _ in range(25):
            producer = take(pool, options)
            with lock:
                if id(producer) in borrowed:
                    shared.append(producer)
                borrowed.add(id(producer))
                everyone.add(producer)
            producer.partitions_for(TOPIC)
            with lock:
                borrowed.discard(id(producer))
            pool.give_back(options, producer)

    threads = [threading.Thread(target=rounds) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared == []
    assert 1 <= len(pool._idle) <= IDLE_PRODUCERS_MAX
    assert sum(map(is_open, everyone)) == len(pool._idle)


def test_a_forked_child_starts_with_an_empty_pool_and_leaves_the_parents_connections_alone(
    servers: str, options: ProducerOptions
) -> None:
    producer = take(POOL, options)
    producer.send(TOPIC, b"before")
    producer.flush()
    POOL.give_back(options, producer)
    try:
        child = os.fork()
        if child == 0:  # no exception may leave this branch: pytest would run on in the child
            verdict = 1
            try:
                own = take(POOL, options)
                own.send(TOPIC, b"child")
                own.flush()
                own.close()
                is_refused = False
                try:
                    producer.send(TOPIC, b"the parent's")
                except LocalProtocolError:
                    is_refused = True
                verdict = 0 if own is not producer and is_refused else 2
            finally:
                os._exit(verdict)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert take(POOL, options) is producer
        assert producer.send(TOPIC, b"after").result(10).topic == TOPIC
    finally:
        producer.close(0)
        POOL.close()


def test_a_producer_that_knows_of_too_few_partitions_asks_once_and_another_one_asks_nothing(
    pool: ProducerPool,
) -> None:
    with EmbeddedBroker(1, topics={TOPIC: 2}) as broker:
        producer = take(pool, parse_producer_options({"bootstrap.servers": broker.bootstrap_servers}))

        def look_ahead(partition_count: int) -> tuple[int, int]:
            """How many partitions it then knows, and how many requests that took."""
            asked = len(metadata)
            producer.look_ahead(TOPIC, partition_count)
            return len(producer.partitions_for(TOPIC)), len(metadata) - asked

        metadata: list[str] = []
        producer.partitions_for(TOPIC)
        broker.do(lambda core: note_requests(core, metadata))
        broker.do(lambda core: core.cluster.grow_topic(TOPIC, 5))
        assert look_ahead(0) == look_ahead(2) == (2, 0)
        assert look_ahead(5) == (5, 1)
        assert look_ahead(5) == (5, 0)
        assert look_ahead(9) == (5, 1), "the topic may have been created again with fewer"
        producer.close(0)


def note_requests(core: BrokerCluster, metadata: list[str]) -> None:
    def noted(api: str, version: int, broker_id: int, body: object) -> None:
        if api == "Metadata":
            metadata.append(api)

    core.faults.interceptor = noted
