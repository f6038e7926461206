"""Every request of every API by users who lack one permission, have a single one, or are denied one.

All names of this file's topics, groups and transactional ids begin with "mine-"; permissions are for that prefix unless
said otherwise. "admin" may do everything and prepares the objects of the requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

from kafka_sink.kafka.wire import apis
from kafka_sink.testing import Acl
from tests.conformance.peer import Peer
from tests.conformance.script import Seen
from tests.support.broker_requests import Closed, batch

T = TypeVar("T")
PREFIX = "mine-"
TOPIC, GROUP, CLUSTER, ID = "topic", "group", "cluster", "transactional_id"

GRANTS: tuple[tuple[str, str], ...] = (
    *((TOPIC, one) for one in ("read", "write", "create", "delete", "alter", "describe", "describe_configs")),
    *((GROUP, one) for one in ("read", "describe")),
    *((ID, one) for one in ("write", "describe")),
    *((CLUSTER, one) for one in ("idempotent_write", "describe", "describe_configs", "create", "delete")),
)
# With these the topic's own permission is not needed, so users who lack one of the others do not get them.
BROAD = {(CLUSTER, "create"), (CLUSTER, "delete")}


def grant(user: str, resource_type: str, operation: str, permission: str = "allow") -> Acl:
    if resource_type == CLUSTER:
        return Acl(f"User:{user}", operation, CLUSTER, permission=permission)
    return Acl(f"User:{user}", operation, resource_type, PREFIX, "prefixed", permission)


def cases() -> dict[str, list[Acl]]:
    """User -> its permissions."""
    narrow = [one for one in GRANTS if one not in BROAD]
    users: dict[str, list[Acl]] = {"nobody": [], "everything": [grant("everything", *one) for one in GRANTS]}
    for one in narrow:
        name = f"without-{'-'.join(one)}"
        users[name] = [grant(name, *each) for each in narrow if each != one]
    for one in sorted(BROAD):
        users[f"only-{'-'.join(one)}"] = [grant(f"only-{'-'.join(one)}", *one)]
    for kind, operation in ((TOPIC, "write"), (TOPIC, "describe"), (TOPIC, "all"), (GROUP, "read"), (ID, "all")):
        name = f"denied-{kind}-{operation}"
        users[name] = [*(grant(name, *one) for one in narrow), grant(name, kind, operation, "deny")]
    star = "wildcards"
    users[star] = [Acl(f"User:{star}", "all", kind, "*") for kind in (TOPIC, GROUP, ID)]
    literal = "literal-names"
    users[literal] = [Acl(f"User:{literal}", "all", TOPIC, f"{PREFIX}t-{literal}")]
    return users


def create_topics(admin: Peer) -> None:
    """Creates the topics of all users in one request, which halves the time."""
    names = [name.format(user) for user in cases() for name in (f"{PREFIX}t-{{}}", "other-{}", f"{PREFIX}t-{{}}-other")]
    rows = [{"name": name, "num_partitions": 2, "replication_factor": 1} for name in names]
    topics = [{**row, "assignments": [], "configs": []} for row in rows]
    answer = admin.ask(1, apis.CREATE_TOPICS, 7, {"topics": topics, "timeout_ms": 30_000, "validate_only": False})
    assert {row["error_code"] for row in answer["topics"]} == {0}
    for name in names:
        while admin.metadata(name)["error_code"] or admin.fetch(topic=name, partition=1)["error_code"]:
            admin.advance(20)


def request_by_request(peer: Peer, admin: Peer, user: str, seen: Seen) -> None:
    """Topics etc. are named after the user, so that users do not affect each other."""
    topic, group, transactional_id = f"{PREFIX}t-{user}", f"{PREFIX}g-{user}", f"{PREFIX}x-{user}"
    foreign = f"other-{user}"
    producer_id, epoch = admin.begin(transactional_id)
    assert admin.add(transactional_id, producer_id, epoch, 0, topic=topic) == 0
    admin.find(group, 0)
    for question, answer in (
        *_metadata(peer, topic, foreign),
        *_records(peer, topic, foreign),
        *_groups(peer, topic, foreign, group),
        *_transactions(peer, topic, foreign, group, transactional_id, producer_id, epoch),
        *_administration(peer, admin, topic, foreign),
    ):
        seen.note(f"{user}: {question}", answer)


Notes = Iterator[tuple[str, Any]]


def _metadata(peer: Peer, topic: str, foreign: str) -> Notes:
    def rows(asked: list[dict[str, Any]] | None, *, creates: bool = False) -> list[tuple[int, str | None, bool, int]]:
        answer = peer.ask(1, apis.METADATA, 12, {"topics": asked, "allow_auto_topic_creation": creates})
        ours = [row for row in answer["topics"] if asked is not None or row["name"] in (topic, foreign)]
        return sorted(
            (row["error_code"], row["name"] or "", any(row["topic_id"]), len(row["partitions"])) for row in ours
        )

    for version in (4, 9):
        body = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        yield f"Metadata v{version}", peer.ask(1, apis.METADATA, version, body)["topics"][0]["error_code"]
    absent = topic + "-absent"
    yield "Metadata by name", rows([{"name": name} for name in (topic, foreign, absent, foreign + "-absent")])
    yield "Metadata of all", rows(None)
    if rows([{"name": topic}])[0][0] == 0:
        known = peer.metadata(topic)["topic_id"]
        yield "Metadata by id", rows([{"topic_id": known, "name": None}])
    yield "Metadata by unknown id", rows([{"topic_id": b"\x07" * 16, "name": None}])
    yield (
        "DescribeCluster",
        peer.ask(1, apis.DESCRIBE_CLUSTER, 0, {"include_cluster_authorized_operations": False})["error_code"],
    )


def _records(peer: Peer, topic: str, foreign: str) -> Notes:
    now_ms = peer.now()
    for name in (topic, foreign, topic + "-absent"):
        yield f"Produce {name}", peer.produce(batch(b"v", timestamp_ms=now_ms), topic=name)[0]
        yield f"Fetch {name}", peer.fetch(topic=name)["error_code"]
        body: dict[str, Any] = {
            "isolation_level": 0,
            "topics": [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        }
        answer = peer.ask(1, apis.LIST_OFFSETS, 5, body)["topics"][0]["partitions"][0]
        yield f"ListOffsets {name}", (answer["error_code"], answer["offset"] >= 0)
        body = {"topics": [{"topic": name, "partitions": [{"partition": 0, "leader_epoch": 0}]}]}
        answer = peer.ask(1, apis.OFFSET_FOR_LEADER_EPOCH, 3, body)["topics"][0]["partitions"][0]
        yield f"OffsetForLeaderEpoch {name}", answer["error_code"]
        body = {"topics": [{"name": name, "partition_indexes": [0]}]}
        answer = peer.ask(1, apis.DESCRIBE_PRODUCERS, 0, body)["topics"][0]["partitions"][0]
        yield f"DescribeProducers {name}", answer["error_code"]
    if peer.produce(batch(b"v", timestamp_ms=now_ms), topic=foreign)[0]:
        try:
            peer.produce(batch(b"v", timestamp_ms=now_ms), topic=foreign, acks=0)
        except Closed:
            yield "Produce without acks", "closed"


def _groups(peer: Peer, topic: str, foreign: str, group: str) -> Notes:
    answer = peer.ask(1, apis.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [group, "other-group"]})
    yield "FindCoordinator of groups", [(one["error_code"], one["node_id"]) for one in answer["coordinators"]]
    old = peer.ask(1, apis.FIND_COORDINATOR, 3, {"key_type": 0, "key": group})
    yield "FindCoordinator v3", (old["error_code"], old["node_id"])

    def ask(api: apis.Api, version: int, body: dict[str, Any]) -> dict[str, Any]:
        """While Kafka removes a group (without members and offsets), it asks for a retry."""
        return _settled(peer, lambda: peer.ask(1, api, version, body), _error_codes)

    member = {"group_id": group, "member_id": "", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
    body: dict[str, Any] = {**member, "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
    answer = ask(apis.JOIN_GROUP, 5, body)
    yield "JoinGroup", (answer["error_code"], answer["generation_id"], bool(answer["member_id"]))
    known = {"group_id": group, "member_id": "nobody", "generation_id": 1}
    yield "SyncGroup", ask(apis.SYNC_GROUP, 4, {**known, "assignments": []})["error_code"]
    yield "Heartbeat", ask(apis.HEARTBEAT, 3, known)["error_code"]
    yield "LeaveGroup", ask(apis.LEAVE_GROUP, 2, {"group_id": group, "member_id": "nobody"})["error_code"]
    topics = [
        {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}
        for name in (topic, foreign, topic + "-absent")
    ]
    body = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
    answer = ask(apis.OFFSET_COMMIT, 7, body)
    committed = sorted((one["name"], one["partitions"][0]["error_code"]) for one in answer["topics"])
    yield "OffsetCommit", committed
    for asked in ([{"name": name, "partition_indexes": [0]} for name in (topic, foreign)], None):
        body = {"groups": [{"group_id": group, "topics": asked}], "require_stable": False}
        answer = ask(apis.OFFSET_FETCH, 8, body)["groups"][0]
        offsets = [
            (one["name"], row["error_code"], row["committed_offset"])
            for one in answer["topics"]
            for row in one["partitions"]
        ]
        yield f"OffsetFetch, all is {asked is None}", (answer["error_code"], sorted(offsets))
    body = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}], "require_stable": False}
    answer = ask(apis.OFFSET_FETCH, 7, body)
    yield "OffsetFetch v7", (answer["error_code"], len(answer["topics"]))
    answer = ask(apis.DESCRIBE_GROUPS, 4, {"groups": [group, "other-group"]})
    yield "DescribeGroups", sorted((one["group_id"], one["error_code"]) for one in answer["groups"])
    answer = ask(apis.LIST_GROUPS, 4, {"states_filter": []})
    is_listed = group in [one["group_id"] for one in answer["groups"]]
    # Kafka removes a group without offsets and members at an arbitrary moment.
    lasts = any(error_code == 0 for _, error_code in committed)
    yield "ListGroups", (answer["error_code"], is_listed if lasts else None)


def _error_codes(answer: Any) -> set[int]:
    if isinstance(answer, dict):
        inner = set().union(*map(_error_codes, answer.values()))
        return inner | {answer["error_code"]} if "error_code" in answer else inner
    return set().union(*map(_error_codes, answer)) if isinstance(answer, (list, tuple)) else set()


def _transactions(
    peer: Peer, topic: str, foreign: str, group: str, transactional_id: str, producer_id: int, epoch: int
) -> Notes:
    answer = peer.ask(1, apis.FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": [transactional_id, foreign]})
    yield "FindCoordinator of ids", [(one["error_code"], one["node_id"]) for one in answer["coordinators"]]
    body: dict[str, Any] = {"transactional_ids": [transactional_id, foreign]}
    answer = peer.ask(1, apis.DESCRIBE_TRANSACTIONS, 0, body)
    yield (
        "DescribeTransactions",
        [
            (one["error_code"], one["transaction_state"], [row["topic"] for row in one.get("topics", ())])
            for one in answer["transaction_states"]
        ],
    )
    answer = peer.ask(1, apis.LIST_TRANSACTIONS, 0, {"state_filters": [], "producer_id_filters": []})
    listed = [one["transactional_id"] for one in answer["transaction_states"]]
    yield "ListTransactions", (answer["error_code"], transactional_id in listed)
    yield "InitProducerId without id", peer.init(None)[0]
    yield "InitProducerId foreign", peer.init(foreign)[0]
    yield "InitProducerId foreign, half known", peer.init(foreign, producer_id=5)[0]
    mine = (transactional_id, producer_id, epoch)
    yield "AddPartitionsToTxn", peer.add(*mine, 1, topic=topic)
    yield "AddPartitionsToTxn foreign topic", peer.add(*mine, 0, topic=foreign)
    yield "AddPartitionsToTxn absent topic", peer.add(*mine, 0, topic=topic + "-absent")
    yield "AddPartitionsToTxn internal topic", peer.add(*mine, 0, topic="__consumer_offsets")
    yield "AddPartitionsToTxn foreign id", peer.add(foreign, producer_id, epoch, 0, topic=topic)
    body = {
        "v3_and_below_transactional_id": transactional_id,
        "v3_and_below_producer_id": producer_id,
        "v3_and_below_producer_epoch": epoch,
        "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in (topic, foreign)],
    }
    results = peer.ask(1, apis.ADD_PARTITIONS_TO_TXN, 3, body)["results_by_topic_v3_and_below"]
    yield (
        "AddPartitionsToTxn of two",
        sorted((one["name"], one["results_by_partition"][0]["partition_error_code"]) for one in results),
    )
    identity = {"transactional_id": transactional_id, "producer_id": producer_id, "producer_epoch": epoch}
    for name in (group, "other-group"):
        body = {**identity, "group_id": name}
        yield f"AddOffsetsToTxn {name}", peer.ask(1, apis.ADD_OFFSETS_TO_TXN, 3, body)["error_code"]
    topics = [
        {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}]}
        for name in (topic, foreign, topic + "-absent")
    ]
    for name in (group, "other-group"):
        commit = partial(_commit_offsets, peer, {**identity, "group_id": name, "topics": topics})
        yield f"TxnOffsetCommit {name}", _settled(peer, commit, _named_codes)
    records = batch(b"v", producer_id=producer_id, epoch=epoch, sequence=0, transactional=True, timestamp_ms=peer.now())
    for name in (topic, foreign):
        produce = partial(peer.produce, records, topic=name, transactional_id=transactional_id)
        yield (
            f"Produce in a transaction {name}",
            _settled(
                peer,
                lambda: [(name, produce()[0])],  # noqa: B023
                _named_codes,
            ),
        )
    yield "Produce in a foreign transaction", peer.produce(records, topic=topic, transactional_id=foreign)[0]
    yield "EndTxn foreign", peer.end(foreign, producer_id, epoch, True, version=3)[0]
    yield "EndTxn", peer.end(*mine, False, version=3)[0]
    # The markers of an allowed end may still be in progress.
    for _ in range(500):
        code = peer.init(transactional_id)[0]
        if code != 51:
            break
        peer.advance(5)
    yield "InitProducerId", code


def _commit_offsets(peer: Peer, body: dict[str, Any]) -> list[tuple[str, int]]:
    answer = peer.ask(1, apis.TXN_OFFSET_COMMIT, 3, body)
    return sorted((one["name"], one["partitions"][0]["error_code"]) for one in answer["topics"])


def _settled(peer: Peer, ask: Callable[[], T], codes_of: Callable[[T], set[int]]) -> T:
    """A busy broker may not verify the transaction in time; it then answers with a code that asks for a retry."""
    for _ in range(50):
        answer = ask()
        if not codes_of(answer) & {14, 15, 19}:
            break
        peer.advance(50)
    return answer


def _named_codes(answer: list[tuple[str, int]]) -> set[int]:
    return {code for _, code in answer}


def _administration(peer: Peer, admin: Peer, topic: str, foreign: str) -> Notes:
    for name in (topic + "-new", foreign + "-new"):
        for checks in (True, False):
            row = {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
            body: dict[str, Any] = {"topics": [row], "timeout_ms": 10_000, "validate_only": checks}
            answer = peer.ask(1, apis.CREATE_TOPICS, 7, body)["topics"][0]
            names = ("error_code", "topic_config_error_code", "num_partitions", "replication_factor")
            yield f"CreateTopics {name}, only checked {checks}", tuple(answer[one] for one in names)
    for name in (topic, foreign, topic + "-absent"):
        body = {"topics": [{"name": name, "count": 3, "assignments": None}], "timeout_ms": 5000}
        yield f"CreatePartitions {name}", peer.ask(1, apis.CREATE_PARTITIONS, 3, body)["results"][0]["error_code"]
        body = {"resources": [{"resource_type": 2, "resource_name": name, "configuration_keys": ["cleanup.policy"]}]}
        answer = peer.ask(1, apis.DESCRIBE_CONFIGS, 4, body)["results"][0]
        yield f"DescribeConfigs {name}", (answer["error_code"], len(answer["configs"]))
    body = {"resources": [{"resource_type": 4, "resource_name": "1", "configuration_keys": ["message.max.bytes"]}]}
    answer = peer.ask(1, apis.DESCRIBE_CONFIGS, 4, body)["results"][0]
    yield "DescribeConfigs of the broker", (answer["error_code"], len(answer["configs"]))

    def delete(name: str | None, topic_id: bytes = bytes(16)) -> tuple[int, str | None]:
        body = {"topics": [{"name": name, "topic_id": topic_id}], "timeout_ms": 5000}
        answer = peer.ask(1, apis.DELETE_TOPICS, 6, body)["responses"][0]
        return answer["error_code"], answer["name"]

    yield "DeleteTopics absent", delete(topic + "-absent")
    yield "DeleteTopics foreign", delete(foreign)
    yield "DeleteTopics unknown id", delete(None, b"\x07" * 16)
    yield "DeleteTopics by id", delete(None, admin.metadata(topic)["topic_id"])
    yield "DeleteTopics", delete(topic + "-other")
