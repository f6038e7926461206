"""CreateTopics (19) 2-7, DeleteTopics (20) 1-6, CreatePartitions (37) 0-3, DescribeConfigs (32) 1-4.

Done at once, and by any broker: Kafka's brokers forward to the controller. A topic that is created again under an old
name has a new id. Replicas can be assigned by hand in CreateTopics only as far as their number goes; which brokers
hold them the model decides. DescribeConfigs knows topics and brokers, and of them what the model obeys.

Permission: Create on the cluster or the topic, and without DescribeConfigs on it nothing is told of what was created;
Delete on the cluster or the topic, and without Describe not even whether it is there; Alter for more partitions;
DescribeConfigs on the topic or, for brokers, on the cluster.
"""

from __future__ import annotations

from typing import Any

from kafka_sink.testing import acl
from kafka_sink.testing.call import Call
from kafka_sink.testing.errors import Code, Refused
from kafka_sink.testing.settings import DEFAULTS, TOPIC_DEFAULTS
from kafka_sink.testing.topics import Topic

RESOURCE_TOPIC, RESOURCE_BROKER = 2, 4
SOURCE_TOPIC, SOURCE_STATIC, SOURCE_DEFAULT = 1, 4, 5


def on_create_topics(call: Call) -> None:
    names = [asked["name"] for asked in call.body["topics"]]
    call.answer({"topics": [_create(call, asked, names) for asked in call.body["topics"]]})


