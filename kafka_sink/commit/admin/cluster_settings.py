"""The settings of a delivery or of an operator's question: what the brokers report, and how a text reaches them.

Whoever reads a ledger needs all that the brokers report: what a marker ends depends on how far a fence raises the epoch
in this cluster, and whether a decision is of this cluster on its id. So settings are made here and nowhere else.
"""

from __future__ import annotations

from dataclasses import replace

from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.admin.support import TransactionSupport
from kafka_sink.commit.command_texts import BrokerArguments
from kafka_sink.commit.session import DeliverySettings

# A broker that has lost its leadership, or has just started, has heard of it by then.
SHORT_LOG_MS_MIN = 30_000


def settings_of_cluster(
    client: Client, ledger_topic: str, brokers: BrokerArguments, support: TransactionSupport | None = None
) -> DeliverySettings:
    """`support`: if it is known already."""
    support = support or client.transaction_support()
    return DeliverySettings(
        ledger_topic=ledger_topic,
        brokers=brokers,
        cluster_id=client.cluster_id(),
        transaction_version=support.transaction_version,
        fence_raises_max=support.fence_raises_max,
        epoch_of_end_is_safe=support.epoch_of_end_is_safe,
        brokers_verify=support.verifies,
        request_timeout_ms=client.options.request_timeout_ms,
    )


def settings_of_operator(
    client: Client,
    ledger_topic: str,
    brokers: BrokerArguments,
    patience_ms: int,
    support: TransactionSupport | None = None,
) -> DeliverySettings:
    """Of a command: whatever it asks for has the same time. In the usual time it must come to an end with a decision
    whose topic is gone, so that the operator can choose."""
    settings = settings_of_cluster(client, ledger_topic, brokers, support)
    short_log_ms = min(settings.short_log_ms, max(patience_ms // 2, SHORT_LOG_MS_MIN))
    return replace(settings, patience_ms=patience_ms, sweep_ms=patience_ms, short_log_ms=short_log_ms)
