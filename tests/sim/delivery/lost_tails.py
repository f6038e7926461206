"""Brokers lose acknowledged rows while their transaction is open (the breaker `lost_tails`).

The end of a log is gone, as after a power failure of all replicas or an unclean election, when a driver begins to
commit: before its check, and behind the last record of the batch there. What is lost after the check nobody can tell,
as exactly-once.md says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from kafka_sink.commit.receipt import TaskReceipt
from kafka_sink.testing.batches import Batch
from kafka_sink.testing.transaction_state import TopicPartition
from tests.sim.decoder import read_batch
from tests.sim.delivery.books import Books
from tests.sim.network import Network
from tests.sim.trace import Trace


class LostTails:
    def __init__(self, network: Network, trace: Trace, books: Books) -> None:
        self._network = network
        self._core = network.core
        self._trace = trace
        self._books = books
        # For the next commit.
        self._pick: Random | None = None
        self.table: dict[str, Callable[[Random, int], bool]] = {"lose_tail": self.lose_tail}

    def lose_tail(self, pick: Random, length_ms: int) -> bool:
        self._pick = pick
        return False  # counted when it happens

    def heal(self) -> None:
        self._pick = None

    def on_commit(self, receipts: Sequence[TaskReceipt]) -> None:
        pick = self._pick
        tails = {} if pick is None else self._tails_of(receipts)
        if pick is None or not tails:
            return
        self._pick = None
        torn = sorted(where for where, tail in tails.items() if _owner(tail[-1]) in map(_owner, tail[:-1]))
        # Where the last task there keeps a part of its rows only their number shows the loss.
        where, count = (pick.choice(torn), 1) if torn else (pick.choice(sorted(tails)), pick.choice((1, 2, 5)))
        lost = tails[where][-count:]
        numbers = [number for batch in lost for number in read_batch(batch.data).numbers]
        self._books.lost_records.update(numbers)
        self._trace.count("fault lose_tail")
        self._trace.note(self._core.schedule.now_ms, f"{where} loses its end from offset {lost[0].base_offset} on")
        self._core.cluster.lose_acknowledged(*where, lost[0].base_offset)
        self._network.route(self._core.tick(self._core.schedule.now_ms))

    def _tails_of(self, receipts: Sequence[TaskReceipt]) -> dict[TopicPartition, list[Batch]]:
        """Batches at the end of a log, in order, all of which these tasks have written."""
        own = {one.transaction.identity for one in receipts if one.transaction is not None}
        tails: dict[TopicPartition, list[Batch]] = {}
        for where in {(part.topic, part.partition) for one in receipts for part in one.written}:
            partition = self._core.cluster.partition(*where)
            batches = [] if partition is None else partition.log.batches
            # Without a marker: where that of a transaction is gone whose coordinator has written it, nobody ends it.
            others = (at for at, one in enumerate(reversed(batches)) if one.is_control or _owner(one) not in own)
            length = next(others, len(batches))
            if length:
                tails[where] = batches[len(batches) - length :]
        return tails


def _owner(batch: Batch) -> tuple[int, int]:
    return batch.producer_id, batch.producer_epoch
