"""The name of a batch write in the ledger: a number without a query is refused before anything is sent."""

from __future__ import annotations

import pytest

from kafka_sink.commit.receipt import BatchKey
from kafka_sink.errors import ConfigError
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.spark.batch_name import batch_of_task, make_batch_key


def named(**settings: str) -> BatchKey:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return make_batch_key(parse_sink_options({"kafka.bootstrap.servers": "h:1", "sink.id": "orders", **given}))


def test_a_number_with_a_query_is_a_batch_of_that_query() -> None:
    key = named(batch_id="7", query_id="orders-2")
    assert key == BatchKey("orders-2", 7)
    assert batch_of_task(key, "orders", None, None) == key


def test_the_query_that_is_named_wins_over_the_one_that_spark_tells() -> None:
    key = named(batch_id="7", query_id="orders-2")
    assert batch_of_task(key, "orders", "q-1", "7") == key


@pytest.mark.parametrize("batch_id", ["monday", "007", "1.5", "-1", "9" * 19])
def test_another_name_within_a_query_stays_a_name_and_keeps_the_query(batch_id: str) -> None:
    key = named(batch_id=batch_id, query_id="orders-2")
    assert key == BatchKey("orders-2", batch_id)
    assert batch_of_task(key, "orders", None, None) == key


def test_the_number_of_the_micro_batch_is_that_batch_of_the_query_that_spark_tells() -> None:
    assert batch_of_task(named(batch_id="7"), "orders", "q-1", "7") == BatchKey("q-1", 7)


@pytest.mark.parametrize("batch_id", ["monday", "2026-11-21", "batch 8"])
def test_any_other_name_inside_foreach_batch_is_a_label_of_its_own(batch_id: str) -> None:
    assert batch_of_task(named(batch_id=batch_id), "orders", "q-1", "7") == BatchKey("", batch_id)


@pytest.mark.parametrize("batch_id", ["8", "007", "20261121"])
def test_a_number_inside_foreach_batch_that_is_not_sparks_is_refused(batch_id: str) -> None:
    """Under a new checkpoint it would come again for other rows, which would be skipped."""
    with pytest.raises(ConfigError, match=f"batch.id={batch_id} is only a number, and not that of .*, which is 7"):
        batch_of_task(named(batch_id=batch_id), "orders", "q-1", "7")


@pytest.mark.parametrize("batch_id", ["0", "7", "20261121", "007"])
def test_a_bare_number_of_no_known_query_is_refused_with_both_ways_out(batch_id: str) -> None:
    with pytest.raises(ConfigError) as raised:
        batch_of_task(named(batch_id=batch_id), "orders", None, None)
    text = str(raised.value)
    assert f"batch.id={batch_id} is only a number" in text and "Nothing was written" in text
    assert "the option query.id" in text and 'f"{query_id}-{batch_id}"' in text
    assert f"batch.id=export-{batch_id}" in text


@pytest.mark.parametrize("batch_id", ["2026-11-21", "export-20261121", "monday"])
def test_a_label_is_a_label_without_any_query(batch_id: str) -> None:
    assert batch_of_task(named(batch_id=batch_id), "orders", None, None) == BatchKey("", batch_id)
