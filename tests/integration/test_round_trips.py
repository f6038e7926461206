"""Limits the round trips that a write waits for, because brokers may be in another region.

docs/benchmarks/round-trips.md has the figures and explains how they are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest

from bench.far_brokers import CLOSING
from bench.round_trips import BATCH, COMMIT, FIRST, PLAN, PROCESSES, SECOND, TASK, Cost, count

Costs = Mapping[str, Cost]


@pytest.fixture(scope="module")
def one_broker() -> Costs:
    return count(1, "4.3")


def requests_of(cost: Cost, process: str) -> dict[str, int]:
    return dict(Counter(step.what for step in cost.steps if step.process == process))


@pytest.mark.parametrize(
    ("write", "limits"),
    [(FIRST, (7, 7, 14)), (SECOND, (3, 3, 10)), (BATCH, (0, 1, 3))],
    ids=["first", "second", "batch"],
)
def test_a_write_waits_for_few_round_trips(one_broker: Costs, write: str, limits: tuple[int, ...]) -> None:
    """The counts must match exactly. If a change saves round trips, lower the limit. A label has a driver id of its
    own, whose coordinator is looked for before the driver fences."""
    found = one_broker[write].round_trips
    assert tuple(round(found[process], 2) for process in PROCESSES) == limits


def test_with_more_brokers_there_are_connections_to_more_of_them(one_broker: Costs) -> None:
    three = count(3, "4.3")
    for write, more in ((FIRST, 2), (SECOND, 0), (BATCH, 0)):
        assert three[write].total <= one_broker[write].total + more


def test_the_address_of_a_broker_saves_each_process_a_connection(one_broker: Costs) -> None:
    listed = count(1, "4.3", entry="broker-1")
    for process in PROCESSES:
        assert round(one_broker[FIRST].round_trips[process] - listed[FIRST].round_trips[process], 2) == 2
        assert requests_of(listed[FIRST], process)["connect"] == 1
    assert round(listed[SECOND].total, 2) == round(one_broker[SECOND].total, 2)


def test_planning_asks_for_everything_once(one_broker: Costs) -> None:
    """One Metadata request for topic and ledger, one DescribeConfigs for the broker and the ledger's topic."""
    once = {"Metadata": 1, "DescribeConfigs": 1, "ListOffsets": 1, "Fetch": 1}
    assert requests_of(one_broker[FIRST], PLAN) == {**once, "connect": 2, "ApiVersions": 2}
    assert requests_of(one_broker[SECOND], PLAN) == once
    assert requests_of(one_broker[BATCH], PLAN) == {}


def test_a_commit_finds_all_coordinators_with_one_request(one_broker: Costs) -> None:
    first, second, batch = (requests_of(one_broker[write], COMMIT) for write in (FIRST, SECOND, BATCH))
    assert (first["FindCoordinator"], second["FindCoordinator"]) == (1, 1)
    assert first["connect"] == 2 and "connect" not in second
    # One Metadata finds partitions without a leader, in parallel with DescribeTransactions and DescribeProducers. The
    # other precedes ListTransactions, which must include a broker that has just joined.
    checked = {"DescribeTransactions": 1, "DescribeProducers": 1, "Metadata": 2}
    assert batch == {**checked, "Produce": 1, "EndTxn": 2, "ListTransactions": 1}
    assert requests_of(one_broker[BATCH], CLOSING) == {"Produce": 1, "EndTxn": 1}


def test_a_task_of_a_stream_writes_and_asks_for_its_epoch_in_transaction_version_1_only(one_broker: Costs) -> None:
    assert requests_of(one_broker[BATCH], TASK) == {"Produce": 1}
    by_older_rules = requests_of(count(1, "3.9")[BATCH], TASK)
    assert by_older_rules == {"Metadata": 1, "InitProducerId": 1, "AddPartitionsToTxn": 1, "Produce": 1}


def test_a_count_does_not_flicker(one_broker: Costs) -> None:
    again = count(1, "4.3")
    for write, cost in again.items():
        assert (cost.total, cost.request_count) == (one_broker[write].total, one_broker[write].request_count)
