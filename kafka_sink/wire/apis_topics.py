"""Administration of topics and their configuration."""

from __future__ import annotations

from kafka_sink.wire.api import Api
from kafka_sink.wire.schema import Field, array

CREATE_TOPICS = Api(
    19,
    "CreateTopics",
    versions=(2, 7),
    flexible=5,
    request=(
        array(
            "topics",
            Field("name", "string"),
            Field("num_partitions", "int32"),
            Field("replication_factor", "int16"),
            array(
                "assignments",
                Field("partition_index", "int32"),
                Field("broker_ids", "[]int32"),
            ),
            array(
                "configs",
                Field("name", "string"),
                Field("value", "string", nullable=0),
            ),
        ),
        Field("timeout_ms", "int32", default=60000),
        Field("validate_only", "bool"),
    ),
    response=(
        Field("throttle_time_ms", "int32", ignorable=True),
        array(
            "topics",
            Field("name", "string"),
            Field("topic_id", "uuid", since=7, ignorable=True),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=0, ignorable=True),
            Field("topic_config_error_code", "int16", since=5, tag=0, ignorable=True),
            Field("num_partitions", "int32", since=5, default=-1, ignorable=True),
            Field("replication_factor", "int16", since=5, default=-1, ignorable=True),
            array(
                "configs",
                Field("name", "string"),
                Field("value", "string", nullable=5),
                Field("read_only", "bool"),
                Field("config_source", "int8", default=-1, ignorable=True),
                Field("is_sensitive", "bool"),
                since=5,
                nullable=5,
                ignorable=True,
            ),
        ),
    ),
)

DELETE_TOPICS = Api(
    20,
    "DeleteTopics",
    versions=(1, 6),
    flexible=4,
    request=(
        array(
            "topics",
            Field("name", "string", nullable=6, default=None),
            Field("topic_id", "uuid"),
            since=6,
        ),
        Field("topic_names", "[]string", until=5, ignorable=True),
        Field("timeout_ms", "int32"),
    ),
    response=(
        Field("throttle_time_ms", "int32", ignorable=True),
        array(
            "responses",
            Field("name", "string", nullable=6),
            Field("topic_id", "uuid", since=6, ignorable=True),
            Field("error_code", "int16"),
            Field("error_message", "string", since=5, nullable=5, default=None, ignorable=True),
        ),
    ),
)

CREATE_PARTITIONS = Api(
    37,
    "CreatePartitions",
    versions=(0, 3),
    flexible=2,
    request=(
        array(
            "topics",
            Field("name", "string"),
            Field("count", "int32"),
            array(
                "assignments",
                Field("broker_ids", "[]int32"),
                nullable=0,
            ),
        ),
        Field("timeout_ms", "int32"),
        Field("validate_only", "bool"),
    ),
    response=(
        Field("throttle_time_ms", "int32"),
        array(
            "results",
            Field("name", "string"),
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=0, default=None),
        ),
    ),
)

DESCRIBE_CONFIGS = Api(
    32,
    "DescribeConfigs",
    versions=(1, 4),
    flexible=4,
    request=(
        array(
            "resources",
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            Field("configuration_keys", "[]string", nullable=0),
        ),
        Field("include_synonyms", "bool"),
        Field("include_documentation", "bool", since=3),
    ),
    response=(
        Field("throttle_time_ms", "int32"),
        array(
            "results",
            Field("error_code", "int16"),
            Field("error_message", "string", nullable=0),
            Field("resource_type", "int8"),
            Field("resource_name", "string"),
            array(
                "configs",
                Field("name", "string"),
                Field("value", "string", nullable=0),
                Field("read_only", "bool"),
                Field("config_source", "int8", default=-1, ignorable=True),
                Field("is_sensitive", "bool"),
                array(
                    "synonyms",
                    Field("name", "string"),
                    Field("value", "string", nullable=0),
                    Field("source", "int8"),
                    ignorable=True,
                ),
                Field("config_type", "int8", since=3, ignorable=True),
                Field("documentation", "string", since=3, nullable=0, ignorable=True),
            ),
        ),
    ),
)
