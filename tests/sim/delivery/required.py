"""What must happen in a large run, or it proves too little: each fault, each outcome of a commit, the purpose of each
breaker."""

from __future__ import annotations

from collections.abc import Mapping

from tests.sim.delivery.assumptions import LIES
from tests.sim.delivery.breakers import (
    CANCELLED,
    COMMAND,
    EXPIRY,
    FAULTS_OF,
    FENCED_READS,
    FOREIGN,
    FROZEN,
    LATE_LEADERS,
    LOST_MARKERS,
    LOST_TAILS,
    MOVED,
    OPERATORS,
    POOL,
    PROCESSES,
    SET_BACK,
    TWINS,
    UNNAMED,
)
from tests.sim.delivery.breakers import LIES as LYING
from tests.sim.delivery.leaders import CAUSES
from tests.sim.delivery.operators import WAYS
from tests.sim.delivery.plan import ALL_FAULTS, LEADERLESS

ENDS = (
    "commit: delivered", "commit: already delivered", "commit: CommitAborted", "commit: CommitPending",
    "commit: CommitLost", "commit: fenced by another driver",
    "commit: decision in doubt", "commit: done not recorded", "commit: decided and pending",
    "commit: transaction timed out before the decision",
    "commit: too little time left", "commit: deadline before the decision",
    "recover: nothing to do", "recover: recovered", "recover: CommitPending", "recover: CommitLost",
    "recover: CommitAborted", "abort: aborted", "abort: left alone", "finish: CommitLost", "accept: resolved",
    "replay: resolved", "all of a batch lost", "part of a batch lost", "lost batch is run again",
    "lost batch was accepted",
)  # fmt: skip
SPARK = (
    "Spark's commit log was written by another driver", "a label written again", "attempt goes on as a zombie",
    "attempt ended that nobody waited for", "receipt that nobody took", "losing attempt", "batch without rows",
    "driver crashed in commit", "driver crashed in recover", "driver crashed in abort", "driver crashed in between",
    "down for longer than a transaction lives", "silent executor was replaced", "producer started over",
    "transactional id given up", "dangling transactions swept", "note: not every broker listed its transactions",
    "request arrived after its client gave up", "batch retried", "closed after the commit",
    "not closed after the commit", "commit waits for the record of the last one",
)  # fmt: skip
SET_BACK_BY = ("0", "1", "2", "3 or more")
ROWS = ("the same rows", "other rows")
LEADERS = (
    *(f"marker dropped: {cause}" for cause in CAUSES), "EndTxn sent without a leader at the deadline",
    "EndTxn sent without a leader at the last call",
    "leader wait before a decision", "leader wait: commit transaction", "leader wait: abort transaction",
    "operator ended a forgotten transaction: commit", "operator ended a forgotten transaction: abort",
)  # fmt: skip
# A breaker that is enabled but has no effect breaks nothing.
OF_BREAKERS: Mapping[str, tuple[str, ...]] = {
    PROCESSES: ("commit moved to another process", "commit came back to an earlier process"),
    TWINS: (),
    SET_BACK: (
        *(f"checkpoint set back by {steps}, {rows}" for steps in SET_BACK_BY for rows in ROWS),
        "checkpoint put back", "commit: checkpoint rolled back", "commit: other rows under the same batch id",
        "commit: other rows under the same batch id, with a warning",
        "commit: refused after the checkpoint was set back", "a label written again with other rows",
    ),
    LOST_MARKERS: ("marker of an aborted ledger record is lost",),
    EXPIRY: ("driver's id expired", "task's id expired"),
    LYING: tuple(f"lie: {api} answered with {code}" for api, codes in LIES.items() for code in codes),
    POOL: (
        "transactional id used again", "task went on with an expected epoch", "another client took an epoch",
        "expected epoch was refused",
    ),
    OPERATORS: (
        *(f"ended by an operator: {way}" for way in WAYS), "commit: a partition is not in the transaction any more",
        "commit: a part of the transaction is closed",
    ),
    COMMAND: (
        "aborted by a command", "command: done", "command: done, with notes", "command: died", "command: gave up",
        "command paused", "command died between its aborts", "commit: refused because of a command",
    ),
    UNNAMED: (
        "only the process that commits died", "abort: recovered", "open decision of another write",
        "decision of another write closed", "a write without a label is lost in part",
    ),
    CANCELLED: (
        "worker of a cancelled job lives on", "worker of a cancelled job asked in time",
        "transaction of a cancelled job swept",
    ),
    FOREIGN: ("commit: refused by a foreign record", "recover: refused by a foreign record",
              "operator copied a ledger record again"),
    MOVED: ("commit: the ledger has another name for the query",),
    LOST_TAILS: ("commit: acknowledged rows are lost",),
    FROZEN: ("what refuses a batch is asked for again",),
    LATE_LEADERS: ("decided transaction waits for a leader in time",),
    FENCED_READS: ("driver's open record aborted while the ledger was read",),
}  # fmt: skip
# The fault slow_connect only makes links slow; "fault slow connect" is counted when a host connects over one.
REQUIRED = (
    *(f"fault {kind}" for kind in (*ALL_FAULTS, *LEADERLESS, *FAULTS_OF.values())), *ENDS, *SPARK, *LEADERS,
    *(what for found in OF_BREAKERS.values() for what in found),
)  # fmt: skip
