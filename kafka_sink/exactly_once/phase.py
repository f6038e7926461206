"""The phases of one operation of the driver, as a table.

  START       selects the way: fence first, only read, or continue with what this process already knows
  FENCING     C1: InitProducerId on the driver's id
  CLAIMING    C1: a record of this driver in the ledger, which proves where the ledger ends
  READING     C1: the ledger, to the claim; without fencing, to the high watermark
  FINISHING   an open decision found there: EndTxn(commit) of all its transactions
  CLOSING     its done record, or its stuck record
  CHECKING    C2: is every transaction of this batch open, ours, and in time; has every partition of it a leader
  DECIDING    C3: the intent record, which is the decision
  COMMITTING  C4: EndTxn(commit) of this batch's transactions
  RECORDING   C5: the done record, or the stuck record; also an operator's choice
  DISCARDING  EndTxn(abort) of transactions that are part of no decision
  VERIFYING   whether readers can see the batch, if an option requests that
  SWEEPING    EndTxn(abort) of leftover transactions

After DECIDING, DISCARDING is reachable only through LOOK_AGAIN, and after COMMITTING not at all: no operation aborts a
transaction of a decision, made or in doubt. A test walks the table to prove it. LOOK_AGAIN is for a record that was
refused and is certainly not written; earlier decisions stand (`Committer._decided`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Phase(Enum):
    START = "start"
    FENCING = "fencing"
    CLAIMING = "claiming"
    READING = "reading"
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


class PhaseEvent(Enum):
    FENCE = "fence"
    CLAIM = "claim"
    READ = "read"
    # A write was refused as fenced and is certainly not in the ledger: read who took over.
    LOOK_AGAIN = "look again"
    FINISH = "finish"
    CLOSE = "close"
    CHECK = "check"
    DECIDE = "decide"
    COMMIT = "commit"
    RECORD = "record"
    DISCARD = "discard"
    VERIFY = "verify"
    SWEEP = "sweep"
    END = "end"


_TARGETS: Mapping[PhaseEvent, Phase] = {
    PhaseEvent.FENCE: Phase.FENCING,
    PhaseEvent.CLAIM: Phase.CLAIMING,
    PhaseEvent.READ: Phase.READING,
    PhaseEvent.LOOK_AGAIN: Phase.READING,
    PhaseEvent.FINISH: Phase.FINISHING,
    PhaseEvent.CLOSE: Phase.CLOSING,
    PhaseEvent.CHECK: Phase.CHECKING,
    PhaseEvent.DECIDE: Phase.DECIDING,
    PhaseEvent.COMMIT: Phase.COMMITTING,
    PhaseEvent.RECORD: Phase.RECORDING,
    PhaseEvent.DISCARD: Phase.DISCARDING,
    PhaseEvent.VERIFY: Phase.VERIFYING,
    PhaseEvent.SWEEP: Phase.SWEEPING,
    PhaseEvent.END: Phase.ENDED,
}

# What may follow once the ledger is known.
_JUDGED = (
    PhaseEvent.FENCE,
    PhaseEvent.FINISH,
    PhaseEvent.CHECK,
    PhaseEvent.RECORD,
    PhaseEvent.DISCARD,
    PhaseEvent.SWEEP,
    PhaseEvent.END,
)


def _rows(*events: PhaseEvent) -> Mapping[PhaseEvent, Phase]:
    return {event: _TARGETS[event] for event in events}


TRANSITIONS: Mapping[Phase, Mapping[PhaseEvent, Phase]] = {
    Phase.START: _rows(PhaseEvent.READ, *_JUDGED),
    Phase.FENCING: _rows(PhaseEvent.CLAIM, PhaseEvent.END),
    Phase.CLAIMING: _rows(PhaseEvent.READ, PhaseEvent.END),
    Phase.READING: _rows(*_JUDGED),
    # Judged again if an intent without a marker turned out to be undecided.
    Phase.FINISHING: _rows(PhaseEvent.CLOSE, *_JUDGED),
    Phase.CLOSING: _rows(PhaseEvent.LOOK_AGAIN, *_JUDGED),
    Phase.CHECKING: _rows(PhaseEvent.DECIDE, PhaseEvent.COMMIT, PhaseEvent.DISCARD),
    Phase.DECIDING: _rows(PhaseEvent.COMMIT, PhaseEvent.LOOK_AGAIN, PhaseEvent.END),
    Phase.COMMITTING: _rows(PhaseEvent.RECORD, PhaseEvent.VERIFY, PhaseEvent.SWEEP, PhaseEvent.END),
    Phase.RECORDING: _rows(PhaseEvent.LOOK_AGAIN, PhaseEvent.VERIFY, PhaseEvent.SWEEP, PhaseEvent.END),
    Phase.VERIFYING: _rows(PhaseEvent.SWEEP),
    Phase.DISCARDING: _rows(PhaseEvent.SWEEP, PhaseEvent.END),
    Phase.SWEEPING: _rows(PhaseEvent.END),
    Phase.ENDED: {},
}
