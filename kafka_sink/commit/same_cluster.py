"""Is it still the cluster that the operation was planned with? An address may lead to another one: to a mirror, while a
driver was idle or between two of its batches. There the ids that the driver knows are unknown, so it fences, reads the
copied ledger and could go on. But its records would name the cluster from before: nobody could finish its decisions,
and its manifests would be about rows elsewhere.

What a driver writes in a transaction takes effect only where its producer id is known. So it is enough to compare once
after each fence, before anything is written under the identity that it gave: the coordinator that gave it is asked
(`Claim`). The check before each decision (`Preflight`) compares as well: so a cluster that changes between two batches
is noticed before anything is written, and so is one of a write without a label, which claims nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_sink.commit.session import DeliverySettings
from kafka_sink.kafka.client.ask import Ask, Target
from kafka_sink.kafka.wire.apis import METADATA

CLUSTER = "ask for the cluster"


def cluster_ask(target: Target) -> Ask:
    """About no topic, which needs no permission."""
    return Ask(target, METADATA, {"topics": [], "allow_auto_topic_creation": False}, CLUSTER)


def moved_problem(settings: DeliverySettings, metadata: Mapping[str, Any]) -> str | None:
    """Brokers that name no cluster are believed."""
    found = metadata.get("cluster_id") or ""
    if not found or not settings.cluster_id or found == settings.cluster_id:
        return None
    return (
        f"it was planned with the Kafka cluster {settings.cluster_id!r}, and {found!r} answers now: the address leads "
        "to another cluster. No decision is made across such a move, and the next start plans with the one that answers"
    )
