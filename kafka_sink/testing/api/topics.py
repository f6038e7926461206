"""CreateTopics (19) 2-7, DeleteTopics (20) 1-6, CreatePartitions (37) 0-3, DescribeConfigs (32) 1-4,
DescribeClientQuotas (48) 1.

Done at once, and by any broker: Kafka's brokers forward to the controller. A recreated topic has a new id. Of a manual
replica assignment in CreateTopics only the number of replicas is used; the model chooses the brokers. DescribeConfigs
supports topics and brokers, with the configurations that the model implements.

Permission: Create on the cluster or the topic, and without DescribeConfigs on it no details of the created topic are
returned; Delete on the cluster or the topic, and without Describe not even whether it exists; Alter for more
partitions; DescribeConfigs on the topic or, for brokers, on the cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_sink.testing import acl
from kafka_sink.testing.api.parts import Answer, answer_or_error_text
from kafka_sink.testing.call import Call
from kafka_sink.testing.errors import Code, Refused
from kafka_sink.testing.settings import DEFAULTS, TOPIC_DEFAULTS

RESOURCE_TOPIC, RESOURCE_BROKER = 2, 4
SOURCE_TOPIC, SOURCE_STATIC, SOURCE_DEFAULT = 1, 4, 5


def on_create_topics(call: Call) -> Answer:
    topics = call.body["topics"]
    names = [one["name"] for one in topics]
    return {"topics": [{"name": one["name"], **answer_or_error_text(_create, call, one, names)} for one in topics]}


def _create(call: Call, asked: Mapping[str, Any], names: list[str]) -> Answer:
    name, partitions, replication_factor = asked["name"], asked["num_partitions"], asked["replication_factor"]
    if asked["assignments"]:
        partitions, replication_factor = len(asked["assignments"]), len(asked["assignments"][0]["broker_ids"])
    call.check_fault(name)
    if names.count(name) > 1:
        raise Refused(Code.INVALID_REQUEST, "Duplicate topic name.")
    if not call.is_allowed(acl.CREATE, acl.CLUSTER) and not call.is_allowed(acl.CREATE, acl.TOPIC, name):
        raise Refused(Code.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    _check_quirks(call, replication_factor, asked["configs"])
    configs = {config["name"]: config["value"] for config in asked["configs"]}
    topic = call.core.cluster.create_topic(
        name, partitions, replication_factor, configs, validate_only=call.body["validate_only"]
    )
    if not call.is_allowed(acl.DESCRIBE_CONFIGS, acl.TOPIC, name):
        return {"topic_id": topic.topic_id, "topic_config_error_code": Code.TOPIC_AUTHORIZATION_FAILED}
    return {
        "topic_id": topic.topic_id,
        "num_partitions": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas),
    }


def _check_quirks(call: Call, replication_factor: int, configs: list[dict[str, Any]]) -> None:
    quirk = call.core.settings.quirk
    if quirk.replication_factors is not None and replication_factor not in quirk.replication_factors:
        allowed = ", ".join(str(one) for one in sorted(quirk.replication_factors) if one > 0)
        raise Refused(Code.POLICY_VIOLATION, f"the replication factor must be {allowed}")
    for config in configs:
        name, value = config["name"], config["value"] or ""
        is_unknown = quirk.topic_configs is not None and name not in quirk.topic_configs
        if is_unknown or name in quirk.protected_configs:
            raise Refused(quirk.refusal, f"the configuration {name} cannot be set here")
        minimum = quirk.topic_config_minima.get(name)
        if minimum is not None and value.isdigit() and int(value) < minimum:
            raise Refused(quirk.refusal, f"the configuration {name} is {value}, below {minimum}")


def on_delete_topics(call: Call) -> Answer:
    by_name = [{"name": name, "topic_id": bytes(16)} for name in call.body["topic_names"]]
    asked = call.body["topics"] if call.version >= 6 else by_name
    return {"responses": [_delete(call, one["name"], one["topic_id"]) for one in asked]}


def _delete(call: Call, name: str | None, topic_id: bytes) -> Answer:
    """Answers with the requested name, or the topic's if it may be shown."""
    cluster = call.core.cluster
    answer: Answer = {"name": name, "topic_id": topic_id}
    try:
        if name is None:
            name = cluster.topic_by_id(topic_id).name
            if _may_delete(call, acl.DESCRIBE, name):
                answer["name"] = name
                call.check_fault(name)
        else:
            call.check_fault(name)
            if not _may_delete(call, acl.DESCRIBE, name):
                raise Refused(Code.TOPIC_AUTHORIZATION_FAILED)
        known = cluster.known_topic(name)
        if not _may_delete(call, acl.DELETE, name):
            raise Refused(Code.TOPIC_AUTHORIZATION_FAILED)
        cluster.delete_topic(name)
        answer.update(name=name, topic_id=known.topic_id)
    except Refused as refusal:
        answer["error_code"] = refusal.code
    return answer


