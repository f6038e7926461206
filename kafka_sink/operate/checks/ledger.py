"""The ledger: is its topic safe, and what does it contain about this sink?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kafka_sink.commit.admin.broker_clock import brokers_time_ms
from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.admin.ledger_topic import (
    CHECKED,
    REPLICAS_WANTED,
    check_cleanup_policy,
    least_ledger_plan,
    ledger_counts,
    missing_ledger_text,
    new_ledger_plan,
    troubles,
)
from kafka_sink.commit.admin.topics import topic_state
from kafka_sink.commit.ledger import Kind, LedgerRecord
from kafka_sink.commit.ledger_policy import CLEANUP
from kafka_sink.commit.listing import LedgerListing
from kafka_sink.commit.open_decisions import HIDDEN_TEXT, Standing, ask_rows, describe_open, judge_open
from kafka_sink.errors import ConfigError
from kafka_sink.kafka.client.cluster import NO_LEADER
from kafka_sink.operate.checks.finding import ProbeResult, fail, ok, warn
from kafka_sink.operate.checks.job import CheckedJob
from kafka_sink.operate.checks.kafka_tools import tools_for
from kafka_sink.operate.checks.replicas import (
    Replicated,
    in_sync_findings,
    leader_findings,
    live_brokers,
)
from kafka_sink.operate.checks.topics import creation_trouble
from kafka_sink.operate.checks.transactions import commands_of, settings_of

# How commit/admin/ledger_topic.py begins the advice about a topic with too few replicas.
MOVE = "Give it three"
# From so many records on a start takes seconds longer; each takes so much time to read, with its marker.
LONG_FROM, READ_US = 100_000, 15


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
            yield fail("ledger", text, tools_for(job.options.producer).complete(advice))
            return
    brokers, replicas = ledger_counts(client, topic)
    tools = tools_for(job.options.producer)
    it = Replicated(
        topic, state, live_brokers(client), tools, "ledger", "no batch can be decided", "decisions are lost"
    )
    refusals = [*leader_findings(it), *in_sync_findings(it)]
    yield from refusals
    found = list(troubles(topic, state.configs or {}, replicas, brokers))
    for trouble in found:
        text, _, advice = trouble.partition(". ")
        is_moved = advice.startswith(MOVE)
        wanted = min(REPLICAS_WANTED, brokers)
        advice = tools.add_replicas(topic, state, it.brokers, wanted) if is_moved else tools.complete(advice)
        yield warn("ledger", text, advice)
    if not (refusals or found) and is_told:
        yield ok("ledger", f"{topic}: compacted, {replicas} of {brokers} brokers hold it")
    if NO_LEADER in state.leaders[:1]:
        return  # it cannot be read
    yield from decisions(job, client)


def decisions(job: CheckedJob, client: Client) -> Iterator[ProbeResult]:
    listing = LedgerListing(settings_of(job, client), job.sink_id)
    found = client.run_step(listing)
    if found.failure is not None or found.listed is None:
        why = found.failure or "no answer"
        yield fail("decisions", f"the ledger was not read: {why}", "grant Read on the ledger topic")
        return
    if found.batch_count > LONG_FROM:
        yield _long(job.options.ledger_topic, found.batch_count)
    listed, sink_id = found.listed, job.sink_id
    whose = "all sinks" if sink_id is None else f"sink {sink_id}"
    unread = [each for each in listed if each.record is None]
    stuck = [each.record for each in listed if each.record is not None and each.record.kind is Kind.STUCK]
    open_ones = [each.record for each in listed if each.record is not None and each.record.kind is Kind.INTENT]
    commands = commands_of(job)
    for each in unread:
        text = f"the record {each.ledger_key} cannot be read: {each.problem}"
        yield fail("decisions", text, f"`{commands.set_aside(each.sink_id, each.ledger_key)}`{commands.hint}")
    for record in stuck:
        text = f"{record.key} of sink {record.sink_id} is lost: its query stops at every start"
        advice = f"`{commands.replay(record)}`, or `{commands.accept(record)}`{commands.hint}"
        yield fail("decisions", text, advice)
    yield from _open_decisions(job, client, open_ones)
    if not (unread or stuck or open_ones):
        yield ok("decisions", f"{len(listed)} of {whose}, none open")


def _long(topic: str, count: int) -> ProbeResult:
    text = f"each start reads the {count} records of all sinks in {topic}: about {count * READ_US / 1e6:.1f} s of CPU"
    advice = (
        "give each team a ledger.topic of its own; or, if few of them are of the last hour, see why the brokers do not "
        "compact it: segment.bytes, min.cleanable.dirty.ratio, the log of their cleaner"
    )
    return warn("ledger", text, advice)


def _open_decisions(job: CheckedJob, client: Client, records: Sequence[LedgerRecord]) -> Iterator[ProbeResult]:
    if not records:
        return
    settings = settings_of(job, client)
    answer = client.run_step(describe_open(settings, records))
    seen = client.run_step(ask_rows(settings, answer, records)).outcomes
    for each in judge_open(answer, records, brokers_time_ms(client), seen):
        text, commands = f"{each.record.key} of sink {each.record.sink_id} is decided", settings.commands
        recover = f"`{commands.recover(each.record.sink_id)}`"
        if each.standing is Standing.OVERDUE:
            advice = f"{recover} finds out whether rows are missing{commands.hint}"
            yield fail("decisions", f"{text} and overdue: its transactions have ended, or should have", advice)
            continue
        if each.standing is Standing.COMMITTED:
            advice = f"the next commit of its query tells the ledger, or {recover}{commands.hint}"
            yield warn("decisions", f"{text} and committed", advice)
            continue
        if each.standing is Standing.HIDDEN:
            yield ok("decisions", f"{text}, and {HIDDEN_TEXT}")
            continue
        if each.left_ms is not None:
            advice = f"start the query, or {recover}, within {each.left_ms // 1000} s"
        else:
            advice = f"start the query, or {recover}: in time it finishes the batch, later it finds out what is missing"
        advice = f"if no query is at it, {advice}{commands.hint}"
        yield warn("decisions", f"{text} and not known to be finished", advice)


def _missing(job: CheckedJob, client: Client) -> ProbeResult:
    topic = job.options.ledger_topic
    if not job.options.ledger_create:
        text, _, advice = missing_ledger_text(topic).partition(": ")
        return fail("ledger", text, advice)
    plan = new_ledger_plan(client, job.options)
    trouble = creation_trouble(client, topic, plan)
    least = None if trouble is None else least_ledger_plan(job.options, plan, trouble)
    if least is not None and creation_trouble(client, topic, least) is None:
        text = f"{topic} is not there; the first batch makes it with {CLEANUP}=compact alone, since not all is taken"
        advice = f"nothing, or create it with one partition, {CLEANUP}=compact and the smallest segments that they take"
        return warn("ledger", f"{text}: {trouble}", advice)
    if trouble is None:
        return ok("ledger", f"{topic} is not there; the first batch makes it, and the brokers agree")
    text = f"{topic} is not there, and cannot be made: {trouble}"
    advice = (
        f"set ledger.replication.factor to at most {len(live_brokers(client))}, the number of brokers; or name the "
        "service with preset, or create the topic with one partition and cleanup.policy=compact, or grant Create on it"
    )
    return fail("ledger", text, advice)
