"""InitProducerId (22) 0-5, AddPartitionsToTxn (24) 0-3, AddOffsetsToTxn (25) 0-4, EndTxn (26) 0-5, TxnOffsetCommit
(28) 0-5, DescribeTransactions (65) 0, ListTransactions (66) 0-2.

The coordinator decides (`transactions.py` of the core); this finds it, and maps its result to the version: old versions
get INVALID_PRODUCER_EPOCH for PRODUCER_FENCED. InitProducerId without a transactional id is served by any broker.
EndTxn v5 and TxnOffsetCommit v5 follow the rules of transactions of version 2, the versions before them those of
version 1, whatever the cluster's feature says. Not modelled: InitProducerId v6 (two-phase commit) is not offered, as in
a Kafka that has unstable versions switched off.

Permission, checked before the coordinator is asked: Write on the transactional id for all that change a transaction;
also Write on the topics added, Read on group and topics of offsets. InitProducerId without an id needs IdempotentWrite
on the cluster or Write on any topic. The last two need Describe on the id, or do not show it; topics without Describe
are not shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from kafka_sink.testing import acl
from kafka_sink.testing.api.groups import claim_of, is_metadata_too_large, parse_committed_offset
from kafka_sink.testing.api.parts import Answer, answer_or_error, by_partition, visible_by_topic
from kafka_sink.testing.call import Call
from kafka_sink.testing.errors import Code, Refused
from kafka_sink.testing.groups import CommittedOffset
from kafka_sink.testing.topics import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafka_sink.testing.transaction_state import NO_EPOCH, NO_PRODUCER_ID, CoordinatorState, TopicPartition
from kafka_sink.testing.transactions import ProducerClaim

VERSION_KNOWS_FENCED = {"InitProducerId": 4, "AddPartitionsToTxn": 2, "AddOffsetsToTxn": 2, "EndTxn": 2}
VERSION_TXN_OFFSET_COMMIT_ADDS = 5
VERSION_END_TXN_BUMPS = 5


def _check_coordinator(call: Call, transactional_id: str) -> None:
    call.check_fault()
    call.check_allowed(acl.WRITE, acl.TRANSACTIONAL_ID, transactional_id)
    call.core.cluster.check_coordinator(TRANSACTION_TOPIC, transactional_id, call.broker_id)


def _claim(call: Call, prefix: str = "") -> ProducerClaim:
    names = (f"{prefix}transactional_id", f"{prefix}producer_id", f"{prefix}producer_epoch")
    return ProducerClaim(*(call.body[name] for name in names))


def _code_for_version(call: Call, code: Code) -> Code:
    is_too_new = code is Code.PRODUCER_FENCED and call.version < VERSION_KNOWS_FENCED[call.api.name]
    return Code.INVALID_PRODUCER_EPOCH if is_too_new else code


def _answer_with_producer(call: Call, code: Code, producer_id: int = NO_PRODUCER_ID, epoch: int = NO_EPOCH) -> None:
    if code is not Code.NONE:
        producer_id, epoch = NO_PRODUCER_ID, NO_EPOCH
    call.answer({"error_code": _code_for_version(call, code), "producer_id": producer_id, "producer_epoch": epoch})


def on_init_producer_id(call: Call) -> None:
    body = call.body
    producer_id, epoch = body["producer_id"], body["producer_epoch"]
    try:
        _check_may_init(call)
        if (producer_id == -1) != (epoch == -1):
            raise Refused(Code.INVALID_REQUEST)
        if body["transactional_id"]:
            _check_coordinator(call, body["transactional_id"])
        else:
            call.check_fault()
        call.core.coordinator.init_producer_id(
            body["transactional_id"],
            body["transaction_timeout_ms"],
            None if producer_id == -1 else (producer_id, epoch),
            partial(_answer_with_producer, call),
        )
    except Refused as refusal:
        _answer_with_producer(call, refusal.code)


def _check_may_init(call: Call) -> None:
    transactional_id = call.body["transactional_id"]
    if transactional_id is not None:
        call.check_allowed(acl.WRITE, acl.TRANSACTIONAL_ID, transactional_id)
    elif not call.is_allowed_somewhere(acl.WRITE, acl.TOPIC):
        call.check_allowed(acl.IDEMPOTENT_WRITE, acl.CLUSTER)


def on_add_partitions(call: Call) -> None:
    """All or nothing: with one unknown partition none is added (OPERATION_NOT_ATTEMPTED for the others)."""
    topics, claim = call.body["v3_and_below_topics"], _claim(call, "v3_and_below_")
    partitions = tuple((topic["name"], one) for topic in topics for one in topic["partitions"])
    refused: dict[TopicPartition, Code] = {}

    def answer(code: Code) -> None:
        def code_of(topic: str, index: int) -> int:
            return call.code_to_report(topic, index, _code_for_version(call, refused.get((topic, index), code)))

        results = [
            {
                "name": topic["name"],
                "results_by_partition": [
                    {"partition_index": one, "partition_error_code": code_of(topic["name"], one)}
                    for one in topic["partitions"]
                ],
            }
            for topic in topics
        ]
        call.answer({"results_by_topic_v3_and_below": results})

    try:
        call.check_allowed(acl.WRITE, acl.TRANSACTIONAL_ID, claim.transactional_id)
        for topic, index in partitions:
            try:
                _check_may_add(call, topic, index)
            except Refused as refusal:
                refused[topic, index] = refusal.code
        if refused:
            raise Refused(Code.OPERATION_NOT_ATTEMPTED)
        call.core.cluster.check_coordinator(TRANSACTION_TOPIC, claim.transactional_id, call.broker_id)
    except Refused as refusal:
        answer(refusal.code)
        return
    call.core.coordinator.add_partitions(claim, partitions, 0, answer)


def _check_may_add(call: Call, topic: str, index: int) -> None:
    call.check_fault(topic, index)
    call.check_allowed(acl.WRITE, acl.TOPIC, topic)
    if topic in INTERNAL_TOPICS:  # offsets are added with AddOffsetsToTxn
        raise Refused(Code.TOPIC_AUTHORIZATION_FAILED)
    call.core.cluster.known_partition(topic, index)


def on_add_offsets(call: Call) -> None:
    """Adds the partition of __consumer_offsets that holds the group."""
    group_id, claim = call.body["group_id"], _claim(call)
    call.check_allowed(acl.WRITE, acl.TRANSACTIONAL_ID, claim.transactional_id)
    call.check_allowed(acl.READ, acl.GROUP, group_id)
    _check_coordinator(call, claim.transactional_id)
    if not group_id:
        raise Refused(Code.INVALID_GROUP_ID)
    partition = call.core.cluster.coordinator_partition(OFFSETS_TOPIC, group_id).key
    call.core.coordinator.add_partitions(
        claim, (partition,), 0, lambda code: call.answer({"error_code": _code_for_version(call, code)})
    )


def on_end_txn(call: Call) -> None:
    claim = _claim(call)
    _check_coordinator(call, claim.transactional_id)
    version = 2 if call.version >= VERSION_END_TXN_BUMPS else 0
    try:
        call.core.coordinator.end(claim, call.body["committed"], version, partial(_answer_with_producer, call))
    except Refused as refusal:
        _answer_with_producer(call, refusal.code)


def on_txn_offset_commit(call: Call) -> None:
    """Served by the group's coordinator; from v5 on it adds its partition to the transaction itself."""
    body, cluster = call.body, call.core.cluster
    group_id, claim = body["group_id"], _claim(call)
    offsets = {
        (topic["name"], one["partition_index"]): parse_committed_offset(one)
        for topic in body["topics"]
        for one in topic["partitions"]
    }
    refused: dict[TopicPartition, Code] = {}

    def answer(code: Code) -> None:
        if code is Code.NONE:
            code = _commit_offsets(call, offsets, refused)
        elif code is Code.PRODUCER_FENCED:
            code = Code.INVALID_PRODUCER_EPOCH

        def describe(topic: str, asked: Mapping[str, Any]) -> Answer:
            index = asked["partition_index"]
            return {"error_code": call.code_to_report(topic, index, refused.get((topic, index), code))}

        call.answer({"topics": by_partition(body["topics"], describe)})

    try:
        for topic, index in offsets:
            call.check_fault(topic, index)
        call.check_allowed(acl.WRITE, acl.TRANSACTIONAL_ID, claim.transactional_id)
        call.check_allowed(acl.READ, acl.GROUP, group_id)
        refused.update(_check_offsets(call, offsets))
        if refused.keys() == offsets.keys():
            raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION)
        if not group_id:
            raise Refused(Code.INVALID_GROUP_ID)
        cluster.check_coordinator(OFFSETS_TOPIC, group_id, call.broker_id)
    except Refused as refusal:
        answer(refusal.code)
        return
    partition = cluster.coordinator_partition(OFFSETS_TOPIC, group_id).key

    def on_asked(codes: Mapping[TopicPartition, Code]) -> None:
        is_abortable = codes[partition] is Code.TRANSACTION_ABORTABLE
        answer(Code.INVALID_TXN_STATE if is_abortable else codes[partition])

    adds = call.version >= VERSION_TXN_OFFSET_COMMIT_ADDS
    call.core.coordinator.admit(claim, (partition,), adds=adds, done=on_asked)


