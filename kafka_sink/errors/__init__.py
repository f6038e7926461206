"""Every error this package raises, sorted by whose fault it is and what to do next.

There is no class per broker error code: a code is a row of `kafka/wire/codes.py`, its meaning for a request is decided
in `kafka/client/outcome.py`, and callers get one of the classes below. Inside the engine errors are values; they are
raised only at the edges.

Each has an entry in `errors/table`: a name that users can look up. An error gets its entry where it is created; the
default is that of its class.

All of them survive pickling (Spark ships them between processes): the state is in attributes with defaults, and
`__reduce__` rebuilds from the text and these. None of them may ever contain a record's content or a secret.
"""

from __future__ import annotations

import copy
import errno
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from kafka_sink.errors.table import ENTRIES, brokers, commits, writes
from kafka_sink.errors.table.entry import ErrorEntry

FOREIGN_CHARACTERS_MAX = 2000


class KafkaSinkError(Exception):
    """Base of all errors of this package; never raised itself. `ambiguous`: records that it is about may be in the log
    all the same."""

    default_entry: ClassVar[ErrorEntry] = brokers.WRONG_CALL
    ambiguous: bool = False

    def __init__(self, text: str, entry: ErrorEntry | None = None, **details: Any) -> None:
        """`details`: attributes of the class that differ from their defaults."""
        super().__init__(text)
        for name in details:
            if not hasattr(type(self), name):
                raise TypeError(f"{type(self).__name__} has no attribute {name}")
        self.__dict__.update(details)
        # The name and not the entry: another release may unpickle it.
        self.name = (entry or self.default_entry).name

    @property
    def entry(self) -> ErrorEntry:
        return ENTRIES.get(self.name, self.default_entry)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), str(self), dict(self.__dict__))


def explain_error(error: KafkaSinkError) -> str:
    """A complete text: the name first, then what happened, and what to do."""
    entry = error.entry
    return (
        f"{entry.name} {entry.title}: {error}\n"
        f"  Data: {entry.data}\n"
        f"  Next: {entry.cure}\n"
        f"  More: pykafka-sink explain {entry.name}"
    )


def no_descriptor_error(what: str, error: OSError) -> TransportError | None:
    """Of this process, and not of the file or host that was to be opened; it may pass. None: another error."""
    if error.errno not in (errno.EMFILE, errno.ENFILE):
        return None
    text = f"{what}: this process cannot open more files ({error.strerror})"
    return TransportError(text, brokers.NO_DESCRIPTOR, is_local=True)


def foreign_text(text: object) -> str:
    """What another host says, for an error or the log: one printable line of limited length. Empty if it is no text."""
    if not isinstance(text, str):
        return ""
    line = "".join(letter if letter.isprintable() else " " for letter in text[:FOREIGN_CHARACTERS_MAX])
    return line if len(text) <= FOREIGN_CHARACTERS_MAX else f"{line}..."


