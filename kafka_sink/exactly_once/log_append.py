"""Appends one batch to the ledger, acknowledged by all in-sync replicas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_sink.client.admin_request import Leader, RequestKey
from kafka_sink.exactly_once.log_scan import only_partition
from kafka_sink.exactly_once.retry_queue import RetryQueue
from kafka_sink.exactly_once.session import DeliverySettings
from kafka_sink.wire.apis import PRODUCE

ACKS_ALL = -1
# Up to this version requests contain topic names rather than ids.
PRODUCE_LAST_BY_NAME = 12


def ask_append(
    queue: RetryQueue,
    now_ms: int,
    key: RequestKey,
    settings: DeliverySettings,
    records: bytes,
    *,
    transactional_id: str | None = None,
    version_min: int = 0,
    version_max: int = PRODUCE_LAST_BY_NAME,
) -> None:
    topic, partition = settings.ledger_topic, settings.ledger_partition
    body = {
        "transactional_id": transactional_id,
        "acks": ACKS_ALL,
        "timeout_ms": settings.request_timeout_ms,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
    }
    target = Leader(topic, partition)
    queue.ask(now_ms, key, target, PRODUCE, body, version_min=version_min, version_max=version_max)


def read_append_answer(body: Mapping[str, Any]) -> tuple[int, int]:
    """Error code and offset."""
    partition = only_partition(body["responses"], "partition_responses")
    return partition["error_code"], partition["base_offset"]
