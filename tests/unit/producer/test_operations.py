"""Steps that time out: the next call of the same method gets the result, and no other call does."""

from __future__ import annotations

import math
import threading
from functools import partial

import pytest

from kafka_sink.errors import LocalProtocolError, OperationTimeout, TransactionAborted
from kafka_sink.producer.engine import commands as c
from kafka_sink.producer.engine.commands import TransactionEvent
from kafka_sink.producer.mailbox import deadline_of
from kafka_sink.producer.operations import ABORT, OFFSETS, PREPARE, Operations

from .shell import FakeClock, Shell

COMMIT = "commit_transaction()"


class Steps:
    """Operations with a time limit of 0; `end` finishes one like the sender."""

    def __init__(self) -> None:
        self.shell = shell = Shell(max_block_ms=0)
        self.mailbox = shell.mailbox
        self.operations = Operations(shell.mailbox, shell.appender, shell.metrics, 0)

    def call(self, name: str, subject: object = None) -> object:
        return self.operations.step(name, c.StartOver, subject)

    def time_out(self, name: str, subject: object = None) -> c.PendingOperation:
        """Lets a step time out; returns its operation."""
        with pytest.raises(OperationTimeout, match="may be called again"):
            self.call(name, subject)
        (call,) = self.mailbox.take_calls()
        assert isinstance(call, c.StartOver)
        return call.operation

    def end(
        self, operation: c.PendingOperation, error: TransactionAborted | None = None, result: object = None
    ) -> None:
        with self.mailbox.lock:
            self.mailbox.finish(operation, error, result)


def test_a_step_that_ran_out_of_time_is_waited_for_and_not_asked_for_again() -> None:
    steps = Steps()
    operation = steps.time_out(COMMIT)
    steps.end(operation, result="done")
    assert steps.call(COMMIT) == "done"
    assert steps.mailbox.take_calls() == []


def test_the_outcome_of_a_step_whose_wait_was_interrupted_is_told_at_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*arguments: object) -> bool:
        raise KeyboardInterrupt

    steps = Steps()
    with monkeypatch.context() as patch:
        patch.setattr(steps.mailbox, "wait_for", interrupted)
        with pytest.raises(KeyboardInterrupt):
            steps.call(COMMIT)
    (call,) = steps.mailbox.take_calls()
    assert isinstance(call, c.StartOver)
    steps.end(call.operation, result="done")
    with pytest.raises(LocalProtocolError, match="call it again first"):
        steps.call("begin_transaction()")
    wakes = steps.shell.wake_count
    assert steps.call(COMMIT) == "done"
    assert steps.mailbox.take_calls() == []
    assert steps.shell.wake_count == wakes + 1, "the interrupt may have come before the sender was woken"


@pytest.mark.parametrize("error", [OperationTimeout, KeyboardInterrupt])
def test_an_outcome_that_comes_while_the_wait_for_it_fails_is_told_at_the_next_call(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    steps = Steps()
    operations = Operations(steps.mailbox, steps.shell.appender, steps.shell.metrics, 700)

    def wait_for(_is_over: object, deadline_ms: int, _what: str) -> bool:
        assert deadline_ms == steps.shell.clock.now_ms + 700
        (call,) = steps.mailbox.take_calls()
        assert isinstance(call, c.TransactionStep)
        steps.end(call.operation, result="done")
        if error is KeyboardInterrupt:
            raise error
        return False

    commit = partial(c.TransactionStep, event=TransactionEvent.COMMIT)
    with monkeypatch.context() as patch:
        patch.setattr(steps.mailbox, "wait_for", wait_for)
        with pytest.raises(error):
            operations.step(COMMIT, commit)
    assert operations.step(COMMIT, commit) == "done"
    assert steps.mailbox.take_calls() == []


def test_infinity_waits_for_ever() -> None:
    clock = FakeClock()
    assert deadline_of(clock, None) is None
    assert deadline_of(clock, math.inf) is None
    assert deadline_of(clock, 0.5) == clock.now_ms + 500


def test_an_error_that_came_after_the_time_out_is_told_at_the_next_call() -> None:
    steps = Steps()
    steps.end(steps.time_out(COMMIT), error=TransactionAborted("too late"))
    with pytest.raises(TransactionAborted, match="too late"):
        steps.call(COMMIT)
    steps.time_out("begin_transaction()")


def test_a_told_outcome_is_not_taken_for_that_of_the_next_transaction() -> None:
    steps = Steps()
    first = steps.time_out(COMMIT)
    steps.end(first)
    steps.call(COMMIT)
    assert steps.time_out(COMMIT) != first


@pytest.mark.parametrize("other", ["begin_transaction()", ABORT])
def test_no_other_step_is_taken_while_an_outcome_is_untold(other: str) -> None:
    steps = Steps()
    steps.end(steps.time_out(COMMIT))
    with pytest.raises(LocalProtocolError, match=r"commit_transaction\(\) timed out or was interrupted before"):
        steps.call(other)
    steps.call(COMMIT)


def test_an_outcome_is_not_told_to_the_same_step_about_something_else() -> None:
    steps = Steps()
    steps.end(steps.time_out(OFFSETS, {"rows": 5}))
    with pytest.raises(LocalProtocolError, match="call again first, with the same arguments as before"):
        steps.call(OFFSETS, {"rows": 6})
    assert steps.mailbox.take_calls() == []
    steps.call(OFFSETS, {"rows": 5})
    steps.time_out(OFFSETS, {"rows": 6})


@pytest.mark.parametrize("step", [PREPARE, OFFSETS])
def test_an_abort_may_replace_a_step_of_its_transaction_that_ran_out_of_time(step: str) -> None:
    steps = Steps()
    before = steps.time_out(step)
    assert steps.time_out(ABORT) != before


def test_a_call_in_a_callback_is_refused_and_does_not_lose_an_untold_outcome() -> None:
    steps = Steps()
    operation = steps.time_out(COMMIT)
    steps.mailbox.sender_ident = threading.get_ident()
    with pytest.raises(LocalProtocolError, match="inside a delivery callback"):
        steps.call(COMMIT)
    steps.mailbox.sender_ident = None
    steps.end(operation, result="done")
    assert steps.call(COMMIT) == "done"
