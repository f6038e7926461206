"""The appender without a thread: collecting, lingering, closing, and what fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from kafka_sink.errors import ConfigError, DataError, DeliveryError, KafkaSinkError, LocalProtocolError
from kafka_sink.formats.records.columns import RecordColumns
from kafka_sink.kafka.client.cluster import ClusterView, Endpoint, PartitionLeader, TopicView
from kafka_sink.producer import appender as appender_module
from kafka_sink.producer.arrow_future import ArrowFuture
from kafka_sink.producer.collector import Collector, Row
from kafka_sink.producer.engine import commands as c
from kafka_sink.producer.engine.batch_sender import RefusedSize
from kafka_sink.producer.engine.producer_batch import ProducerBatch

from .shell import Shell, cluster_of, held_by_another_thread

ROW: Row = (None, b"v", None, 0, None)


def columns(count: int, size: int = 10) -> RecordColumns:
    return RecordColumns.from_arrow(pa.table({"value": pa.array([bytes(size)] * count, pa.binary())}))


def arrow_future(shell: Shell, rows: int) -> ArrowFuture:
    return ArrowFuture(shell.mailbox, rows, 0)


# ---- racks ----------------------------------------------------------------------------------------------------------


def racked(shell: Shell, racks: Sequence[str | None]) -> None:
    """Each partition of topic t gets a leader of its own, in the rack at the same position of the list."""
    brokers = {number: Endpoint(f"b{number}", 9092, rack) for number, rack in enumerate(racks)}
    partitions = {number: PartitionLeader(number, 0) for number in range(len(racks))}
    shell.mailbox.cluster = ClusterView(brokers, {"t": TopicView("t", partitions=partitions)})


def available(shell: Shell) -> tuple[int, ...]:
    view = shell.collector("t").view
    return view.available


def test_rows_without_a_key_stay_in_the_rack_while_a_partition_is_led_there() -> None:
    shell = Shell(partitioner_rack_aware=True, client_rack="near")
    racked(shell, ["far", "near", None, "near"])
    assert available(shell) == (1, 3)
    assert [batch.partition for batch in sent_without_a_key(shell)] == [1]
    shell.mailbox.slow_node_ids = frozenset({1})
    assert available(shell) == (3,)
    shell.mailbox.slow_node_ids = frozenset({1, 3})
    assert available(shell) == (0, 2)  # a broker in another rack is better than a slow one
    racked(shell, ["far", None])
    shell.mailbox.slow_node_ids = frozenset()
    assert available(shell) == (0, 1)


def sent_without_a_key(shell: Shell) -> list[ProducerBatch]:
    shell.send(b"v", partition=None)
    shell.clock.now_ms += 5
    return shell.close_due()


@pytest.mark.parametrize("options", [{}, {"partitioner_rack_aware": True, "partitioner": "round_robin"}])
def test_racks_count_for_nobody_but_the_default_partitioner_when_told_so(options: dict[str, Any]) -> None:
    shell = Shell(client_rack="near", **options)
    racked(shell, ["far", "near"])
    assert available(shell) == (0, 1)


def test_keys_go_where_they_go_whatever_the_rack() -> None:
    places = []
    for options in ({}, {"partitioner_rack_aware": True, "client_rack": "near"}):
        shell = Shell(**options)
        racked(shell, ["far", "far", "far", "near"])
        collector = shell.collector("t")
        keys = RecordColumns.from_arrow(
            pa.table({"key": [b"%d" % number for number in range(99)], "value": [b""] * 99})
        )
        places.append(shell.appender._router.route("t", keys, collector.view).tolist())
    assert places[0] == places[1]
    assert set(places[0]) == {0, 1, 2, 3}


# ---- linger and fill level ------------------------------------------------------------------------------------------


def test_rows_are_closed_exactly_when_their_linger_is_over() -> None:
    shell = Shell(linger_ms=5)
    shell.send(b"a")
    shell.clock.now_ms += 4
    shell.send(b"b")
    assert shell.appender.next_due_ms(0) == 1005
    assert shell.close_due() == []
    shell.clock.now_ms += 1
    (batch,) = shell.close_due()
    assert (batch.record_count, batch.opened_ms) == (2, 1000)
    assert shell.appender.next_due_ms(0) is None


def test_the_sender_is_woken_once_for_the_first_row_and_not_for_the_next_ones() -> None:
    shell = Shell(linger_ms=5)
    for _ in range(10):
        shell.send(b"a")
    assert shell.wake_count == 1


def test_rows_of_arrow_wake_the_sender_so_that_their_linger_ends() -> None:
    shell = Shell(linger_ms=5)
    shell.appender.send_columns([(shell.collector(), columns(3))], arrow_future(shell, 3))
    assert (shell.wake_count, shell.appender.next_due_ms(0)) == (1, 1005)
    full = Shell(linger_ms=60_000, batch_num_messages=3)
    full.appender.send_columns([(full.collector(), columns(3))], arrow_future(full, 3))
    assert (full.wake_count, full.appender.next_due_ms(0), len(full.posted())) == (1, None, 1)


def test_a_call_wakes_the_sender_even_if_there_is_no_row() -> None:
    shell = Shell()
    shell.post_behind()
    assert shell.wake_count == 1


@pytest.mark.parametrize(("is_adaptive", "chosen"), [(True, 1), (False, 0)])
def test_rows_without_a_key_avoid_long_queues_unless_told_otherwise(is_adaptive: bool, chosen: int) -> None:
    shell = Shell(linger_ms=0, partitioner_adaptive_partitioning_enable=is_adaptive)
    shell.appender._router._random_number = lambda: 0.4
    shell.mailbox.queue_loads = {"t": {0: 9, 1: 0}, "other": {0: 0}}
    assert [batch.partition for batch in sent_without_a_key(shell)] == [chosen]


def test_the_oldest_row_is_due_first_whether_it_is_collected_or_in_an_open_batch() -> None:
    shell = Shell(linger_ms=5)
    shell.send(topic="other")
    shell.clock.now_ms += 1
    shell.appender.send_columns([(shell.collector("t"), columns(3))], arrow_future(shell, 3))
    assert shell.appender.next_due_ms(0) == 1005
    shell.clock.now_ms += 4
    assert [batch.topic for batch in shell.close_due()] == ["other"]
    assert shell.appender.next_due_ms(0) == 1006
    shell.send(topic="other")
    shell.appender.send_columns([(shell.collector("t"), columns(1))], arrow_future(shell, 1))
    assert shell.appender.next_due_ms(0) == 1006
    shell.clock.now_ms += 1
    assert [batch.topic for batch in shell.close_due()] == ["t"]
    assert shell.appender.next_due_ms(0) == 1010


def test_enough_rows_for_a_batch_are_due_at_once_whatever_the_linger() -> None:
    shell = Shell(linger_ms=60_000, batch_size=1000)
    for _ in range(11):
        shell.send(bytes(100))
    assert shell.wake_count == 2
    assert shell.appender.next_due_ms(0) == 0
    (full,) = shell.close_due()
    assert full.record_count == 8
    assert shell.appender.next_due_ms(0) == 61_000


def test_many_rows_are_encoded_by_the_thread_that_sends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender_module, "COLLECTED_ROWS_MAX", 10)
    shell = Shell(linger_ms=60_000, batch_size=100)
    for _ in range(11):
        shell.send(bytes(100))
    assert sum(batch.record_count for batch in shell.posted()) == 11


def test_a_broker_that_falls_behind_makes_rows_linger_longer() -> None:
    shell = Shell(linger_ms=0)
    shell.send(b"a")
    assert shell.appender.next_due_ms(backlog=0) == 1000
    assert shell.appender.next_due_ms(backlog=10_000) == 1000 + appender_module.BUSY_LINGER_MS


def test_closing_leaves_the_appender_alone_while_somebody_works_in_it() -> None:
    shell = Shell(linger_ms=0)
    shell.send(b"a")
    with held_by_another_thread(shell.appender):
        assert shell.close_due() == []
    assert len(shell.close_due()) == 1


def test_rows_are_found_after_an_interrupt_at_the_first_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C, or a signal handler that raises, interrupted the call that appended the first row."""
    shell = Shell(linger_ms=60_000)
    shell.collector()
    interrupts = [KeyboardInterrupt]
    asked = shell.clock.monotonic_ms

    def monotonic_ms() -> int:
        if interrupts:
            raise interrupts.pop()
        return asked()

    monkeypatch.setattr(shell.clock, "monotonic_ms", monotonic_ms)
    with pytest.raises(KeyboardInterrupt):
        shell.send(b"a")
    shell.post_behind()
    assert shell.appender.next_due_ms(0) is None
    shell.send(b"b")
    shell.post_behind()
    assert [batch.record_count for batch in shell.posted()] == [1]


