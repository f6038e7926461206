"""Spark's checkpoint of one query: which batches are planned, which are committed; and how users set it back.

It may be set back by any number of batches, as with a backup that is restored. Then Spark plans these batches again:
with the same rows, or with others if the source has moved on. When the sink refuses that, the newer checkpoint is
restored, as the text of the error advises.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from kafka_sink.commit.receipt import BatchKey
from tests.sim.delivery.books import Batch
from tests.sim.delivery.breakers import UNNAMED
from tests.sim.delivery.plan import LABELLED

if TYPE_CHECKING:
    from tests.sim.delivery.stage import Stage

EMPTY_SHARE = 0.15
SAME_ROWS_SHARE = 0.35
# The number of batches it is set back by, at most. With 0, a planned batch that is not committed is planned again.
STEPS_BACK = (0, 1, 1, 1, 2, 3, 100)


class Checkpoint:
    def __init__(self, query_id: str, stage: Stage, batches_max: int) -> None:
        self.query_id = query_id
        self.batches_max = batches_max
        self.batches: list[Batch] = []
        # The checkpoint before it was set back, as long as it may have to be restored.
        self.saved: list[tuple[Batch, bool]] | None = None
        self.refusals = 0
        self._stage = stage
        self._again: list[Batch] = []
        self._source: Random = stage.dice["source" if query_id == stage.first_query_id else f"source {query_id}"]

    @property
    def is_finished(self) -> bool:
        return len(self.batches) == self.batches_max and all(batch.is_committed for batch in self.batches)

    def next_batch(self) -> Batch | None:
        """The first batch that Spark has not committed, or a newly planned one if the source has more rows."""
        waiting = next((batch for batch in self.batches if not batch.is_committed), None)
        if waiting is not None or len(self.batches) >= self.batches_max:
            return waiting
        batch = self._again.pop(0) if self._again else self._planned(len(self.batches))
        self.batches.append(batch)
        self._stage.note(f"planned {batch} with {batch.row_count} rows")
        return batch

    def _planned(self, number: int) -> Batch:
        pick = self._source
        is_empty = not self._stage.is_healed and pick.random() < EMPTY_SHARE
        return self._new(number, 0 if is_empty else pick.randint(1, self._stage.plan.rows_max))

    def _new(self, number: int, row_count: int) -> Batch:
        books, key = self._stage.books, self._key(number)
        generation = 0 if self._stage.plan.kind == UNNAMED else len(books.generations(key))
        has_fixed_topics = bool(self._stage.plan.breakers)
        batch = Batch(key, number, row_count, generation, has_fixed_topics=has_fixed_topics)
        books.batches.append(batch)
        return batch

    def _key(self, number: int) -> BatchKey:
        kind = self._stage.plan.kind
        if kind == UNNAMED:
            return BatchKey("", "")
        return BatchKey("", f"{self.query_id}-{number}") if kind == LABELLED else BatchKey(self.query_id, number)

    # ---- other rows under the same name ----

    def with_other_rows(self, batch: Batch, *, row_count: int | None = None) -> Batch:
        """A user writes other rows under a name that already stands for a batch."""
        count = self._source.randint(1, self._stage.plan.rows_max) if row_count is None else row_count
        batch.set_back_count += 1
        return self._new(batch.number, count)

    def renewed(self, batch: Batch) -> Batch:
        """A write without a name is tried again: nothing connects it with the first one."""
        other = self._new(batch.number, batch.row_count)
        self.batches[self.batches.index(batch)] = other
        return other

    # ---- set back ----

    def set_back(self, pick: Random) -> bool:
        is_lossy = any(not loss.is_resolved for batch in self.batches for loss in batch.losses)
        if self.saved is not None or not self.batches or is_lossy:
            return False
        committed = [batch for batch in self.batches if batch.is_committed]
        steps = min(pick.choice(STEPS_BACK), len(committed))
        kept = committed[: len(committed) - steps]
        gone = self.batches[len(kept) :]
        if not gone:
            return False
        self.saved, self.refusals = [(batch, batch.is_committed) for batch in self.batches], 0
        has_same_rows = pick.random() < SAME_ROWS_SHARE
        for batch in gone:
            batch.is_committed = False
            batch.set_back_count += 1
        self.batches = kept
        self._again = list(gone) if has_same_rows else []
        what = "the same rows" if has_same_rows else "other rows"
        self._stage.note(f"checkpoint of {self.query_id} is set back by {steps} batches, {what}")
        self._stage.count(f"checkpoint set back by {min(steps, 3)}{' or more' if steps > 2 else ''}, {what}")
        return True

    def on_refused(self) -> bool:
        """Returns True if the batch was refused often enough that the newer checkpoint is restored."""
        if self.saved is None:
            return False
        self.refusals += 1
        if self.refusals < 2:
            return False
        for batch, was_committed in self.saved:
            batch.is_committed = batch.is_committed or was_committed
        self.batches, self.saved, self._again = [batch for batch, _ in self.saved], None, []
        self._stage.note(f"the newer checkpoint of {self.query_id} is put back")
        self._stage.count("checkpoint put back")
        return True

    def on_went_on(self, batch: Batch) -> None:
        """A query that has passed the last batch of the newer checkpoint does not need it any more."""
        if self.saved is not None and batch.number >= self.saved[-1][0].number:
            self.saved = None
