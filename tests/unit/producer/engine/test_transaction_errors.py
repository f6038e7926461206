"""Every error code of every coordinator request: its effect on the call, the transaction and the producer.

A table row says what follows the first answer with that code: `again` (the same request once more, then success),
`abortable` (the call fails, abort and a new transaction succeed) or `fatal` (every later call gets the same error).
"""

from __future__ import annotations

import pytest

from kafka_sink.errors import AuthorizationError, BrokerError, KafkaSinkError, ProducerFenced, TransactionAborted
from kafka_sink.kafka.wire.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    PRODUCE,
    TXN_OFFSET_COMMIT,
    Api,
)
from tests.unit.producer.engine.transaction_driver import TransactionDriver, started

AGAIN, ABORTABLE, FATAL = "again", "abortable", "fatal"
NOT_COORDINATOR = (15, 16)
PASSING = (-1, 7, 14, 15, 16, 51)

TABLE: dict[Api, dict[str, tuple[int, ...]]] = {
    INIT_PRODUCER_ID: {AGAIN: (*PASSING[1:], 120), FATAL: (-1, 31, 35, 42, 47, 48, 49, 50, 53, 90, 9999)},
    ADD_PARTITIONS_TO_TXN: {
        AGAIN: (*PASSING, 3, 5, 6),
        ABORTABLE: (17, 29, 31, 35, 55, 59, 120, 9999),
        FATAL: (47, 48, 49, 53, 90),
    },
    ADD_OFFSETS_TO_TXN: {AGAIN: PASSING, ABORTABLE: (30, 59, 120), FATAL: (31, 35, 47, 48, 49, 53, 90, 9999)},
    TXN_OFFSET_COMMIT: {
        AGAIN: (*PASSING, 3),
        ABORTABLE: (12, 22, 25, 29, 30, 59, 82, 113, 120),
        FATAL: (35, 43, 47, 48, 49, 53, 90, 9999),
    },
    END_TXN: {AGAIN: PASSING, ABORTABLE: (120,), FATAL: (31, 35, 47, 48, 49, 53, 90, 9999)},
    FIND_COORDINATOR: {AGAIN: (-1, 7, 14, 15, 16), ABORTABLE: (30, 120), FATAL: (31, 35, 42, 53, 9999)},
}
ROWS = [
    (api, code, kind, version)
    for api, kinds in TABLE.items()
    for kind, codes in kinds.items()
    for code in codes
    for version in ((1,) if api in (ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN) else (1, 2))
]
IDS = [f"{api.name}-{code}-{kind}-{version}" for api, code, kind, version in ROWS]


def ask(driver: TransactionDriver, api: Api) -> int:
    """Makes the call of a user that leads to this request."""
    if api is INIT_PRODUCER_ID:
        return driver.init()
    driver.begin()
    if api in (ADD_OFFSETS_TO_TXN, TXN_OFFSET_COMMIT, FIND_COORDINATOR):
        return driver.send_offsets()
    driver.send()
    return driver.commit()


@pytest.mark.parametrize(("api", "code", "kind", "transaction_version"), ROWS, ids=IDS)
def test_what_a_code_does_to_call_transaction_and_producer(
    api: Api, code: int, kind: str, transaction_version: int
) -> None:
    driver = TransactionDriver(transaction_version, is_initialised=api is not INIT_PRODUCER_ID)
    driver.fail(api, code)
    before = driver.count(api)
    call = ask(driver, api)
    # Another coordinator is looked up at once; a coordinator that cannot answer yet is asked after a back-off.
    assert driver.is_waiting(call) or kind != AGAIN or code in NOT_COORDINATOR
    driver.run_for(2_000)
    if kind == AGAIN:
        assert driver.ok(call) and driver.count(api) >= before + 2
        return
    assert driver.count(api) == before + 1
    error = driver.refusal_of(call)
    if kind == FATAL:
        assert not isinstance(error, TransactionAborted)
        assert driver.engine.refusal is error and driver.refusal_of(driver.abort()) is error
        assert not driver.is_waiting(driver.close())
    else:
        assert isinstance(error, TransactionAborted) and error.__cause__ is not None and error.name == "PKS-5004"
        assert isinstance(driver.refusal_of(driver.commit()), TransactionAborted)
        abort = driver.abort()
        driver.run_for(1_000)
        assert driver.ok(abort) and driver.ok(driver.begin())
        assert driver.send() in driver.delivered and driver.ok(driver.commit())


