"""The results of batches are assigned to their rows: delivered, failed, split, given up."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from kafka_sink.errors import BrokerError, DeliveryError, KafkaSinkError, LocalProtocolError, copy_error
from kafka_sink.formats.records.batch import Share
from kafka_sink.producer import thread_log
from kafka_sink.producer.arrow_future import ArrowFuture, Extent, PartitionRange
from kafka_sink.producer.engine import commands as c
from kafka_sink.producer.engine.producer_batch import ProducerBatch
from kafka_sink.producer.interceptors import Interceptors

from .shell import FakeLogger, Shell


def one_batch(shell: Shell) -> ProducerBatch:
    (batch,) = shell.close_due()
    return batch


def test_each_row_gets_its_own_offset_timestamp_and_sizes() -> None:
    shell = Shell(linger_ms=0)
    futures = [shell.send(value) for value in (b"a", None, b"ccc")]
    assert [future.done() for future in futures] == [False] * 3
    shell.complete(one_batch(shell), None)
    assert [future.result(0) for future in futures] == [
        ("t", 0, 100 + row, 1_700_000_001_000, -1, size) for row, size in enumerate((1, -1, 3))
    ]


def test_the_broker_s_timestamp_wins_where_it_gives_one() -> None:
    shell = Shell(linger_ms=0)
    future = shell.send()
    batch = one_batch(shell)
    batch.log_append_time_ms = 77
    shell.complete(batch, base_offset=-1)
    assert future.result(0)[2:4] == (-1, 77)


def test_rows_of_one_call_over_several_batches_end_one_by_one() -> None:
    shell = Shell(linger_ms=0)
    even, odd = [shell.send(partition=0) for _ in range(3)], [shell.send(partition=1) for _ in range(2)]
    first, second = sorted(shell.close_due(), key=lambda batch: batch.partition)
    shell.complete(second, base_offset=7)
    assert [future.done() for future in even + odd] == [False] * 3 + [True] * 2
    assert [future.result(0).offset for future in odd] == [7, 8]
    shell.complete(first, base_offset=0)
    assert [future.result(0).offset for future in even] == [0, 1, 2]


def test_a_failed_batch_fails_its_rows_with_copies_that_keep_type_and_cause() -> None:
    shell = Shell(linger_ms=0)
    futures = [shell.send(), shell.send()]
    batch = one_batch(shell)
    error = DeliveryError("gone", topic="t", ambiguous=True)
    error.__cause__ = ZeroDivisionError()
    shell.complete(batch, c.Failed(batch, error))
    for future in futures:
        with pytest.raises(DeliveryError, match="gone") as caught:
            future.result(0)
        assert caught.value is not error
        assert caught.value.ambiguous is True
        assert caught.value.__cause__ is error.__cause__
    assert error.__traceback__ is None


def test_errors_of_single_records_reach_the_right_futures() -> None:
    shell = Shell(linger_ms=0)
    futures = [shell.send() for _ in range(3)]
    batch = one_batch(shell)
    shell.complete(batch, c.Failed(batch, BrokerError("invalid", code=87), {1: "no key"}))
    assert [str(future.exception(0)) for future in futures] == ["invalid", "invalid. This record: no key", "invalid"]


def test_records_of_two_calls_in_one_batch_get_what_is_said_at_their_own_places() -> None:
    """Conversions of one topic share the open batch, and each has its own numbers of rows."""
    refusals = {0: "a", 3: "b"}
    errors = ["not. This record: a", "not", "not", "not. This record: b"]
    for refused, said in (({}, ["1", "2", "3", "4"]), (refusals, errors)):
        shell = Shell(linger_ms=60_000)
        futures = [shell.send(), shell.send()]
        shell.appender._convert(shell.collector())
        futures += [shell.send(), shell.send()]
        shell.post_behind()
        (batch,) = shell.posted()
        shell.complete(batch, c.Failed(batch, BrokerError("not", code=87), refused) if refused else None, base_offset=1)
        assert [str(each.exception(0) or each.result(0).offset) for each in futures] == said


def test_the_end_changes_nothing_that_was_told_before() -> None:
    seen: list[tuple[bool, bool]] = []

    class Watching:
        def on_acknowledgement(self, metadata: Any, error: KafkaSinkError | None) -> None:
            seen.append((metadata is not None, error is not None))

    shell = Shell(linger_ms=0, interceptors=Interceptors([Watching()]))
    delivered, unfinished = shell.send(partition=0), shell.send(partition=1)
    batch, _ = sorted(shell.close_due(), key=lambda batch: batch.partition)
    shell.complete(batch)
    shell.appender.end(DeliveryError("dropped"), LocalProtocolError("closed"))
    shell.run_calls()
    assert delivered.result(0).offset == 100
    assert str(unfinished.exception(0)) == "dropped"
    assert seen == [(True, False), (False, True)]


def test_callbacks_are_called_once_after_interceptors_with_what_the_future_says() -> None:
    seen: list[Any] = []

    class Watching:
        def on_acknowledgement(self, metadata: Any, error: KafkaSinkError | None) -> None:
            seen.append(("interceptor", metadata.offset))

    shell = Shell(linger_ms=0, interceptors=Interceptors([Watching()]))
    future = shell.send(on_delivery=lambda metadata, error: seen.append(("delivery", metadata.offset, error)))
    future.add_done_callback(lambda done: seen.append(("done", done.result(0).offset)))
    shell.complete(one_batch(shell))
    assert seen == []
    shell.run_calls()
    shell.run_calls()
    assert seen == [("interceptor", 100), ("delivery", 100, None), ("done", 100)]
    future.add_done_callback(lambda done: seen.append("late"))
    assert seen[3:] == ["late"]


def test_an_interceptor_that_exits_takes_no_callback_along(monkeypatch: pytest.MonkeyPatch) -> None:
    class Exiting:
        def on_acknowledgement(self, metadata: Any, error: KafkaSinkError | None) -> None:
            raise SystemExit

    monkeypatch.setattr(thread_log, "_LOGGER", FakeLogger())
    seen: list[int] = []
    shell = Shell(linger_ms=0, interceptors=Interceptors([Exiting()]))
    shell.send(on_delivery=lambda metadata, error: seen.append(metadata.offset))
    shell.complete(one_batch(shell))
    shell.run_calls()
    assert seen == [100]


def test_the_log_about_a_callback_shows_none_of_what_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(row: bytes, *_: object) -> None:
        raise ValueError

    logger = FakeLogger()
    monkeypatch.setattr(thread_log, "_LOGGER", logger)
    shell = Shell(linger_ms=0)
    shell.send(on_delivery=partial(refuse, b"content of the row")).add_done_callback(refuse)  # type: ignore[arg-type]
    shell.complete(one_batch(shell))
    shell.run_calls()
    own = f"{test_the_log_about_a_callback_shows_none_of_what_it_was_given.__name__}.<locals>.refuse"
    assert [text for _, text in logger.said] == ["callback partial raised", f"callback {own} raised"]


def test_interceptors_see_rows_that_fail_before_they_are_encoded() -> None:
    seen: list[str] = []

    class Watching:
        def on_acknowledgement(self, metadata: Any, error: KafkaSinkError | None) -> None:
            assert metadata is None
            seen.append(str(error))

    def unroutable(*_: object) -> None:
        raise ValueError

    shell = Shell(linger_ms=0, interceptors=Interceptors([Watching()]), partitioner=unroutable)
    for _ in range(2):
        shell.send(partition=None)
    shell.close_due()
    shell.run_calls()
    assert seen == ["the partitioner raised ValueError for records of topic t"] * 2
    shell = Shell(linger_ms=60_000, interceptors=Interceptors([Watching()]))
    for on_delivery in (None, lambda metadata, error: seen.append("called")):
        shell.send(on_delivery=on_delivery)
    shell.appender.end(DeliveryError("dropped"), LocalProtocolError("closed"))
    shell.run_calls()
    assert seen[2:] == ["dropped", "dropped", "called"]


def test_rows_without_callbacks_cost_no_call() -> None:
    for add in ({"on_delivery": print}, {}):
        shell = Shell(linger_ms=0)
        futures = [shell.send(**(add if number == 3 else {})) for number in range(5)]
        if not add:
            futures[3].add_done_callback(print)
        shell.complete(one_batch(shell))
        assert len(shell.mailbox.callbacks) == 1


def share(future: ArrowFuture, first_row: int, count: int, first_record: int = 0) -> Share:
    return Share(future, np.arange(first_row, first_row + count), first_record)


def batch_of(partition: int, *shares: Share, base_offset: int = 0) -> Any:
    shell = Shell(linger_ms=0)
    shell.send(partition=partition)
    (batch,) = shell.close_due()
    batch.shares = shares
    batch.base_offset = base_offset
    return batch


def test_an_arrow_future_ends_with_its_last_row_and_names_ranges() -> None:
    shell = Shell()
    future = ArrowFuture(shell.mailbox, 10, 123)
    calls: list[Any] = []
    future.add_done_callback(lambda done: calls.append(done.result(0).row_count))
    pieces = (share(future, 0, 4, 2), share(future, 4, 5), share(future, 9, 1))
    for partition, piece, offset in ((0, pieces[0], 50), (1, pieces[1], 0), (0, pieces[2], 90)):
        shell.run_calls()
        assert not future.done() and calls == []
        future.on_delivered(piece, batch_of(partition, piece, base_offset=offset), shell.mailbox.callbacks)
    shell.run_calls()
    assert calls == [10]
    future.add_done_callback(lambda done: calls.append("late"))
    assert calls == [10, "late"]
    metadata = future.result(0)
    assert (metadata.row_count, metadata.byte_count) == (10, 123)
    assert metadata.partitions == {("t", 0): PartitionRange(52, 90, 5), ("t", 1): PartitionRange(0, 4, 5)}


def test_ranges_of_a_partition_join_in_any_order() -> None:
    shell = Shell()
    future = ArrowFuture(shell.mailbox, 7, 0)
    for first_row, count, offset in ((0, 2, 20), (2, 5, 5)):
        future.on_delivered(share(future, first_row, count), batch_of(0, base_offset=offset), [])
    assert future.result(0).partitions == {("t", 0): PartitionRange(5, 21, 7)}


@pytest.mark.parametrize("place", range(3))
def test_a_range_of_which_a_part_is_unknown_is_unknown_and_what_is_known_is_kept(place: int) -> None:
    """A broker recognises a batch that was sent again and does not say where it is."""
    shell = Shell()
    future = ArrowFuture(shell.mailbox, 10, 0)
    parts = [(2, 20), (5, 5)]
    parts.insert(place, (3, -1))
    row = 0
    for count, offset in parts:
        future.on_delivered(share(future, row, count), batch_of(0, base_offset=offset), [])
        row += count
    assert future.result(0).partitions == {("t", 0): PartitionRange(-1, -1, 10)}
    assert future.extents() == {("t", 0): Extent(5, 21, 10, 3)}
    unknown = ArrowFuture(shell.mailbox, 3, 0)
    unknown.on_delivered(share(unknown, 0, 3), batch_of(0, base_offset=-1), [])
    assert unknown.result(0).partitions == {("t", 0): PartitionRange(-1, -1, 3)}


def test_an_arrow_future_with_a_failure_says_how_many_rows_and_which_one_was_named() -> None:
    shell = Shell()
    future = ArrowFuture(shell.mailbox, 5, 0)
    first, second = share(future, 0, 3), share(future, 3, 2, first_record=3)
    future.on_delivered(first, batch_of(0, first), [])
    refused = {2: "of the call before", 4: "no key", 5: "of the call after"}
    failed = c.Failed(batch_of(1, second), BrokerError("invalid", code=87), refused)
    future.on_failed(second, failed, [])
    with pytest.raises(BrokerError, match=r"2 of 5 rows failed, first: invalid\. Row 4: no key$") as caught:
        future.result(0)
    assert caught.value.code == 87
    future.fail_rest(DeliveryError("late"), [])
    assert future.open_count == 0


def test_an_arrow_future_names_a_few_rows_however_many_were_refused() -> None:
    shell = Shell()
    future = ArrowFuture(shell.mailbox, 5000, 0)
    rows = share(future, 0, 5000)
    refused = dict.fromkeys(range(5000), "no key")
    future.on_failed(rows, c.Failed(batch_of(1, rows), BrokerError("invalid", code=87), refused), [])
    assert str(future.failure).startswith("5000 of 5000 rows failed, first: invalid. Row 0: no key. Row 1: no key")
    assert len(str(future.failure)) < 300


def test_an_arrow_future_tells_a_failure_before_its_other_rows_are_done() -> None:
    shell = Shell()
    future = ArrowFuture(shell.mailbox, 5, 0)
    assert future.failure is None
    ended: list[ArrowFuture] = []
    future.add_done_callback(ended.append)
    future.fail(2, DeliveryError("no room"), shell.mailbox.callbacks)
    shell.run_calls()
    assert not future.done() and ended == []
    assert isinstance(future.failure, DeliveryError) and str(future.failure) == "2 of 5 rows failed, first: no room"
    future.fail(3, LocalProtocolError("closed"), shell.mailbox.callbacks)
    shell.run_calls()
    assert ended == [future]
    assert str(future.exception()) == "5 of 5 rows failed, first: no room"


def test_a_retold_error_does_not_touch_the_original() -> None:
    original = DeliveryError("first", topic="t", attempts=3)
    told = copy_error(original, "second")
    assert isinstance(told, DeliveryError)
    assert (str(original), str(told), told.topic, told.attempts) == ("first", "second", "t", 3)


@pytest.mark.parametrize("is_first", [True, False])
def test_rows_of_a_call_may_be_in_the_log_if_any_of_them_may(is_first: bool) -> None:
    """Who sends again what is surely not in the log must not double the others."""
    shell = Shell()
    future = ArrowFuture(shell.mailbox, 3, 3)
    shell.mailbox.add_pending(future)
    for is_ambiguous in (is_first, not is_first):
        future.fail(1, DeliveryError("one", ambiguous=is_ambiguous), shell.mailbox.callbacks)
    future.fail(1, LocalProtocolError("closed"), shell.mailbox.callbacks)
    failure = future.exception(0)
    assert isinstance(failure, DeliveryError) and failure.ambiguous
