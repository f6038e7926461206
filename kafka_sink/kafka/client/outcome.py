"""What an error code means, by the request that was answered: it decides here what happens next.

`kafka/wire/codes.py` gives facts about a code (its name, whether Java calls it retriable). The meaning depends on the
request, and on who asks: a row has one column for the producer and one for the driver of a commit. For a producer
"fenced" is final; to a driver that repeats EndTxn it only says that another producer has taken over, and nothing about
commit or abort. An empty cell is decided by the facts of the code. The producer's column follows the Java client; where
it differs the row says why.

Elsewhere codes are compared to choose what an error says (`producer/engine/failure.py`, `transaction_requests.py`), and
where a row is not enough: `commit/takeover.py` halves a time-out that the brokers refuse, `transaction_requests.py`
notes that a commit may be done, and `coordinator_outcome` below looks at what the transaction was about to do. Answers
to other requests are read where these are made: ApiVersions in `connection.py`, logins in `authentication.py`, Metadata
in `metadata.py`, single requests in `commit/admin`, `operate/checks` and `operate/cli`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Generic, TypeVar

from kafka_sink.errors import foreign_text
from kafka_sink.frozen import frozen
from kafka_sink.kafka.wire.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Api,
)
from kafka_sink.kafka.wire.codes import CODES, INVALID_TXN_STATE, TRANSACTION_ABORTABLE, ErrorCode, code


class ProduceOutcome(Enum):
    ACKED = auto()
    RETRY = auto()
    RETRY_ELSEWHERE = auto()  # the metadata is stale: find the leader first
    SPLIT = auto()
    OUT_OF_ORDER = auto()
    STATE_LOST = auto()  # the broker forgot the producer id
    REFUSED = auto()  # this batch fails; a transaction must be aborted
    ABORT = auto()  # the transaction must be aborted; the batch is not the cause
    FATAL = auto()  # this producer is unusable


class CoordinatorOutcome(Enum):
    """What a response to a transactional request requires."""

    DONE = auto()
    REPEAT = auto()  # the same request again, after a back-off
    REPEAT_SOON = auto()  # the previous transaction is still completing: the shortest back-off
    FIND_COORDINATOR = auto()  # and then the same request again
    ABORT = auto()  # this transaction must be aborted, the producer is usable
    FENCED = auto()
    UNAUTHORIZED = auto()
    FATAL = auto()


class DriverOutcome(Enum):
    """What a response requires of the driver of a commit."""

    DONE = "done"
    REPEAT = "repeat"
    # Markers of the previous transaction are being written: a short wait.
    REPEAT_SOON = "repeat soon"
    FIND_AGAIN = "find the broker again and repeat"
    # DescribeTransactions: no such transactional id.
    NEVER = "never"
    # EndTxn: the transaction is not open, according to this coordinator; only the markers in the log tell whether and
    # how it ended. A former coordinator that was frozen or does not know about its replacement yet answers the same
    # for seconds.
    SUPERSEDED = "superseded"
    FENCED = "fenced"
    # Fetch: the log start offset is above the requested one.
    OUT_OF_RANGE = "out of range"
    REFUSED = "refused"

    @property
    def is_again(self) -> bool:
        """Only to be asked again."""
        return self in (DriverOutcome.REPEAT, DriverOutcome.REPEAT_SOON, DriverOutcome.FIND_AGAIN)


_Outcome = TypeVar("_Outcome", ProduceOutcome, CoordinatorOutcome)


@frozen
class Row(Generic[_Outcome]):
    """What to do: the producer, the driver of a commit. None: by the facts of the code."""

    producer: _Outcome | None = None
    driver: DriverOutcome | None = None


_P, _C, _D = ProduceOutcome, CoordinatorOutcome, DriverOutcome

# Leaders that are asked to append.
_PRODUCE: Mapping[int, Row[ProduceOutcome]] = {
    0: Row(_P.ACKED, _D.DONE),  # NONE
    46: Row(_P.ACKED, _D.DONE),  # DUPLICATE_SEQUENCE_NUMBER: it is in the log, only the offset is unknown
    10: Row(_P.SPLIT),  # MESSAGE_TOO_LARGE
    45: Row(_P.OUT_OF_ORDER),  # OUT_OF_ORDER_SEQUENCE_NUMBER
    59: Row(_P.STATE_LOST),  # UNKNOWN_PRODUCER_ID
    # A stale epoch from a leader ends the transaction, not the producer: the transaction may only have timed out.
    47: Row(_P.ABORT, _D.FENCED),  # INVALID_PRODUCER_EPOCH
    48: Row(_P.ABORT),  # INVALID_TXN_STATE
    120: Row(_P.ABORT),  # TRANSACTION_ABORTABLE
    31: Row(_P.FATAL),  # CLUSTER_AUTHORIZATION_FAILED
    35: Row(_P.FATAL),  # UNSUPPORTED_VERSION
    49: Row(_P.FATAL, _D.FENCED),  # INVALID_PRODUCER_ID_MAPPING
    53: Row(_P.FATAL),  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    90: Row(_P.FATAL, _D.FENCED),  # PRODUCER_FENCED
    # A coordinator error that the leader passes on (KIP-890); the leader itself is right.
    14: Row(_P.RETRY, _D.REPEAT),  # COORDINATOR_LOAD_IN_PROGRESS
    15: Row(_P.RETRY, _D.REPEAT),  # COORDINATOR_NOT_AVAILABLE
    16: Row(_P.RETRY, _D.REPEAT),  # NOT_COORDINATOR
    51: Row(_P.RETRY, _D.REPEAT_SOON),  # CONCURRENT_TRANSACTIONS
    # The driver has one batch, and its sequence is recognised.
    -1: Row(None, _D.REPEAT),  # UNKNOWN_SERVER_ERROR
}

# Coordinators, whatever they are asked.
_COORDINATOR: Mapping[int, Row[CoordinatorOutcome]] = {
    0: Row(_C.DONE, _D.DONE),  # NONE
    # A driver repeats with a fresh look for the coordinator: an answer is believed only if it is clear.
    7: Row(None, _D.FIND_AGAIN),  # REQUEST_TIMED_OUT
    13: Row(None, _D.FIND_AGAIN),  # NETWORK_EXCEPTION
    14: Row(_C.REPEAT, _D.FIND_AGAIN),  # COORDINATOR_LOAD_IN_PROGRESS
    15: Row(_C.FIND_COORDINATOR, _D.FIND_AGAIN),  # COORDINATOR_NOT_AVAILABLE
    16: Row(_C.FIND_COORDINATOR, _D.FIND_AGAIN),  # NOT_COORDINATOR
    51: Row(_C.REPEAT_SOON, _D.REPEAT_SOON),  # CONCURRENT_TRANSACTIONS
    47: Row(_C.FENCED),  # INVALID_PRODUCER_EPOCH
    90: Row(_C.FENCED),  # PRODUCER_FENCED
    120: Row(_C.ABORT),  # TRANSACTION_ABORTABLE
    31: Row(_C.UNAUTHORIZED),  # CLUSTER_AUTHORIZATION_FAILED
    53: Row(_C.UNAUTHORIZED),  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    # The coordinator's state does not match the producer's: no request can fix that.
    48: Row(_C.FATAL),  # INVALID_TXN_STATE
    49: Row(_C.FATAL),  # INVALID_PRODUCER_ID_MAPPING: final since Java's client of Kafka 4
    # Java gives up on UNKNOWN_SERVER_ERROR. The coordinator may have carried out the request, and a retry is harmless
    # and tells.
    -1: Row(_C.REPEAT, _D.FIND_AGAIN),  # UNKNOWN_SERVER_ERROR
}

# Rows for requests that differ from the rest; an empty cell is as above.
_PER_API: Mapping[tuple[int, int], Row[CoordinatorOutcome]] = {
    (FIND_COORDINATOR.key, 30): Row(_C.ABORT),  # GROUP_AUTHORIZATION_FAILED
    (INIT_PRODUCER_ID.key, 47): Row(None, _D.FENCED),  # INVALID_PRODUCER_EPOCH
    (INIT_PRODUCER_ID.key, 90): Row(None, _D.FENCED),  # PRODUCER_FENCED
    # Java calls it abortable; but during InitProducerId there is no transaction to abort.
    (INIT_PRODUCER_ID.key, 120): Row(_C.REPEAT, _D.REPEAT),  # TRANSACTION_ABORTABLE
    # Here Java is right: a coordinator that has assigned the last epoch of a producer id fails like this at every retry
    # of a request whose response was lost; only a new producer gets a new id.
    (INIT_PRODUCER_ID.key, -1): Row(_C.FATAL),  # UNKNOWN_SERVER_ERROR
    (ADD_PARTITIONS_TO_TXN.key, 3): Row(None, _D.REPEAT),  # UNKNOWN_TOPIC_OR_PARTITION
    (ADD_PARTITIONS_TO_TXN.key, 29): Row(_C.ABORT),  # TOPIC_AUTHORIZATION_FAILED
    (ADD_PARTITIONS_TO_TXN.key, 55): Row(_C.ABORT),  # OPERATION_NOT_ATTEMPTED: another partition was refused
    (ADD_PARTITIONS_TO_TXN.key, 31): Row(_C.ABORT),  # CLUSTER_AUTHORIZATION_FAILED
    (ADD_PARTITIONS_TO_TXN.key, 59): Row(_C.ABORT),  # UNKNOWN_PRODUCER_ID
    # INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED
    **dict.fromkeys([(ADD_PARTITIONS_TO_TXN.key, one) for one in (47, 49, 90)], Row(None, _D.FENCED)),
    # The same three, INVALID_TXN_STATE and TRANSACTION_ABORTABLE. Newer brokers send 120 instead of 48. It means "abort
    # it", but only the log proves that it was not committed. Where Kafka says 49, other servers that have forgotten the
    # id say UNKNOWN_PRODUCER_ID or TRANSACTIONAL_ID_NOT_FOUND.
    **dict.fromkeys([(END_TXN.key, one) for one in (47, 48, 49, 59, 90, 105, 120)], Row(None, _D.SUPERSEDED)),
    (END_TXN.key, 31): Row(None, _D.REFUSED),  # CLUSTER_AUTHORIZATION_FAILED
    (END_TXN.key, 53): Row(None, _D.REFUSED),  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    (ADD_OFFSETS_TO_TXN.key, 30): Row(_C.ABORT),  # GROUP_AUTHORIZATION_FAILED
    (ADD_OFFSETS_TO_TXN.key, 59): Row(_C.ABORT),  # UNKNOWN_PRODUCER_ID
    (TXN_OFFSET_COMMIT.key, 30): Row(_C.ABORT),  # GROUP_AUTHORIZATION_FAILED
    (TXN_OFFSET_COMMIT.key, 29): Row(_C.ABORT),  # TOPIC_AUTHORIZATION_FAILED
    (TXN_OFFSET_COMMIT.key, 59): Row(_C.ABORT),  # UNKNOWN_PRODUCER_ID
    (TXN_OFFSET_COMMIT.key, 12): Row(_C.ABORT),  # OFFSET_METADATA_TOO_LARGE
    (TXN_OFFSET_COMMIT.key, 22): Row(_C.ABORT),  # ILLEGAL_GENERATION: the consumer group has rebalanced (KIP-447)
    (TXN_OFFSET_COMMIT.key, 25): Row(_C.ABORT),  # UNKNOWN_MEMBER_ID
    (TXN_OFFSET_COMMIT.key, 82): Row(_C.ABORT),  # FENCED_INSTANCE_ID
    (TXN_OFFSET_COMMIT.key, 113): Row(_C.ABORT),  # STALE_MEMBER_EPOCH
    (TXN_OFFSET_COMMIT.key, 7): Row(_C.FIND_COORDINATOR),  # REQUEST_TIMED_OUT
    (DESCRIBE_TRANSACTIONS.key, 105): Row(None, _D.NEVER),  # TRANSACTIONAL_ID_NOT_FOUND
}

# Leaders that are asked something, by the driver only.
_READ = {
    0: _D.DONE,
    1: _D.OUT_OF_RANGE,  # OFFSET_OUT_OF_RANGE
    -1: _D.REPEAT,  # UNKNOWN_SERVER_ERROR
}
_DESCRIBE = {0: _D.DONE, -1: _D.REPEAT}

# The coordinator, or the leader itself, knows another identity of this producer, or none: INVALID_PRODUCER_EPOCH,
# INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED.
_OTHER_IDENTITY = frozenset({47, 49, 90})

# After these the batch may have been appended: REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND say so; an
# UNKNOWN_SERVER_ERROR or KAFKA_STORAGE_ERROR can come after the append as well as before it; and a leader that is
# demoted while it waits for the replicas answers NOT_LEADER_OR_FOLLOWER, though they may have the batch by then.
_INDEFINITE = frozenset({-1, 6, 7, 20, 56})


def produce_outcome(error_code: int) -> ProduceOutcome:
    row = _PRODUCE.get(error_code)
    if row is not None and row.producer is not None:
        return row.producer
    facts = code(error_code)
    if facts.stale_metadata:
        return ProduceOutcome.RETRY_ELSEWHERE
    return ProduceOutcome.RETRY if facts.retriable else ProduceOutcome.REFUSED


def refuses_identity(error_code: int) -> bool:
    """Whether this error code of Produce is about producer id and epoch."""
    return error_code in _OTHER_IDENTITY


def is_definite(error_code: int) -> bool:
    """Whether this error code of Produce says for certain if this send appended the batch to the log. What a code newer
    than the table means is not known."""
    return error_code in CODES and error_code not in _INDEFINITE


def coordinator_outcome(
    api_key: int, error_code: int, *, committing: bool = True, may_not_have_begun: bool = False
) -> CoordinatorOutcome:
    if api_key == END_TXN.key and error_code == TRANSACTION_ABORTABLE and not committing:
        # An abort cannot require an abort; nothing is left to try.
        return CoordinatorOutcome.FATAL
    if api_key == END_TXN.key and error_code == INVALID_TXN_STATE and may_not_have_begun and not committing:
        # The registration with an unknown outcome has not arrived, so there is nothing to abort.
        return CoordinatorOutcome.DONE
    for row in (_PER_API.get((api_key, error_code)), _COORDINATOR.get(error_code)):
        if row is not None and row.producer is not None:
            return row.producer
    if code(error_code).retriable:
        return CoordinatorOutcome.REPEAT
    if api_key == ADD_PARTITIONS_TO_TXN.key:
        return CoordinatorOutcome.ABORT
    return CoordinatorOutcome.FATAL


def driver_outcome(api: Api, error_code: int) -> DriverOutcome:
    """For the driver. A code in no row is repeated where the outcome of a transaction is in question (the decision
    stays open, and a later response may be clearer), and is a refusal elsewhere."""
    listed = _listed_driver_outcome(api, error_code)
    if listed is not None:
        return listed
    facts = code(error_code)
    if facts.stale_metadata and api is not END_TXN:
        return DriverOutcome.FIND_AGAIN
    return DriverOutcome.REPEAT if facts.retriable or api is END_TXN else DriverOutcome.REFUSED


def _listed_driver_outcome(api: Api, error_code: int) -> DriverOutcome | None:
    if api in (FETCH, LIST_OFFSETS):
        return _READ.get(error_code)
    if api is DESCRIBE_PRODUCERS:
        return _DESCRIBE.get(error_code)
    if api is PRODUCE:
        appended = _PRODUCE.get(error_code)
        return None if appended is None else appended.driver
    rows = (_PER_API.get((api.key, error_code)), _COORDINATOR.get(error_code))
    return next((row.driver for row in rows if row is not None and row.driver is not None), None)


def describe(error_code: int, told: str | None = None) -> str:
    """A code for an error text: its name and number and what it means; `told` is the broker's own text."""
    facts: ErrorCode = code(error_code)
    meaning = f": {facts.text}" if facts.text else ""
    said = f"; the broker says: {foreign_text(told)}" if told else ""
    return f"{facts.name} ({facts.number}){meaning}{said}"


# The missing permission, by code and request; by default Write, for topics and transactional ids.
_NEEDED: Mapping[int, str] = {29: "topic", 53: "transactional id"}
_LESS_NEEDED: Mapping[str, str] = {
    FETCH.name: "Read",
    METADATA.name: "Describe, Read or Write",
    LIST_OFFSETS.name: "Describe or Read",
    DESCRIBE_TRANSACTIONS.name: "Describe or Write",
    DESCRIBE_PRODUCERS.name: "Read",
}


def describe_answer(api_name: str, error_code: int) -> str:
    """A code of an answer to the driver, for an error text."""
    facts = code(error_code)
    text = f"{api_name} was answered with {facts.name} ({facts.number}): {facts.text}"
    if error_code not in _NEEDED:
        return text
    return f"{text}. The principal needs {_LESS_NEEDED.get(api_name, 'Write')} on this {_NEEDED[error_code]}"
