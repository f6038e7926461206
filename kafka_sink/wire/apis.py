"""The table of all supported APIs, by key, and their names as constants.

The rows are in apis_<area>.py. A version range is what this code can encode and decode, not what any broker offers: the
connection negotiates the highest common version. Kafka 2.1 is the oldest broker covered by all ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kafka_sink.wire.api import Api
from kafka_sink.wire.apis_cluster import API_VERSIONS, DESCRIBE_CLUSTER, DESCRIBE_QUORUM, METADATA
from kafka_sink.wire.apis_fetch import FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from kafka_sink.wire.apis_groups import (
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
)
from kafka_sink.wire.apis_produce import PRODUCE
from kafka_sink.wire.apis_sasl import SASL_AUTHENTICATE, SASL_HANDSHAKE
from kafka_sink.wire.apis_topics import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CONFIGS
from kafka_sink.wire.apis_transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_TRANSACTIONS,
    TXN_OFFSET_COMMIT,
)

APIS: Mapping[int, Api] = MappingProxyType(
    {
        api.key: api
        for api in (
            PRODUCE,
            FETCH,
            LIST_OFFSETS,
            METADATA,
            OFFSET_COMMIT,
            OFFSET_FETCH,
            FIND_COORDINATOR,
            JOIN_GROUP,
            HEARTBEAT,
            LEAVE_GROUP,
            SYNC_GROUP,
            DESCRIBE_GROUPS,
            LIST_GROUPS,
            SASL_HANDSHAKE,
            API_VERSIONS,
            CREATE_TOPICS,
            DELETE_TOPICS,
            INIT_PRODUCER_ID,
            OFFSET_FOR_LEADER_EPOCH,
            ADD_PARTITIONS_TO_TXN,
            ADD_OFFSETS_TO_TXN,
            END_TXN,
            TXN_OFFSET_COMMIT,
            DESCRIBE_CONFIGS,
            SASL_AUTHENTICATE,
            CREATE_PARTITIONS,
            DESCRIBE_QUORUM,
            DESCRIBE_CLUSTER,
            DESCRIBE_PRODUCERS,
            DESCRIBE_TRANSACTIONS,
            LIST_TRANSACTIONS,
        )
    }
)

__all__ = [
    "ADD_OFFSETS_TO_TXN",
    "ADD_PARTITIONS_TO_TXN",
    "APIS",
    "API_VERSIONS",
    "CREATE_PARTITIONS",
    "CREATE_TOPICS",
    "DELETE_TOPICS",
    "DESCRIBE_CLUSTER",
    "DESCRIBE_CONFIGS",
    "DESCRIBE_GROUPS",
    "DESCRIBE_PRODUCERS",
    "DESCRIBE_QUORUM",
    "DESCRIBE_TRANSACTIONS",
    "END_TXN",
    "FETCH",
    "FIND_COORDINATOR",
    "HEARTBEAT",
    "INIT_PRODUCER_ID",
    "JOIN_GROUP",
    "LEAVE_GROUP",
    "LIST_GROUPS",
    "LIST_OFFSETS",
    "LIST_TRANSACTIONS",
    "METADATA",
    "OFFSET_COMMIT",
    "OFFSET_FETCH",
    "OFFSET_FOR_LEADER_EPOCH",
    "PRODUCE",
    "SASL_AUTHENTICATE",
    "SASL_HANDSHAKE",
    "SYNC_GROUP",
    "TXN_OFFSET_COMMIT",
    "Api",
]
