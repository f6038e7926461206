"""What each error code means for a batch and for a transaction, against what the Java client does with it."""

from __future__ import annotations

import pytest

from kafka_sink.client.outcome import (
    CoordinatorVerdict,
    ProduceOutcome,
    coordinated_verdict,
    describe,
    is_definite,
    produce_outcome,
)
from kafka_sink.wire.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
)
from kafka_sink.wire.codes import CODES

TRANSACTIONAL = (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    TXN_OFFSET_COMMIT,
)


@pytest.mark.parametrize(
    ("error_code", "outcome"),
    [
        (0, ProduceOutcome.ACKED),
        (46, ProduceOutcome.ACKED),
        (2, ProduceOutcome.RETRY),
        (7, ProduceOutcome.RETRY),
        (19, ProduceOutcome.RETRY),
        (20, ProduceOutcome.RETRY),
        (51, ProduceOutcome.RETRY),
        (89, ProduceOutcome.RETRY),
        (3, ProduceOutcome.RETRY_ELSEWHERE),
        (5, ProduceOutcome.RETRY_ELSEWHERE),
        (6, ProduceOutcome.RETRY_ELSEWHERE),
        (56, ProduceOutcome.RETRY_ELSEWHERE),
        (74, ProduceOutcome.RETRY_ELSEWHERE),
        (100, ProduceOutcome.RETRY_ELSEWHERE),
        (10, ProduceOutcome.SPLIT),
        (45, ProduceOutcome.OUT_OF_ORDER),
        (59, ProduceOutcome.STATE_LOST),
        (-1, ProduceOutcome.REFUSED),
        (17, ProduceOutcome.REFUSED),
        (18, ProduceOutcome.REFUSED),
        (29, ProduceOutcome.REFUSED),
        (32, ProduceOutcome.REFUSED),
        (43, ProduceOutcome.REFUSED),
        (87, ProduceOutcome.REFUSED),
        (47, ProduceOutcome.ABORT),
        (48, ProduceOutcome.ABORT),
        (120, ProduceOutcome.ABORT),
        (31, ProduceOutcome.FATAL),
        (35, ProduceOutcome.FATAL),
        (53, ProduceOutcome.FATAL),
        (90, ProduceOutcome.FATAL),
        (4711, ProduceOutcome.REFUSED),
    ],
)
def test_produce_answers_are_read_as_java_reads_them(error_code: int, outcome: ProduceOutcome) -> None:
    assert produce_outcome(error_code) is outcome


def test_every_retriable_code_is_retried_for_produce() -> None:
    retried = {ProduceOutcome.RETRY, ProduceOutcome.RETRY_ELSEWHERE}
    assert [
        number for number, facts in CODES.items() if facts.retriable and produce_outcome(number) not in retried
    ] == []


def test_no_final_code_is_simply_retried_for_produce() -> None:
    retried = {ProduceOutcome.RETRY, ProduceOutcome.RETRY_ELSEWHERE}
    final = [number for number, facts in CODES.items() if not facts.retriable]
    assert [number for number in final if produce_outcome(number) in retried] == []


@pytest.mark.parametrize("error_code", [-1, 6, 7, 20, 56])
def test_codes_that_can_follow_an_append_leave_a_doubt(error_code: int) -> None:
    assert not is_definite(error_code)


@pytest.mark.parametrize("error_code", [0, 2, 10, 19, 29, 45, 46, 59, 87])
def test_codes_that_come_instead_of_an_append_leave_none(error_code: int) -> None:
    assert is_definite(error_code)


@pytest.mark.parametrize("api", TRANSACTIONAL, ids=lambda api: api.name)
def test_success_is_done_for_every_transactional_request(api: object) -> None:
    assert coordinated_verdict(api.key, 0) is CoordinatorVerdict.DONE  # type: ignore[attr-defined]


@pytest.mark.parametrize("api", TRANSACTIONAL, ids=lambda api: api.name)
@pytest.mark.parametrize(
    ("error_code", "verdict"),
    [
        (14, CoordinatorVerdict.REPEAT),
        (15, CoordinatorVerdict.FIND_COORDINATOR),
        (16, CoordinatorVerdict.FIND_COORDINATOR),
        (51, CoordinatorVerdict.REPEAT_SOON),
        (90, CoordinatorVerdict.FENCED),
        (53, CoordinatorVerdict.UNAUTHORIZED),
    ],
)
def test_trouble_with_the_coordinator_means_the_same_for_every_request(
    api: object, error_code: int, verdict: CoordinatorVerdict
) -> None:
    assert coordinated_verdict(api.key, error_code) is verdict  # type: ignore[attr-defined]


def test_the_same_stale_epoch_is_final_from_a_coordinator_and_abortable_from_a_leader() -> None:
    assert coordinated_verdict(END_TXN.key, 47) is CoordinatorVerdict.FENCED
    assert produce_outcome(47) is ProduceOutcome.ABORT


@pytest.mark.parametrize(
    ("committing", "verdict"), [(True, CoordinatorVerdict.ABORT), (False, CoordinatorVerdict.FATAL)]
)
def test_a_commit_may_be_turned_into_an_abort_but_an_abort_into_nothing(
    committing: bool, verdict: CoordinatorVerdict
) -> None:
    assert coordinated_verdict(END_TXN.key, 120, committing=committing) is verdict


def test_an_unknown_code_keeps_its_number_in_texts() -> None:
    assert "4711" in describe(4711)
    assert describe(6).startswith("NOT_LEADER_OR_FOLLOWER (6)")
