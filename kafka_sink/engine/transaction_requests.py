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

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kafka_sink.client.backoff import Backoff
from kafka_sink.client.outcome import CoordinatorVerdict, coordinator_verdict, describe
from kafka_sink.client.request import Answer, Request
from kafka_sink.engine.producer_batch import ProducerIdentity, TopicPartition
from kafka_sink.engine.transaction import Transaction, TransactionState
from kafka_sink.engine.transaction_failure import coordinator_error
from kafka_sink.errors import KafkaSinkError, RemoteProtocolError, TransportError
from kafka_sink.frozen import frozen
from kafka_sink.wire.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
    Api,
)

GROUP_KEY, TRANSACTION_KEY = 0, 1
# While the broker writes the markers of the previous transaction (code 51): usually milliseconds. Each further wait is
# longer by this much, for clusters where it takes minutes.
MARKERS_BACKOFF_MS = 20
MARKERS_BACKOFF_MAX_MS = 1_000

# The last versions of requests for transaction version 1, and the first for version 2.
END_TXN_LAST_V1, TXN_OFFSET_COMMIT_LAST_V1, ADD_PARTITIONS_LAST_CLIENT = 4, 4, 3
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
    found_ms: int


class TransactionRequests:
    def __init__(
        self,
        transaction: Transaction,
        *,
        transaction_timeout_ms: int,
        request_timeout_ms: int,
        backoff: Backoff,
        coordinator: CoordinatorClient | None = None,
    ) -> None:
        """`coordinator`: as known to an earlier producer with this transactional id."""
        self._transaction = transaction
        self._transaction_timeout_ms = transaction_timeout_ms
        self._request_timeout_ms = request_timeout_ms
        self._backoff = backoff
        # By key type.
        self._coordinators: dict[int, CoordinatorClient] = {} if coordinator is None else {TRANSACTION_KEY: coordinator}
        self.is_waiting = False
        # Whether an earlier try of the registration in flight may have begun the transaction.
        self._start_was_unknown = False
        self._is_alone = True
        self._failures = 0
        self._retry_at_ms = 0
        # Why the current request has not succeeded yet, for the text of a timeout error.
        self.trouble = ""

    @property
    def coordinator(self) -> CoordinatorClient | None:
        return self._coordinators.get(TRANSACTION_KEY)

    @property
    def retry_at_ms(self) -> int:
        return self._retry_at_ms

    def next_request(self, now_ms: int, *, is_quiet: bool) -> Request | None:
        """`is_quiet`: no batch is in flight or queued for a retry, so the transaction may be ended."""
        if self.is_waiting or now_ms < self._retry_at_ms:
            return None
        transaction = self._transaction
        if transaction.state is TransactionState.PREPARING and is_quiet and transaction.offsets is None:
            transaction.on_prepared()
        asked = self._next_coordinator_request(is_quiet)
        if asked is None:
            return None
        if asked.api is not FIND_COORDINATOR and asked.key_type not in self._coordinators:
            asked = CoordinatorRequest(FIND_COORDINATOR, asked.key_type, group_id=asked.group_id)
        return self._make_request(asked)

    def coordinator_for(self, request: Request) -> CoordinatorClient | None:
        """The broker to send it to; None: any broker."""
        asked = _purpose_of(request)
        return None if asked.api is FIND_COORDINATOR else self._coordinators[asked.key_type]

    def on_sent(self, request: Request) -> None:
        self.is_waiting = True
        api = _purpose_of(request).api
        self._start_was_unknown = self._transaction.has_unknown_start
        if api in (ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN):
            self._transaction.has_unknown_start = True
        elif api is TXN_OFFSET_COMMIT:
            # Transaction version 2: the group's coordinator registers the group as soon as this arrives.
            self._transaction.is_started = True

    def on_answer(self, now_ms: int, answer: Answer) -> None:
        self.is_waiting = False
        asked = _purpose_of(answer.request)
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
        for key_type in [key for key, value in self._coordinators.items() if value.node_id == node_id]:
            del self._coordinators[key_type]

    def on_throttled(self) -> None:
        self.trouble = "the broker throttles this client, because a quota of this client is used up"

    # ---- the next request ----

    def _next_coordinator_request(self, is_quiet: bool) -> CoordinatorRequest | None:
        transaction = self._transaction
        if transaction.state in (TransactionState.INITIALIZING, TransactionState.RENEWING):
            return CoordinatorRequest(INIT_PRODUCER_ID)
        if transaction.state in (
            TransactionState.IN_TRANSACTION,
            TransactionState.PREPARING,
            TransactionState.COMMITTING,
        ):
            if transaction.unregistered:
                return CoordinatorRequest(ADD_PARTITIONS_TO_TXN, partitions=tuple(transaction.unregistered))
            if transaction.offsets is not None:
                if (
                    transaction.transaction_version == 1
                    and transaction.offsets.group_id not in transaction.registered_groups
                ):
                    return CoordinatorRequest(ADD_OFFSETS_TO_TXN, group_id=transaction.offsets.group_id)
                return CoordinatorRequest(TXN_OFFSET_COMMIT, GROUP_KEY, group_id=transaction.offsets.group_id)
        if transaction.state in (TransactionState.COMMITTING, TransactionState.ABORTING) and is_quiet:
            return self._end_request()
        return None

    def _end_request(self) -> CoordinatorRequest | None:
        transaction = self._transaction
        if transaction.is_started:
            return CoordinatorRequest(END_TXN)
        if transaction.has_unknown_start:
            # The registration may have arrived or not. Requesting a new epoch at once would be quicker, but if it did
            # arrive, the coordinator aborts the transaction by fencing its owner, this producer. So EndTxn is sent
            # first ("no transaction" counts as ended), and the new epoch then rejects a late arrival.
            transaction.epoch_is_stale = True
            return CoordinatorRequest(END_TXN)
        transaction.on_ended(None)
        return self._next_coordinator_request(is_quiet=True)

    def _make_request(self, asked: CoordinatorRequest) -> Request:
        body, version_min, version_max = _BODIES[asked.api.key](self._transaction, asked)
        if asked.api is INIT_PRODUCER_ID:
            body["transaction_timeout_ms"] = self._transaction_timeout_ms
        return Request(
            api=asked.api,
            body=body,
            purpose=asked,
            timeout_ms=self._request_timeout_ms,
            version_min=version_min,
            version_max=version_max,
        )

    # ---- responses ----

    def _on_failure(self, now_ms: int, asked: CoordinatorRequest, answer: Answer) -> None:
        """No response. If bytes were sent, the request may have been carried out or may still arrive."""
        if not isinstance(answer.failure, (TransportError, RemoteProtocolError)):
            # Not a network failure: the broker does not support the version, or the credentials are refused.
            assert answer.failure is not None
            self._transaction.on_fatal(answer.failure)
            return
        if answer.was_sent and asked.api is INIT_PRODUCER_ID:
            self._is_alone = False
        if answer.was_sent and asked.api is not FIND_COORDINATOR:
            self._transaction.epoch_is_stale = self._transaction.transaction_version == 1
        self._coordinators.pop(asked.key_type, None)
        self.trouble = str(answer.failure)
        self._repeat_later(now_ms)

    def _on_verdict(
        self, now_ms: int, asked: CoordinatorRequest, verdict: CoordinatorVerdict, code: int, answer: Answer
    ) -> None:
        transaction = self._transaction
        if code:
            self.trouble = f"{asked.api.name} is answered with {describe(code)}"
        if verdict is CoordinatorVerdict.DONE:
            self._failures = 0
            self._retry_at_ms = 0
            if asked.api is not FIND_COORDINATOR:  # any broker may answer FindCoordinator
                self.trouble = ""
            assert answer.body is not None
            self._on_done(now_ms, asked, answer.body)
        elif verdict is CoordinatorVerdict.REPEAT:
            self._repeat_later(now_ms)
        elif verdict is CoordinatorVerdict.REPEAT_SOON:
            self._failures += 1
            self._retry_at_ms = now_ms + min(MARKERS_BACKOFF_MS * self._failures, MARKERS_BACKOFF_MAX_MS)
        elif verdict is CoordinatorVerdict.FIND_COORDINATOR:
            self._coordinators.pop(asked.key_type, None)
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
            self._coordinators[asked.key_type] = CoordinatorClient(body["node_id"], now_ms)
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
            transaction.on_offsets_sent()
        else:
            has_next = transaction.transaction_version >= 2 and body.get("producer_id", -1) >= 0
            transaction.on_ended(ProducerIdentity(body["producer_id"], body["producer_epoch"]) if has_next else None)

    def _error(self, asked: CoordinatorRequest, verdict: CoordinatorVerdict, code: int) -> KafkaSinkError:
        wish = self._transaction.offsets
        partitions = asked.partitions or (() if wish is None else tuple(wish.offsets))
        return coordinator_error(
            asked.api,
            code,
            verdict,
            transactional_id=self._transaction.transactional_id,
            transaction_timeout_ms=self._transaction_timeout_ms,
            is_commit=self._transaction.state is TransactionState.COMMITTING,
            topics=sorted({topic for topic, _ in partitions}),
            group_id=asked.group_id,
        )

    def _repeat_later(self, now_ms: int) -> None:
        self._failures += 1
        self._retry_at_ms = now_ms + self._backoff.delay_ms(self._failures)


