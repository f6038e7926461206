"""Planted bugs: the simulation must find each of them within a stated number of seeds.

Every function changes one decision of the engine to a wrong one; pytest's `MonkeyPatch` undoes it. `SEEDS` says within
how many seeds, counted from 1, the bug is caught; `python -m tests.sim --mutations` prints the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_sink.formats.records.batch import NO_SEQUENCE
from kafka_sink.kafka.client import outcome
from kafka_sink.kafka.client.connection import Connection
from kafka_sink.kafka.client.node import Node
from kafka_sink.kafka.client.outcome import CoordinatorOutcome
from kafka_sink.producer.engine import accumulator, batch_sender
from kafka_sink.producer.engine.accumulator import Accumulator
from kafka_sink.producer.engine.batch_sender import BatchSender, Retry
from kafka_sink.producer.engine.commands import TransactionEvent
from kafka_sink.producer.engine.producer_batch import ProducerBatch
from kafka_sink.producer.engine.sequences import Sequences, sequence_after
from kafka_sink.producer.engine.transaction import Transaction, TransactionState
from kafka_sink.producer.engine.transaction_requests import TransactionRequests

Mutation = Callable[[pytest.MonkeyPatch], None]


def complete_twice(patch: pytest.MonkeyPatch) -> None:
    deliver = BatchSender._deliver

    def twice(self: BatchSender, *arguments: Any) -> None:
        deliver(self, *arguments)
        self._delivered.extend(self._delivered[-1:])

    patch.setattr(BatchSender, "_deliver", twice)


def forget_to_tell_of_expiry(patch: pytest.MonkeyPatch) -> None:
    give_up = BatchSender._give_up

    def silent(self: BatchSender, batch: ProducerBatch, *arguments: Any) -> None:
        give_up(self, batch, *arguments)
        if batch.attempts == 0:
            self.completions.pop()

    patch.setattr(BatchSender, "_give_up", silent)


def indefinite_answer_is_definite(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_sender, "is_definite", lambda _code: True)


def lost_request_was_not_written(patch: pytest.MonkeyPatch) -> None:
    on_answered = ProducerBatch.on_answered
    patch.setattr(ProducerBatch, "on_answered", lambda self, *, is_definite: on_answered(self, is_definite=True))


def lost_request_was_written(patch: pytest.MonkeyPatch) -> None:
    def delivered(self: BatchSender, now_ms: int, request: Any, error: Any) -> None:
        for batch in request.batches.values():
            batch.on_answered(is_definite=True)
            if not batch.is_done:
                self._deliver(batch, -1, -1)

    patch.setattr(BatchSender, "_on_no_answer", delivered)


def never_renumber(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sequences, "mark_for_renumbering", lambda _self, _topic_partition: None)


def renumber_in_a_transaction(patch: pytest.MonkeyPatch) -> None:
    """A leader that forgot the producer: all batches of the partition start at 0 again, those on the wire, too."""
    retry_without_state = BatchSender._retry_without_state

    def renumbered(self: BatchSender, batch: ProducerBatch, log_start_offset: int) -> Retry:
        if self._transaction is None or self._sequences is None:
            return retry_without_state(self, batch, log_start_offset)
        self._sequences._restart(batch.topic_partition)
        return Retry.AS_IT_IS

    patch.setattr(BatchSender, "_retry_without_state", renumbered)


def a_forgotten_producer_wrote_nothing(patch: pytest.MonkeyPatch) -> None:
    """A leader that forgot the producer is believed to have none of its batches."""

    def believed(self: BatchSender, batch: ProducerBatch, _log_start_offset: int) -> Retry:
        batch.on_denied()
        return self._retry_with_new_number(batch)

    patch.setattr(BatchSender, "_retry_without_state", believed)


def resend_with_a_new_sequence(patch: pytest.MonkeyPatch) -> None:
    on_drained = Sequences.on_drained

    def renumbered(self: Sequences, batch: ProducerBatch) -> None:
        if batch.has_sequence and batch.attempts:
            partition = self._partitions[batch.topic_partition]
            batch.base_sequence = partition.next_sequence
            partition.next_sequence = sequence_after(partition.next_sequence, batch.record_count)
        on_drained(self, batch)

    patch.setattr(Sequences, "on_drained", renumbered)


def parts_of_a_split_batch_share_a_sequence(patch: pytest.MonkeyPatch) -> None:
    on_split = Sequences.on_split

    def same(self: Sequences, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        on_split(self, batch, parts)
        for part in parts:
            part.base_sequence = batch.base_sequence

    patch.setattr(Sequences, "on_split", same)


def first_batch_is_not_alone(patch: pytest.MonkeyPatch) -> None:
    may_send = Sequences.may_send

    def at_once(self: Sequences, batch: ProducerBatch) -> bool:
        self._known_at.add(batch.topic_partition)
        return may_send(self, batch)

    patch.setattr(Sequences, "may_send", at_once)


def drop_instead_of_requeue(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Accumulator, "requeue", lambda _self, _batch: None)


def requeue_behind_the_others(patch: pytest.MonkeyPatch) -> None:
    def behind(self: Accumulator, batch: ProducerBatch) -> None:
        self.append(batch)
        self._retried.add(batch.topic_partition)

    patch.setattr(Accumulator, "requeue", behind)
    may_send = Sequences.may_send
    # Otherwise the sequences, which allow only the next number, would stop everything; now the queue decides.
    patch.setattr(
        Sequences, "may_send", lambda self, batch: batch.base_sequence != NO_SEQUENCE or may_send(self, batch)
    )


def back_off_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(accumulator, "_is_backing_off", lambda *_: False)


def sequences_go_on_in_a_new_epoch(patch: pytest.MonkeyPatch) -> None:
    def kept(self: Sequences, identity: Any) -> None:
        for partition in self._partitions.values():
            partition.identity = identity
        self._become(identity)

    patch.setattr(Sequences, "restart_all", kept)


def epoch_is_kept_after_an_abort(patch: pytest.MonkeyPatch) -> None:
    """Transaction version 1: a late request of the aborted transaction enters the next one."""
    on_ended = Transaction.on_ended

    def kept(self: Transaction, next_identity: Any) -> None:
        if next_identity is None and self.state is TransactionState.ABORTING:
            self._move(TransactionEvent.ENDED)
            self.error = None
            self.epoch_is_stale = False
            self._clear_touched()
            self._finish("end", None)
        else:
            on_ended(self, next_identity)

    patch.setattr(Transaction, "on_ended", kept)


def commit_with_an_expired_batch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Transaction, "on_error", lambda _self, _error: None)


def fenced_is_success(patch: pytest.MonkeyPatch) -> None:
    for code in (47, 90):
        patch.setitem(outcome._COORDINATOR, code, outcome.Row(CoordinatorOutcome.DONE))


def end_with_batches_on_the_wire(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BatchSender, "is_quiet", property(lambda _self: True))


def produce_before_the_registration(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Transaction, "may_send",
        lambda self, _partition: self.state in
        (TransactionState.IN_TRANSACTION, TransactionState.PREPARING, TransactionState.COMMITTING),
    )  # fmt: skip


def abort_what_is_prepared_on_close(patch: pytest.MonkeyPatch) -> None:
    abort_before_close = Transaction.abort_before_close

    def too_eager(self: Transaction) -> None:
        if self.state is TransactionState.PREPARED:
            self._move(TransactionEvent.ABORT)
        abort_before_close(self)

    patch.setattr(Transaction, "abort_before_close", too_eager)
    patch.setattr(
        Transaction, "is_settled", property(lambda self: self.state in (TransactionState.READY, TransactionState.FATAL))
    )


def commit_is_not_repeated(patch: pytest.MonkeyPatch) -> None:
    """A lost answer to EndTxn is taken for a yes."""
    on_failure = TransactionRequests._on_failure

    def believed(self: TransactionRequests, now_ms: int, asked: Any, answer: Any) -> None:
        if asked.api.name == "EndTxn" and self._transaction.state in (
            TransactionState.COMMITTING,
            TransactionState.ABORTING,
        ):
            self._transaction.on_ended(None)
        else:
            on_failure(self, now_ms, asked, answer)

    patch.setattr(TransactionRequests, "_on_failure", believed)


def coordinator_is_never_looked_for_again(patch: pytest.MonkeyPatch) -> None:
    for code in (15, 16):
        patch.setitem(outcome._COORDINATOR, code, outcome.Row(CoordinatorOutcome.REPEAT))


def throttling_is_ignored(patch: pytest.MonkeyPatch) -> None:
    observe = Connection._observe

    def deaf(self: Connection, *arguments: Any) -> None:
        observe(self, *arguments)
        self.throttled_until_ms = 0

    patch.setattr(Connection, "_observe", deaf)


def in_flight_limit_is_ignored(patch: pytest.MonkeyPatch) -> None:
    def can_take(self: Node, now_ms: int, _in_flight_max: int) -> bool:
        return self.is_ready and self.throttled_until_ms <= now_ms

    patch.setattr(Node, "can_take", can_take)


def no_request_time_out(patch: pytest.MonkeyPatch) -> None:
    # It can be read, and stays None whatever is assigned.
    patch.setattr(Connection, "deadline_ms", property(lambda _self: None, lambda _self, _value: None), raising=False)


# The number of seeds, counted from 1, within which the bug is caught.
SEEDS: dict[Mutation, int] = {
    complete_twice: 2,
    forget_to_tell_of_expiry: 2,
    indefinite_answer_is_definite: 60,
    lost_request_was_not_written: 60,
    lost_request_was_written: 5,
    never_renumber: 5,
    renumber_in_a_transaction: 100,
    a_forgotten_producer_wrote_nothing: 100,
    resend_with_a_new_sequence: 5,
    parts_of_a_split_batch_share_a_sequence: 20,
    first_batch_is_not_alone: 100,
    drop_instead_of_requeue: 5,
    requeue_behind_the_others: 40,
    back_off_is_ignored: 5,
    sequences_go_on_in_a_new_epoch: 5,
    epoch_is_kept_after_an_abort: 10,
    commit_with_an_expired_batch: 30,
    fenced_is_success: 40,
    end_with_batches_on_the_wire: 5,
    produce_before_the_registration: 5,
    abort_what_is_prepared_on_close: 10,
    commit_is_not_repeated: 20,
    coordinator_is_never_looked_for_again: 10,
    throttling_is_ignored: 2,
    in_flight_limit_is_ignored: 2,
    no_request_time_out: 30,
}
