"""Settings of the brokers that decide whether anything can be written: they show only at the first transaction.

__transaction_state and __consumer_offsets are created at their first use. With more replicas than brokers, as by the
defaults of Apache Kafka on one broker, that fails for ever, and clients are told only that there is no coordinator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.admin.configs import number_of
from kafka_sink.commit.admin.ledger_topic import IN_SYNC, UNCLEAN
from kafka_sink.commit.admin.topics import TRANSACTION_LOG, metadata_of, topic_state
from kafka_sink.errors import AuthorizationError
from kafka_sink.kafka.wire.codes import UNKNOWN_TOPIC_OR_PARTITION
from kafka_sink.operate.checks.finding import ProbeResult, fail, ok, warn
from kafka_sink.operate.checks.job import CheckedJob
from kafka_sink.operate.checks.kafka_tools import restart_with, tools_for
from kafka_sink.operate.checks.replicas import (
    Replicated,
    count_of,
    disk_findings,
    in_sync_findings,
    leader_findings,
    live_brokers,
    lone_findings,
    there_are,
)

OFFSETS = "__consumer_offsets"
LOG_REPLICAS, LOG_IN_SYNC = "transaction.state.log.replication.factor", "transaction.state.log.min.isr"
OFFSETS_REPLICAS, DEFAULT_REPLICAS = "offsets.topic.replication.factor", "default.replication.factor"
REQUEST_BYTES = "socket.request.max.bytes"
# What names, ids and headers may add to the records of a request.
FRAME_PERCENT = 1
_LINE, _NO_BATCH = "transaction log", "no transaction begins or ends"


def transaction_log(job: CheckedJob, client: Client) -> Iterator[ProbeResult]:
    if not job.is_exactly_once(client) or client.transaction_support().missing:
        return
    brokers = live_brokers(client)
    try:
        state = topic_state(client, TRANSACTION_LOG, (IN_SYNC, UNCLEAN))
    except AuthorizationError:
        yield from _hidden_log(client, brokers)
        return
    if state is None:
        yield from _missing_log(job, client, brokers)
        return
    tools = tools_for(job.options.producer)
    it = Replicated(TRANSACTION_LOG, state, brokers, tools, _LINE, _NO_BATCH, "what is open is lost")
    found = [*leader_findings(it), *in_sync_findings(it), *lone_findings(it), *disk_findings(it)]
    yield from found
    if not found:
        text = f"{TRANSACTION_LOG}: replicas={state.replication_factor}"
        advice = "" if it.least else f"grant DescribeConfigs on topic {TRANSACTION_LOG} to have {IN_SYNC} compared"
        yield ok(_LINE, f"{text}, {IN_SYNC}={it.least}" if it.least else text, advice)


def _missing_log(job: CheckedJob, client: Client, brokers: tuple[int, ...]) -> Iterator[ProbeResult]:
    """It is created by the first transaction."""
    replicas, least = _numbers_of(client, LOG_REPLICAS, LOG_IN_SYNC)
    if replicas is None:
        text = f"{TRANSACTION_LOG} is not there yet; the first transaction makes it"
        yield ok(_LINE, text, f"with DescribeConfigs on the cluster {LOG_REPLICAS} is compared, if brokers tell it")
        return
    if replicas > len(brokers):
        text = (
            f"{TRANSACTION_LOG} cannot be made: {LOG_REPLICAS}={replicas}, and {there_are(brokers)}. No transaction "
            f"can begin, and each write fails after kafka.max.block.ms={job.options.producer.max_block_ms} ms with "
            "COORDINATOR_NOT_AVAILABLE"
        )
        yield fail(_LINE, text, f"{_fewer(LOG_REPLICAS, len(brokers), LOG_IN_SYNC)}; or {_more(replicas, brokers)}")
    elif least is not None and 1 < replicas == least:
        text = f"{TRANSACTION_LOG} would be made with {LOG_REPLICAS}={replicas} and {LOG_IN_SYNC}={least}: with one"
        yield warn(_LINE, f"{text} broker down {_NO_BATCH}", restart_with(f"{LOG_IN_SYNC}={least - 1}"))
    elif least is not None and least > replicas:
        text = f"{LOG_IN_SYNC}={least} is above {LOG_REPLICAS}={replicas}: Apache Kafka 3.7 and newer take {replicas}"
        text = f"{text} for it, with older and other brokers {_NO_BATCH}"
        yield warn(_LINE, text, restart_with(f"{LOG_IN_SYNC}={max(1, replicas - 1)}"))
    elif replicas < min(3, len(brokers)):
        text = f"{TRANSACTION_LOG} would be made with {LOG_REPLICAS}={replicas}, and {there_are(brokers)}: what is open"
        wanted = min(3, len(brokers))
        advice = restart_with(f"{LOG_REPLICAS}={wanted}", f"{LOG_IN_SYNC}={max(1, wanted - 1)}")
        yield warn(_LINE, f"{text} is lost with a disk", f"before the first transaction: {advice}")
    else:
        yield ok(_LINE, f"{TRANSACTION_LOG} is made by the first transaction, with {count_of(replicas, 'replica')}")


def _hidden_log(client: Client, brokers: tuple[int, ...]) -> Iterator[ProbeResult]:
    """It may be there or not."""
    replicas, _ = _numbers_of(client, LOG_REPLICAS, LOG_IN_SYNC)
    advice = f"grant Describe on topic {TRANSACTION_LOG}"
    if replicas is not None and replicas > len(brokers):
        text = f"{LOG_REPLICAS}={replicas}, and {there_are(brokers)}: unless {TRANSACTION_LOG} is there already, it"
        more = f"{advice} to know whether it is there; {_fewer(LOG_REPLICAS, len(brokers), LOG_IN_SYNC)}"
        yield warn(_LINE, f"{text} cannot be made, and {_NO_BATCH}", more)
    else:
        yield ok(_LINE, f"{TRANSACTION_LOG} is not shown to this principal", f"{advice} to have its replicas looked at")


def other_topics(job: CheckedJob, client: Client) -> Iterator[ProbeResult]:
    """Topics that this sink does not need, but its readers and later jobs do. No result if they can be made."""
    brokers = live_brokers(client)
    replicas, default = _numbers_of(client, OFFSETS_REPLICAS, DEFAULT_REPLICAS)
    is_missing = metadata_of(client, OFFSETS)["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
    if is_missing and replicas is not None and replicas > len(brokers):
        text = (
            f"{OFFSETS} cannot be made: {OFFSETS_REPLICAS}={replicas}, and {there_are(brokers)}. This sink does not "
            f"need it, but consumer groups that read {job.options.topic or 'its topics'} find no coordinator"
        )
        yield warn("consumer groups", text, f"{_fewer(OFFSETS_REPLICAS, len(brokers))}; or {_more(replicas, brokers)}")
    if default is not None and default > len(brokers):
        text = f"{DEFAULT_REPLICAS}={default}, and {there_are(brokers)}: topics made with defaults are refused"
        advice = f"{_fewer(DEFAULT_REPLICAS, len(brokers))}; in this job topic.replication.factor={len(brokers)}"
        yield warn("new topics", text, advice)


def request_size(job: CheckedJob, client: Client) -> Iterator[ProbeResult]:
    """A request is a little larger than its records. Brokers close the connection on one that is too large, so that it
    is sent again and again. No result if all fit, or brokers do not tell."""
    (allowed,) = _numbers_of(client, REQUEST_BYTES)
    wanted = job.options.producer.max_request_size
    if allowed is None or wanted * (100 + FRAME_PERCENT) // 100 <= allowed:
        return
    text = f"{REQUEST_BYTES}={allowed}, and a request may take max.request.size={wanted} and {FRAME_PERCENT} % more: "
    text = f"{text}brokers close the connection on a larger one without a word, and it never arrives"
    raised = restart_with(f"{REQUEST_BYTES}={wanted * (100 + FRAME_PERCENT) // 100 + 1}")
    yield warn("sizes", text, f"set kafka.max.request.size={allowed * (99 - FRAME_PERCENT) // 100}, or {raised}")


def _numbers_of(client: Client, *names: str) -> list[int | None]:
    told: Mapping[str, str | None] = client.broker_configs(names) or {}
    return [number_of(told, name) for name in names]


def _fewer(name: str, brokers: int, in_sync: str = "") -> str:
    wanted = min(3, brokers)
    also = (f"{in_sync}={max(1, wanted - 1)}",) if in_sync else ()
    return restart_with(f"{name}={wanted}", *also)


def _more(replicas: int, brokers: tuple[int, ...]) -> str:
    return f"start {count_of(replicas - len(brokers), 'more broker')}"
