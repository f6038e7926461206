"""What an answer means to the driver: the one place in this folder where an error code is interpreted.

The producer's table (client/outcome.py) does not fit: to a producer "fenced" is the end, while to a driver that repeats
the end of a transaction it only means that somebody else has been there, and says nothing about commit or abort.

One table per request, in the words of what to do next. A code that no table knows is repeated while the question is
whether a transaction was ended (the decision stays open, and a later answer may be clearer), and refused elsewhere.
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
    PRODUCE,
    Api,
)
from kafka_sink.wire.codes import code


class Meaning(Enum):
    DONE = "done"
    REPEAT = "repeat"
    # Markers of the transaction before are being written: a short wait.
    REPEAT_SOON = "repeat soon"
    FIND_AGAIN = "find the coordinator again and repeat"
    # DescribeTransactions: nobody knows this id.
    NEVER = "never"
    # EndTxn: not by this coordinator any more; only the markers in the log know how the transaction ended, or that it
    # has not. A coordinator that was frozen or is not told yet that it is none any more says the same for seconds.
    SUPERSEDED = "superseded"
    FENCED = "fenced"
    # Fetch: the log begins behind the offset.
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
    # Said instead of 48 by newer brokers. They mean "abort it", but the log alone can prove that nobody committed it.
    120: Meaning.SUPERSEDED,
}

# What is not open any more needs no aborting; which of the reasons it is does not matter.
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


# What a principal lacks that is refused, by code and request; else Write, on topics and transactional ids alike.
_NEEDED: Mapping[int, str] = {29: "topic", 53: "transactional id"}
_LESS_NEEDED: Mapping[str, str] = {
    FETCH.name: "Read",
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
