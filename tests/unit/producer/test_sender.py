"""The sender, one turn at a time, with a scripted engine and network."""

from __future__ import annotations

import itertools
import logging
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

import pytest

import kafka_sink
from kafka_sink.errors import DeliveryError, LocalProtocolError, TransportError
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.scalar import split
from kafka_sink.kafka.client.cluster import Endpoint
from kafka_sink.kafka.client.commands import (
    Connect,
    Connected,
    Disconnect,
    Disconnected,
    Notice,
    Received,
    RequestObserved,
    Resolved,
    Send,
)
from kafka_sink.kafka.client.node import Node
from kafka_sink.producer import thread_log
from kafka_sink.producer.arrow_future import ArrowFuture
from kafka_sink.producer.engine import commands as c
from kafka_sink.producer.engine.commands import TransactionEvent
from kafka_sink.producer.mailbox import CLOSE, COMMIT

from .shell import FakeLogger, Result, SenderShell, cluster_of, delivered, held_by_another_thread

PACKAGE = Path(kafka_sink.__file__).parent


def test_a_turn_closes_what_is_due_steps_carries_out_and_publishes() -> None:
    shell = SenderShell(linger_ms=0)
    future = shell.send()
    shell.network.events = [Resolved(1, ())]
    connect = Connect(1, 7, (2, ("127.0.0.1", 9092)))
    shell.engine.answers = [[connect, Send(1, [b"bytes"])]]
    assert shell.sender.turn()
    assert shell.network.executed == [connect, Send(1, [b"bytes"])]
    assert shell.engine.events[0] == Resolved(1, ())
    (batch,) = shell.appended()
    shell.engine.answers = [[delivered(batch, 5)]]
    assert shell.sender.turn()
    assert future.result(0).offset == 5
    assert shell.mailbox.completed_bytes == batch.memory_bytes


def test_it_sleeps_until_the_engine_or_a_linger_wants_it() -> None:
    shell = SenderShell(linger_ms=20)
    shell.sender.turn()
    shell.sender.turn()
    shell.engine.wake_at_ms = 1500
    shell.sender.turn()
    shell.send()
    shell.sender.turn()
    with held_by_another_thread(shell.appender):
        shell.clock.now_ms += 20
        shell.sender.turn()
        shell.sender.turn()
    assert shell.network.timeouts == [0, None, None, 20, 1, 1]


def test_it_sleeps_until_the_first_of_a_linger_and_the_engine_s_own_time() -> None:
    shell = SenderShell(linger_ms=700)
    shell.sender.turn()
    shell.send()
    shell.sender.turn()
    shell.engine.wake_at_ms = 1500
    shell.sender.turn()
    shell.sender.turn()
    assert shell.network.timeouts == [0, 700, 700, 500]


@pytest.mark.parametrize("is_failed_first", [True, False])
def test_a_batch_delivered_or_failed_gives_back_its_memory_and_is_forgotten_with_the_last_row_of_its_call(
    is_failed_first: bool,
) -> None:
    shell = SenderShell(linger_ms=60_000)
    futures = [shell.send(partition=0), shell.send(partition=1), shell.send(partition=1)]
    shell.post_behind()
    shell.sender.turn()
    first, second = sorted(shell.appended(), key=lambda batch: batch.partition)
    (calls,) = {share.token for batch in (first, second) for share in batch.shares}
    pool, changes = shell.appender.buffer_pool, shell.mailbox.change_count
    left = first if is_failed_first else second
    answers: list[list[Result]] = [[delivered(first, 5)], [c.Failed(second, DeliveryError("too late"))]]
    shell.engine.answers = answers[::-1] if is_failed_first else answers
    shell.sender.turn()
    assert calls in shell.mailbox.pending_records
    assert (pool.used_records, pool.used_bytes) == (left.record_count, left.memory_bytes)
    assert shell.mailbox.change_count == changes + 1
    shell.sender.turn()
    assert calls not in shell.mailbox.pending_records
    assert (pool.used_records, pool.used_bytes) == (0, 0)
    assert shell.mailbox.change_count == changes + 2
    assert [str(future.exception(0)) for future in futures] == ["None", "too late", "too late"]
    found = {name: number for (_, name, tags), number in shell.metrics.snapshot(1000).items() if len(tags) == 1}
    assert found["record-error-total"] == 2


