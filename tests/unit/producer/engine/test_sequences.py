"""Sequence numbers: assigned once, kept when a batch is resent, and restarted only if no batch can be written twice."""

from __future__ import annotations

import pytest

from kafka_sink.errors import LocalProtocolError
from kafka_sink.kafka.client.producer_identity import PRODUCER_EPOCH_MAX
from kafka_sink.producer.engine.producer_batch import NO_IDENTITY, ProducerBatch, ProducerIdentity
from kafka_sink.producer.engine.sequences import (
    BATCHES_REMEMBERED,
    SEQUENCE_MODULUS,
    Sequences,
    sequence_after,
)
from tests.unit.producer.engine.driver import new_batch

PARTITION = ("t", 0)
IDENTITY = ProducerIdentity(7, 0)


def started(identity: ProducerIdentity = IDENTITY) -> Sequences:
    """Both partitions have written 2**31 records: the brokers know the producer, and the next sequence is 0."""
    sequences = Sequences()
    sequences.adopt(identity)
    for partition in (0, 1):
        first = put_on_wire(sequences, partition=partition)
        ack(sequences, first)
        state = sequences._partitions["t", partition]
        state.next_sequence, state.last_acked_sequence = 0, SEQUENCE_MODULUS - 1
    return sequences


def put_on_wire(sequences: Sequences, record_count: int = 1, *, partition: int = 0) -> ProducerBatch:
    batch = new_batch(partition, record_count)
    assert sequences.may_send(batch)
    sequences.on_drained(batch)
    batch.on_sent((0, 0))
    return batch


def resend(sequences: Sequences, batch: ProducerBatch) -> None:
    assert sequences.may_send(batch)
    sequences.on_drained(batch)
    batch.on_sent((0, 0))


def ack(sequences: Sequences, batch: ProducerBatch) -> None:
    batch.on_answered(is_definite=True)
    sequences.on_acked(batch)


def give_up(sequences: Sequences, batch: ProducerBatch) -> None:
    batch.finish()
    sequences.on_given_up(batch)


def numbers(*batches: ProducerBatch) -> list[tuple[int, int]]:
    return [(batch.identity.producer_epoch, batch.base_sequence) for batch in batches]


# ---- assigning -----------------------------------------------------------------------------------------------------


def test_nothing_is_sent_before_there_is_a_producer_id() -> None:
    assert not Sequences().may_send(new_batch())


@pytest.mark.parametrize(
    ("sequence", "record_count", "expected"),
    [(0, 1, 1), (2**31 - 1, 1, 0), (2**31 - 1, 100, 99), (2**31 - 10, 10, 0), (-1, 1, 0)],
)
def test_after_the_largest_sequence_comes_zero(sequence: int, record_count: int, expected: int) -> None:
    assert sequence_after(sequence, record_count) == expected


def test_acknowledgements_count_on_across_the_wrap() -> None:
    sequences = started()
    state = sequences._partitions[PARTITION]
    state.next_sequence, state.last_acked_sequence = SEQUENCE_MODULUS - 1, SEQUENCE_MODULUS - 2
    over = put_on_wire(sequences, 5)
    assert over.base_sequence == SEQUENCE_MODULUS - 1
    assert sequences.is_gap_before(over)
    ack(sequences, over)
    behind = put_on_wire(sequences)
    assert behind.base_sequence == 4
    assert sequences.is_gap_before(behind)


# ---- resending -----------------------------------------------------------------------------------------------------


def test_a_resend_waits_until_everything_before_it_is_settled() -> None:
    sequences = started()
    first, second, third = (put_on_wire(sequences) for _ in range(3))
    for batch in (first, second, third):
        batch.on_answered(is_definite=True)
    assert [sequences.may_send(batch) for batch in (first, second, third)] == [True, False, False]
    resend(sequences, first)
    assert not sequences.may_send(second)
    ack(sequences, first)
    assert [sequences.may_send(batch) for batch in (second, third)] == [True, False]


def test_a_refusal_as_out_of_order_is_a_gap_when_all_before_the_batch_are_acknowledged() -> None:
    sequences = started()
    first, second = put_on_wire(sequences, 3), put_on_wire(sequences)
    assert sequences.is_gap_before(first)
    assert not sequences.is_gap_before(second)
    ack(sequences, first)
    assert sequences.is_gap_before(second)


def test_an_older_acknowledgement_that_comes_late_does_not_take_back_a_newer_one() -> None:
    sequences = started()
    first, second = put_on_wire(sequences), put_on_wire(sequences)
    ack(sequences, second)
    ack(sequences, first)
    assert sequences.is_gap_before(put_on_wire(sequences))


# ---- unresolved ----------------------------------------------------------------------------------------------------


def test_a_batch_given_up_while_it_may_be_in_the_log_holds_up_new_numbers() -> None:
    sequences = started()
    first, second = put_on_wire(sequences), put_on_wire(sequences)
    give_up(sequences, first)
    assert not sequences.may_send(new_batch())
    assert sequences.may_send(new_batch(partition=1))
    assert sequences.settle_unresolved() == (), "the batch behind it has no answer yet"
    second.on_answered(is_definite=False)
    assert sequences.may_send(second), "the answer to a resend is what settles it"


