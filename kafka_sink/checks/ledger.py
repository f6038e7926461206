"""The ledger: is its topic safe, and what does it contain about this sink?"""

from __future__ import annotations

from collections.abc import Iterator

from kafka_sink.admin.client import Client
from kafka_sink.admin.ledger_topic import (
    CHECKED,
    check_cleanup_policy,
    ledger_counts,
    missing_ledger_text,
    new_ledger_plan,
    troubles,
)
from kafka_sink.admin.topics import topic_state
from kafka_sink.checks.finding import ProbeResult, fail, ok, warn
from kafka_sink.checks.job import CheckedJob
from kafka_sink.checks.topics import creation_trouble
from kafka_sink.checks.transactions import settings_of
from kafka_sink.errors import ConfigError
from kafka_sink.exactly_once.ledger import Kind
from kafka_sink.exactly_once.ledger_policy import CLEANUP
from kafka_sink.exactly_once.listing import LedgerListing


def ledger(job: CheckedJob, client: Client) -> Iterator[ProbeResult]:
    if not job.is_exactly_once(client):
        return
    topic = job.options.ledger_topic
    state = topic_state(client, topic, CHECKED)
    if state is None:
        yield _missing(job, client)
        return
    is_told = state.configs is not None and state.configs.get(CLEANUP) is not None
    if not is_told:
        advice = f"grant DescribeConfigs on topic {topic}"
        yield warn("ledger", f"the configuration of {topic} is not told: it may delete decisions", advice)
    else:
        try:
            check_cleanup_policy(topic, state.configs or {})
        except ConfigError as error:
            text, _, advice = str(error).partition(". ")
            yield fail("ledger", text, advice)
            return
    brokers, replicas = ledger_counts(client, topic)
    found = list(troubles(topic, state.configs or {}, replicas, brokers))
    for trouble in found:
        text, _, advice = trouble.partition(". ")
        yield warn("ledger", text, advice)
    if not found and is_told:
        yield ok("ledger", f"{topic}: compacted, {replicas} of {brokers} brokers hold it")
    yield from decisions(job, client)


def decisions(job: CheckedJob, client: Client) -> Iterator[ProbeResult]:
    listing = LedgerListing(settings_of(job, client), job.sink_id, client.now_ms())
    found = client.run_step(listing)
    if found.failure is not None or found.listed is None:
        why = found.failure or "no answer"
        yield fail("decisions", f"the ledger was not read: {why}", "grant Read on the ledger topic")
        return
    listed, sink_id = found.listed, job.sink_id
    whose = "all sinks" if sink_id is None else f"sink {sink_id}"
    unread = [each for each in listed if each.record is None]
    stuck = [each for each in listed if each.record is not None and each.record.kind is Kind.STUCK]
    open_ones = [each for each in listed if each.record is not None and each.record.kind is Kind.INTENT]
    for each in unread:
        text = f"the record {each.ledger_key} cannot be read: {each.problem}"
        yield fail("decisions", text, "pykafka-sink resolve --set-aside --help")
    for each in stuck:
        text = f"a batch of sink {each.sink_id} is lost: its query stops at every start"
        yield fail("decisions", text, f"pykafka-sink resolve --sink-id {each.sink_id} --replay or --accept")
    for each in open_ones:
        text = f"a batch of sink {each.sink_id} is decided and not known to be finished"
        advice = f"start the query, or pykafka-sink recover --sink-id {each.sink_id}, before its transactions time out"
        yield warn("decisions", text, advice)
    if not (unread or stuck or open_ones):
        yield ok("decisions", f"{len(listed)} of {whose}, none open")


def _missing(job: CheckedJob, client: Client) -> ProbeResult:
    topic = job.options.ledger_topic
    if not job.options.ledger_is_created:
        text, _, advice = missing_ledger_text(topic).partition(": ")
        return fail("ledger", text, advice)
    trouble = creation_trouble(client, topic, new_ledger_plan(client, job.options))
    if trouble is None:
        return ok("ledger", f"{topic} is not there; the first batch makes it, and the brokers agree")
    text = f"{topic} is not there, and cannot be made: {trouble}"
    advice = (
        "name the service with preset, or create the topic with one partition and cleanup.policy=compact, or grant "
        "Create on it"
    )
    return fail("ledger", text, advice)
