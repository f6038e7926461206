"""JoinGroup (11) 0-9, SyncGroup (14) 0-5, Heartbeat (12) 0-4, LeaveGroup (13) 0-5, OffsetCommit (8) 2-9, OffsetFetch
(9) 1-9, ListGroups (16) 0-5, DescribeGroups (15) 0-6: the classic protocol, as far as ordinary consumers use it.

From JoinGroup v4 on a new member gets its id with MEMBER_ID_REQUIRED and joins again. Not modelled: the protocol of
KIP-848 (clients then fall back or must set group.protocol=classic), expiry of committed offsets, static members that
skip a rebalance (they cause one).

Permission on the group, checked before its coordinator: Read for the members' APIs and OffsetCommit (and Read on each
topic), Describe for OffsetFetch (and Describe on each topic; others are omitted if all were requested), DescribeGroups
and ListGroups (which returns the permitted groups; with Describe on the cluster all).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from kafka_sink.testing import acl
from kafka_sink.testing.api.parts import Answer, answer_or_error, by_partition, visible_by_topic
from kafka_sink.testing.call import Call
from kafka_sink.testing.errors import Code, Refused
from kafka_sink.testing.groups import EMPTY, CommittedOffset, Group, Member, MemberClaim
from kafka_sink.testing.topics import OFFSETS_TOPIC

VERSION_REQUIRES_ID = 4
VERSION_MANY_GROUPS = 8
VERSION_UNKNOWN_IS_AN_ERROR = 6


def _check_coordinator(call: Call, group_id: str, operation: str = acl.READ) -> None:
    call.check_fault()
    call.check_allowed(operation, acl.GROUP, group_id)
    call.core.cluster.check_coordinator(OFFSETS_TOPIC, group_id, call.broker_id)


def claim_of(call: Call, generation: str = "generation_id") -> MemberClaim:
    return MemberClaim(*(call.body[name] for name in ("group_id", "member_id", "group_instance_id", generation)))


def on_join_group(call: Call) -> None:
    body = call.body
    rebalance_timeout_ms = body["rebalance_timeout_ms"]
    member = Member(
        body["member_id"],
        body["group_instance_id"],
        call.client_id,
        body["session_timeout_ms"],
        rebalance_timeout_ms if rebalance_timeout_ms >= 0 else body["session_timeout_ms"],
        {protocol["name"]: protocol["metadata"] for protocol in body["protocols"]},
    )

    def reply(code: Code) -> None:
        no_name = None if call.version >= 7 else ""
        answer: Answer = {"error_code": code, "member_id": member.member_id, "protocol_name": no_name, "members": []}
        if code is Code.NONE:
            group = call.core.groups.groups[body["group_id"]]
            name = group.protocol_name or ""
            answer.update(
                generation_id=group.generation_id,
                protocol_type=group.protocol_type,
                protocol_name=name,
                leader=group.leader_id,
            )
            if group.leader_id == member.member_id:
                answer["members"] = [
                    {
                        "member_id": one.member_id,
                        "group_instance_id": one.instance_id,
                        "metadata": one.protocols[name],
                    }
                    for one in group.members.values()
                ]
        call.answer(answer)

    needs_known_id = call.version >= VERSION_REQUIRES_ID
    try:
        _check_coordinator(call, body["group_id"])
        call.core.groups.join(body["group_id"], member, body["protocol_type"], reply, needs_known_id=needs_known_id)
    except Refused as refusal:
        reply(refusal.code)


def on_sync_group(call: Call) -> None:
    body = call.body

    def reply(code: Code) -> None:
        answer: Answer = {"error_code": code, "assignment": b""}
        if code is Code.NONE:
            group = call.core.groups.groups[body["group_id"]]
            answer["assignment"] = group.members[body["member_id"]].assignment
            answer.update(protocol_type=group.protocol_type, protocol_name=group.protocol_name)
        call.answer(answer)

    _check_coordinator(call, body["group_id"])
    assignments = {one["member_id"]: one["assignment"] for one in body["assignments"]}
    call.core.groups.sync(claim_of(call), assignments, reply)


def on_heartbeat(call: Call) -> Answer:
    _check_coordinator(call, call.body["group_id"])
    return {"error_code": call.core.groups.heartbeat(claim_of(call))}


def on_leave_group(call: Call) -> Answer:
    body = call.body
    _check_coordinator(call, body["group_id"])
    if call.version < 3:
        return _leave(call, body["member_id"], None)
    members = [
        {
            "member_id": one["member_id"],
            "group_instance_id": one["group_instance_id"],
            **answer_or_error(_leave, call, one["member_id"], one["group_instance_id"]),
        }
        for one in body["members"]
    ]
    return {"error_code": 0, "members": members}


def _leave(call: Call, member_id: str, instance_id: str | None) -> Answer:
    call.core.groups.leave(call.body["group_id"], member_id, instance_id)
    return {"error_code": Code.NONE}


# ---- offsets ----


def on_offset_commit(call: Call) -> Answer:
    body, groups = call.body, call.core.groups
    group_id = body["group_id"]
    refused: Refused | None = None
    try:
        _check_coordinator(call, group_id)
        groups.check_committer(claim_of(call, "generation_id_or_member_epoch"), is_transactional=False)
    except Refused as refusal:
        refused = refusal

    def commit(topic: str, asked: Mapping[str, Any]) -> Answer:
        if refused is None or refused.code is not Code.GROUP_AUTHORIZATION_FAILED:
            call.check_allowed(acl.READ, acl.TOPIC, topic)
        if refused is not None:
            raise refused
        partition = call.core.cluster.known_partition(topic, asked["partition_index"]).key
        offset = parse_committed_offset(asked)
        if is_metadata_too_large(call, offset):
            raise Refused(Code.OFFSET_METADATA_TOO_LARGE)
        groups.commit(group_id, {partition: offset})
        return {}

    return {"topics": by_partition(body["topics"], commit)}


def parse_committed_offset(asked: Mapping[str, Any]) -> CommittedOffset:
    metadata = asked["committed_metadata"] or ""
    return CommittedOffset(asked["committed_offset"], asked["committed_leader_epoch"], metadata)


def is_metadata_too_large(call: Call, offset: CommittedOffset) -> bool:
    return len(offset.metadata) > call.core.settings.number("offset.metadata.max.bytes")


def on_offset_fetch(call: Call) -> Answer:
    body = call.body
    if call.version >= VERSION_MANY_GROUPS:
        groups = [
            {"group_id": one["group_id"], **answer_or_error(_offsets, call, one["group_id"], one["topics"])}
            for one in body["groups"]
        ]
        return {"groups": groups}
    return {"error_code": 0, **answer_or_error(_offsets, call, body["group_id"], body["topics"])}


def _offsets(call: Call, group_id: str, asked: list[dict[str, Any]] | None) -> Answer:
    _check_coordinator(call, group_id, acl.DESCRIBE)
    group = call.core.groups.groups.get(group_id, Group(group_id))
    if asked is None:
        visible = visible_by_topic(call, group.offsets)
        asked = [{"name": name, "partition_indexes": indexes} for name, indexes in visible.items()]
    offset = partial(_offset, call, group)
    return {"topics": by_partition(asked, offset, asked="partition_indexes", committed_offset=-1)}


def _offset(call: Call, group: Group, topic: str, index: int) -> Answer:
    call.check_allowed(acl.DESCRIBE, acl.TOPIC, topic)
    if call.body["require_stable"] and group.has_pending_offset((topic, index)):
        raise Refused(Code.UNSTABLE_OFFSET_COMMIT)
    committed = group.offsets.get((topic, index))
    if committed is None:
        return {}
    return {
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
    }


# ---- listing ----


def on_list_groups(call: Call) -> Answer:
    call.check_fault()
    wanted = call.body["states_filter"]
    sees_all = call.is_allowed(acl.DESCRIBE, acl.CLUSTER)
    groups = [
        {
            "group_id": group.group_id,
            "protocol_type": group.protocol_type or "",
            "group_state": group.state,
            "group_type": "classic",
        }
        for group in call.core.groups.groups.values()
        if (not wanted or group.state in wanted)
        and (sees_all or call.is_allowed(acl.DESCRIBE, acl.GROUP, group.group_id))
        and call.core.cluster.coordinator_partition(OFFSETS_TOPIC, group.group_id).leader_id == call.broker_id
    ]
    return {"error_code": 0, "groups": groups}


def on_describe_groups(call: Call) -> Answer:
    groups = [
        {"group_id": group_id, "group_state": "Dead", **answer_or_error(_describe, call, group_id)}
        for group_id in call.body["groups"]
    ]
    return {"groups": groups}


def _describe(call: Call, group_id: str) -> Answer:
    _check_coordinator(call, group_id, acl.DESCRIBE)
    group = call.core.groups.groups.get(group_id)
    if group is None:
        if call.version >= VERSION_UNKNOWN_IS_AN_ERROR:
            raise Refused(Code.GROUP_ID_NOT_FOUND)
        return {}
    name = group.protocol_name or ""
    members = [
        {
            "member_id": one.member_id,
            "group_instance_id": one.instance_id,
            "client_id": one.client_id,
            "client_host": "/127.0.0.1",
            "member_metadata": one.protocols.get(name, b""),
            "member_assignment": one.assignment,
        }
        for one in group.members.values()
    ]
    return {
        "group_state": group.state,
        "protocol_type": group.protocol_type or "",
        "protocol_data": name,
        "members": members if group.state != EMPTY else [],
    }
