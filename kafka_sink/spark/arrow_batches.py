"""How much Spark passes to a Python process at a time: its settings, and a size that is fast whatever the rows are.

Batches of Spark's default of 10,000 rows are as fast with rows of 1 kB, and slower with rows of 10 kB
(docs/performance.md).
"""

from __future__ import annotations

ARROW_ROWS, ROWS_DEFAULT = "spark.sql.execution.arrow.maxRecordsPerBatch", 10_000
# From Spark 4.1 on.
ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
GOOD_BYTES = 4 << 20
# As Spark reads a size; and where it has no limit in bytes, as rows of 8 kB.
GOOD_SIZE, GOOD_ROWS = f"{GOOD_BYTES >> 20}m", 500
LARGE_ARROW_BATCHES = (
    "Spark passes more than 32 MB at a time. About 4 MB are faster (up to 1.3 times with rows of 10 kB) and take less "
    f"memory: set {ARROW_BYTES}={GOOD_SIZE} with PySpark 4.1 or newer, else {ARROW_ROWS} to 4 MB divided by the size "
    "of a row"
)
