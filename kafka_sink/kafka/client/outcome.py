"""What a response to a producer means: the only place where an error code decides what the engine does next.

`kafka/wire/codes.py` gives facts about a code (its name, whether Java calls it retriable). The meaning depends on the
request: the same INVALID_PRODUCER_EPOCH is abortable when it comes from a partition leader and final when it comes from
the transaction coordinator. So there are two tables here, one for Produce and one for the transactional requests. Table
rows follow the Java client; where they differ the row says why.

The engine compares codes with numbers elsewhere only to choose what an error says (`producer/engine/failure.py`,
`transaction_requests.py`). Answers to other requests are read where these are made: ApiVersions in `connection.py`,
logins in `authentication.py`, Metadata in `metadata.py`, those of a commit in `commit/outcome.py`, single
requests in `commit/admin`, `operate/checks` and `operate/cli`.
"""

from __future__ import annotations

from enum import Enum, auto

from kafka_sink.errors import foreign_text
from kafka_sink.kafka.wire.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
)
from kafka_sink.kafka.wire.codes import ErrorCode, code


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


# Codes of Produce with a meaning other than "retry" or "this batch is refused".
_PRODUCE = {
    0: ProduceOutcome.ACKED,
    46: ProduceOutcome.ACKED,  # DUPLICATE_SEQUENCE_NUMBER: it is in the log, only the offset is unknown
    10: ProduceOutcome.SPLIT,
    45: ProduceOutcome.OUT_OF_ORDER,
    59: ProduceOutcome.STATE_LOST,
    # A stale epoch from a leader ends the transaction, not the producer: the transaction may only have timed out.
    47: ProduceOutcome.ABORT,
    48: ProduceOutcome.ABORT,
    120: ProduceOutcome.ABORT,
    31: ProduceOutcome.FATAL,
    35: ProduceOutcome.FATAL,
    49: ProduceOutcome.FATAL,
    53: ProduceOutcome.FATAL,
    90: ProduceOutcome.FATAL,
    # A coordinator error that the leader passes on (KIP-890); the leader itself is right.
    14: ProduceOutcome.RETRY,
    15: ProduceOutcome.RETRY,
    16: ProduceOutcome.RETRY,
    51: ProduceOutcome.RETRY,
}

# After these the batch may have been appended: REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND say so; an
# UNKNOWN_SERVER_ERROR or KAFKA_STORAGE_ERROR can come after the append as well as before it; and a leader that is
# demoted while it waits for the replicas answers NOT_LEADER_OR_FOLLOWER, though they may have the batch by then.
_INDEFINITE = frozenset({-1, 6, 7, 20, 56})


def produce_outcome(error_code: int) -> ProduceOutcome:
    listed = _PRODUCE.get(error_code)
    if listed is not None:
        return listed
    facts = code(error_code)
    if facts.stale_metadata:
        return ProduceOutcome.RETRY_ELSEWHERE
    return ProduceOutcome.RETRY if facts.retriable else ProduceOutcome.REFUSED


def is_definite(error_code: int) -> bool:
    """Whether this error code of Produce says for certain if this send appended the batch to the log."""
    return error_code not in _INDEFINITE


class CoordinatorVerdict(Enum):
    """What a response to a transactional request requires."""

    DONE = auto()
    REPEAT = auto()  # the same request again, after a back-off
    REPEAT_SOON = auto()  # the previous transaction is still completing: the shortest back-off
    FIND_COORDINATOR = auto()  # and then the same request again
    ABORT = auto()  # this transaction must be aborted, the producer is usable
    FENCED = auto()
    UNAUTHORIZED = auto()
    FATAL = auto()


_COORDINATOR = {
    0: CoordinatorVerdict.DONE,
    14: CoordinatorVerdict.REPEAT,
    15: CoordinatorVerdict.FIND_COORDINATOR,
    16: CoordinatorVerdict.FIND_COORDINATOR,
    51: CoordinatorVerdict.REPEAT_SOON,
    47: CoordinatorVerdict.FENCED,
    90: CoordinatorVerdict.FENCED,
    120: CoordinatorVerdict.ABORT,
    31: CoordinatorVerdict.UNAUTHORIZED,
    53: CoordinatorVerdict.UNAUTHORIZED,
    # The coordinator's state does not match the producer's: no request can fix that.
    48: CoordinatorVerdict.FATAL,
    49: CoordinatorVerdict.FATAL,
    # Java gives up on UNKNOWN_SERVER_ERROR. The coordinator may have carried out the request, and a retry is harmless
    # and tells.
    -1: CoordinatorVerdict.REPEAT,
}

