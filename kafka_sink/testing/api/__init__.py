"""The APIs of the embedded broker, one file per area, each with versions and behaviour at the top."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from kafka_sink.kafka.wire import apis
from kafka_sink.testing.api import fetch, groups, metadata, produce, sasl, topics, transactions, versions
from kafka_sink.testing.api.parts import Answer
from kafka_sink.testing.call import Call

HANDLERS: Mapping[int, Callable[[Call], Answer | None]] = MappingProxyType(
    {
        apis.PRODUCE.key: produce.on_produce,
        apis.FETCH.key: fetch.on_fetch,
        apis.LIST_OFFSETS.key: fetch.on_list_offsets,
        apis.METADATA.key: metadata.on_metadata,
        apis.OFFSET_COMMIT.key: groups.on_offset_commit,
        apis.OFFSET_FETCH.key: groups.on_offset_fetch,
        apis.FIND_COORDINATOR.key: metadata.on_find_coordinator,
        apis.JOIN_GROUP.key: groups.on_join_group,
        apis.HEARTBEAT.key: groups.on_heartbeat,
        apis.LEAVE_GROUP.key: groups.on_leave_group,
        apis.SYNC_GROUP.key: groups.on_sync_group,
        apis.DESCRIBE_GROUPS.key: groups.on_describe_groups,
        apis.LIST_GROUPS.key: groups.on_list_groups,
        apis.SASL_HANDSHAKE.key: sasl.on_handshake,
        apis.API_VERSIONS.key: versions.on_api_versions,
        apis.CREATE_TOPICS.key: topics.on_create_topics,
        apis.DELETE_TOPICS.key: topics.on_delete_topics,
        apis.INIT_PRODUCER_ID.key: transactions.on_init_producer_id,
        apis.OFFSET_FOR_LEADER_EPOCH.key: fetch.on_offset_for_leader_epoch,
        apis.ADD_PARTITIONS_TO_TXN.key: transactions.on_add_partitions,
        apis.ADD_OFFSETS_TO_TXN.key: transactions.on_add_offsets,
        apis.END_TXN.key: transactions.on_end_txn,
        apis.TXN_OFFSET_COMMIT.key: transactions.on_txn_offset_commit,
        apis.DESCRIBE_CONFIGS.key: topics.on_describe_configs,
        apis.SASL_AUTHENTICATE.key: sasl.on_authenticate,
        apis.DESCRIBE_CLIENT_QUOTAS.key: topics.on_describe_client_quotas,
        apis.CREATE_PARTITIONS.key: topics.on_create_partitions,
        apis.DESCRIBE_QUORUM.key: metadata.on_describe_quorum,
        apis.DESCRIBE_CLUSTER.key: metadata.on_describe_cluster,
        apis.DESCRIBE_PRODUCERS.key: fetch.on_describe_producers,
        apis.DESCRIBE_TRANSACTIONS.key: transactions.on_describe_transactions,
        apis.LIST_TRANSACTIONS.key: transactions.on_list_transactions,
    }
)
