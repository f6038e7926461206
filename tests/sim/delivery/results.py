"""The result of the driver's machine on each operation is counted, recorded in the books and checked at once.

The text of a CommitLost is parsed: it names Spark partitions, the ledger says which transactions those are, and a loss
is accepted only if the coordinator has aborted each of them, after its time-out or because an operator asked for it.
"Another driver" is accepted only if another run has claimed the ledger since.
"""

from __future__ import annotations

import re
from random import Random
from typing import NamedTuple

from kafka_sink.commit.identity import Line, code_of_run
from kafka_sink.commit.ledger import Kind
from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.commit.session import CommitResult, Conclusion, DriverOperation
from kafka_sink.errors import CommitAborted, CommitLost, CommitPending, KafkaSinkError
from kafka_sink.testing import BrokerCluster
from tests.sim.delivery.assumptions import Assumptions
from tests.sim.delivery.books import Attempt, Batch, Books, Loss
from tests.sim.delivery.claims import Claims
from tests.sim.delivery.ledger_log import newest_of
from tests.sim.loop import Loop
from tests.sim.trace import Trace, Violation

_COUNTS = re.compile(r"(\d+) of (\d+)(?: transactions)? are committed")
_LOST = re.compile(r"Not committed, rows not visible: (\d+) rows of (.*?\))\. ")
_UNREAD, _NOT_COMMITTED = "Ended in a way that can no longer be read: ", "Not committed, rows not visible: "
_SLOT = re.compile(r"Spark partition (\d+) \((\d+) rows")
# The text if the driver's own epoch was refused; not if its time was up before it knew what the refusal meant.
_REPLACED = re.compile(
    r"has taken over \((?!its last)|epoch was refused again and again|"
    r"could not be (?:updated|written): (?!no time left).*\((?:47|49|90)\)"
)
# The text if a batch is repeated: behind a newer one, or with other rows.
_OTHER_ROWS = "comes again with other rows"
_REFUSED = re.compile(rf"has been rolled back|{_OTHER_ROWS}")
_EARLIER = "was decided earlier and is not finished"
_DROPPED = "the rows of the repetition were not written"
# The text if two attempts have begun a transaction under one id; no row is lost, but the batch must be repeated.
SHARED_ID = "somebody else uses the id"
REPLAY_SHARE = 0.5


class Asked(NamedTuple):
    """One operation: what was requested, by which run, for which batch."""

    operation: DriverOperation
    line: Line
    run: str
    batch: Batch | None
    receipts: list[TaskReceipt]