def _may_delete(call: Call, operation: str, name: str) -> bool:
    return call.is_allowed(acl.DELETE, acl.CLUSTER) or call.is_allowed(operation, acl.TOPIC, name)


def on_create_partitions(call: Call) -> Answer:
    topics = call.body["topics"]
    return {"results": [{"name": one["name"], **answer_or_error_text(_grow, call, one)} for one in topics]}


def _grow(call: Call, asked: Mapping[str, Any]) -> Answer:
    call.check_fault(asked["name"])
    call.check_allowed(acl.ALTER, acl.TOPIC, asked["name"])
    call.core.cluster.grow_topic(asked["name"], asked["count"], validate_only=call.body["validate_only"])
    return {}


def on_describe_configs(call: Call) -> Answer:
    results = [
        {
            "resource_type": one["resource_type"],
            "resource_name": one["resource_name"],
            **answer_or_error_text(_describe_configs, call, one),
        }
        for one in call.body["resources"]
    ]
    return {"results": results}


def _describe_configs(call: Call, asked: Mapping[str, Any]) -> Answer:
    call.check_fault(asked["resource_name"])
    configs = _configs(call, asked["resource_type"], asked["resource_name"])
    wanted = asked["configuration_keys"]
    return {"configs": [one for one in configs if wanted is None or one["name"] in wanted]}


def _configs(call: Call, kind: int, name: str) -> list[Answer]:
    settings = call.core.settings
    if kind == RESOURCE_TOPIC:
        call.check_allowed(acl.DESCRIBE_CONFIGS, acl.TOPIC, name)
        topic = call.core.cluster.known_topic(name)
        return [
            _config(one, topic.config.text(one), SOURCE_TOPIC if one in topic.configs else _source(call, default))
            for one, default in TOPIC_DEFAULTS.items()
        ]
    if kind == RESOURCE_BROKER:
        call.check_allowed(acl.DESCRIBE_CONFIGS, acl.CLUSTER)
        if name and name != str(call.broker_id):
            raise Refused(Code.INVALID_REQUEST, f"Unexpected broker id, expected {call.broker_id}")
        if settings.quirk.broker_configs is not Code.NONE:
            raise Refused(settings.quirk.broker_configs)
        told = [one for one in DEFAULTS if one not in settings.quirk.untold_broker_configs]
        return [_config(one, settings.text(one), _source(call, one)) for one in told]
    raise Refused(Code.INVALID_REQUEST, f"unsupported resource type {kind}")


def _source(call: Call, broker_property: str) -> int:
    return SOURCE_STATIC if broker_property in call.core.settings.properties else SOURCE_DEFAULT


def _config(name: str, value: str, source: int) -> Answer:
    return {"name": name, "value": value, "config_source": source}


def on_describe_client_quotas(call: Call) -> Answer:
    return answer_or_error_text(_describe_client_quotas, call)


def _describe_client_quotas(call: Call) -> Answer:
    """There are none here."""
    call.check_fault()
    call.check_allowed(acl.DESCRIBE_CONFIGS, acl.CLUSTER)
    return {"entries": []}