# ---- bodies: (body, version_min, version_max) ----


def _find_coordinator(transaction: Transaction, asked: CoordinatorRequest) -> tuple[dict[str, Any], int, int]:
    key = asked.group_id if asked.key_type == GROUP_KEY else transaction.transactional_id
    return {"key": key, "key_type": asked.key_type}, 1, FIND_COORDINATOR_LAST_SINGLE


def _init_producer_id(transaction: Transaction, asked: CoordinatorRequest) -> tuple[dict[str, Any], int, int]:
    body: dict[str, Any] = {"transactional_id": transaction.transactional_id}
    if transaction.state is not TransactionState.RENEWING:
        return body, 0, INIT_PRODUCER_ID.version_max
    body["producer_id"], body["producer_epoch"] = transaction.identity
    return body, INIT_PRODUCER_ID_FIRST_RENEWING, INIT_PRODUCER_ID.version_max


def _owner(transaction: Transaction) -> dict[str, Any]:
    return {
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.identity.producer_id,
        "producer_epoch": transaction.identity.producer_epoch,
    }


def _add_partitions(transaction: Transaction, asked: CoordinatorRequest) -> tuple[dict[str, Any], int, int]:
    owner = {f"v3_and_below_{name}": value for name, value in _owner(transaction).items()}
    topics = [{"name": name, "partitions": numbers} for name, numbers in _by_topic(asked.partitions).items()]
    return {**owner, "v3_and_below_topics": topics}, 0, ADD_PARTITIONS_LAST_CLIENT


