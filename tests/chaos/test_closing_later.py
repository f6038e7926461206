"""A stream's commit returns before the record that closes its decision is written. The process that writes it dies at
any of its requests, freezes, or is overtaken by another one; and it never disturbs what comes next.

In transaction version 1 the record is a part of the commit: tests/chaos/test_driver_crashes.py.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable

import pytest

from kafka_sink.kafka.wire.apis import END_TXN, INIT_PRODUCER_ID, PRODUCE
from tests.chaos.bare_spark import BareQuery
from tests.chaos.bare_stream import BareStream, freezer
from tests.chaos.refusals import produce_refused, refused
from tests.conftest import NEWEST
from tests.support.closing import open_decisions, wait_until_closed
from tests.support.faults import Fault, Harm, of_the_driver
from tools.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(900),
    pytest.mark.parametrize("kafka", [NEWEST], indirect=True),
    pytest.mark.usefixtures("own_ledger"),
]

SIDES = {"before-it-arrives": Harm.LOSE_REQUEST, "after-it-was-carried-out": Harm.LOSE_ANSWER}
# Of a process that has committed a batch before: the intent, and what closes it.
CLOSING = {"append": (PRODUCE, 2), "end": (END_TXN, 2)}
END_MAINLY = pytest.mark.parametrize("request_of", [pytest.param("append", marks=pytest.mark.slow), "end"])
# Each request and each side once, for what comes after any of them in the same way.
DIAGONAL = pytest.mark.parametrize(
    ("request_of", "side"),
    [
        pytest.param(name, side, marks=[] if (name == "append") == (side == "before-it-arrives") else pytest.mark.slow)
        for name in CLOSING
        for side in SIDES
    ],
)


def is_open(stream: BareStream) -> bool:
    return bool(open_decisions(stream.kafka.bootstrap_servers, stream.sink_id, stream.settings["ledger.topic"]))


def wait_until_all_is_closed(stream: BareStream) -> None:
    wait_until_closed(stream.kafka.bootstrap_servers, stream.sink_id, stream.settings["ledger.topic"])


def check_closed(stream: BareStream) -> None:
    wait_until_all_is_closed(stream)
    stream.check()


def commit_until(query: BareQuery, stream: BareStream, request_of: str, harm: Harm, act: Callable[[], object]) -> Fault:
    """Commits a batch, in a process that is warm. At a request of the record that closes it, and when Spark knows that
    the batch is delivered, `act` is called."""
    query.run_batch()
    query.plan()
    messages = query.write_tasks()
    api, nth = CLOSING[request_of]
    has_returned = threading.Event()

    def strike() -> None:
        assert has_returned.wait(PATIENCE_S)
        act()

    fault = stream.proxy.on(api, harm, nth=nth, where=of_the_driver, before=strike)
    query.commit_and_go_on(messages)
    has_returned.set()
    assert fault.wait_until_acted()
    return fault


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("request_of", CLOSING)
def test_the_next_run_goes_on_wherever_the_process_that_closes_a_decision_dies(
    stream: BareStream, request_of: str, side: str
) -> None:
    with stream.query() as query:
        commit_until(query, stream, request_of, SIDES[side], query.strike)
    # The end was carried out, or nothing of the record counts.
    assert is_open(stream) == ((request_of, side) != ("end", "after-it-was-carried-out"))
    assert stream.problems(2) == []
    stream.run()
    check_closed(stream)


@DIAGONAL
def test_the_same_run_goes_on_in_another_process_while_its_tasks_use_their_ids_again(
    stream: BareStream, request_of: str, side: str
) -> None:
    with stream.query() as query:
        commit_until(query, stream, request_of, SIDES[side], lambda: query.worker("commit").kill())
        query.end_worker("commit")
        query.run_batch()
        query.run_batch()
    check_closed(stream)


@END_MAINLY
def test_a_process_that_freezes_while_it_closes_a_decision_does_no_harm_when_it_wakes_up(
    stream: BareStream, request_of: str
) -> None:
    """Other processes have committed two batches meanwhile; its record is refused."""
    with stream.query() as query:
        commit_until(query, stream, request_of, Harm.LOSE_REQUEST, freezer(query.worker("commit")))
        frozen = query.move_worker("commit")
        query.run_batch()
        frozen.send_signal(signal.SIGCONT)
        query.run_batch()
        wait_until_all_is_closed(stream)
    check_closed(stream)


@END_MAINLY
def test_a_request_of_it_that_arrives_after_the_next_commit_changes_nothing(
    stream: BareStream, request_of: str
) -> None:
    with stream.query() as query:
        held = commit_until(query, stream, request_of, Harm.HOLD_REQUEST, lambda: query.worker("commit").kill())
        query.end_worker("commit")
        query.run_batch()
        query.plan()
        messages = query.write_tasks()
        held.release()
        query.commit(messages)
    stream.run()
    check_closed(stream)


def test_the_next_commit_of_the_process_waits_for_it(stream: BareStream) -> None:
    """Neither fences the other, so the driver sends no second InitProducerId."""
    with stream.query() as query:
        query.run_batch()
        fences = stream.proxy.on(INIT_PRODUCER_ID, Harm.DELAY_REQUEST, where=of_the_driver)
        for harm in (Harm.LOSE_ANSWER, Harm.LOSE_REQUEST, Harm.DELAY_REQUEST):
            for api, nth in CLOSING.values():
                query.plan()
                messages = query.write_tasks()
                fault = stream.proxy.on(api, harm, nth=nth, where=of_the_driver, delay_s=0.5)
                query.commit_and_go_on(messages)
                query.run_batch()
                assert fault.has_acted
        assert not fences.has_acted
    check_closed(stream)


@END_MAINLY  # with Spark, the other: tests/spark/test_closing_later.py
def test_a_record_that_is_refused_is_said_once_and_the_next_commit_closes_the_decision(
    stream: BareStream, request_of: str
) -> None:
    """The permission to write to the ledger is taken away in between. The batch is delivered, and the query goes on."""
    api, nth = CLOSING[request_of]
    with stream.query() as query:
        query.run_batch()
        query.plan()
        messages = query.write_tasks()
        refusal = refused if api is END_TXN else produce_refused
        stream.proxy.on(api, Harm.REFUSE, nth=nth, where=of_the_driver, refusal=refusal)
        query.commit(messages)
        said = [line for line in query.worker("commit").log if "the ledger does not say so yet" in line]
        assert len(said) == 1 and stream.topic in said[0] and "AUTHORIZATION_FAILED" in said[0]
        assert is_open(stream) and stream.problems(2) == []
        query.run_batch()
    check_closed(stream)
