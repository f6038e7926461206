"""Metadata (3) 4-13, DescribeQuorum (55) 1, DescribeCluster (60) 0-2, FindCoordinator (10) 0-6.

A topic that is asked for by name and unknown is created when both the request and the broker allow it; this answer
still says UNKNOWN_TOPIC_OR_PARTITION, as Kafka's does, and the next one knows it. Topics can be asked for by id from
v10 on. Each broker answers with the leaders it has heard of, which may be old ones for a while. The first
FindCoordinator creates the internal topic and answers COORDINATOR_NOT_AVAILABLE. DescribeQuorum tells a quorum of one
node that says what time it is. Authorized operations are told of topics; those of the cluster are not modelled.

Permission: Describe on each topic, or it is left out when all were asked for and refused when it was asked for by name
(without its id) or by id (without its name); Create on the cluster or the topic for one that would be created.
FindCoordinator needs Describe on the group or the transactional id, DescribeQuorum Describe on the cluster,
DescribeCluster nothing.
"""

from __future__ import annotations

from typing import Any

from kafka_sink.testing import acl
from kafka_sink.testing.call import Call
from kafka_sink.testing.errors import Code, Refused
from kafka_sink.testing.topics import (
    INTERNAL_TOPICS,
    NO_LEADER,
    OFFSETS_TOPIC,
    TRANSACTION_TOPIC,
    Partition,
    Topic,
    check_topic_name,
)

NO_UUID = bytes(16)
NOT_ASKED = -(1 << 31)
# By the numbers of Kafka's AclOperation: all those that a topic can have.
OPERATION_BITS = {
    3: acl.READ,
    4: acl.WRITE,
    5: acl.CREATE,
    6: acl.DELETE,
    7: acl.ALTER,
    8: acl.DESCRIBE,
    10: acl.DESCRIBE_CONFIGS,
    11: acl.ALTER_CONFIGS,
}
KEY_TYPES = {0: OFFSETS_TOPIC, 1: TRANSACTION_TOPIC}


def on_metadata(call: Call) -> None:
    cluster = call.core.cluster
    asked = call.body["topics"]
    if asked is None:
        visible = [one for one in cluster.topics.values() if call.is_allowed(acl.DESCRIBE, acl.TOPIC, one.name)]
        answers = [_describe(call, topic) for topic in visible]
    else:
        answers = [_answer(call, entry["name"], entry["topic_id"]) for entry in asked]
    call.answer(
        {
            "brokers": call.core.endpoints([broker.node_id for broker in cluster.alive]),
            "cluster_id": cluster.cluster_id,
            "controller_id": cluster.controller_id,
            "topics": answers,
        }
    )


def _answer(call: Call, name: str | None, topic_id: bytes) -> dict[str, Any]:
    cluster = call.core.cluster
    if name is None:
        topic = cluster.topic_by_id(topic_id)
        if topic is None:
            return {"error_code": int(Code.UNKNOWN_TOPIC_ID), "name": None, "topic_id": topic_id, "partitions": []}
        if not call.is_allowed(acl.DESCRIBE, acl.TOPIC, topic.name):
            code = int(Code.TOPIC_AUTHORIZATION_FAILED)
            return {"error_code": code, "name": None, "topic_id": topic_id, "partitions": []}
        return _describe(call, topic)
    try:
        call.check_fault(name)
        call.check_allowed(acl.DESCRIBE, acl.TOPIC, name)
        topic = cluster.topics.get(name)
        if topic is not None:
            return _describe(call, topic)
        creates = call.body["allow_auto_topic_creation"] and call.core.settings.flag("auto.create.topics.enable")
        if creates and not call.is_allowed(acl.CREATE, acl.CLUSTER):
            call.check_allowed(acl.CREATE, acl.TOPIC, name)
        check_topic_name(name)
        if creates:
            _create(call, name)
        code = Code.UNKNOWN_TOPIC_OR_PARTITION
    except Refused as refusal:
        code = refusal.code
    return {"error_code": int(code), "name": name, "topic_id": NO_UUID, "partitions": []}


def _create(call: Call, name: str) -> None:
    if name in INTERNAL_TOPICS:
        call.core.cluster.coordinator_partition(name, "")
    else:
        call.core.cluster.create_topic(name)