def test_callbacks_run_before_the_operations_that_waited_for_them_end() -> None:
    shell = SenderShell(linger_ms=60_000)
    order: list[bool] = []
    shell.send(on_delivery=lambda *_: order.append(flush.is_over))
    flush = shell.post_behind()
    shell.sender.turn()
    (batch,) = shell.appended()
    shell.engine.answers = [[delivered(batch, 0), c.Finished(flush)]]
    changes = shell.mailbox.change_count
    shell.sender.turn()
    assert shell.mailbox.change_count == changes + 2, "who waits for memory looks again, then who waits for the flush"
    assert (order, flush.is_over, flush.error) == ([False], True, None)


def test_the_room_of_a_split_batch_is_given_back_once_with_its_last_record() -> None:
    shell = SenderShell(linger_ms=60_000)
    futures = [shell.send(b"%d" % number * 20) for number in range(4)]
    flush = shell.post_behind()
    shell.sender.turn()
    (batch,) = shell.appended()
    codec = make_compressor("none")
    parts = batch.split(split(batch.encoded, codec))
    first, second = parts
    quarters = first.split(split(first.encoded, codec))
    assert [part.record_count for part in (*quarters, second)] == [1, 1, 2]
    observed: list[Result] = [c.BatchObserved("split", batch), c.BatchObserved("split", first)]
    shell.engine.answers = [[*observed, delivered(quarters[0], 0), delivered(second, 2)]]
    shell.sender.turn()
    assert (shell.mailbox.completed_bytes, [future.done() for future in futures]) == (0, [True, False, True, True])
    shell.engine.answers = [[delivered(quarters[1], 1), c.Finished(flush)]]
    shell.sender.turn()
    assert shell.mailbox.completed_bytes == batch.memory_bytes
    assert shell.appender.buffer_pool.used_bytes == 0
    assert [future.result(0).offset for future in futures] == [0, 1, 2, 3]
    assert shell.sender._unfinished_splits == {}


def test_what_was_refused_in_advance_stays_refused_until_the_engine_has_seen_why() -> None:
    shell = SenderShell()
    refusal = LocalProtocolError("being committed")
    shell.appender.post_behind(
        c.TransactionStep(c.PendingOperation("commit"), TransactionEvent.COMMIT), refusal=refusal
    )
    with shell.mailbox.lock:
        shell.mailbox.publish_refusal(None)
    assert shell.mailbox.refusal is refusal
    shell.sender.turn()
    assert shell.mailbox.refusal is None


def test_a_producer_that_closes_or_is_broken_takes_nothing_whatever_the_engine_says() -> None:
    shell = SenderShell()
    shell.mailbox.begin_closing()
    closing = shell.mailbox.refusal
    shell.mailbox.publish_refusal(None)
    assert shell.mailbox.refusal is closing is not None
    broken = LocalProtocolError("first")
    shell = SenderShell()
    for error in (broken, LocalProtocolError("second")):
        shell.mailbox.break_down(error)
        shell.mailbox.publish_refusal(None)
        assert shell.mailbox.refusal is broken
    shell.mailbox.begin_closing()
    assert shell.mailbox.refusal is broken


def test_whoever_has_waited_is_no_longer_told_of_changes() -> None:
    shell = SenderShell()
    for is_over in (True, False):
        shell.mailbox.wait_for(lambda is_over=is_over: is_over, shell.clock.now_ms, "it")  # type: ignore[misc]
        assert shell.mailbox.bells == set()


