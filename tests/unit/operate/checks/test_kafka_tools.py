"""Commands in the advice of `check` are complete: brokers, login, and what they are about."""

from __future__ import annotations

import json
import shlex

import pytest

from kafka_sink.commit.admin.ledger_topic import troubles
from kafka_sink.commit.admin.topics import TopicState
from kafka_sink.commit.ledger_policy import policy_problem
from kafka_sink.operate.checks.kafka_tools import KafkaTools, tools_for
from kafka_sink.options.parse import parse_producer_options

SERVERS = {"bootstrap.servers": "b1:9092,b2:9092"}
TO_B = "--bootstrap-server b1:9092,b2:9092"


def tools_with(**login: str) -> KafkaTools:
    return tools_for(
        parse_producer_options({**SERVERS, **{name.replace("_", "."): text for name, text in login.items()}})
    )


def state_of(*replicas: tuple[int, ...]) -> TopicState:
    return TopicState(replicas, replicas, tuple(each[0] for each in replicas), {}, bytes(16))


def test_a_command_for_a_topic_names_the_brokers() -> None:
    told = tools_with().alter_topic("orders", "min.insync.replicas", 2)
    entity = "--entity-type topics --entity-name orders"
    assert told == f"`kafka-configs.sh {TO_B} --alter {entity} --add-config min.insync.replicas=2`"


def test_with_a_login_a_command_names_a_file_for_it_and_permissions_go_to_its_user() -> None:
    tools = tools_with(
        security_protocol="SASL_SSL", sasl_mechanism="PLAIN", sasl_username="alice", sasl_password="hunter2"
    )
    told = tools.grant(("Write", "Read"), "--topic", "orders")
    words = f"kafka-acls.sh {TO_B} --command-config client.properties --add --allow-principal User:alice"
    assert told.startswith(f"`{words} --operation Write --operation Read --topic orders`. client.properties stands for")
    assert "hunter2" not in told
    assert "User:NAME" in tools_with().grant(("Write",), "--topic", "orders")


@pytest.mark.parametrize(
    ("entity", "words"),
    [
        ({"client-id": "me"}, "--entity-type clients --entity-name me"),
        (
            {"user": None, "client-id": "a b"},
            "--entity-type users --entity-default --entity-type clients --entity-name 'a b'",
        ),
    ],
)
def test_a_quota_is_removed_where_it_was_set(entity: dict[str, str | None], words: str) -> None:
    told = tools_with().delete_quota(entity, "producer_byte_rate")
    assert told == f"`kafka-configs.sh {TO_B} --alter {words} --delete-config producer_byte_rate`"


def test_new_replicas_go_to_different_brokers_and_leaders_stay() -> None:
    told = tools_with().add_replicas("orders", state_of((1,), (2,), (3, 1)), (1, 2, 3, 4), 3)
    _, text, _, file, *rest = shlex.split(told.strip("`"))
    partitions = json.loads(text)["partitions"]
    assert [each["replicas"] for each in partitions] == [[1, 2, 3], [2, 3, 4], [3, 1, 2]]
    assert file == "orders-replicas.json" and rest[:2] == ["&&", "kafka-reassign-partitions.sh"]
    many = tools_with().add_replicas("orders", state_of(*[(1,)] * 100), (1, 2, 3), 3)
    assert many == "give orders 3 replicas with kafka-reassign-partitions.sh --execute"


def test_commands_of_a_commits_texts_get_the_brokers() -> None:
    about_policy = policy_problem("ledger", "delete")
    assert about_policy is not None
    told = tools_with().complete(about_policy)
    entity = "--entity-type topics --entity-name ledger"
    command = f"`kafka-configs.sh {TO_B} --alter {entity} --add-config cleanup.policy=compact`"
    assert f"({command}), or choose another ledger.topic" in told
    (in_sync,) = troubles("ledger", {"min.insync.replicas": "1"}, 3, 3)
    assert tools_with().complete(in_sync).endswith("--entity-name ledger --add-config min.insync.replicas=2`")
    assert tools_with().complete("nothing to paste") == "nothing to paste"
