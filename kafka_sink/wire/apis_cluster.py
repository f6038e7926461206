"""Requests to any broker: supported versions, the brokers, partitions and their leaders.

Rows follow the message definitions of Apache Kafka up to 4.3.
"""

from __future__ import annotations

from kafka_sink.wire.api import Api
from kafka_sink.wire.schema import Field, array

METADATA = Api(
    3,
    "Metadata",
    versions=(4, 13),
    flexible=9,
    request=(
        array(
            "topics",
            Field("topic_id", "uuid", since=10, ignorable=True),
            Field("name", "string", nullable=10),
            nullable=0,
        ),
        Field("allow_auto_topic_creation", "bool", default=True),
        Field("include_cluster_authorized_operations", "bool", since=8, until=10),
        Field("include_topic_authorized_operations", "bool", since=8),
    ),
    response=(
        Field("throttle_time_ms", "int32", ignorable=True),
        array(
            "brokers",
            Field("node_id", "int32"),
            Field("host", "string"),
            Field("port", "int32"),
            Field("rack", "string", nullable=0, default=None, ignorable=True),
        ),
        Field("cluster_id", "string", nullable=0, default=None, ignorable=True),
        Field("controller_id", "int32", default=-1, ignorable=True),
        array(
            "topics",
            Field("error_code", "int16"),
            Field("name", "string", nullable=12),
            Field("topic_id", "uuid", since=10, ignorable=True),
            Field("is_internal", "bool", ignorable=True),
            array(
                "partitions",
                Field("error_code", "int16"),
                Field("partition_index", "int32"),
                Field("leader_id", "int32"),
                Field("leader_epoch", "int32", since=7, default=-1, ignorable=True),
                Field("replica_nodes", "[]int32"),
                Field("isr_nodes", "[]int32"),
                Field("offline_replicas", "[]int32", since=5, ignorable=True),
            ),
            Field("topic_authorized_operations", "int32", since=8, default=-2147483648),
        ),
        Field("cluster_authorized_operations", "int32", since=8, until=10, default=-2147483648),
        Field("error_code", "int16", since=13, ignorable=True),
    ),
)

API_VERSIONS = Api(
    18,
    "ApiVersions",
    versions=(0, 4),
    flexible=3,
    request=(
        Field("client_software_name", "string", since=3, ignorable=True),
        Field("client_software_version", "string", since=3, ignorable=True),
    ),
    response=(
        Field("error_code", "int16"),
        array(
            "api_keys",
            Field("api_key", "int16"),
            Field("min_version", "int16"),
            Field("max_version", "int16"),
        ),
        Field("throttle_time_ms", "int32", since=1, ignorable=True),
        array(
            "supported_features",
            Field("name", "string"),
            Field("min_version", "int16"),
            Field("max_version", "int16"),
            since=3,
            tag=0,
            ignorable=True,
        ),
        Field("finalized_features_epoch", "int64", since=3, tag=1, default=-1, ignorable=True),
        array(
            "finalized_features",
            Field("name", "string"),
            Field("max_version_level", "int16"),
            Field("min_version_level", "int16"),
            since=3,
            tag=2,
            ignorable=True,
        ),
        Field("zk_migration_ready", "bool", since=3, tag=3, ignorable=True),
    ),
)

DESCRIBE_CLUSTER = Api(
    60,
    "DescribeCluster",
    versions=(0, 2),
    flexible=0,
    request=(
        Field("include_cluster_authorized_operations", "bool"),
        Field("endpoint_type", "int8", since=1, default=1),
        Field("include_fenced_brokers", "bool", since=2),
    ),
    response=(
        Field("throttle_time_ms", "int32"),
        Field("error_code", "int16"),
        Field("error_message", "string", nullable=0, default=None),
        Field("endpoint_type", "int8", since=1, default=1),
        Field("cluster_id", "string"),
        Field("controller_id", "int32", default=-1),
        array(
            "brokers",
            Field("broker_id", "int32"),
            Field("host", "string"),
            Field("port", "int32"),
            Field("rack", "string", nullable=0, default=None),
            Field("is_fenced", "bool", since=2),
        ),
        Field("cluster_authorized_operations", "int32", default=-2147483648),
    ),
)

# Only used for the controller's clock, so one version is enough: from the second one on replicas have times.
DESCRIBE_QUORUM = Api(
    55,
    "DescribeQuorum",
    versions=(1, 1),
    flexible=0,
    request=(
        array(
            "topics",
            Field("topic_name", "string"),
            array("partitions", Field("partition_index", "int32")),
        ),
    ),
    response=(
        Field("error_code", "int16"),
        array(
            "topics",
            Field("topic_name", "string"),
            array(
                "partitions",
                Field("partition_index", "int32"),
                Field("error_code", "int16"),
                Field("leader_id", "int32"),
                Field("leader_epoch", "int32"),
                Field("high_watermark", "int64"),
                *(
                    array(
                        voters,
                        Field("replica_id", "int32"),
                        Field("log_end_offset", "int64"),
                        Field("last_fetch_timestamp", "int64", default=-1, ignorable=True),
                        Field("last_caught_up_timestamp", "int64", default=-1, ignorable=True),
                    )
                    for voters in ("current_voters", "observers")
                ),
            ),
        ),
    ),
)