def test_topics_somebody_waits_for_are_reported_and_others_are_not() -> None:
    shell = SenderShell()
    shell.mailbox.wanted_topics["wanted"] = 1
    shell.engine.cluster = cluster_of(t=9)
    shell.sender.turn()
    assert {topic: report.trouble for topic, report in shell.mailbox.topic_reports.items()} == {
        "wanted": "trouble with wanted"
    }
    assert shell.mailbox.cluster is shell.engine.cluster


def test_the_age_of_metadata_begins_anew_with_each_answer() -> None:
    shell = SenderShell()
    shell.clock.now_ms += 2500
    shell.sender.turn()
    assert shell.sender.metadata_age_s == 2.5
    shell.engine.cluster = cluster_of(t=9)
    shell.sender.turn()
    shell.clock.now_ms += 500
    assert shell.sender.metadata_age_s == 0.5


def test_what_is_in_the_way_is_told_to_those_who_wait_and_is_gone_with_it() -> None:
    shell = SenderShell()
    shell.engine.trouble = "no way to the leader"
    shell.sender.turn()
    assert shell.mailbox.with_trouble("it took too long") == "it took too long"
    shell.mailbox.bells.add(threading.Lock())
    shell.sender.turn()
    told = shell.mailbox.with_trouble("it took too long")
    assert told == "it took too long. What is in the way: no way to the leader"
    shell.engine.trouble = ""
    shell.sender.turn()
    assert shell.mailbox.with_trouble("it took too long") == "it took too long"


def test_nodes_that_take_nothing_for_too_long_are_published_as_one_unchanging_set() -> None:
    shell = SenderShell(partitioner_availability_timeout_ms=100)
    shell.engine.nodes.unavailable_since_ms = 901
    shell.sender.turn()
    assert shell.mailbox.slow_node_ids == frozenset()
    shell.clock.now_ms += 1
    shell.sender.turn()
    found = shell.mailbox.slow_node_ids
    shell.sender.turn()
    assert found == {1}
    assert shell.mailbox.slow_node_ids is found


@pytest.fixture
def logger(monkeypatch: pytest.MonkeyPatch) -> FakeLogger:
    fake = FakeLogger()
    monkeypatch.setattr(thread_log, "_LOGGER", fake)
    return fake


class ForbiddingLogger:
    """Like one with a user's filter that raises, which Python does not catch."""

    def log(self, *_: object, **__: object) -> None:
        raise PermissionError("the filter's")


@pytest.fixture
def forbidding_logger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_log, "_LOGGER", ForbiddingLogger())


def test_notices_are_logged_with_the_client_s_name(logger: FakeLogger) -> None:
    shell = SenderShell()
    shell.engine.answers = [[Notice("warning", "look here"), Notice("debug", "detail")]]
    shell.sender.turn()
    assert logger.said == [(logging.WARNING, "[unit] look here"), (logging.DEBUG, "[unit] detail")]


def test_metrics_count_connections_requests_and_bytes() -> None:
    shell = SenderShell()
    shell.engine.answers = [
        [Connect(4, 7, (2, ("h", 1)))],
        [Send(4, [b"abc", b"de"])],
        [RequestObserved(7, 0, 12, 0)],
        [],
    ]
    received = Received(4, b"12345678")
    for event in (
        None,
        Connected(4),
        received,
        Disconnected(4, TransportError("lost")),
    ):
        shell.network.events = [] if event is None else [event]
        shell.sender.turn()
    found = {name: number for (_, name, tags), number in shell.metrics.snapshot(1000).items() if len(tags) == 1}
    assert found["outgoing-byte-total"] == 5
    assert found["incoming-byte-total"] == 8
    assert found["connection-creation-total"] == found["connection-close-total"] == 1
    assert found["response-total"] == 1


