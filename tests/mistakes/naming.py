"""Mistakes about names: which query, which run and which attempt a transactional id belongs to."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.commit import identity_pool
from kafka_sink.commit.identity import TaskIdentity
from kafka_sink.commit.identity_pool import IdentityPool, Last, Used
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.kafka.client import nodes, outcome
from kafka_sink.kafka.client.ask import Ask, Coordinator
from kafka_sink.kafka.client.nodes import NodeSet
from kafka_sink.kafka.wire.apis import INIT_PRODUCER_ID
from kafka_sink.producer.engine import batch_sender
from kafka_sink.producer.engine.transaction import Transaction, TransactionState
from tests.model.world import World
from tests.sim.delivery import executor, query, stage
from tests.sim.delivery.books import Attempt
from tests.sim.delivery.executor import Executor
from tests.sim.delivery.job import SparkJob
from tests.sim.delivery.stage import Stage

SHARED_RUN = "0" * 16


def ids_shared_between_runs(patch: pytest.MonkeyPatch) -> None:
    """a run uses the transactional ids of the run that crashed"""

    def of_job(self: SparkJob, spark_partition: int, number: int) -> TaskIdentity:
        return TaskIdentity(self.stage.sink_id(self.batch.key, ""), SHARED_RUN, spark_partition, number)

    def of_world(self: World, driver: Any, task: int) -> TaskIdentity:
        return TaskIdentity("sink", SHARED_RUN, task, 0)

    patch.setattr(query, "run_of_query", lambda *_: SHARED_RUN)
    patch.setattr(query, "run_of_label", lambda *_: SHARED_RUN)
    patch.setattr(Stage, "next_attempt", lambda *_: 0)
    patch.setattr(SparkJob, "identity", of_job)
    patch.setattr(World, "_task_identity", of_world)
    patch.setattr(World, "_run", lambda *_: SHARED_RUN)


def name_is_identity(patch: pytest.MonkeyPatch) -> None:
    """the query id is left out of the sink id: two queries share driver and ledger"""
    patch.setattr(stage, "sink_id_of_query", lambda named, _query_id: named)


def _send_a_late_init(patch: pytest.MonkeyPatch, first_batch: int) -> None:
    """For the model: from this batch on, an older InitProducerId for the id of a task may still arrive."""
    task = World._task

    def changed(self: World, state: Any, driver: Any, number: int) -> Any:
        if driver.batch < first_batch:
            return task(self, state, driver, number)
        name = self._task_identity(driver, number).transactional_id
        body = {"transactional_id": name, "transaction_timeout_ms": 1_000}
        late = Ask(Coordinator(name), INIT_PRODUCER_ID, body, "init of a task", number, version_max=5)
        orphans = tuple(sorted((*state.orphans, self._request_number(late))))
        return task(self, state._replace(orphans=orphans), driver, number)

    patch.setattr(World, "_task", changed)


def late_init_ignored(patch: pytest.MonkeyPatch) -> None:
    """a task keeps its id although an InitProducerId for it may still arrive"""
    initialized = Transaction.on_initialized

    def changed(self: Transaction, identity: Any) -> None:
        self.is_alone = True
        initialized(self, identity)

    patch.setattr(Transaction, "on_initialized", changed)
    _send_a_late_init(patch, 0)


# ---- reused ids ----


def pooled_id_used_by_two_attempts(patch: pytest.MonkeyPatch) -> None:
    """an id that a task takes from the pool stays there for the next task"""
    take_used = IdentityPool.take_used

    def changed(self: IdentityPool, sink_id: str, run: str, key: BatchKey) -> Used | None:
        used = take_used(self, sink_id, run, key)
        if used is not None:
            self._by_sink[sink_id].free[used.identity] = used.last
        return used

    patch.setattr(IdentityPool, "take_used", changed)


def pooled_id_used_before_its_end(patch: pytest.MonkeyPatch) -> None:
    """an id is free as soon as it is given back, before its transaction has ended"""

    def changed(self: IdentityPool, identity: TaskIdentity, key: BatchKey, last: Last | None = None) -> None:
        known = self._by_sink.get(identity.sink_id)
        if known is not None and known.is_of(identity.run, key.query_id):
            known.free[identity] = last

    patch.setattr(IdentityPool, "give_back", changed)


def pooled_id_that_missed_an_answer(patch: pytest.MonkeyPatch) -> None:
    """an id goes back to the pool although an InitProducerId for it has no answer"""

    def changed(self: Executor, attempt: Attempt) -> None:
        if self.pool is not None:
            self.pool.give_back(attempt.identity, attempt.key)

    # In the model a task has the same id in each batch.
    patch.setattr(Executor, "give_up", changed)
    _send_a_late_init(patch, 1)


# ---- ids that go on without InitProducerId ----


def refused_epoch_believed(patch: pytest.MonkeyPatch) -> None:
    """a record that is refused because of its epoch counts as written"""
    patch.setattr(batch_sender, "produce_outcome", _believing)
    patch.setattr(batch_sender, "refuses_identity", lambda _code: False)


def _believing(code: int) -> outcome.ProduceOutcome:
    return outcome.ProduceOutcome.ACKED if outcome.refuses_identity(code) else outcome.produce_outcome(code)


def epoch_of_the_last_transaction_goes_on(patch: pytest.MonkeyPatch) -> None:
    """a task goes on with the epoch of the last transaction under its id, as if nobody had ended that"""
    following = identity_pool.next_identity

    def changed(last: Any, options: Any) -> Any:
        expected = following(last, options)
        return expected and expected._replace(producer_epoch=expected.producer_epoch - 1)

    patch.setattr(executor, "next_identity", changed)


def written_records_left_behind(patch: pytest.MonkeyPatch) -> None:
    """another epoch is asked for although records were acknowledged under the refused one"""

    def changed(self: Transaction, error: Any) -> bool:
        if self.state is TransactionState.IN_TRANSACTION:
            self.state, self.error = TransactionState.REPLACING, error
        self.is_expected = self.state is TransactionState.REPLACING
        return self.is_expected

    patch.setattr(Transaction, "on_identity_refused", changed)


def last_epoch_ignored(patch: pytest.MonkeyPatch) -> None:
    """a task goes on after the last epoch of a producer id"""
    patch.setattr(identity_pool, "EPOCH_MAX", 2**31)


def version_1_goes_on(patch: pytest.MonkeyPatch) -> None:
    """a task goes on with the next epoch in transaction version 1, too, where the end of a transaction leaves it"""
    patch.setattr(NodeSet, "epoch_of_end_is_safe", True)
    following = identity_pool.next_identity
    patch.setattr(
        executor,
        "next_identity",
        lambda last, options: following(
            last and last._replace(transaction=last.transaction._replace(transaction_version=2)), options
        ),
    )


def late_markers_ignored(patch: pytest.MonkeyPatch) -> None:
    """a task goes on where a late marker of the last transaction would end the new one"""
    patch.setattr(nodes, "METADATA_OF_4_2", 0)