def test_a_commit_that_comes_after_the_time_out_names_it() -> None:
    """Brokers of 4.x answer like this if they have aborted the transaction and nothing was sent since."""
    driver = TransactionDriver(2)
    driver.fail(END_TXN, 48)
    error = driver.refusal_of(ask(driver, END_TXN))
    assert "open for longer than transaction.timeout.ms=60000 and was aborted by the broker" in str(error)
    assert "INVALID_TXN_STATE (48)" in str(error)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(90, ProducerFenced), (47, ProducerFenced), (53, AuthorizationError), (49, BrokerError), (48, BrokerError)],
)
@pytest.mark.parametrize("api", [api for api in TABLE if api is not FIND_COORDINATOR], ids=lambda api: api.name)
def test_the_class_of_a_fatal_error_says_whose_fault_it_is(api: Api, code: int, kind: type[KafkaSinkError]) -> None:
    driver = TransactionDriver(1, is_initialised=api is not INIT_PRODUCER_ID)
    driver.fail(api, code)
    error = driver.refusal_of(ask(driver, api))
    assert type(error) is kind and "'ledger'" in str(error)
    if isinstance(error, BrokerError):
        assert error.name == "PKS-3004"
        assert error.code == code and error.api == api.name


# Produce: error codes of a leader for one batch, in both transaction versions.
PRODUCE_ABORTABLE = (-1, 17, 18, 21, 29, 32, 43, 47, 48, 76, 87, 120, 9999)
PRODUCE_AGAIN = (2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 51, 56, 72, 74, 75, 78, 89, 100, 103)
PRODUCE_FATAL = (31, 35, 49, 53, 90)


@pytest.mark.parametrize("code", PRODUCE_ABORTABLE, ids=str)
def test_a_batch_that_is_refused_forbids_the_commit_and_an_abort_gets_over_it(
    code: int, transaction_version: int
) -> None:
    driver = started(transaction_version)
    driver.fail(PRODUCE, code)
    batch = driver.send()
    assert batch in driver.failed
    assert isinstance(driver.engine.refusal, TransactionAborted)
    assert isinstance(driver.refusal_of(driver.commit()), TransactionAborted)
    assert driver.ok(driver.abort()) and driver.last(END_TXN).body["committed"] is False
    assert driver.ok(driver.begin()) and driver.send() in driver.delivered and driver.ok(driver.commit())


@pytest.mark.parametrize("code", PRODUCE_AGAIN, ids=str)
def test_passing_trouble_with_a_batch_does_not_touch_the_transaction(code: int, transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.fail(PRODUCE, code)
    batch = driver.send()
    commit = driver.commit()
    driver.run_for(2_000)
    assert batch in driver.delivered and driver.ok(commit)
    assert driver.epochs_and_sequences_sent == [(0, 0), (0, 1), (0, 1)]


@pytest.mark.parametrize("code", PRODUCE_FATAL, ids=str)
def test_a_batch_refused_for_good_ends_the_producer(code: int, transaction_version: int) -> None:
    driver = started(transaction_version)
    driver.fail(PRODUCE, code)
    batch = driver.send()
    assert batch in driver.failed
    error = driver.engine.refusal
    assert error is not None and not isinstance(error, TransactionAborted)
    assert driver.refusal_of(driver.abort()) is error
    asked = driver.names()
    driver.run_for(60_000)
    assert driver.names() == asked


def test_a_leader_that_misses_the_permission_for_the_id_names_the_id_and_not_the_topic(
    transaction_version: int,
) -> None:
    """As when it is revoked while a transaction writes."""
    driver = started(transaction_version)
    driver.fail(PRODUCE, 53)
    error = driver.error_of(driver.send())
    assert isinstance(error, AuthorizationError)
    assert str(error).endswith("The principal needs Write on transactional id 'ledger'")


def test_a_duplicate_in_the_log_is_a_success_without_an_offset() -> None:
    driver = started(1)
    driver.fail(PRODUCE, 46)
    batch = driver.send()
    assert driver.offset_of(batch) == -1 and driver.ok(driver.commit())


@pytest.mark.parametrize("code", [120, 30], ids=str)
def test_a_look_up_refused_while_nothing_can_be_aborted_is_repeated_with_a_pause(code: int) -> None:
    driver = started(1, brokers=2, coordinator=1)
    driver.disconnect(1)
    driver.run_for(1_000)
    driver.fail(END_TXN, 16)
    driver.fail(FIND_COORDINATOR, *[code] * 5)
    before = driver.count(FIND_COORDINATOR)
    abort = driver.abort()
    driver.run_for(150)
    assert driver.count(FIND_COORDINATOR) == before + 1
    driver.run_for(10_000)
    assert driver.ok(abort)


@pytest.mark.parametrize("api", [ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID], ids=lambda api: api.name)
@pytest.mark.parametrize("code", [90, 47], ids=str)
def test_fenced_while_the_transaction_is_aborted_is_final_and_answers_the_abort(api: Api, code: int) -> None:
    driver = TransactionDriver(1)
    driver.begin()
    driver.hold(api)
    driver.send()
    abort = driver.abort()
    driver.reply(api, code)
    assert isinstance(driver.engine.refusal, ProducerFenced)
    assert driver.ok(abort) if api is INIT_PRODUCER_ID else isinstance(driver.refusal_of(abort), ProducerFenced)
