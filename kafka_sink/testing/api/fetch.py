"""Fetch (1) 4-17, ListOffsets (2) 1-9, OffsetForLeaderEpoch (23) 2-4, DescribeProducers (61) 0.

Fetch waits for `min_bytes` up to `max_wait_ms`; a partition with an error ends the wait. Readers with isolation
read_committed see nothing at or above the last stable offset and get the aborted transactions of what they read. The
first partition with data gives at least one batch, however small the limits. From v12 (v16: with its address) the new
leader comes with NOT_LEADER_OR_FOLLOWER. Not modelled: fetch sessions (every answer has session id 0, so clients
send full requests), followers, divergence by `last_fetched_epoch`, tiered storage.

Permission, per topic and before it is looked for: Read for Fetch (asked once, also if the answer waits) and
DescribeProducers, Describe for ListOffsets and OffsetForLeaderEpoch (or ClusterAction on the cluster).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kafka_sink.testing import acl
from kafka_sink.testing.call import Call
from kafka_sink.testing.cluster import View
from kafka_sink.testing.errors import Code, Refused

READ_COMMITTED = 1
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
VERSION_TOPIC_IDS = 13


def view_of(call: Call, topic: str, index: int, current_leader_epoch: int) -> View:
    """Of the partition, if this broker leads it and the client does not have another idea of the leader's epoch."""
    view = call.core.cluster.view(topic, index, call.broker_id)
    if current_leader_epoch != -1 and current_leader_epoch < view.leader_epoch:
        raise Refused(Code.FENCED_LEADER_EPOCH)
    if current_leader_epoch > view.leader_epoch:
        raise Refused(Code.UNKNOWN_LEADER_EPOCH)
    return view


# ---- Fetch ----


def on_fetch(call: Call) -> None:
    if call.body["session_id"] != 0:
        call.answer({"error_code": int(Code.FETCH_SESSION_ID_NOT_FOUND), "responses": []})
        return
    FetchRound(call).start()


@dataclass(slots=True, eq=False)
class FetchRound:
    call: Call
    is_over: bool = False
    forbidden: frozenset[str] = field(init=False)

    def start(self) -> None:
        names = {topic["topic"] for topic in self.call.body["topics"]}
        self.forbidden = frozenset(one for one in names if not self.call.is_allowed(acl.READ, acl.TOPIC, one))
        if self._is_enough():
            return
        body = self.call.body
        keys = [(topic["topic"], one["partition"]) for topic in body["topics"] for one in topic["partitions"]]
        number = self.call.core.cluster.wait(keys, self._is_enough)
        self.call.core.schedule.after(max(body["max_wait_ms"], 1), lambda: self._on_timeout(number))

    def _on_timeout(self, number: int) -> None:
        self.call.core.cluster.give_up_wait(number)
        if not self.is_over:
            self._answer(self._read()[0])

    def _is_enough(self) -> bool:
        """Answers the call when there is enough to say."""
        if not self.is_over:
            responses, size, has_error = self._read()
            body = self.call.body
            if size < body["min_bytes"] and not has_error and body["max_wait_ms"] > 0 and body["topics"]:
                return False
            self._answer(responses)
        return True

    def _read(self) -> tuple[list[dict[str, Any]], int, bool]:
        body = self.call.body
        responses = []
        left, size, has_error = body["max_bytes"], 0, False
        for topic in body["topics"]:
            partitions = []
            for one in topic["partitions"]:
                answer = self._read_partition(topic, one, min(left, one["partition_max_bytes"]), size == 0)
                partitions.append(answer)
                has_error = has_error or answer["error_code"] != 0
                taken = len(answer["records"] or b"")
                size += taken
                left = max(left - taken, 0)
            responses.append({"topic": topic["topic"], "topic_id": topic["topic_id"], "partitions": partitions})
        return responses, size, has_error

    def _read_partition(
        self, topic: dict[str, Any], asked: dict[str, Any], bytes_max: int, at_least_one: bool
    ) -> dict[str, Any]:
        call = self.call
        name, index, offset = topic["topic"], asked["partition"], asked["fetch_offset"]
        answer = {"partition_index": index, "error_code": 0, "high_watermark": -1, "records": b""}
        try:
            call.check_fault(name, index)
            if call.version >= VERSION_TOPIC_IDS and not name:
                raise Refused(Code.UNKNOWN_TOPIC_ID)
            if name in self.forbidden:
                raise Refused(Code.TOPIC_AUTHORIZATION_FAILED)
            view = view_of(call, name, index, asked["current_leader_epoch"])
            log = view.log
            if not log.start_offset <= offset <= view.end_offset:
                raise Refused(Code.OFFSET_OUT_OF_RANGE)
        except Refused as refusal:
            answer["error_code"] = int(refusal.code)
            return answer
        is_committed = call.body["isolation_level"] == READ_COMMITTED
        limit = view.last_stable_offset if is_committed else view.high_watermark
        records, end_offset = log.read(offset, bytes_max, limit, at_least_one=at_least_one)
        answer.update(
            high_watermark=view.high_watermark,
            last_stable_offset=view.last_stable_offset,
            log_start_offset=log.start_offset,
            records=records,
            aborted_transactions=None,
        )
        if is_committed:
            answer["aborted_transactions"] = [
                {"producer_id": one.producer_id, "first_offset": one.first_offset}
                for one in (log.aborted_between(offset, end_offset) if records else ())
            ]
        return answer

    def _answer(self, responses: list[dict[str, Any]]) -> None:
        self.is_over = True
        leaders: dict[int, None] = {}
        cluster = self.call.core.cluster
        for topic in responses:
            for one in topic["partitions"]:
                if one["error_code"] == Code.NOT_LEADER_OR_FOLLOWER and self.call.version >= 12:
                    partition = cluster.partition(topic["topic"], one["partition_index"])
                    if partition is not None and partition.leader_id in cluster.brokers:
                        leaders[partition.leader_id] = None
                        one["current_leader"] = {
                            "leader_id": partition.leader_id,
                            "leader_epoch": partition.leader_epoch,
                        }
        body: dict[str, Any] = {"responses": responses}
        if leaders and self.call.version >= 16:
            body["node_endpoints"] = self.call.core.endpoints(leaders)
        self.call.answer(body)


