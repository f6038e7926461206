"""A replay of dead letters: which letters become records again, in which transactions, and where the next run goes on.

Each transaction has some records and, in the ledger, the progress (replay_progress.py). There is no other state: a run
begins where the last committed transaction ended. Letters that are left out move the progress on, too, but are no
reason for a transaction of their own before the end of their partition.

Progress that was copied from another cluster with its ledger is refused: it counts offsets that are not those of this
cluster, and its records may be here, too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import mmh3

from kafka_sink.commit.command_texts import CommandTexts
from kafka_sink.commit.replay_progress import ReplayProgress
from kafka_sink.errors import ConfigError, foreign_text
from kafka_sink.errors.table.commits import REPLAY_WRONG
from kafka_sink.formats.records.dead_letter import (
    NO_PARTITION,
    REASON,
    TOPIC,
    named_partition,
    parse_dead_letter,
    unreplayable_reason,
)
from kafka_sink.formats.records.scalar import Record

NO_LETTER = "no dead letter of this sink"
OTHER = "left out by --filter"
# A transaction is ended at this size, however few records it has.
BATCH_BYTES_MAX = 16 * 1024 * 1024
# Of the name of a replay, in the name of the one that goes on in another cluster.
NAME_KEPT, CLUSTER_KEPT = 150, 49

# Records with their offsets.
Letters = Sequence[tuple[int, Record]]


class Restored(NamedTuple):
    """`offset`: of the letter. `partition`: the one that the row has named. It had no such partition, if it `lacked`
    that. `topic`: the target of the row; empty if that is not known."""

    offset: int
    record: Record
    partition: int | None
    lacked: bool
    topic: str = ""


@dataclass(frozen=True)
class ReplayPlan:
    """`extents`: start and end offset of each partition. `others`: replays of the same letters under other names.
    `begins_anew`: earlier runs have read a topic that was deleted since."""

    progress: ReplayProgress
    extents: Mapping[int, tuple[int, int]]
    others: Sequence[ReplayProgress]
    begins_anew: bool = False

    @property
    def left_count(self) -> int:
        """An upper bound: transaction markers and aborted records count as well."""
        return sum(max(0, end - begin) for begin, end in self.extents.values())


@dataclass(frozen=True)
class ReplayStep:
    """The next letters of a partition. `progress` includes them; it is written with the records, if `is_written`."""

    records: Sequence[Restored]
    progress: ReplayProgress
    next_offset: int
    is_written: bool


@dataclass(frozen=True)
class Replay:
    """`name` is also the transactional id. `filters`: the values that a letter's details may have, by name."""

    name: str
    source: str
    target: str
    filters: Mapping[str, tuple[str, ...]]
    commands: CommandTexts = field(default=CommandTexts(), compare=False)

    def plan(
        self,
        known: Mapping[str, ReplayProgress],
        source_id: str,
        extents: Mapping[int, tuple[int, int]],
        *,
        cluster_id: str,
    ) -> ReplayPlan:
        """`known`: the progress of every replay, by name. `extents`: what is in the topic."""
        earlier = known.get(self.name)
        progress = self.resume(earlier, source_id, cluster_id=cluster_id)
        others = [
            each
            for name, each in sorted(known.items())
            if name != self.name
            and each.source == self.source
            and (_may_be_one(each.source_id, source_id) or each.is_of_another_cluster(cluster_id))
            and each.written_count
        ]
        return ReplayPlan(
            progress,
            {partition: self._extent_left(progress, partition, *extent) for partition, extent in extents.items()},
            others,
            begins_anew=earlier is not None and not _may_be_one(earlier.source_id, source_id),
        )

    def resume(self, known: ReplayProgress | None, source_id: str, *, cluster_id: str) -> ReplayProgress:
        """The progress of an earlier run, or a new one. A recreated topic has other letters; one that brokers begin or
        cease to tell the id of has the same."""
        if known is None:
            return ReplayProgress(self.name, self.source, source_id, self.target, self.filters, cluster_id=cluster_id)
        has_same_filters = {name: tuple(of) for name, of in known.filters.items()} == self.filters
        if (known.source, known.target) != (self.source, self.target) or not has_same_filters:
            raise ConfigError(
                f"replay {self.name} is one from {known.source} to {known.target}"
                f"{'' if has_same_filters else ' with other filters'}: choose another --name",
                REPLAY_WRONG,
            )
        if known.is_of_another_cluster(cluster_id):
            raise self._other_cluster_error(known, cluster_id)
        if _may_be_one(known.source_id, source_id):
            return replace(known, source_id=source_id or known.source_id, cluster_id=cluster_id or known.cluster_id)
        return self.resume(None, source_id, cluster_id=cluster_id)

    def _other_cluster_error(self, known: ReplayProgress, cluster_id: str) -> ConfigError:
        """The new name is the same each time: whoever repeats the command that this text names goes on."""
        here = re.sub(r"[^a-zA-Z0-9._-]", "-", cluster_id)[:CLUSTER_KEPT]
        command = self.commands.begin_replay(self.source, self.target, self.filters, f"{self.name[:NAME_KEPT]}-{here}")
        return ConfigError(
            f"replay {self.name} has run in the Kafka cluster {foreign_text(known.cluster_id)}, and this one is "
            f"{foreign_text(cluster_id)}: its progress came here with a copy of the ledger, and counts the letters "
            f"there. If {self.target} was copied, too, the {known.written_count} records that it has written are in "
            f"this cluster. `{command}` begins at the first letter, and writes those again: choose letters with "
            f"--filter{self.commands.hint}",
            REPLAY_WRONG,
        )

    def _extent_left(self, progress: ReplayProgress, partition: int, first: int, end: int) -> tuple[int, int]:
        read_to = progress.next_offsets.get(partition, 0)
        if read_to > end:
            # Without topic ids a topic that was created again is not told from the old one.
            raise ConfigError(
                f"{self.source}-{partition} ends at offset {end}, but earlier runs of replay {self.name} have read up "
                f"to {read_to}: the topic was created again, or its brokers have lost records. Another --name begins "
                "at its first letter",
                REPLAY_WRONG,
            )
        return max(first, read_to), end

    def steps(
        self,
        progress: ReplayProgress,
        partition: int,
        fetched: Iterable[tuple[list[tuple[int, Record]], int]],
        records_max: int,
    ) -> Iterator[ReplayStep]:
        """Of one partition, from what is fetched of it: records, each time with the next offset."""
        written = progress
        next_offset = 0
        for records, fetched_to in fetched:
            for some, next_offset in _split_transactions(records, fetched_to, records_max):
                chosen, left_out = self.split_letters(some)
                progress = _advance(progress, partition, next_offset, len(chosen), left_out)
                if chosen:
                    written = progress
                yield ReplayStep(chosen, progress, next_offset, is_written=bool(chosen))
        if progress != written:
            yield ReplayStep((), progress, next_offset, is_written=True)

    def split_letters(self, records: Letters) -> tuple[Sequence[Restored], Mapping[str, int]]:
        """The restored records, and why other letters are skipped."""
        chosen, left_out = [], Counter[str]()
        for offset, letter in records:
            found = parse_dead_letter(letter.headers)
            if found is None:
                left_out[NO_LETTER] += 1
                continue
            headers, details = found
            is_wanted = all(details.get(name) in wanted for name, wanted in self.filters.items())
            reason = unreplayable_reason(details) if is_wanted else OTHER
            if reason is not None:
                left_out[reason] += 1
            else:
                record = replace(letter, headers=headers)
                lacked = details.get(REASON) == NO_PARTITION
                chosen.append(Restored(offset, record, named_partition(details), lacked, details.get(TOPIC, "")))
        return chosen, left_out