class Results:
    def __init__(
        self, books: Books, core: BrokerCluster, loop: Loop, trace: Trace, operator: Random,
        assumptions: Assumptions, claims: Claims, *, is_skipping: bool,
    ) -> None:  # fmt: skip
        self.is_skipping = is_skipping
        self.books = books
        self.core = core
        self.loop = loop
        self.trace = trace
        self.assumptions = assumptions
        self.claims = claims
        self._operator = operator

    def on_result(self, asked: Asked, result: CommitResult) -> None:
        error, operation = result.error, asked.operation
        title = result.conclusion.value if error is None else type(error).__name__
        self.trace.count(f"{operation.value}: {title}")
        self.trace.note(self.loop.now_ms, f"ended {operation.value} {asked.batch}: {title} {error or ''}")
        self._count_details(result)
        if (error is None) != (result.conclusion is not Conclusion.FAILED):
            raise Violation("I13", f"{operation.value} ended with {result.conclusion.value} and the error {error}")
        if error is not None:
            self._check_replaced(asked, str(error))
            self._check_refused(asked, str(error))
            if SHARED_ID in str(error):
                raise Violation("I19", f"{operation.value} of {asked.batch}: {error}")
            self._check_label(asked, error)
        if isinstance(error, CommitLost):
            self._on_lost(asked, error)
        elif isinstance(error, CommitAborted):
            if operation is DriverOperation.COMMIT:
                self.books.forbid(asked.receipts, f"commit of {asked.batch} said: {error}")
        elif error is not None and not isinstance(error, CommitPending):
            raise Violation("I13", f"{operation.value} raised {type(error).__name__}: {error}")
        elif result.conclusion is Conclusion.ABORTED:
            self.books.forbid(asked.receipts, f"abort of {asked.batch} said so")

    def _check_replaced(self, asked: Asked, text: str) -> None:
        """I16: only another run of a query may end it, never another process of its own run."""
        found = _REPLACED.search(text)
        if asked.line.driver_id in self.assumptions.lied_about:
            return  # a coordinator that repeats a wrong answer for seconds is believed in the end
        if found is not None and not self.claims.has_successor(
            Line(asked.line.sink_id, code_of_run(asked.run)), asked.run
        ):
            raise Violation("I16", f"{asked.operation.value} of {asked.batch} ended although nobody took over: {text}")

    def _check_label(self, asked: Asked, error: KafkaSinkError) -> None:
        """A batch write fails because of itself, and of no other one."""
        if asked.batch is None or not asked.batch.key.is_label:
            return
        about = getattr(error, "batch_id", None)
        if about not in (None, asked.batch.key.batch_id) or _EARLIER in str(error):
            raise Violation("I16", f"{asked.operation.value} of {asked.batch} ended because of another one: {error}")

    def on_delivered(self, batch: Batch, result: CommitResult) -> None:
        """For a repetition that was not written again: if its rows were others, a warning must say so."""
        for loss in batch.losses:
            if not (loss.is_resolved or loss.committed) and self.assumptions.lost_markers:
                # The record of the loss has lost its marker, too, and nothing was visible: the batch was written again.
                loss.is_replayed = True
                self.on_resolved(loss)
        if result.conclusion is not Conclusion.ALREADY_DELIVERED or batch.must_be_there:
            return
        said = next((note for note in result.notes if _DROPPED in note), None)
        if said is not None:
            self.trace.count("commit: other rows under the same batch id, with a warning")
        if len(self.books.generations(batch.key)) > 1 and (said or self.is_skipping):
            batch.excuse = said or "replay.mismatch=skip"

    @staticmethod
    def is_refusal(text: str) -> bool:
        return _REFUSED.search(text) is not None

    def _check_refused(self, asked: Asked, text: str) -> None:
        """I18: a repetition with the same rows is not refused, neither for its rows nor for an old checkpoint."""
        if not self.is_refusal(text) or asked.batch is None or (asked.batch.is_committed and _OTHER_ROWS not in text):
            return  # it is no refusal, or another driver on the same checkpoint has gone on
        key = asked.batch.key
        others = [
            batch for batch in self.books.batches if batch.key.query_id == key.query_id and batch is not asked.batch
        ]
        if _OTHER_ROWS in text:
            others = [batch for batch in others if batch.key == key]
        if not others or (asked.batch.set_back_count == 0 and not any(batch.set_back_count for batch in others)):
            raise Violation("I18", f"{asked.batch} was refused although its checkpoint was never set back: {text}")

    def _count_details(self, result: CommitResult) -> None:
        text = str(result.error or "")
        for what, words in _DETAILS.items():
            if words in text:
                self.trace.count(what)
        if result.swept:
            self.trace.count("dangling transactions swept", len(result.swept))
        for note in result.notes:
            self.trace.count(
                f"note: {re.split('[:,]', note)[0][:40]}" if "transaction sink" not in note else "left open"
            )

    # ---- losses ----

    def _on_lost(self, asked: Asked, error: CommitLost) -> None:
        key = BatchKey(error.query_id or "", error.batch_id)  # type: ignore[arg-type]  # a loss names its batch
        if self._was_resolved_meanwhile(key, str(error)):
            self.trace.count("a loss is told again after its choice")
            return
        lost, committed = self._named(key, str(error), error.sink_id or "")
        batch = self.books.attempts[next(iter(lost))].batch
        for known in batch.losses:
            if (known.lost, known.committed) == (lost, committed):
                known.said_count += 1
                # The record of the choice has lost its marker: the choice must be made again.
                known.is_resolved = known.is_resolved and not self.assumptions.lost_markers
                return
        for known in batch.losses:
            if not known.is_resolved and not self._may_be_forgotten(known):
                raise Violation("I13", f"{batch} was lost otherwise before: {error}")
            known.is_replayed, known.is_resolved = known.is_replayed or not known.is_resolved, True
        if self._may_be_unread(str(error)):
            self.trace.count("a loss of which the log does not tell all")
        else:
            self._check_ended(lost, str(error))
        self.trace.count("all of a batch lost" if not committed else "part of a batch lost")
        is_replayed = key.is_named and self._operator.random() < REPLAY_SHARE
        if not key.is_named:
            self.trace.count("a write without a label is lost in part")
        # Nobody writes a write without a label again, so nobody has to choose.
        is_resolved = not key.is_named
        batch.losses.append(Loss(batch, lost, committed, is_replayed, self.loop.now_ms, is_resolved=is_resolved))

    def _may_be_forgotten(self, loss: Loss) -> bool:
        """Without the marker of its intent, a decision of which nothing was committed looks as if it had never been
        made: then the batch is written again, and that may be lost, too."""
        return bool(self.assumptions.lost_markers) and not loss.committed

    def _may_be_unread(self, text: str) -> bool:
        """A refused batch whose intent has lost its marker, and one of whose partitions has lost its end: behind the
        rows that its intent names there is no marker then. That it was never decided, nothing tells."""
        return _UNREAD in text and bool(self.books.lost_records and self.assumptions.lost_markers)

    def _check_ended(self, lost: frozenset[str], text: str) -> None:
        surprising = sorted(name for name in lost if not self._was_aborted(self.books.attempts[name]))
        if surprising:
            raise Violation("I13", f"{surprising} are said to be lost, but nobody has aborted them: {text}")

    def _was_aborted(self, attempt: Attempt) -> bool:
        assert attempt.receipt is not None and attempt.receipt.transaction is not None
        told = attempt.receipt.transaction
        exact = (told.transactional_id, told.producer_id, told.producer_epoch)
        return exact in self.books.timed_out or exact in self.books.ended_by_others

    def _was_resolved_meanwhile(self, key: BatchKey, text: str) -> bool:
        """A driver that read the ledger and was paused reports a loss for which a choice was made meanwhile.

        The record of the choice has no transactions, and compaction has removed the one that had them.
        """
        if newest_of(self.core, key, self.assumptions.lost_markers, with_entries=True) is not None or not key.is_named:
            return False
        slots = _LOST.search(text)
        named = {int(one[1]) for one in _SLOT.finditer(slots[2])} if slots else set()
        return any(
            loss.is_resolved and {self.books.attempts[name].spark_partition for name in loss.lost} == named
            for batch in self.books.generations(key)
            for loss in batch.losses
        )

    def _named(self, key: BatchKey, text: str, sink_id: str) -> tuple[frozenset[str], frozenset[str]]:
        """The attempts that the text names, after checking its figures."""
        record = newest_of(self.core, key, self.assumptions.lost_markers, sink_id, with_entries=True)
        plain = text.replace(_UNREAD, _NOT_COMMITTED) if self._may_be_unread(text) else text
        counts, told = _COUNTS.search(text), list(_LOST.finditer(plain))
        if record is None or counts is None or not told or _UNREAD in plain:
            raise Violation("I13", f"a loss of {key} that cannot be understood: {text}")
        named = {int(one[1]): int(one[2]) for slots in told for one in _SLOT.finditer(slots[2])}
        attempts = {
            entry.spark_task: self.books.prepared[
                record.transactional_id(entry), entry.producer_id, entry.producer_epoch
            ]
            for entry in record.entries
        }
        lost = frozenset(attempts[partition].name for partition in named)
        committed = frozenset(attempt.name for attempt in attempts.values()) - lost
        rows = {partition: len(attempts[partition].rows) for partition in named}
        if rows != named or sum(named.values()) != sum(int(slots[1]) for slots in told):
            raise Violation("I13", f"{key}: the text names {named}, the lost tasks had {rows} rows: {text}")
        if (int(counts[1]), int(counts[2])) != (len(committed), len(attempts)):
            raise Violation("I13", f"{key}: {len(committed)} of {len(attempts)} are committed: {text}")
        return lost, committed

    def open_loss(self, key: BatchKey) -> Loss | None:
        """The loss that stops every write of this batch."""
        return next(
            (loss for batch in self.books.generations(key) for loss in batch.losses if not loss.is_resolved), None
        )

    def on_planned(self, query_id: str) -> None:
        """Planning does not know its query, so it stops none because of a loss; the commit does. But if the choice was
        recorded and only the answer to the operator came too late, the loss is resolved."""
        for batch in self.books.batches:
            for loss in batch.losses if batch.key.query_id in ("", query_id) else ():
                if not loss.is_resolved and self.is_resolved_in_ledger(loss):
                    self.on_resolved(loss)

    def is_resolved_in_ledger(self, loss: Loss) -> bool:
        newest = newest_of(self.core, loss.key, self.assumptions.lost_markers)
        return newest is not None and (newest.kind is Kind.REPLAY or newest.is_accepted)

    def on_resolved(self, loss: Loss) -> None:
        loss.is_resolved = True
        self.trace.count("lost batch is run again" if loss.is_replayed else "lost batch was accepted")


_DETAILS = {
    "commit: fenced by another driver": "has taken over (",
    "commit: a newer run took over": "a newer run of sink",
    "commit: checkpoint rolled back": "has been rolled back",
    "commit: other rows under the same batch id": _OTHER_ROWS,
    "commit: ledger does not know the sink": "has no record of sink",
    "commit: transaction timed out before the decision": "instead of Ongoing",
    "commit: a partition is not in the transaction any more": "any more, which its task has written to",
    "commit: a part of the transaction is closed": "that part was",
    "commit: acknowledged rows are lost": "have lost acknowledged rows",
    "commit: too little time left": "before it times out",
    "commit: deadline before the decision": "too little time is left",
    "commit: decision in doubt": "whether the decision to commit it was written",
    "commit: done not recorded": "but the ledger could not be updated",
    "commit: another batch is pending": "was decided earlier and is not finished",
    "commit: decided and pending": "are not known to be committed yet",
}
