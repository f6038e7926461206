"""The clock of the machine where somebody asks is wrong: what status, ledger and transactions say of time.

A broker's clock is behind that machine's, or ahead of it; it tells its time, or does not (no Describe on the cluster).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafka_sink.commit.receipt import BatchKey
from kafka_sink.testing import EmbeddedBroker, Fault
from tests.integration.statuses import age, wall_ms
from tests.support.commanding import Shell, Sink

FIRST, SECOND = BatchKey("query-1", 0), BatchKey("query-1", 1)
CLUSTER_AUTHORIZATION_FAILED = 31
MIN_MS = 60_000
CLOCKS = pytest.mark.parametrize("ahead_ms", [-20 * MIN_MS, 20 * MIN_MS], ids=["behind", "ahead"])
# Transactions of 300 s.
OLD_MS = 275_000


@contextmanager
def brokers(ahead_ms: int, ago_ms: int, *, is_told: bool = True) -> Iterator[tuple[EmbeddedBroker, Sink]]:
    """With a sink, whose driver has the brokers' time."""
    with EmbeddedBroker(1, clock_ahead_ms=ahead_ms) as broker:
        if not is_told:
            broker.inject(Fault("DescribeQuorum", CLUSTER_AUTHORIZATION_FAILED, times=None))
        sink = Sink(broker.bootstrap_servers, "t", "orders", "__pykafka_sink_ledger")
        sink.create()
        sink.wall_ms = wall_ms() + ahead_ms - ago_ms
        yield broker, sink


def words(command: str, sink: Sink, *more: str) -> tuple[str, ...]:
    return (command, "--bootstrap-server", sink.servers, *more)


def seconds_left(shell: Shell, sink: Sink) -> float:
    (row,) = shell(*words("status", sink, "--silent-after", "0", "--json")).content["sinks"]
    return float(row["time_left_ms"]) / 1000


@CLOCKS
def test_a_decision_whose_time_is_nearly_over_is_told_with_the_time_that_is_left(ahead_ms: int, shell: Shell) -> None:
    with brokers(ahead_ms, 280_000) as (broker, sink):
        for receipt in sink.decide_and_die(FIRST):
            age(broker, receipt.transaction.transactional_id, OLD_MS)
        found = shell(*words("status", sink, "--silent-after", "0"))
        assert found.exit_code == 2 and "lost unless it is finished within" in found.out
        assert re.search(r"clock is 1(199|200) s (ahead of|behind) the brokers': ages and times here are by", found.out)
        assert 10 < seconds_left(shell, sink) <= 25
        told = shell(*words("ledger", sink, "--sink-id", "orders", "--json")).content["decisions"]
        assert 10 < told[0]["time_left_ms"] / 1000 <= 25


def test_of_brokers_that_do_not_tell_the_time_a_transaction_of_the_future_shows_that_this_clock_is_behind(
    shell: Shell,
) -> None:
    with brokers(20 * MIN_MS, 280_000, is_told=False) as (broker, sink):
        for receipt in sink.decide_and_die(FIRST):
            age(broker, receipt.transaction.transactional_id, OLD_MS)
        found = shell(*words("status", sink, "--silent-after", "0"))
        assert found.exit_code == 4 and "s behind the brokers', which is not told" in found.out
        assert seconds_left(shell, sink) <= 300
        told = shell(*words("ledger", sink, "--sink-id", "orders", "--json")).content["decisions"]
        assert told[0]["time_left_ms"] <= 300_000


@CLOCKS
def test_a_query_that_runs_is_fine_and_is_taken_for_one_that_runs(ahead_ms: int, shell: Shell) -> None:
    with brokers(ahead_ms, 5_000) as (_, sink):
        sink.deliver(FIRST)
        sink.task(SECOND, 0)
        assert shell(*words("status", sink, "--silent-after", "0")).exit_code == 0
        asked = shell(*words("transactions", sink, "--sink-id", "orders", "--abort", "--yes"))
        assert "A query seems to be running" in asked.out + asked.err


def test_a_transaction_that_is_older_than_it_may_be_is_taken_for_one_of_a_running_query(shell: Shell) -> None:
    """Nobody tells whether this clock is ahead or the coordinator does not end it."""
    with brokers(-20 * MIN_MS, 5_000, is_told=False) as (_, sink):
        sink.deliver(FIRST)
        sink.task(SECOND, 0)
        found = shell(*words("status", sink, "--silent-after", "0"))
        assert found.exit_code == 1 and "or this machine's clock is ahead of the brokers'" in found.out
        asked = shell(*words("transactions", sink, "--sink-id", "orders", "--abort", "--yes"))
        assert "A query seems to be running: by this machine's clock" in asked.out + asked.err