# ---- a new epoch ---------------------------------------------------------------------------------------------------


def test_a_new_epoch_numbers_the_unsettled_batches_from_zero_in_order() -> None:
    sequences = started()
    first, second, third = (put_on_wire(sequences, 2) for _ in range(3))
    ack(sequences, first)
    for batch in (second, third):
        batch.on_answered(is_definite=True)
    sequences.mark_for_renumbering(PARTITION)
    assert not sequences.may_send(second)
    assert not sequences.may_send(new_batch())
    assert sequences.renumber_when_quiet()
    assert numbers(second, third) == [(1, 0), (1, 2)]
    assert [sequences.may_send(batch) for batch in (second, third)] == [True, False]
    for batch in (second, third):
        resend(sequences, batch)
        ack(sequences, batch)
    assert numbers(put_on_wire(sequences)) == [(1, 4)]


def test_nothing_is_renumbered_while_a_batch_of_the_partition_is_on_the_wire() -> None:
    sequences = started()
    first, second = put_on_wire(sequences), put_on_wire(sequences)
    first.on_answered(is_definite=True)
    sequences.mark_for_renumbering(PARTITION)
    assert not sequences.renumber_when_quiet()
    assert numbers(first, second) == [(0, 0), (0, 1)]
    second.on_answered(is_definite=True)
    assert sequences.renumber_when_quiet()


def out_of_order(sequences: Sequences, batch: ProducerBatch) -> None:
    batch.on_answered(is_definite=True)
    sequences.on_out_of_order(batch)


def test_before_new_numbers_the_leader_is_asked_about_each_batch_that_may_be_in_the_log() -> None:
    sequences = started()
    first, second, third = (put_on_wire(sequences) for _ in range(3))
    first.on_answered(is_definite=True)
    second.on_answered(is_definite=False)
    third.on_answered(is_definite=False)
    sequences.mark_for_renumbering(PARTITION)
    for doubtful in (second, third):
        assert not sequences.renumber_when_quiet()
        assert [one for one in (first, second, third) if sequences.may_send(one)] == [doubtful]
        resend(sequences, doubtful)
        assert not any(sequences.may_send(one) for one in (first, second, third))
        out_of_order(sequences, doubtful)
    assert sequences.renumber_when_quiet()
    assert numbers(first, second, third) == [(1, 0), (1, 1), (1, 2)]


def test_a_batch_in_the_log_behind_a_refused_one_is_not_renumbered_and_the_refused_one_stays_in_doubt() -> None:
    # 1 first and second get no answer, so they may be in the log. 2 first is out of order when it is resent. 3 second
    # is a duplicate: the log has both, or it lost its state of the producer and took second in place of first.
    sequences = started()
    first, second = put_on_wire(sequences), put_on_wire(sequences)
    for batch in (first, second):
        batch.on_answered(is_definite=False)
    resend(sequences, first)
    out_of_order(sequences, first)
    assert first.may_be_in_log
    sequences.mark_for_renumbering(PARTITION)
    resend(sequences, second)
    ack(sequences, second)
    assert not sequences.renumber_when_quiet()
    assert first.may_be_in_log
    assert sequences.may_send(first), "another leader may know more"
    resend(sequences, first)
    out_of_order(sequences, first)
    assert first.may_be_in_log
    assert numbers(first, second) == [(0, 0), (0, 1)]


def test_refusals_of_all_batches_in_any_order_are_a_no_for_all_of_their_sends() -> None:
    sequences = started()
    batches = [put_on_wire(sequences) for _ in range(3)]
    for batch in batches:
        batch.on_answered(is_definite=False)
        batch.on_sent((0, 0))
    for batch in batches[:2]:
        out_of_order(sequences, batch)
        assert batch.may_be_in_log, "the one behind it has no answer yet"
    out_of_order(sequences, batches[2])
    assert not any(batch.may_be_in_log for batch in batches)


# ---- overtaking ----------------------------------------------------------------------------------------------------


def test_no_batch_is_overtaken_by_more_others_than_its_broker_remembers() -> None:
    # An old leader delays the resend of first; the new leader continues with the batches after it.
    sequences = started()
    first = put_on_wire(sequences)
    for _ in range(BATCHES_REMEMBERED - 1):
        ack(sequences, put_on_wire(sequences))
    assert not sequences.may_send(new_batch())
    assert sequences.may_send(new_batch(partition=1))
    ack(sequences, first)
    assert sequences.may_send(new_batch())


def test_acknowledged_batches_count_only_behind_the_first_open_one() -> None:
    sequences = started()
    first, second, third, fourth = (put_on_wire(sequences) for _ in range(4))
    ack(sequences, second)
    ack(sequences, fourth)
    ack(sequences, first)
    # third is open and was overtaken by fourth.
    for _ in range(BATCHES_REMEMBERED - 2):
        put_on_wire(sequences)
    assert not sequences.may_send(new_batch())
    ack(sequences, third)
    assert sequences.may_send(new_batch())


