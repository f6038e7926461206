"""Counts rare branches of the engine during a run: a branch that never runs is not tested.

The methods are wrapped from outside for the time of a run, so that the engine needs no counters.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from kafka_sink.kafka.client.outcome import coordinator_outcome, produce_outcome
from kafka_sink.kafka.wire.apis import APIS
from kafka_sink.producer.engine import batch_sender, transaction_requests
from kafka_sink.producer.engine.batch_sender import BatchSender
from kafka_sink.producer.engine.sequences import Sequences
from kafka_sink.producer.engine.transaction import Transaction
from tests.sim.scenario import ALL_FAULTS
from tests.sim.trace import Trace

# What must happen in a large run, or it proves too little.
REQUIRED = (
    *(f"fault {kind}" for kind in ALL_FAULTS),
    "batch retried", "batch split", "duplicate without idempotence", "epoch raised by the producer",
    "gap behind a batch of unknown fate", "offsets sent in a transaction", "producer id used up",
    "request arrived after its client gave up", "transaction aborted", "transaction committed",
    "transaction ended in a fatal error", "transaction prepared", "transaction resumed from its receipt",
    "undecided transaction turned out aborted", "undecided transaction turned out committed",
    "unknown batch was in the log after all", "went back to the bootstrap servers",
    "produce ACKED", "produce RETRY", "produce RETRY_ELSEWHERE", "produce SPLIT", "produce OUT_OF_ORDER",
    "produce STATE_LOST", "produce REFUSED", "produce ABORT",
    "state renewing on initialized", "state in transaction on error", "state committing on error",
    "state aborting on ended", "state prepared on commit", "state preparing on error", "state preparing on prepared",
    "EndTxn FENCED", "EndTxn REPEAT", "EndTxn REPEAT_SOON", "EndTxn FIND_COORDINATOR", "InitProducerId REPEAT_SOON",
    "InitProducerId FENCED", "AddPartitionsToTxn REPEAT_SOON", "TxnOffsetCommit FIND_COORDINATOR",
)  # fmt: skip


@contextmanager
def installed(trace: Trace) -> Iterator[None]:
    move, renumber, settle = Transaction._move, Sequences.renumber_when_quiet, Sequences.settle_unresolved
    of_produce, of_coordinator = produce_outcome, coordinator_outcome
    on_acknowledgements = BatchSender._on_acknowledgements

    def counting_move(self: Transaction, event: Any) -> None:
        trace.count(f"state {self.state.value} on {event.value}")
        move(self, event)

    def counting_renumber(self: Sequences) -> bool:
        is_raised = renumber(self)
        if is_raised:
            trace.count("epoch raised by the producer" if self.identity.producer_id >= 0 else "producer id used up")
        return is_raised

    def counting_settle(self: Sequences) -> Any:
        before = sum(one.is_unresolved for one in self._partitions.values())
        gaps = settle(self)
        after = sum(one.is_unresolved for one in self._partitions.values())
        trace.count("gap behind a batch of unknown fate", len(gaps))
        trace.count("unknown batch was in the log after all", before - after)
        return gaps

    def counting_produce(error_code: int) -> Any:
        found = of_produce(error_code)
        trace.count(f"produce {found.name}")
        return found

    def counting_acknowledgements(self: BatchSender, now_ms: int, request: Any, answer: Any) -> None:
        trace.count("produce ACKED", len(answer.partitions))
        on_acknowledgements(self, now_ms, request, answer)

    def counting_coordinator(api_key: int, error_code: int, **rest: Any) -> Any:
        found = of_coordinator(api_key, error_code, **rest)
        trace.count(f"{APIS[api_key].name} {found.name}")
        return found

    with (
        mock.patch.object(Transaction, "_move", counting_move),
        mock.patch.object(Sequences, "renumber_when_quiet", counting_renumber),
        mock.patch.object(Sequences, "settle_unresolved", counting_settle),
        mock.patch.object(batch_sender, "produce_outcome", counting_produce),
        mock.patch.object(BatchSender, "_on_acknowledgements", counting_acknowledgements),
        mock.patch.object(transaction_requests, "coordinator_outcome", counting_coordinator),
    ):
        yield
