"""Every permission that the mode needs (docs/security.md#permissions), checked without using it.

Topics: Metadata returns the client's authorized operations. There is no such request for transactional ids, so an
EndTxn is sent for an unused id: authorization is checked before the id is looked up, and an unknown id changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.admin.topics import NOT_TOLD, READ, TRANSACTION_LOG, WRITE, metadata_of
from kafka_sink.errors import AuthorizationError, KafkaSinkError
from kafka_sink.kafka.client.ask import Coordinator
from kafka_sink.kafka.client.outcome import describe
from kafka_sink.kafka.wire.apis import END_TXN
from kafka_sink.kafka.wire.codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TXN_STATE,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_NOT_FOUND,
    UNKNOWN_TOPIC_OR_PARTITION,
    code,
)
from kafka_sink.operate.checks.finding import ProbeResult, fail, ok, warn
from kafka_sink.operate.checks.job import CheckedJob
from kafka_sink.operate.checks.kafka_tools import KafkaTools, tools_for

# The coordinator does not know the id, so nothing was done.
NOT_KNOWN = (INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, TRANSACTIONAL_ID_NOT_FOUND)
# A producer id that no broker has assigned.
NO_ONES = 1 << 62
_NAMES = {READ: "Read", WRITE: "Write"}
_LOG_ADVICE = (
    "look at the brokers' log; transaction.state.log.replication.factor and .min.isr must not be above the number of "
    "brokers"
)


def permissions(job: CheckedJob, client: Client) -> Iterator[ProbeResult]:
    is_exactly_once = job.is_exactly_once(client)
    wanted = [(topic, (WRITE, READ) if is_exactly_once else (WRITE,)) for topic in job.topics]
    if is_exactly_once:
        wanted.append((job.options.ledger_topic, (WRITE, READ)))
        if job.options.manifest_topic is not None:
            wanted.append((job.options.manifest_topic, (WRITE,)))
    for topic, operations in wanted:
        yield from _on_topic(client, topic, operations, tools_for(job.options.producer))


def _on_topic(client: Client, topic: str, operations: tuple[int, ...], tools: KafkaTools) -> Iterator[ProbeResult]:
    row = metadata_of(client, topic)
    if row["error_code"] == UNKNOWN_TOPIC_OR_PARTITION:
        return  # reported by another probe
    if row["error_code"] == TOPIC_AUTHORIZATION_FAILED:
        text = f"not authorized for topic {topic}: not even Describe, which Read and Write imply"
        yield fail("permissions", text, tools.grant([_NAMES[each] for each in operations], "--topic", topic))
        return
    told = row["topic_authorized_operations"]
    if told == NOT_TOLD:
        text = f"the brokers do not tell what is allowed on topic {topic}"
        yield warn("permissions", text, "try it: add --probe-write to this command")
        return
    missing = [_NAMES[each] for each in operations if not told >> each & 1]
    if missing:
        text = f"not authorized for topic {topic}: {' and '.join(missing)} missing"
        yield fail("permissions", text, tools.grant(missing, "--topic", topic))
    else:
        names = " and ".join(_NAMES[each] for each in operations)
        yield ok("permissions", f"topic {topic}: {names}")


def coordinator(job: CheckedJob, client: Client) -> Iterator[ProbeResult]:
    """Checks that there is one, and that ids of this sink may be used."""
    if not job.is_exactly_once(client) or client.transaction_support().missing:
        return
    seen = metadata_of(client, TRANSACTION_LOG)["error_code"]
    if seen == UNKNOWN_TOPIC_OR_PARTITION:
        # A coordinator lookup would make the brokers create the transaction state topic.
        text = "no transaction was ever begun in this cluster, so coordinators were not asked"
        yield ok("coordinator", text, "--probe-write begins one, and aborts it")
        return
    prefix = job.probing_id.removesuffix("check")
    body = {"transactional_id": job.unused_id, "producer_id": NO_ONES, "producer_epoch": 0, "committed": False}
    try:
        error_code = client.ask(Coordinator(job.unused_id), END_TXN, body, version_max=3)["error_code"]
    except AuthorizationError:
        error_code = TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    except KafkaSinkError as error:
        if seen == TOPIC_AUTHORIZATION_FAILED:
            # Not visible to this client. If it did not exist, the brokers are creating it now.
            yield warn("coordinator", f"no coordinator of transactions yet: {error}", "repeat the check")
        else:
            yield fail("coordinator", f"no coordinator of transactions: {error}", _LOG_ADVICE)
        return
    if error_code in (TRANSACTIONAL_ID_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED):
        text = f"not authorized for transactional ids that begin with {prefix}: Write missing"
        yield fail("permissions", text, grant_on_ids(job))
    elif error_code in NOT_KNOWN:
        yield ok("permissions", f"transactional ids that begin with {prefix}: Write")
        yield ok("coordinator", "the coordinator of this sink's transactions answers")
    elif code(error_code).retriable:
        text = f"the coordinator answers {describe(error_code)}"
        yield warn("coordinator", text, "repeat the check; tasks wait for it up to kafka.max.block.ms")
    else:
        yield fail("coordinator", f"the coordinator answers {describe(error_code)}", _LOG_ADVICE)


def grant_on_ids(job: CheckedJob) -> str:
    prefix = job.probing_id.removesuffix("check")
    tools = tools_for(job.options.producer)
    return tools.grant(("Write",), "--transactional-id", prefix, "--resource-pattern-type", "prefixed")
