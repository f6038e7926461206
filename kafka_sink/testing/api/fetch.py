"""Fetch (1) 4-18, ListOffsets (2) 1-11, OffsetForLeaderEpoch (23) 2-4, DescribeProducers (61) 0.

Fetch waits for `min_bytes` up to `max_wait_ms`; a partition with an error ends the wait. Readers with isolation
read_committed see nothing at or above the last stable offset and get the aborted transactions in the fetched range. The
first partition with data returns at least one batch, however small the limits; no read goes beyond the end of a
segment. From v12 (v16: with its address) the new leader is returned with NOT_LEADER_OR_FOLLOWER. Not modelled: fetch
sessions (every response has session id 0, so clients send full requests), followers, divergence by
`last_fetched_epoch`, tiered storage.

Permission, per topic and before its lookup: Read for Fetch (checked once, even if the response is delayed) and
DescribeProducers, Describe for ListOffsets and OffsetForLeaderEpoch (or ClusterAction on the cluster).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from kafka_sink.testing import acl
from kafka_sink.testing.api.parts import Answer, answer_or_error, by_partition, current_leader, leader_endpoints
from kafka_sink.testing.call import Call
from kafka_sink.testing.cluster import View
from kafka_sink.testing.errors import Code, Refused
from kafka_sink.testing.log import PartitionLog

READ_COMMITTED = 1
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
# The first version of ListOffsets that knows a place in the log by such a number.
PLACES_SINCE = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
VERSION_TOPIC_IDS = 13


def view_of(call: Call, topic: str, index: int, current_leader_epoch: int) -> View:
    """A view of the partition, if this broker leads it and the client's leader epoch matches."""
    view = call.core.cluster.view(topic, index, call.broker_id)
    if current_leader_epoch != -1 and current_leader_epoch < view.leader_epoch:
        raise Refused(Code.FENCED_LEADER_EPOCH)
    if current_leader_epoch > view.leader_epoch:
        raise Refused(Code.UNKNOWN_LEADER_EPOCH)
    return view


# ---- Fetch ----


def on_fetch(call: Call) -> None:
    if call.body["session_id"] != 0:
        raise Refused(Code.FETCH_SESSION_ID_NOT_FOUND)
    body = call.body
    names = {topic["topic"] for topic in body["topics"]}
    forbidden = frozenset(one for one in names if not call.is_allowed(acl.READ, acl.TOPIC, one))

    def answer_if_enough() -> bool:
        responses, size, has_error = _read(call, forbidden)
        if size < body["min_bytes"] and not has_error and body["max_wait_ms"] > 0 and body["topics"]:
            return False
        _answer(call, responses)
        return True

    def answer_anyway() -> None:
        _answer(call, _read(call, forbidden)[0])

    keys = [(topic["topic"], one["partition"]) for topic in body["topics"] for one in topic["partitions"]]
    call.core.cluster.wait(keys, answer_if_enough, body["max_wait_ms"], answer_anyway)


def _read(call: Call, forbidden: frozenset[str]) -> tuple[list[Answer], int, bool]:
    body = call.body
    responses = []
    left = min(body["max_bytes"], call.core.settings.number("fetch.max.bytes"))
    size, has_error = 0, False
    for topic in body["topics"]:
        partitions = []
        for one in topic["partitions"]:
            bytes_max = min(left, one["partition_max_bytes"])
            answer = answer_or_error(_read_partition, call, forbidden, topic["topic"], one, bytes_max, size == 0)
            if answer.get("error_code") is Code.NOT_LEADER_OR_FOLLOWER and call.version >= 12:
                answer.update(current_leader(call, topic["topic"], one["partition"]))
            partitions.append({"partition_index": one["partition"], "high_watermark": -1, "records": b"", **answer})
            has_error = has_error or bool(answer.get("error_code"))
            taken = len(answer.get("records") or b"")
            size += taken
            left = max(left - taken, 0)
        responses.append({"topic": topic["topic"], "topic_id": topic["topic_id"], "partitions": partitions})
    return responses, size, has_error