def _add_offsets(transaction: Transaction, asked: CoordinatorRequest) -> tuple[dict[str, Any], int, int]:
    return {**_owner(transaction), "group_id": asked.group_id}, 0, ADD_OFFSETS_TO_TXN.version_max


def _txn_offset_commit(transaction: Transaction, asked: CoordinatorRequest) -> tuple[dict[str, Any], int, int]:
    wish = transaction.offsets
    assert wish is not None
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, partition), (offset, leader_epoch, metadata) in wish.offsets.items():
        topics.setdefault(topic, []).append(
            {
                "partition_index": partition,
                "committed_offset": offset,
                "committed_leader_epoch": leader_epoch,
                "committed_metadata": metadata,
            }
        )
    body = {
        **_owner(transaction),
        "group_id": wish.group_id,
        "generation_id": wish.generation_id,
        "member_id": wish.member_id,
        "group_instance_id": wish.group_instance_id,
        "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
    }
    first_v2 = TXN_OFFSET_COMMIT_LAST_V1 + 1
    return (body, 0, first_v2 - 1) if transaction.transaction_version == 1 else (body, first_v2, first_v2)


def _end_txn(transaction: Transaction, asked: CoordinatorRequest) -> tuple[dict[str, Any], int, int]:
    body = {**_owner(transaction), "committed": transaction.state is TransactionState.COMMITTING}
    if transaction.transaction_version == 1:
        return body, 0, END_TXN_LAST_V1
    return body, END_TXN_LAST_V1 + 1, END_TXN.version_max


_BODIES: Mapping[int, Callable[[Transaction, CoordinatorRequest], tuple[dict[str, Any], int, int]]] = {
    FIND_COORDINATOR.key: _find_coordinator,
    INIT_PRODUCER_ID.key: _init_producer_id,
    ADD_PARTITIONS_TO_TXN.key: _add_partitions,
    ADD_OFFSETS_TO_TXN.key: _add_offsets,
    TXN_OFFSET_COMMIT.key: _txn_offset_commit,
    END_TXN.key: _end_txn,
}


# ---- decoding ----


def _purpose_of(request: Request) -> CoordinatorRequest:
    assert isinstance(request.purpose, CoordinatorRequest)
    return request.purpose


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


OPERATION_NOT_ATTEMPTED = 55


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics
