"""Requests of a producer to coordinators, and the effect of the responses on the transaction.

One request at a time, derived from the state of the `Transaction` each time something may have changed:

  coordinator unknown          -> FindCoordinator
  initializing or renewing     -> InitProducerId
  replacing, nothing in flight -> InitProducerId
  partitions to register (v1)  -> AddPartitionsToTxn
  offsets to send              -> AddOffsetsToTxn (v1), FindCoordinator of the group, TxnOffsetCommit
  ending, nothing in flight    -> EndTxn

An answer is read in three steps: find its error code, ask kafka/client/outcome.py what it means, act on that. Transport
failures have a meaning, too: the coordinator may have moved, and the request may have been carried out.

An InitProducerId without a response may also arrive much later; it then bumps the epoch under this producer and aborts
its open or prepared transaction. Initializing therefore returns whether the producer is alone: True if there is no such
request. A producer of prepared transactions that is not alone must use another transactional id.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_sink.errors import (
    AuthorizationError,
    BrokerError,
    KafkaSinkError,
    ProducerFenced,
    RemoteProtocolError,
    TransportError,
)
from kafka_sink.errors.table.brokers import TRANSACTION_TOO_LONG
from kafka_sink.kafka.client.backoff import MARKERS_BACKOFF_MS, Backoff
from kafka_sink.kafka.client.cluster import FoundCoordinator
from kafka_sink.kafka.client.metadata import Metadata
from kafka_sink.kafka.client.outcome import CoordinatorOutcome, coordinator_outcome, describe
from kafka_sink.kafka.client.request import Answer, Request
from kafka_sink.kafka.wire.codes import (
    GROUP_AUTHORIZATION_FAILED,
    INVALID_PRODUCER_ID_MAPPING,
    INVALID_TRANSACTION_TIMEOUT,
    INVALID_TXN_STATE,
    OPERATION_NOT_ATTEMPTED,
    TOPIC_AUTHORIZATION_FAILED,
)
from kafka_sink.options import ProducerOptions
from kafka_sink.producer.engine.commands import TransactionEvent
from kafka_sink.producer.engine.coordinator_requests import (
    AddOffsets,
    AddPartitions,
    CommitOffsets,
    CoordinatorRequest,
    EndTxn,
    FindCoordinator,
    InitProducerId,
)
from kafka_sink.producer.engine.failure import FORGOTTEN
from kafka_sink.producer.engine.transaction import WRITING, Transaction, TransactionState

# The oldest are forgotten.
COORDINATORS_MAX = 1_000
# While markers are written.
MARKERS_BACKOFF_MAX_MS = 1_000

# Outcomes of a request that was not carried out.
REFUSALS = (
    CoordinatorOutcome.ABORT,
    CoordinatorOutcome.FENCED,
    CoordinatorOutcome.UNAUTHORIZED,
    CoordinatorOutcome.FATAL,
)


class TransactionRequests:
    def __init__(
        self,
        transaction: Transaction,
        options: ProducerOptions,
        backoff: Backoff,
        coordinators: dict[tuple[int, str], FoundCoordinator],
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
        if transaction.must_ask_identity:
            return InitProducerId(transaction, self._transaction_timeout_ms)
        if transaction.state in WRITING and transaction.unregistered:
            return AddPartitions(transaction)
        if transaction.state in WRITING and transaction.offsets is not None:
            is_registered = transaction.offsets.group.group_id in transaction.registered_groups
            must_register = transaction.transaction_version == 1 and not is_registered
            return (AddOffsets if must_register else CommitOffsets)(transaction, transaction.offsets)
        if not is_quiet:
            return None
        if transaction.state is TransactionState.PREPARING:
            return TransactionEvent.PREPARED
        if transaction.state in (TransactionState.COMMITTING, TransactionState.ABORTING):
            may_have_begun = transaction.is_started or transaction.has_unknown_start
            return EndTxn(transaction) if may_have_begun else TransactionEvent.ENDED
        return None

    def make_request(self, asked: CoordinatorRequest) -> Request:
        """The request itself, or the one that finds its coordinator."""
        if asked.key not in self._coordinators:
            asked = FindCoordinator(asked)
        return Request(asked.api, asked.body, asked, self._request_timeout_ms, *asked.versions)

    def coordinator_for(self, request: Request) -> FoundCoordinator | None:
        """The broker to send it to; None: any broker."""
        asked: CoordinatorRequest = request.purpose
        return None if isinstance(asked, FindCoordinator) else self._coordinators[asked.key]

    def on_sent(self, request: Request) -> None:
        asked, transaction = request.purpose, self._transaction
        self.is_waiting = True
        self._start_was_unknown = transaction.has_unknown_start
        # Another holder of the receipt may have tried before.
        may_repeat = isinstance(asked, EndTxn) and asked.commits and transaction.is_resumed
        self._commit_was_unknown = transaction.commit_may_be_done or may_repeat
        asked.on_sent()

    def on_answer(self, now_ms: int, answer: Answer) -> None:
        self.is_waiting = False
        asked: CoordinatorRequest = answer.request.purpose
        if self._transaction.state is TransactionState.FATAL:
            return  # the producer failed in the same step, or for the reason that closed this connection
        if answer.failure is not None:
            self._on_failure(now_ms, asked, answer)
            return
        assert answer.body is not None
        code = _first_error(asked.codes_of(answer.body))
        outcome = coordinator_outcome(
            asked.api.key,
            code,
            committing=self._transaction.state is TransactionState.COMMITTING,
            may_not_have_begun=not self._transaction.is_started,
        )
        self._act_on(now_ms, asked, outcome, code, answer)

    def on_coordinator_gone(self, now_ms: int, node_id: int, failure: KafkaSinkError | None) -> None:
        """The node cannot be reached. The new coordinator is known only after the cluster has noticed it, too: until
        then FindCoordinator names the old one, which without a back-off would be asked for a thousand times a
        second."""
        self._repeat_later(now_ms)
        if failure is not None:
            self.trouble = f"the broker to be asked cannot be used: {failure}"
        for key in [key for key, value in self._coordinators.items() if value.node_id == node_id]:
            del self._coordinators[key]

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
        asked.on_lost()
        self._coordinators.pop(asked.key, None)
        self.trouble = str(answer.failure)
        self._repeat_later(now_ms)

    def _act_on(
        self, now_ms: int, asked: CoordinatorRequest, outcome: CoordinatorOutcome, code: int, answer: Answer
    ) -> None:
        transaction = self._transaction
        if outcome in REFUSALS:
            # This try did not commit; INVALID_TXN_STATE: no earlier one did either.
            is_denied = code == INVALID_TXN_STATE and transaction.state is TransactionState.COMMITTING
            transaction.commit_may_be_done = self._commit_was_unknown and not is_denied
        if code:
            self.trouble = f"{asked.api.name} is answered with {describe(code)}"
        if outcome is CoordinatorOutcome.DONE:
            self._failures = 0
            self.retry_at_ms = 0
            asked.on_done(answer.body)
            if isinstance(asked, FindCoordinator):
                self._keep_coordinator(asked.key, answer.body["node_id"])
            else:
                self.trouble = ""  # any broker may answer FindCoordinator
        elif outcome is CoordinatorOutcome.REPEAT:
            self._repeat_later(now_ms)
        elif outcome is CoordinatorOutcome.REPEAT_SOON:
            self._failures += 1
            self.retry_at_ms = now_ms + min(MARKERS_BACKOFF_MS * self._failures, MARKERS_BACKOFF_MAX_MS)
        elif outcome is CoordinatorOutcome.FIND_COORDINATOR:
            self._coordinators.pop(asked.key, None)
            self._repeat_later(now_ms)
        elif outcome is CoordinatorOutcome.ABORT:
            transaction.has_unknown_start = self._start_was_unknown  # this try did not begin it
            if not transaction.on_error(self._error(asked, outcome, code)):
                self._repeat_later(now_ms)  # nothing to abort, or still in flight: the request may be retried
        else:
            transaction.on_fatal(self._error(asked, outcome, code))

    def _error(self, asked: CoordinatorRequest, outcome: CoordinatorOutcome, code: int) -> KafkaSinkError:
        transaction = self._transaction
        who = f"transactional id {transaction.transactional_id!r}"
        answer = f"{asked.api.name} was answered with {describe(code)}"
        if outcome is CoordinatorOutcome.FENCED:
            return ProducerFenced(
                f"{who}: another producer took it over, or the transaction was open for longer than "
                f"transaction.timeout.ms and was aborted by the broker ({answer}). Nothing more can be sent; make a "
                "new producer if no other one is running"
            )
        if outcome is CoordinatorOutcome.UNAUTHORIZED:
            return AuthorizationError(
                f"{who}: {answer}. The principal needs Write and Describe on this TransactionalId"
            )
        if code == GROUP_AUTHORIZATION_FAILED:
            return AuthorizationError(f"{who}: {answer}. The principal needs Read on group {asked.group_id!r}")
        if code == TOPIC_AUTHORIZATION_FAILED:
            names = ", ".join(f"topic {topic!r}" for topic in sorted(asked.topics))
            return AuthorizationError(f"{who}: {answer}. The principal needs {asked.topic_operation} on {names}")
        entry = None
        if code == INVALID_TXN_STATE and transaction.state is TransactionState.COMMITTING:
            # Brokers with transaction.version 2 answer this for a transaction that they aborted, if nothing was sent
            # since.
            answer = (
                f"the broker has no open transaction to commit. Most likely it was open for longer than "
                f"transaction.timeout.ms={self._transaction_timeout_ms} and was aborted by the broker ({answer}). "
                "Nothing more can be sent; make a new producer"
            )
        if code == INVALID_PRODUCER_ID_MAPPING:
            answer = f"{answer}. {FORGOTTEN}"
        if code == INVALID_TRANSACTION_TIMEOUT:
            answer = (
                f"transaction.timeout.ms={self._transaction_timeout_ms} is more than the brokers allow; lower it, or "
                "raise transaction.max.timeout.ms of the brokers (900000 by default). A query of Spark that does not "
                f"set it uses the brokers' limit after a restart ({answer})"
            )
            entry = TRANSACTION_TOO_LONG
        return BrokerError(f"{who}: {answer}", entry, code=code, api=asked.api.name)

    def _keep_coordinator(self, key: tuple[int, str], node_id: int) -> None:
        self._coordinators[key] = FoundCoordinator(node_id, self._metadata.next_number)
        if len(self._coordinators) > COORDINATORS_MAX:
            del self._coordinators[next(iter(self._coordinators))]

    def _repeat_later(self, now_ms: int) -> None:
        self._failures += 1
        self.retry_at_ms = now_ms + self._backoff.delay_ms(self._failures)


def _first_error(codes: Iterable[int]) -> int:
    """0: none. A code that means "not tried because of another partition" must not hide that other one."""
    return min((code for code in codes if code), key=lambda code: code == OPERATION_NOT_ATTEMPTED, default=0)
