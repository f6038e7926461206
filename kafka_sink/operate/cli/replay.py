"""`pykafka-sink replay`: restores the original records from dead letters and writes them to a topic, exactly once
(commit/replay.py)."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from kafka_sink.commit.admin.cluster_settings import settings_of_operator
from kafka_sink.commit.admin.ledger_topic import LEDGER_PARTITION, PlainLedger, check_ledger_topic
from kafka_sink.commit.admin.topic_reader import PartitionReader
from kafka_sink.commit.admin.topics import TopicState, topic_state
from kafka_sink.commit.command_texts import CommandTexts, broker_arguments
from kafka_sink.commit.ledger_policy import CLEANUP
from kafka_sink.commit.listing import LogExtents, NotAnswered
from kafka_sink.commit.messages import some
from kafka_sink.commit.replay import Replay, ReplayPlan, Restored, default_name
from kafka_sink.commit.replay_progress import RUN_PREFIX, ReplayListing, ReplayProgress, encode_progress
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.errors import ConfigError, DataError, KafkaSinkError, OperationTimeout, copy_error, foreign_text
from kafka_sink.errors.table.commits import REPLAY_IN_DOUBT, REPLAY_WRONG
from kafka_sink.formats.records.dead_letter import REASON, TOPIC, parse_dead_letter
from kafka_sink.kafka.client.cluster import NO_TOPIC_ID
from kafka_sink.operate.cli.brokers import chosen_ledger, given_brokers, producer_options
from kafka_sink.operate.cli.report import DONE, Report, confirm, table
from kafka_sink.operate.cli.sink_client import ClusterSession
from kafka_sink.operate.cli.streams import StatusLine, print_error
from kafka_sink.options import ProducerOptions
from kafka_sink.options.sink_table import SINK_ID
from kafka_sink.options.values import TOPIC_NAME
from kafka_sink.producer.producer import Producer

FILTERS = ("reason", "topic", "partition", "row", "query.id", "batch.id", "spark.partition")
LINES_EVERY_S = 5.0
# The answer that is asked for before records get into a table.
OLD_VALUES = "write old values"
# And before letters of rows that had another target become records of this one.
OTHER_TOPICS = "write rows of other topics"
# How long a run that ends by an error or by Ctrl-C waits for the abort of its transaction.
ABORT_S = 5.0


class ReplaySession(ClusterSession):
    def __init__(self, given: argparse.Namespace) -> None:
        source, target = TOPIC_NAME.parse("--from", given.source), TOPIC_NAME.parse("--to", given.target)
        if len({source, target, chosen_ledger(given)}) < 3:
            raise ConfigError(
                "--from, --to and --ledger-topic have to be three topics: the records would be among their own "
                "letters, or be taken for decisions",
                REPLAY_WRONG,
            )
        filters = filters_of(given.filter)
        if given.name is not None:
            name = SINK_ID.parse("--name", given.name)
        else:
            name = default_name(source, target, filters)
        commands = CommandTexts(given_brokers(given), chosen_ledger(given))
        self.replay = Replay(name, source, target, filters, commands)
        self.batch_size: int = given.batch_size
        # Known with the plan.
        self.is_compacted = False
        super().__init__(given, producer_options(given))

    def plan(self) -> ReplayPlan:
        self.client.reach(self._patience_ms)
        source = self._existing_topic("--from", self.replay.source)
        target = self._existing_topic("--to", self.replay.target, [CLEANUP])
        self.is_compacted = "compact" in ((target.configs or {}).get(CLEANUP) or "")
        source_id = "" if source.topic_id == NO_TOPIC_ID else source.topic_id.hex()
        known = {} if topic_state(self.client, self.ledger_topic) is None else self.list_replays()
        extents = self._extents(len(source.replicas))
        return self.replay.plan(known, source_id, extents, cluster_id=self.client.cluster_id())

    def _extents(self, partition_count: int) -> dict[int, tuple[int, int]]:
        """All leaders are asked at once; of a partition without an answer its own is, until there is one."""
        partitions = [(self.replay.source, partition) for partition in range(partition_count)]
        told = self.client.run_step(LogExtents(self._settings(), partitions)).extents
        return {where[1]: told.get(where) or self.reader(where[1]).extent() for where in partitions}

    def list_replays(self, claim_offset: int | None = None) -> dict[str, ReplayProgress]:
        """The progress of every replay in the ledger, by name."""
        listing = ReplayListing(self._settings(), claim_offset=claim_offset)
        read, name = self.run_step(listing, "the ledger"), self.replay.name
        assert read.found is not None
        if claim_offset is not None and name in read.in_doubt:
            raise NotAnswered(
                f"the last transaction of replay {name} has ended, and its marker in the ledger {self.ledger_topic} "
                f"is lost: whether its records are visible is not known. Look into {self.replay.target}, and begin "
                "another replay with --name for what is missing there",
                REPLAY_IN_DOUBT,
            )
        if name in read.unreadable:
            raise ConfigError(
                f"the progress of replay {name} cannot be read: {read.unreadable[name]}. If a newer release has "
                "written it, use that one; another --name begins at the first letter",
                REPLAY_WRONG,
            )
        return read.found

    def _settings(self) -> DeliverySettings:
        """A replay sweeps nothing."""
        brokers, support = broker_arguments(self.options), self.client.transaction_support(is_sweeping=False)
        return settings_of_operator(self.client, self.ledger_topic, brokers, self._patience_ms, support)

    def reader(self, partition: int) -> PartitionReader:
        """A letter has the time of its row, also where the topic has LogAppendTime."""
        return PartitionReader(self.client, self.replay.source, partition, self._patience_ms, keeps_own_time=True)

    def _existing_topic(self, option: str, name: str, configs: Sequence[str] = ()) -> TopicState:
        state = topic_state(self.client, name, configs)
        if state is None:
            raise ConfigError(f"{option} {name}: there is no such topic in this cluster", REPLAY_WRONG)
        return state

    def run(self, plan: ReplayPlan, display: Display) -> tuple[ReplayProgress, ReplayProgress]:
        """The progress before and after. That of the plan may be older: another run may have gone on meanwhile."""
        check_ledger_topic(self.client, PlainLedger(self.ledger_topic))
        if not self.options.enable_idempotence:
            raise ConfigError(
                "a replay writes in transactions: leave enable.idempotence, acks and retries as they are", REPLAY_WRONG
            )
        name = self.replay.name
        with _Writer(replace(self.options, transactional_id=name), self.ledger_topic) as writer:
            claim_offset = writer.claim(name)
            known = self.list_replays(claim_offset).get(name)
            here = plan.progress
            progress = before = self.replay.resume(known, here.source_id, cluster_id=here.cluster_id)
            for partition, (planned, end) in plan.extents.items():
                begin = max(planned, progress.next_offsets.get(partition, 0))
                fetched = self.reader(partition).read(begin, end)
                for step in self.replay.steps(progress, partition, fetched, self.batch_size):
                    progress = step.progress
                    if step.is_written:
                        writer.write(step.records, self.replay.target, progress)
                    display.show_progress(progress, partition, step.next_offset)
        return before, progress


class _Writer:
    def __init__(self, options: ProducerOptions, ledger_topic: str) -> None:
        self._producer = Producer(options)
        self._ledger_topic = ledger_topic
        # Of the target, as it is in the write at hand; None: no record of it has needed to know.
        self._partition_count: int | None = None

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

    def write(self, records: Sequence[Restored], topic: str, progress: ReplayProgress) -> None:
        self._producer.begin_transaction()
        self._partition_count = None
        for restored in records:
            self._send(restored, topic)
        value = encode_progress(replace(progress, wall_ms=int(time.time() * 1000)))
        self._producer.send(self._ledger_topic, value, progress.ledger_key, partition=LEDGER_PARTITION)
        self._producer.commit_transaction()

    def _send(self, restored: Restored, topic: str) -> None:
        record = restored.record
        # Bytes of a name that are no text, which the sink refuses and another client may have written, become "?".
        headers = [(name.encode(errors="replace").decode(), value) for name, value in record.headers]
        # -1 is for a record of an old format without a timestamp.
        timestamp_ms = record.timestamp_ms if record.timestamp_ms >= 0 else None
        try:
            self._producer.send(
                topic, record.value, record.key, headers, timestamp_ms, self._partition(restored, topic)
            )
        except DataError as error:
            raise copy_error(
                error, f"the letter at offset {restored.offset} cannot be written to {topic}: {error}"
            ) from error

    def _partition(self, restored: Restored, topic: str) -> int | None:
        """None: that of its key. A partition that the row's topic had not may have been added since."""
        partition = restored.partition
        if partition is None or not restored.lacked:
            return partition
        if self._partition_count is None:
            self._partition_count = len(self._producer.partitions_for(topic))
        return partition if partition < self._partition_count else None


