"""Consumer groups. The producer joins none: these rows are for the embedded broker, which serves ordinary consumers.

Offsets are by topic name here; the versions that use topic ids (OffsetCommit and OffsetFetch v10) are left out.
"""

from __future__ import annotations

from kafka_sink.wire.api import Api
from kafka_sink.wire.schema import Field, array

JOIN_GROUP = Api(
    11,
    "JoinGroup",
    versions=(0, 9),
    flexible=6,
    request=(
        Field("group_id", "string"),
        Field("session_timeout_ms", "int32"),
        Field("rebalance_timeout_ms", "int32", since=1, default=-1, ignorable=True),
        Field("member_id", "string"),
        Field("group_instance_id", "string", since=5, nullable=5, default=None),
        Field("protocol_type", "string"),
        array(
            "protocols",
            Field("name", "string"),
            Field("metadata", "bytes"),
        ),
        Field("reason", "string", since=8, nullable=8, default=None, ignorable=True),
    ),
    response=(
        Field("throttle_time_ms", "int32", since=2, ignorable=True),
        Field("error_code", "int16"),
        Field("generation_id", "int32", default=-1),
        Field("protocol_type", "string", since=7, nullable=7, default=None, ignorable=True),
        Field("protocol_name", "string", nullable=7),
        Field("leader", "string"),
        Field("skip_assignment", "bool", since=9),
        Field("member_id", "string"),
        array(
            "members",
            Field("member_id", "string"),
            Field("group_instance_id", "string", since=5, nullable=5, default=None, ignorable=True),
            Field("metadata", "bytes"),
        ),
    ),
)

SYNC_GROUP = Api(
    14,
    "SyncGroup",
    versions=(0, 5),
    flexible=4,
    request=(
        Field("group_id", "string"),
        Field("generation_id", "int32"),
        Field("member_id", "string"),
        Field("group_instance_id", "string", since=3, nullable=3, default=None),
        Field("protocol_type", "string", since=5, nullable=5, default=None, ignorable=True),
        Field("protocol_name", "string", since=5, nullable=5, default=None, ignorable=True),
        array(
            "assignments",
            Field("member_id", "string"),
            Field("assignment", "bytes"),
        ),
    ),
    response=(
        Field("throttle_time_ms", "int32", since=1, ignorable=True),
        Field("error_code", "int16"),
        Field("protocol_type", "string", since=5, nullable=5, default=None, ignorable=True),
        Field("protocol_name", "string", since=5, nullable=5, default=None, ignorable=True),
        Field("assignment", "bytes"),
    ),
)

HEARTBEAT = Api(
    12,
    "Heartbeat",
    versions=(0, 4),
    flexible=4,
    request=(
        Field("group_id", "string"),
        Field("generation_id", "int32"),
        Field("member_id", "string"),
        Field("group_instance_id", "string", since=3, nullable=3, default=None),
    ),
    response=(
        Field("throttle_time_ms", "int32", since=1, ignorable=True),
        Field("error_code", "int16"),
    ),
)

LEAVE_GROUP = Api(
    13,
    "LeaveGroup",
    versions=(0, 5),
    flexible=4,
    request=(
        Field("group_id", "string"),
        Field("member_id", "string", until=2),
        array(
            "members",
            Field("member_id", "string"),
            Field("group_instance_id", "string", nullable=3, default=None),
            Field("reason", "string", since=5, nullable=5, default=None, ignorable=True),
            since=3,
        ),
    ),
    response=(
        Field("throttle_time_ms", "int32", since=1, ignorable=True),
        Field("error_code", "int16"),
        array(
            "members",
            Field("member_id", "string"),
            Field("group_instance_id", "string", nullable=3),
            Field("error_code", "int16"),
            since=3,
        ),
    ),
)