def test_metrics_count_what_becomes_of_batches_and_the_time_of_each_turn() -> None:
    shell = SenderShell(linger_ms=0)
    shell.send()
    shell.sender.turn()
    (batch,) = shell.appended()
    drained, split = c.Drained([batch]), c.BatchObserved("split", batch)
    shell.engine.answers = [[drained, split, c.BatchObserved("retried", batch, 6)]]
    shell.network.wait_ns, shell.network.io_ns = 5, 3
    shell.sender.turn()
    found, sums, retried = shell.metrics.totals(1000)
    assert (found["io-wait-time-ns-total"], found["io-time-ns-total"]) == (5, 3)
    assert (found["record-send-total"], sums["batches"], found["batch-split-total"]) == (1, 1, 1)
    assert (found["record-retry-total"], retried) == (1, {6: 1})


def test_metrics_forget_connections_that_were_closed_or_never_opened() -> None:
    shell = SenderShell()
    shell.engine.nodes.in_flight_count = lambda node_id: 3 if node_id == 7 else 0  # type: ignore[method-assign]
    address = (2, ("h", 1))
    shell.engine.answers = [
        [Connect(4, 7, address)],
        [Disconnect(4)],
        [Connect(5, 7, address)],
        [Connect(6, 7, address)],
    ]
    for event in (None, Connected(4), None, Disconnected(5, TransportError("refused")), Connected(6)):
        shell.network.events = [] if event is None else [event]
        shell.sender.turn()
    found = {name: number for (_, name, tags), number in shell.metrics.snapshot(1000).items() if len(tags) == 1}
    assert (found["connection-creation-total"], found["connection-close-total"]) == (2, 1)
    shell.engine.nodes.by_connection = {6: Node(7, Endpoint("h", 1))}
    assert shell.sender.requests_in_flight == 3


def test_metrics_count_a_handed_over_connection_for_its_new_node() -> None:
    shell = SenderShell()
    shell.engine.nodes.by_connection[4] = Node(-2, Endpoint("h", 1))
    shell.engine.answers = [[Send(4, [b"abc"])], [Send(4, [b"abc", b"de"])]]
    shell.sender.turn()
    shell.engine.nodes.by_connection[4] = Node(7, Endpoint("h", 1))
    shell.sender.turn()
    found = shell.metrics.snapshot(1000).items()
    by_node = {
        dict(tags)["node-id"]: number
        for (_, name, tags), number in found
        if name == "outgoing-byte-total" and len(tags) == 2
    }
    assert by_node == {"node--2": 3, "node-7": 5}


def test_a_finished_close_is_the_last_turn_and_an_abandon_too() -> None:
    shell = SenderShell()
    close = shell.post_behind("close()", c.Close)
    assert shell.sender.turn()
    shell.engine.answers = [[c.Finished(close)]]
    assert not shell.sender.turn()
    other = SenderShell(linger_ms=60_000)
    future = other.send()
    other.mailbox.post(c.Abandon(DeliveryError("abandoned")))
    other.sender.run()
    assert other.network.is_closed
    with pytest.raises(DeliveryError, match="abandoned"):
        future.result(0)
    with pytest.raises(LocalProtocolError, match="the producer is closed"):
        other.send()


def test_a_close_that_comes_while_another_one_ends_has_nothing_left_to_do() -> None:
    shell = SenderShell(linger_ms=0)
    closes: list[c.PendingOperation] = []

    def close_again(*_: object) -> None:
        closes.append(shell.post_behind(CLOSE, c.Close))

    shell.send(on_delivery=close_again)
    shell.sender.turn()
    (batch,) = shell.appended()
    closes.append(shell.post_behind(CLOSE, c.Close))
    shell.engine.answers = [[delivered(batch, 5), c.Finished(closes[0])]]
    shell.sender.run()
    assert [(close.is_over, close.error) for close in closes] == [(True, None)] * 2


