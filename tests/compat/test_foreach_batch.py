"""foreachBatch: a repeated batch is skipped, and another checkpoint is another query."""

from __future__ import annotations

from tests.spark.test_foreach_batch import (
    test_inside_foreach_batch_a_repeated_batch_is_skipped_and_a_new_checkpoint_is_not as test_a_repetition_is_skipped,
)

__all__ = ["test_a_repetition_is_skipped"]
