"""InitProducerId (22) 0-5, AddPartitionsToTxn (24) 0-3, AddOffsetsToTxn (25) 0-4, EndTxn (26) 0-5, TxnOffsetCommit
(28) 0-5, DescribeTransactions (65) 0, ListTransactions (66) 0-2.

The coordinator decides (`transactions.py` of the core); here it is found, and its answer put into the version's words:
old versions hear INVALID_PRODUCER_EPOCH for PRODUCER_FENCED. InitProducerId without a transactional id is served by
any broker. EndTxn v5 and TxnOffsetCommit v5 follow the rules of transactions of version 2, the versions before them
those of version 1, whatever the cluster's feature says. Not modelled: InitProducerId v6 (two-phase commit) is not
offered, as in a Kafka that has unstable versions switched off.

Permission, asked before the coordinator is: Write on the transactional id for all that change a transaction; besides,
Write on the topics added, Read on the group, and on the topics, of offsets. InitProducerId without an id needs
IdempotentWrite on the cluster or Write on any topic. The last two need Describe on the id, or show nothing of it, nor
of topics that may not be described.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kafka_sink.testing import acl
from kafka_sink.testing.call import Call
from kafka_sink.testing.errors import Code, Refused
from kafka_sink.testing.groups import CommittedOffset
from kafka_sink.testing.topics import INTERNAL_TOPICS, OFFSETS_TOPIC, TRANSACTION_TOPIC
from kafka_sink.testing.transaction_state import CoordinatorState

VERSION_KNOWS_FENCED = {"InitProducerId": 4, "AddPartitionsToTxn": 2, "AddOffsetsToTxn": 2, "EndTxn": 2}
VERSION_TXN_OFFSET_COMMIT_ADDS = 5
VERSION_END_TXN_BUMPS = 5


def _check_coordinator(call: Call, transactional_id: str, operation: str = acl.WRITE) -> None:
    call.check_fault()
    call.check_allowed(operation, acl.TRANSACTIONAL_ID, transactional_id)
    call.core.cluster.check_coordinator(TRANSACTION_TOPIC, transactional_id, call.broker_id)


def _in_words_of(call: Call, code: Code) -> int:
    if code is Code.PRODUCER_FENCED and call.version < VERSION_KNOWS_FENCED[call.api.name]:
        return int(Code.INVALID_PRODUCER_EPOCH)
    return int(code)


def on_init_producer_id(call: Call) -> None:
    body = call.body
    producer_id, epoch = body["producer_id"], body["producer_epoch"]

    def done(code: Code, producer_id: int, epoch: int) -> None:
        call.answer({"error_code": _in_words_of(call, code), "producer_id": producer_id, "producer_epoch": epoch})

    try:
        _check_may_init(call)
        if (producer_id == -1) != (epoch == -1):
            raise Refused(Code.INVALID_REQUEST)
        if body["transactional_id"]:
            _check_coordinator(call, body["transactional_id"])
        else:
            call.check_fault()
    except Refused as refusal:
        done(refusal.code, -1, -1)
        return
    expected = None if producer_id == -1 else (producer_id, epoch)
    call.core.coordinator.init_producer_id(body["transactional_id"], body["transaction_timeout_ms"], expected, done)


def _check_may_init(call: Call) -> None:
    transactional_id = call.body["transactional_id"]
    if transactional_id is not None:
        call.check_allowed(acl.WRITE, acl.TRANSACTIONAL_ID, transactional_id)
    elif not call.is_allowed_somewhere(acl.WRITE, acl.TOPIC):
        call.check_allowed(acl.IDEMPOTENT_WRITE, acl.CLUSTER)


def on_add_partitions(call: Call) -> None:
    """All or nothing: one unknown partition, and none is added (OPERATION_NOT_ATTEMPTED for the others)."""
    body = call.body
    partitions = tuple((topic["name"], one) for topic in body["v3_and_below_topics"] for one in topic["partitions"])

    def answer(codes: dict[tuple[str, int], Code]) -> None:
        results = [
            {
                "name": topic["name"],
                "results_by_partition": [
                    {
                        "partition_index": one,
                        "partition_error_code": call.reported(
                            topic["name"], one, _in_words_of(call, codes[topic["name"], one])
                        ),
                    }
                    for one in topic["partitions"]
                ],
            }
            for topic in body["v3_and_below_topics"]
        ]
        call.answer({"results_by_topic_v3_and_below": results})

    transactional_id = body["v3_and_below_transactional_id"]
    if not call.is_allowed(acl.WRITE, acl.TRANSACTIONAL_ID, transactional_id):
        answer(dict.fromkeys(partitions, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
        return
    codes: dict[tuple[str, int], Code] = {}
    for topic, index in partitions:
        try:
            call.check_fault(topic, index)
            call.check_allowed(acl.WRITE, acl.TOPIC, topic)
            if topic in INTERNAL_TOPICS:  # offsets are added with AddOffsetsToTxn
                raise Refused(Code.TOPIC_AUTHORIZATION_FAILED)
            if call.core.cluster.partition(topic, index) is None:
                raise Refused(Code.UNKNOWN_TOPIC_OR_PARTITION)
        except Refused as refusal:
            codes[topic, index] = refusal.code
    if codes:
        answer({one: codes.get(one, Code.OPERATION_NOT_ATTEMPTED) for one in partitions})
        return
    try:
        call.core.cluster.check_coordinator(TRANSACTION_TOPIC, transactional_id, call.broker_id)
    except Refused as refusal:
        answer(dict.fromkeys(partitions, refusal.code))
        return
    call.core.coordinator.add_partitions(
        transactional_id,
        body["v3_and_below_producer_id"],
        body["v3_and_below_producer_epoch"],
        partitions,
        0,
        lambda code: answer(dict.fromkeys(partitions, code)),
    )


def on_add_offsets(call: Call) -> None:
    """Adds the partition of __consumer_offsets that holds the group."""
    body = call.body
    call.check_allowed(acl.WRITE, acl.TRANSACTIONAL_ID, body["transactional_id"])
    call.check_allowed(acl.READ, acl.GROUP, body["group_id"])
    _check_coordinator(call, body["transactional_id"])
    if not body["group_id"]:
        raise Refused(Code.INVALID_GROUP_ID)
    partition = call.core.cluster.offsets_partition(body["group_id"])
    call.core.coordinator.add_partitions(
        body["transactional_id"],
        body["producer_id"],
        body["producer_epoch"],
        (partition,),
        0,
        lambda code: call.answer({"error_code": _in_words_of(call, code)}),
    )


def on_end_txn(call: Call) -> None:
    body = call.body

    def done(code: Code, producer_id: int, epoch: int) -> None:
        answer = {"error_code": _in_words_of(call, code)}
        if call.version >= VERSION_END_TXN_BUMPS:
            answer.update(producer_id=producer_id, producer_epoch=epoch)
        call.answer(answer)

    _check_coordinator(call, body["transactional_id"])
    version = 2 if call.version >= VERSION_END_TXN_BUMPS else 0
    call.core.coordinator.end(
        body["transactional_id"], body["producer_id"], body["producer_epoch"], body["committed"], version, done
    )


def on_txn_offset_commit(call: Call) -> None:
    """Served by the group's coordinator; from v5 on it adds its partition to the transaction by itself."""
    body = call.body
    offsets = {
        (topic["name"], one["partition_index"]): CommittedOffset(
            one["committed_offset"], one["committed_leader_epoch"], one["committed_metadata"] or ""
        )
        for topic in body["topics"]
        for one in topic["partitions"]
    }
    refused: dict[tuple[str, int], Code] = {}

    def answer(code: Code) -> None:
        if code is Code.NONE:
            code = _commit_offsets(call, {one: offset for one, offset in offsets.items() if one not in refused})
        elif code is Code.PRODUCER_FENCED:
            code = Code.INVALID_PRODUCER_EPOCH
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {
                        "partition_index": one["partition_index"],
                        "error_code": call.reported(topic["name"], index, refused.get((topic["name"], index), code)),
                    }
                    for one in topic["partitions"]
                    for index in (one["partition_index"],)
                ],
            }
            for topic in body["topics"]
        ]
        call.answer({"topics": topics})

    try:
        for topic, index in offsets:
            call.check_fault(topic, index)
        call.check_allowed(acl.WRITE, acl.TRANSACTIONAL_ID, body["transactional_id"])
        call.check_allowed(acl.READ, acl.GROUP, body["group_id"])
        refused.update(_refused_offsets(call, offsets))
        if refused.keys() == offsets.keys():
            answer(Code.UNKNOWN_TOPIC_OR_PARTITION)
            return
        if not body["group_id"]:
            raise Refused(Code.INVALID_GROUP_ID)
        call.core.cluster.check_coordinator(OFFSETS_TOPIC, body["group_id"], call.broker_id)
    except Refused as refusal:
        answer(refusal.code)
        return
    trouble = call.core.cluster.coordinator_trouble(TRANSACTION_TOPIC, body["transactional_id"])
    if trouble is not Code.NONE:
        answer(trouble)
        return
    partition = call.core.cluster.offsets_partition(body["group_id"])
    producer = (body["transactional_id"], body["producer_id"], body["producer_epoch"])
    if call.version >= VERSION_TXN_OFFSET_COMMIT_ADDS:
        call.core.coordinator.add_partitions(*producer, (partition,), 2, answer)
    else:
        code = call.core.coordinator.verify(*producer, (partition,))[partition]
        answer(Code.INVALID_TXN_STATE if code is Code.TRANSACTION_ABORTABLE else code)


