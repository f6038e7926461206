"""What the driver's machine says at the end of each operation: counted, written into the books, checked on the spot.

A CommitLost is taken apart: its text names Spark partitions, the ledger says which transactions those are, and a loss
is believed only if the coordinator has aborted each of them by time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from random import Random

from kafka_sink.delivery.ledger import Kind
from kafka_sink.delivery.receipt import BatchKey, TaskReceipt
from kafka_sink.delivery.session import Conclusion, Operation, Verdict
from kafka_sink.errors import CommitAborted, CommitLost, CommitPending
from kafka_sink.testing import BrokerCluster
from tests.sim.delivery.books import Books, Loss
from tests.sim.delivery.ledger_log import newest_of
from tests.sim.delivery.plan import LEDGER
from tests.sim.loop import Loop
from tests.sim.trace import Trace, Violation

_COUNTS = re.compile(r"(\d+) of (\d+) are committed and visible")
_LOST = re.compile(r"Not committed, rows not visible: (\d+) rows of (.*?\))\. ")
_SLOT = re.compile(r"Spark partition (\d+) \((\d+) rows")
REPLAY_SHARE = 0.5


class Verdicts:
    def __init__(self, books: Books, core: BrokerCluster, loop: Loop, trace: Trace, operator: Random) -> None:
        self.books = books
        self.core = core
        self.loop = loop
        self.trace = trace
        self._operator = operator
        self.outdated_until_ms: Mapping[str, int] = {}

    def on_verdict(
        self, operation: Operation, key: BatchKey | None, receipts: Sequence[TaskReceipt], verdict: Verdict
    ) -> None:
        error = verdict.error
        title = verdict.conclusion.value if error is None else type(error).__name__
        self.trace.count(f"{operation.value}: {title}")
        self.trace.note(self.loop.now_ms, f"verdict {operation.value} {key}: {title} {error or ''}")
        self._count_details(verdict)
        if (error is None) != (verdict.conclusion is not Conclusion.FAILED):
            raise Violation("I13", f"{operation.value} ended with {verdict.conclusion.value} and the error {error}")
        if isinstance(error, CommitLost):
            self._on_lost(error)
        elif isinstance(error, CommitAborted):
            if operation is Operation.COMMIT:
                self.books.forbid(list(receipts), f"commit of {key} said: {error}")
        elif error is not None and not isinstance(error, CommitPending):
            raise Violation("I13", f"{operation.value} raised {type(error).__name__}: {error}")
        elif verdict.conclusion is Conclusion.ABORTED:
            self.books.forbid(list(receipts), f"abort of {key} said so")

    def _count_details(self, verdict: Verdict) -> None:
        text = str(verdict.error or "")
        for what, words in _DETAILS.items():
            if words in text:
                self.trace.count(what)
        if verdict.swept:
            self.trace.count("dangling transactions swept", len(verdict.swept))
        for note in verdict.notes:
            self.trace.count(
                f"note: {re.split('[:,]', note)[0][:40]}" if "transaction sink" not in note else "left open"
            )

    # ---- losses ----

    def _on_lost(self, error: CommitLost) -> None:
        key = BatchKey(error.query_id or "", error.batch_id)  # type: ignore[arg-type]  # a loss names its batch
        lost, committed = self._named(key, str(error))
        batch = self.books.batch(key)
        for known in batch.losses:
            if (known.lost, known.committed) == (lost, committed):
                known.said_count += 1
                return
        if any(not loss.is_resolved for loss in batch.losses):
            raise Violation("I13", f"{key} was lost otherwise before: {error}")
        surprising = sorted(lost - self.books.timed_out)
        if surprising:
            raise Violation("I13", f"{surprising} are said to be lost, but have not timed out: {error}")
        self.trace.count("all of a batch lost" if not committed else "part of a batch lost")
        is_replayed = self._operator.random() < REPLAY_SHARE
        batch.losses.append(Loss(key, lost, committed, is_replayed, self.loop.now_ms))

    def _named(self, key: BatchKey, text: str) -> tuple[frozenset[str], frozenset[str]]:
        """The transactional ids behind what the text says, after checking its figures."""
        record = newest_of(self.core, key, with_pledges=True)
        counts, slots = _COUNTS.search(text), _LOST.search(text)
        if record is None or counts is None or slots is None or "can no longer be read" in text:
            raise Violation("I13", f"a loss of {key} that cannot be understood: {text}")
        named = {int(one[1]): int(one[2]) for one in _SLOT.finditer(slots[2])}
        ids = {pledge.spark_partition: record.transactional_id(pledge) for pledge in record.pledges}
        lost = frozenset(ids[partition] for partition in named)
        committed = frozenset(ids.values()) - lost
        rows = {partition: len(self.books.attempts[ids[partition]].rows) for partition in named}
        if rows != named or sum(named.values()) != int(slots[1]):
            raise Violation("I13", f"{key}: the text names {named}, the lost tasks had {rows} rows: {text}")
        if (int(counts[1]), int(counts[2])) != (len(committed), len(ids)):
            raise Violation("I13", f"{key}: {len(committed)} of {len(ids)} are committed: {text}")
        return lost, committed

    def open_loss(self, error: CommitLost | None = None) -> Loss | None:
        """The loss that stops the query; with an error, the one that it is about."""
        return next(
            (
                loss
                for batch in self.books.batches
                for loss in batch.losses
                if not loss.is_resolved and (error is None or loss.key.batch_id == error.batch_id)
            ),
            None,
        )

    def on_planned(self, began_ms: int) -> None:
        loss = self.open_loss()
        if loss is not None and self.is_resolved_in_ledger(loss):
            # The choice was written, only the operator was not told so in time.
            self.on_resolved(loss)
        elif loss is not None and loss.since_ms <= began_ms and loss.key.query_id and self._is_ledger_sure(began_ms):
            raise Violation("I13", f"{loss.key} is lost and not resolved, but planning went well")

    def _is_ledger_sure(self, began_ms: int) -> bool:
        """Planning reads without a claim, perhaps from an outdated leader; the next commit finds what it missed."""
        return self.outdated_until_ms.get(LEDGER, -1) < began_ms

    def is_resolved_in_ledger(self, loss: Loss) -> bool:
        newest = newest_of(self.core, loss.key)
        return newest is not None and (newest.kind is Kind.REPLAY or newest.is_accepted)

    def on_resolved(self, loss: Loss) -> None:
        loss.is_resolved = True
        self.trace.count("lost batch is run again" if loss.is_replayed else "lost batch was accepted")


_DETAILS = {
    "commit: fenced by another driver": "has taken over (",
    "commit: a newer run took over": "a newer run of sink",
    "commit: checkpoint rolled back": "has been rolled back",
    "commit: ledger does not know the sink": "has no record of sink",
    "commit: transaction timed out before the decision": "instead of Ongoing",
    "commit: too little time left": "before it times out",
    "commit: deadline before the decision": "too little time is left",
    "commit: decision in doubt": "whether the decision to commit it was written",
    "commit: done not recorded": "but the ledger could not be told so",
    "commit: another batch is pending": "was decided earlier and is not finished",
    "commit: decided and pending": "are not known to be committed yet",
}
