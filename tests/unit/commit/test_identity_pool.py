"""Reuse of transactional ids: by which attempts, from which batch on, and which ids are never reused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_sink.commit.identity import TaskIdentity
from kafka_sink.commit.identity_pool import (
    IDENTITIES_PER_SINK_MAX,
    SINKS_MAX,
    IdentityPool,
    Last,
    is_over,
    next_identity,
)
from kafka_sink.commit.receipt import BatchKey, PreparedTransaction
from kafka_sink.kafka.client.producer_identity import PRODUCER_EPOCH_MAX
from kafka_sink.options import ProducerOptions

RUN, NEXT_RUN = "a" * 16, "b" * 16
PREPARED = PreparedTransaction("x", 7, 3, 2)
OPTIONS = ProducerOptions(bootstrap_servers=(("a", 1),))
LAST = Last(PREPARED, OPTIONS)


def batch(number: int | str, query: str = "q") -> BatchKey:
    return BatchKey(query, number)


def own(partition: int, attempt: int, run: str = RUN, sink: str = "sink") -> TaskIdentity:
    return TaskIdentity(sink, run, partition, attempt)


@pytest.fixture
def pool() -> IdentityPool:
    return IdentityPool()


def take(pool: IdentityPool, sink: str, run: str, key: BatchKey, attempt: int) -> TaskIdentity:
    """As a task of Spark partition 0 does."""
    used = pool.take_used(sink, run, key)
    return own(0, attempt, run, sink) if used is None else used.identity


def used_in(pool: IdentityPool, number: int, attempt: int, **more: str) -> TaskIdentity:
    """Takes an id for a successful attempt of that batch and gives it back."""
    where = {"sink": "sink", "run": RUN, "query": "q", **more}
    identity = take(pool, where["sink"], where["run"], batch(number, where["query"]), attempt)
    pool.give_back(identity, batch(number, where["query"]), LAST)
    return identity


def test_an_id_is_named_after_the_first_attempt_and_used_again_in_later_batches(pool: IdentityPool) -> None:
    first = used_in(pool, 0, 41)
    assert first == own(0, 41)
    assert [used_in(pool, number, 50 + number) for number in (1, 2, 7)] == [first] * 3


def test_within_one_batch_each_attempt_has_an_id_of_its_own(pool: IdentityPool) -> None:
    ids = [used_in(pool, 0, attempt) for attempt in range(5)]
    assert len(set(ids)) == 5
    assert {used_in(pool, 1, 10 + task) for task in range(5)} == set(ids)
    assert used_in(pool, 1, 15) == own(0, 15)


def test_after_any_number_of_batches_there_are_as_many_ids_as_one_batch_has_tasks(pool: IdentityPool) -> None:
    ids = {used_in(pool, number, 4 * number + task) for number in range(1_000) for task in range(4)}
    assert len(ids) == 4


def test_so_it_is_if_one_process_runs_thousands_of_tasks_of_a_batch(pool: IdentityPool) -> None:
    """Ten thousand tasks on four cores. Brokers keep each further id for a week."""
    ids = {used_in(pool, number, 2_500 * number + task) for number in range(4) for task in range(2_500)}
    assert len(ids) == 2_500


def test_an_attempt_that_does_not_give_its_id_back_takes_it_with_it(pool: IdentityPool) -> None:
    used_in(pool, 0, 1)
    lost = take(pool, "sink", RUN, batch(1), 2)
    assert lost == own(0, 1)
    assert take(pool, "sink", RUN, batch(1), 3) == own(0, 3)
    assert take(pool, "sink", RUN, batch(9), 4) == own(0, 4)


def test_an_id_given_back_late_by_an_attempt_of_an_older_batch_is_free_at_once(pool: IdentityPool) -> None:
    late = take(pool, "sink", RUN, batch(0), 1)
    used_in(pool, 1, 2)
    pool.give_back(late, batch(0))
    assert take(pool, "sink", RUN, batch(1), 3) == late


def test_an_attempt_of_an_older_batch_gets_nothing_that_a_newer_one_may_have_used(pool: IdentityPool) -> None:
    used_in(pool, 0, 1)
    used_in(pool, 1, 2)
    used_in(pool, 2, 3)
    assert take(pool, "sink", RUN, batch(1), 4) == own(0, 4)
    assert take(pool, "sink", RUN, batch(3), 5) == own(0, 1)


def test_each_run_each_query_and_each_sink_has_ids_of_its_own(pool: IdentityPool) -> None:
    used_in(pool, 0, 1)
    assert used_in(pool, 1, 2, sink="other") == own(0, 2, sink="other")
    assert used_in(pool, 1, 3) == own(0, 1)
    assert used_in(pool, 2, 4, run=NEXT_RUN) == own(0, 4, run=NEXT_RUN)
    assert used_in(pool, 3, 5, run=NEXT_RUN, query="another") == own(0, 5, run=NEXT_RUN)


def test_what_belongs_to_a_run_that_is_over_is_not_taken_back(pool: IdentityPool) -> None:
    old = take(pool, "sink", RUN, batch(0), 1)
    used_in(pool, 0, 2, run=NEXT_RUN)
    pool.give_back(old, batch(0))
    assert take(pool, "sink", RUN, batch(5), 3) == own(0, 3)


def test_a_batch_write_with_a_label_never_uses_an_id_again(pool: IdentityPool) -> None:
    first = take(pool, "sink", RUN, batch("monday", ""), 1)
    pool.give_back(first, batch("monday", ""))
    assert take(pool, "sink", RUN, batch("tuesday", ""), 2) == own(0, 2)


def test_an_id_given_back_twice_is_there_once(pool: IdentityPool) -> None:
    identity = used_in(pool, 0, 1)
    pool.give_back(identity, batch(0))
    assert [take(pool, "sink", RUN, batch(1), attempt) for attempt in (2, 3)] == [identity, own(0, 3)]


def test_the_last_transaction_comes_with_the_id(pool: IdentityPool) -> None:
    identity = used_in(pool, 0, 1)
    assert pool.take_used("sink", RUN, batch(1)) == (identity, LAST)
    assert pool.take_used("sink", RUN, batch(1)) is None


def test_in_transaction_version_2_the_next_transaction_has_the_epoch_that_the_end_gives() -> None:
    assert next_identity(LAST, OPTIONS) == (7, 4)


@pytest.mark.parametrize(
    "last",
    [
        None,
        Last(PREPARED._replace(transaction_version=1), OPTIONS),
        LAST._replace(options=replace(OPTIONS, transaction_timeout_ms=1)),
        LAST._replace(options=replace(OPTIONS, bootstrap_servers=(("b", 1),))),
        *(Last(PREPARED._replace(producer_epoch=epoch), OPTIONS) for epoch in (32_765, 32_766, 32_767)),
    ],
    ids=["nothing written", "version 1", "time-out", "cluster", "32765", "32766", "32767"],
)
def test_the_coordinator_is_asked_where_the_end_gives_no_epoch_or_it_has_to_be_told_something(
    last: Last | None,
) -> None:
    assert next_identity(last, OPTIONS) is None


def test_the_last_epoch_that_goes_on_leaves_room_for_a_time_out() -> None:
    """Brokers keep the epoch after the last one for a producer that they fence, and Kafka 4.0 raises it twice."""
    following = next_identity(Last(PREPARED._replace(producer_epoch=32_764), OPTIONS), OPTIONS)
    assert following == (7, 32_765) and following.producer_epoch < PRODUCER_EPOCH_MAX


def test_sinks_and_ids_beyond_the_bounds_are_forgotten(pool: IdentityPool) -> None:
    for number in range(SINKS_MAX + 1):
        used_in(pool, 0, number, sink=f"sink-{number}")
    assert pool.take_used("sink-0", RUN, batch(1)) is None
    assert pool.take_used(f"sink-{SINKS_MAX}", RUN, batch(1)) is not None
    for attempt in range(IDENTITIES_PER_SINK_MAX + 10):
        used_in(pool, 0, attempt)
    found = [pool.take_used("sink", RUN, batch(1)) for _ in range(IDENTITIES_PER_SINK_MAX + 10)]
    assert sum(each is not None for each in found) == IDENTITIES_PER_SINK_MAX


@pytest.mark.parametrize(
    ("state", "producer_id", "epoch", "error_code", "wanted"),
    [
        ("CompleteCommit", 7, 3, 0, True),
        ("CompleteCommit", 7, 4, 0, True),
        ("CompleteAbort", 7, 5, 0, True),
        ("PrepareCommit", 7, 3, 0, True),
        ("Ongoing", 7, 3, 0, False),
        ("PrepareEpochFence", 7, 4, 0, False),
        ("Empty", 7, 3, 0, False),
        ("CompleteCommit", 7, 2, 0, False),
        ("CompleteCommit", 8, 0, 0, False),
        ("CompleteCommit", 7, 3, 16, False),
    ],
)
def test_only_the_end_of_that_very_transaction_makes_its_id_free_where_errors_can_be_caught(
    state: str, producer_id: int, epoch: int, error_code: int, wanted: bool
) -> None:
    where = {"producer_id": producer_id, "producer_epoch": epoch}
    described = {"transaction_state": state, "error_code": error_code, **where}
    assert is_over(PREPARED, described) is wanted
