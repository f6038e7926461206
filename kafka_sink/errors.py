"""Every error this package raises, sorted by whose fault it is and what to do next.

There is no class per broker error code: a code is a row of `wire/codes.py`, its meaning for a request is decided in
`client/outcome.py`, and what reaches a caller is one of the classes below. Inside the engine errors are values; they
are raised only at the edges.

All of them survive pickling (Spark ships them between processes): the state is in attributes that have defaults, and
`__reduce__` rebuilds from the text and those attributes. None of them may ever hold a record's content or a secret.
"""

from __future__ import annotations

from typing import Any


class KafkaSinkError(Exception):
    """Base of all errors of this package; never raised itself."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), dict(self.__dict__))


def _rebuild(error_type: type[KafkaSinkError], text: str, state: dict[str, Any]) -> KafkaSinkError:
    error = error_type.__new__(error_type)
    Exception.__init__(error, text)
    error.__dict__.update(state)
    return error


class ConfigError(KafkaSinkError):
    """An option is missing, unknown, out of range or contradicts another one. Raised before anything is sent."""


class DataError(KafkaSinkError):
    """A record cannot be sent whatever the broker does: no topic, wrong type, too large. Names column and row."""

    def __init__(self, text: str, *, row: int | None = None, column: str | None = None) -> None:
        super().__init__(text)
        self.row = row
        self.column = column


class LocalProtocolError(KafkaSinkError):
    """This side broke a rule: an illegal transition, a call in the wrong state, a field that does not fit."""


class RemoteProtocolError(KafkaSinkError):
    """The other side sent bytes that are no Kafka answer. The connection they came from is closed."""


class TransportError(KafkaSinkError):
    """Refused, reset, timed out, name not resolved. Retried inside; a caller sees it as the cause of giving up."""


class AuthenticationError(KafkaSinkError):
    """The broker refused the credentials. Never retried: a loop of wrong passwords locks accounts."""


class AuthorizationError(KafkaSinkError):
    """The principal lacks a permission; the text names resource and operation."""


class BrokerError(KafkaSinkError):
    """A broker answered with an error code that the request cannot survive."""

    def __init__(
        self,
        text: str,
        *,
        code: int,
        api: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
    ) -> None:
        super().__init__(text)
        self.code = code
        self.api = api
        self.topic = topic
        self.partition = partition


class DeliveryError(KafkaSinkError):
    """Records were given up. `ambiguous` says whether they may nevertheless be in the log."""

    def __init__(
        self,
        text: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        attempts: int = 0,
        ambiguous: bool = False,
        code: int | None = None,
    ) -> None:
        super().__init__(text)
        self.topic = topic
        self.partition = partition
        self.attempts = attempts
        self.ambiguous = ambiguous
        self.code = code


class BufferExhausted(DeliveryError):
    """No room in buffer.memory within max.block.ms. The record was never accepted."""


class DeliveryTimeout(DeliveryError):
    """delivery.timeout.ms passed since the record was accepted."""


class OperationTimeout(KafkaSinkError):
    """flush, close or a transaction call did not end in time. The operation itself goes on and may be called again."""


class TransactionError(KafkaSinkError):
    """Something about the transaction, not about one record."""


class TransactionAborted(TransactionError):
    """This transaction must be aborted (or was); a new one may be begun."""


class ProducerFenced(TransactionError):
    """A newer producer owns the transactional id. This one is finished."""


class CommitError(KafkaSinkError):
    """A batch was not committed, or not entirely. What it is about is in attributes, what to do next in the text."""

    def __init__(
        self,
        text: str,
        *,
        sink_id: str = "",
        query_id: str = "",
        batch_id: int | str | None = None,
        row_count: int = 0,
        topics: tuple[str, ...] = (),
    ) -> None:
        super().__init__(text)
        self.sink_id = sink_id
        self.query_id = query_id
        self.batch_id = batch_id
        self.row_count = row_count
        self.topics = topics


class CommitAborted(CommitError):
    """No decision was made and none will be: nothing of the batch becomes visible, it may run again."""


class CommitPending(CommitError):
    """The decision was made, or may have been, and is not carried out yet. Running again finishes it."""


class CommitLost(CommitError):
    """The decision was made, but the transactions of some rows had ended otherwise. An operator must choose."""