def _describe(call: Call, topic: Topic) -> dict[str, Any]:
    code = 0
    try:
        call.check_fault(topic.name)
    except Refused as refusal:
        code = int(refusal.code)
    return {
        "error_code": call.reported(topic.name, -1, code),
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "topic_authorized_operations": _authorized_operations(call, topic.name),
        "partitions": [] if code else [_describe_partition(call, partition) for partition in topic.partitions],
    }


def _authorized_operations(call: Call, topic: str) -> int:
    """A bit for each operation that the client may do; a number that says so if nobody asked."""
    if not call.body["include_topic_authorized_operations"]:
        return NOT_ASKED
    return sum(1 << bit for bit, operation in OPERATION_BITS.items() if call.is_allowed(operation, acl.TOPIC, topic))


def _describe_partition(call: Call, partition: Partition) -> dict[str, Any]:
    cluster = call.core.cluster
    leader_id, leader_epoch = cluster.leader_as_seen_by(call.broker_id, partition)
    has_leader = leader_id in cluster.brokers and cluster.brokers[leader_id].is_up
    return {
        "error_code": 0 if has_leader else int(Code.LEADER_NOT_AVAILABLE),
        "partition_index": partition.index,
        "leader_id": leader_id if has_leader else NO_LEADER,
        "leader_epoch": leader_epoch,
        "replica_nodes": list(partition.replicas),
        "isr_nodes": list(partition.in_sync),
        "offline_replicas": [one for one in partition.replicas if not cluster.brokers[one].is_up],
    }


def on_describe_cluster(call: Call) -> None:
    call.check_fault()
    cluster = call.core.cluster
    if call.body["endpoint_type"] != 1:
        raise Refused(Code.INVALID_REQUEST)
    brokers = [
        {"broker_id": broker.node_id, "host": broker.host, "port": broker.port, "rack": broker.rack}
        for broker in cluster.alive
    ]
    call.answer(
        {
            "error_code": 0,
            "cluster_id": cluster.cluster_id,
            "controller_id": cluster.controller_id,
            "brokers": brokers,
        }
    )


def on_describe_quorum(call: Call) -> None:
    call.check_fault()
    call.check_allowed(acl.DESCRIBE, acl.CLUSTER)
    now_ms = call.now_ms
    leader = {
        "replica_id": call.core.cluster.controller_id,
        "log_end_offset": 1,
        "last_fetch_timestamp": now_ms,
        "last_caught_up_timestamp": now_ms,
    }
    row = {
        "error_code": 0,
        "leader_id": call.core.cluster.controller_id,
        "leader_epoch": 1,
        "high_watermark": 1,
        "current_voters": [leader],
        "observers": [],
    }
    topics = [
        {
            "topic_name": topic["topic_name"],
            "partitions": [{**row, "partition_index": one["partition_index"]} for one in topic["partitions"]],
        }
        for topic in call.body["topics"]
    ]
    call.answer({"error_code": 0, "topics": topics})


def on_find_coordinator(call: Call) -> None:
    body = call.body
    if call.version >= 4:
        answers = [_find(call, body["key_type"], key) for key in body["coordinator_keys"]]
        call.answer({"coordinators": answers})
        return
    answer = _find(call, body["key_type"], body["key"])
    del answer["key"]
    call.answer(answer)


def _find(call: Call, key_type: int, key: str) -> dict[str, Any]:
    cluster = call.core.cluster
    answer: dict[str, Any] = {"key": key, "node_id": -1, "host": "", "port": -1, "error_code": 0, "error_message": None}
    try:
        call.check_fault()
        topic = KEY_TYPES.get(key_type)
        if topic is None:
            raise Refused(Code.INVALID_REQUEST)
        call.check_allowed(acl.DESCRIBE, acl.GROUP if topic == OFFSETS_TOPIC else acl.TRANSACTIONAL_ID, key)
        is_new = topic not in cluster.topics
        leader_id, _ = cluster.leader_as_seen_by(call.broker_id, cluster.coordinator_partition(topic, key))
        if is_new or leader_id == NO_LEADER:
            raise Refused(Code.COORDINATOR_NOT_AVAILABLE)
    except Refused as refusal:
        answer.update(error_code=int(refusal.code), error_message=refusal.code.name)
        return answer
    broker = cluster.brokers[leader_id]
    answer.update(node_id=broker.node_id, host=broker.host, port=broker.port)
    return answer
