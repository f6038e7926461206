"""What has to happen in some hundred seeds, or they prove too little: each fault, each way a commit can end."""

from __future__ import annotations

from tests.sim.delivery.plan import ALL_FAULTS

ENDS = (
    "commit: delivered", "commit: already delivered", "commit: CommitAborted", "commit: CommitPending",
    "commit: CommitLost", "commit: fenced by another driver", "commit: a newer run took over",
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
    "request arrived after its client gave up", "batch retried",
)  # fmt: skip
# A slow connection is begun by the fault of that name, and counted when a host meets it.
REQUIRED = (*(f"fault {kind}" for kind in ALL_FAULTS), *ENDS, *SPARK)