def test_no_row_is_due_after_an_interrupt_before_the_first_of_them_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    shell = Shell(linger_ms=0)
    monkeypatch.setattr(appender_module, "RecordFuture", interrupted)
    with pytest.raises(KeyboardInterrupt):
        shell.send()
    assert shell.close_due() == []
    assert shell.appender.next_due_ms(0) is None, "the sender would turn without end for no row"


def test_a_signal_handler_that_raises_while_rows_become_columns_is_heard_and_costs_no_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shell = Shell(linger_ms=60_000)
    shell.send(b"a")

    def interrupted(self: Collector) -> RecordColumns:
        raise TimeoutError

    with monkeypatch.context() as patched:
        patched.setattr(Collector, "columns", interrupted)
        with pytest.raises(TimeoutError):
            shell.post_behind()
    shell.post_behind()
    assert [batch.record_count for batch in shell.posted()] == [1]


def test_a_call_in_the_middle_of_another_one_of_its_thread_is_refused_and_not_a_hang() -> None:
    """For example, a signal handler calls `producer.flush()` while `send` is running."""
    shell = Shell()
    collector = shell.collector()
    calls: tuple[tuple[Any, Callable[[], object]], ...] = (
        (shell.appender.lock, shell.collector),
        (shell.appender.lock, lambda: shell.appender.collect(collector, ROW, 1, None)),
        (shell.appender.lock, lambda: shell.appender.admit(1, 1, lambda: None)),
        (shell.mailbox.lock, lambda: shell.mailbox.wait_for(lambda: False, None, "waiting")),
    )
    for lock, call in calls:
        with lock, pytest.raises(LocalProtocolError, match="Have a signal handler set a flag"):
            call()
    shell.send()
    assert shell.mailbox.take_calls() == []