def printable_text(text: str) -> str:
    """For a line of the log: what cannot be printed, or would begin another line, is written as Python does."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def common_entry(problems: Sequence[KafkaSinkError], otherwise: ErrorEntry) -> ErrorEntry:
    """The entry for an error that combines several."""
    return problems[0].entry if len({problem.name for problem in problems}) == 1 else otherwise


def copy_error(error: KafkaSinkError, text: str | None = None) -> KafkaSinkError:
    """A copy to raise: an error may be raised to many callers, and each raise would extend its one traceback."""
    copied = copy.copy(error)
    if text is not None:
        copied.args = (text,)
    copied.__cause__ = error.__cause__
    return copied


def _rebuild(error_type: type[KafkaSinkError], text: str, state: dict[str, Any]) -> KafkaSinkError:
    error = error_type.__new__(error_type)
    Exception.__init__(error, text)
    error.__dict__.update(state)
    return error


class ConfigError(KafkaSinkError):
    """An option is missing, unknown, out of range or contradicts another one. Raised before anything is sent."""

    default_entry = writes.OPTION_INVALID
    # The combined errors, if there are several.
    several: tuple[ConfigError, ...] = ()


class DataError(KafkaSinkError):
    """A record cannot be sent whatever the broker does: no topic, wrong type, too large. Names column and row."""

    default_entry = writes.ROW_INVALID
    row: int | None = None
    column: str | None = None


class RowsRefused(DataError):
    """The error of the first of several rows, which can make those of the others: a sink that leaves such rows out
    learns them from one look at a column. A copy, and what another process gets, is the first error alone.

    `error_of` makes the error of a row from it and from its place among those that are refused with it.
    """

    def __init__(self, rows: Sequence[int], error_of: Callable[[int, int], DataError]) -> None:
        first = error_of(rows[0], 0)
        super().__init__(str(first), first.entry, row=first.row, column=first.column)
        self.rows = rows
        self.error_of = error_of

    def by_row(self) -> dict[int, DataError]:
        return {row: self.error_of(row, place) for place, row in enumerate(self.rows)}

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, (_, text, state) = super().__reduce__()
        return rebuild, (DataError, text, {name: state[name] for name in state.keys() - {"rows", "error_of"}})


class LocalProtocolError(KafkaSinkError):
    """This side broke a rule: an illegal transition, a call in the wrong state, a field that does not fit."""

    default_entry = brokers.WRONG_CALL


class RemoteProtocolError(KafkaSinkError):
    """The other side sent bytes that are not a valid Kafka response. The connection is closed."""

    default_entry = brokers.NOT_KAFKA


class TransportError(KafkaSinkError):
    """Refused, reset, timed out, name not resolved. Retried inside; a caller sees it as the cause of giving up.
    `is_local`: this host lacked something, and neither the peer nor its address is to blame."""

    default_entry = brokers.CONNECTION_FAILED
    is_local: bool = False


class AuthenticationError(KafkaSinkError):
    """The broker refused the credentials. Never retried: a loop of wrong passwords locks accounts."""

    default_entry = brokers.LOGIN_REFUSED


class AuthorizationError(KafkaSinkError):
    """The principal lacks a permission; the text names resource and operation."""

    default_entry = brokers.NOT_AUTHORIZED


class BrokerError(KafkaSinkError):
    """A broker answered with an error code that is final for the request."""

    default_entry = brokers.BROKER_REFUSED
    code: int = -1
    api: str | None = None
    topic: str | None = None


class DeliveryError(KafkaSinkError):
    """Records were given up."""

    default_entry = brokers.NOT_DELIVERED
    topic: str | None = None
    partition: int | None = None
    attempts: int = 0
    code: int | None = None


class BufferExhausted(DeliveryError):
    """No room in buffer.memory within max.block.ms. The record was never accepted."""

    default_entry = brokers.BUFFER_FULL


class DeliveryTimeout(DeliveryError):
    """delivery.timeout.ms passed since the record was accepted."""

    default_entry = brokers.DELIVERY_TOO_SLOW


class OperationTimeout(KafkaSinkError):
    """flush, a transaction call or the wait for a result did not finish in time: it continues and may be called again.
    From `send` and `send_arrow`: the topic was not known in time, and nothing was accepted. From `close`: what was not
    delivered was given up."""

    default_entry = brokers.TOO_SLOW


class OutOfMemory(KafkaSinkError):
    """A task's Python process is out of memory, or cannot start a thread."""

    default_entry = brokers.OUT_OF_MEMORY


class TransactionError(KafkaSinkError):
    """A failure of the transaction, not of one record."""

    default_entry = brokers.TRANSACTION_FAILED


class TransactionAborted(TransactionError):
    """This transaction must be aborted (or was); a new one may be begun."""


class ProducerFenced(TransactionError):
    """A newer producer owns the transactional id. This one is finished."""

    default_entry = brokers.PRODUCER_FENCED


class CommitError(KafkaSinkError):
    """A batch was not committed, or not entirely. Details are in attributes, what to do next in the text."""

    default_entry = commits.NOT_COMMITTED
    sink_id: str = ""
    query_id: str = ""
    batch_id: int | str | None = None
    row_count: int = 0
    topics: tuple[str, ...] = ()


class CommitAborted(CommitError):
    """No decision was made and none will be: nothing of the batch becomes visible, it may run again."""


class CommitPending(CommitError):
    """The decision was made, or may have been, and is not carried out yet. Running again finishes it."""

    default_entry = commits.COMMIT_PENDING


class CommitLost(CommitError):
    """The decision was made, but transactions of some rows were not committed. An operator must choose."""

    default_entry = commits.ROWS_LOST
