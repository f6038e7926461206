"""How the batch of a Spark query becomes visible exactly once: receipts, ledger, the driver's state machine.

identity -> receipt -> ledger (records and what they mean), ledger_codec (their bytes) -> asks, commit_step (shared
by every step) -> verdict, marker_search (how transactions ended, as logs tell it) -> takeover, ledger_read, preflight,
ledger_write, end_txn, sweep (the steps C1 to C5) -> next_step, phase, committer (the state machine). All that is pure;
admin/ carries the requests out.
"""