def _check_offsets(call: Call, offsets: Iterable[TopicPartition]) -> dict[TopicPartition, Code]:
    """Refused partitions are answered here; the transaction and the group are not asked about them."""
    refused = {}
    for topic, index in offsets:
        if not call.is_allowed(acl.READ, acl.TOPIC, topic):
            refused[topic, index] = Code.TOPIC_AUTHORIZATION_FAILED
        elif call.core.cluster.partition(topic, index) is None:
            refused[topic, index] = Code.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _commit_offsets(
    call: Call, offsets: Mapping[TopicPartition, CommittedOffset], refused: dict[TopicPartition, Code]
) -> Code:
    """Commits those that are not refused. The group and the offsets are checked after the transaction."""
    groups = call.core.groups
    try:
        groups.check_committer(claim_of(call), is_transactional=True)
    except Refused as refusal:
        return refusal.code
    for one, offset in offsets.items():
        if one not in refused and is_metadata_too_large(call, offset):
            refused[one] = Code.OFFSET_METADATA_TOO_LARGE
    accepted = {one: offset for one, offset in offsets.items() if one not in refused}
    groups.commit_in_transaction(call.body["group_id"], call.body["producer_id"], accepted)
    return Code.NONE


# ---- listing ----


def on_describe_transactions(call: Call) -> Answer:
    states = [
        {"transactional_id": one, "producer_id": -1, **answer_or_error(_describe, call, one)}
        for one in call.body["transactional_ids"]
    ]
    return {"transaction_states": states}


