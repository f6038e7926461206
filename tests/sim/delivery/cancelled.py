"""I21: once the driver has said that a cancelled write is swept, none of its transactions holds back readers: none is
open, and none begins. And it says so, as long as brokers stall for less time than it looks."""

from __future__ import annotations

from functools import partial

from kafka_sink.commit.identity import parse_task_identity
from kafka_sink.commit.session import CommitResult
from kafka_sink.testing.transaction_state import CoordinatorState
from tests.sim.delivery.stage import Stage
from tests.sim.trace import Violation

# After the result. Workers that Spark has forgotten live on.
LOOKS_MS = (0, 500, 2_000, 5_000, 10_000, 20_000)


def check_swept(stage: Stage, run: str, result: CommitResult) -> None:
    if not result.is_swept:
        raise Violation("I21", f"the driver has not swept the cancelled run {run}: {'; '.join(result.notes)}")
    if result.swept:
        stage.count("transaction of a cancelled job swept")
    for delay_ms in LOOKS_MS:
        stage.loop.after(delay_ms, partial(_look, stage, run))


def _look(stage: Stage, run: str) -> None:
    for transactional_id, transaction in stage.network.core.coordinator.transactions.items():
        identity = parse_task_identity(transactional_id)
        is_open = transaction.pending is None and transaction.record.state is CoordinatorState.ONGOING
        if is_open and identity is not None and identity.run == run:
            raise Violation("I21", f"{transactional_id} of a cancelled write is open after its sweep")
