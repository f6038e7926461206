"""The transaction coordinator: find it, get a producer id, add partitions and offsets, end; list and describe.

AddPartitionsToTxn ends at v3 here: v4 and v5 are only used between brokers. InitProducerId ends at v5: v6 is not stable
in Kafka 4.3. EndTxn v5 answers with the producer id and epoch of the next transaction (KIP-890).
"""

from __future__ import annotations

from kafka_sink.wire.api import Api
from kafka_sink.wire.schema import Field, array

FIND_COORDINATOR = Api(
    10,
    "FindCoordinator",
    versions=(0, 6),
    flexible=3,
    request=(
        Field("key", "string", until=3),
        Field("key_type", "int8", since=1),
        Field("coordinator_keys", "[]string", since=4),
    ),
    response=(
        Field("throttle_time_ms", "int32", since=1, ignorable=True),
        Field("error_code", "int16", until=3),
        Field("error_message", "string", since=1, until=3, nullable=1, ignorable=True),
        Field("node_id", "int32", until=3),
        Field("host", "string", until=3),
        Field("port", "int32", until=3),
        array(
            "coordinators",
            Field("key", "string"),
            Field("node_id", "int32"),
            Field("host", "string"),
            Field("port", "int32"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=4, ignorable=True),
            since=4,
        ),
    ),
)

INIT_PRODUCER_ID = Api(
    22,
    "InitProducerId",
    versions=(0, 5),
    flexible=2,
    request=(
        Field("transactional_id", "string", nullable=0),
        Field("transaction_timeout_ms", "int32"),
        Field("producer_id", "int64", since=3, default=-1),
        Field("producer_epoch", "int16", since=3, default=-1),
    ),
    response=(
        Field("throttle_time_ms", "int32", ignorable=True),
        Field("error_code", "int16"),
        Field("producer_id", "int64", default=-1),
        Field("producer_epoch", "int16"),
    ),
)

ADD_PARTITIONS_TO_TXN = Api(
    24,
    "AddPartitionsToTxn",
    versions=(0, 3),
    flexible=3,
    request=(
        Field("v3_and_below_transactional_id", "string"),
        Field("v3_and_below_producer_id", "int64"),
        Field("v3_and_below_producer_epoch", "int16"),
        array(
            "v3_and_below_topics",
            Field("name", "string"),
            Field("partitions", "[]int32"),
        ),
    ),
    response=(
        Field("throttle_time_ms", "int32"),
        array(
            "results_by_topic_v3_and_below",
            Field("name", "string"),
            array(
                "results_by_partition",
                Field("partition_index", "int32"),
                Field("partition_error_code", "int16"),
            ),
        ),
    ),
)

ADD_OFFSETS_TO_TXN = Api(
    25,
    "AddOffsetsToTxn",
    versions=(0, 4),
    flexible=3,
    request=(
        Field("transactional_id", "string"),
        Field("producer_id", "int64"),
        Field("producer_epoch", "int16"),
        Field("group_id", "string"),
    ),
    response=(
        Field("throttle_time_ms", "int32"),
        Field("error_code", "int16"),
    ),
)

END_TXN = Api(
    26,
    "EndTxn",
    versions=(0, 5),
    flexible=3,
    request=(
        Field("transactional_id", "string"),
        Field("producer_id", "int64"),
        Field("producer_epoch", "int16"),
        Field("committed", "bool"),
    ),
    response=(
        Field("throttle_time_ms", "int32"),
        Field("error_code", "int16"),
        Field("producer_id", "int64", since=5, default=-1, ignorable=True),
        Field("producer_epoch", "int16", since=5, default=-1, ignorable=True),
    ),
)

TXN_OFFSET_COMMIT = Api(
    28,
    "TxnOffsetCommit",
    versions=(0, 5),
    flexible=3,
    request=(
        Field("transactional_id", "string"),
        Field("group_id", "string"),
        Field("producer_id", "int64"),
        Field("producer_epoch", "int16"),
        Field("generation_id", "int32", since=3, default=-1),
        Field("member_id", "string", since=3),
        Field("group_instance_id", "string", since=3, nullable=3, default=None),
        array(
            "topics",
            Field("name", "string"),
            array(
                "partitions",
                Field("partition_index", "int32"),
                Field("committed_offset", "int64"),
                Field("committed_leader_epoch", "int32", since=2, default=-1, ignorable=True),
                Field("committed_metadata", "string", nullable=0),
            ),
        ),
    ),
    response=(
        Field("throttle_time_ms", "int32"),
        array(
            "topics",
            Field("name", "string"),
            array(
                "partitions",
                Field("partition_index", "int32"),
                Field("error_code", "int16"),
            ),
        ),
    ),
)

DESCRIBE_PRODUCERS = Api(
    61,
    "DescribeProducers",
    versions=(0, 0),
    flexible=0,
    request=(
        array(
            "topics",
            Field("name", "string"),
            Field("partition_indexes", "[]int32"),
        ),
    ),
    response=(
        Field("throttle_time_ms", "int32"),
        array(
            "topics",
            Field("name", "string"),
            array(
                "partitions",
                Field("partition_index", "int32"),
                Field("error_code", "int16"),
                Field("error_message", "string", nullable=0, default=None),
                array(
                    "active_producers",
                    Field("producer_id", "int64"),
                    Field("producer_epoch", "int32"),
                    Field("last_sequence", "int32", default=-1),
                    Field("last_timestamp", "int64", default=-1),
                    Field("coordinator_epoch", "int32"),
                    Field("current_txn_start_offset", "int64", default=-1),
                ),
            ),
        ),
    ),
)

DESCRIBE_TRANSACTIONS = Api(
    65,
    "DescribeTransactions",
    versions=(0, 0),
    flexible=0,
    request=(Field("transactional_ids", "[]string"),),
    response=(
        Field("throttle_time_ms", "int32"),
        array(
            "transaction_states",
            Field("error_code", "int16"),
            Field("transactional_id", "string"),
            Field("transaction_state", "string"),
            Field("transaction_timeout_ms", "int32"),
            Field("transaction_start_time_ms", "int64"),
            Field("producer_id", "int64"),
            Field("producer_epoch", "int16"),
            array(
                "topics",
                Field("topic", "string"),
                Field("partitions", "[]int32"),
            ),
        ),
    ),
)

LIST_TRANSACTIONS = Api(
    66,
    "ListTransactions",
    versions=(0, 2),
    flexible=0,
    request=(
        Field("state_filters", "[]string"),
        Field("producer_id_filters", "[]int64"),
        Field("duration_filter", "int64", since=1, default=-1),
        Field("transactional_id_pattern", "string", since=2, nullable=2, default=None),
    ),
    response=(
        Field("throttle_time_ms", "int32"),
        Field("error_code", "int16"),
        Field("unknown_state_filters", "[]string"),
        array(
            "transaction_states",
            Field("transactional_id", "string"),
            Field("producer_id", "int64"),
            Field("transaction_state", "string"),
        ),
    ),
)
