"""How the batch of a Spark query becomes visible exactly once: receipts, the ledger, the driver's machine. No I/O.

identity -> receipt -> ledger (records and what they mean), ledger_codec (their bytes) -> inquiry, part (asking) ->
ledger_read, preflight, ledger_write, ending, sweep (C1 to C5) -> judgement, phase, committer (the machine).
"""
