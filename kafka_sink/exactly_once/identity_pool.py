"""The transactional ids of one worker process, used again from batch to batch.

A coordinator keeps every id for transactional.id.expiration.ms (a week), so an id for each attempt would cost memory
on the brokers for each task that ever ran. A process keeps its own ids instead: one that an attempt of batch N gives
back is free for an attempt of a later batch of the same sink, query and run. What makes that safe, as a race in steps:

  1. A prepares batch N under the id, sends its receipt and gives the id back. Only this process sends InitProducerId
     for it, and each one that it sent has been answered: none is on its way.
  2. The driver decides batch N and sends EndTxn(commit). Until each one is answered, its commit() does not return.
  3. Spark starts a task of batch N + 1 only after commit() has returned. That task may take the id: what its
     InitProducerId meets there is a transaction that has ended, or one that no decision names.
  4. InitProducerId raised the epoch. A request of A, or of the driver for A, that arrives only now carries the old
     epoch and is refused.

An id is not given back by an attempt that failed, that was killed, or that missed an answer: its InitProducerId may
still be on the way, would arrive in step 2 of a later batch, and would abort what is decided. Such an id is never used
again and expires.

A worker process that was given up by Spark and lives on harms nobody: its ids are its own, since every id is named
after an attempt that ran in it. An attempt that lost against a speculative one may give its id back, too: no decision
names it, and the next InitProducerId aborts what it left open.

This rests on Spark: within a run, batches follow each other, and an error of commit() ends the run. Inside foreachBatch
user code can swallow that error, and the next batch would then abort in step 3 what is decided and not committed yet.
There the coordinator is asked before an id is used again: `is_over` says whether its answer will do.

A process runs one task at a time; nothing here is locked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafka_sink.exactly_once.identity import TaskIdentity
from kafka_sink.exactly_once.receipt import BatchKey, PreparedTransaction

# What is forgotten beyond these expires at the brokers. Of the sinks that write in one application:
SINKS_MAX = 64
# Of the tasks of one batch that run in one process, one after the other.
IDENTITIES_PER_SINK_MAX = 1_000
# How it ends is certain in each of these, and InitProducerId cannot change it.
OVER = ("PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


class Used(NamedTuple):
    """An id and the last transaction under it; None: its last attempt wrote nothing."""

    identity: TaskIdentity
    transaction: PreparedTransaction | None


@dataclass(slots=True)
class _SinkIdentities:
    """The ids of one sink in one run of one query."""

    run: str
    query_id: str
    # The newest batch that was heard of.
    batch_id: int
    free: dict[TaskIdentity, PreparedTransaction | None] = field(default_factory=dict)
    # Given back by attempts of that newest batch.
    waiting: dict[TaskIdentity, PreparedTransaction | None] = field(default_factory=dict)

    def is_of(self, run: str, query_id: str) -> bool:
        return (self.run, self.query_id) == (run, query_id)

    def advance_to(self, batch_id: int) -> None:
        if batch_id > self.batch_id:
            self.batch_id = batch_id
            self.free |= self.waiting
            self.waiting = {}


class IdentityPool:
    def __init__(self) -> None:
        self._by_sink: dict[str, _SinkIdentities] = {}  # by sink id, the longest unused first

    def take(self, sink_id: str, run: str, key: BatchKey, spark_partition: int, attempt: int) -> TaskIdentity:
        """An id of this process that is free for the batch, or else one that is named after this attempt."""
        used = self.take_used(sink_id, run, key)
        return TaskIdentity(sink_id, run, spark_partition, attempt) if used is None else used.identity

    def take_used(self, sink_id: str, run: str, key: BatchKey) -> Used | None:
        """None: there is no id that is free for this batch."""
        if not isinstance(key.batch_id, int):
            return None
        known = self._by_sink.pop(sink_id, None)
        if known is None or not known.is_of(run, key.query_id):
            known = _SinkIdentities(run, key.query_id, key.batch_id)
        self._by_sink[sink_id] = known
        while len(self._by_sink) > SINKS_MAX:
            del self._by_sink[next(iter(self._by_sink))]
        known.advance_to(key.batch_id)
        # A task of an older batch has been given up by Spark; what is free may have been used since.
        if key.batch_id < known.batch_id or not known.free:
            return None
        return Used(*known.free.popitem())

    def give_back(self, identity: TaskIdentity, key: BatchKey, transaction: PreparedTransaction | None = None) -> None:
        """Only by an attempt whose receipt is about to be returned, and each of whose InitProducerId was answered."""
        known = self._by_sink.get(identity.sink_id)
        if known is None or not isinstance(key.batch_id, int) or not known.is_of(identity.run, key.query_id):
            return
        known.advance_to(key.batch_id)
        if len(known.free) + len(known.waiting) < IDENTITIES_PER_SINK_MAX:
            chosen = known.waiting if key.batch_id == known.batch_id else known.free
            chosen[identity] = transaction


def is_over(transaction: PreparedTransaction, description: Mapping[str, Any]) -> bool:
    """`description` is the row of DescribeTransactions for its id. Nobody has begun another transaction there, so an
    epoch of it or a later one is about this transaction; an earlier one is the word of a coordinator that was
    replaced."""
    is_its_own = (
        description["producer_id"] == transaction.producer_id
        and description["producer_epoch"] >= transaction.producer_epoch
    )
    return description["error_code"] == 0 and description["transaction_state"] in OVER and is_its_own