def test_a_call_is_posted_behind_everything_sent_before() -> None:
    shell = Shell(linger_ms=60_000)
    shell.send(b"a")
    shell.send(b"b", topic="other")
    operation = shell.post_behind()
    *appends, flush = shell.mailbox.take_calls()
    assert sum(batch.record_count for each in appends for batch in each.batches) == 2  # type: ignore[union-attr]
    assert flush == c.Flush(operation)


def test_arrow_rows_go_behind_the_rows_collected_before() -> None:
    shell = Shell(linger_ms=60_000)
    shell.send(b"single", partition=0)
    table = pa.table({"value": [b"row"], "partition": pa.array([0], pa.int32())})
    shell.appender.send_columns([(shell.collector(), RecordColumns.from_arrow(table))], arrow_future(shell, 1))
    shell.post_behind()
    (batch,) = shell.posted()
    first, second = batch.shares
    assert (first.first_record, second.first_record) == (0, 1)
    assert isinstance(second.token, ArrowFuture)


def test_a_codec_that_is_not_to_be_had_here_is_told_before_a_row_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The options were parsed elsewhere, on the driver."""

    def missing(*_: object) -> None:
        raise ConfigError("needs a package")

    monkeypatch.setattr(appender_module, "make_compressor", missing)
    with pytest.raises(ConfigError, match="needs a package"):
        Shell()


# ---- errors ---------------------------------------------------------------------------------------------------------


def test_a_refusal_is_raised_and_nothing_is_taken() -> None:
    shell = Shell()
    shell.mailbox.refusal = LocalProtocolError("no transaction")
    with pytest.raises(LocalProtocolError, match="no transaction"):
        shell.send()
    assert shell.appender.buffer_pool.used_records == 0


def test_a_partitioner_that_raises_fails_its_rows_and_no_others() -> None:
    def broken(topic: str, rows: RecordColumns, view: object) -> list[int]:
        if topic == "t":
            raise RuntimeError("partitioner")
        return [0] * rows.row_count

    shell = Shell(linger_ms=60_000, partitioner=broken)
    seen: list[KafkaSinkError | None] = []
    failed = shell.send(partition=None, on_delivery=lambda metadata, error: seen.append(error))
    kept = shell.send(partition=None, topic="other")
    shell.post_behind()
    (batch,) = shell.posted()
    assert batch.topic == "other"
    assert not kept.done()
    with pytest.raises(DataError, match="the partitioner raised RuntimeError for records of topic t"):
        failed.result(0)
    shell.post_behind()
    shell.run_calls()
    assert [type(error) for error in seen] == [DataError]
    assert shell.appender.buffer_pool.used_records == 1
    assert shell.mailbox.pending_records == {
        kept._pending,
        *(collector.pending for collector in shell.appender.collectors.values()),
    }


def test_rows_that_fail_before_the_sender_sees_them_are_told_by_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> list[int]:
        raise RuntimeError

    monkeypatch.setattr(appender_module, "COLLECTED_ROWS_MAX", 1)
    shell = Shell(linger_ms=60_000, batch_size=1, partitioner=broken)
    shell.send(partition=None, on_delivery=print)
    wakes, changes = shell.wake_count, shell.mailbox.change_count
    assert (len(shell.mailbox.callbacks), wakes, changes) == (1, 2, 1)


def test_a_partitioner_that_raises_for_a_later_piece_fails_it_in_the_future_of_the_call() -> None:
    def broken(topic: str, rows: RecordColumns, view: object) -> list[int]:
        if topic == "other":
            raise RuntimeError("partitioner")
        return [0] * rows.row_count

    shell = Shell(linger_ms=60_000, partitioner=broken)
    good, bad = (shell.collector("t"), columns(3)), (shell.collector("other"), columns(2))
    future = arrow_future(shell, 5)
    shell.appender.send_columns([good, bad], future)
    shell.post_behind()
    (batch,) = shell.posted()
    shell.complete(batch)
    with pytest.raises(DataError, match="2 of 5 rows failed, first: the partitioner raised RuntimeError"):
        future.result(0)
    with pytest.raises(DataError, match="the partitioner raised RuntimeError for records of topic other"):
        shell.appender.send_columns([bad], arrow_future(shell, 2))


def test_a_call_whose_accepted_pieces_are_done_when_the_next_one_fails_is_not_kept() -> None:
    shell = Shell(linger_ms=0, buffer_memory=3000)
    future = arrow_future(shell, 100)
    shell.mailbox.add_pending(future)
    admit = shell.appender.admit

    future.add_done_callback(lambda done: None)
    wakes = 0

    def admit_once(*arguments: Any) -> None:
        nonlocal wakes
        admit(*arguments)
        for batch in shell.close_due():
            shell.complete(batch)
        shell.mailbox.refusal = LocalProtocolError("the producer is closed")
        wakes = shell.wake_count

    shell.appender.admit = admit_once  # type: ignore[method-assign, assignment]
    shell.appender.send_columns([(shell.collector(), columns(100, size=50))], future)
    assert future.done() and future.failure is not None
    assert future not in shell.mailbox.pending_records
    assert (len(shell.mailbox.callbacks), shell.wake_count) == (1, wakes + 1), "the sender has a callback to run"


def test_rows_that_the_end_of_the_sender_has_failed_are_not_failed_again() -> None:
    shell = Shell(linger_ms=60_000, buffer_memory=3000)
    future = arrow_future(shell, 100)
    shell.mailbox.add_pending(future)
    admit = shell.appender.admit

    def admit_until_the_sender_ends(*arguments: Any) -> None:
        if shell.mailbox.is_ended:
            raise LocalProtocolError("closed")
        admit(*arguments)
        shell.appender.end(DeliveryError("the end"), LocalProtocolError("closed"))

    shell.appender.admit = admit_until_the_sender_ends  # type: ignore[method-assign, assignment]
    shell.appender.send_columns([(shell.collector(), columns(100, size=50))], future)
    assert future.done()
    with pytest.raises(DeliveryError, match="100 of 100 rows failed, first: the end"):
        future.result(0)


def test_memory_that_is_missing_for_a_later_piece_is_told_by_the_future(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(linger_ms=60_000, buffer_memory=30_000)
    future = arrow_future(shell, 100)
    route, calls = shell.appender._route, iter([True, False])

    def route_once(*arguments: Any) -> Any:
        if not next(calls):
            raise MemoryError
        return route(*arguments)

    monkeypatch.setattr(shell.appender, "_route", route_once)
    first, second = (shell.collector("t"), columns(60)), (shell.collector("other"), columns(40))
    shell.appender.send_columns([first, second], future)
    shell.post_behind()
    for batch in shell.posted():
        shell.complete(batch)
    with pytest.raises(DataError, match="40 of 100 rows failed, first: there was not enough memory to put records"):
        future.result(0)


@pytest.mark.parametrize("where", ["cut", "slice"])
def test_memory_that_is_missing_before_a_later_piece_is_made_is_told_by_the_future(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = Shell(linger_ms=60_000)
    future = arrow_future(shell, 100)
    owner, name = (appender_module, "cut_rows") if where == "cut" else (RecordColumns, "slice")
    first, second = (shell.collector("t"), columns(60)), (shell.collector("other"), columns(40))
    real = getattr(owner, name)

    def fail_for_second(given: RecordColumns, *arguments: Any, **named: Any) -> Any:
        if given is second[1]:
            raise MemoryError
        return real(given, *arguments, **named)

    monkeypatch.setattr(owner, name, fail_for_second)
    shell.appender.send_columns([first, second], future)
    shell.post_behind()
    for batch in shell.posted():
        shell.complete(batch)
    with pytest.raises(DataError, match="40 of 100 rows failed, first: there was not enough memory to put records"):
        future.result(0)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_while_rows_are_assembled_breaks_the_producer_down(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    shell = Shell(linger_ms=0)
    future = shell.send()

    def interrupted(*arguments: object, **named: object) -> None:
        raise error

    monkeypatch.setattr(shell.appender._assembler, "append", interrupted)
    with pytest.raises(error):
        shell.close_due()
    assert "nobody knows which are in" in str(shell.mailbox.broken)
    assert (shell.wake_count, shell.mailbox.change_count) == (2, 1), "the sender ends, and who waits looks again"
    with pytest.raises(LocalProtocolError, match="This producer is finished"):
        shell.send()
    shell.appender.end(DeliveryError("the end"), LocalProtocolError("closed"))
    with pytest.raises(DeliveryError, match="the end"):
        future.result(0)


def test_rows_are_not_told_as_not_sent_though_memory_runs_out_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in a batch already, and the error that would say so cannot be made."""
    shell = Shell(linger_ms=0)
    future = shell.send()

    def out_of_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(shell.appender, "_note_oldest", out_of_memory)
    monkeypatch.setattr(appender_module, "LocalProtocolError", out_of_memory)
    with pytest.raises(MemoryError):
        shell.close_due()
    assert not future.done()
    assert "nobody knows which are in" in str(shell.mailbox.broken)