# Rows for requests that differ from the rest.
_PER_API = {
    (FIND_COORDINATOR.key, 30): CoordinatorVerdict.ABORT,  # GROUP_AUTHORIZATION_FAILED
    (ADD_PARTITIONS_TO_TXN.key, 29): CoordinatorVerdict.ABORT,  # TOPIC_AUTHORIZATION_FAILED
    (ADD_PARTITIONS_TO_TXN.key, 55): CoordinatorVerdict.ABORT,  # OPERATION_NOT_ATTEMPTED: another partition was refused
    (ADD_PARTITIONS_TO_TXN.key, 31): CoordinatorVerdict.ABORT,
    (ADD_PARTITIONS_TO_TXN.key, 59): CoordinatorVerdict.ABORT,
    (ADD_OFFSETS_TO_TXN.key, 30): CoordinatorVerdict.ABORT,  # GROUP_AUTHORIZATION_FAILED
    (ADD_OFFSETS_TO_TXN.key, 59): CoordinatorVerdict.ABORT,
    (TXN_OFFSET_COMMIT.key, 30): CoordinatorVerdict.ABORT,
    (TXN_OFFSET_COMMIT.key, 29): CoordinatorVerdict.ABORT,
    (TXN_OFFSET_COMMIT.key, 59): CoordinatorVerdict.ABORT,
    (TXN_OFFSET_COMMIT.key, 12): CoordinatorVerdict.ABORT,  # OFFSET_METADATA_TOO_LARGE
    (TXN_OFFSET_COMMIT.key, 22): CoordinatorVerdict.ABORT,  # the consumer group has rebalanced (KIP-447)
    (TXN_OFFSET_COMMIT.key, 25): CoordinatorVerdict.ABORT,
    (TXN_OFFSET_COMMIT.key, 82): CoordinatorVerdict.ABORT,
    (TXN_OFFSET_COMMIT.key, 113): CoordinatorVerdict.ABORT,
    (TXN_OFFSET_COMMIT.key, 7): CoordinatorVerdict.FIND_COORDINATOR,
    # Java calls it abortable; but during InitProducerId there is no transaction to abort.
    (INIT_PRODUCER_ID.key, 120): CoordinatorVerdict.REPEAT,
    # Here Java is right: a coordinator that has assigned the last epoch of a producer id fails like this at every retry
    # of a request whose response was lost; only a new producer gets a new id.
    (INIT_PRODUCER_ID.key, -1): CoordinatorVerdict.FATAL,
}


def coordinator_verdict(
    api_key: int, error_code: int, *, committing: bool = True, may_not_have_begun: bool = False
) -> CoordinatorVerdict:
    if api_key == END_TXN.key and error_code == 120 and not committing:
        # An abort cannot require an abort; nothing is left to try.
        return CoordinatorVerdict.FATAL
    if api_key == END_TXN.key and error_code == 48 and may_not_have_begun and not committing:
        # INVALID_TXN_STATE: the registration with an unknown outcome has not arrived, so there is nothing to abort.
        return CoordinatorVerdict.DONE
    listed = _PER_API.get((api_key, error_code)) or _COORDINATOR.get(error_code)
    if listed is not None:
        return listed
    if code(error_code).retriable:
        return CoordinatorVerdict.REPEAT
    if api_key == ADD_PARTITIONS_TO_TXN.key:
        return CoordinatorVerdict.ABORT
    return CoordinatorVerdict.FATAL


def describe(error_code: int, told: str | None = None) -> str:
    """A code for an error text: its name and number and what it means; `told` is the broker's own text."""
    facts: ErrorCode = code(error_code)
    meaning = f": {facts.text}" if facts.text else ""
    said = f"; the broker says: {foreign_text(told)}" if told else ""
    return f"{facts.name} ({facts.number}){meaning}{said}"
