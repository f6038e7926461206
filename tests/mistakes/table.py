"""Every planted mistake of the commit: whether the simulation or the model must find it, and within which limit.

The docstring of the function that plants a mistake says what is wrong; pytest's `MonkeyPatch` undoes it. Without a
limit the simulation or the model does not search for the mistake: it does no harm there (the model has no pool, the
simulation's records are small), or it is too rare.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.mistakes import deciding, ending, naming
from tests.model.world import Budget
from tests.sim.delivery.breakers import (
    CANCELLED,
    COMMAND,
    EXPIRY,
    FENCED_READS,
    FOREIGN,
    FROZEN,
    LATE_LEADERS,
    LIES,
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


@dataclass(frozen=True)
class Seeds:
    """Search by the simulation: seeds from 1 to `limit`; each run breaks these assumptions about the environment."""

    limit: int
    breakers: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Search:
    """Search by the model: a world in which the mistake must do harm."""

    budget: Budget
    transaction_version: int = 2
    batches: int = 1
    states_max: int = 50_000
    has_labels: bool = False
    has_drafts: bool = False
    # Other tests find the mistake in every run, and this search takes as long as all others together.
    is_slow: bool = False


@dataclass(frozen=True)
class Mistake:
    plant: Callable[[pytest.MonkeyPatch], None]
    seeds: Seeds | None = None
    search: Search | None = None

    @property
    def name(self) -> str:
        return self.plant.__name__

    @property
    def what(self) -> str:
        return self.plant.__doc__ or ""


def seeds(limit: int, *breakers: str) -> Seeds:
    return Seeds(limit, frozenset(breakers))


MISTAKES = (
    Mistake(deciding.no_intent, seeds(20), Search(Budget(crashes=1))),
    Mistake(deciding.decision_not_durable, seeds(100)),
    Mistake(deciding.recorded_before_committed, seeds(100), Search(Budget(crashes=1))),
    Mistake(deciding.doubt_is_no, seeds(800)),
    Mistake(deciding.nameless_not_decided, seeds(300, UNNAMED)),
    Mistake(deciding.nameless_abort_without_ledger, seeds(300, UNNAMED)),
    Mistake(
        deciding.claim_of_another_label_is_a_rival,
        seeds(100, TWINS),
        Search(Budget(seconds=1, switches=1), has_labels=True),
    ),
    # tests/unit/commit/test_commit_histories.py finds it in every run.
    Mistake(deciding.open_decision_of_another_label_finished),
    Mistake(deciding.label_swept_by_its_neighbour, seeds(400, TWINS)),
    # tests/unit/commit/test_labels.py finds it in every run.
    Mistake(deciding.label_of_any_ledger),
    Mistake(deciding.no_fencing, seeds(100), Search(Budget(crashes=1))),
    Mistake(deciding.no_claim, seeds(2_000), Search(Budget(crashes=1, outdated=2))),
    Mistake(deciding.stale_identity_believed, seeds(20, PROCESSES), Search(Budget(processes=2), batches=3)),
    Mistake(deciding.expiry_is_a_rival, seeds(100, EXPIRY)),
    Mistake(deciding.claim_of_another_run_ignored, seeds(400)),
    Mistake(deciding.younger_run_taken_for_an_elder, seeds(1_000)),
    Mistake(deciding.open_decision_ignored, seeds(10)),
    Mistake(deciding.delivered_batch_delivered_again, seeds(5)),
    Mistake(deciding.set_back_is_not_noticed, seeds(20, SET_BACK)),
    Mistake(deciding.unmarked_intent_ignored, seeds(30, LOST_MARKERS), Search(Budget(crashes=1, markers=1))),
    # tests/unit/commit/test_undecided_intents.py finds it in every run.
    Mistake(
        deciding.unmarked_intent_believed,
        search=Search(Budget(deadlines=1, crashes=1, markers=1), states_max=1_000_000, has_drafts=True, is_slow=True),
    ),
    # tests/unit/commit/test_lost_markers.py finds it in every run.
    Mistake(
        deciding.open_intent_believed,
        search=Search(Budget(seconds=1, switches=2), 1, states_max=250_000, is_slow=True),
    ),
    Mistake(deciding.stable_offset_believed_unread, seeds(500, FENCED_READS)),
    Mistake(deciding.moved_checkpoint_is_new, seeds(50, MOVED)),
    # tests/unit/commit/test_queries.py finds it in every run; here no name is chosen anew.
    Mistake(deciding.name_of_earlier_believed),
    Mistake(deciding.plain_record_ignored, seeds(500, FOREIGN)),
    # tests/unit/commit/test_copied_late.py and tests/unit/commit/test_clusters_and_limits.py find these in every run;
    # here there is one cluster, and the cleaner may leave the copy alone.
    Mistake(deciding.copy_hides_a_later_batch),
    Mistake(deciding.cluster_not_compared),
    Mistake(deciding.fingerprint_not_compared, seeds(30, SET_BACK), Search(Budget(crashes=1, others=1))),
    Mistake(deciding.digest_not_compared, seeds(100, SET_BACK)),
    Mistake(deciding.record_not_read_back),
    Mistake(deciding.manifest_with_the_decision, seeds(100)),
    Mistake(deciding.recovery_forgets_the_manifest, seeds(200)),
    Mistake(deciding.manifest_of_another_topic, seeds(100)),
    Mistake(deciding.dead_letters_are_rows, seeds(100)),
    Mistake(deciding.last_receipt_taken_for_now, seeds(100)),
    # tests/unit/commit/test_closing_later.py finds both in every run. The first needs a slow record and a crash; the
    # second does no harm as long as each task asks for an epoch.
    Mistake(deciding.next_decision_does_not_wait),
    Mistake(deciding.closed_later_in_version_1),
    Mistake(deciding.closing_forgets_the_manifest, seeds(100)),
    # tests/unit/commit/test_late_markers.py finds it in every run.
    Mistake(
        deciding.late_marker_decides,
        search=Search(Budget(deadlines=1, restarts=1, copies=1), batches=2, states_max=400_000, is_slow=True),
    ),
    Mistake(ending.abort_after_intent, seeds(100), Search(Budget(deadlines=1, restarts=1))),
    Mistake(ending.wrong_version_on_repeat, seeds(100)),
    Mistake(ending.fenced_is_success, seeds(100), Search(Budget(time_outs=1), transaction_version=1)),
    Mistake(ending.never_is_done, seeds(100)),
    Mistake(ending.silence_is_consent, seeds(400)),
    Mistake(ending.no_is_believed, seeds(200, LIES)),
    Mistake(ending.marker_epoch_not_compared, seeds(100, LOST_MARKERS)),
    Mistake(ending.aborted_list_ignored, seeds(100), Search(Budget(time_outs=1), transaction_version=1)),
    # tests/unit/commit/test_verdict.py finds both in every run. Brokers of the simulation and the model show nothing
    # that may be open, and another record at such an offset is rare.
    Mistake(ending.row_of_another_believed),
    Mistake(ending.stable_offset_not_compared),
    Mistake(ending.partitions_not_compared, seeds(100, OPERATORS), Search(Budget(operators=1), 1)),
    # tests/unit/commit/test_ended_by_others.py finds it in every run; here leaders always tell.
    Mistake(ending.list_of_partitions_not_compared),
    Mistake(ending.leaders_not_asked, seeds(100, OPERATORS), Search(Budget(operators=1), 1)),
    Mistake(ending.start_offset_not_compared, seeds(100, OPERATORS), Search(Budget(operators=1))),
    Mistake(ending.lost_rows_not_looked_for, seeds(20, LOST_TAILS)),
    Mistake(ending.first_refusal_believed, seeds(50, FROZEN), Search(Budget(frozen=1))),
    Mistake(ending.sweep_of_every_run, seeds(1_000)),
    Mistake(ending.command_aborts_whatever_is_open, seeds(30, COMMAND)),
    Mistake(ending.stop_ignored, seeds(30, COMMAND), Search(Budget(commands=1, switches=3))),
    Mistake(ending.stopped_behind_the_fence, seeds(20, COMMAND)),
    Mistake(ending.command_fences_known_lines_alone, seeds(50, COMMAND)),
    Mistake(ending.no_sweep, seeds(20)),
    # tests/unit/commit/test_sweep.py finds it in every run.
    Mistake(ending.ids_of_an_open_decision_left_open),
    Mistake(ending.swept_once, seeds(20, CANCELLED)),
    Mistake(ending.task_does_not_ask, seeds(20, CANCELLED)),
    Mistake(ending.leaders_not_awaited, seeds(20)),
    # tests/unit/commit/test_leaders.py finds it in every run.
    Mistake(ending.repeated_without_leader),
    Mistake(ending.finished_without_leader, seeds(200)),
    Mistake(ending.leader_awaited_until_the_time_out, seeds(20, LATE_LEADERS)),
    Mistake(ending.help_without_leader, seeds(20, UNNAMED, LATE_LEADERS)),
    Mistake(ending.aborted_without_leader, seeds(100)),
    Mistake(ending.closed_without_leader, seeds(300)),
    Mistake(naming.ids_shared_between_runs, seeds(5), Search(Budget(crashes=1))),
    Mistake(naming.name_is_identity, seeds(30, TWINS)),
    Mistake(naming.late_init_ignored, seeds(100), Search(Budget())),
    Mistake(naming.pooled_id_used_by_two_attempts, seeds(20, POOL)),
    Mistake(naming.pooled_id_used_before_its_end, seeds(20, POOL)),
    Mistake(naming.epoch_of_the_last_transaction_goes_on, seeds(20, POOL)),
    # tests/unit/commit/test_identity_pool.py, tests/unit/producer/engine/test_transaction_go_on.py and
    # tests/integration/test_epochs_that_go_on.py find these in every run. The first costs a batch its commit only: its
    # transaction is not open.
    Mistake(naming.refused_epoch_believed),
    Mistake(naming.written_records_left_behind),
    Mistake(naming.last_epoch_ignored),
    Mistake(naming.version_1_goes_on),
    Mistake(naming.late_markers_ignored),
    # tests/integration/test_task_identities.py finds it in every run.
    Mistake(
        naming.pooled_id_that_missed_an_answer, search=Search(Budget(), batches=2, states_max=400_000, is_slow=True)
    ),
)
