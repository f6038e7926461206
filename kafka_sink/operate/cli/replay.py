"""`pykafka-sink replay`: restores the original records from dead letters and writes them to a topic, exactly once.

Each transaction contains some records and, in the ledger, the progress of the replay (commit/replay_progress.py).
There is no other state: the next run resumes an interrupted one.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import mmh3

from kafka_sink.commit.admin.ledger_topic import LEDGER_PARTITION, PlainLedger, check_ledger_topic
from kafka_sink.commit.admin.topic_reader import PartitionReader
from kafka_sink.commit.admin.topics import TopicState, topic_state
from kafka_sink.commit.identity import check_sink_id
from kafka_sink.commit.replay_progress import RUN_PREFIX, ReplayListing, ReplayProgress, encode_progress
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.errors import ConfigError, DataError, KafkaSinkError, OperationTimeout, copy_error
from kafka_sink.errors.table.commits import REPLAY_IN_DOUBT, REPLAY_WRONG
from kafka_sink.formats.records.dead_letter import REASON, parse_dead_letter, unreplayable_reason
from kafka_sink.formats.records.scalar import Record
from kafka_sink.kafka.client.cluster import NO_TOPIC_ID
from kafka_sink.operate.cli.brokers import producer_options
from kafka_sink.operate.cli.report import DONE, Report, confirm, table
from kafka_sink.operate.cli.sink_client import ClusterSession, NotAnswered
from kafka_sink.operate.cli.streams import StatusLine, print_error
from kafka_sink.options import ProducerOptions
from kafka_sink.options.values import TOPIC_NAME
from kafka_sink.producer.producer import Producer

FILTERS = ("reason", "topic", "partition", "row", "query.id", "batch.id", "spark.partition")
NO_LETTER = "no dead letter of this sink"
OTHER = "left out by --filter"
TOLD_EVERY_S = 5.0
# How long a run that ends by an error or by Ctrl-C waits for the abort of its transaction.
ABORT_S = 5.0
# A transaction is ended at this size, whatever --batch-size is.
BATCH_BYTES_MAX = 16 * 1024 * 1024


@dataclass(frozen=True)
class Plan:
    """The plan of a run. `extents`: start and end offset of each partition."""

    progress: ReplayProgress
    extents: Mapping[int, tuple[int, int]]
    others: Sequence[ReplayProgress]

    @property
    def left_count(self) -> int:
        """An upper bound: transaction markers and aborted records count as well."""
        return sum(max(0, end - begin) for begin, end in self.extents.values())

    def lines(self) -> list[str]:
        progress = self.progress
        wanted = " and ".join(f"{name} is {' or '.join(of)}" for name, of in sorted(progress.filters.items()))
        letters = f"dead letters of {progress.source}{f' whose {wanted}' if wanted else ''}"
        lines = [
            f"Replay {progress.name}: {letters} become records of {progress.target}.",
            f"Up to {self.left_count} are left to look at, in {len(self.extents)} partitions.",
        ]
        if progress.seen_count:
            left_out = progress.seen_count - progress.written_count
            lines.append(
                f"Earlier runs have written {progress.written_count} and left out {left_out}; those are not looked at "
                "again."
            )
        lines += [
            f"Another replay of the same letters has written {other.written_count} to {other.target} "
            f"({other.name}): what both choose is written by both."
            for other in self.others
        ]
        return [*lines, "Each record has the key, value, headers and timestamp of its row; the letters stay."]


class ReplaySession(ClusterSession):
    def __init__(self, given: argparse.Namespace) -> None:
        self.source = TOPIC_NAME.parse("--from", given.source)
        self.target = TOPIC_NAME.parse("--to", given.target)
        if len({self.source, self.target, given.ledger_topic}) < 3:
            raise ConfigError(
                "--from, --to and --ledger-topic have to be three topics: the records would be among their own "
                "letters, or be taken for decisions",
                REPLAY_WRONG,
            )
        self.filters = filters_of(given.filter)
        if given.name is not None:
            self.name = check_sink_id(given.name, "--name")
        else:
            # The same for the same arguments, so that repeating the command continues.
            told = repr((self.source, self.target, sorted(self.filters.items())))
            self.name = f"replay-{mmh3.hash128(told.encode()) >> 64:016x}"
        self.batch_size: int = given.batch_size
        super().__init__(given, producer_options(given))

    # ---- reading ---------------------------------------------------------------------------------------------------

    def plan(self) -> Plan:
        self.client.reach(self._patience_ms)
        source = self._existing_topic("--from", self.source)
        self._existing_topic("--to", self.target)
        source_id = "" if source.topic_id == NO_TOPIC_ID else source.topic_id.hex()
        known = {} if topic_state(self.client, self.ledger_topic) is None else self.list_replays()
        progress = self.resume(known.get(self.name), source_id)
        extents = {partition: self._extent(partition, progress) for partition in range(len(source.replicas))}
        others = [
            each
            for name, each in sorted(known.items())
            if name != self.name and (each.source, each.source_id) == (self.source, source_id) and each.written_count
        ]
        return Plan(progress, extents, others)

    def resume(self, known: ReplayProgress | None, source_id: str) -> ReplayProgress:
        """The progress of an earlier run, or a new one. A recreated topic has other letters."""
        if known is not None and known.source_id == source_id:
            same = (known.source, known.target, {name: tuple(of) for name, of in known.filters.items()})
            if same != (self.source, self.target, self.filters):
                raise ConfigError(
                    f"replay {self.name} is one from {known.source} to {known.target} with other filters: choose "
                    "another --name",
                    REPLAY_WRONG,
                )
            return known
        return ReplayProgress(self.name, self.source, source_id, self.target, self.filters)

    def list_replays(self, claim_offset: int | None = None) -> dict[str, ReplayProgress]:
        """The progress of every replay in the ledger, by name."""
        settings = DeliverySettings(ledger_topic=self.ledger_topic, request_timeout_ms=self.options.request_timeout_ms)
        listing = ReplayListing(settings, claim_offset=claim_offset)
        read = self.run_step(listing, "the ledger")
        assert read.found is not None
        if claim_offset is not None and self.name in read.in_doubt:
            raise NotAnswered(
                f"the last transaction of replay {self.name} has ended, and its marker in the ledger "
                f"{self.ledger_topic} is lost: whether its records are visible is not known. Look into {self.target}, "
                "and begin another replay with --name for what is missing there",
                REPLAY_IN_DOUBT,
            )
        if self.name in read.unreadable:
            raise ConfigError(
                f"the progress of replay {self.name} cannot be read: {read.unreadable[self.name]}. If a newer release "
                "has written it, use that one; another --name begins at the first letter",
                REPLAY_WRONG,
            )
        return read.found

    def reader(self, partition: int) -> PartitionReader:
        return PartitionReader(self.client, self.source, partition, self._patience_ms)

    def _extent(self, partition: int, progress: ReplayProgress) -> tuple[int, int]:
        first, end = self.reader(partition).extent()
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

    def _existing_topic(self, option: str, name: str) -> TopicState:
        state = topic_state(self.client, name)
        if state is None:
            raise ConfigError(f"{option} {name}: there is no such topic in this cluster", REPLAY_WRONG)
        return state

    # ---- writing ---------------------------------------------------------------------------------------------------

    def run(self, plan: Plan, display: Display) -> tuple[ReplayProgress, ReplayProgress]:
        """The progress before and after. That of the plan may be older: another run may have gone on meanwhile."""
        check_ledger_topic(self.client, PlainLedger(self.ledger_topic))
        if not self.options.enable_idempotence:
            raise ConfigError(
                "a replay writes in transactions: leave enable.idempotence, acks and retries as they are", REPLAY_WRONG
            )
        with _Writer(replace(self.options, transactional_id=self.name), self.ledger_topic) as writer:
            claim_offset = writer.claim(self.name)
            progress = before = self.resume(self.list_replays(claim_offset).get(self.name), plan.progress.source_id)
            for partition, (planned, end) in plan.extents.items():
                begin = max(planned, progress.next_offsets.get(partition, 0))
                progress = self._replay_partition(writer, progress, partition, begin, end, display)
        return before, progress

    def _replay_partition(
        self, writer: _Writer, progress: ReplayProgress, partition: int, begin: int, end: int, display: Display
    ) -> ReplayProgress:
        committed = progress
        for records, next_offset in self.reader(partition).read(begin, end):
            for part, part_end in _split_parts(records, next_offset, self.batch_size):
                chosen, left_out = self.split_letters(part)
                progress = _advance(progress, partition, part_end, len(chosen), left_out)
                if chosen:
                    writer.write(chosen, self.target, progress)
                    committed = progress
                display.show_progress(progress, partition, part_end)
        if progress != committed:
            writer.write([], self.target, progress)
        return progress

    def split_letters(
        self, records: Sequence[tuple[int, Record]]
    ) -> tuple[list[tuple[int, Record]], Mapping[str, int]]:
        """The restored records, each with its letter's offset; and why other letters are skipped."""
        chosen, left_out = [], Counter[str]()
        for offset, letter in records:
            found = parse_dead_letter(letter.headers)
            if found is None:
                left_out[NO_LETTER] += 1
                continue
            headers, about = found
            is_wanted = all(about.get(name) in wanted for name, wanted in self.filters.items())
            reason = unreplayable_reason(about) if is_wanted else OTHER
            if reason is not None:
                left_out[reason] += 1
            else:
                chosen.append((offset, replace(letter, headers=headers)))
        return chosen, left_out


