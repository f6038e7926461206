"""The states of a transaction, by the names that coordinators give them in DescribeTransactions and ListTransactions.

"Prepare" means: its end is decided, and markers are being written. "Complete": all have been.
"""

from __future__ import annotations

ONGOING = "Ongoing"
PREPARE_COMMIT, COMPLETE_COMMIT = "PrepareCommit", "CompleteCommit"
PREPARE_ABORT, COMPLETE_ABORT = "PrepareAbort", "CompleteAbort"
