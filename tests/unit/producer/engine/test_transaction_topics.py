"""A topic that is deleted and created again while a transaction writes to it: nothing is left of earlier records."""

from __future__ import annotations

from kafka_sink.kafka.wire.apis import METADATA
from kafka_sink.producer.engine.commands import StartOver
from tests.unit.producer.engine.transaction_driver import TransactionDriver

NEW_ID = bytes(15) + b"\x99"


def recreate(driver: TransactionDriver) -> None:
    driver.cluster.topic_ids["t"] = NEW_ID


def learn_of_it(driver: TransactionDriver) -> None:
    driver.run_for(driver.options.metadata_max_age_ms)


def ids_in_receipt(driver: TransactionDriver) -> dict[str, bytes]:
    driver.send(0)
    return dict(driver.receipt_of(driver.prepare()).topic_ids)


def test_a_transaction_whose_records_went_to_two_topics_of_one_name_has_to_be_aborted(transaction_version: int) -> None:
    driver = TransactionDriver(transaction_version)
    driver.begin()
    driver.send(0)
    recreate(driver)
    learn_of_it(driver)
    driver.send(1)
    assert "t was deleted and created again" in str(driver.refusal_of(driver.prepare()))
    assert driver.ok(driver.abort())
    driver.begin()
    assert ids_in_receipt(driver) == {"t": NEW_ID}


def start_over(driver: TransactionDriver) -> None:
    assert driver.ok(driver._call(StartOver(driver.operation_id(), "another id")))
    assert driver.ok(driver.init())
    driver.begin()


def test_a_producer_that_starts_over_learns_of_the_new_topic_although_produce_goes_by_name() -> None:
    """The leader takes the records for the new topic without a word. With the old id the batch would be refused."""
    driver = TransactionDriver(1)
    driver.begin()
    driver.send(0)
    assert driver.ok(driver.commit())
    recreate(driver)
    start_over(driver)
    assert ids_in_receipt(driver) == {"t": NEW_ID}


def test_a_receipt_has_no_id_from_metadata_that_are_older_than_its_producer() -> None:
    driver = TransactionDriver(1)
    driver.begin()
    driver.send(0)
    assert driver.ok(driver.commit())
    driver.engine.metadata.request_news = lambda: 0  # type: ignore[method-assign]
    start_over(driver)
    assert ids_in_receipt(driver) == {}


def test_a_receipt_has_no_id_from_an_answer_that_was_requested_before_its_producer() -> None:
    driver = TransactionDriver(1)
    driver.begin()
    driver.send(0)
    assert driver.ok(driver.commit())
    driver.run_for(1_000)
    answer, driver.cluster.scripts[METADATA.key] = driver.cluster.metadata_body, lambda _: None
    driver.engine.metadata.request_update()
    driver.run()
    (older,) = driver.cluster.pending_of(METADATA)
    body = answer(older)
    recreate(driver)
    assert driver.ok(driver._call(StartOver(driver.operation_id(), "another id")))
    driver.cluster.answer(older, body)
    assert driver.ok(driver.init()) and driver.ok(driver.begin())
    assert ids_in_receipt(driver) == {}


def test_a_receipt_has_the_id_that_produce_named_however_old_the_metadata_are() -> None:
    """The leader has no other topic of that id, so the records are in this one."""
    driver = TransactionDriver(2)
    driver.begin()
    driver.send(0)
    assert driver.ok(driver.commit())
    start_over(driver)
    assert ids_in_receipt(driver) == {"t": driver.cluster.topic_ids["t"]}
