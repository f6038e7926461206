"""Transactions: are they supported, what is their maximum timeout, and which of this sink's are open?"""

from __future__ import annotations

from collections.abc import Iterator

from kafka_sink.commit.admin.broker_clock import brokers_time_ms
from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.admin.cluster_settings import settings_of_operator
from kafka_sink.commit.admin.configs import MAX_TIMEOUT, number_of
from kafka_sink.commit.command_texts import CommandTexts, broker_arguments
from kafka_sink.commit.identity import belongs_to, parse_task_identity
from kafka_sink.commit.listing import TransactionListing, list_body
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.commit.sweep import NOT_VERIFIED
from kafka_sink.kafka.wire.apis import LIST_TRANSACTIONS
from kafka_sink.operate.checks.finding import ProbeResult, fail, ok, warn
from kafka_sink.operate.checks.job import CheckedJob
from kafka_sink.operate.checks.kafka_tools import restart_with
from kafka_sink.options.presets import PRESETS, UNVERIFIED
from kafka_sink.options.sink_options import AT_LEAST_ONCE

TIMEOUT = "kafka.transaction.timeout.ms"
# A crashed driver must be restarted within the timeout of its transactions.
RESTART_MS = 60_000


def availability(job: CheckedJob, client: Client) -> Iterator[ProbeResult]:
    if not job.options.is_exactly_once:
        text = "not needed by delivery.guarantee=at-least-once: rows may appear twice"
        yield ok("transactions", text)
        return
    support = client.transaction_support()
    if support.missing:
        text = f"these brokers offer no transactions ({', '.join(support.missing)} missing)"
        if job.options.delivery_fallback == AT_LEAST_ONCE:
            yield warn("transactions", f"{text}: by delivery.fallback rows are written at least once")
        else:
            advice = "choose delivery.guarantee=at-least-once, or delivery.fallback=at-least-once"
            yield fail("transactions", f"{text}: exactly-once is refused", advice)
        return
    text = f"offered, transaction.version {support.transaction_version}"
    if support.verifies:
        yield ok("transactions", text)
    else:
        yield warn("transactions", f"{text}; {NOT_VERIFIED}", _verification_advice(job))
    yield from time_limits(job, client)


def _verification_advice(job: CheckedJob) -> str:
    preset = PRESETS.get(job.options.preset or "")
    if preset is not None and UNVERIFIED in preset.cannot:
        return "the service has no setting for it (docs/services.md)"
    return "use Kafka 3.6 or newer with transaction.partition.verification.enable=true"


def time_limits(job: CheckedJob, client: Client) -> Iterator[ProbeResult]:
    wanted_ms = job.options.producer.transaction_timeout_ms
    allowed_ms = number_of(client.broker_configs([MAX_TIMEOUT]), MAX_TIMEOUT)
    if allowed_ms is None:
        text = f"transactions of {wanted_ms} ms; the brokers' limit is not told"
        advice = f"grant DescribeConfigs on the cluster to have {MAX_TIMEOUT} compared"
        yield ok("time limits", text, advice)
        return
    if wanted_ms > allowed_ms and job.options.transaction_timeout_is_chosen:
        text = f"{TIMEOUT}={wanted_ms} is above {MAX_TIMEOUT}={allowed_ms}: every write is refused"
        advice = f"set {TIMEOUT}={allowed_ms}; or {restart_with(f'{MAX_TIMEOUT}={wanted_ms}')}"
        yield fail("time limits", text, advice)
        return
    used_ms = min(wanted_ms, allowed_ms)
    text = f"transactions of {used_ms} ms ({MAX_TIMEOUT}={allowed_ms})"
    if job.batch_ms is not None and used_ms < job.batch_ms + RESTART_MS:
        yield _too_short_finding(job.batch_ms, used_ms, allowed_ms)
    elif used_ms < RESTART_MS:
        text = f"{text}: after a crash in a commit the query has to be back within that time"
        yield warn("time limits", text, _longer(RESTART_MS, allowed_ms))
    else:
        yield ok("time limits", text if job.batch_ms is None else f"{text} for batches of {job.batch_ms // 1000} s")


def _too_short_finding(batch_ms: int, used_ms: int, allowed_ms: int) -> ProbeResult:
    """All transactions of a batch are open from its first task to its commit."""
    text = f"a batch takes {batch_ms // 1000} s, and brokers end its transactions after {used_ms // 1000} s"
    advice = _longer(2 * batch_ms + RESTART_MS, allowed_ms)
    if batch_ms >= used_ms:
        return fail("time limits", f"{text}: it can never be committed", advice)
    left_s = (used_ms - batch_ms) // 1000
    return warn("time limits", f"{text}: after a crash in its commit {left_s} s are left to start again", advice)


def _longer(needed_ms: int, allowed_ms: int) -> str:
    wanted = f"set {TIMEOUT}={needed_ms}"
    return wanted if needed_ms <= allowed_ms else f"{wanted}, and {restart_with(f'{MAX_TIMEOUT}={needed_ms}')}"


def ids(job: CheckedJob, client: Client) -> Iterator[ProbeResult]:
    """How many ids of this sink the coordinators have, and whether there are open transactions."""
    sink_id = job.sink_id
    if not job.is_exactly_once(client) or sink_id is None or LIST_TRANSACTIONS.key not in client.list_apis():
        return
    states = [
        state for body in client.answers_of_all(LIST_TRANSACTIONS, list_body()) for state in body["transaction_states"]
    ]
    mine = [state for state in states if _is_of_sink(state["transactional_id"], sink_id)]
    listing = TransactionListing(settings_of(job, client), sink_id)
    found = client.run_step(listing)
    if found.failure is not None:
        yield warn("ids", f"open transactions were not listed: {found.failure}", "see the other lines")
        return
    for note in dict.fromkeys(found.notes):
        yield warn("ids", note, "there may be more transactions than the next line counts")
    now_ms = brokers_time_ms(client)
    old = [one for one in found.found if now_ms - one.start_ms > one.timeout_ms / 2]
    text = f"{len(mine)} of {len(states)} transactional ids are of sink {sink_id}, {len(found.found)} transactions open"
    if old:
        commands = commands_of(job)
        advice = f"if no query runs: `{commands.transactions(sink_id)}`{commands.hint}"
        yield warn("ids", f"{text}, {len(old)} of them for more than half of their time", advice)
    else:
        yield ok("ids", text)


def _is_of_sink(transactional_id: str, sink_id: str) -> bool:
    """Not by the prefix alone: a sink `orders` has none of the ids of a sink `orders-eu`."""
    identity = parse_task_identity(transactional_id)
    owner = transactional_id.rpartition("-")[0] if identity is None else identity.sink_id
    return belongs_to(owner, sink_id)


def settings_of(job: CheckedJob, client: Client) -> DeliverySettings:
    """A check sweeps nothing."""
    brokers, support = broker_arguments(job.options.producer), client.transaction_support(is_sweeping=False)
    return settings_of_operator(client, job.options.ledger_topic, brokers, client.options.max_block_ms, support)


def commands_of(job: CheckedJob) -> CommandTexts:
    return CommandTexts(broker_arguments(job.options.producer), job.options.ledger_topic)
