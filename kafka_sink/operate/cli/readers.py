"""`pykafka-sink readers`: what read_committed readers of a topic see, and what they wait for. Only asks."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kafka_sink.commit.admin.asking import Bodies
from kafka_sink.commit.admin.client import topic_query, topic_row
from kafka_sink.commit.admin.topic_reader import WINDOWS, PartitionReader
from kafka_sink.commit.describe_transactions import TransactionDescription
from kafka_sink.commit.identity import parse_task_identity
from kafka_sink.errors import AuthorizationError, BrokerError, ConfigError, KafkaSinkError
from kafka_sink.errors.table.commits import COMMAND_WRONG
from kafka_sink.frozen import frozen
from kafka_sink.kafka.client.ask import AllBrokers, AnyBroker, Repeat
from kafka_sink.kafka.client.outcome import describe
from kafka_sink.kafka.wire.apis import FIND_COORDINATOR, METADATA, OFFSET_FETCH
from kafka_sink.kafka.wire.codes import GROUP_AUTHORIZATION_FAILED, code
from kafka_sink.operate.cli.report import Report, table
from kafka_sink.operate.cli.status import StatusSession, exit_code_of, finding_lines, finding_object
from kafka_sink.operate.status.collect import ClusterLook, examine
from kafka_sink.operate.status.facts import ClusterFacts
from kafka_sink.operate.status.findings import Limits, Severity, Trouble, span

GROUP = 0
LIMITS = Limits(open_ms=60_000, silent_ms=0)
_TITLES = ("PARTITION", "COMMITTED", "LAST RECORD", "STABLE", "END", "READERS")


@frozen
class ReaderFacts:
    """Of one partition. `committed` None: the group has committed nothing. `last` None: there is no record among the
    last ones below the stable offset. `unlisted`: the producer id that holds readers back, of which nobody tells."""

    partition: int
    committed: int | None
    last: int | None
    stable: int
    end: int
    waits_for: Sequence[TransactionDescription]
    hangs: bool
    unlisted: int | None = None


class ReadersSession(StatusSession):
    def __init__(self, given: argparse.Namespace) -> None:
        super().__init__(given)
        patience_ms = given.timeout * 1000
        self.patience_ms: int = patience_ms
        self.cluster = ClusterLook(self.client, self.brokers, (), patience_ms, asked_topics=(given.topic,))

    def committed_offsets(self, group: str, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        """Of the partitions in which the group has committed. Asking for the coordinator makes brokers create the topic
        of offsets, where no group has ever been. The offsets are asked of all brokers, since a coordinator may move."""

        def lacks(bodies: Bodies) -> KafkaSinkError | None:
            troubles = [_group_trouble(group, each) for each in map(_group_error, bodies)]
            return None if None in troubles else troubles[0]

        self.client.ask(
            AnyBroker(), FIND_COORDINATOR, {"key": group, "key_type": GROUP}, version_max=FIND_COORDINATOR.last_single,
            timeout_ms=self.patience_ms, repeat=Repeat.ALWAYS, lacks=lacks,
        )  # fmt: skip
        asked = [{"name": topic, "partition_indexes": list(partitions)}]
        bodies = self.client.ask_all(
            AllBrokers(), OFFSET_FETCH, {"group_id": group, "topics": asked}, version_max=OFFSET_FETCH.last_single,
            timeout_ms=self.patience_ms, repeat=Repeat.ALWAYS, lacks=lacks, needs_all=False,
        )  # fmt: skip
        told = [
            each for body in bodies if not _group_error(body) for row in body["topics"] for each in row["partitions"]
        ]
        return {each["partition_index"]: each["committed_offset"] for each in told if each["committed_offset"] >= 0}

    def last_record(self, topic: str, partition: int, stable: int) -> int | None:
        """The offset of the last record that readers see."""
        newest = PartitionReader(self.client, topic, partition, self.patience_ms).newest(1, stable)
        return newest[0][0] if newest else None


def _group_error(body: Mapping[str, Any]) -> int:
    """Of the group, or the first one of a partition."""
    told = [each["error_code"] for row in body.get("topics", ()) for each in row["partitions"]]
    return next(filter(None, [body.get("error_code", 0), *told]), 0)


def _group_trouble(group: str, error_code: int) -> KafkaSinkError | None:
    """Raised at once unless it may pass."""
    if not error_code:
        return None
    if error_code == GROUP_AUTHORIZATION_FAILED:
        raise AuthorizationError(f"not authorized to describe group {group}: the principal needs Describe on it")
    text = f"the offsets of group {group} were not told: {describe(error_code)}"
    error = BrokerError(text, code=error_code, api=OFFSET_FETCH.name)
    if not code(error_code).retriable:
        raise error
    return error


def readers(session: ReadersSession, given: argparse.Namespace) -> Report:
    topic = given.topic
    row = topic_row(METADATA, session.client.ask_metadata(topic_query(topic)), topic)
    if row["error_code"]:
        raise ConfigError(f"topic {topic}: {describe(row['error_code'])}", COMMAND_WRONG)
    facts, every = examine(session.cluster, LIMITS)
    found = [each for each in every if topic in each.topics]
    # As two looks have found it: of the second one alone, a transaction may just have begun or ended.
    hanging = [each.mark[:2] for each in found if (each.trouble, each.severity) == (Trouble.HANGING, Severity.ACT)]
    ends = {partition: told for (name, partition), told in sorted(facts.ends.items()) if name == topic}
    committed = {} if given.group is None else session.committed_offsets(given.group, topic, list(ends))
    told = [
        ReaderFacts(
            partition, committed.get(partition), session.last_record(topic, partition, stable), stable, end,
            [one for one in facts.transactions if (topic, partition) in one.partitions] if stable < end else [],
            (topic, partition) in hanging,
            _find_unlisted(facts, topic, partition),
        )
        for partition, (stable, end) in ends.items()
    ]  # fmt: skip
    content = {
        "topic": topic,
        "group": given.group,
        "partitions": [_partition_object(each, facts, has_group=given.group is not None) for each in told],
        "findings": [finding_object(each) for each in found],
        "notes": list(facts.notes),
        "limits": list(facts.limits),
    }
    rows = [
        (each.partition, _show(each.committed), _show(each.last), each.stable, each.end,
         reader_word(each, facts, has_group=given.group is not None))
        for each in told
    ]  # fmt: skip
    lines = [
        *table(_TITLES, rows),
        *finding_lines(found, session.brokers, session.cluster.named),
        *facts.notes,
        *facts.limits,
    ]
    return Report(exit_code_of(facts, found), content, lines)


def _find_unlisted(facts: ClusterFacts, topic: str, partition: int) -> int | None:
    """One that an earlier look has seen, too: what begins between two questions is not listed, either."""
    seen = (one for one in facts.unlisted if one.since_ms < facts.at_ms)
    return next((one.producer_id for one in seen if (one.topic, one.partition) == (topic, partition)), None)


def reader_word(each: ReaderFacts, facts: ClusterFacts, *, has_group: bool) -> str:
    """What a reader that is at the committed offset sees next, and what it waits for."""
    words = [_progress_word(each)] if has_group else []
    if each.waits_for:
        words.append(_wait_word(each.waits_for, facts.at_ms))
    elif each.hangs:
        words.append("wait for ever: a transaction hangs")
    elif each.unlisted is not None:
        words.append(f"wait for producer id {each.unlisted}, which no coordinator lists to this principal")
    elif each.stable < each.end:
        words.append(f"{each.end - each.stable} offsets are about to be seen")
    return "; ".join(words) or "see everything"


def _progress_word(each: ReaderFacts) -> str:
    if each.committed is None:
        return "the group has committed nothing"
    if each.committed >= each.stable:
        return "caught up"
    has_read_all = each.last is not None and each.committed > each.last
    if has_read_all or (each.last is None and each.committed >= each.stable - WINDOWS[-1]):
        return "caught up, only markers remain"
    return f"{each.stable - each.committed} offsets to read"


def _wait_word(waits_for: Sequence[TransactionDescription], at_ms: int) -> str:
    oldest = min(waits_for, key=lambda one: one.start_ms)
    identity = parse_task_identity(oldest.transactional_id)
    whose = f"sink {identity.sink_id}" if identity else repr(oldest.transactional_id)
    age, ends_at = span(at_ms - oldest.start_ms), _clock(max(one.start_ms + one.timeout_ms for one in waits_for))
    if len(waits_for) == 1:
        return f"wait for a transaction of {whose}, open for {age}; it ends at {ends_at} at the latest"
    count = len(waits_for)
    return f"wait for {count} transactions, the oldest of {whose}, open for {age}; they end at {ends_at} at the latest"


def _clock(at_ms: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_ms / 1000))


def _show(offset: int | None) -> object:
    return "-" if offset is None else offset


def _partition_object(each: ReaderFacts, facts: ClusterFacts, *, has_group: bool) -> dict[str, Any]:
    return {
        "partition": each.partition,
        "committed": each.committed,
        "last_record": each.last,
        "stable": each.stable,
        "end": each.end,
        "readers": reader_word(each, facts, has_group=has_group),
        "waits_for": [
            {
                "transactional_id": one.transactional_id,
                "state": one.state,
                "age_ms": max(0, facts.at_ms - one.start_ms),
                "ends_at_ms": one.start_ms + one.timeout_ms,
            }
            for one in each.waits_for
        ],
        "hangs": each.hangs,
    }
