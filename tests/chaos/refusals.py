"""Answers of brokers that refuse, as they would look to the requests of a commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TOPIC_REFUSED, ID_REFUSED = 29, 53
Body = Mapping[str, Any]


def refused(_: Body) -> Body:
    return {"throttle_time_ms": 0, "error_code": ID_REFUSED, "producer_id": -1, "producer_epoch": -1}


def produce_refused(body: Body) -> Body:
    (topic,) = body["topic_data"]
    row = {
        "index": topic["partition_data"][0]["index"], "error_code": TOPIC_REFUSED, "base_offset": -1,
        "log_append_time_ms": -1, "log_start_offset": -1, "record_errors": [], "error_message": None,
    }  # fmt: skip
    return {"responses": [{"name": topic["name"], "partition_responses": [row]}], "throttle_time_ms": 0}


def add_refused(body: Body) -> Body:
    topics = [
        {
            "name": topic["name"],
            "results_by_partition": [
                {"partition_index": index, "partition_error_code": TOPIC_REFUSED} for index in topic["partitions"]
            ],
        }
        for topic in body["v3_and_below_topics"]
    ]
    return {"throttle_time_ms": 0, "results_by_topic_v3_and_below": topics}


def describe_refused(body: Body) -> Body:
    rows = [
        {
            "error_code": ID_REFUSED, "transactional_id": one, "transaction_state": "", "transaction_timeout_ms": 0,
            "transaction_start_time_ms": -1, "producer_id": -1, "producer_epoch": -1, "topics": [],
        }
        for one in body["transactional_ids"]
    ]  # fmt: skip
    return {"throttle_time_ms": 0, "transaction_states": rows}
