"""Differences of Kafka-compatible services from Apache Kafka, as far as they affect a sink.

Based on the services' documentation (sources in docs/services.md), not on recordings: it shows how a client behaves
with such brokers, not that a service behaves like that today.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kafka_sink.testing.errors import Code

_TRANSACTIONS = frozenset(
    {"InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit"}
    | {"DescribeTransactions", "ListTransactions", "DescribeProducers"}
)
# Transaction version 1, without a sign whether transactions are verified.
_VERIFICATION = "transaction.partition.verification.enable"
_FIRST_GENERATION = {"transaction.version": "0", _VERIFICATION: "false"}
_ADDS_AS_CLIENT = {"AddPartitionsToTxn": 3}


@dataclass(frozen=True, slots=True)
class Quirks:
    """`topic_configs` None: all that the model supports. `codecs`: three bits, 0 is none."""

    properties: Mapping[str, str] = field(default_factory=dict)
    release: str = ""
    missing_apis: frozenset[str] = frozenset()
    last_versions: Mapping[str, int] = field(default_factory=dict)
    codecs: frozenset[int] = frozenset(range(8))
    replication_factors: frozenset[int] | None = None
    topic_configs: frozenset[str] | None = None
    protected_configs: frozenset[str] = frozenset()
    topic_config_minima: Mapping[str, int] = field(default_factory=dict)
    refusal: Code = Code.INVALID_CONFIG
    # The answer about the configuration of a broker; NONE: it is told.
    broker_configs: Code = Code.NONE
    untold_broker_configs: frozenset[str] = frozenset()
    # What comes with the refusal of a login besides its text.
    refused_token: bytes | None = b""
    # A connection without a request for this long is closed; 0: never.
    idle_ms: int = 0
    # How a transaction ended is in the log. Without that only until a restart from `data_dir`.
    writes_markers: bool = True


_EVENT_HUBS = Quirks(
    {"auto.create.topics.enable": "false", "socket.request.max.bytes": "1046528"},
    codecs=frozenset({0}),
    topic_configs=frozenset(),
    broker_configs=Code.UNKNOWN_TOPIC_OR_PARTITION,
    refused_token=None,
    idle_ms=240_000,
)
QUIRKS: Mapping[str, Quirks] = {
    "confluent-cloud": Quirks(
        {"auto.create.topics.enable": "false", "default.replication.factor": "3"},
        replication_factors=frozenset({-1, 3}),
        topic_config_minima={"segment.bytes": 52_428_800},
        refusal=Code.POLICY_VIOLATION,
    ),
    "msk": Quirks({"auto.create.topics.enable": "false"}),
    "msk-express": Quirks(
        {"auto.create.topics.enable": "false", "default.replication.factor": "3", "min.insync.replicas": "2"},
        protected_configs=frozenset({"segment.bytes", "min.insync.replicas", "unclean.leader.election.enable"}),
        refusal=Code.INVALID_REQUEST,
    ),
    "msk-serverless": Quirks(
        {"auto.create.topics.enable": "false", "default.replication.factor": "3"},
        replication_factors=frozenset({-1, 3}),
        topic_configs=frozenset(
            {"cleanup.policy", "compression.type", "max.message.bytes", "message.timestamp.type"}
            | {"message.timestamp.difference.max.ms", "retention.bytes", "retention.ms"}
        ),
        broker_configs=Code.INVALID_REQUEST,
    ),
    # The tiers without transactions.
    "event-hubs": replace(_EVENT_HUBS, missing_apis=_TRANSACTIONS - {"InitProducerId"}),
    "event-hubs-premium": _EVENT_HUBS,
    "redpanda": Quirks(_FIRST_GENERATION, "3.9", last_versions=_ADDS_AS_CLIENT),
    "warpstream": Quirks(
        _FIRST_GENERATION,
        "3.9",
        missing_apis=frozenset({"DescribeProducers"}),
        last_versions=_ADDS_AS_CLIENT,
        writes_markers=False,
    ),
    # It has the last versions of each request as of Kafka 3.7, of which no client sends this one.
    "bufstream": Quirks(
        _FIRST_GENERATION,
        "3.9",
        last_versions={"AddPartitionsToTxn": 4},
        untold_broker_configs=frozenset({_VERIFICATION}),
    ),
    "automq": Quirks(),
    "strimzi": Quirks(),
}
NONE = Quirks()
