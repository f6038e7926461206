"""The phases of one operation of the driver, as a table.

  START       which way: fence first, only look, or go on with what this process knows already
  FENCING     C1: InitProducerId on the driver's id
  CLAIMING    C1: a record of its own in the ledger, which proves where its end is
  READING     C1: the ledger, to the claim; without fencing, to the high watermark
  FINISHING   an open decision found there: EndTxn(commit) of all its transactions
  CLOSING     its done record, or its stuck record
  CHECKING    C2: is every transaction of this batch open, ours, and in time
  DECIDING    C3: the intent record. The decision falls here
  COMMITTING  C4: EndTxn(commit) of this batch's transactions
  RECORDING   C5: the done record, or the stuck record; also an operator's choice
  DISCARDING  EndTxn(abort) of transactions that no decision names
  VERIFYING   whether readers can see it, if an option asks for that
  SWEEPING    EndTxn(abort) of what nobody will end

From DECIDING there is no way to DISCARDING but by LOOK_AGAIN, and none at all from COMMITTING: a transaction of a
decision, made or in doubt, is aborted by no operation. A test walks the table to prove it. LOOK_AGAIN is for a record
that was refused and is certainly not written; what was decided before it stays decided (`Opening._decided`).
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


class Event(Enum):
    FENCE = "fence"
    CLAIM = "claim"
    READ = "read"
    # A write was refused as fenced and is certainly not in the ledger: look who came.
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


_TARGETS: Mapping[Event, Phase] = {
    Event.FENCE: Phase.FENCING,
    Event.CLAIM: Phase.CLAIMING,
    Event.READ: Phase.READING,
    Event.LOOK_AGAIN: Phase.READING,
    Event.FINISH: Phase.FINISHING,
    Event.CLOSE: Phase.CLOSING,
    Event.CHECK: Phase.CHECKING,
    Event.DECIDE: Phase.DECIDING,
    Event.COMMIT: Phase.COMMITTING,
    Event.RECORD: Phase.RECORDING,
    Event.DISCARD: Phase.DISCARDING,
    Event.VERIFY: Phase.VERIFYING,
    Event.SWEEP: Phase.SWEEPING,
    Event.END: Phase.ENDED,
}

# What may follow once the ledger is known.
_JUDGED = (Event.FENCE, Event.FINISH, Event.CHECK, Event.RECORD, Event.DISCARD, Event.SWEEP, Event.END)


def _rows(*events: Event) -> Mapping[Event, Phase]:
    return {event: _TARGETS[event] for event in events}


TRANSITIONS: Mapping[Phase, Mapping[Event, Phase]] = {
    Phase.START: _rows(Event.READ, *_JUDGED),
    Phase.FENCING: _rows(Event.CLAIM, Event.END),
    Phase.CLAIMING: _rows(Event.READ, Event.END),
    Phase.READING: _rows(*_JUDGED),
    # Judged again: an intent without a marker that turned out not to have been decided.
    Phase.FINISHING: _rows(Event.CLOSE, *_JUDGED),
    Phase.CLOSING: _rows(Event.LOOK_AGAIN, *_JUDGED),
    Phase.CHECKING: _rows(Event.DECIDE, Event.COMMIT, Event.DISCARD),
    Phase.DECIDING: _rows(Event.COMMIT, Event.LOOK_AGAIN, Event.END),
    Phase.COMMITTING: _rows(Event.RECORD, Event.VERIFY, Event.SWEEP, Event.END),
    Phase.RECORDING: _rows(Event.LOOK_AGAIN, Event.VERIFY, Event.SWEEP, Event.END),
    Phase.VERIFYING: _rows(Event.SWEEP),
    Phase.DISCARDING: _rows(Event.SWEEP, Event.END),
    Phase.SWEEPING: _rows(Event.END),
    Phase.ENDED: {},
}