# ---- ListOffsets and its relatives ----


def on_list_offsets(call: Call) -> None:
    topics = [
        {"name": topic["name"], "partitions": [_offset(call, topic["name"], one) for one in topic["partitions"]]}
        for topic in call.body["topics"]
    ]
    call.answer({"topics": topics})


def _offset(call: Call, topic: str, asked: dict[str, Any]) -> dict[str, Any]:
    answer = {"partition_index": asked["partition_index"], "error_code": 0, "timestamp": -1, "offset": -1}
    try:
        call.check_fault(topic, asked["partition_index"])
        call.check_allowed(acl.DESCRIBE, acl.TOPIC, topic)
        view = view_of(call, topic, asked["partition_index"], asked["current_leader_epoch"])
    except Refused as refusal:
        answer["error_code"] = int(refusal.code)
        return answer
    log, timestamp = view.log, asked["timestamp"]
    limit = view.last_stable_offset if call.body["isolation_level"] == READ_COMMITTED else view.high_watermark
    if timestamp == LATEST:
        answer["offset"] = limit
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer["offset"] = log.start_offset
    elif timestamp != LATEST_TIERED:
        if timestamp == MAX_TIMESTAMP:
            with_data = [one for one in log.batches if not one.is_control and one.record_count]
            timestamp = max((one.max_timestamp_ms for one in with_data), default=-1)
        found = log.offset_for_timestamp(timestamp, limit)
        if found is not None:
            answer["timestamp"], answer["offset"] = found
    if answer["offset"] >= 0 and call.version >= 4:
        answer["leader_epoch"] = view.leader_epoch
    return answer


def on_offset_for_leader_epoch(call: Call) -> None:
    is_follower = call.is_allowed(acl.CLUSTER_ACTION, acl.CLUSTER)
    topics = []
    for topic in call.body["topics"]:
        partitions = []
        for asked in topic["partitions"]:
            answer = {"partition": asked["partition"], "error_code": 0, "leader_epoch": -1, "end_offset": -1}
            partitions.append(answer)
            try:
                call.check_fault(topic["topic"], asked["partition"])
                if not is_follower:
                    call.check_allowed(acl.DESCRIBE, acl.TOPIC, topic["topic"])
                view = view_of(call, topic["topic"], asked["partition"], asked["current_leader_epoch"])
            except Refused as refusal:
                answer["error_code"] = int(refusal.code)
                continue
            if asked["leader_epoch"] == view.leader_epoch:
                answer["leader_epoch"], answer["end_offset"] = view.leader_epoch, view.high_watermark
            else:
                answer["leader_epoch"], answer["end_offset"] = view.log.last_epoch_end(asked["leader_epoch"])
        topics.append({"topic": topic["topic"], "partitions": partitions})
    call.answer({"topics": topics})


def on_describe_producers(call: Call) -> None:
    topics = []
    for topic in call.body["topics"]:
        partitions = []
        for index in topic["partition_indexes"]:
            answer: dict[str, Any] = {"partition_index": index, "error_code": 0, "active_producers": []}
            partitions.append(answer)
            try:
                call.check_fault(topic["name"], index)
                call.check_allowed(acl.READ, acl.TOPIC, topic["name"])
                partition = call.core.cluster.led_partition(topic["name"], index, call.broker_id)
            except Refused as refusal:
                answer["error_code"] = int(refusal.code)
                continue
            for producer_id, entry in partition.log.producers.entries.items():
                first_offset = entry.transaction_first_offset
                answer["active_producers"].append(
                    {
                        "producer_id": producer_id,
                        "producer_epoch": entry.epoch,
                        "last_sequence": entry.last_sequence,
                        "last_timestamp": entry.last_timestamp_ms,
                        "coordinator_epoch": entry.coordinator_epoch,
                        "current_txn_start_offset": -1 if first_offset is None else first_offset,
                    }
                )
        topics.append({"name": topic["name"], "partitions": partitions})
    call.answer({"topics": topics})