# ---- re-created topics ---------------------------------------------------------------------------------------------


def test_in_a_topic_with_a_new_id_the_first_batch_goes_alone_again() -> None:
    sequences = started()
    sequences.on_topics({"t": b"old"})
    sequences.on_topics({"t": b"old", "other": b"id"})
    assert numbers(put_on_wire(sequences, partition=1), put_on_wire(sequences, partition=1)) == [(0, 0), (0, 1)]
    sequences.on_topics({"t": b"new"})
    first = put_on_wire(sequences)
    assert not sequences.may_send(new_batch())
    ack(sequences, first)
    assert sequences.may_send(new_batch())


def test_other_partitions_keep_their_epoch_until_their_batches_are_done() -> None:
    sequences = started()
    old, broken = put_on_wire(sequences, partition=1), put_on_wire(sequences)
    broken.on_answered(is_definite=True)
    sequences.mark_for_renumbering(PARTITION)
    assert sequences.renumber_when_quiet()
    assert numbers(old) == [(0, 0)]
    assert not sequences.may_send(new_batch(partition=1)), "a broker that saw the new epoch refuses the old one"
    old.on_answered(is_definite=True)
    resend(sequences, old)
    ack(sequences, old)
    assert numbers(put_on_wire(sequences, partition=1)) == [(1, 0)]


def test_renumbering_ends_the_uncertainty() -> None:
    sequences = started()
    give_up(sequences, put_on_wire(sequences))
    sequences.mark_for_renumbering(PARTITION)
    sequences.renumber_when_quiet()
    assert sequences.may_send(new_batch())
    assert numbers(put_on_wire(sequences)) == [(1, 0)]


def test_without_a_reason_nothing_is_renumbered() -> None:
    sequences = started()
    put_on_wire(sequences).on_answered(is_definite=True)
    assert not sequences.renumber_when_quiet()
    assert sequences.identity == IDENTITY


def test_with_the_last_epoch_used_up_a_new_producer_id_is_needed_and_nothing_is_lost_meanwhile() -> None:
    sequences = started(ProducerIdentity(7, PRODUCER_EPOCH_MAX))
    batch, other = put_on_wire(sequences), put_on_wire(sequences, partition=1)
    batch.on_answered(is_definite=True)
    sequences.mark_for_renumbering(PARTITION)
    assert sequences.renumber_when_quiet()
    assert sequences.identity == NO_IDENTITY
    assert not sequences.may_send(batch)
    assert not sequences.may_send(new_batch())
    other.on_answered(is_definite=True)
    assert sequences.may_send(other), "its old number is still good"
    sequences.adopt(ProducerIdentity(8, 0))
    assert (batch.identity, batch.base_sequence) == (ProducerIdentity(8, 0), 0)
    assert sequences.may_send(batch)


def test_a_new_producer_id_does_not_renumber_what_is_on_the_wire() -> None:
    # 1 Partition 0 uses up the last epoch. 2 While the new id is fetched, partition 1 also needs new numbers, but one
    # of its batches is on the wire. 3 The id arrives first: that batch must keep its number until it is answered.
    sequences = started(ProducerIdentity(7, PRODUCER_EPOCH_MAX))
    quiet = put_on_wire(sequences)
    refused, travelling = put_on_wire(sequences, partition=1), put_on_wire(sequences, partition=1)
    quiet.on_answered(is_definite=True)
    sequences.mark_for_renumbering(PARTITION)
    assert sequences.renumber_when_quiet()
    refused.on_answered(is_definite=True)
    give_up(sequences, refused)
    sequences.mark_for_renumbering(("t", 1))
    sequences.adopt(ProducerIdentity(8, 0))
    assert quiet.identity == ProducerIdentity(8, 0)
    assert (travelling.identity, travelling.base_sequence) == (ProducerIdentity(7, PRODUCER_EPOCH_MAX), 1)
    travelling.on_answered(is_definite=True)
    assert not sequences.may_send(travelling)
    assert sequences.renumber_when_quiet()
    assert travelling.identity.producer_id == 8
    assert travelling.base_sequence == 0


def test_a_transaction_s_new_epoch_while_a_batch_is_unsettled_is_a_bug_and_raises() -> None:
    sequences = started()
    put_on_wire(sequences)
    with pytest.raises(LocalProtocolError, match="unsettled"):
        sequences.restart_all(ProducerIdentity(7, 1))


# ---- another producer id ---------------------------------------------------------------------------------------------


def test_a_leader_that_knew_the_last_producer_id_has_to_get_to_know_the_next_one() -> None:
    sequences = started()
    sequences.adopt(ProducerIdentity(8, 0))
    put_on_wire(sequences)
    assert not sequences.may_send(new_batch())


def test_an_acknowledgement_under_the_last_producer_id_says_nothing_about_the_next_one() -> None:
    sequences = started()
    old = put_on_wire(sequences)
    sequences.adopt(ProducerIdentity(8, 0))
    ack(sequences, old)
    put_on_wire(sequences)
    assert not sequences.may_send(new_batch())
