"""What application threads and the sender thread share: one lock, and everything that passes under it.

Towards the sender go inputs of the engine, in the order in which they were posted. Back come the results of operations
and of rows, the room that finished batches give back, and the engine's state as others may read it (cluster view,
refusal), exchanged as a whole when it is another one. The sender tells everybody who waits that something
changed; whoever waits looks for himself whether it was his.

Attributes are written under the lock and may be read without it: each is replaced as a whole, and an old value is
merely old. The lock is held for bookkeeping only, never during a system call, user code or encoding. Whoever needs the
appender's lock as well takes that one first.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from kafka_sink.errors import KafkaSinkError

if TYPE_CHECKING:
    pass


def copy_error(error: KafkaSinkError, text: str | None = None) -> KafkaSinkError:
    """A copy to raise: one error may be raised to many, and each raise would add to its one traceback."""
    told = copy.copy(error)
    if text is not None:
        told.args = (text,)
    told.__cause__ = error.__cause__
    return told
