"""Produce (0), versions 3-13: validation, transactions, append, and waiting for the replicas.

Order, per partition: the topic must exist (v13: its id), the records must be exactly one batch of format 2; then the
transaction is verified with its coordinator (up to v11) or the partition is added to it (from v12); then acks, leader,
in-sync replicas, and the log's own checks. acks=1 is answered after the append, acks=all when the high watermark is
past the batch: too few replicas by then is NOT_ENOUGH_REPLICAS_AFTER_APPEND, too late is REQUEST_TIMED_OUT, and in both
cases the batch is in the log. acks=0 has no response; an error closes the connection.

Errors of the coordinator are mapped for the client: 13, 14, 15, 16 as NOT_ENOUGH_REPLICAS, as 51 before v12;
PRODUCER_FENCED as INVALID_PRODUCER_EPOCH; TRANSACTION_ABORTABLE before v11 as INVALID_TXN_STATE. From v12 on 51 is
retried here every 20 ms for 100 ms before the client gets it.

Permission: Write on the transactional id if there are transactional batches (else the whole request is refused), and
Write on each topic, checked before its lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from kafka_sink.testing import acl
from kafka_sink.testing.api.parts import Answer, current_leader, leader_endpoints
from kafka_sink.testing.batches import (
    Batch,
    check_batch,
    has_transactional_batch,
    parse_batch,
    sole_batch,
)
from kafka_sink.testing.call import Call
from kafka_sink.testing.errors import Code, Refused
from kafka_sink.testing.log import Appended
from kafka_sink.testing.producer_state import Guard
from kafka_sink.testing.topics import Partition
from kafka_sink.testing.transactions import ProducerClaim

ADMIN_CLIENT_ID = "__admin_client"
VERSION_ADDS_PARTITIONS = 12
VERSION_ABORTABLE = 11
# This release asks the coordinator even about a batch whose epoch is old for the partition.
RELEASE_ASKS_FIRST = "3.9"
MASKED = (
    Code.NETWORK_EXCEPTION,
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.NOT_COORDINATOR,
)


@dataclass(slots=True)
class Part:
    """One partition of the request, from its bytes to its response."""

    topic: str
    topic_id: bytes
    index: int
    data: bytes
    guard: Guard | None = None
    code: Code = Code.NONE
    text: str = ""
    record_errors: tuple[tuple[int, str], ...] = ()
    appended: Appended | None = None
    log_start_offset: int = -1
    partition: Partition | None = None
    # The batch is on all replicas, or never will be under this leader: as in Kafka the first result counts.
    is_settled: bool = False

    def fail(self, refusal: Refused) -> None:
        self.code, self.text, self.record_errors = refusal.code, refusal.text, refusal.record_errors

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.index


def on_produce(call: Call) -> None:
    parts = [
        Part(topic["name"], topic["topic_id"], entry["index"], entry["records"] or b"")
        for topic in call.body["topic_data"]
        for entry in topic["partition_data"]
    ]
    ProduceRound(call, parts, call.now_ms).start()


@dataclass(slots=True, eq=False)
class ProduceRound:
    call: Call
    parts: list[Part]
    started_ms: int

    def start(self) -> None:
        transactional_id = self.call.body["transactional_id"]
        if any(has_transactional_batch(one.data) for one in self.parts) and (
            transactional_id is None or not self.call.is_allowed(acl.WRITE, acl.TRANSACTIONAL_ID, transactional_id)
        ):
            self._refuse_all(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return
        for part in self.parts:
            self._try(part, self._admit)
        self._ask_coordinator()

    def _refuse_all(self, code: Code) -> None:
        for part in self.parts:
            part.code = code
        self._answer()

    @staticmethod
    def _try(part: Part, step: Callable[[Part], None]) -> None:
        try:
            step(part)
        except Refused as refusal:
            part.fail(refusal)

    def _admit(self, part: Part) -> None:
        self.call.check_fault(part.topic, part.index)
        if not part.topic and self.call.version > VERSION_ADDS_PARTITIONS:
            raise Refused(Code.UNKNOWN_TOPIC_ID)
        self.call.check_allowed(acl.WRITE, acl.TOPIC, part.topic)
        self.call.core.cluster.known_partition(part.topic, part.index)
        part.data = sole_batch(part.data, self.call.version, self.call.core.settings.quirk.codecs)

    # ---- the transaction ----

    def _ask_coordinator(self) -> None:
        """Only for partitions where the producer's transaction is not open yet."""
        call, core = self.call, self.call.core
        parts = [one for one in self.parts if one.code is Code.NONE and has_transactional_batch(one.data)]
        batches = [parse_batch(one.data) for one in parts]
        producers = {(one.producer_id, one.producer_epoch) for one in batches}
        if len(producers) > 1:
            self._refuse_all(Code.INVALID_PRODUCER_ID_MAPPING)
            return
        adds = call.version >= VERSION_ADDS_PARTITIONS
        asked = []
        if adds or core.settings.flag("transaction.partition.verification.enable"):
            asked = [one for one, batch in zip(parts, batches, strict=True) if self._guard(one, batch, adds)]
        if not asked:
            self._append_all()
            return
        claim = ProducerClaim(call.body["transactional_id"], *next(iter(producers)))
        keys = tuple(part.key for part in asked)
        core.coordinator.admit(claim, keys, adds=adds, done=partial(self._on_asked, asked, adds))

    def _guard(self, part: Part, batch: Batch, adds: bool) -> bool:
        """Keeps the producer's state for the append, or fails the part. True: the coordinator is to be asked."""
        try:
            partition = self.call.core.cluster.find_led_partition(part.topic, part.index, self.call.broker_id)
            producers = partition.log.producers
            if producers.has_open_transaction(batch.producer_id, batch.producer_epoch):
                return False
            if self.call.core.settings.release != RELEASE_ASKS_FIRST:
                producers.refuse_stale(batch)
        except Refused as refusal:
            part.fail(refusal)
            return False
        part.guard = producers.new_guard(batch, starts_at_zero=adds)
        return True

    def _on_asked(self, asked: list[Part], adds: bool, codes: Mapping[tuple[str, int], Code]) -> None:
        number = self.call.core.settings.number
        patience_ms = min(number("add.partitions.to.txn.retry.backoff.max.ms"), number("request.timeout.ms"))
        may_wait = adds and self.call.now_ms - self.started_ms < patience_ms
        if may_wait and Code.CONCURRENT_TRANSACTIONS in codes.values():
            backoff_ms = max(number("add.partitions.to.txn.retry.backoff.ms"), 1)
            self.call.core.schedule.after(backoff_ms, self._ask_coordinator)
            return
        for part in asked:
            part.code = self._code_for_version(codes[part.key])
        self._append_all()

    def _code_for_version(self, code: Code) -> Code:
        if code in MASKED:
            return Code.NOT_ENOUGH_REPLICAS
        if code is Code.CONCURRENT_TRANSACTIONS and self.call.version < VERSION_ADDS_PARTITIONS:
            return Code.NOT_ENOUGH_REPLICAS
        if code is Code.PRODUCER_FENCED:
            return Code.INVALID_PRODUCER_EPOCH
        if code is Code.TRANSACTION_ABORTABLE and self.call.version < VERSION_ABORTABLE:
            return Code.INVALID_TXN_STATE
        return code

    # ---- the log ----

    def _append_all(self) -> None:
        for part in self.parts:
            if part.code is Code.NONE:
                self._try(part, self._append)
        if self.call.body["acks"] != -1:
            self._answer()
            return
        keys = [part.key for part in self.parts if part.appended is not None]
        self.call.core.cluster.wait(keys, self._answer_if_replicated, self.call.body["timeout_ms"], self._give_up)

    def _append(self, part: Part) -> None:
        cluster = self.call.core.cluster
        acks = self.call.body["acks"]
        if acks not in (-1, 0, 1):
            raise Refused(Code.INVALID_REQUIRED_ACKS)
        topic = cluster.known_topic(part.topic)
        if topic.is_internal and self.call.client_id != ADMIN_CLIENT_ID:
            raise Refused(Code.INVALID_TOPIC_EXCEPTION)
        part.partition = cluster.find_led_partition(part.topic, part.index, self.call.broker_id)
        if acks == -1 and not cluster.has_enough_replicas(part.partition):
            raise Refused(Code.NOT_ENOUGH_REPLICAS)
        log = part.partition.log
        part.log_start_offset = log.start_offset
        batch = check_batch(part.data, topic.config.number("max.message.bytes"))
        part.appended = log.append(
            batch, topic.config, leader_epoch=part.partition.leader_epoch, now_ms=self.call.now_ms, guard=part.guard
        )
        if not part.appended.is_duplicate:
            cluster.replicate(part.partition)

    def _answer_if_replicated(self) -> bool:
        """Called after every change, until there is nothing left to wait for."""
        cluster = self.call.core.cluster
        is_over = True
        for part in self.parts:
            if part.is_settled or part.code is not Code.NONE or part.appended is None or part.partition is None:
                continue
            part.is_settled = True
            if cluster.partition(part.topic, part.index) is not part.partition:
                part.code = Code.UNKNOWN_TOPIC_OR_PARTITION
            elif part.partition.leader_id != self.call.broker_id:
                part.code = Code.NOT_LEADER_OR_FOLLOWER
            elif part.partition.log.high_watermark < part.appended.end_offset:
                part.is_settled = is_over = False
            elif not cluster.has_enough_replicas(part.partition):
                part.code = Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        if is_over:
            self._answer()
        return is_over

    def _give_up(self) -> None:
        for part in self.parts:
            if part.code is Code.NONE and not part.is_settled:
                part.code = Code.REQUEST_TIMED_OUT
        self._answer()

    # ---- the response ----

    def _answer(self) -> None:
        for part in self.parts:
            part.code = Code(self.call.code_to_report(part.topic, part.index, part.code))
        if self.call.body["acks"] == 0:
            if any(part.code is not Code.NONE for part in self.parts):
                self.call.hang_up()
            else:
                self.call.finish()
            return
        topics: dict[tuple[str, bytes], list[Answer]] = {}
        entries = [self._partition_answer(part) for part in self.parts]
        for part, entry in zip(self.parts, entries, strict=True):
            topics.setdefault((part.topic, part.topic_id), []).append(entry)
        responses = [
            {"name": name, "topic_id": topic_id, "partition_responses": theirs}
            for (name, topic_id), theirs in topics.items()
        ]
        self.call.answer({"responses": responses, "node_endpoints": leader_endpoints(self.call, entries)})

    def _partition_answer(self, part: Part) -> Answer:
        entry: Answer = {"index": part.index, "error_code": part.code, "base_offset": -1}
        if part.code is not Code.NONE:
            errors = [{"batch_index": index, "batch_index_error_message": text} for index, text in part.record_errors]
            entry.update(error_message=part.text or part.code.name, record_errors=errors)
        elif part.appended is not None:
            entry.update(
                base_offset=part.appended.base_offset,
                log_append_time_ms=part.appended.append_time_ms,
                log_start_offset=part.log_start_offset,
            )
        if part.code is Code.UNKNOWN_PRODUCER_ID:
            # Only as an injected fault: brokers since 2.8 never answer it.
            partition = self.call.core.cluster.partition(part.topic, part.index)
            entry["log_start_offset"] = -1 if partition is None else partition.log.start_offset
        if part.code is Code.NOT_LEADER_OR_FOLLOWER and self.call.version >= 10:
            entry.update(current_leader(self.call, part.topic, part.index))
        return entry
