"""Produce as rows. Requests are built by produce.py without copying batches; these rows are its reference in tests, and
the decoder of the embedded broker.

Since v10 a response has the new leader of a partition in tagged fields (KIP-951); since v12 the broker adds partitions
to a transaction (KIP-890); v13 has topic ids (KIP-516).
"""

from __future__ import annotations

from kafka_sink.wire.api import Api
from kafka_sink.wire.schema import Field, array, struct

PRODUCE = Api(
    0,
    "Produce",
    versions=(3, 13),
    flexible=9,
    request=(
        Field("transactional_id", "string", nullable=0, default=None),
        Field("acks", "int16"),
        Field("timeout_ms", "int32"),
        array(
            "topic_data",
            Field("name", "string", until=12, ignorable=True),
            Field("topic_id", "uuid", since=13, ignorable=True),
            array(
                "partition_data",
                Field("index", "int32"),
                Field("records", "records", nullable=0),
            ),
        ),
    ),
    response=(
        array(
            "responses",
            Field("name", "string", until=12, ignorable=True),
            Field("topic_id", "uuid", since=13, ignorable=True),
            array(
                "partition_responses",
                Field("index", "int32"),
                Field("error_code", "int16"),
                Field("base_offset", "int64"),
                Field("log_append_time_ms", "int64", default=-1, ignorable=True),
                Field("log_start_offset", "int64", since=5, default=-1, ignorable=True),
                array(
                    "record_errors",
                    Field("batch_index", "int32"),
                    Field("batch_index_error_message", "string", nullable=8, default=None),
                    since=8,
                    ignorable=True,
                ),
                Field("error_message", "string", since=8, nullable=8, default=None, ignorable=True),
                struct(
                    "current_leader",
                    Field("leader_id", "int32", default=-1),
                    Field("leader_epoch", "int32", default=-1),
                    since=10,
                    tag=0,
                ),
            ),
        ),
        Field("throttle_time_ms", "int32", ignorable=True),
        array(
            "node_endpoints",
            Field("node_id", "int32"),
            Field("host", "string"),
            Field("port", "int32"),
            Field("rack", "string", nullable=10, default=None),
            since=10,
            tag=0,
        ),
    ),
)
