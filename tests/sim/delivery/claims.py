"""Which runs claimed the ledger and which decided there, read from its log. It shows whether another run or only a
process of the same run ended a query, and whether a run that was taken over still decides.

Claims are noted when they are appended, since a claim that was compacted, or lost with its leader, counts as well.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from kafka_sink.commit.identity import Line, code_of_run
from kafka_sink.commit.ledger import line_of
from kafka_sink.commit.ledger_codec import decode_record
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.formats.records.scalar import DecodedBatch, decode_batch
from kafka_sink.testing.batches import Batch
from kafka_sink.testing.log import PartitionLog
from kafka_sink.testing.settings import TopicConfig
from tests.sim.delivery.foreign_records import COPIER
from tests.sim.delivery.plan import LEDGER
from tests.sim.trace import Violation


class SeenClaim(NamedTuple):
    line: Line
    run: str
    offset: int


class Claims:
    def __init__(self, log: PartitionLog, decided: set[tuple[str, int, int]], *, is_strict: bool) -> None:
        """`is_strict`: a run has one process, which remembers its first claim once it has acted on it. Another process,
        or one whose first claim got no answer, knows of that claim only from the ledger."""
        self._log = log
        self._is_strict = is_strict
        self.seen: list[SeenClaim] = []
        self._acted: set[str] = set()
        # Intents of runs that were taken over, by producer id: committing one is a violation.
        self._late: dict[int, str] = {}
        # Transactions of decisions: those that have a marker, and by producer id those that have none yet.
        self._decided = decided
        self._intended: dict[int, list[tuple[str, int, int]]] = {}
        store = log._store

        def noting(batch: Batch, config: TopicConfig) -> None:
            store(batch, config)
            self._look_at(decode_batch(batch.data))

        log._store = noting  # type: ignore[method-assign]

    def _look_at(self, batch: DecodedBatch) -> None:
        if batch.is_commit_marker or batch.is_abort_marker:
            intended, late = self._intended.pop(batch.producer_id, []), self._late.pop(batch.producer_id, None)
            self._decided.update(intended if batch.is_commit_marker else [])
            if late is not None and batch.is_commit_marker:
                raise Violation("I17", late)
            return
        for offset, record in zip(batch.offsets, batch.records, strict=True):
            content = _content(record.value or b"")
            if content.get("kind") == "claim":
                self.seen.append(SeenClaim(line_of_run(content), content["run"], offset))
            elif content.get("kind") == "intent" and batch.producer_id < COPIER:  # a copy decides nothing again
                run = content["run"]
                self._intended[batch.producer_id] = [one[:3] for one in decode_record(record.value or b"").transactions]
                line = line_of(content["sink"], BatchKey(content["query"], content["batch"]), LEDGER)
                if self._is_late(line, run):
                    text = f"run {run} of {line} decides batch {content['batch']}, but was taken over"
                    self._late[batch.producer_id] = text
                self._acted.add(run)

    def _is_late(self, line: Line, run: str) -> bool:
        """The run has claimed again after the first claim of a younger run, and could see that claim."""
        claims = [claim for claim in self.seen if claim.line == line]
        of_line = [claim.run for claim in claims]
        if run not in of_line:
            return False
        first, last = of_line.index(run), len(of_line) - 1 - of_line[::-1].index(run)
        between = {other for other in of_line[first:last] if other not in ("", *of_line[: first + 1])}
        if not between:
            return False
        kept = self._kept()
        is_known = (self._is_strict and run in self._acted) or (claims[first].offset, run) in kept
        return is_known and any(claim.run in between and (claim.offset, claim.run) in kept for claim in claims)

    def _kept(self) -> set[tuple[int, str]]:
        """Offset and run of each claim that is in the ledger now. The cleaner removes claims, and a leader that is lost
        takes the end of its log along, whose offsets are used again."""
        kept = set()
        for batch in self._log.batches:
            decoded = decode_batch(batch.data)
            if decoded.is_commit_marker or decoded.is_abort_marker:
                continue
            for offset, record in zip(decoded.offsets, decoded.records, strict=True):
                content = _content(record.value or b"")
                if content.get("kind") == "claim":
                    kept.add((offset, content["run"]))
        return kept

    def has_successor(self, line: Line, run: str) -> bool:
        """Whether another run has claimed the line for the first time since this one did. Any run may have overtaken
        one that never claimed. Where the cleaner has removed an older run's earlier claims, the order is unknown."""
        of_line = [claim for claim in self.seen if claim.line == line]
        runs = [claim.run for claim in of_line]
        if run not in runs:
            return any(other not in ("", run) for other in runs)
        first = runs.index(run)
        kept = self._kept()
        elders = {claim.run for claim in of_line[: first + 1] if (claim.offset, claim.run) in kept}
        return any(other not in ("", run) and other not in elders for other in runs[first:])


def line_of_run(claim: Mapping[str, str]) -> Line:
    """The line whose driver a run can be. An operator's command has no run and says which line it claims."""
    return Line(claim["sink"], code_of_run(claim["run"]) if claim["run"] else claim["line"])


def _content(value: bytes) -> dict[str, Any]:
    header, _, body = value.partition(b"\n")
    if not header.startswith(b"pykafka-sink-ledger"):
        return {}
    if header.endswith(b" zlib"):
        body = zlib.decompress(body)
    content: dict[str, Any] = json.loads(body or b"{}")
    return content
