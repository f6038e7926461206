"""Requests of consumers to a partition's leader. The sink itself needs only ListOffsets and Fetch, for its ledger.

Fetch names topics by id since v13, and its response contains the new leader since v16 (KIP-951).
"""

from __future__ import annotations

from kafka_sink.wire.api import Api
from kafka_sink.wire.schema import Field, array, struct

FETCH = Api(
    1,
    "Fetch",
    versions=(4, 18),
    flexible=12,
    request=(
        Field("cluster_id", "string", since=12, nullable=12, tag=0, default=None, ignorable=True),
        Field("replica_id", "int32", until=14, default=-1),
        struct(
            "replica_state",
            Field("replica_id", "int32", default=-1),
            Field("replica_epoch", "int64", default=-1),
            since=15,
            tag=1,
        ),
        Field("max_wait_ms", "int32"),
        Field("min_bytes", "int32"),
        Field("max_bytes", "int32", default=2147483647, ignorable=True),
        Field("isolation_level", "int8", ignorable=True),
        Field("session_id", "int32", since=7, ignorable=True),
        Field("session_epoch", "int32", since=7, default=-1, ignorable=True),
        array(
            "topics",
            Field("topic", "string", until=12, ignorable=True),
            Field("topic_id", "uuid", since=13, ignorable=True),
            array(
                "partitions",
                Field("partition", "int32"),
                Field("current_leader_epoch", "int32", since=9, default=-1, ignorable=True),
                Field("fetch_offset", "int64"),
                Field("last_fetched_epoch", "int32", since=12, default=-1),
                Field("log_start_offset", "int64", since=5, default=-1, ignorable=True),
                Field("partition_max_bytes", "int32"),
                Field("replica_directory_id", "uuid", since=17, tag=0, ignorable=True),
                Field("high_watermark", "int64", since=18, tag=1, default=9223372036854775807, ignorable=True),
            ),
        ),
        array(
            "forgotten_topics_data",
            Field("topic", "string", until=12, ignorable=True),
            Field("topic_id", "uuid", since=13, ignorable=True),
            Field("partitions", "[]int32"),
            since=7,
        ),
        Field("rack_id", "string", since=11, ignorable=True),
    ),
    response=(
        Field("throttle_time_ms", "int32", ignorable=True),
        Field("error_code", "int16", since=7, ignorable=True),
        Field("session_id", "int32", since=7),
        array(
            "responses",
            Field("topic", "string", until=12, ignorable=True),
            Field("topic_id", "uuid", since=13, ignorable=True),
            array(
                "partitions",
                Field("partition_index", "int32"),
                Field("error_code", "int16"),
                Field("high_watermark", "int64"),
                Field("last_stable_offset", "int64", default=-1, ignorable=True),
                Field("log_start_offset", "int64", since=5, default=-1, ignorable=True),
                struct(
                    "diverging_epoch",
                    Field("epoch", "int32", default=-1),
                    Field("end_offset", "int64", default=-1),
                    since=12,
                    tag=0,
                ),
                struct(
                    "current_leader",
                    Field("leader_id", "int32", default=-1),
                    Field("leader_epoch", "int32", default=-1),
                    since=12,
                    tag=1,
                ),
                struct(
                    "snapshot_id",
                    Field("end_offset", "int64", default=-1),
                    Field("epoch", "int32", default=-1),
                    since=12,
                    tag=2,
                ),
                array(
                    "aborted_transactions",
                    Field("producer_id", "int64"),
                    Field("first_offset", "int64"),
                    nullable=0,
                    ignorable=True,
                ),
                Field("preferred_read_replica", "int32", since=11, default=-1),
                Field("records", "records", nullable=0),
            ),
        ),
        array(
            "node_endpoints",
            Field("node_id", "int32"),
            Field("host", "string"),
            Field("port", "int32"),
            Field("rack", "string", nullable=16, default=None),
            since=16,
            tag=0,
        ),
    ),
)

LIST_OFFSETS = Api(
    2,
    "ListOffsets",
    versions=(1, 11),
    flexible=6,
    request=(
        Field("replica_id", "int32"),
        Field("isolation_level", "int8", since=2),
        array(
            "topics",
            Field("name", "string"),
            array(
                "partitions",
                Field("partition_index", "int32"),
                Field("current_leader_epoch", "int32", since=4, default=-1, ignorable=True),
                Field("timestamp", "int64"),
            ),
        ),
        Field("timeout_ms", "int32", since=10, ignorable=True),
    ),
    response=(
        Field("throttle_time_ms", "int32", since=2, ignorable=True),
        array(
            "topics",
            Field("name", "string"),
            array(
                "partitions",
                Field("partition_index", "int32"),
                Field("error_code", "int16"),
                Field("timestamp", "int64", default=-1),
                Field("offset", "int64", default=-1),
                Field("leader_epoch", "int32", since=4, default=-1),
            ),
        ),
    ),
)

OFFSET_FOR_LEADER_EPOCH = Api(
    23,
    "OffsetForLeaderEpoch",
    versions=(2, 4),
    flexible=4,
    request=(
        Field("replica_id", "int32", since=3, default=-2, ignorable=True),
        array(
            "topics",
            Field("topic", "string"),
            array(
                "partitions",
                Field("partition", "int32"),
                Field("current_leader_epoch", "int32", default=-1, ignorable=True),
                Field("leader_epoch", "int32"),
            ),
        ),
    ),
    response=(
        Field("throttle_time_ms", "int32", ignorable=True),
        array(
            "topics",
            Field("topic", "string"),
            array(
                "partitions",
                Field("error_code", "int16"),
                Field("partition", "int32"),
                Field("leader_epoch", "int32", default=-1, ignorable=True),
                Field("end_offset", "int64", default=-1),
            ),
        ),
    ),
)
