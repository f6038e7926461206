"""In every order of events in a small world, each row is visible exactly once, or a loss is reported. The search also
finds planted mistakes.

The quick budgets have one fault each and are searched completely; the slow ones combine faults. The quick budgets with
the most states are searched with one transaction version in every run and with the other in a slow run: the versions
differ in the tasks' transactions, and the small budgets combine each fault with both. `python -m tests.model.search`
takes any other budget and prints the number of states, and the shortest history of a violation.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from tests.mistakes.table import MISTAKES, Mistake
from tests.model.search import search
from tests.model.world import Budget, World

STORY_MAX = 60


@dataclass(frozen=True)
class Bound:
    budget: Budget
    batches: int = 1
    has_labels: bool = False
    closes_later: bool = False
    has_drafts: bool = False

    def __str__(self) -> str:
        spent = [f"{count} {name}" for name, count in zip(Budget._fields, self.budget, strict=True) if count]
        more = ["closed later"] * self.closes_later + ["drafts"] * self.has_drafts
        return ", ".join([*spent, "labels" if self.has_labels else f"{self.batches} batches", *more])


QUICK = (
    Bound(Budget(losses=1, restarts=1)),
    Bound(Budget(time_outs=1, restarts=1)),
    Bound(Budget(deadlines=1)),
    # With two changes the third batch is committed in the process of the first. Tasks have the same ids in each batch.
    Bound(Budget(processes=2), batches=3),
    Bound(Budget(processes=2, losses=1)),
    Bound(Budget(operators=1)),
    Bound(Budget(frozen=1)),
)
# The number is the transaction version that is searched in every run.
LARGE = (
    (1, Bound(Budget(crashes=1))),
    # Without a crash the ledger contains nothing that a driver could miss.
    (2, Bound(Budget(crashes=1, outdated=2))),
)
# An operator's command that aborts, beside a driver: each may interrupt the other.
COMMANDS = ((1, Bound(Budget(commands=1, switches=1))),)
COMMANDS_SLOW = ((1, Bound(Budget(commands=1, switches=2))), (2, Bound(Budget(commands=1, switches=2))))
# Processes close a decision after its commit, which they do in transaction version 2 alone.
LATER = (
    (2, Bound(Budget(processes=1), batches=3, closes_later=True)),
    (2, Bound(Budget(deadlines=1), batches=2, closes_later=True)),
)
# Leaders as before Kafka 4.2 may take a marker a second time.
COPIES = ((2, Bound(Budget(copies=1), batches=2)),)
COPIES_SLOW = ((2, Bound(Budget(deadlines=1, restarts=1, copies=1), batches=2)),)
LATER_SLOW = (
    (2, Bound(Budget(losses=1), batches=2, closes_later=True)),
    (2, Bound(Budget(crashes=1), batches=2, closes_later=True)),
    (2, Bound(Budget(processes=2, losses=1), batches=3, closes_later=True)),
)
SLOW = (
    Bound(Budget(crashes=1, markers=1)),
    Bound(Budget(crashes=1, time_outs=1, markers=1)),
    Bound(Budget(deadlines=1, crashes=1, markers=1), has_drafts=True),
    Bound(Budget(crashes=1, others=1)),
    Bound(Budget(crashes=1, outdated=2), batches=2),
    Bound(Budget(deadlines=1, restarts=1)),
    Bound(Budget(crashes=1, time_outs=1)),
    Bound(Budget(crashes=1, deadlines=1)),
    Bound(Budget(losses=1, restarts=1), batches=2),
    Bound(Budget(crashes=1), batches=2),
    Bound(Budget(processes=2, losses=1), batches=3),
    Bound(Budget(crashes=1, processes=1), batches=2),
    Bound(Budget(crashes=1, markers=2), batches=2),
    Bound(Budget(crashes=1, others=1), batches=2),
    Bound(Budget(operators=2)),
    Bound(Budget(frozen=2), batches=2),
    Bound(Budget(operators=1, restarts=1), batches=2),
    Bound(Budget(operators=1, crashes=1)),
)


@pytest.mark.parametrize(
    ("transaction_version", "bound"),
    [*((one, bound) for bound in QUICK for one in (1, 2)), *LARGE, *COMMANDS, *LATER, *COPIES],
    ids=str,
)
def test_with_one_fault_each_row_is_there_once_or_its_loss_is_reported(transaction_version: int, bound: Bound) -> None:
    check_bound(transaction_version, bound)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("transaction_version", "bound"),
    [
        *((one, bound) for bound in SLOW for one in (1, 2)),
        *((3 - one, bound) for one, bound in LARGE),
        *COMMANDS_SLOW,
        *LATER_SLOW,
        *COPIES_SLOW,
    ],
    ids=str,
)
def test_with_two_faults_each_row_is_there_once_or_its_loss_is_reported(transaction_version: int, bound: Bound) -> None:
    check_bound(transaction_version, bound)


def check_bound(transaction_version: int, bound: Bound, states_max: int | None = None) -> None:
    """`states_max`: of a world that fits into no memory. Shorter histories are searched, and no end is asked for."""
    drivers, has_labels = 1 + bound.budget.seconds, bound.has_labels
    world = World(
        transaction_version, bound.budget, batches=bound.batches, drivers=drivers, has_labels=has_labels,
        closes_later=bound.closes_later, has_drafts=bound.has_drafts,
    )  # fmt: skip
    found = search(world) if states_max is None else search(world, states_max=states_max)
    sys.stdout.write(
        f"transaction version {transaction_version}, {bound}: {found.states} states, {found.transitions} transitions\n"
    )
    assert found.violation is None, (found.violation, found.story)
    assert found.is_complete is (states_max is None) and found.states > 100
    # A stream that may restart ends as delivered, as stopped by a loss, or down with all restarts used.
    if bound.budget.restarts:
        ends = set(found.ends or {})
        assert ends <= {"finished", "stuck", "down"} and "finished" in ends


def test_a_second_driver_that_interrupts_once_makes_no_row_double() -> None:
    check_bound(2, Bound(Budget(seconds=1, switches=1)))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_labels_side_by_side_know_nothing_of_each_other() -> None:
    """No driver ends because of the other one, and none finishes what the other one has decided."""
    check_bound(2, Bound(Budget(seconds=1, switches=1), has_labels=True))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("transaction_version", [1, 2])
def test_two_labels_that_interrupt_each_other_are_delivered_though_a_driver_crashes(transaction_version: int) -> None:
    check_bound(transaction_version, Bound(Budget(seconds=1, switches=2), has_labels=True))
    # More than 18 GB of states would be searched to the end.
    bound = Bound(Budget(seconds=1, switches=1, crashes=1), has_labels=True)
    check_bound(transaction_version, bound, states_max=3_000_000)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("transaction_version", [1, 2])
def test_two_drivers_that_interrupt_each_other_twice_make_no_row_double(transaction_version: int) -> None:
    check_bound(transaction_version, Bound(Budget(seconds=1, switches=2)))


SEARCHED = [
    pytest.param(mistake, id=mistake.name, marks=[pytest.mark.slow] if mistake.search.is_slow else [])
    for mistake in MISTAKES
    if mistake.search is not None
]


@pytest.mark.parametrize("mistake", SEARCHED)
def test_a_planted_mistake_is_found(mistake: Mistake) -> None:
    wanted = mistake.search
    assert wanted is not None
    world = World(
        wanted.transaction_version, wanted.budget, batches=wanted.batches, drivers=1 + wanted.budget.seconds,
        has_labels=wanted.has_labels, has_drafts=wanted.has_drafts,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        mistake.plant(patch)
        found = search(world, states_max=wanted.states_max)
    assert found.violation is not None
    sys.stdout.write(
        f"{mistake.name}: {found.violation.text}, after {len(found.story)} events, {found.states} states\n"
    )
    assert len(found.story) < STORY_MAX