class _Writer:
    def __init__(self, options: ProducerOptions, ledger_topic: str) -> None:
        self._producer = Producer(options)
        self._ledger_topic = ledger_topic

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        """A transaction that is open is aborted, unless the brokers are silent: the next run aborts it, too."""
        with suppress(OperationTimeout):
            self._producer.close(None if error is None else ABORT_S)

    def claim(self, name: str) -> int:
        """Fences every other run of this replay; returns the offset of a claim record after all of theirs."""
        self._producer.init_transactions()
        self._producer.begin_transaction()
        future = self._producer.send(self._ledger_topic, b"{}", RUN_PREFIX + name, partition=LEDGER_PARTITION)
        self._producer.commit_transaction()
        offset = future.result().offset
        if offset < 0:
            raise NotAnswered(
                f"the ledger {self._ledger_topic} was not available: a record of this run was acknowledged without its "
                "offset, so what earlier runs have written there cannot be read"
            )
        return offset

    def write(self, records: Sequence[tuple[int, Record]], topic: str, progress: ReplayProgress) -> None:
        self._producer.begin_transaction()
        for offset, record in records:
            self._send(offset, record, topic)
        value = encode_progress(replace(progress, wall_ms=int(time.time() * 1000)))
        self._producer.send(self._ledger_topic, value, progress.ledger_key, partition=LEDGER_PARTITION)
        self._producer.commit_transaction()

    def _send(self, offset: int, record: Record, topic: str) -> None:
        # Bytes of a name that are no text, which the sink refuses and another client may have written, become "?".
        headers = [(name.encode(errors="replace").decode(), said) for name, said in record.headers]
        # -1 is for a record of an old format without a timestamp.
        timestamp_ms = record.timestamp_ms if record.timestamp_ms >= 0 else None
        try:
            self._producer.send(topic, record.value, record.key, headers, timestamp_ms)
        except DataError as error:
            raise copy_error(error, f"the letter at offset {offset} cannot be written to {topic}: {error}") from error