def test_out_of_memory_before_anything_is_assembled_fails_the_rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(linger_ms=0)
    future = shell.send()

    def out_of_memory(*arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr(shell.appender._router, "route", out_of_memory)
    assert shell.close_due() == []
    with pytest.raises(DataError, match="not enough memory"):
        future.result(0)
    assert shell.appender.buffer_pool.used_bytes == 0
    monkeypatch.undo()
    shell.send()
    assert len(shell.close_due()) == 1


def test_the_end_fails_what_was_only_collected_and_refuses_the_rest() -> None:
    shell = Shell(linger_ms=60_000)
    future = shell.send()
    shell.appender.end(DeliveryError("dropped"), LocalProtocolError("the producer is closed"))
    assert isinstance(future.exception(0), DeliveryError)
    with pytest.raises(LocalProtocolError, match="the producer is closed"):
        shell.send()
    operation = shell.post_behind()
    assert operation.is_over
    assert isinstance(operation.error, LocalProtocolError)
    assert shell.posted() == []


def test_a_topic_that_grows_is_used_in_full_after_the_next_look() -> None:
    shell = Shell(linger_ms=0)
    assert shell.collector().view.partition_count == 2
    shell.mailbox.cluster = cluster_of(t=5)
    assert shell.collector().view.partition_count == 5
    assert shell.appender.refresh_collector("other") is None


def test_partitions_of_slow_brokers_are_left_out_as_long_as_there_are_others() -> None:
    shell = Shell()
    assert shell.collector().view.available == (0, 1)
    shell.mailbox.slow_node_ids = frozenset({1})
    assert shell.collector().view.available == (0, 1)
    shell.mailbox.slow_node_ids = frozenset({2})
    assert shell.collector().view.available == (0, 1)


def test_batches_of_a_topic_have_half_of_what_it_has_refused_as_long_as_that_is_known() -> None:
    shell = Shell(batch_size=1000, linger_ms=60_000)
    known_until_ms = shell.clock.now_ms + 1000

    def largest(topic: str = "t") -> int:
        shell.appender.send_columns([(shell.collector(topic), columns(100))], arrow_future(shell, 100))
        for _ in range(100):
            shell.send(bytes(10), topic=topic)
        shell.post_behind()
        return max(batch.size for batch in shell.posted())

    assert 900 < largest() <= 1000
    shell.mailbox.refused_sizes = {"t": RefusedSize(500, known_until_ms)}
    assert 200 < largest() <= 250
    assert 900 < largest("other") <= 1000
    shell.clock.now_ms = known_until_ms - 1
    assert largest() <= 250
    shell.clock.now_ms = known_until_ms
    assert 900 < largest() <= 1000
