"""The space in the buffer: what takes it, what gives it back, and who waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from kafka_sink.errors import BufferExhausted, DataError
from kafka_sink.producer.buffer_pool import BufferWaiter

from .shell import Shell
from .test_appender import ROW, arrow_future, columns

ROW_NUMBER_BYTES = 4


def test_what_is_held_counts_until_its_batch_is_done() -> None:
    shell = Shell(linger_ms=0, buffer_memory=10_000)
    pool = shell.appender.buffer_pool
    shell.send(bytes(100), size=132)
    assert pool.used_bytes == 132
    (batch,) = shell.close_due()
    assert pool.used_bytes == batch.size + ROW_NUMBER_BYTES
    assert pool.used_records == 1
    shell.complete(batch)
    assert (pool.used_bytes, pool.used_records) == (0, 0)


def test_rows_of_arrow_are_held_and_given_back_like_those_of_send() -> None:
    shell = Shell(linger_ms=0, queue_buffering_max_messages=100)
    pool = shell.appender.buffer_pool
    for _ in range(3):  # the second time what the first one gave back has been credited
        shell.appender.send_columns([(shell.collector(), columns(100))], arrow_future(shell, 100))
        (batch,) = shell.close_due()
        assert (pool.used_bytes, pool.used_records) == (batch.size + 100 * ROW_NUMBER_BYTES, 100)
        with pytest.raises(BufferExhausted, match=r"100 of queue\.buffering\.max\.messages=100 records"):
            shell.send()
        shell.complete(batch)
        assert (pool.used_bytes, pool.used_records) == (0, 0)


def test_rows_that_pack_to_nothing_still_take_room_for_their_numbers() -> None:
    """A future names the rows of a batch that is refused: with brokers that take nothing these numbers would be several
    times what buffer.memory allows."""
    shell = Shell(linger_ms=0, compression_type="zstd", buffer_memory=1_000_000)
    pool = shell.appender.buffer_pool
    shell.appender.send_columns([(shell.collector(), columns(20_000))], arrow_future(shell, 20_000))
    open_bytes = pool.used_bytes
    batches = shell.close_due()
    held_bytes = sum(batch.size for batch in batches) + 20_000 * ROW_NUMBER_BYTES
    assert held_bytes > 4 * sum(batch.size for batch in batches)
    assert pool.used_bytes == held_bytes < open_bytes
    for batch in batches:
        shell.complete(batch)
    assert pool.used_bytes == 0


def test_whoever_finds_room_at_once_has_not_waited() -> None:
    shell = Shell(linger_ms=0)
    shell.clock.now_ms += 60_000
    shell.appender.send_columns([(shell.collector(), columns(10))], arrow_future(shell, 10))
    assert shell.metrics.totals(0)[0]["bufferpool-wait-time-ns-total"] == 0
    assert shell.mailbox.change_count == 0


def test_a_delivery_callback_does_not_wait_for_room() -> None:
    shell = Shell(buffer_memory=1000, max_block_ms=60_000)
    shell.send(bytes(900))
    shell.mailbox.sender_ident = threading.get_ident()
    with pytest.raises(BufferExhausted, match="a delivery callback cannot wait for it") as caught:
        shell.send(bytes(900))
    assert "queue.buffering.max.messages" not in str(caught.value)


def test_a_call_with_more_rows_than_the_limit_goes_in_by_pieces() -> None:
    shell = Shell(linger_ms=0, queue_buffering_max_messages=40)
    future = arrow_future(shell, 100)
    shell.appender.send_columns([(shell.collector(), columns(100))], future)
    (batch,) = shell.posted()
    assert batch.record_count == 40
    assert (future.open_count, str(future.failure)[:23]) == (40, "60 of 100 rows failed, ")


def test_a_full_buffer_closes_what_is_open_so_that_it_drains() -> None:
    shell = Shell(linger_ms=60_000, buffer_memory=1000)
    shell.send(bytes(600))
    with pytest.raises(BufferExhausted, match=r"max\.block\.ms=0: \d+ of buffer\.memory=1000 bytes"):
        shell.send(bytes(600))
    (batch,) = shell.posted()
    shell.complete(batch)
    assert shell.send(bytes(600)).done() is False
    assert len(shell.appender.buffer_pool.waiters) == 0


def test_a_full_buffer_leaves_open_what_is_open_while_another_batch_is_under_way() -> None:
    """Otherwise waiting threads, which try again and again, would make batches of one record."""
    shell = Shell(linger_ms=60_000, buffer_memory=1000)
    shell.send(bytes(600))
    with pytest.raises(BufferExhausted):
        shell.send(bytes(600))
    (under_way,) = shell.posted()
    shell.send(bytes(100))
    with pytest.raises(BufferExhausted):
        shell.send(bytes(600))
    assert shell.posted() == []
    shell.complete(under_way)
    shell.send(bytes(600))
    # No batch is in flight any more: now only closing the open batch can free space.
    with pytest.raises(BufferExhausted):
        shell.send(bytes(600))
    (both,) = shell.posted()
    assert both.record_count == 2


def test_the_limit_of_records_holds_besides_that_of_bytes() -> None:
    shell = Shell(linger_ms=60_000, queue_buffering_max_messages=2)
    shell.send()
    shell.send()
    with pytest.raises(BufferExhausted, match=r"2 of queue\.buffering\.max\.messages=2 records"):
        shell.send()
    for batch in shell.posted():
        shell.complete(batch)
    shell.send()
    assert shell.appender.buffer_pool.used_records == 1


def test_a_record_larger_than_the_whole_buffer_is_refused_at_once() -> None:
    shell = Shell(buffer_memory=1000)
    with pytest.raises(DataError, match=r"never fits into buffer\.memory=1000"):
        shell.send(bytes(1001))
    assert shell.appender.buffer_pool.used_bytes == 0


def test_totals_above_two_gibibytes_are_counted_right() -> None:
    shell = Shell(buffer_memory=20 * 2**30)
    pool = shell.appender.buffer_pool
    pool.give(-15 * 2**30, -1)
    assert pool.used_bytes == 15 * 2**30
    assert not pool.has_room(5 * 2**30 + 1, 1, BufferWaiter(pool))
    assert pool.has_room(5 * 2**30, 1, BufferWaiter(pool))


def test_nobody_overtakes_a_thread_that_waits_for_room() -> None:
    shell = Shell(max_block_ms=1000, buffer_memory=1000)
    pool = shell.appender.buffer_pool
    first, second, in_handler = BufferWaiter(pool), BufferWaiter(pool), BufferWaiter(pool)
    second.thread_ident = -1
    shell.appender.buffer_pool.waiters.extend((first, second))
    assert pool.has_room(1, 1, first)
    assert not pool.has_room(1, 1, second)
    assert pool.has_room(1, 1, in_handler), "it has interrupted the first one, which waits for it"
    shell.appender.buffer_pool.waiters.popleft()
    assert pool.has_room(1, 1, second)
    assert not pool.has_room(1, 1, in_handler)


def test_whoever_leaves_the_queue_in_any_way_leaves_nothing_behind_and_lets_the_next_one_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shell = Shell(buffer_memory=1000)
    shell.send(bytes(800))
    shell.post_behind()
    changes, used_bytes = shell.mailbox.change_count, shell.appender.buffer_pool.used_bytes
    waits = BufferWaiter.wait

    def interrupted(self: BufferWaiter, seen_change_count: int) -> bool:
        assert waits(self, seen_change_count) is False
        raise KeyboardInterrupt

    monkeypatch.setattr(BufferWaiter, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        shell.send(bytes(900))
    assert len(shell.appender.buffer_pool.waiters) == 0
    assert shell.mailbox.change_count > changes
    assert shell.appender.buffer_pool.used_bytes == used_bytes


def test_an_interrupt_before_a_thread_is_queued_or_when_it_leaves_is_raised_and_leaves_nothing_behind() -> None:
    shell = Shell(buffer_memory=1000)
    shell.send(bytes(800))
    shell.post_behind()
    free = shell.mailbox.lock

    class Interrupted:
        """Ctrl-C while the thread waits for the lock, at its n-th use."""

        def __init__(self, uses: int) -> None:
            self.left = uses

        def __enter__(self) -> None:
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt

        def __exit__(self, *error: object) -> None:
            pass

    for use in (1, 2):
        shell.mailbox.lock = Interrupted(use)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            shell.appender.admit(900, 1, lambda: None)
        assert len(shell.appender.buffer_pool.waiters) == 0
    shell.mailbox.lock = free
    assert not shell.send(bytes(90)).done()


@pytest.mark.parametrize(("stuck_bytes", "is_sent"), [(50, True), (1200, False)])
def test_a_small_batch_that_cannot_be_delivered_keeps_no_others_back_when_the_buffer_is_full(
    stuck_bytes: int, is_sent: bool
) -> None:
    shell = Shell(linger_ms=60_000, buffer_memory=3000)
    shell.send(bytes(stuck_bytes), topic="other")
    shell.post_behind()
    assert [batch.topic for batch in shell.posted()] == ["other"]
    while shell.appender.buffer_pool.used_bytes < 2800:
        shell.send(bytes(100))
    with pytest.raises(BufferExhausted):
        shell.send(bytes(300))
    assert [batch.topic for batch in shell.posted()] == ["t"] * is_sent


def test_the_wait_for_room_and_its_failure_are_measured() -> None:
    """max.block.ms is for the whole call: what it waited for before, and each change that made no room."""
    shell = Shell(buffer_memory=1000, max_block_ms=1000)
    shell.send(bytes(900))
    deadlines: list[int] = []

    def wait_for(is_over: Callable[[], bool], deadline_ms: int, what: str) -> bool:
        assert len(shell.appender.buffer_pool.waiters) == 1 and not is_over()
        assert shell.wake_count == 2, "what was open is on its way, and would be sent without a wait"
        deadlines.append(deadline_ms)
        shell.clock.now_ms += 200
        shell.mailbox.notify_change()
        return is_over() and len(deadlines) < 3

    shell.mailbox.wait_for = wait_for  # type: ignore[method-assign, assignment]
    with pytest.raises(BufferExhausted):
        shell.appender.collect(shell.collector(), ROW, 900, None, 300)
    assert deadlines == [1000 + 1000 - 300] * 3
    found = {name: number for (_, name, _), number in shell.metrics.snapshot(shell.clock.now_ms).items()}
    assert found["buffer-exhausted-total"] == 1
    assert found["bufferpool-wait-time-ns-total"] == 600e6


def test_a_large_call_goes_in_by_pieces_and_fails_where_room_ends() -> None:
    shell = Shell(linger_ms=60_000, buffer_memory=3000)
    rows = columns(100, size=50)
    future = arrow_future(shell, 100)
    shell.appender.send_columns([(shell.collector(), rows)], future)
    accepted = sum(batch.record_count for batch in shell.posted())
    assert 0 < accepted < 100
    assert future.open_count == accepted
    rest = arrow_future(shell, 100)
    with pytest.raises(BufferExhausted):
        shell.appender.send_columns([(shell.collector(), rows)], rest)
    assert rest.open_count == 100
