"""Commits of many tasks on simulated brokers, in virtual time: what they send, and how their work grows.

What it costs with 10,000 tasks is measured by `python -m bench.scale --tasks`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.scale_tasks import SimulatedStream
from bench.simulated_cluster import Shape
from kafka_sink.commit import open_parts
from kafka_sink.commit.session import DriverOperation
from kafka_sink.kafka.client import connection
from tests.support.work import count_instructions


def stream_of(tasks: int, *, brokers: int = 20, spread: int = 4, partitions: int = 1_000) -> SimulatedStream:
    return SimulatedStream(Shape(tasks, partitions, brokers, brokers, spread), counts_cpu=False)


def test_a_commit_asks_each_coordinator_once_and_ends_each_transaction_with_one_request() -> None:
    stream = stream_of(300)
    stream.run(DriverOperation.COMMIT, stream.receipts())
    line = stream.run(DriverOperation.COMMIT, stream.receipts())
    requests = line["requests"]
    assert requests["EndTxn"] == 302 and requests["Produce"] == 2 and "FindCoordinator" not in requests
    assert requests["DescribeTransactions"] == requests["ListTransactions"] == 20 >= requests["DescribeProducers"]
    assert requests["Metadata"] <= 2


def work_of_a_commit(tasks: int) -> int:
    stream = stream_of(tasks, brokers=1, spread=1, partitions=1)
    # Each step looks at what is under way: so much at most.
    stream.settings = replace(stream.settings, parallel_requests=4)
    return count_instructions(lambda: stream.run(DriverOperation.COMMIT, stream.receipts()))


def test_the_work_of_a_commit_grows_with_its_tasks_and_not_with_their_square() -> None:
    work_of_a_commit(1)  # codecs are made at their first use
    few, more, most = (work_of_a_commit(tasks) for tasks in (20, 60, 100))
    assert most - more < 1.01 * (more - few)


def test_a_batch_is_delivered_though_what_the_leaders_would_tell_does_not_fit_into_one_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with millions of producers. Each answer would be refused, until too little time is left."""
    monkeypatch.setattr(connection, "FRAME_BYTES_MAX", 45_000)
    monkeypatch.setattr(open_parts, "PRODUCERS_ASKED_MAX", 3_000)
    stream = stream_of(200, brokers=3, spread=20)
    line = stream.run(DriverOperation.COMMIT, stream.receipts())
    assert "DescribeProducers" not in line["requests"] and line["ms"] < 1_000
