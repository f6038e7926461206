"""The transactional ids of one worker process, reused from batch to batch.

A coordinator keeps every id for transactional.id.expiration.ms (a week), so an id per attempt would cost broker memory
for every task that ever ran. A process keeps its ids instead: one that an attempt of batch N gives back is free for an
attempt of a later batch of the same sink, query and run. Why this is safe, step by step:

  1. A prepares batch N under the id, sends its receipt and gives the id back. Only this process sends InitProducerId
     for it, and each one that it sent has been answered: none is in flight.
  2. The driver decides batch N and sends EndTxn(commit). Until each one is answered, its commit() does not return.
  3. Spark starts a task of batch N + 1 only after commit() has returned. That task may take the id: its
     InitProducerId meets a transaction that has ended, or one that is part of no decision.
  4. InitProducerId raised the epoch. A request of A, or of the driver for A, that arrives only now carries the old
     epoch and is refused.

In transaction version 2 the end of A's transaction, with epoch e, raises the epoch itself, whoever ends it and however.
So the task does not ask: it begins its own with e + 1 (`next_identity`), as Kafka's own clients do. It may be wrong,
but then it does nothing:

  a. Before a leader appends the first record it asks the coordinator, which accepts no epoch but its own. While the
     transaction of A is open that is e. After an InitProducerId of somebody else, after Kafka 4.0's abort of a
     transaction that timed out, and after its last epoch it is a later one, or that of another producer id. Then the
     record is refused and nothing is in the log; the task asks InitProducerId, as in step 3, and sends it again.
  b. If it is accepted, A's transaction has ended, and its markers are in the logs. Nobody has begun another one with
     e + 1: only this process could have. An attempt that did and failed has not given the id back.
  c. A request of A, or of the driver for A, carries e and is refused, as in step 4. But the markers of A's transaction
     carry e + 1. A coordinator that got no answer sends them again, and leaders before Kafka 4.2 take a late one for
     the end of the new transaction. There InitProducerId is asked (`NodeSet.epoch_of_end_is_safe`).

An attempt that failed, was killed, or missed an answer does not give its id back: its InitProducerId may still be in
flight, arrive in step 2 of a later batch, and abort a transaction that is decided. Such an id is never used again and
expires.

A worker process that Spark has given up but that still lives does no harm: only it uses its ids, since each contains an
attempt that ran in it. An attempt that lost against a speculative one may give its id back, too: its transaction is
part of no decision, and the next InitProducerId aborts it.

This relies on Spark: within a run, batches are sequential, and an error of commit() ends the run. Inside foreachBatch
user code can swallow that error, and the next batch would then abort in step 3 a transaction that is decided but not
committed yet. There the coordinator is asked before an id is reused: `is_over` says whether its answer allows it.

A process runs one task at a time; nothing here is locked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka_sink.commit.identity import TaskIdentity
from kafka_sink.commit.receipt import BatchKey, PreparedTransaction
from kafka_sink.kafka.client.producer_identity import PRODUCER_EPOCH_MAX, ProducerIdentity
from kafka_sink.kafka.wire.apis import COMPLETE_ABORT, COMPLETE_COMMIT, PREPARE_ABORT, PREPARE_COMMIT
from kafka_sink.options import ProducerOptions

# Ids dropped beyond these limits expire at the brokers. Sinks that write in one application:
SINKS_MAX = 64
# Tasks of one batch that run in one process, one after the other.
IDENTITIES_PER_SINK_MAX = 10_000
# States in which the outcome is certain and InitProducerId cannot change it.
OVER = (PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT)
# Of a transaction whose next one may have the epoch after it. Two below the last epoch that brokers assign, since a
# time-out raises it, too.
EPOCH_MAX = PRODUCER_EPOCH_MAX - 2


class Last(NamedTuple):
    """The last transaction under an id, and the options of its producer."""

    transaction: PreparedTransaction
    options: ProducerOptions | None = None


class Used(NamedTuple):
    """`last` None: since the last InitProducerId nothing was written under the id."""

    identity: TaskIdentity
    last: Last | None


@dataclass(slots=True)
class _SinkIdentities:
    """The ids of one sink in one run of one query."""

    run: str
    query_id: str
    # The newest batch seen.
    batch_id: int
    free: dict[TaskIdentity, Last | None] = field(default_factory=dict)
    # Given back by attempts of that newest batch.
    waiting: dict[TaskIdentity, Last | None] = field(default_factory=dict)

    def is_of(self, run: str, query_id: str) -> bool:
        return (self.run, self.query_id) == (run, query_id)

    def advance_to(self, batch_id: int) -> None:
        if batch_id > self.batch_id:
            self.batch_id = batch_id
            self.free |= self.waiting
            self.waiting = {}


class IdentityPool:
    def __init__(self) -> None:
        self._by_sink: dict[str, _SinkIdentities] = {}  # by sink id, least recently used first

    def take_used(self, sink_id: str, run: str, key: BatchKey) -> Used | None:
        """None: no id is free for this batch."""
        if not isinstance(key.batch_id, int):
            return None
        known = self._by_sink.pop(sink_id, None)
        if known is None or not known.is_of(run, key.query_id):
            known = _SinkIdentities(run, key.query_id, key.batch_id)
        self._by_sink[sink_id] = known
        while len(self._by_sink) > SINKS_MAX:
            del self._by_sink[next(iter(self._by_sink))]
        known.advance_to(key.batch_id)
        # Spark has given up a task of an older batch; the free ids may have been used since.
        if key.batch_id < known.batch_id or not known.free:
            return None
        return Used(*known.free.popitem())

    def give_back(self, identity: TaskIdentity, key: BatchKey, last: Last | None = None) -> None:
        """Only for an attempt that is about to return its receipt and got an answer to each InitProducerId."""
        known = self._by_sink.get(identity.sink_id)
        if known is None or not isinstance(key.batch_id, int) or not known.is_of(identity.run, key.query_id):
            return
        known.advance_to(key.batch_id)
        if len(known.free) + len(known.waiting) < IDENTITIES_PER_SINK_MAX:
            chosen = known.waiting if key.batch_id == known.batch_id else known.free
            chosen[identity] = last


def next_identity(last: Last | None, options: ProducerOptions) -> ProducerIdentity | None:
    """That of the next transaction under the id, once the last one has ended. None: only the coordinator knows it, or
    has to be told something, such as another transaction.timeout.ms."""
    if last is None or last.options != options:
        return None
    transaction = last.transaction
    if transaction.transaction_version < 2 or transaction.producer_epoch > EPOCH_MAX:
        return None
    return ProducerIdentity(transaction.producer_id, transaction.producer_epoch + 1)


def is_over(transaction: PreparedTransaction, description: Mapping[str, Any]) -> bool:
    """`description` is the row of DescribeTransactions for its id. No other transaction was begun under it, so the same
    or a later epoch is about this transaction; an earlier one comes from a coordinator that was replaced."""
    is_its_own = (
        description["producer_id"] == transaction.producer_id
        and description["producer_epoch"] >= transaction.producer_epoch
    )
    return description["error_code"] == 0 and description["transaction_state"] in OVER and is_its_own
