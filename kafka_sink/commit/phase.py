"""The phases of one operation of the driver, as a table.

  START       selects the way: fence first, only read, or continue with what this process already knows
  FENCING     C1: InitProducerId on the driver's id
  CLAIMING    C1: a record of this driver in the ledger, which proves where the ledger ends
  READING     C1: the ledger, to the claim; without fencing, to the high watermark
  PROVING     an intent without a marker found there: how its transactions stand. Commits none
  FINISHING   an open decision found there: EndTxn(commit) of all its transactions
  CLOSING     its done record, or its stuck record
  CHECKING    C2: is every transaction of this batch open, ours, and in time; has every partition of it a leader
  DECIDING    C3: the intent record, which is the decision
  COMMITTING  C4: EndTxn(commit) of this batch's transactions
  RECORDING   C5: the done record, or the stuck record; also an operator's choice
  DISCARDING  EndTxn(abort) of transactions that are part of no decision
  VERIFYING   whether readers can see the batch, if an option requests that
  SWEEPING    EndTxn(abort) of leftover transactions

A batch write without a label skips CLAIMING and READING if its driver's id is new: nobody can have decided about it.

After CLOSING, DECIDING and RECORDING, READING is for a record that was refused as fenced and is certainly not written:
it looks who took over, and earlier decisions stand. After DECIDING, DISCARDING is reachable only in this way, and after
COMMITTING not at all: no operation aborts a transaction of a decision, made or in doubt. A test walks the table to
prove it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

# How often one operation continues after it was fenced although no other run has appeared. Spark runs one commit of a
# query at a time, so once is normal. But requests of a killed process may arrive late, and a former coordinator may
# answer "fenced" for seconds: with the waits in between, 12 tries last about seven seconds.
LOOKS_MAX = 12


class Phase(Enum):
    START = "start"
    FENCING = "fencing"
    CLAIMING = "claiming"
    READING = "reading"
    PROVING = "proving"
    FINISHING = "finishing"
    CLOSING = "closing"
    CHECKING = "checking"
    DECIDING = "deciding"
    COMMITTING = "committing"
    RECORDING = "recording"
    DISCARDING = "discarding"
    VERIFYING = "verifying"
    SWEEPING = "sweeping"
    ENDED = "ended"


# What may follow once the ledger is known.
_JUDGED = (
    Phase.FENCING,
    Phase.PROVING,
    Phase.FINISHING,
    Phase.CHECKING,
    Phase.RECORDING,
    Phase.DISCARDING,
    Phase.SWEEPING,
    Phase.ENDED,
)

TRANSITIONS: Mapping[Phase, tuple[Phase, ...]] = {
    Phase.START: (Phase.READING, *_JUDGED),
    Phase.FENCING: (Phase.CLAIMING, Phase.CHECKING, Phase.ENDED),
    Phase.CLAIMING: (Phase.READING, Phase.ENDED),
    Phase.READING: _JUDGED,
    # Judged again if the intent was dropped.
    Phase.PROVING: (Phase.CLOSING, *_JUDGED),
    Phase.FINISHING: (Phase.CLOSING, *_JUDGED),
    Phase.CLOSING: (Phase.READING, *_JUDGED),
    Phase.CHECKING: (Phase.DECIDING, Phase.DISCARDING),
    Phase.DECIDING: (Phase.COMMITTING, Phase.READING, Phase.ENDED),
    # Without RECORDING if the record that closes the decision is written after the result. READING if the epoch for
    # that record is not known.
    Phase.COMMITTING: (Phase.RECORDING, Phase.READING, Phase.VERIFYING, Phase.SWEEPING, Phase.ENDED),
    Phase.RECORDING: (Phase.READING, Phase.VERIFYING, Phase.SWEEPING, Phase.ENDED),
    Phase.VERIFYING: (Phase.SWEEPING,),
    Phase.DISCARDING: (Phase.SWEEPING, Phase.ENDED),
    Phase.SWEEPING: (Phase.ENDED,),
    Phase.ENDED: (),
}

Handler = Callable[[Any, int, Any], None]


class PhaseRow(NamedTuple):
    """What the driver does in a phase. `begin` is for phases that the state of the ledger can lead to; the others are
    begun by the one before."""

    finished: Handler
    late: Handler
    begin: Handler | None = None