def _refused_offsets(call: Call, offsets: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Code]:
    """These are answered by themselves; the transaction and the group are not asked about them."""
    refused = {}
    for topic, index in offsets:
        if not call.is_allowed(acl.READ, acl.TOPIC, topic):
            refused[topic, index] = Code.TOPIC_AUTHORIZATION_FAILED
        elif call.core.cluster.partition(topic, index) is None:
            refused[topic, index] = Code.UNKNOWN_TOPIC_OR_PARTITION
    return refused


def _commit_offsets(call: Call, offsets: dict[tuple[str, int], CommittedOffset]) -> Code:
    """The group is asked after the transaction."""
    body = call.body
    try:
        call.core.groups.check_committer(
            body["group_id"], body["member_id"], body["generation_id"], is_transactional=True
        )
    except Refused as refusal:
        return refusal.code
    call.core.groups.commit_in_transaction(body["group_id"], body["producer_id"], offsets)
    return Code.NONE


def on_describe_transactions(call: Call) -> None:
    states = []
    for transactional_id in call.body["transactional_ids"]:
        state = {"transactional_id": transactional_id, "error_code": 0, "transaction_state": "", "producer_id": -1}
        states.append(state)
        try:
            _check_coordinator(call, transactional_id, acl.DESCRIBE)
            transaction = call.core.coordinator.transactions.get(transactional_id)
            if transaction is None:
                raise Refused(Code.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else Code.INVALID_REQUEST)
        except Refused as refusal:
            state["error_code"] = int(refusal.code)
            continue
        record = transaction.record
        topics: dict[str, list[int]] = {}
        for topic, index in record.partitions:
            if call.is_allowed(acl.DESCRIBE, acl.TOPIC, topic):
                topics.setdefault(topic, []).append(index)
        state.update(
            transaction_state=record.state.value,
            transaction_timeout_ms=record.timeout_ms,
            transaction_start_time_ms=record.start_ms,
            producer_id=record.producer_id,
            producer_epoch=record.producer_epoch,
            topics=[{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()],
        )
    call.answer({"transaction_states": states})


def on_list_transactions(call: Call) -> None:
    """Of the ids that this broker coordinates."""
    call.check_fault()
    body = call.body
    known_states = {state.value for state in CoordinatorState}
    pattern = re.compile(body["transactional_id_pattern"] or ".*")
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
    call.answer({"error_code": 0, "unknown_state_filters": unknown, "transaction_states": found})
