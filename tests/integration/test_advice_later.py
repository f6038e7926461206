"""A text is read whenever somebody comes: the commands that it names are pasted after its time limit has passed, after
the loss was found, after somebody else has finished or chosen. Each says how things stand and does nothing wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import Producer as ConfluentProducer

from kafka_sink.commit.ledger import Kind, LedgerRecord
from kafka_sink.commit.listing import LedgerListing
from kafka_sink.commit.receipt import UNNAMED_BATCH
from tests.integration.advising import BATCH, CASES, Case, Done, checked, command_in, enter, open_and_committed
from tests.support.asking import client_of
from tests.support.commanding import Sink, rows

# What is decided when these texts are made. Of the other ones with this command nothing is, or all is over.
OPEN = (
    "pending", "in doubt and decided", "an earlier batch is pending", "a batch that was left alone",
    "open, shown by ledger", "open, shown by check", "open, shown by status",
    "a nameless write that planning could not finish",
)  # fmt: skip
COMMITTED = (
    "not recorded", "not recorded after the commit", "committed, shown by ledger", "committed, shown by check",
)  # fmt: skip
LOST = ("lost, found while planning", "lost, found by recover", "lost, shown by ledger", "lost, shown by check",
        "lost, shown by status")  # fmt: skip
NAMED = {case.name: case for case in CASES}
RECOVER, CHOICES = "recover", ("resolve --replay", "resolve --accept")
NOTHING = "nothing was to be done"
TIME_LIMIT = re.compile(r"within \d|before (they|its transactions|the transactions) time out")


def listed(sink: Sink) -> list[LedgerRecord]:
    with client_of(sink.servers) as client:
        found = client.run_step(LedgerListing(sink.settings(client), None)).listed or []
    return [each.record for each in found if each.record is not None]


def time_out(sink: Sink) -> None:
    """What a time-out does to the transactions of every open decision, at once."""
    for record in listed(sink):
        for entry in record.entries if record.kind is Kind.INTENT else ():
            options = {"bootstrap.servers": sink.servers, "transactional.id": record.transactional_id(entry)}
            with suppress(KafkaException):
                ConfluentProducer(options).init_transactions(60)


def find_loss(sink: Sink) -> None:
    time_out(sink)
    for record in listed(sink):
        if record.kind is Kind.INTENT:
            assert enter(replace(sink, sink_id=record.sink_id).command(RECOVER)).returncode == 1


def finish(sink: Sink) -> None:
    for record in listed(sink):
        if record.kind is Kind.INTENT:
            assert enter(replace(sink, sink_id=record.sink_id).command(RECOVER)).returncode == 0


def is_lost(sink: Sink, done: Done) -> None:
    """It names what can be chosen, and both commands work."""
    (record,) = [each for each in listed(sink) if each.kind is Kind.STUCK]
    home = replace(sink, sink_id=record.sink_id)
    words = ("resolve --accept",) if record.key == UNNAMED_BATCH else CHOICES
    said = done.stdout + done.stderr
    assert done.returncode == 1 and all(f"`{home.command(each)}" in said for each in words), done


def is_over(sink: Sink, done: Done) -> None:
    assert done.returncode == 0 and NOTHING in done.stdout, done
    assert sink.visible() and {each.kind for each in listed(sink)} <= {Kind.DONE}


def is_visible(sink: Sink, done: Done) -> None:
    assert done.returncode == 0, done
    assert sink.visible() == sorted(rows(BATCH, 0, 1))


Later = tuple[Callable[[Sink], None], Callable[[Sink, Done], None]]
OF_OPEN: dict[str, Later] = {
    "its transactions have timed out": (time_out, is_lost),
    "somebody has found the loss": (find_loss, is_lost),
    "somebody has finished it": (finish, is_over),
}
OF_COMMITTED: dict[str, Later] = {
    "the time-out has passed": (time_out, is_visible),
    "somebody has recorded it": (finish, is_over),
}


def cases() -> Iterator[Any]:
    """In every run what happens alternates from text to text."""
    for names, later in ((OPEN, OF_OPEN), (COMMITTED, OF_COMMITTED)):
        for number, name in enumerate(names):
            for place, what in enumerate(later):
                marks = [] if place == number % len(later) else [pytest.mark.slow]
                yield pytest.param(NAMED[name], later[what], id=f"{name}: {what}", marks=marks)


@pytest.mark.parametrize(("case", "later"), list(cases()))
def test_recover_says_how_things_stand_whenever_it_is_pasted(case: Case, later: Later, sink: Sink) -> None:
    happen, check = later
    command = command_in(case.make(sink), case, RECOVER)
    happen(sink)
    check(sink, enter(command))


def test_no_text_that_names_recover_is_left_out() -> None:
    """But for those where nothing is decided, the decision is overdue already, or is of another cluster, and those of
    the commands `resolve --batch` and `recover --all`."""
    others = {
        "pending, and read after the time-out", "in doubt and not decided", "overdue, shown by ledger",
        "overdue, shown by check", "overdue, shown by status", "another cluster", "another day is asked about",
        "two are open, shown by status", "open in a ledger that is not named",
    }  # fmt: skip
    assert {case.name for case in CASES if RECOVER in case.commands} == {*OPEN, *COMMITTED, *others}


@pytest.mark.parametrize("before", CHOICES)
@pytest.mark.parametrize("after", CHOICES)
@pytest.mark.parametrize("name", [LOST[0], *(pytest.param(each, marks=pytest.mark.slow) for each in LOST[1:])])
def test_a_choice_that_somebody_else_has_made_stays(name: str, before: str, after: str, sink: Sink) -> None:
    text = NAMED[name].make(sink)
    assert enter(command_in(text, NAMED[name], before)).returncode == 0
    chosen = listed(sink)
    done = enter(command_in(text, NAMED[name], after))
    assert done.returncode == 0 and "is lost (" in done.stdout and "there is nothing to choose" in done.stdout, done
    assert listed(sink) == chosen


def test_recover_all_names_what_is_lost_already(sink: Sink) -> None:
    sink.decide_and_die(BATCH)
    find_loss(sink)
    about = f"--bootstrap-server {sink.servers} --ledger-topic {sink.ledger_topic}"
    is_lost(sink, enter(f"pykafka-sink recover --all {about}"))


def test_what_is_committed_has_no_time_limit(sink: Sink) -> None:
    open_and_committed(sink)
    for text in (enter(sink.command("ledger")).stdout, checked(sink)):
        assert f"`{sink.command(RECOVER)}`" in text
        assert not TIME_LIMIT.search(text), text


@pytest.mark.parametrize("happen", [time_out, find_loss, finish], ids=["overdue", "lost", "closed"])
def test_every_command_calls_the_state_the_same(happen: Callable[[Sink], None], sink: Sink) -> None:
    sink.decide_and_die(BATCH)
    happen(sink)
    state = {time_out: "overdue", find_loss: "lost", finish: "delivered"}[happen]
    said = enter(sink.command("ledger"))
    assert f" {state} " in said.stdout
    about = f"--bootstrap-server {sink.servers} --ledger-topic {sink.ledger_topic} --silent-after 0"
    status = enter(f"pykafka-sink status {about}")
    assert f" {state} " in status.stdout
    assert (said.returncode, status.returncode) == ((0, 0) if happen is finish else (1, 2))
    check = checked(sink)
    assert {time_out: "and overdue", find_loss: "is lost", finish: "none open"}[happen] in check
    for text in (said.stdout, status.stdout, check):
        assert not TIME_LIMIT.search(text), text
    recovered = enter(sink.command(RECOVER))
    assert recovered.returncode == (0 if happen is finish else 1)
