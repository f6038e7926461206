"""The messages of transactions and consumer groups, in the same form as messages_data.py.

EndTxn v5 answers with the producer id and epoch of the next transaction (KIP-890). The producer joins no group: the
messages of groups are for the embedded broker, which serves ordinary consumers.
"""

MESSAGES = """
FindCoordinator request
    key: string, 0-3
    key_type: int8, 1+
    coordinator_keys: []string, 4+

FindCoordinator answer
    throttle_time_ms: int32, 1+, ignorable
    error_code: int16, 0-3
    error_message: string, 1-3, nullable, ignorable
    node_id: int32, 0-3
    host: string, 0-3
    port: int32, 0-3
    coordinators: []struct, 4+
        key: string
        node_id: int32
        host: string
        port: int32
        error_code: int16
        error_message: string, nullable, ignorable

InitProducerId request
    transactional_id: string, nullable
    transaction_timeout_ms: int32
    producer_id: int64, 3+, default -1
    producer_epoch: int16, 3+, default -1

InitProducerId answer
    throttle_time_ms: int32, ignorable
    error_code: int16
    producer_id: int64, default -1
    producer_epoch: int16

AddPartitionsToTxn request
    v3_and_below_transactional_id: string
    v3_and_below_producer_id: int64
    v3_and_below_producer_epoch: int16
    v3_and_below_topics: []struct
        name: string
        partitions: []int32

AddPartitionsToTxn answer
    throttle_time_ms: int32
    results_by_topic_v3_and_below: []struct
        name: string
        results_by_partition: []struct
            partition_index: int32
            partition_error_code: int16

AddOffsetsToTxn request
    transactional_id: string
    producer_id: int64
    producer_epoch: int16
    group_id: string

AddOffsetsToTxn answer
    throttle_time_ms: int32
    error_code: int16

EndTxn request
    transactional_id: string
    producer_id: int64
    producer_epoch: int16
    committed: bool

EndTxn answer
    throttle_time_ms: int32
    error_code: int16
    producer_id: int64, 5+, default -1, ignorable
    producer_epoch: int16, 5+, default -1, ignorable

TxnOffsetCommit request
    transactional_id: string
    group_id: string
    producer_id: int64
    producer_epoch: int16
    generation_id: int32, 3+, default -1
    member_id: string, 3+
    group_instance_id: string, 3+, nullable, default null
    topics: []struct
        name: string
        partitions: []struct
            partition_index: int32
            committed_offset: int64
            committed_leader_epoch: int32, 2+, default -1, ignorable
            committed_metadata: string, nullable

TxnOffsetCommit answer
    throttle_time_ms: int32
    topics: []struct
        name: string
        partitions: []struct
            partition_index: int32
            error_code: int16

DescribeProducers request
    topics: []struct
        name: string
        partition_indexes: []int32

DescribeProducers answer
    throttle_time_ms: int32
    topics: []struct
        name: string
        partitions: []struct
            partition_index: int32
            error_code: int16
            error_message: string, nullable, default null
            active_producers: []struct
                producer_id: int64
                producer_epoch: int32
                last_sequence: int32, default -1
                last_timestamp: int64, default -1
                coordinator_epoch: int32
                current_txn_start_offset: int64, default -1

DescribeTransactions request
    transactional_ids: []string

DescribeTransactions answer
    throttle_time_ms: int32
    transaction_states: []struct
        error_code: int16
        transactional_id: string
        transaction_state: string
        transaction_timeout_ms: int32
        transaction_start_time_ms: int64
        producer_id: int64
        producer_epoch: int16
        topics: []struct
            topic: string
            partitions: []int32

ListTransactions request
    state_filters: []string
    producer_id_filters: []int64
    duration_filter: int64, 1+, default -1
    transactional_id_pattern: string, 2+, nullable, default null

ListTransactions answer
    throttle_time_ms: int32
    error_code: int16
    unknown_state_filters: []string
    transaction_states: []struct
        transactional_id: string
        producer_id: int64
        transaction_state: string

JoinGroup request
    group_id: string
    session_timeout_ms: int32
    rebalance_timeout_ms: int32, 1+, default -1, ignorable
    member_id: string
    group_instance_id: string, 5+, nullable, default null
    protocol_type: string
    protocols: []struct
        name: string
        metadata: bytes
    reason: string, 8+, nullable, default null, ignorable

JoinGroup answer
    throttle_time_ms: int32, 2+, ignorable
    error_code: int16
    generation_id: int32, default -1
    protocol_type: string, 7+, nullable, default null, ignorable
    protocol_name: string, nullable 7+
    leader: string
    skip_assignment: bool, 9+
    member_id: string
    members: []struct
        member_id: string
        group_instance_id: string, 5+, nullable, default null, ignorable
        metadata: bytes

SyncGroup request
    group_id: string
    generation_id: int32
    member_id: string
    group_instance_id: string, 3+, nullable, default null
    protocol_type: string, 5+, nullable, default null, ignorable
    protocol_name: string, 5+, nullable, default null, ignorable
    assignments: []struct
        member_id: string
        assignment: bytes

SyncGroup answer
    throttle_time_ms: int32, 1+, ignorable
    error_code: int16
    protocol_type: string, 5+, nullable, default null, ignorable
    protocol_name: string, 5+, nullable, default null, ignorable
    assignment: bytes

Heartbeat request
    group_id: string
    generation_id: int32
    member_id: string
    group_instance_id: string, 3+, nullable, default null

Heartbeat answer
    throttle_time_ms: int32, 1+, ignorable
    error_code: int16

LeaveGroup request
    group_id: string
    member_id: string, 0-2
    members: []struct, 3+
        member_id: string
        group_instance_id: string, nullable, default null
        reason: string, 5+, nullable, default null, ignorable

LeaveGroup answer
    throttle_time_ms: int32, 1+, ignorable
    error_code: int16
    members: []struct, 3+
        member_id: string
        group_instance_id: string, nullable
        error_code: int16

OffsetCommit request
    group_id: string
    generation_id_or_member_epoch: int32, default -1, ignorable
    member_id: string, ignorable
    group_instance_id: string, 7+, nullable, default null
    retention_time_ms: int64, 0-4, default -1, ignorable
    topics: []struct
        name: string, ignorable
        partitions: []struct
            partition_index: int32
            committed_offset: int64
            committed_leader_epoch: int32, 6+, default -1, ignorable
            committed_metadata: string, nullable

OffsetCommit answer
    throttle_time_ms: int32, 3+, ignorable
    topics: []struct
        name: string, ignorable
        partitions: []struct
            partition_index: int32
            error_code: int16

OffsetFetch request
    group_id: string, 0-7
    topics: []struct, 0-7, nullable 2+
        name: string
        partition_indexes: []int32
    groups: []struct, 8+
        group_id: string
        member_id: string, 9+, nullable, default null, ignorable
        member_epoch: int32, 9+, default -1, ignorable
        topics: []struct, nullable
            name: string, ignorable
            partition_indexes: []int32
    require_stable: bool, 7+

OffsetFetch answer
    throttle_time_ms: int32, 3+, ignorable
    topics: []struct, 0-7
        name: string
        partitions: []struct
            partition_index: int32
            committed_offset: int64
            committed_leader_epoch: int32, 5+, default -1, ignorable
            metadata: string, nullable
            error_code: int16
    error_code: int16, 2-7, ignorable
    groups: []struct, 8+
        group_id: string
        topics: []struct
            name: string, ignorable
            partitions: []struct
                partition_index: int32
                committed_offset: int64
                committed_leader_epoch: int32, default -1, ignorable
                metadata: string, nullable
                error_code: int16
        error_code: int16

ListGroups request
    states_filter: []string, 4+
    types_filter: []string, 5+

ListGroups answer
    throttle_time_ms: int32, 1+, ignorable
    error_code: int16
    groups: []struct
        group_id: string
        protocol_type: string
        group_state: string, 4+, ignorable
        group_type: string, 5+, ignorable

DescribeGroups request
    groups: []string
    include_authorized_operations: bool, 3+

DescribeGroups answer
    throttle_time_ms: int32, 1+, ignorable
    groups: []struct
        error_code: int16
        error_message: string, 6+, nullable, default null
        group_id: string
        group_state: string
        protocol_type: string
        protocol_data: string
        members: []struct
            member_id: string
            group_instance_id: string, 4+, nullable, default null, ignorable
            client_id: string
            client_host: string
            member_metadata: bytes
            member_assignment: bytes
        authorized_operations: int32, 3+, default -2147483648
"""