def test_a_bug_in_the_engine_ends_every_future_and_operation_with_it(logger: FakeLogger) -> None:
    shell = SenderShell(linger_ms=0)
    told: list[object] = []
    sent = shell.send(on_delivery=lambda metadata, error: told.append(error))
    shell.sender.turn()
    collected = shell.send()
    flush = shell.post_behind()
    ended: list[bool] = []
    shell.sender.on_end = lambda: ended.append(True)
    shell.engine.bug = ZeroDivisionError("a bug")
    shell.sender.run()
    for future in (sent, collected):
        with pytest.raises(DeliveryError, match="unexpected ZeroDivisionError: a bug") as caught:
            future.result(0)
        assert caught.value.ambiguous
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert isinstance(flush.error, DeliveryError)
    assert [type(error) for error in told] == [DeliveryError]
    assert (shell.network.is_closed, ended) == (True, [True])
    with pytest.raises(DeliveryError, match="unexpected ZeroDivisionError"):
        shell.send()
    assert [level for level, _ in logger.said] == [logging.CRITICAL]


@pytest.mark.usefixtures("forbidding_logger")
def test_records_in_doubt_after_a_bug_are_in_doubt_though_it_cannot_be_logged() -> None:
    shell = SenderShell(linger_ms=0)
    future = shell.send()
    shell.sender.turn()
    shell.engine.bug = ZeroDivisionError("a bug")
    shell.sender.run()
    error = future.exception(0)
    assert error is not None and error.ambiguous
    assert isinstance(error.__cause__, ZeroDivisionError)


@pytest.mark.usefixtures("forbidding_logger")
def test_a_logger_that_raises_ends_no_sender() -> None:
    shell = SenderShell(linger_ms=0)
    told: list[object] = []

    def raise_too(metadata: object, error: object) -> None:
        told.append(error)
        raise ValueError("the callback's")

    future = shell.send(on_delivery=raise_too)
    shell.engine.answers = [[Notice("warning", "look here")]]
    assert shell.sender.turn()
    (batch,) = shell.appended()
    shell.engine.answers = [[delivered(batch, 5)]]
    assert shell.sender.turn()
    assert (future.result(0).offset, told) == (5, [None])


class Unfailing:
    """Rows whose future cannot be told, for want of memory."""

    open_count = 1

    def fail_rest(self, *_: object) -> None:
        raise MemoryError


def test_rows_that_cannot_be_told_of_the_end_keep_nobody_else_waiting(logger: FakeLogger) -> None:
    shell = SenderShell(linger_ms=60_000)
    shell.mailbox.add_pending(Unfailing())  # type: ignore[arg-type]
    futures = [shell.send(topic=topic) for topic in ("t", "other")]
    shell.mailbox.add_pending(Unfailing())  # type: ignore[arg-type]
    shell.mailbox.break_down(LocalProtocolError("a bug"))
    shell.sender.run()
    assert [future.done() for future in futures] == [True, True]


class NoMemory:
    """A trace of the sender's end: no memory at the given line of the package, counted from its first."""

    def __init__(self, at_line: int) -> None:
        self.lines_left = at_line

    def __call__(self, frame: FrameType, event: str, _: object) -> NoMemory | None:
        if PACKAGE not in Path(frame.f_code.co_filename).parents:
            return None
        if event == "line":
            self.lines_left -= 1
            if not self.lines_left:
                raise MemoryError
        return self


def test_nobody_waits_for_ever_wherever_memory_runs_out_while_a_sender_ends(logger: FakeLogger) -> None:
    told_of_lines = 0
    for at_line in itertools.count(1):
        shell = SenderShell(linger_ms=0)
        shell.mailbox.end_for_sender = shell.sender.tell_end
        sent = shell.send()
        commit = shell.post_behind(COMMIT)
        shell.sender.turn()
        collected, flush = shell.send(topic="other"), shell.post_behind("flush()")
        shell.engine.bug = MemoryError("in the engine")
        memory, before = NoMemory(at_line), sys.gettrace()
        end = shell.sender._end

        def end_without_memory(memory: NoMemory = memory, end: Callable[[], None] = end) -> None:
            sys.settrace(memory)
            try:
                end()
            finally:
                sys.settrace(None)

        shell.sender._end = end_without_memory  # type: ignore[method-assign]
        try:
            with suppress(MemoryError):
                shell.sender.run()
        finally:
            sys.settrace(before)
        for lock in (shell.mailbox.lock, shell.appender.lock):
            while lock._is_owned():  # type: ignore[attr-defined]
                lock.release()  # a trace can raise just before `with` does it, which nothing real does
        if memory.lines_left > 0:
            break
        told_of_lines += 1
        for future in (sent, collected):
            with pytest.raises(DeliveryError) as caught:
                future.result(0)
            assert caught.value.ambiguous
        with pytest.raises(DeliveryError, match="MemoryError: in the engine") as caught:
            shell.mailbox.wait_for_operation(commit, shell.clock.now_ms, "no limit")
        assert caught.value.name == "PKS-5009"
        with pytest.raises(DeliveryError, match="MemoryError: in the engine"):
            shell.mailbox.wait_for_operation(flush, shell.clock.now_ms, "no limit")
        with pytest.raises(DeliveryError):
            shell.send()
    assert told_of_lines > 20