def _create(call: Call, asked: dict[str, Any], names: list[str]) -> dict[str, Any]:
    answer: dict[str, Any] = {"name": asked["name"], "error_code": 0, "error_message": None}
    partitions, replication_factor = asked["num_partitions"], asked["replication_factor"]
    if asked["assignments"]:
        partitions, replication_factor = len(asked["assignments"]), len(asked["assignments"][0]["broker_ids"])
    try:
        call.check_fault(asked["name"])
        if names.count(asked["name"]) > 1:
            raise Refused(Code.INVALID_REQUEST, "Duplicate topic name.")
        if not call.is_allowed(acl.CREATE, acl.CLUSTER) and not call.is_allowed(acl.CREATE, acl.TOPIC, asked["name"]):
            raise Refused(Code.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
        _check_quirks(call, replication_factor, asked["configs"])
        topic = call.core.cluster.create_topic(
            asked["name"],
            partitions,
            replication_factor,
            {config["name"]: config["value"] for config in asked["configs"]},
            validate_only=call.body["validate_only"],
        )
    except Refused as refusal:
        answer.update(error_code=int(refusal.code), error_message=refusal.text or refusal.code.name)
        return answer
    answer["topic_id"] = topic.topic_id
    if not call.is_allowed(acl.DESCRIBE_CONFIGS, acl.TOPIC, asked["name"]):
        answer["topic_config_error_code"] = int(Code.TOPIC_AUTHORIZATION_FAILED)
    elif call.version >= 5:
        answer.update(
            topic_id=topic.topic_id,
            num_partitions=len(topic.partitions),
            replication_factor=len(topic.partitions[0].replicas),
        )
    return answer


def _check_quirks(call: Call, replication_factor: int, configs: list[dict[str, Any]]) -> None:
    quirk = call.core.settings.quirk
    if quirk.replication_factors is not None and replication_factor not in quirk.replication_factors:
        allowed = ", ".join(str(one) for one in sorted(quirk.replication_factors) if one > 0)
        raise Refused(Code.POLICY_VIOLATION, f"the replication factor must be {allowed}")
    for config in configs:
        name, value = config["name"], config["value"] or ""
        if quirk.topic_configs is not None and name not in quirk.topic_configs:
            raise Refused(quirk.refusal, f"the configuration {name} cannot be set here")
        minimum = quirk.topic_config_minima.get(name)
        if minimum is not None and value.isdigit() and int(value) < minimum:
            raise Refused(quirk.refusal, f"the configuration {name} is {value}, below {minimum}")


def on_delete_topics(call: Call) -> None:
    cluster = call.core.cluster
    asked = (
        call.body["topics"]
        if call.version >= 6
        else [{"name": name, "topic_id": bytes(16)} for name in call.body["topic_names"]]
    )
    responses = []
    for one in asked:
        name = one["name"]
        answer: dict[str, Any] = {"name": name, "topic_id": one["topic_id"], "error_code": 0}
        responses.append(answer)
        try:
            if name is None:
                topic = cluster.topic_by_id(one["topic_id"])
                if topic is None:
                    raise Refused(Code.UNKNOWN_TOPIC_ID)
                name = topic.name
                if _may_delete(call, acl.DESCRIBE, name):
                    answer["name"] = name
                    call.check_fault(name)
            else:
                call.check_fault(name)
                if not _may_delete(call, acl.DESCRIBE, name):
                    raise Refused(Code.TOPIC_AUTHORIZATION_FAILED)
            known = cluster.topics.get(name)
            if known is not None and not _may_delete(call, acl.DELETE, name):
                raise Refused(Code.TOPIC_AUTHORIZATION_FAILED)
            cluster.delete_topic(name)
            answer["name"] = name
            assert known is not None
            answer["topic_id"] = known.topic_id
        except Refused as refusal:
            answer["error_code"] = int(refusal.code)
    call.answer({"responses": responses})


def _may_delete(call: Call, operation: str, name: str) -> bool:
    return call.is_allowed(acl.DELETE, acl.CLUSTER) or call.is_allowed(operation, acl.TOPIC, name)


def on_create_partitions(call: Call) -> None:
    results = []
    for asked in call.body["topics"]:
        answer = {"name": asked["name"], "error_code": 0, "error_message": None}
        results.append(answer)
        try:
            call.check_fault(asked["name"])
            call.check_allowed(acl.ALTER, acl.TOPIC, asked["name"])
            call.core.cluster.grow_topic(asked["name"], asked["count"], validate_only=call.body["validate_only"])
        except Refused as refusal:
            answer.update(error_code=int(refusal.code), error_message=refusal.text or refusal.code.name)
    call.answer({"results": results})


def on_describe_configs(call: Call) -> None:
    results = []
    for resource in call.body["resources"]:
        kind, name = resource["resource_type"], resource["resource_name"]
        answer: dict[str, Any] = {
            "error_code": 0,
            "error_message": None,
            "resource_type": kind,
            "resource_name": name,
            "configs": [],
        }
        results.append(answer)
        try:
            call.check_fault(name)
            configs = _configs(call, kind, name)
        except Refused as refusal:
            answer.update(error_code=int(refusal.code), error_message=refusal.text or refusal.code.name)
            continue
        wanted = resource["configuration_keys"]
        answer["configs"] = [one for one in configs if wanted is None or one["name"] in wanted]
    call.answer({"results": results})


def _configs(call: Call, kind: int, name: str) -> list[dict[str, Any]]:
    settings = call.core.settings
    if kind == RESOURCE_TOPIC:
        call.check_allowed(acl.DESCRIBE_CONFIGS, acl.TOPIC, name)
        topic: Topic | None = call.core.cluster.topics.get(name)
        if topic is None:
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION)
        return [
            _config(
                one,
                topic.config(settings, one),
                SOURCE_TOPIC if one in topic.configs else _source(call, TOPIC_DEFAULTS[one]),
            )
            for one in TOPIC_DEFAULTS
        ]
    if kind == RESOURCE_BROKER:
        call.check_allowed(acl.DESCRIBE_CONFIGS, acl.CLUSTER)
        if name and name != str(call.broker_id):
            raise Refused(Code.INVALID_REQUEST, f"Unexpected broker id, expected {call.broker_id}")
        return [_config(one, settings.text(one), _source(call, one)) for one in DEFAULTS]
    raise Refused(Code.INVALID_REQUEST, f"unsupported resource type {kind}")


def _source(call: Call, broker_property: str) -> int:
    return SOURCE_STATIC if broker_property in call.core.settings.properties else SOURCE_DEFAULT


def _config(name: str, value: str, source: int) -> dict[str, Any]:
    return {
        "name": name,
        "value": value,
        "read_only": False,
        "config_source": source,
        "is_sensitive": False,
        "synonyms": [],
    }