def _describe(call: Call, transactional_id: str) -> Answer:
    call.check_fault()
    call.check_allowed(acl.DESCRIBE, acl.TRANSACTIONAL_ID, transactional_id)
    record = call.core.coordinator.record_told_by(call.broker_id, transactional_id)
    if record is None:
        raise Refused(Code.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else Code.INVALID_REQUEST)
    topics = visible_by_topic(call, record.partitions)
    return {
        "transaction_state": record.state.value,
        "transaction_timeout_ms": record.timeout_ms,
        "transaction_start_time_ms": record.start_ms,
        "producer_id": record.producer_id,
        "producer_epoch": record.producer_epoch,
        "topics": [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()],
    }


def on_list_transactions(call: Call) -> Answer:
    """Lists ids that this broker coordinates."""
    call.check_fault()
    body = call.body
    known_states = {state.value for state in CoordinatorState}
    try:
        pattern = re.compile(body["transactional_id_pattern"] or "(?s:.*)")  # no pattern: every id
    except re.error:
        raise Refused(Code.INVALID_REGULAR_EXPRESSION) from None
    found = []
    for transactional_id, transaction in call.core.coordinator.transactions.items():
        record = transaction.record
        partition = call.core.cluster.coordinator_partition(TRANSACTION_TOPIC, transactional_id)
        wanted = (
            partition.leader_id == call.broker_id
            and (not body["state_filters"] or record.state.value in body["state_filters"])
            and (not body["producer_id_filters"] or record.producer_id in body["producer_id_filters"])
            and (body["duration_filter"] < 0 or call.now_ms - record.start_ms > body["duration_filter"])
            and pattern.fullmatch(transactional_id)
            and call.is_allowed(acl.DESCRIBE, acl.TRANSACTIONAL_ID, transactional_id)
        )
        if wanted:
            found.append(
                {
                    "transactional_id": transactional_id,
                    "producer_id": record.producer_id,
                    "transaction_state": record.state.value,
                }
            )
    unknown = [one for one in body["state_filters"] if one not in known_states]
    return {"error_code": 0, "unknown_state_filters": unknown, "transaction_states": found}
