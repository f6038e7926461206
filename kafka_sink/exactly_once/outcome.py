"""What a response means to the driver: the only place in this folder where error codes are interpreted.

The producer's table (client/outcome.py) does not fit: for a producer "fenced" is final, while for a driver that retries
EndTxn it only means that another producer has taken over, and says nothing about commit or abort.

One table per request; each value says what to do next. A code in no table is retried where the outcome of a transaction
is in question (the decision stays open, and a later response may be clearer), and is a refusal elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kafka_sink.wire.apis import (
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    METADATA,
    PRODUCE,
    Api,
)
from kafka_sink.wire.codes import code


class Meaning(Enum):
    DONE = "done"
    REPEAT = "repeat"
    # Markers of the previous transaction are being written: a short wait.
    REPEAT_SOON = "repeat soon"
    FIND_AGAIN = "find the coordinator again and repeat"
    # DescribeTransactions: no such transactional id.
    NEVER = "never"
    # EndTxn: this coordinator can no longer do it; only the markers in the log tell whether and how the transaction
    # ended. A former coordinator that was frozen or does not know about its replacement yet answers the same for
    # seconds.
    SUPERSEDED = "superseded"
    FENCED = "fenced"
    # Fetch: the log start offset is above the requested one.
    OUT_OF_RANGE = "out of range"
    UNAUTHORIZED = "unauthorized"
    REFUSED = "refused"


_COORDINATOR_MOVED = {
    14: Meaning.FIND_AGAIN,
    15: Meaning.FIND_AGAIN,
    16: Meaning.FIND_AGAIN,
    7: Meaning.FIND_AGAIN,
    13: Meaning.FIND_AGAIN,
    -1: Meaning.FIND_AGAIN,
    51: Meaning.REPEAT_SOON,
    31: Meaning.UNAUTHORIZED,
    53: Meaning.UNAUTHORIZED,
}

_END_COMMIT: Mapping[int, Meaning] = {
    **_COORDINATOR_MOVED,
    0: Meaning.DONE,
    48: Meaning.SUPERSEDED,
    90: Meaning.SUPERSEDED,
    47: Meaning.SUPERSEDED,
    49: Meaning.SUPERSEDED,
    # Newer brokers send this instead of 48. It means "abort it", but only the log can prove that it was not committed.
    120: Meaning.SUPERSEDED,
}

# A transaction that is no longer open need not be aborted, for whichever reason.
_END_ABORT: Mapping[int, Meaning] = {
    **_COORDINATOR_MOVED,
    0: Meaning.DONE,
    48: Meaning.DONE,
    90: Meaning.DONE,
    47: Meaning.DONE,
    49: Meaning.DONE,
    120: Meaning.DONE,
}

_INIT: Mapping[int, Meaning] = {
    **_COORDINATOR_MOVED,
    0: Meaning.DONE,
    47: Meaning.FENCED,
    90: Meaning.FENCED,
    120: Meaning.REPEAT,
}

_ADD_PARTITIONS: Mapping[int, Meaning] = {
    **_COORDINATOR_MOVED,
    0: Meaning.DONE,
    3: Meaning.REPEAT,
    29: Meaning.UNAUTHORIZED,
    47: Meaning.FENCED,
    49: Meaning.FENCED,
    90: Meaning.FENCED,
}

_PRODUCE: Mapping[int, Meaning] = {
    0: Meaning.DONE,
    46: Meaning.DONE,  # DUPLICATE_SEQUENCE_NUMBER: it is in the log
    14: Meaning.REPEAT,
    15: Meaning.REPEAT,
    16: Meaning.REPEAT,
    51: Meaning.REPEAT_SOON,
    -1: Meaning.REPEAT,
    29: Meaning.UNAUTHORIZED,
    53: Meaning.UNAUTHORIZED,
    47: Meaning.FENCED,
    49: Meaning.FENCED,
    90: Meaning.FENCED,
}

_READ: Mapping[int, Meaning] = {
    0: Meaning.DONE,
    1: Meaning.OUT_OF_RANGE,
    -1: Meaning.REPEAT,
    29: Meaning.UNAUTHORIZED,
}

_DESCRIBE: Mapping[int, Meaning] = {
    **_COORDINATOR_MOVED,
    0: Meaning.DONE,
    105: Meaning.NEVER,  # TRANSACTIONAL_ID_NOT_FOUND
}

_LIST: Mapping[int, Meaning] = {0: Meaning.DONE, 14: Meaning.REPEAT, 15: Meaning.REPEAT, 16: Meaning.REPEAT}

_TABLES: Mapping[int, Mapping[int, Meaning]] = {
    INIT_PRODUCER_ID.key: _INIT,
    ADD_PARTITIONS_TO_TXN.key: _ADD_PARTITIONS,
    PRODUCE.key: _PRODUCE,
    FETCH.key: _READ,
    LIST_OFFSETS.key: _READ,
    DESCRIBE_TRANSACTIONS.key: _DESCRIBE,
    LIST_TRANSACTIONS.key: _LIST,
}


def end_meaning(error_code: int, *, commit: bool) -> Meaning:
    table = _END_COMMIT if commit else _END_ABORT
    return table.get(error_code, Meaning.REPEAT)


def meaning(api: Api, error_code: int) -> Meaning:
    assert api is not END_TXN, "the meaning of an end depends on which end was asked for"
    listed = _TABLES[api.key].get(error_code)
    if listed is not None:
        return listed
    facts = code(error_code)
    if facts.stale_metadata:
        return Meaning.FIND_AGAIN
    return Meaning.REPEAT if facts.retriable else Meaning.REFUSED


# The missing permission, by code and request; by default Write, for topics and transactional ids.
_NEEDED: Mapping[int, str] = {29: "topic", 53: "transactional id"}
_LESS_NEEDED: Mapping[str, str] = {
    FETCH.name: "Read",
    METADATA.name: "Describe, Read or Write",
    LIST_OFFSETS.name: "Describe or Read",
    DESCRIBE_TRANSACTIONS.name: "Describe or Write",
}


def describe_answer(api_name: str, error_code: int) -> str:
    """A code for an error text."""
    facts = code(error_code)
    text = f"{api_name} was answered with {facts.name} ({facts.number}): {facts.text}"
    if error_code not in _NEEDED:
        return text
    return f"{text}. The principal needs {_LESS_NEEDED.get(api_name, 'Write')} on this {_NEEDED[error_code]}"
