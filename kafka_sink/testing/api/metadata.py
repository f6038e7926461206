"""Metadata (3) 4-13, DescribeQuorum (55) 1, DescribeCluster (60) 0-2, FindCoordinator (10) 0-6.

An unknown topic requested by name is created if both the request and the broker allow it; this response still has
UNKNOWN_TOPIC_OR_PARTITION, as in Kafka, the next one has the topic. Topics can be requested by id from v12 on. Each
broker returns the leaders it has heard of, which may be old ones for a while. The first FindCoordinator creates the
internal topic and returns COORDINATOR_NOT_AVAILABLE. DescribeQuorum returns a quorum of one node with the current time.
Authorized operations are returned for topics; those of the cluster are not modelled.

Permission: Describe on each topic, or it is omitted if all were requested and refused if it was requested by name
(without its id) or by id (without its name); Create on the cluster or the topic for one that would be created.
FindCoordinator needs Describe on the group or the transactional id, DescribeQuorum Describe on the cluster,
DescribeCluster nothing.
"""

from __future__ import annotations

from contextlib import suppress

from kafka_sink.testing import acl
from kafka_sink.testing.api.parts import Answer, answer_or_error, answer_or_error_text, by_partition
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

VERSION_TOPIC_IDS = 12
NOT_ASKED = -(1 << 31)
# Kafka's AclOperation codes: all that apply to topics.
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


def on_metadata(call: Call) -> Answer:
    cluster = call.core.cluster
    asked = call.body["topics"]
    if asked is None:
        visible = [one for one in cluster.topics.values() if call.is_allowed(acl.DESCRIBE, acl.TOPIC, one.name)]
        answers = [{"name": topic.name, **answer_or_error(_describe, call, topic)} for topic in visible]
    elif call.version < VERSION_TOPIC_IDS and any(one["name"] is None or any(one["topic_id"]) for one in asked):
        answers = [{"name": one["name"] or "", "error_code": Code.INVALID_REQUEST} for one in asked]
    else:
        answers = [_answer(call, one["name"], one["topic_id"]) for one in asked]
    return {
        "brokers": call.core.endpoints([broker.node_id for broker in cluster.alive]),
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller_id,
        "topics": answers,
    }


def _answer(call: Call, name: str | None, topic_id: bytes) -> Answer:
    if name is None:
        return {"name": None, "topic_id": topic_id, **answer_or_error(_describe_by_id, call, topic_id)}
    return {"name": name, **answer_or_error(_describe_by_name, call, name)}


def _describe_by_id(call: Call, topic_id: bytes) -> Answer:
    topic = call.core.cluster.topic_by_id(topic_id)
    call.check_allowed(acl.DESCRIBE, acl.TOPIC, topic.name)
    return _describe(call, topic)


def _describe_by_name(call: Call, name: str) -> Answer:
    call.check_fault(name)
    call.check_allowed(acl.DESCRIBE, acl.TOPIC, name)
    topic = call.core.cluster.topics.get(name)
    if topic is not None:
        return _describe(call, topic)
    creates = call.body["allow_auto_topic_creation"] and call.core.settings.flag("auto.create.topics.enable")
    if creates and not call.is_allowed(acl.CREATE, acl.CLUSTER):
        call.check_allowed(acl.CREATE, acl.TOPIC, name)
    check_topic_name(name)
    if creates:
        _create(call, name)
    raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION)


def _create(call: Call, name: str) -> None:
    """A controller that refuses it (a name that collides) tells only the broker: the topic stays unknown."""
    if name in INTERNAL_TOPICS:
        call.core.cluster.coordinator_partition(name, "")
        return
    with suppress(Refused):
        call.core.cluster.create_topic(name)


def _describe(call: Call, topic: Topic) -> Answer:
    call.check_fault(topic.name)
    return {
        "error_code": call.code_to_report(topic.name, -1, Code.NONE),
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "topic_authorized_operations": _authorized_operations(call, topic.name),
        "partitions": [_describe_partition(call, partition) for partition in topic.partitions],
    }


def _authorized_operations(call: Call, topic: str) -> int:
    """A bit per operation that the client may do; a special value if not requested."""
    if not call.body["include_topic_authorized_operations"]:
        return NOT_ASKED
    return sum(1 << bit for bit, operation in OPERATION_BITS.items() if call.is_allowed(operation, acl.TOPIC, topic))


def _describe_partition(call: Call, partition: Partition) -> Answer:
    cluster = call.core.cluster
    leader_id, leader_epoch = cluster.leader_as_seen_by(call.broker_id, partition)
    has_leader = cluster.is_up(leader_id)
    return {
        "error_code": Code.NONE if has_leader else Code.LEADER_NOT_AVAILABLE,
        "partition_index": partition.index,
        "leader_id": leader_id if has_leader else NO_LEADER,
        "leader_epoch": leader_epoch,
        "replica_nodes": list(partition.replicas),
        "isr_nodes": list(partition.in_sync),
        "offline_replicas": [one for one in partition.replicas if not cluster.is_up(one)],
    }


def on_describe_cluster(call: Call) -> Answer:
    call.check_fault()
    cluster = call.core.cluster
    if call.body["endpoint_type"] != 1:
        raise Refused(Code.INVALID_REQUEST)
    brokers = [{"broker_id": one.node_id, "host": one.host, "port": one.port} for one in cluster.alive]
    ids = {"cluster_id": cluster.cluster_id, "controller_id": cluster.controller_id}
    return {"error_code": 0, **ids, "brokers": brokers}


def on_describe_quorum(call: Call) -> Answer:
    call.check_fault()
    call.check_allowed(acl.DESCRIBE, acl.CLUSTER)
    leader_id, now_ms = call.core.cluster.controller_id, call.now_ms
    leader = {
        "replica_id": leader_id,
        "log_end_offset": 1,
        "last_fetch_timestamp": now_ms,
        "last_caught_up_timestamp": now_ms,
    }
    row = {"leader_id": leader_id, "leader_epoch": 1, "high_watermark": 1, "current_voters": [leader]}
    topics = by_partition(call.body["topics"], lambda _topic, _asked: row, topic="topic_name")
    return {"error_code": 0, "topics": topics}


def on_find_coordinator(call: Call) -> Answer:
    body = call.body
    if call.version < 4:
        return _find(call, body["key_type"], body["key"])
    return {"coordinators": [{"key": key, **_find(call, body["key_type"], key)} for key in body["coordinator_keys"]]}


def _find(call: Call, key_type: int, key: str) -> Answer:
    return {"node_id": -1, "port": -1, **answer_or_error_text(_coordinator, call, key_type, key)}


def _coordinator(call: Call, key_type: int, key: str) -> Answer:
    cluster = call.core.cluster
    call.check_fault()
    topic = KEY_TYPES.get(key_type)
    if topic is None:
        raise Refused(Code.INVALID_REQUEST)
    call.check_allowed(acl.DESCRIBE, acl.GROUP if topic == OFFSETS_TOPIC else acl.TRANSACTIONAL_ID, key)
    is_new = topic not in cluster.topics
    leader_id, _ = cluster.leader_as_seen_by(call.broker_id, cluster.coordinator_partition(topic, key))
    if is_new or leader_id == NO_LEADER:
        raise Refused(Code.COORDINATOR_NOT_AVAILABLE)
    broker = cluster.brokers[leader_id]
    return {"node_id": leader_id, "host": broker.host, "port": broker.port}
