"""What `pykafka-sink status --serve` tells Prometheus. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kafka_sink.commit.identity import parse_task_identity
from kafka_sink.commit.ledger import Kind, LedgerRecord
from kafka_sink.commit.open_decisions import Standing
from kafka_sink.frozen import frozen
from kafka_sink.operate.status.facts import ClusterFacts, LedgerFacts
from kafka_sink.operate.status.findings import Finding, worst
from kafka_sink.telemetry.metrics.definitions import Metric, MetricKind
from kafka_sink.telemetry.metrics.prometheus_text import family_name, heading, labels_text, number_text

_COUNTER, _GAUGE = MetricKind.COUNTER, MetricKind.GAUGE
LAST_LOOK_AGE = "status_last_look_age_seconds"
# The labels of each, separated by spaces.
_SINK = "ledger sink name"
STATUS_METRICS = (
    Metric("status_up", _GAUGE, "1 if the newest look at the cluster succeeded and missed nothing, else 0."),
    Metric("status_looks", _COUNTER, "Looks at the cluster since this process began."),
    Metric("status_look_failures", _COUNTER, "Looks that failed or missed a part, by the class of the error; "
           "Incomplete: somebody did not answer.", "error"),
    Metric("status_look_seconds", _GAUGE, "How long the newest look took."),
    Metric("status_interval_seconds", _GAUGE, "Time between two looks (--interval)."),
    Metric("status_last_look_timestamp_seconds", _GAUGE, "When the newest look that succeeded was made, in seconds "
           "since 1970. All figures below are of then."),
    Metric(LAST_LOOK_AGE, _GAUGE, "Age of that look, by its own clock."),
    Metric("status_severity", _GAUGE, "0 fine, 1 look, 2 act now: the exit code of the command."),
    Metric("status_findings", _GAUGE, "Findings of the command, by kind.", "severity kind ledger sink name topic"),
    Metric("status_sinks", _GAUGE, "Sinks that a ledger knows.", "ledger"),
    Metric("status_last_batch_timestamp_seconds", _GAUGE, "When the newest decision of the sink was recorded.", _SINK),
    Metric("status_last_batch_rows", _GAUGE, "Rows of that decision.", _SINK),
    Metric("status_open_decisions", _GAUGE, "Decisions that are not known to be committed, those of a moment ago "
           "included.", _SINK),
    Metric("status_decision_left_seconds", _GAUGE, "Time until the first transaction of an open decision times out: "
           "then its rows are lost.", _SINK),
    Metric("status_lost_batches", _GAUGE, "Batches with missing rows, about which nobody has chosen yet.", _SINK),
    Metric("status_open_transactions", _GAUGE, "Open transactions of the sink's tasks; without a sink: of other "
           "applications, in topics of sinks.", "sink"),
    Metric("status_transactional_ids", _GAUGE, "Transactional ids of the sink's tasks that coordinators know.", "sink"),
    Metric("status_held_back_offsets", _GAUGE, "Offsets that read_committed readers of the topic do not see yet.",
           "topic"),
    Metric("status_oldest_transaction_seconds", _GAUGE, "Age of the oldest transaction that is open in the topic.",
           "topic"),
)  # fmt: skip

Sample = tuple[Sequence[str], float]


@frozen
class OwnFigures:
    """Of the process that looks."""

    is_up: bool
    look_count: int
    look_s: float
    failures: Mapping[str, int]
    interval_s: int
    last_s: float | None = None


def status_text(own: OwnFigures, facts: ClusterFacts | None, found: Sequence[Finding]) -> str:
    samples: dict[str, list[Sample]] = {name: list(told) for name, told in _own(own)}
    if facts is not None:
        samples.update((name, list(told)) for name, told in _of_cluster(facts, found))
    return _text_of(samples)


def age_text(age_s: float | None) -> str:
    """Of the newest look that succeeded. Told at each scrape, as the process may look no more."""
    return _text_of({} if age_s is None else {LAST_LOOK_AGE: [((), age_s)]})


def _text_of(samples: Mapping[str, Sequence[Sample]]) -> str:
    lines: list[str] = []
    for metric in STATUS_METRICS:
        family, names = family_name(metric), metric.label.split()
        told = samples.get(metric.name, [])
        if told:
            lines += heading(family, metric.kind, metric.meaning)
        for values, value in told:
            labels = labels_text(dict(zip(names, values, strict=True))) if names else ""
            lines.append(f"{family}{labels} {number_text(value)}")
    return "".join(f"{line}\n" for line in lines)


def _own(own: OwnFigures) -> Iterator[tuple[str, Iterable[Sample]]]:
    yield "status_up", [((), int(own.is_up))]
    yield "status_looks", [((), own.look_count)]
    yield "status_look_failures", [((error,), count) for error, count in sorted(own.failures.items())]
    yield "status_look_seconds", [((), own.look_s)]
    yield "status_interval_seconds", [((), own.interval_s)]
    if own.last_s is not None:
        yield "status_last_look_timestamp_seconds", [((), own.last_s)]


def _of_cluster(facts: ClusterFacts, found: Sequence[Finding]) -> Iterator[tuple[str, Iterable[Sample]]]:
    yield "status_severity", [((), int(worst(found)))]
    counts = Counter(
        (each.severity.name.lower(), each.trouble.value, each.ledger_topic, each.sink_id, each.name,
         "" if each.sink_id else "".join(each.topics[:1]))
        for each in found
    )  # fmt: skip
    yield "status_findings", sorted(counts.items())
    yield "status_sinks", [((one.topic,), len({each.sink_id for each in one.listed})) for one in facts.ledgers]
    sinks = [(labels, records, ledger) for ledger in facts.ledgers for labels, records in _by_sink(ledger)]
    newest = [(labels, *list(records.items())[-1], ledger) for labels, records, ledger in sinks]
    times = [(labels, ledger.since_ms.get(key, record.wall_ms)) for labels, key, record, ledger in newest]
    yield "status_last_batch_timestamp_seconds", [(labels, since_ms / 1000) for labels, since_ms in times]
    yield "status_last_batch_rows", [(labels, record.row_count) for labels, _, record, _ in newest]
    yield "status_open_decisions", [(labels, _count_open(records, ledger)) for labels, records, ledger in sinks]
    yield "status_lost_batches", [(labels, _count(records, Kind.STUCK)) for labels, records, _ in sinks]
    left = ((labels, [ledger.judged[key].left_ms for key in records if key in ledger.judged])
            for labels, records, ledger in sinks)  # fmt: skip
    known = ((labels, [one for one in times if one is not None]) for labels, times in left)
    yield "status_decision_left_seconds", [(labels, min(times) / 1000) for labels, times in known if times]
    yield from _of_transactions(facts)


def _of_transactions(facts: ClusterFacts) -> Iterator[tuple[str, Iterable[Sample]]]:
    written = facts.written_topics
    open_counts, oldest = Counter[str](), dict[str, int]()
    for one in facts.transactions:
        identity = parse_task_identity(one.transactional_id)
        topics = written.intersection(topic for topic, _ in one.partitions)
        if identity is not None or topics:
            open_counts["" if identity is None else identity.sink_id] += 1
        for topic in topics:
            oldest[topic] = min(one.start_ms, oldest.get(topic, one.start_ms))
    yield "status_open_transactions", [((sink,), count) for sink, count in sorted(open_counts.items())]
    yield "status_transactional_ids", [((sink,), count) for sink, count in sorted(facts.id_counts.items())]
    held = Counter[str](dict.fromkeys(sorted({topic for topic, _ in facts.ends}), 0))
    for (topic, _), count in facts.behind.items():
        held[topic] += count
    yield "status_held_back_offsets", [((topic,), count) for topic, count in sorted(held.items())]
    ages = [((topic,), max(0, facts.at_ms - start_ms) / 1000) for topic, start_ms in sorted(oldest.items())]
    yield "status_oldest_transaction_seconds", ages


def _by_sink(ledger: LedgerFacts) -> Iterator[tuple[Sequence[str], Mapping[str, LedgerRecord]]]:
    """The records of each sink, by ledger key, the newest last."""
    grouped: dict[str, dict[str, LedgerRecord]] = {}
    for each in sorted(ledger.listed, key=lambda each: each.offset):
        if each.record is not None:
            grouped.setdefault(each.sink_id, {})[each.ledger_key] = each.record
    for sink_id, records in sorted(grouped.items()):
        label = next((record.label for record in records.values() if record.label), "")
        yield (ledger.topic, sink_id, label), records


def _count_open(records: Mapping[str, LedgerRecord], ledger: LedgerFacts) -> int:
    judged = [ledger.judged[key] for key in records if key in ledger.judged]
    return _count(records, Kind.INTENT) - sum(one.standing is Standing.COMMITTED for one in judged)


def _count(records: Mapping[str, LedgerRecord], kind: Kind) -> int:
    return sum(record.kind is kind for record in records.values())
