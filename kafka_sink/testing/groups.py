"""Consumer groups of the classic protocol, and committed offsets, transactional ones included.

States of a group: Empty -> PreparingRebalance (members join) -> CompletingRebalance (the leader computes) -> Stable. A
rebalance ends when all known members have joined again or the longest rebalance time-out is over; members that did not
rejoin are removed. Assignments are opaque: the group leader makes them, as in Kafka.

A static member that comes back without its id replaces its old incarnation, whose requests, also those that wait, are
refused with FENCED_INSTANCE_ID from then on.

Offsets of a transaction are pending per producer id until its marker is in the partition of __consumer_offsets; a
reader that requires stable offsets gets UNSTABLE_OFFSET_COMMIT meanwhile. Of two commits the later one holds, whether
or not it was in a transaction, and whenever that ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_sink.testing.errors import Code, Refused
from kafka_sink.testing.schedule import Schedule
from kafka_sink.testing.settings import Settings

TopicPartition = tuple[str, int]
Done = Callable[[Code], None]
EMPTY, PREPARING, COMPLETING, STABLE = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"


class CommittedOffset(NamedTuple):
    """`number` tells which of two commits is the later one; Kafka compares the offsets of their records."""

    offset: int
    leader_epoch: int
    metadata: str
    number: int = 0


Offsets = Mapping[TopicPartition, CommittedOffset]


class MemberClaim(NamedTuple):
    """Who a request says it is from."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation_id: int


@dataclass(slots=True)
class Member:
    """`on_joined` and `on_synced` are called when its JoinGroup or SyncGroup, which waits, has a result."""

    member_id: str
    instance_id: str | None
    client_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: dict[str, bytes]
    assignment: bytes = b""
    seen_ms: int = 0
    on_joined: Done | None = None
    on_synced: Done | None = None

    def refuse(self, code: Code) -> None:
        """Answers the requests that wait."""
        waiting = (self.on_joined, self.on_synced)
        self.on_joined = self.on_synced = None
        for done in waiting:
            if done is not None:
                done(code)


@dataclass(slots=True)
class Group:
    group_id: str
    state: str = EMPTY
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    members: dict[str, Member] = field(default_factory=dict)
    promised_ids: set[str] = field(default_factory=set)
    rebalance: int = 0
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    pending: dict[int, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)

    def id_of_instance(self, instance_id: str | None) -> str | None:
        if instance_id is None:
            return None
        return next((one.member_id for one in self.members.values() if one.instance_id == instance_id), None)

    def known_member(self, member_id: str, instance_id: str | None) -> Member:
        """Raises Refused."""
        known_id = member_id if instance_id is None else self.id_of_instance(instance_id)
        if known_id is not None and known_id != member_id:
            raise Refused(Code.FENCED_INSTANCE_ID)
        if known_id is None or known_id not in self.members:
            raise Refused(Code.UNKNOWN_MEMBER_ID)
        return self.members[known_id]

    def fits(self, protocol_type: str, newcomer: Member, member_id: str) -> bool:
        others = [one for one in self.members.values() if one.member_id != member_id]
        common = set(newcomer.protocols).intersection(*(one.protocols for one in others))
        is_same_type = self.protocol_type == protocol_type if others else protocol_type != ""
        return is_same_type and bool(common)

    def has_pending_offset(self, partition: TopicPartition) -> bool:
        return any(partition in offsets for offsets in self.pending.values())


