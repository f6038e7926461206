"""I24: a batch is decided only while each of its transactions has the margin left, by its coordinator's clock. If the
driver dies right after the decision, a restart of the query must fit into that."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_sink.commit.committer import Committer
from kafka_sink.commit.phase import Phase
from kafka_sink.commit.receipt import PreparedTransaction
from kafka_sink.testing.transaction_state import CoordinatorState
from tests.sim.delivery.stage import Stage
from tests.sim.trace import Violation


def check_time_left(stage: Stage, machines: Sequence[Committer]) -> None:
    for machine in machines:
        if machine.phase is Phase.DECIDING:
            for receipt in machine._receipts:
                _check(stage, receipt.transaction)


def _check(stage: Stage, prepared: PreparedTransaction | None) -> None:
    """One that has ended, or was never open, is the concern of other promises."""
    assert prepared is not None
    known = stage.network.core.coordinator.transactions.get(prepared.transactional_id)
    if known is None or known.record.state is not CoordinatorState.ONGOING:
        return
    if (known.record.producer_id, known.record.producer_epoch) != prepared.identity:
        return
    left_ms = known.record.start_ms + known.record.timeout_ms - stage.loop.now_ms
    if left_ms < stage.settings.margin_ms:
        raise Violation("I24", f"{prepared.transactional_id} is part of a decision and has {left_ms} ms left")
