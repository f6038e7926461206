"""The loop of single questions: what is asked again, when, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.commit.admin.asking import Asking
from kafka_sink.errors import OperationTimeout, TransportError
from kafka_sink.kafka.client.ask import AllBrokers, AnyBroker, Ask, Repeat, Reply, ReplyKind
from kafka_sink.kafka.wire.apis import METADATA

RESET = TransportError("connection reset")
WAIT_MS, TRY_MS, DEADLINE_MS = 100, 400, 1_000


def asking(*asks: Ask, **more: Any) -> Asking:
    return Asking(asks, deadline_ms=DEADLINE_MS, try_ms=TRY_MS, delay_ms=lambda failures: WAIT_MS * failures, **more)


def question(repeat: Repeat) -> Ask:
    return Ask(AnyBroker(), METADATA, {}, repeat=repeat)


@pytest.mark.parametrize(
    ("repeat", "kind"),
    [
        (Repeat.NEVER, ReplyKind.NOT_SENT),
        (Repeat.UNSENT, ReplyKind.LOST),
        (Repeat.ALWAYS, ReplyKind.REFUSED),
        (Repeat.ALWAYS, ReplyKind.UNSUPPORTED),
    ],
)
def test_what_may_not_be_repeated_ends_with_its_failure(repeat: Repeat, kind: ReplyKind) -> None:
    ask = question(repeat)
    machine = asking(ask)
    assert list(machine.step(0, ()).asks) == [ask]
    reply = Reply(ask, kind, (), RESET)
    assert machine.step(1, [reply]).result == [(reply, RESET)]


@pytest.mark.parametrize(
    ("repeat", "kind"),
    [(Repeat.UNSENT, ReplyKind.NOT_SENT), (Repeat.ALWAYS, ReplyKind.NOT_SENT), (Repeat.ALWAYS, ReplyKind.LOST)],
)
def test_the_same_ask_is_sent_again_after_a_longer_wait_each_time_and_looks_for_its_broker(
    repeat: Repeat, kind: ReplyKind
) -> None:
    ask = question(repeat)
    machine = asking(ask)
    machine.step(0, ())
    assert (ask.timeout_ms, ask.find_again) == (TRY_MS, False)
    assert machine.step(0, [Reply(ask, kind, (), RESET)]).wake_at_ms == WAIT_MS
    assert list(machine.step(WAIT_MS, ()).asks) == [ask] and ask.find_again
    assert machine.step(WAIT_MS, [Reply(ask, kind, (), RESET)]).wake_at_ms == 3 * WAIT_MS
    machine.step(3 * WAIT_MS, ())
    answered = Reply(ask, ReplyKind.ANSWERED, ({},))
    assert machine.step(3 * WAIT_MS, [answered]).result == [(answered, None)]


def test_no_try_is_longer_than_the_time_that_is_left_and_none_begins_when_it_is_over() -> None:
    ask = question(Repeat.ALWAYS)
    machine = asking(ask)
    machine.step(0, ())
    machine.step(700, [Reply(ask, ReplyKind.LOST, (), RESET)])
    machine.step(800, ())
    assert ask.timeout_ms == 200
    last = Reply(ask, ReplyKind.LOST, (), RESET)
    assert machine.step(DEADLINE_MS, [last]).result == [(last, RESET)]


def test_an_answer_that_lacks_something_is_asked_for_again_and_at_the_end_that_is_the_failure() -> None:
    late = OperationTimeout("not every broker knows it")
    ask = question(Repeat.UNSENT)
    machine = asking(ask, lacks=lambda bodies: None if bodies[0].get("is_known") else late)
    machine.step(0, ())
    assert machine.step(0, [Reply(ask, ReplyKind.ANSWERED, ({},))]).result is None
    machine.step(WAIT_MS, ())
    behind = Reply(ask, ReplyKind.ANSWERED, ({},))
    assert machine.step(DEADLINE_MS, [behind]).result == [(behind, late)]


def test_brokers_that_do_not_answer_are_left_out_only_if_that_is_asked_for() -> None:
    ask = Ask(AllBrokers(), METADATA, {}, repeat=Repeat.ALWAYS)
    some = Reply(ask, ReplyKind.LOST, ({},), RESET)
    machine = asking(ask, needs_all=False)
    machine.step(0, ())
    assert machine.step(0, [some]).result == [(some, None)]
    machine = asking(ask)
    machine.step(0, ())
    assert machine.step(0, [some]).result is None


def test_each_of_several_asks_has_its_own_reply_and_one_that_is_not_among_them_counts_for_nothing() -> None:
    first, second, stranger = (question(Repeat.NEVER) for _ in range(3))
    machine = asking(first, second)
    machine.step(0, ())
    stranger.is_out = True
    refused = Reply(second, ReplyKind.REFUSED, (), RESET)
    assert machine.step(1, [Reply(stranger, ReplyKind.ANSWERED), refused]).result is None
    answered = Reply(first, ReplyKind.ANSWERED, ({},))
    assert machine.step(2, [answered]).result == [(answered, None), (refused, RESET)]


def test_what_the_last_answer_lacked_is_the_failure_if_the_deadline_cuts_off_the_last_try() -> None:
    behind = OperationTimeout("not every broker knows it")
    ask = question(Repeat.ALWAYS)
    machine = asking(ask, lacks=lambda _: behind)
    machine.step(0, ())
    machine.step(800, [Reply(ask, ReplyKind.ANSWERED, ({},))])
    machine.step(900, ())
    cut_off = Reply(ask, ReplyKind.NOT_SENT, (), RESET)
    assert machine.step(DEADLINE_MS, [cut_off]).result == [(cut_off, behind)]
