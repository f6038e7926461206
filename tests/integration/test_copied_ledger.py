"""A ledger that was copied from another cluster, without transactions and with them; and garbage in a ledger.

Embedded broker and Apache Kafka.
"""

from __future__ import annotations

import re
import shlex
import time

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kafka_sink.commit.receipt import BatchKey
from kafka_sink.commit.session import DriverSession
from kafka_sink.errors import CommitAborted
from tests.support.commanding import Shell, Sink, rows
from tests.support.foreign_records import copied, put, put_plain

LABEL, BATCH, NEXT = BatchKey("", "2026-11-26"), BatchKey("query-1", 0), BatchKey("query-1", 1)
RUN, NEXT_RUN = "a" * 16, "f" * 16


def check_plain_copy(sink: Sink, shell: Shell) -> None:
    """An export that was delivered in the other cluster: whether its rows are here is for a person to say."""
    key = f"{sink.sink_id}/{LABEL.batch_id}"
    put_plain(sink, key, copied(sink, LABEL))
    with pytest.raises(CommitAborted, match="a copy of a record of the Kafka cluster 'the-old-cluster'"):
        sink.deliver(LABEL)
    shown = shell.about(sink, "ledger")
    assert shown.exit_code == 4 and "written without a transaction" in shown.out
    assert "1 of 1 records were made in the Kafka cluster 'the-old-cluster'" in shown.out
    assert "exactly.once.source.support=enabled" in shown.out and "ledger.accept.new.sink=true" in shown.out
    assert shell.about(sink, "ledger", "--json").content["copied_from"] == ["the-old-cluster"]
    assert shell.about(sink, "recover").exit_code == 4
    (command,) = re.findall("`(pykafka-sink resolve .*)`", shown.out)
    about = ("--bootstrap-server", sink.servers, "--ledger-topic", sink.ledger_topic, "--yes")
    assert shell(*shlex.split(command)[1:], *about).exit_code == 0
    sink.deliver(LABEL)
    assert sink.visible() == sorted(rows(LABEL, 0, 1))
    assert shell.about(sink, "ledger").exit_code == 0


def test_a_ledger_that_was_copied_without_transactions_is_refused_as_a_copy(sink: Sink, shell: Shell) -> None:
    check_plain_copy(sink, shell)


def test_a_ledger_that_was_copied_without_transactions_is_refused_on_apache_kafka(
    sink_on_kafka: Sink, shell: Shell
) -> None:
    check_plain_copy(sink_on_kafka, shell)


def test_a_ledger_that_was_copied_in_transactions_is_read_and_called_a_copy(sink: Sink, shell: Shell) -> None:
    put(sink, sink.sink_id, copied(sink, BATCH))
    shown = shell.about(sink, "ledger")
    assert shown.exit_code == 0 and "this one is 'embedded-kafka-cluster': the ledger ledger is a copy" in shown.out
    assert "counts as delivered here, so the rows must have been copied" in shown.out
    sink.run = NEXT_RUN
    sink.deliver(NEXT)
    assert shell.about(sink, "ledger", "--json").content["copied_from"] == []


@pytest.mark.parametrize("value", [b"?", None], ids=["garbage", "deletion"])
def test_what_something_else_writes_under_the_key_of_a_stream_stops_it_and_is_shown(
    value: bytes | None, sink: Sink, shell: Shell
) -> None:
    sink.deliver(BATCH)
    put_plain(sink, sink.sink_id, value)
    shown = shell.about(sink, "ledger")
    assert shown.exit_code == 4 and "it hides the decision before it" in shown.out
    sink.run = NEXT_RUN
    for key in (BATCH, NEXT):
        with pytest.raises(CommitAborted, match="written without a transaction"):
            sink.deliver(key)


def test_a_ledger_that_is_made_to_forget_while_a_query_runs_refuses_its_next_look_on_apache_kafka(
    sink_on_kafka: Sink,
) -> None:
    sink = sink_on_kafka
    sink.ledger_look_ms = 1
    driver = DriverSession(sink.sink_id, sink.run)
    sink.deliver(BATCH, driver)
    assert driver.ledger_seen_ms is not None
    change = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, sink.ledger_topic, incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": sink.servers})  # its requests end with it
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
    time.sleep(0.5)
    with pytest.raises(CommitAborted, match="decisions would be deleted with age"):
        sink.deliver(NEXT, driver)
