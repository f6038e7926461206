"""Exports in chunks, on every PySpark from 3.4 on: the same rows are in a chunk, and what is delivered is skipped."""

from __future__ import annotations

from tests.spark.test_chunks import (
    test_a_chunk_of_a_partitioned_table_reads_its_own_folders_only,
    test_a_run_that_failed_in_one_chunk_is_followed_by_one_that_writes_the_rest,
    test_each_row_is_in_one_chunk_and_a_second_run_starts_no_task,
    test_the_chunk_of_a_row_follows_from_the_text_of_its_column_in_every_session,
)
from tests.spark.test_long_exports import (
    single_rows,
    test_a_write_that_takes_too_long_is_warned_about_refused_and_told_to_be_divided,
)

__all__ = [
    "single_rows",
    "test_a_chunk_of_a_partitioned_table_reads_its_own_folders_only",
    "test_a_run_that_failed_in_one_chunk_is_followed_by_one_that_writes_the_rest",
    "test_a_write_that_takes_too_long_is_warned_about_refused_and_told_to_be_divided",
    "test_each_row_is_in_one_chunk_and_a_second_run_starts_no_task",
    "test_the_chunk_of_a_row_follows_from_the_text_of_its_column_in_every_session",
]
