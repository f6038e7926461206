"""Topics: create, describe, grow, delete; and the range of versions that is offered."""

from __future__ import annotations

from typing import Any

from kafka_sink.kafka.wire import apis
from tests.conformance.peer import Peer
from tests.conformance.script import Seen, script


def create(peer: Peer, name: str, partitions: int = 1, factor: int = 1, **more: Any) -> tuple[int, int, int]:
    body = {
        "topics": [
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": factor,
                "assignments": [],
                "configs": [{"name": key, "value": value} for key, value in more.get("configs", {}).items()],
            }
        ],
        "timeout_ms": 10_000,
        "validate_only": more.get("validate_only", False),
    }
    one = peer.ask(1, apis.CREATE_TOPICS, 7, body)["topics"][0]
    return one["error_code"], one["num_partitions"], one["replication_factor"]


@script()
def creating_topics(peer: Peer, seen: Seen) -> None:
    for name, partitions, factor in (
        ("ok", 3, 1),
        ("default partitions", -1, -1),
        ("no partitions", 0, 1),
        ("fewer", -2, 1),
        ("factor", 1, 5),
        ("factor zero", 1, 0),
        ("far too many", 2_000_000, 1),
    ):
        seen.note(name, create(peer, peer.name(name.replace(" ", "-")), partitions, factor))
    seen.note("again", create(peer, peer.name("ok")))
    for name in ("", ".", "..", "a b", "a/b", "x" * 250, "\u00e4"):
        seen.note(f"name {name!r}", create(peer, name)[0])
    seen.note("config", create(peer, peer.name("c1"), configs={"max.message.bytes": "5000"})[0])
    for config, value in (
        ("nonsense", "1"),
        ("max.message.bytes", "much"),
        ("unclean.leader.election.enable", "maybe"),
        ("min.cleanable.dirty.ratio", "half"),
        ("cleanup.policy", "compacted"),
        ("message.timestamp.type", "Now"),
    ):
        seen.note(f"{config}={value}", create(peer, peer.name("c2"), configs={config: value})[0])
    seen.note("validate only", create(peer, peer.name("v"), validate_only=True)[0])
    seen.note("was not created", peer.metadata(peer.name("v"))["error_code"])


def create_on_demand(peer: Peer, *names: str) -> list[int]:
    """Asks for all of them until the last one is there."""
    body = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": True}
    while True:
        found = {row["name"]: row["error_code"] for row in peer.ask(1, apis.METADATA, 12, body)["topics"]}
        if found[names[-1]] == 0:
            return [found[name] for name in names]
        peer.advance(20)


@script()
def names_that_collide(peer: Peer, seen: Seen) -> None:
    """Topics whose names differ only by . and _ would have the same metrics."""
    dotted, underscored = peer.name("a.b.c"), peer.name("a_b_c")
    seen.note("dotted", create(peer, dotted))
    for kind, name in (("underscored", underscored), ("mixed", peer.name("a.b_c")), ("the same", dotted)):
        for validate_only in (False, True):
            seen.note(f"{kind}, {validate_only}", create(peer, name, validate_only=validate_only))
    seen.note("without either", create(peer, peer.name("abc"))[0])
    seen.note("on demand", create_on_demand(peer, underscored, peer.name("d.e")))
    peer.delete_topic(dotted)
    seen.note("it is gone", create(peer, underscored)[0])
    seen.note("the other way round", create(peer, dotted)[0])


