"""What a response means to the driver: the only place in this folder where error codes are interpreted.

The producer's table (kafka/client/outcome.py) does not fit: for a producer "fenced" is final, while for a driver that
retries EndTxn it only means that another producer has taken over, and says nothing about commit or abort.

One table per request; each value says what to do next. A code in no table is retried where the outcome of a transaction
is in question (the decision stays open, and a later response may be clearer), and is a refusal elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kafka_sink.kafka.wire import apis
from kafka_sink.kafka.wire.codes import code


class Meaning(Enum):
    DONE = "done"
    REPEAT = "repeat"
    # Markers of the previous transaction are being written: a short wait.
    REPEAT_SOON = "repeat soon"
    FIND_AGAIN = "find the coordinator again and repeat"
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
        return self in (Meaning.REPEAT, Meaning.REPEAT_SOON, Meaning.FIND_AGAIN)


_BY_COORDINATOR = {**dict.fromkeys((-1, 7, 13, 14, 15, 16), Meaning.FIND_AGAIN), 51: Meaning.REPEAT_SOON}
_FENCED = dict.fromkeys((47, 49, 90), Meaning.FENCED)
_READ = {1: Meaning.OUT_OF_RANGE, -1: Meaning.REPEAT}

_TABLES: Mapping[int, Mapping[int, Meaning]] = {
    apis.INIT_PRODUCER_ID.key: {**_BY_COORDINATOR, 47: Meaning.FENCED, 90: Meaning.FENCED, 120: Meaning.REPEAT},
    apis.ADD_PARTITIONS_TO_TXN.key: {**_BY_COORDINATOR, **_FENCED, 3: Meaning.REPEAT},
    apis.PRODUCE.key: {
        **dict.fromkeys((-1, 14, 15, 16), Meaning.REPEAT),
        **_FENCED,
        46: Meaning.DONE,  # DUPLICATE_SEQUENCE_NUMBER: it is in the log
        51: Meaning.REPEAT_SOON,
    },
    apis.END_TXN.key: {
        **_BY_COORDINATOR,
        # Newer brokers send 120 instead of 48. It means "abort it", but only the log proves that it was not committed.
        **dict.fromkeys((47, 48, 49, 90, 120), Meaning.SUPERSEDED),
        31: Meaning.REFUSED,
        53: Meaning.REFUSED,
    },
    apis.FETCH.key: _READ,
    apis.LIST_OFFSETS.key: _READ,
    apis.DESCRIBE_TRANSACTIONS.key: {**_BY_COORDINATOR, 105: Meaning.NEVER},  # TRANSACTIONAL_ID_NOT_FOUND
    apis.DESCRIBE_PRODUCERS.key: {-1: Meaning.REPEAT},
}


def meaning(api: apis.Api, error_code: int) -> Meaning:
    if error_code == 0:
        return Meaning.DONE
    listed = _TABLES[api.key].get(error_code)
    if listed is not None:
        return listed
    facts = code(error_code)
    if facts.stale_metadata and api is not apis.END_TXN:
        return Meaning.FIND_AGAIN
    return Meaning.REPEAT if facts.retriable or api is apis.END_TXN else Meaning.REFUSED


# The missing permission, by code and request; by default Write, for topics and transactional ids.
_NEEDED: Mapping[int, str] = {29: "topic", 53: "transactional id"}
_LESS_NEEDED: Mapping[str, str] = {
    apis.FETCH.name: "Read",
    apis.METADATA.name: "Describe, Read or Write",
    apis.LIST_OFFSETS.name: "Describe or Read",
    apis.DESCRIBE_TRANSACTIONS.name: "Describe or Write",
    apis.DESCRIBE_PRODUCERS.name: "Read",
}


def describe_answer(api_name: str, error_code: int) -> str:
    """A code for an error text."""
    facts = code(error_code)
    text = f"{api_name} was answered with {facts.name} ({facts.number}): {facts.text}"
    if error_code not in _NEEDED:
        return text
    return f"{text}. The principal needs {_LESS_NEEDED.get(api_name, 'Write')} on this {_NEEDED[error_code]}"
