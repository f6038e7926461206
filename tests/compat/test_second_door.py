"""The second door, on every PySpark from 3.4 on."""

from __future__ import annotations

from tests.spark.test_cancelled_writes import (
    test_the_job_of_an_interrupted_write_is_cancelled_and_no_reader_waits,
)
from tests.spark.test_second_door import (
    test_a_failed_batch_that_the_users_code_swallows_does_not_harm_the_next_one,
    test_a_query_that_is_stopped_in_the_middle_of_a_batch_ends_and_goes_on,
    test_a_repeated_batch_is_skipped_and_a_new_checkpoint_is_not,
    test_a_row_that_is_a_stack_trace_ends_no_query_as_if_it_were_stopped,
    test_a_task_that_spark_repeats_is_written_once,
    test_a_write_says_what_it_wrote,
    test_a_write_that_fails_leaves_nothing_and_says_why,
    test_a_writer_without_a_checkpoint_is_refused_as_each_start_would_write_every_row_again,
    test_an_export_that_was_delivered_is_not_delivered_again,
    test_an_unnamed_query_in_the_checkpoint_folder_of_the_session_is_refused_and_a_named_one_goes_on,
    test_columns_are_written_whatever_the_others_are_called,
    test_frames_without_rows_or_partitions_and_frames_behind_a_shuffle_are_written,
    test_in_a_thread_of_ones_own_the_query_has_to_be_named,
    test_ten_threads_write_side_by_side,
    test_two_targets_have_names_of_their_own,
    test_update_and_complete_mode,
)

__all__ = [
    "test_a_failed_batch_that_the_users_code_swallows_does_not_harm_the_next_one",
    "test_a_query_that_is_stopped_in_the_middle_of_a_batch_ends_and_goes_on",
    "test_a_repeated_batch_is_skipped_and_a_new_checkpoint_is_not",
    "test_a_row_that_is_a_stack_trace_ends_no_query_as_if_it_were_stopped",
    "test_a_task_that_spark_repeats_is_written_once",
    "test_a_write_says_what_it_wrote",
    "test_a_write_that_fails_leaves_nothing_and_says_why",
    "test_a_writer_without_a_checkpoint_is_refused_as_each_start_would_write_every_row_again",
    "test_an_export_that_was_delivered_is_not_delivered_again",
    "test_an_unnamed_query_in_the_checkpoint_folder_of_the_session_is_refused_and_a_named_one_goes_on",
    "test_columns_are_written_whatever_the_others_are_called",
    "test_frames_without_rows_or_partitions_and_frames_behind_a_shuffle_are_written",
    "test_in_a_thread_of_ones_own_the_query_has_to_be_named",
    "test_ten_threads_write_side_by_side",
    "test_the_job_of_an_interrupted_write_is_cancelled_and_no_reader_waits",
    "test_two_targets_have_names_of_their_own",
    "test_update_and_complete_mode",
]
