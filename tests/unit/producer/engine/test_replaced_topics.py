"""A topic that is created again with fewer partitions: what waits for one of the others is given up at once."""

from __future__ import annotations

import pytest

from kafka_sink.errors import TransactionAborted
from kafka_sink.kafka.wire.apis import END_TXN, METADATA
from kafka_sink.producer.engine.commands import Append
from tests.unit.producer.engine.driver import EngineDriver, new_batch
from tests.unit.producer.engine.fake_cluster import FakeCluster
from tests.unit.producer.engine.transaction_driver import TransactionDriver

NEW_ID, NEWEST_ID = bytes(15) + b"\x99", bytes(15) + b"\xaa"
UNKNOWN_TOPIC_ID = 100


def recreate(driver: EngineDriver, partitions: int = 1, topic_id: bytes = NEW_ID) -> None:
    driver.cluster.topics["t"] = dict.fromkeys(range(partitions), 0)
    driver.cluster.topic_ids["t"] = topic_id


def sent_then_recreated() -> EngineDriver:
    """A batch of partition 1 was refused by the leader, which knows the topic's old id no more."""
    driver = EngineDriver()
    driver.sleep(1_000)
    driver.send(1)
    recreate(driver)
    driver.answer(UNKNOWN_TOPIC_ID)
    return driver


def test_a_batch_of_a_partition_that_is_gone_fails_as_soon_as_a_second_answer_shows_the_new_topic() -> None:
    driver = sent_then_recreated()
    (batch,) = driver.engine._batches.incomplete
    assert driver.is_open(batch), "one answer may be of a broker that lags behind"
    asked = len(driver.cluster.requests_of(METADATA))
    driver.sleep_until_due()
    error = driver.error_of(batch)
    assert len(driver.cluster.requests_of(METADATA)) == asked + 1
    assert error.name == "PKS-5010" and not error.ambiguous  # type: ignore[attr-defined]
    assert (
        "topic t was deleted and created again: it had 2 partitions (topic id AAAAAAAAAAAAAAAAAAAAAQ), the new one "
        "has 1 (AAAAAAAAAAAAAAAAAAAAmQ), and partition 1 is gone. They are not in the log"
    ) in str(error)


def test_a_batch_that_may_be_in_the_old_log_is_reported_as_such() -> None:
    driver = EngineDriver()
    driver.sleep(1_000)
    batch = driver.send(1)
    recreate(driver)
    driver.disconnect()
    driver.sleep(1_000)
    driver.sleep(1_000)
    assert driver.error_of(batch).ambiguous  # type: ignore[attr-defined]


def test_rows_that_were_put_into_batches_before_the_change_was_known_fail_too() -> None:
    driver = sent_then_recreated()
    driver.sleep_until_due()
    late = new_batch(1, opened_ms=driver.now_ms)
    driver.run(Append([late]))
    assert driver.error_of(late).name == "PKS-5010"


def test_batches_of_the_other_partitions_go_into_the_new_topic() -> None:
    driver = sent_then_recreated()
    driver.sleep_until_due()
    batch = driver.send(0)
    driver.answer()
    assert batch in driver.delivered


def test_a_broker_that_lags_behind_takes_no_partition_away() -> None:
    driver = EngineDriver()
    driver.sleep(1_000)
    batch = driver.send(1)
    recreate(driver)
    driver.answer(UNKNOWN_TOPIC_ID)
    recreate(driver, 2, bytes(15) + b"\x01")
    for _ in range(3):
        driver.sleep(200)
    assert driver.is_open(batch)
    driver.answer()
    assert batch in driver.delivered


def test_a_topic_that_is_created_once_more_with_enough_partitions_gets_the_batch() -> None:
    driver = sent_then_recreated()
    (batch,) = driver.engine._batches.incomplete
    recreate(driver, 3, NEWEST_ID)
    for _ in range(3):
        driver.sleep(200)
    driver.answer()
    assert batch in driver.delivered


def test_a_topic_that_is_created_again_with_more_partitions_loses_nothing() -> None:
    driver = EngineDriver()
    driver.sleep(1_000)
    batch = driver.send(1)
    recreate(driver, 3)
    driver.answer(UNKNOWN_TOPIC_ID)
    driver.sleep(1_000)
    driver.answer()
    assert batch in driver.delivered


def test_without_topic_ids_a_batch_waits_for_its_partition_as_long_as_for_any_other() -> None:
    cluster = FakeCluster({0: ("host0", 9092)}, {"t": {0: 0, 1: 0}}, api_versions={METADATA.key: (4, 9)})
    driver = EngineDriver(cluster=cluster, delivery_timeout_ms=10_000, request_timeout_ms=5_000)
    driver.sleep(1_000)
    batch = driver.send(1)
    recreate(driver)
    driver.answer(3)
    for _ in range(8):
        driver.sleep(1_000)
    assert driver.is_open(batch)
    driver.sleep(2_000)
    assert "it was created again with fewer partitions" in str(driver.error_of(batch))


@pytest.mark.parametrize("call", ["commit", "prepare"])
def test_a_transaction_that_waits_for_such_a_batch_is_aborted_at_once(transaction_version: int, call: str) -> None:
    driver = TransactionDriver(transaction_version)
    driver.begin()
    driver.run_for(1_000)
    recreate(driver)
    driver.engine.metadata.request_update()
    driver.run()
    driver.send(0)
    batch = new_batch(1, opened_ms=driver.now_ms)
    driver.run(Append([batch]))
    waiting = getattr(driver, call)()
    driver.run_for(1_000)
    error = driver.refusal_of(waiting)
    assert isinstance(error, TransactionAborted) and "partition 1 is gone" in str(error)
    assert driver.ok(driver.abort()) and driver.last(END_TXN).body["committed"] is False
