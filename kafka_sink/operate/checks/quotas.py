"""Quotas on what this job writes: brokers delay a client beyond its quota, and say so to nobody but the client.

Which quota applies is decided as by Apache Kafka: the most specific one of user and client id. All tasks of a sink
share one client id; planning and commits have another one. The user is known here for SASL with a user name, and
without any login; otherwise quotas of users are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.admin.client_pool import driver_client_id
from kafka_sink.errors import KafkaSinkError
from kafka_sink.frozen import frozen
from kafka_sink.kafka.client.ask import AnyBroker, Repeat
from kafka_sink.kafka.wire.apis import DESCRIBE_CLIENT_QUOTAS
from kafka_sink.operate.checks.finding import ProbeResult, ok, warn
from kafka_sink.operate.checks.job import CheckedJob
from kafka_sink.operate.checks.kafka_tools import tools_for
from kafka_sink.options import ProducerOptions
from kafka_sink.spark.client_id import client_id_of

USER, CLIENT = "user", "client-id"
BYTE_RATE, TIME_SHARE = "producer_byte_rate", "request_percentage"
ANONYMOUS = "ANONYMOUS"
# In percent of one thread. Below, a commit of many tasks waits for seconds.
TIME_SHARE_LOW = 1.0
_EVERY: dict[str, Any] = {"components": [], "strict": False}


@frozen
class Quota:
    """`entity`: name by type, None is the default of the type."""

    entity: Mapping[str, str | None]
    value: float

    def __str__(self) -> str:
        return ", ".join(f"{kind} {name or '(default)'}" for kind, name in self.entity.items())


def quotas(job: CheckedJob, client: Client) -> Iterator[ProbeResult]:
    """No result without quotas for this job, before Kafka 2.8, or without DescribeConfigs on the cluster."""
    try:
        answer = client.ask(AnyBroker(), DESCRIBE_CLIENT_QUOTAS, _EVERY, repeat=Repeat.ALWAYS)
    except KafkaSinkError:
        return
    if answer["error_code"]:
        return
    options, entries = job.options.producer, answer["entries"] or ()
    of_tasks, of_driver = client_id_of(job.options), driver_client_id(options.client_id)
    rate = applying_quota(entries, BYTE_RATE, _user_of(options), of_tasks)
    if rate is not None:
        yield _rate_finding(options, rate)
    shares = [applying_quota(entries, TIME_SHARE, _user_of(options), name) for name in (of_tasks, of_driver)]
    for share in {str(each): each for each in shares if each is not None}.values():
        yield _share_finding(options, share)


def applying_quota(entries: Sequence[Mapping[str, Any]], name: str, user: str | None, client_id: str) -> Quota | None:
    """`client_id` empty: any name that nobody has chosen."""
    found: dict[tuple[int, int], Quota] = {}
    for entry in entries:
        entity = {row["entity_type"]: row["entity_name"] for row in entry["entity"]}
        values = {row["key"]: row["value"] for row in entry["values"]}
        if name not in values or not entity.keys() <= {USER, CLIENT}:
            continue
        rank = (_rank(entity, USER, user), _rank(entity, CLIENT, client_id or None))
        if min(rank) >= 0:
            found[rank] = Quota(entity, values[name])
    return found[max(found)] if found else None


def _rank(entity: Mapping[str, str | None], kind: str, name: str | None) -> int:
    """3: by name, 2: by default, 1: for all; -1: of somebody else."""
    if kind not in entity:
        return 1
    if entity[kind] is None:
        return 2
    return 3 if entity[kind] == name else -1


def _user_of(options: ProducerOptions) -> str | None:
    if options.has_sasl:
        return options.sasl_username
    return None if options.has_tls else ANONYMOUS


def _rate_finding(options: ProducerOptions, quota: Quota) -> ProbeResult:
    rate = max(quota.value, 1.0)
    text = f"{BYTE_RATE}={quota.value:.0f} bytes/s on each broker for {quota}"
    whole_ms = options.buffer_memory / rate * 1000
    if whole_ms <= options.delivery_timeout_ms:
        return ok("quotas", f"{text}: all tasks together write no faster")
    text = (
        f"{text}: a task with a full buffer (kafka.buffer.memory={options.buffer_memory}) needs {whole_ms / 1000:.0f} s"
        f", and gives rows up after kafka.delivery.timeout.ms={options.delivery_timeout_ms}"
    )
    enough = int(options.buffer_memory / (options.delivery_timeout_ms / 1000)) + 1
    removed = tools_for(options).delete_quota(quota.entity, BYTE_RATE)
    return warn("quotas", text, f"raise it above {enough} bytes/s for each task of a broker, or remove it: {removed}")


def _share_finding(options: ProducerOptions, quota: Quota) -> ProbeResult:
    text = f"{TIME_SHARE}={quota.value:g} on each broker for {quota}"
    if quota.value >= TIME_SHARE_LOW:
        return ok("quotas", f"{text}: a share of the brokers' threads, in percent")
    text = f"{text}: brokers pause this client after nearly every request, and batches take many seconds"
    return warn("quotas", text, f"{tools_for(options).delete_quota(quota.entity, TIME_SHARE)}, or raise it")
