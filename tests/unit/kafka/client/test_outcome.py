"""The meaning of each error code for a batch and for a transaction, compared with the Java client."""

from __future__ import annotations

import pytest

from kafka_sink.kafka.client.outcome import (
    CoordinatorOutcome,
    ProduceOutcome,
    coordinator_outcome,
    describe,
    is_definite,
    produce_outcome,
)
from kafka_sink.kafka.wire.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
)
from kafka_sink.kafka.wire.codes import CODES

TRANSACTIONAL = (
    ADD_OFFSETS_TO_TXN, ADD_PARTITIONS_TO_TXN, END_TXN, FIND_COORDINATOR, INIT_PRODUCER_ID, TXN_OFFSET_COMMIT,
)  # fmt: skip


PRODUCE_OUTCOMES = {
    ProduceOutcome.ACKED: (0, 46),
    ProduceOutcome.RETRY: (2, 7, 19, 20, 51, 89),
    ProduceOutcome.RETRY_ELSEWHERE: (3, 5, 6, 56, 74, 100),
    ProduceOutcome.SPLIT: (10,),
    ProduceOutcome.OUT_OF_ORDER: (45,),
    ProduceOutcome.STATE_LOST: (59,),
    ProduceOutcome.REFUSED: (-1, 17, 18, 29, 32, 43, 87, 4711),
    ProduceOutcome.ABORT: (47, 48, 120),
    ProduceOutcome.FATAL: (31, 35, 53, 90),
}


@pytest.mark.parametrize("outcome", PRODUCE_OUTCOMES)
def test_produce_answers_are_read_as_java_reads_them(outcome: ProduceOutcome) -> None:
    assert [code for code in PRODUCE_OUTCOMES[outcome] if produce_outcome(code) is not outcome] == []


def test_every_retriable_code_is_retried_for_produce_and_no_final_one_simply_is() -> None:
    retried = {ProduceOutcome.RETRY, ProduceOutcome.RETRY_ELSEWHERE}
    assert [code for code, facts in CODES.items() if facts.retriable != (produce_outcome(code) in retried)] == []


def test_codes_that_can_follow_an_append_leave_a_doubt_and_those_that_come_instead_of_one_do_not() -> None:
    newer = 4711  # nobody here knows what it means
    assert [code for code in (-1, 6, 7, 20, 56, newer) if is_definite(code)] == []
    assert [code for code in (0, 2, 10, 19, 29, 45, 46, 59, 87) if not is_definite(code)] == []


@pytest.mark.parametrize("api", TRANSACTIONAL, ids=lambda api: api.name)
@pytest.mark.parametrize(
    ("error_code", "verdict"),
    [
        (0, CoordinatorOutcome.DONE),
        (14, CoordinatorOutcome.REPEAT),
        (15, CoordinatorOutcome.FIND_COORDINATOR),
        (16, CoordinatorOutcome.FIND_COORDINATOR),
        (51, CoordinatorOutcome.REPEAT_SOON),
        (90, CoordinatorOutcome.FENCED),
        (53, CoordinatorOutcome.UNAUTHORIZED),
    ],
)
def test_success_and_trouble_with_the_coordinator_mean_the_same_for_every_request(
    api: object, error_code: int, verdict: CoordinatorOutcome
) -> None:
    assert coordinator_outcome(api.key, error_code) is verdict  # type: ignore[attr-defined]


def test_the_same_stale_epoch_is_final_from_a_coordinator_and_abortable_from_a_leader() -> None:
    assert coordinator_outcome(END_TXN.key, 47) is CoordinatorOutcome.FENCED
    assert produce_outcome(47) is ProduceOutcome.ABORT


@pytest.mark.parametrize(
    ("committing", "verdict"), [(True, CoordinatorOutcome.ABORT), (False, CoordinatorOutcome.FATAL)]
)
def test_a_commit_may_be_turned_into_an_abort_but_an_abort_into_nothing(
    committing: bool, verdict: CoordinatorOutcome
) -> None:
    assert coordinator_outcome(END_TXN.key, 120, committing=committing) is verdict


def test_an_unknown_code_keeps_its_number_in_texts() -> None:
    assert "4711" in describe(4711)
    assert describe(6).startswith("NOT_LEADER_OR_FOLLOWER (6)")
