"""The messages that any broker answers, and the leader of a partition: records, offsets, the cluster, topics, logins.

The rows follow the message definitions of Apache Kafka up to 4.3; `schema.parse_fields` says how they are read.
Topics have ids instead of names since v13 in Fetch and Produce (KIP-516). Answers name a new leader in tagged fields:
those of Produce since v10, of Fetch since v16 (KIP-951). Since Produce v12 the broker adds partitions to a transaction
(KIP-890).

One row is wider than Kafka's: with a refusal of a login, Azure Event Hubs sends null as `auth_bytes`.
"""

MESSAGES = """
Produce request
    transactional_id: string, nullable, default null
    acks: int16
    timeout_ms: int32
    topic_data: []struct
        name: string, 0-12, ignorable
        topic_id: uuid, 13+, ignorable
        partition_data: []struct
            index: int32
            records: records, nullable

Produce answer
    responses: []struct
        name: string, 0-12, ignorable
        topic_id: uuid, 13+, ignorable
        partition_responses: []struct
            index: int32
            error_code: int16
            base_offset: int64
            log_append_time_ms: int64, default -1, ignorable
            log_start_offset: int64, 5+, default -1, ignorable
            record_errors: []struct, 8+, ignorable
                batch_index: int32
                batch_index_error_message: string, nullable, default null
            error_message: string, 8+, nullable, default null, ignorable
            current_leader: struct, 10+, tag 0
                leader_id: int32, default -1
                leader_epoch: int32, default -1
    throttle_time_ms: int32, ignorable
    node_endpoints: []struct, 10+, tag 0
        node_id: int32
        host: string
        port: int32
        rack: string, nullable, default null

Fetch request
    cluster_id: string, 12+, tag 0, nullable, default null, ignorable
    replica_id: int32, 0-14, default -1
    replica_state: struct, 15+, tag 1
        replica_id: int32, default -1
        replica_epoch: int64, default -1
    max_wait_ms: int32
    min_bytes: int32
    max_bytes: int32, default 2147483647, ignorable
    isolation_level: int8, ignorable
    session_id: int32, 7+, ignorable
    session_epoch: int32, 7+, default -1, ignorable
    topics: []struct
        topic: string, 0-12, ignorable
        topic_id: uuid, 13+, ignorable
        partitions: []struct
            partition: int32
            current_leader_epoch: int32, 9+, default -1, ignorable
            fetch_offset: int64
            last_fetched_epoch: int32, 12+, default -1
            log_start_offset: int64, 5+, default -1, ignorable
            partition_max_bytes: int32
            replica_directory_id: uuid, 17+, tag 0, ignorable
            high_watermark: int64, 18+, tag 1, default 9223372036854775807, ignorable
    forgotten_topics_data: []struct, 7+
        topic: string, 0-12, ignorable
        topic_id: uuid, 13+, ignorable
        partitions: []int32
    rack_id: string, 11+, ignorable

Fetch answer
    throttle_time_ms: int32, ignorable
    error_code: int16, 7+, ignorable
    session_id: int32, 7+
    responses: []struct
        topic: string, 0-12, ignorable
        topic_id: uuid, 13+, ignorable
        partitions: []struct
            partition_index: int32
            error_code: int16
            high_watermark: int64
            last_stable_offset: int64, default -1, ignorable
            log_start_offset: int64, 5+, default -1, ignorable
            diverging_epoch: struct, 12+, tag 0
                epoch: int32, default -1
                end_offset: int64, default -1
            current_leader: struct, 12+, tag 1
                leader_id: int32, default -1
                leader_epoch: int32, default -1
            snapshot_id: struct, 12+, tag 2
                end_offset: int64, default -1
                epoch: int32, default -1
            aborted_transactions: []struct, nullable, ignorable
                producer_id: int64
                first_offset: int64
            preferred_read_replica: int32, 11+, default -1
            records: records, nullable
    node_endpoints: []struct, 16+, tag 0
        node_id: int32
        host: string
        port: int32
        rack: string, nullable, default null

ListOffsets request
    replica_id: int32
    isolation_level: int8, 2+
    topics: []struct
        name: string
        partitions: []struct
            partition_index: int32
            current_leader_epoch: int32, 4+, default -1, ignorable
            timestamp: int64
    timeout_ms: int32, 10+, ignorable

ListOffsets answer
    throttle_time_ms: int32, 2+, ignorable
    topics: []struct
        name: string
        partitions: []struct
            partition_index: int32
            error_code: int16
            timestamp: int64, default -1
            offset: int64, default -1
            leader_epoch: int32, 4+, default -1

OffsetForLeaderEpoch request
    replica_id: int32, 3+, default -2, ignorable
    topics: []struct
        topic: string
        partitions: []struct
            partition: int32
            current_leader_epoch: int32, default -1, ignorable
            leader_epoch: int32

OffsetForLeaderEpoch answer
    throttle_time_ms: int32, ignorable
    topics: []struct
        topic: string
        partitions: []struct
            error_code: int16
            partition: int32
            leader_epoch: int32, default -1, ignorable
            end_offset: int64, default -1

Metadata request
    topics: []struct, nullable
        topic_id: uuid, 10+, ignorable
        name: string, nullable 10+
    allow_auto_topic_creation: bool, default true
    include_cluster_authorized_operations: bool, 8-10
    include_topic_authorized_operations: bool, 8+

Metadata answer
    throttle_time_ms: int32, ignorable
    brokers: []struct
        node_id: int32
        host: string
        port: int32
        rack: string, nullable, default null, ignorable
    cluster_id: string, nullable, default null, ignorable
    controller_id: int32, default -1, ignorable
    topics: []struct
        error_code: int16
        name: string, nullable 12+
        topic_id: uuid, 10+, ignorable
        is_internal: bool, ignorable
        partitions: []struct
            error_code: int16
            partition_index: int32
            leader_id: int32
            leader_epoch: int32, 7+, default -1, ignorable
            replica_nodes: []int32
            isr_nodes: []int32
            offline_replicas: []int32, 5+, ignorable
        topic_authorized_operations: int32, 8+, default -2147483648
    cluster_authorized_operations: int32, 8-10, default -2147483648
    error_code: int16, 13+, ignorable

ApiVersions request
    client_software_name: string, 3+, ignorable
    client_software_version: string, 3+, ignorable

ApiVersions answer
    error_code: int16
    api_keys: []struct
        api_key: int16
        min_version: int16
        max_version: int16
    throttle_time_ms: int32, 1+, ignorable
    supported_features: []struct, 3+, tag 0, ignorable
        name: string
        min_version: int16
        max_version: int16
    finalized_features_epoch: int64, 3+, tag 1, default -1, ignorable
    finalized_features: []struct, 3+, tag 2, ignorable
        name: string
        max_version_level: int16
        min_version_level: int16
    zk_migration_ready: bool, 3+, tag 3, ignorable

DescribeCluster request
    include_cluster_authorized_operations: bool
    endpoint_type: int8, 1+, default true
    include_fenced_brokers: bool, 2+

DescribeCluster answer
    throttle_time_ms: int32
    error_code: int16
    error_message: string, nullable, default null
    endpoint_type: int8, 1+, default true
    cluster_id: string
    controller_id: int32, default -1
    brokers: []struct
        broker_id: int32
        host: string
        port: int32
        rack: string, nullable, default null
        is_fenced: bool, 2+
    cluster_authorized_operations: int32, default -2147483648

DescribeQuorum request
    topics: []struct
        topic_name: string
        partitions: []struct
            partition_index: int32

DescribeQuorum answer
    error_code: int16
    topics: []struct
        topic_name: string
        partitions: []struct
            partition_index: int32
            error_code: int16
            leader_id: int32
            leader_epoch: int32
            high_watermark: int64
            current_voters: []struct
                replica_id: int32
                log_end_offset: int64
                last_fetch_timestamp: int64, default -1, ignorable
                last_caught_up_timestamp: int64, default -1, ignorable
            observers: []struct
                replica_id: int32
                log_end_offset: int64
                last_fetch_timestamp: int64, default -1, ignorable
                last_caught_up_timestamp: int64, default -1, ignorable

CreateTopics request
    topics: []struct
        name: string
        num_partitions: int32
        replication_factor: int16
        assignments: []struct
            partition_index: int32
            broker_ids: []int32
        configs: []struct
            name: string
            value: string, nullable
    timeout_ms: int32, default 60000
    validate_only: bool

CreateTopics answer
    throttle_time_ms: int32, ignorable
    topics: []struct
        name: string
        topic_id: uuid, 7+, ignorable
        error_code: int16
        error_message: string, nullable, ignorable
        topic_config_error_code: int16, 5+, tag 0, ignorable
        num_partitions: int32, 5+, default -1, ignorable
        replication_factor: int16, 5+, default -1, ignorable
        configs: []struct, 5+, nullable, ignorable
            name: string
            value: string, nullable
            read_only: bool
            config_source: int8, default -1, ignorable
            is_sensitive: bool

DeleteTopics request
    topics: []struct, 6+
        name: string, nullable, default null
        topic_id: uuid
    topic_names: []string, 0-5, ignorable
    timeout_ms: int32

DeleteTopics answer
    throttle_time_ms: int32, ignorable
    responses: []struct
        name: string, nullable 6+
        topic_id: uuid, 6+, ignorable
        error_code: int16
        error_message: string, 5+, nullable, default null, ignorable

CreatePartitions request
    topics: []struct
        name: string
        count: int32
        assignments: []struct, nullable
            broker_ids: []int32
    timeout_ms: int32
    validate_only: bool

CreatePartitions answer
    throttle_time_ms: int32
    results: []struct
        name: string
        error_code: int16
        error_message: string, nullable, default null

DescribeClientQuotas request
    components: []struct
        entity_type: string
        match_type: int8
        match: string, nullable
    strict: bool

DescribeClientQuotas answer
    throttle_time_ms: int32
    error_code: int16
    error_message: string, nullable
    entries: []struct, nullable
        entity: []struct
            entity_type: string
            entity_name: string, nullable
        values: []struct
            key: string
            value: float64

DescribeConfigs request
    resources: []struct
        resource_type: int8
        resource_name: string
        configuration_keys: []string, nullable
    include_synonyms: bool
    include_documentation: bool, 3+

DescribeConfigs answer
    throttle_time_ms: int32
    results: []struct
        error_code: int16
        error_message: string, nullable
        resource_type: int8
        resource_name: string
        configs: []struct
            name: string
            value: string, nullable
            read_only: bool
            config_source: int8, default -1, ignorable
            is_sensitive: bool
            synonyms: []struct, ignorable
                name: string
                value: string, nullable
                source: int8
            config_type: int8, 3+, ignorable
            documentation: string, 3+, nullable, ignorable

SaslHandshake request
    mechanism: string

SaslHandshake answer
    error_code: int16
    mechanisms: []string

SaslAuthenticate request
    auth_bytes: bytes

SaslAuthenticate answer
    error_code: int16
    error_message: string, nullable
    auth_bytes: bytes, nullable
    session_lifetime_ms: int64, 1+, ignorable
"""