OFFSET_COMMIT = Api(
    8,
    "OffsetCommit",
    versions=(2, 9),
    flexible=8,
    request=(
        Field("group_id", "string"),
        Field("generation_id_or_member_epoch", "int32", default=-1, ignorable=True),
        Field("member_id", "string", ignorable=True),
        Field("group_instance_id", "string", since=7, nullable=7, default=None),
        Field("retention_time_ms", "int64", until=4, default=-1, ignorable=True),
        array(
            "topics",
            Field("name", "string", ignorable=True),
            array(
                "partitions",
                Field("partition_index", "int32"),
                Field("committed_offset", "int64"),
                Field("committed_leader_epoch", "int32", since=6, default=-1, ignorable=True),
                Field("committed_metadata", "string", nullable=0),
            ),
        ),
    ),
    response=(
        Field("throttle_time_ms", "int32", since=3, ignorable=True),
        array(
            "topics",
            Field("name", "string", ignorable=True),
            array(
                "partitions",
                Field("partition_index", "int32"),
                Field("error_code", "int16"),
            ),
        ),
    ),
)

OFFSET_FETCH = Api(
    9,
    "OffsetFetch",
    versions=(1, 9),
    flexible=6,
    request=(
        Field("group_id", "string", until=7),
        array(
            "topics",
            Field("name", "string"),
            Field("partition_indexes", "[]int32"),
            until=7,
            nullable=2,
        ),
        array(
            "groups",
            Field("group_id", "string"),
            Field("member_id", "string", since=9, nullable=9, default=None, ignorable=True),
            Field("member_epoch", "int32", since=9, default=-1, ignorable=True),
            array(
                "topics",
                Field("name", "string", ignorable=True),
                Field("partition_indexes", "[]int32"),
                nullable=8,
            ),
            since=8,
        ),
        Field("require_stable", "bool", since=7),
    ),
    response=(
        Field("throttle_time_ms", "int32", since=3, ignorable=True),
        array(
            "topics",
            Field("name", "string"),
            array(
                "partitions",
                Field("partition_index", "int32"),
                Field("committed_offset", "int64"),
                Field("committed_leader_epoch", "int32", since=5, default=-1, ignorable=True),
                Field("metadata", "string", nullable=0),
                Field("error_code", "int16"),
            ),
            until=7,
        ),
        Field("error_code", "int16", since=2, until=7, ignorable=True),
        array(
            "groups",
            Field("group_id", "string"),
            array(
                "topics",
                Field("name", "string", ignorable=True),
                array(
                    "partitions",
                    Field("partition_index", "int32"),
                    Field("committed_offset", "int64"),
                    Field("committed_leader_epoch", "int32", default=-1, ignorable=True),
                    Field("metadata", "string", nullable=8),
                    Field("error_code", "int16"),
                ),
            ),
            Field("error_code", "int16"),
            since=8,
        ),
    ),
)

LIST_GROUPS = Api(
    16,
    "ListGroups",
    versions=(0, 5),
    flexible=3,
    request=(
        Field("states_filter", "[]string", since=4),
        Field("types_filter", "[]string", since=5),
    ),
    response=(
        Field("throttle_time_ms", "int32", since=1, ignorable=True),
        Field("error_code", "int16"),
        array(
            "groups",
            Field("group_id", "string"),
            Field("protocol_type", "string"),
            Field("group_state", "string", since=4, ignorable=True),
            Field("group_type", "string", since=5, ignorable=True),
        ),
    ),
)

DESCRIBE_GROUPS = Api(
    15,
    "DescribeGroups",
    versions=(0, 6),
    flexible=5,
    request=(
        Field("groups", "[]string"),
        Field("include_authorized_operations", "bool", since=3),
    ),
    response=(
        Field("throttle_time_ms", "int32", since=1, ignorable=True),
        array(
            "groups",
            Field("error_code", "int16"),
            Field("error_message", "string", since=6, nullable=6, default=None),
            Field("group_id", "string"),
            Field("group_state", "string"),
            Field("protocol_type", "string"),
            Field("protocol_data", "string"),
            array(
                "members",
                Field("member_id", "string"),
                Field("group_instance_id", "string", since=4, nullable=4, default=None, ignorable=True),
                Field("client_id", "string"),
                Field("client_host", "string"),
                Field("member_metadata", "bytes"),
                Field("member_assignment", "bytes"),
            ),
            Field("authorized_operations", "int32", since=3, default=-2147483648),
        ),
    ),
)