def filters_of(pairs: Sequence[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, value in pairs:
        if name not in FILTERS:
            raise ConfigError(f"--filter {name}=...: letters can be chosen by {', '.join(FILTERS)}", REPLAY_WRONG)
        found[name] = (*found.get(name, ()), value)
    return {name: tuple(sorted(set(found[name]))) for name in sorted(found)}


class Letters:
    """What was found in letters, before anything is written. `topics`: the targets of the rows that are chosen."""

    def __init__(self) -> None:
        self.topics, self.left_out, self.reasons = Counter[str](), Counter[str](), Counter[str]()

    def count_others(self, target: str) -> int:
        """A topic of dead letters may be that of several sinks."""
        return sum(count for topic, count in self.topics.items() if topic not in ("", target))


def look_at_letters(session: ReplaySession, plan: ReplayPlan) -> Letters:
    found = Letters()
    for partition, (begin, end) in plan.extents.items():
        for records, _ in session.reader(partition).read(begin, end):
            chosen, left_out = session.replay.split_letters(records)
            found.topics.update(restored.topic for restored in chosen)
            found.left_out.update(left_out)
            parsed = (parse_dead_letter(letter.headers) for _, letter in records)
            found.reasons.update(each[1].get(REASON, "") for each in parsed if each)
    return found


def replay(session: ReplaySession, given: argparse.Namespace) -> Report:
    plan = session.plan()
    if given.dry_run:
        return _dry_run(session, plan)
    if not plan.left_count:
        return _report(plan.progress, plan.progress, "nothing is left to look at")
    # Whoever chooses by topic has named the rows' targets.
    letters = Letters() if TOPIC in session.replay.filters else look_at_letters(session, plan)
    print_error("\n".join(plan_lines(plan, letters, is_compacted=session.is_compacted)))
    words = [OLD_VALUES] if session.is_compacted else []
    words += [OTHER_TOPICS] if letters.count_others(session.replay.target) else []
    for each in words:
        confirm(given, [], f'Type "{each}" to go on: ', (each,))
    if not words:
        confirm(given, [])
    with Display(plan, is_silent=given.json) as display:
        try:
            before, after = session.run(plan, display)
        except KafkaSinkError as error:
            hint = "what is committed stays; the same command goes on from there"
            raise copy_error(error, f"{error} ({hint})") from error
    return _report(before, after, "done")


def plan_lines(plan: ReplayPlan, letters: Letters, *, is_compacted: bool) -> list[str]:
    progress = plan.progress
    wanted = " and ".join(f"{name} is {' or '.join(of)}" for name, of in sorted(progress.filters.items()))
    chosen = f"dead letters of {progress.source}{f' whose {wanted}' if wanted else ''}"
    lines = [
        f"Replay {progress.name}: {chosen} become records of {progress.target}.",
        f"Up to {plan.left_count} are left to look at, in {len(plan.extents)} partitions.",
    ]
    if letters.topics:
        named = [f"{topic or 'no known topic'} ({count})" for topic, count in letters.topics.most_common()]
        lines.append(f"Those that are chosen are of rows for {some(named, 'topics more')}.")
    if plan.begins_anew:
        lines.append(
            f"Earlier runs have read another topic {progress.source}, which was deleted, or is in another cluster: "
            "this is a new beginning."
        )
    if progress.seen_count:
        left_out = progress.seen_count - progress.written_count
        lines.append(
            f"Earlier runs have written {progress.written_count} and left out {left_out}; those are not looked at "
            "again."
        )
    lines += [
        f"Another replay of the same letters has written {other.written_count} to {other.target} "
        f"({other.name}{_place(other, progress)}): what both choose is written by both."
        for other in plan.others
    ]
    lines.append(
        "Each record has the key, value, headers and timestamp of its row, and the partition that it named; the "
        "letters stay."
    )
    others = letters.count_others(progress.target)
    if others and TOPIC not in progress.filters:
        lines.append(
            f"WARNING: {others} of them are of rows for other topics than {progress.target}, perhaps of other sinks: "
            f"--filter topic={progress.target} leaves them out."
        )
    if is_compacted:
        lines.append(
            f"WARNING: {progress.target} is compacted. A record is older than what may be there by now under its key: "
            "readers of the table would take it for the newest, and compaction removes what it hides."
        )
    else:
        lines.append("The records are behind what was written since: a reader of changes takes them for the newest.")
    return lines


def _place(other: ReplayProgress, progress: ReplayProgress) -> str:
    is_here = not other.is_of_another_cluster(progress.cluster_id)
    return "" if is_here else f", in the cluster {foreign_text(other.cluster_id)}"


def _dry_run(session: ReplaySession, plan: ReplayPlan) -> Report:
    """Reads all letters and writes nothing: counts them by topic and by reason."""
    letters, target = look_at_letters(session, plan), session.replay.target
    chosen_count, reasons = sum(letters.topics.values()), sorted(letters.reasons.items())
    content = {
        **_content(plan.progress),
        "would_write": chosen_count,
        "would_leave_out": dict(sorted(letters.left_out.items())),
        "topics": dict(sorted(letters.topics.items())),
        "reasons": dict(reasons),
    }
    lines = plan_lines(plan, letters, is_compacted=session.is_compacted)
    lines += ["", *table(("REASON", "LETTERS"), reasons)] if reasons else []
    lines += ["", f"{chosen_count} would be written to {target}; nothing was."]
    lines += [f"{count} left out: {why}" for why, count in sorted(letters.left_out.items())]
    return Report(DONE, content, lines)


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
    def __init__(self, plan: ReplayPlan, *, is_silent: bool) -> None:
        super().__init__(is_silent=is_silent, lines_every_s=LINES_EVERY_S)
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
