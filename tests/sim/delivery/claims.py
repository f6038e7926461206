"""Who claimed the ledger, as its log tells: whether a query was ended by another run, or only by its own processes.

A claim that was compacted, or lost with its leader, was there all the same; so they are noted as they are appended.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from kafka_sink.records.scalar import decode_batch
from kafka_sink.testing.batches import Batch
from kafka_sink.testing.log import PartitionLog


class SeenClaim(NamedTuple):
    sink_id: str
    run: str


class Claims:
    def __init__(self, log: PartitionLog) -> None:
        self.seen: list[SeenClaim] = []
        store = log._store

        def noting(batch: Batch) -> None:
            store(batch)
            self._look_at(batch.data)

        log._store = noting  # type: ignore[method-assign]

    def _look_at(self, data: bytes) -> None:
        batch = decode_batch(data)
        if batch.producer_id >= 0:
            return
        for record in batch.records:
            content = json.loads((record.value or b"{}").partition(b"\n")[2] or b"{}")
            if content.get("kind") == "claim":
                self.seen.append(SeenClaim(content["sink"], content["run"]))

    def has_successor(self, sink_id: str, run: str) -> bool:
        """Has another run claimed the sink since this one did? Who never did may have been overtaken by anybody."""
        of_sink = [claim.run for claim in self.seen if claim.sink_id == sink_id]
        later = of_sink[of_sink.index(run) :] if run in of_sink else of_sink
        return any(other not in ("", run) for other in later)
