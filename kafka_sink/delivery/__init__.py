"""How the batch of a Spark query becomes visible exactly once: receipts, the ledger, the driver's machine. No I/O."""