def test_an_arrow_batch_that_nobody_can_tell_of_the_end_is_in_doubt(logger: FakeLogger) -> None:
    shell = SenderShell(linger_ms=0)
    shell.mailbox.end_for_sender = shell.sender.tell_end
    future = ArrowFuture(shell.mailbox, row_count=1, byte_count=1)
    future.fail = Unfailing().fail_rest  # type: ignore[method-assign]
    shell.mailbox.add_pending(future)
    shell.mailbox.post(c.Abandon(DeliveryError("abandoned")))
    shell.sender.run()
    with pytest.raises(DeliveryError, match="its thread ended without a word") as caught:
        future.result(0)
    assert caught.value.ambiguous


def test_records_end_with_their_reason_though_the_sockets_do_not_close(logger: FakeLogger) -> None:
    shell = SenderShell(linger_ms=60_000)
    future = shell.send()

    def fail_to_close() -> None:
        raise OSError("no more")

    shell.network.close = fail_to_close  # type: ignore[method-assign]
    shell.mailbox.post(c.Abandon(DeliveryError("abandoned")))
    with pytest.raises(OSError, match="no more"):
        shell.sender.run()
    assert str(future.exception(0)) == "abandoned"


def test_records_in_doubt_after_an_interrupt_end_with_its_reason(logger: FakeLogger) -> None:
    shell = SenderShell(linger_ms=0)
    future = shell.send()
    shell.mailbox.break_down(LocalProtocolError("nobody knows which are in"))
    shell.sender.run()
    assert str(future.exception(0)).startswith("the producer stopped: nobody knows which are in. ")
    assert shell.engine.calls == []


def test_only_a_commit_that_the_engine_has_seen_is_in_doubt_after_a_bug(logger: FakeLogger) -> None:
    shell = SenderShell()
    seen = shell.post_behind(COMMIT)
    shell.sender.turn()
    shell.mailbox.break_down(LocalProtocolError("a bug"))
    unseen = shell.post_behind(COMMIT)
    shell.sender.run()
    assert [each.error is not None and each.error.name for each in (seen, unseen)] == ["PKS-5009", "PKS-5001"]


def test_a_forgotten_producer_closes_itself() -> None:
    shell = SenderShell(linger_ms=60_000)
    shell.send()
    shell.mailbox.is_orphaned = True
    shell.sender.turn()
    shell.sender.turn()
    assert [type(each) for each in shell.engine.calls] == [c.Append, c.Close]


def test_waiting_on_the_sender_thread_is_refused() -> None:
    shell = SenderShell(linger_ms=0)
    errors: list[BaseException] = []

    def on_delivery(*_: object) -> None:
        shell.mailbox.sender_ident = threading.get_ident()
        try:
            shell.send().result(None)
        except LocalProtocolError as error:
            errors.append(error)
        shell.mailbox.sender_ident = None

    shell.send(on_delivery=on_delivery)
    shell.sender.turn()
    (batch,) = shell.appended()
    shell.engine.answers = [[delivered(batch, 0)]]
    shell.sender.turn()
    assert "callbacks run on the sender thread" in str(errors[0])
