"""Requests of a producer to coordinators, and the effect of the responses on the transaction.

One request at a time, derived from the state of the `Transaction` each time something may have changed:

  coordinator unknown          -> FindCoordinator
  initializing or renewing     -> InitProducerId
  partitions to register (v1)  -> AddPartitionsToTxn
  offsets to send              -> AddOffsetsToTxn (v1), FindCoordinator of the group, TxnOffsetCommit
  ending, nothing in flight  -> EndTxn

An answer is read in three steps: find its error code, ask `outcome` for the verdict, act on the verdict. Transport
failures are verdicts too: the coordinator may have moved, and the request may have been carried out.

An InitProducerId without a response may also arrive much later; it then bumps the epoch under this producer and aborts
its open or prepared transaction. Initializing therefore returns whether the producer is alone: True if there is no such
request. A producer of prepared transactions that is not alone must use another transactional id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kafka_sink.errors import (
    AuthorizationError,
    BrokerError,
    KafkaSinkError,
    ProducerFenced,
    RemoteProtocolError,
    TransportError,
)
from kafka_sink.errors.table.brokers import TRANSACTION_TOO_LONG
from kafka_sink.frozen import frozen
from kafka_sink.kafka.client.backoff import Backoff
from kafka_sink.kafka.client.metadata import Metadata
from kafka_sink.kafka.client.outcome import CoordinatorVerdict, coordinator_verdict, describe
from kafka_sink.kafka.client.request import Answer, Request
from kafka_sink.kafka.wire.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
    Api,
)
from kafka_sink.options import ProducerOptions
from kafka_sink.producer.engine.commands import SendOffsets
from kafka_sink.producer.engine.producer_batch import ProducerIdentity, TopicPartition
from kafka_sink.producer.engine.transaction import WRITING, Transaction, TransactionEvent, TransactionState

GROUP_KEY, TRANSACTION_KEY = 0, 1
# The oldest are forgotten.
COORDINATORS_MAX = 1_000
TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED, INVALID_TXN_STATE = 29, 30, 48
INVALID_TRANSACTION_TIMEOUT, OPERATION_NOT_ATTEMPTED = 50, 55
# While the broker writes the markers of the previous transaction (code 51): usually milliseconds. Each further wait is
# longer by this much, for clusters where it takes minutes.
MARKERS_BACKOFF_MS = 20
MARKERS_BACKOFF_MAX_MS = 1_000

# Verdicts on a request that was not carried out.
REFUSALS = (
    CoordinatorVerdict.ABORT,
    CoordinatorVerdict.FENCED,
    CoordinatorVerdict.UNAUTHORIZED,
    CoordinatorVerdict.FATAL,
)
# The last versions of requests for transaction version 1, and the first for version 2.
END_TXN_LAST_V1, TXN_OFFSET_COMMIT_LAST_V1, TXN_OFFSET_COMMIT_V2, ADD_PARTITIONS_LAST_CLIENT = 4, 4, 5, 3
# Up to this version FindCoordinator has one key, which is all that a producer needs.
FIND_COORDINATOR_LAST_SINGLE = 3
# From this version on it has the current identity, so that a fenced producer cannot fence its successor (KIP-360).
INIT_PRODUCER_ID_FIRST_RENEWING = 3


@frozen
class CoordinatorRequest:
    """The purpose of a request: its type and subject."""

    api: Api
    key_type: int = TRANSACTION_KEY
    partitions: tuple[TopicPartition, ...] = ()
    group_id: str = ""


class CoordinatorClient(NamedTuple):
    node_id: int
    # Of the metadata after that: a coordinator that has just joined is not in an earlier one.
    first_refresh: int


class TransactionRequests:
    def __init__(
        self,
        transaction: Transaction,
        options: ProducerOptions,
        backoff: Backoff,
        coordinators: dict[tuple[int, str], CoordinatorClient],
        metadata: Metadata,
    ) -> None:
        """`coordinators`: by type and name of the key. They outlive this producer and save the next one of the same id
        a lookup; if one has moved, the broker answers NOT_COORDINATOR."""
        self._transaction = transaction
        self._transaction_timeout_ms = options.transaction_timeout_ms
        self._request_timeout_ms = options.request_timeout_ms
        self._backoff = backoff
        self._coordinators = coordinators
        self._metadata = metadata
        self.is_waiting = False
        # Whether an earlier try of the registration in flight may have begun the transaction.
        self._start_was_unknown = False
        # Whether an earlier try of the EndTxn in flight may have committed.
        self._commit_was_unknown = False
        self._is_alone = True
        self._failures = 0
        self.retry_at_ms = 0
        # Why the current request has not succeeded yet, for the text of a timeout error.
        self.trouble = ""

    def is_free(self, now_ms: int) -> bool:
        """No request is in flight, and none waits for its back-off."""
        return not self.is_waiting and now_ms >= self.retry_at_ms

    def next_step(self, *, is_quiet: bool) -> CoordinatorRequest | TransactionEvent | None:
        """What the transaction needs: a request; or PREPARED or ENDED, which no coordinator has to be asked for.

        `is_quiet`: no batch is in flight or queued for a retry, so the transaction may be ended.
        """
        transaction = self._transaction
        if transaction.state in (TransactionState.INITIALIZING, TransactionState.RENEWING):
            return CoordinatorRequest(INIT_PRODUCER_ID)
        if transaction.state in WRITING and transaction.unregistered:
            return CoordinatorRequest(ADD_PARTITIONS_TO_TXN, partitions=tuple(transaction.unregistered))
        if transaction.state in WRITING and transaction.offsets is not None:
            group_id = transaction.offsets.group.group_id
            if transaction.transaction_version == 1 and group_id not in transaction.registered_groups:
                return CoordinatorRequest(ADD_OFFSETS_TO_TXN, group_id=group_id)
            return CoordinatorRequest(TXN_OFFSET_COMMIT, GROUP_KEY, group_id=group_id)
        if not is_quiet:
            return None
        if transaction.state is TransactionState.PREPARING:
            return TransactionEvent.PREPARED
        if transaction.state in (TransactionState.COMMITTING, TransactionState.ABORTING):
            # The registration may have arrived or not. Requesting a new epoch at once would be quicker, but if it did
            # arrive, the coordinator aborts the transaction by fencing its owner, this producer. So EndTxn is sent
            # first ("no transaction" counts as ended), and the new epoch then rejects a late arrival.
            may_have_begun = transaction.is_started or transaction.has_unknown_start
            return CoordinatorRequest(END_TXN) if may_have_begun else TransactionEvent.ENDED
        return None

    def make_request(self, asked: CoordinatorRequest) -> Request:
        """The request itself, or the one that finds its coordinator."""
        if self._key(asked) not in self._coordinators:
            asked = CoordinatorRequest(FIND_COORDINATOR, asked.key_type, group_id=asked.group_id)
        version_min, version_max = self._versions(asked.api)
        return Request(asked.api, self._body(asked), asked, self._request_timeout_ms, version_min, version_max)

    def coordinator_for(self, request: Request) -> CoordinatorClient | None:
        """The broker to send it to; None: any broker."""
        asked: CoordinatorRequest = request.purpose
        return None if asked.api is FIND_COORDINATOR else self._coordinators[self._key(asked)]

    def on_sent(self, request: Request) -> None:
        self.is_waiting = True
        api = request.purpose.api
        self._start_was_unknown = self._transaction.has_unknown_start
        self._commit_was_unknown = self._transaction.commit_may_be_done
        if api is END_TXN and self._transaction.state is TransactionState.COMMITTING:
            # Another holder of the receipt may have tried before.
            self._commit_was_unknown |= self._transaction.is_resumed
            self._transaction.commit_may_be_done = True
        if api is END_TXN and not self._transaction.is_started:
            self._transaction.epoch_is_stale = True  # see `next_step`: a registration may still arrive
        if api in (ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN):
            self._transaction.has_unknown_start = True
        elif api is TXN_OFFSET_COMMIT:
            # Transaction version 2: the group's coordinator registers the group as soon as this arrives.
            self._transaction.is_started = True

    def on_answer(self, now_ms: int, answer: Answer) -> None:
        self.is_waiting = False
        asked: CoordinatorRequest = answer.request.purpose
        if self._transaction.state is TransactionState.FATAL:
            return  # the producer failed in the same step, or for the reason that closed this connection
        if answer.failure is not None:
            self._on_failure(now_ms, asked, answer)
            return
        assert answer.body is not None
        code = _error_code(asked, answer.body)
        verdict = coordinator_verdict(
            asked.api.key,
            code,
            committing=self._transaction.state is TransactionState.COMMITTING,
            may_not_have_begun=not self._transaction.is_started,
        )
        self._on_verdict(now_ms, asked, verdict, code, answer)

    def on_coordinator_gone(self, now_ms: int, node_id: int, failure: KafkaSinkError | None) -> None:
        """The node cannot be reached. The new coordinator is known only after the cluster has noticed it, too."""
        self._repeat_later(now_ms)
        if failure is not None:
            self.trouble = f"the broker to be asked cannot be used: {failure}"
        for key in [key for key, value in self._coordinators.items() if value.node_id == node_id]:
            del self._coordinators[key]

    # ---- what a request says ----

    def _key(self, asked: CoordinatorRequest) -> tuple[int, str]:
        return asked.key_type, asked.group_id if asked.key_type == GROUP_KEY else self._transaction.transactional_id

    def _versions(self, api: Api) -> tuple[int, int]:
        is_v1 = self._transaction.transaction_version == 1
        if api is FIND_COORDINATOR:
            return 1, FIND_COORDINATOR_LAST_SINGLE
        if api is INIT_PRODUCER_ID and self._transaction.state is TransactionState.RENEWING:
            return INIT_PRODUCER_ID_FIRST_RENEWING, api.version_max
        if api is ADD_PARTITIONS_TO_TXN:
            return 0, ADD_PARTITIONS_LAST_CLIENT
        if api is TXN_OFFSET_COMMIT:
            return (0, TXN_OFFSET_COMMIT_LAST_V1) if is_v1 else (TXN_OFFSET_COMMIT_V2, TXN_OFFSET_COMMIT_V2)
        if api is END_TXN:
            return (0, END_TXN_LAST_V1) if is_v1 else (END_TXN_LAST_V1 + 1, api.version_max)
        return 0, api.version_max

    def _body(self, asked: CoordinatorRequest) -> dict[str, Any]:
        transaction, api = self._transaction, asked.api
        transactional_id = transaction.transactional_id
        producer_id, producer_epoch = transaction.identity
        owner = {
            "transactional_id": transactional_id,
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
        }
        if api is FIND_COORDINATOR:
            key_type, key = self._key(asked)
            return {"key": key, "key_type": key_type}
        if api is INIT_PRODUCER_ID:
            known = owner if transaction.state is TransactionState.RENEWING else {"transactional_id": transactional_id}
            return {**known, "transaction_timeout_ms": self._transaction_timeout_ms}
        if api is ADD_PARTITIONS_TO_TXN:
            topics = [{"name": name, "partitions": numbers} for name, numbers in _by_topic(asked.partitions).items()]
            return {
                "v3_and_below_topics": topics,
                **{f"v3_and_below_{name}": value for name, value in owner.items()},
            }
        if api is ADD_OFFSETS_TO_TXN:
            return {**owner, "group_id": asked.group_id}
        if api is TXN_OFFSET_COMMIT:
            assert transaction.offsets is not None
            return {**owner, **_offsets(transaction.offsets)}
        return {**owner, "committed": transaction.state is TransactionState.COMMITTING}

    # ---- responses ----

    def _on_failure(self, now_ms: int, asked: CoordinatorRequest, answer: Answer) -> None:
        """No response. After a network failure the request may have been carried out, or may still arrive."""
        if not answer.was_sent:
            self._transaction.commit_may_be_done = self._commit_was_unknown
        if not isinstance(answer.failure, (TransportError, RemoteProtocolError)):
            # Not a network failure: the broker does not support the version, or the credentials are refused.
            assert answer.failure is not None
            self._transaction.on_fatal(answer.failure)
            return
        if asked.api is INIT_PRODUCER_ID:
            self._is_alone = False
        if asked.api is not FIND_COORDINATOR:
            self._transaction.epoch_is_stale = self._transaction.transaction_version == 1
        self._coordinators.pop(self._key(asked), None)
        self.trouble = str(answer.failure)
        self._repeat_later(now_ms)

    def _on_verdict(
        self, now_ms: int, asked: CoordinatorRequest, verdict: CoordinatorVerdict, code: int, answer: Answer
    ) -> None:
        transaction = self._transaction
        if verdict in REFUSALS:
            # This try did not commit; INVALID_TXN_STATE: no earlier one did either.
            is_denied = code == INVALID_TXN_STATE and transaction.state is TransactionState.COMMITTING
            transaction.commit_may_be_done = self._commit_was_unknown and not is_denied
        if code:
            self.trouble = f"{asked.api.name} is answered with {describe(code)}"
        if verdict is CoordinatorVerdict.DONE:
            self._failures = 0
            self.retry_at_ms = 0
            if asked.api is not FIND_COORDINATOR:  # any broker may answer FindCoordinator
                self.trouble = ""
            assert answer.body is not None
            self._on_done(now_ms, asked, answer.body)
        elif verdict is CoordinatorVerdict.REPEAT:
            self._repeat_later(now_ms)
        elif verdict is CoordinatorVerdict.REPEAT_SOON:
            self._failures += 1
            self.retry_at_ms = now_ms + min(MARKERS_BACKOFF_MS * self._failures, MARKERS_BACKOFF_MAX_MS)
        elif verdict is CoordinatorVerdict.FIND_COORDINATOR:
            self._coordinators.pop(self._key(asked), None)
            self._repeat_later(now_ms)
        elif verdict is CoordinatorVerdict.ABORT:
            transaction.has_unknown_start = self._start_was_unknown  # this try did not begin it
            if not transaction.on_error(self._error(asked, verdict, code)):
                self._repeat_later(now_ms)  # nothing to abort, or still in flight: the request may be retried
        else:
            transaction.on_fatal(self._error(asked, verdict, code))

    def _on_done(self, now_ms: int, asked: CoordinatorRequest, body: Mapping[str, Any]) -> None:
        transaction = self._transaction
        if asked.api is FIND_COORDINATOR:
            self._coordinators[self._key(asked)] = CoordinatorClient(body["node_id"], self._metadata.next_number)
            if len(self._coordinators) > COORDINATORS_MAX:
                del self._coordinators[next(iter(self._coordinators))]
        elif asked.api is INIT_PRODUCER_ID:
            identity = ProducerIdentity(body["producer_id"], body["producer_epoch"])
            transaction.on_initialized(identity, is_alone=self._is_alone)
        elif asked.api is ADD_PARTITIONS_TO_TXN:
            transaction.is_started = True
            transaction.has_unknown_start = False
            for topic_partition in asked.partitions:
                transaction.unregistered.pop(topic_partition, None)
                transaction.registered.add(topic_partition)
        elif asked.api is ADD_OFFSETS_TO_TXN:
            transaction.is_started = True
            transaction.has_unknown_start = False
            transaction.registered_groups.add(asked.group_id)
        elif asked.api is TXN_OFFSET_COMMIT:
            transaction.is_started = True
            transaction.finish_offsets()
        else:
            has_next = body.get("producer_id", -1) >= 0  # not by the rules of transaction version 1
            transaction.on_ended(ProducerIdentity(body["producer_id"], body["producer_epoch"]) if has_next else None)

    def _error(self, asked: CoordinatorRequest, verdict: CoordinatorVerdict, code: int) -> KafkaSinkError:
        transaction = self._transaction
        who = f"transactional id {transaction.transactional_id!r}"
        answer = f"{asked.api.name} was answered with {describe(code)}"
        if verdict is CoordinatorVerdict.FENCED:
            return ProducerFenced(
                f"{who}: another producer took it over, or the transaction was open for longer than "
                f"transaction.timeout.ms and was aborted by the broker ({answer}). Nothing more can be sent; make a "
                "new producer if no other one is running"
            )
        if verdict is CoordinatorVerdict.UNAUTHORIZED:
            return AuthorizationError(
                f"{who}: {answer}. The principal needs Write and Describe on this TransactionalId"
            )
        if code == GROUP_AUTHORIZATION_FAILED:
            return AuthorizationError(f"{who}: {answer}. The principal needs Read on group {asked.group_id!r}")
        if code == TOPIC_AUTHORIZATION_FAILED:
            operation = "Read" if asked.api is TXN_OFFSET_COMMIT else "Write"
            partitions = asked.partitions or (transaction.offsets.offsets if transaction.offsets is not None else ())
            names = ", ".join(f"topic {topic!r}" for topic in sorted(_by_topic(partitions)))
            return AuthorizationError(f"{who}: {answer}. The principal needs {operation} on {names}")
        entry = None
        if code == INVALID_TXN_STATE and transaction.state is TransactionState.COMMITTING:
            # Brokers with transaction.version 2 answer this for a transaction that they aborted, if nothing was sent
            # since.
            answer = (
                f"the broker has no open transaction to commit. Most likely it was open for longer than "
                f"transaction.timeout.ms={self._transaction_timeout_ms} and was aborted by the broker ({answer}). "
                "Nothing more can be sent; make a new producer"
            )
        if code == INVALID_TRANSACTION_TIMEOUT:
            answer = (
                f"transaction.timeout.ms={self._transaction_timeout_ms} is more than the brokers allow; lower it, or "
                "raise transaction.max.timeout.ms of the brokers (900000 by default). A query of Spark that does not "
                f"set it uses the brokers' limit after a restart ({answer})"
            )
            entry = TRANSACTION_TOO_LONG
        return BrokerError(f"{who}: {answer}", entry, code=code, api=asked.api.name)

    def _repeat_later(self, now_ms: int) -> None:
        self._failures += 1
        self.retry_at_ms = now_ms + self._backoff.delay_ms(self._failures)


def _offsets(call: SendOffsets) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), (offset, leader_epoch, metadata) in call.offsets.items():
        topics.setdefault(topic, []).append(
            {
                "partition_index": partition,
                "committed_offset": offset,
                "committed_leader_epoch": leader_epoch,
                "committed_metadata": metadata,
            }
        )
    return {
        "group_id": call.group.group_id,
        "generation_id": call.group.generation_id,
        "member_id": call.group.member_id,
        "group_instance_id": call.group.group_instance_id,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }


def _error_code(asked: CoordinatorRequest, body: Mapping[str, Any]) -> int:
    """The only error code, or the first error of several partitions.

    A code that means "this partition was not tried because of another one" must not hide that other one.
    """
    if asked.api is ADD_PARTITIONS_TO_TXN:
        codes = [
            partition["partition_error_code"]
            for topic in body["results_by_topic_v3_and_below"]
            for partition in topic["results_by_partition"]
        ]
    elif asked.api is TXN_OFFSET_COMMIT:
        codes = [partition["error_code"] for topic in body["topics"] for partition in topic["partitions"]]
    else:
        return int(body["error_code"])
    bad = sorted((code for code in codes if code != 0), key=lambda code: code == OPERATION_NOT_ATTEMPTED)
    return bad[0] if bad else 0


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics
