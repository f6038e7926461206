"""One record in a transaction that is aborted: the only probe that writes, and only on request.

Readers with isolation.level=read_uncommitted see the record, as they see those of every aborted transaction. The id is
the same each time, so that repeated checks leave only one id behind.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.preflight import DescribeTransactions
from kafka_sink.errors import KafkaSinkError
from kafka_sink.operate.checks.brokers import clock_finding
from kafka_sink.operate.checks.finding import ProbeResult, fail, ok
from kafka_sink.operate.checks.job import CheckedJob
from kafka_sink.operate.checks.transactions import settings_of

PROBE = b"pykafka-sink check --probe-write: this transaction is aborted"
_TIMEOUT_MS = 10_000


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
    begun = time.monotonic()
    try:
        with Producer(options) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            before_ms = time.time() * 1000
            # A key, for a compacted topic.
            record = producer.send(job.options.topic, value=PROBE, key=b"pykafka-sink-check")
            producer.flush(job.timeout_s)
            record.result(0)  # a flush does not raise the error of a record
            after_ms = time.time() * 1000
            started_ms = _ask_start_ms(job, client)
            producer.abort_transaction()
    except KafkaSinkError as error:
        advice = "the other lines say why, or docs/errors.md"
        yield fail("write", f"a transaction with one record was not possible: {error}", advice)
        return
    took_ms = (time.monotonic() - begun) * 1000
    yield ok("write", f"one record was written to {job.options.topic} and aborted, in {took_ms:.0f} ms")
    if started_ms is not None:
        yield clock_finding(started_ms, before_ms, after_ms, "the coordinator's")


def _ask_start_ms(job: CheckedJob, client: Client) -> int | None:
    """The transaction's start time by the coordinator's clock."""
    describe = DescribeTransactions(settings_of(job, client), (job.probing_id,))
    found = client.run_step(describe).found
    state = found.get(job.probing_id)
    return state.start_ms if state is not None and state.start_ms > 0 else None