def _read_partition(
    call: Call, forbidden: frozenset[str], topic: str, asked: Mapping[str, Any], bytes_max: int, at_least_one: bool
) -> Answer:
    index, offset = asked["partition"], asked["fetch_offset"]
    call.check_fault(topic, index)
    if call.version >= VERSION_TOPIC_IDS and not topic:
        raise Refused(Code.UNKNOWN_TOPIC_ID)
    if topic in forbidden:
        raise Refused(Code.TOPIC_AUTHORIZATION_FAILED)
    view = view_of(call, topic, index, asked["current_leader_epoch"])
    log = view.log
    if not log.start_offset <= offset <= view.end_offset:
        raise Refused(Code.OFFSET_OUT_OF_RANGE)
    is_committed = call.body["isolation_level"] == READ_COMMITTED
    limit = view.last_stable_offset if is_committed else view.high_watermark
    records, end_offset = log.read(offset, bytes_max, limit, at_least_one=at_least_one)
    aborted = log.list_aborted(offset, end_offset) if records else ()
    transactions = [{"producer_id": one.producer_id, "first_offset": one.first_offset} for one in aborted]
    return {
        "high_watermark": view.high_watermark,
        "last_stable_offset": view.last_stable_offset,
        "log_start_offset": log.start_offset,
        "records": records,
        "aborted_transactions": transactions if is_committed else None,
    }


def _answer(call: Call, responses: list[Answer]) -> None:
    partitions = [one for topic in responses for one in topic["partitions"]]
    endpoints = leader_endpoints(call, partitions) if call.version >= 16 else []
    call.answer({"responses": responses, "node_endpoints": endpoints})


# ---- ListOffsets and similar ----


def on_list_offsets(call: Call) -> Answer:
    return {"topics": by_partition(call.body["topics"], partial(_offset, call))}


def _offset(call: Call, topic: str, asked: Mapping[str, Any]) -> Answer:
    call.check_fault(topic, asked["partition_index"])
    call.check_allowed(acl.DESCRIBE, acl.TOPIC, topic)
    since = 0 if asked["timestamp"] >= 0 else PLACES_SINCE.get(asked["timestamp"])
    if since is None or call.version < since:
        raise Refused(Code.UNSUPPORTED_VERSION)
    view = view_of(call, topic, asked["partition_index"], asked["current_leader_epoch"])
    limit = view.last_stable_offset if call.body["isolation_level"] == READ_COMMITTED else view.high_watermark
    timestamp, offset = _place_in_log(view.log, asked["timestamp"], limit)
    leader_epoch = view.leader_epoch if offset >= 0 and call.version >= 4 else -1
    return {"timestamp": timestamp, "offset": offset, "leader_epoch": leader_epoch}


def _place_in_log(log: PartitionLog, asked_ms: int, limit: int) -> tuple[int, int]:
    """Timestamp and offset; -1 if there is none."""
    if asked_ms == LATEST:
        return -1, limit
    if asked_ms in (EARLIEST, EARLIEST_LOCAL):
        return -1, log.start_offset
    if asked_ms in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1
    if asked_ms == MAX_TIMESTAMP:
        asked_ms = max((one.max_timestamp_ms for one in log.batches if one.record_count), default=-1)
    return log.offset_for_timestamp(asked_ms, limit) or (-1, -1)


def on_offset_for_leader_epoch(call: Call) -> Answer:
    is_follower = call.is_allowed(acl.CLUSTER_ACTION, acl.CLUSTER)

    def end_of_epoch(topic: str, asked: Mapping[str, Any]) -> Answer:
        call.check_fault(topic, asked["partition"])
        if not is_follower:
            call.check_allowed(acl.DESCRIBE, acl.TOPIC, topic)
        view = view_of(call, topic, asked["partition"], asked["current_leader_epoch"])
        if asked["leader_epoch"] == view.leader_epoch:
            return {"leader_epoch": view.leader_epoch, "end_offset": view.high_watermark}
        leader_epoch, end_offset = view.log.last_epoch_end(asked["leader_epoch"])
        return {"leader_epoch": leader_epoch, "end_offset": end_offset}

    return {"topics": by_partition(call.body["topics"], end_of_epoch, topic="topic", index="partition")}


def on_describe_producers(call: Call) -> Answer:
    return {"topics": by_partition(call.body["topics"], partial(_producers, call), asked="partition_indexes")}


def _producers(call: Call, topic: str, index: int) -> Answer:
    call.check_fault(topic, index)
    call.check_allowed(acl.READ, acl.TOPIC, topic)
    view = call.core.cluster.view(topic, index, call.broker_id)
    active = [
        {
            "producer_id": producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": entry.last_sequence,
            "last_timestamp": entry.last_timestamp_ms,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_start_offset": -1
            if entry.transaction_first_offset is None
            else entry.transaction_first_offset,
        }
        for producer_id, entry in view.producers.items()
    ]
    return {"active_producers": active}