def _may_be_one(one_id: str, other_id: str) -> bool:
    """Of two topics with one name. Brokers that know no topic ids tell none: then only the offsets tell them apart."""
    return not one_id or not other_id or one_id == other_id


def default_name(source: str, target: str, filters: Mapping[str, tuple[str, ...]]) -> str:
    """The same for the same arguments, so that repeating the command continues."""
    arguments = repr((source, target, sorted(filters.items())))
    return f"replay-{mmh3.hash128(arguments.encode()) >> 64:016x}"


def _advance(
    progress: ReplayProgress, partition: int, next_offset: int, written: int, left_out: Mapping[str, int]
) -> ReplayProgress:
    return replace(
        progress,
        next_offsets={**progress.next_offsets, partition: next_offset},
        written_count=progress.written_count + written,
        left_out=dict(Counter(progress.left_out) + Counter(left_out)),
    )


def _split_transactions(
    records: list[tuple[int, Record]], next_offset: int, records_max: int
) -> Iterator[tuple[list[tuple[int, Record]], int]]:
    """At most `records_max` of them at a time, each time with the next offset."""
    some: list[tuple[int, Record]] = []
    byte_count = 0
    for offset, record in records:
        if len(some) >= records_max or byte_count >= BATCH_BYTES_MAX:
            yield some, offset
            some, byte_count = [], 0
        some.append((offset, record))
        byte_count += len(record.key or b"") + len(record.value or b"")
    yield some, next_offset
