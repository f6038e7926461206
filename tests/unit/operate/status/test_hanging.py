"""Which transaction a coordinator speaks of, when a leader has one open: the epochs tell."""

from __future__ import annotations

import pytest

from kafka_sink.commit.describe_transactions import TransactionDescription
from kafka_sink.operate.status.facts import OpenProducer
from kafka_sink.operate.status.hanging import is_aborted, is_alive

TASK, FOREIGN = "orders-0123456789abcdef-9-0", "billing"
EPOCH = 7
ONE = OpenProducer("t", 3, 4711, EPOCH, 42)


def told(state: str, epoch: int = EPOCH, name: str = TASK, *partitions: int) -> TransactionDescription:
    return TransactionDescription(name, state, 4711, epoch, 60_000, -1, tuple(("t", one) for one in partitions))


@pytest.mark.parametrize(
    ("what", "version", "expected"),
    [
        (told("CompleteAbort", EPOCH + 1), 2, True),
        # By the rules of version 1, in either.
        (told("CompleteAbort"), 1, True),
        (told("CompleteAbort"), 2, True),
        # Committed (EPOCH + 1), then another transaction of the id was aborted.
        (told("CompleteAbort", EPOCH + 2), 2, False),
        (told("CompleteAbort", EPOCH + 3), 2, False),
        # In version 1 that, or its time-out, has raised the epoch.
        (told("CompleteAbort", EPOCH + 1), 1, False),
        (told("CompleteCommit", EPOCH + 1), 2, False),
        (told("Empty", EPOCH + 2), 2, False),
        (told("Ongoing", EPOCH + 1), 2, False),
        # Its transactions may have one epoch in common.
        (told("CompleteAbort", EPOCH + 1, FOREIGN), 2, False),
        (told("CompleteAbort", EPOCH, FOREIGN), 1, False),
    ],
)
def test_an_abort_is_of_this_transaction_if_no_other_end_fits_between_the_epochs(
    what: TransactionDescription, version: int, expected: bool
) -> None:
    assert is_aborted(ONE, what, version) is expected


def test_a_transaction_lives_where_its_coordinator_will_end_it() -> None:
    assert is_alive(ONE, told("Ongoing", EPOCH, TASK, 2, 3)) and is_alive(ONE, told("PrepareCommit", EPOCH, TASK, 3))
    assert not is_alive(ONE, told("Ongoing", EPOCH + 2, TASK, 2)), "a later one, elsewhere"
    assert not is_alive(ONE, told("CompleteCommit", EPOCH, TASK, 3))