class Groups:
    """All groups of the cluster; the cluster knows which broker coordinates one."""

    def __init__(self, schedule: Schedule, settings: Settings) -> None:
        self._schedule = schedule
        self._settings = settings
        self._member_count = 0
        self.commit_count = 0
        self.groups: dict[str, Group] = {}

    # ---- membership ----

    def join(self, group_id: str, newcomer: Member, protocol_type: str, done: Done, *, needs_known_id: bool) -> None:
        """`newcomer` is the member as the request describes it; an unknown one gets its id here. Raises Refused."""
        if not group_id:
            raise Refused(Code.INVALID_GROUP_ID)
        shortest_ms = self._settings.number("group.min.session.timeout.ms")
        longest_ms = self._settings.number("group.max.session.timeout.ms")
        if not shortest_ms <= newcomer.session_timeout_ms <= longest_ms:
            raise Refused(Code.INVALID_SESSION_TIMEOUT)
        group = self.groups.setdefault(group_id, Group(group_id))
        member_id, old_id = newcomer.member_id, group.id_of_instance(newcomer.instance_id)
        if not group.fits(protocol_type, newcomer, old_id or member_id):
            raise Refused(Code.INCONSISTENT_GROUP_PROTOCOL)
        if not member_id and old_id is not None:
            group.members.pop(old_id).refuse(Code.FENCED_INSTANCE_ID)
        if not member_id:
            self._member_count += 1
            member_id = newcomer.member_id = f"{newcomer.instance_id or newcomer.client_id}-{self._member_count:08d}"
            if needs_known_id and newcomer.instance_id is None:
                group.promised_ids.add(member_id)
                done(Code.MEMBER_ID_REQUIRED)
                return
        elif member_id not in group.promised_ids:
            group.known_member(member_id, newcomer.instance_id)
        group.promised_ids.discard(member_id)
        group.protocol_type = protocol_type
        newcomer.on_joined = done
        newcomer.seen_ms = self._schedule.now_ms
        group.members[member_id] = newcomer
        self._watch_session(group, member_id)
        self._prepare_rebalance(group)

    def _prepare_rebalance(self, group: Group) -> None:
        if group.state != PREPARING:
            was_empty = group.state == EMPTY
            for member in group.members.values():
                if member.on_synced is not None:
                    member.on_synced(Code.REBALANCE_IN_PROGRESS)
                    member.on_synced = None
            group.state = PREPARING
            group.rebalance += 1
            wait_ms = max(member.rebalance_timeout_ms for member in group.members.values())
            if was_empty:
                wait_ms = self._settings.number("group.initial.rebalance.delay.ms")
            number = group.rebalance
            if wait_ms > 0:
                self._schedule.after(wait_ms, lambda: self._complete_join(group, number))
            if was_empty and wait_ms > 0:
                return
        if all(member.on_joined is not None for member in group.members.values()):
            self._complete_join(group, group.rebalance)

    def _complete_join(self, group: Group, number: int) -> None:
        if group.state != PREPARING or group.rebalance != number:
            return
        group.members = {key: one for key, one in group.members.items() if one.on_joined is not None}
        group.generation_id += 1
        if not group.members:
            group.state, group.leader_id, group.protocol_name = EMPTY, "", None
            return
        group.state = COMPLETING
        if group.leader_id not in group.members:
            group.leader_id = next(iter(group.members))
        first = next(iter(group.members.values()))
        group.protocol_name = next(
            name for name in first.protocols if all(name in one.protocols for one in group.members.values())
        )
        for member in list(group.members.values()):
            member.seen_ms = self._schedule.now_ms
            done, member.on_joined = member.on_joined, None
            assert done is not None
            done(Code.NONE)

    def sync(self, claim: MemberClaim, assignments: Mapping[str, bytes], done: Done) -> None:
        group, member = self._member(claim)
        if group.state == PREPARING:
            done(Code.REBALANCE_IN_PROGRESS)
        elif group.state == STABLE:
            done(Code.NONE)
        else:
            member.on_synced = done
            if member.member_id == group.leader_id:
                group.state = STABLE
                for one in group.members.values():
                    one.assignment = assignments.get(one.member_id, b"")
                    if one.on_synced is not None:
                        one.on_synced(Code.NONE)
                        one.on_synced = None

    def heartbeat(self, claim: MemberClaim) -> Code:
        group, _ = self._member(claim)
        return Code.REBALANCE_IN_PROGRESS if group.state == PREPARING else Code.NONE

    def leave(self, group_id: str, member_id: str, instance_id: str | None) -> None:
        """An administrator removes a static member by its instance alone. Raises Refused."""
        group = self.groups.get(group_id)
        if group is None:
            raise Refused(Code.UNKNOWN_MEMBER_ID)
        if member_id in group.promised_ids:
            group.promised_ids.discard(member_id)
            return
        if not member_id:
            member_id = group.id_of_instance(instance_id) or ""
        self._remove(group, group.known_member(member_id, instance_id).member_id)

    def _remove(self, group: Group, member_id: str) -> None:
        group.members.pop(member_id).refuse(Code.UNKNOWN_MEMBER_ID)
        if group.members:
            self._prepare_rebalance(group)
        else:
            group.state, group.leader_id, group.protocol_name = EMPTY, "", None
            group.generation_id += 1

    def _watch_session(self, group: Group, member_id: str) -> None:
        """A member silent for its session time-out is removed; one that waits for a response is not silent."""

        def check() -> None:
            member = group.members.get(member_id)
            if member is None:
                return
            if member.on_joined is not None or member.on_synced is not None:
                member.seen_ms = self._schedule.now_ms
            left_ms = member.seen_ms + member.session_timeout_ms - self._schedule.now_ms
            if left_ms > 0:
                self._schedule.after(left_ms, check)
            else:
                self._remove(group, member_id)

        self._schedule.after(group.members[member_id].session_timeout_ms, check)

    def _member(self, claim: MemberClaim) -> tuple[Group, Member]:
        group = self.groups.get(claim.group_id)
        if group is None:
            raise Refused(Code.UNKNOWN_MEMBER_ID)
        member = group.known_member(claim.member_id, claim.instance_id)
        if group.generation_id != claim.generation_id:
            raise Refused(Code.ILLEGAL_GENERATION)
        member.seen_ms = self._schedule.now_ms
        return group, member

    # ---- offsets ----

    def check_committer(self, claim: MemberClaim, *, is_transactional: bool) -> None:
        """A committer without a generation is accepted while the group has no members, and in a transaction."""
        group = self.groups.get(claim.group_id)
        if claim.generation_id < 0 and (group is None or group.state == EMPTY):
            return
        if group is None:
            raise Refused(Code.ILLEGAL_GENERATION)
        if claim.generation_id < 0 and not claim.member_id and claim.instance_id is None:
            if not is_transactional:
                raise Refused(Code.UNKNOWN_MEMBER_ID)
            return
        self._member(claim)
        if group.state == COMPLETING and not is_transactional:
            raise Refused(Code.REBALANCE_IN_PROGRESS)

    def commit(self, group_id: str, offsets: Offsets) -> None:
        self.groups.setdefault(group_id, Group(group_id)).offsets.update(self._number(offsets))

    def commit_in_transaction(self, group_id: str, producer_id: int, offsets: Offsets) -> None:
        group = self.groups.setdefault(group_id, Group(group_id))
        group.pending.setdefault(producer_id, {}).update(self._number(offsets))

    def _number(self, offsets: Offsets) -> Offsets:
        self.commit_count += 1
        return {partition: offset._replace(number=self.commit_count) for partition, offset in offsets.items()}

    def end_transaction(self, producer_id: int, group_ids: Sequence[str], *, is_commit: bool) -> None:
        for group_id in group_ids:
            committed = self.groups[group_id].offsets
            pending = self.groups[group_id].pending.pop(producer_id, {})
            for partition, offset in pending.items() if is_commit else ():
                if partition not in committed or committed[partition].number <= offset.number:
                    committed[partition] = offset

    def forget_topic(self, name: str) -> None:
        """It is deleted: if it is created again, its offsets begin at 0 again."""
        for group in self.groups.values():
            for offsets in (group.offsets, *group.pending.values()):
                for partition in [one for one in offsets if one[0] == name]:
                    del offsets[partition]