@script()
def metadata_of_topics(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)
    for version in (4, 7, 9, 10, 12):
        body = {
            "topics": [{"name": peer.topic}, {"name": peer.name("no")}, {"name": "a b"}],
            "allow_auto_topic_creation": False,
        }
        answer = peer.ask(1, apis.METADATA, version, body)
        seen.note(
            f"v{version}",
            sorted(
                (
                    row["error_code"],
                    [
                        (
                            one["error_code"],
                            one["partition_index"],
                            one["leader_id"],
                            one["leader_epoch"],
                            one["isr_nodes"],
                        )
                        for one in sorted(row["partitions"], key=lambda one: one["partition_index"])
                    ],
                )
                for row in answer["topics"]
            ),
        )
    by_id = peer.ask(
        1,
        apis.METADATA,
        12,
        {
            "topics": [{"topic_id": peer.metadata(peer.topic)["topic_id"], "name": None}],
            "allow_auto_topic_creation": False,
        },
    )
    seen.note("by id", (by_id["topics"][0]["error_code"], by_id["topics"][0]["name"] == peer.topic))
    unknown = peer.ask(
        1, apis.METADATA, 12, {"topics": [{"topic_id": b"\x05" * 16, "name": None}], "allow_auto_topic_creation": False}
    )["topics"][0]
    seen.note("by unknown id", (unknown["error_code"], unknown["name"]))
    seen.note("none", peer.ask(1, apis.METADATA, 9, {"topics": []})["topics"])
    for asked in ({"topic_id": b"\x05" * 16, "name": None}, {"topic_id": b"\x05" * 16, "name": peer.topic}):
        body = {"topics": [{"name": peer.topic}, asked], "allow_auto_topic_creation": False}
        rows = peer.ask(1, apis.METADATA, 11, body)["topics"]
        seen.note(
            f"id before v12, {asked['name'] is None}", [(row["error_code"], row["name"] == peer.topic) for row in rows]
        )


@script()
def growing_and_deleting(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic)

    def grow(name: str, count: int) -> int:
        body = {"topics": [{"name": name, "count": count, "assignments": None}], "timeout_ms": 5000}
        return int(peer.ask(1, apis.CREATE_PARTITIONS, 3, body)["results"][0]["error_code"])

    seen.note("fewer", grow(peer.topic, 1))
    seen.note("same", grow(peer.topic, 2))
    seen.note("more", grow(peer.topic, 4))
    seen.note("unknown", grow(peer.name("no"), 4))
    for _ in range(100):
        if len(peer.metadata(peer.topic)["partitions"]) == 4:
            break
        peer.advance(20)
    seen.note("count", len(peer.metadata(peer.topic)["partitions"]))

    def delete(name: str | None, topic_id: bytes = bytes(16)) -> int:
        body = {"topics": [{"name": name, "topic_id": topic_id}], "timeout_ms": 5000}
        return int(peer.ask(1, apis.DELETE_TOPICS, 6, body)["responses"][0]["error_code"])

    seen.note("delete unknown", delete(peer.name("no")))
    seen.note("delete unknown id", delete(None, b"\x07" * 16))
    seen.note("delete by id", delete(None, peer.metadata(peer.topic)["topic_id"]))
    for _ in range(100):
        if peer.metadata(peer.topic)["error_code"]:
            break
        peer.advance(20)
    seen.note("gone", peer.metadata(peer.topic)["error_code"])


@script()
def topic_configs(peer: Peer, seen: Seen) -> None:
    peer.create_topic(peer.topic, configs={"cleanup.policy": "compact"})
    keys = [
        "cleanup.policy",
        "max.message.bytes",
        "min.insync.replicas",
        "message.timestamp.type",
        "retention.bytes",
        "delete.retention.ms",
        "segment.bytes",
        "unclean.leader.election.enable",
    ]
    for name in (peer.topic, peer.name("no")):
        body = {"resources": [{"resource_type": 2, "resource_name": name, "configuration_keys": keys}]}
        answer = peer.ask(1, apis.DESCRIBE_CONFIGS, 4, body)["results"][0]
        seen.note(
            f"{name == peer.topic}",
            (
                answer["error_code"],
                sorted((row["name"], row["value"], row["config_source"] == 1) for row in answer["configs"]),
            ),
        )


@script()
def versions_on_offer(peer: Peer, seen: Seen) -> None:
    """Kafka offers everything that is offered here; only the entries of our list are compared."""
    answer = peer.ask(1, apis.API_VERSIONS, 3, {"client_software_name": "a", "client_software_version": "1"})
    offered = {row["api_key"]: (row["min_version"], row["max_version"]) for row in answer["api_keys"]}
    seen.note("AddPartitionsToTxn of brokers", offered[apis.ADD_PARTITIONS_TO_TXN.key][1])
    for key, api in sorted(apis.APIS.items()):
        if key in offered and not api.name.startswith("Sasl"):
            seen.note(api.name, offered[key][1] >= api.version_max or offered[key][1])
    seen.note(
        "transaction.version",
        [row["max_version_level"] for row in answer["finalized_features"] if row["name"] == "transaction.version"],
    )
    bad = {"client_software_name": "a b!", "client_software_version": ""}
    seen.note("bad software name", peer.ask(1, apis.API_VERSIONS, 3, bad)["error_code"])