def _advance(
    progress: ReplayProgress, partition: int, next_offset: int, written: int, left_out: Mapping[str, int]
) -> ReplayProgress:
    return replace(
        progress,
        next_offsets={**progress.next_offsets, partition: next_offset},
        written_count=progress.written_count + written,
        left_out=dict(Counter(progress.left_out) + Counter(left_out)),
    )


def _split_parts(
    records: list[tuple[int, Record]], next_offset: int, size: int
) -> Iterator[tuple[list[tuple[int, Record]], int]]:
    """At most `size` of them at a time, each with the next offset."""
    part: list[tuple[int, Record]] = []
    byte_count = 0
    for offset, record in records:
        if len(part) >= size or byte_count >= BATCH_BYTES_MAX:
            yield part, offset
            part, byte_count = [], 0
        part.append((offset, record))
        byte_count += len(record.key or b"") + len(record.value or b"")
    yield part, next_offset


# ---- selection -------------------------------------------------------------------------------------------------------


def filters_of(pairs: Sequence[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, value in pairs:
        if name not in FILTERS:
            raise ConfigError(f"--filter {name}=...: letters can be chosen by {', '.join(FILTERS)}", REPLAY_WRONG)
        found[name] = (*found.get(name, ()), value)
    return {name: tuple(sorted(set(found[name]))) for name in sorted(found)}


# ---- the command -----------------------------------------------------------------------------------------------------


def replay(session: ReplaySession, given: argparse.Namespace) -> Report:
    plan = session.plan()
    if given.dry_run:
        return _dry_run(session, plan)
    if not plan.left_count:
        return _report(plan.progress, plan.progress, "nothing is left to look at")
    print_error("\n".join(plan.lines()))
    confirm(given, [])
    with Display(plan, is_silent=given.json) as display:
        try:
            before, after = session.run(plan, display)
        except KafkaSinkError as error:
            hint = "what is committed stays; the same command goes on from there"
            raise copy_error(error, f"{error} ({hint})") from error
    return _report(before, after, "done")


def _dry_run(session: ReplaySession, plan: Plan) -> Report:
    """Reads all letters and writes nothing: counts them by reason."""
    chosen_count, left_out, reasons = 0, Counter[str](), Counter[str]()
    for partition, (begin, end) in plan.extents.items():
        for records, _ in session.reader(partition).read(begin, end):
            chosen, others = session.split_letters(records)
            chosen_count += len(chosen)
            left_out.update(others)
            reasons.update(
                found[1].get(REASON, "")
                for found in (parse_dead_letter(letter.headers) for _, letter in records)
                if found
            )
    content = {
        **_content(plan.progress),
        "would_write": chosen_count,
        "would_leave_out": dict(sorted(left_out.items())),
        "reasons": dict(sorted(reasons.items())),
    }
    lines = [*plan.lines(), "", *table(("REASON", "LETTERS"), sorted(reasons.items()))] if reasons else plan.lines()
    lines += ["", f"{chosen_count} would be written to {session.target}; nothing was."]
    return Report(DONE, content, [*lines, *(f"{count} left out: {why}" for why, count in sorted(left_out.items()))])


def _report(before: ReplayProgress, after: ReplayProgress, word: str) -> Report:
    written = after.written_count - before.written_count
    left_out = Counter(after.left_out)
    left_out.subtract(before.left_out)
    lines = [f"{word}: {written} records written to {after.target}, {after.written_count} with those of earlier runs"]
    lines += [f"{count} letters left out: {why}" for why, count in sorted(left_out.items()) if count]
    content = {**_content(after), "written_now": written, "left_out_now": {k: n for k, n in left_out.items() if n}}
    return Report(DONE, content, lines)


def _content(progress: ReplayProgress) -> dict[str, object]:
    return {
        "name": progress.name,
        "from": progress.source,
        "to": progress.target,
        "filters": {name: list(wanted) for name, wanted in progress.filters.items()},
        "written": progress.written_count,
        "left_out": dict(sorted(progress.left_out.items())),
        "next_offsets": {str(partition): offset for partition, offset in sorted(progress.next_offsets.items())},
    }


class Display(StatusLine):
    def __init__(self, plan: Plan, *, is_silent: bool) -> None:
        super().__init__(is_silent=is_silent, lines_every_s=TOLD_EVERY_S)
        self._extents = plan.extents
        self._left_count = max(1, plan.left_count)
        self._at = {partition: begin for partition, (begin, _) in plan.extents.items()}
        self._written_before = plan.progress.written_count
        self._started_s = time.monotonic()

    def show_progress(self, progress: ReplayProgress, partition: int, next_offset: int) -> None:
        self._at[partition] = next_offset
        seen = sum(at - self._extents[which][0] for which, at in self._at.items())
        written = progress.written_count - self._written_before
        rate = written / max(0.001, time.monotonic() - self._started_s)
        self.show(f"{seen * 100 // self._left_count:3d} %  {written} written  {rate:,.0f} records/s")
