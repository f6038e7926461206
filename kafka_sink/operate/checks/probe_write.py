"""One record in a transaction that is aborted: the only probe that writes, and only on request.

Readers with isolation.level=read_uncommitted see the record, as they see those of every aborted transaction. The id is
the same each time, so that repeated checks leave only one id behind.

The end of the transaction must be in the log behind the record, as a control record. After a crash a start knows only
from these what was decided.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum, auto

from kafka_sink.commit.admin.broker_clock import difference_of
from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.admin.ledger_topic import IN_SYNC
from kafka_sink.commit.describe_transactions import DescribeTransactions
from kafka_sink.commit.ledger_policy import MESSAGE_BYTES
from kafka_sink.commit.log_scan import READ_UNCOMMITTED, fetch_body, raw_batches, read_fetch_answer
from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.client.ask import Leader, Repeat
from kafka_sink.kafka.client.outcome import DriverOutcome, driver_outcome
from kafka_sink.kafka.wire.apis import FETCH
from kafka_sink.operate.checks.brokers import clock_finding, login_advice
from kafka_sink.operate.checks.cluster import LOG_IN_SYNC, LOG_REPLICAS
from kafka_sink.operate.checks.finding import ProbeResult, fail, ok, warn
from kafka_sink.operate.checks.job import CheckedJob
from kafka_sink.operate.checks.kafka_tools import tools_for
from kafka_sink.operate.checks.permissions import grant_on_ids
from kafka_sink.operate.checks.transactions import settings_of
from kafka_sink.producer.future import RecordMetadata

PROBE = b"pykafka-sink check --probe-write: this transaction is aborted"
_TIMEOUT_MS, FLUSH_SHARE = 10_000, 1.5
_BEGIN, _WRITE, _ABORT = "begin the transaction", "write the record", "abort the transaction"
_LOOK_FOR_END = "read the end of the transaction"
# Markers are written after the answer to the abort.
END_SHARE, _END_S, _PAUSE_S = 0.5, 5.0, 0.1
_NO_MARKER = (
    "exactly-once cannot work here: the transaction was aborted, and its marker is not in the log behind the record: "
    "these brokers write no control records. After a crash nothing would tell what was decided, and rows would be lost "
    "or doubled; no reader with read_committed sees the record"
)


def _grant_on_topic(job: CheckedJob) -> str:
    return tools_for(job.options.producer).grant(("Write",), "--topic", str(job.options.topic))


# A word of the error, what it means, and what to do.
Reason = tuple[str, str, Callable[[CheckedJob], str]]
_REASONS: tuple[Reason, ...] = (
    (
        "COORDINATOR_NOT_AVAILABLE",
        "no broker can coordinate transactions: __transaction_state cannot be made, or not be written",
        lambda _: f"compare {LOG_REPLICAS} and {LOG_IN_SYNC} with the number of brokers: see line transaction log",
    ),
    (
        "COORDINATOR_LOAD_IN_PROGRESS",
        "the coordinator has just taken over, and still reads __transaction_state",
        lambda _: "repeat the check; tasks wait for it up to kafka.max.block.ms",
    ),
    (
        "CONCURRENT_TRANSACTIONS",
        "the transaction of the probe before is still ending: some partition has not written its marker",
        lambda _: "repeat it in some seconds; if it stays, that partition has no leader, or takes no 100 bytes",
    ),
    (
        "NOT_ENOUGH_REPLICAS",
        "too few replicas are in sync to accept a row",
        lambda _: f"start the brokers that are down, or lower {IN_SYNC} of the topic: see line replicas",
    ),
    (
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "this principal may not use the transactional ids of this sink",
        grant_on_ids,
    ),
    (
        "TOPIC_AUTHORIZATION_FAILED",
        "this principal may not write to the topic",
        _grant_on_topic,
    ),
    (
        "not authorized",
        "this principal lacks a permission",
        lambda job: f"{_grant_on_topic(job)}; {grant_on_ids(job)}",
    ),
    (
        "MESSAGE_TOO_LARGE",
        f"the topic takes no record of {len(PROBE)} bytes",
        lambda job: tools_for(job.options.producer).alter_topic(str(job.options.topic), MESSAGE_BYTES, 1_048_588),
    ),
    (
        "UNKNOWN_TOPIC_OR_PARTITION",
        "the topic is not there",
        lambda _: "create it first: see line topic",
    ),
    (
        "INVALID_RECORD",
        "a rule of the broker refuses the record: a schema is demanded, or something else than text",
        lambda _: "the check writes plain bytes; ask who runs the brokers which records they validate",
    ),
)  # fmt: skip
_SLOW = ("did not end within", "no result for", "delivery.timeout.ms", "did not answer")


def probe_write(job: CheckedJob, client: Client) -> Iterator[ProbeResult]:
    if not job.is_exactly_once(client):
        yield ok("write", "not tried: under at-least-once a record could not be taken back")
        return
    if job.options.topic is None:
        yield ok("write", "not tried: no option topic", "name a topic with --topic")
        return
    from kafka_sink.producer.producer import Producer

    options = replace(
        job.options_with_deadline(),
        transactional_id=job.probing_id,
        transaction_timeout_ms=_TIMEOUT_MS,
        delivery_timeout_ms=job.options_with_deadline().max_block_ms,
        linger_ms=0,
        allow_auto_create_topics=False,
    )
    begun, step = time.monotonic(), _BEGIN
    try:
        with Producer(options) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            before_ms, step = time.time() * 1000, _WRITE
            # A key, for a compacted topic.
            record = producer.send(job.options.topic, value=PROBE, key=b"pykafka-sink-check")
            # Longer than a record is tried: its own error says why, and a flush does not raise it.
            producer.flush(job.timeout_s * FLUSH_SHARE)
            written = record.result(0)
            after_ms, step = time.time() * 1000, _ABORT
            started_ms = _ask_start_ms(job, client)
            producer.abort_transaction()
        took_ms, step = (time.monotonic() - begun) * 1000, _LOOK_FOR_END
        end = _look_for_end(job, client, written)
    except KafkaSinkError as error:
        yield write_failure(job, step, error)
        return
    text = f"one record was written to {job.options.topic} and aborted, in {took_ms:.0f} ms: login, permissions, the "
    text = (
        f"{text}coordinator and the leader of partition {written.partition} work; only read_uncommitted readers see it"
    )
    if end is _End.MISSING:
        yield fail(
            "write", _NO_MARKER, "choose delivery.guarantee=at-least-once; or ask who runs these brokers about it"
        )
    elif end is _End.LATE:
        yield warn("write", f"{text}; its marker is late", "repeat the check with a longer --timeout")
    else:
        yield ok("write", text)
    if started_ms is not None:
        yield clock_finding(difference_of(started_ms, before_ms, after_ms), "the coordinator's")


class _End(Enum):
    SEEN = auto()
    # Brokers tell that it is over, and do not show how it ended.
    MISSING = auto()
    LATE = auto()
    FORBIDDEN = auto()


def _look_for_end(job: CheckedJob, client: Client, written: RecordMetadata) -> _End:
    next_offset, producer_id, is_over = written.offset, None, False
    until = time.monotonic() + min(_END_S, job.timeout_s * END_SHARE)
    while time.monotonic() < until:
        body = fetch_body(written.topic, written.partition, next_offset, READ_UNCOMMITTED)
        answer = read_fetch_answer(
            client.ask(
                Leader(written.topic, written.partition), FETCH, body,
                repeat=Repeat.ALWAYS, version_max=FETCH.last_by_name,
            )
        )  # fmt: skip
        outcome = driver_outcome(FETCH, answer.error_code)
        if outcome is DriverOutcome.REFUSED:
            return _End.FORBIDDEN
        if outcome is not DriverOutcome.DONE:
            time.sleep(_PAUSE_S)
            continue
        for batch in raw_batches(answer.records):
            next_offset = max(next_offset, batch.next_offset)
            if producer_id is None:
                producer_id = batch.producer_id  # of the record itself
            elif batch.is_control and batch.producer_id == producer_id:
                return _End.SEEN
        is_over = answer.last_stable_offset > written.offset
    return _End.MISSING if is_over else _End.LATE


def write_failure(job: CheckedJob, step: str, error: KafkaSinkError) -> ProbeResult:
    """Which step failed, what that means, and what to do; the error itself last."""
    text = str(error)
    found = next(((means, advise) for word, means, advise in _REASONS if word in text), None)
    if found is not None:
        means, advice = found[0], found[1](job)
    elif any(word in text for word in _SLOW):
        means = "brokers did not answer in the time of this check"
        advice = "repeat it with a longer --timeout; if it lasts, look at the brokers' load and log"
    else:
        means, advice = "brokers or login are in the way", login_advice(text)
    nothing = "nothing was written" if step == _BEGIN else "no reader with read_committed sees the record"
    return fail("write", f"not possible to {step}: {means}; {nothing}. {error}", advice)


def _ask_start_ms(job: CheckedJob, client: Client) -> int | None:
    """The transaction's start time by the coordinator's clock."""
    describe = DescribeTransactions(settings_of(job, client), (job.probing_id,))
    found = client.run_step(describe).found
    state = found.get(job.probing_id)
    return state.start_ms if state is not None and state.start_ms > 0 else None
