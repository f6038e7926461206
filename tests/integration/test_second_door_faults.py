"""The second door without Spark: its driver is killed at any moment, many times; user code catches the error of a
commit; two writes claim the same batch at the same time. tests/spark/test_killed_drivers.py kills drivers of Spark."""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
import traceback
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

import kafka_sink
from kafka_sink.commit.admin.cluster_settings import settings_of_cluster
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.errors import LocalProtocolError
from kafka_sink.kafka.wire.apis import END_TXN
from kafka_sink.spark import driver, second_door
from kafka_sink.spark.closings import CLOSINGS
from kafka_sink.testing import EmbeddedBroker
from tests.integration.bare_frame import BareFrame
from tests.support.asking import client_of
from tests.support.faults import Harm, is_drivers, of_a_task
from tests.support.kafka_proxy import KafkaProxy
from tests.support.open_transactions import open_transactions
from tools.foreign_reader import read_topic
from tools.listed_transactions import listed_transactions

pytestmark = [
    pytest.mark.usefixtures("fresh_driver"),
    pytest.mark.embedded_kafka(1, topics={"rows": 3, "exports": 3}),
]

FORKS = multiprocessing.get_context("fork")
PATIENCE_S, TIMEOUT_MS = 300, 900_000
QUERY = "11111111-2222-4333-8444-555555555555"


def options(servers: str, topic: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": servers, "topic": topic, "sink.id": f"sink-of-{topic}", **more}


def frame_of(number: int, query: tuple[str, int, str] | None = None) -> Any:
    return BareFrame([[f"{number}.{part}.{row}" for row in range(3)] for part in range(2)], query)


def rows_of(numbers: range) -> Counter[bytes]:
    return Counter(f"{number}.{part}.{row}".encode() for number in numbers for part in range(2) for row in range(3))


def rows_in(servers: str, topic: str) -> Counter[bytes | None]:
    return Counter(record.value for record in read_topic(servers, topic))


def write_until_the_end(folder: Path, what: str, write: Any) -> None:
    """At least once. Each write leaves a file as Spark's commit log does."""
    (folder / what).mkdir(exist_ok=True)
    while True:
        number = len(os.listdir(folder / what))
        write(number)
        (folder / what / str(number)).touch()
        if (folder / "end").exists():
            return


def drive(servers: str, folder: Path) -> None:
    """One life of the driver."""
    run = str(uuid.uuid4())
    function = kafka_sink.foreach_batch(options(servers, "rows"))
    exporting = options(servers, "exports")
    try:
        exports = threading.Thread(
            target=write_until_the_end,
            args=(
                folder,
                "exports",
                lambda number: kafka_sink.write(frame_of(number), {**exporting, "batch.id": f"export-{number}"}),
            ),
        )
        exports.start()
        write_until_the_end(folder, "rows", lambda number: function(frame_of(number, (QUERY, number, run)), number))
        exports.join()
        CLOSINGS.value.wait()  # this process ends without what Python does at the end of a program
    except BaseException:
        traceback.print_exc()
        os._exit(1)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("kills", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_each_row_is_there_once_after_a_driver_was_killed_at_any_moment_many_times(
    embedded_kafka: EmbeddedBroker, tmp_path: Path, kills: int
) -> None:
    servers, dice = embedded_kafka.bootstrap_servers, random.Random(random.SystemRandom().randrange(1 << 31))
    for count in range(kills + 1):
        is_last = count == kills
        if is_last:
            (tmp_path / "end").touch()
        child = FORKS.Process(target=drive, args=(servers, tmp_path))
        child.start()
        child.join(PATIENCE_S if is_last else dice.uniform(0.05, 1.0))
        assert child.exitcode == (0 if is_last else None)
        child.kill()
        child.join()
    for topic in ("rows", "exports"):
        assert rows_in(servers, topic) == rows_of(range(len(os.listdir(tmp_path / topic))))
        assert open_transactions(servers, f"sink-of-{topic}") == []


def test_a_decided_batch_whose_error_user_code_catches_is_finished_before_the_next_one_is_planned(
    embedded_kafka: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A commit goes on until a part of the transactions' time is left, an abort for two minutes.
    monkeypatch.setattr(driver, "settings_of_cluster", be_impatient)
    monkeypatch.setattr(driver, "margin_ms", lambda timeout_ms: timeout_ms - 5_000)
    run = str(uuid.uuid4())
    with KafkaProxy(embedded_kafka.bootstrap_servers) as proxy:
        given = options(proxy.bootstrap_servers, "rows")

        def write(number: int) -> None:
            kafka_sink.write_batch(frame_of(number, (QUERY, number, run)), number, given)

        write(0)
        fault = proxy.on(END_TXN, Harm.LOSE_REQUEST, where=of_a_task, lasts=True)
        # The first is decided and not finished, the second not planned.
        for number in (1, 2):
            with pytest.raises(kafka_sink.CommitPending, match="batch 1 of query"):
                write(number)
        fault.stop()
        used = ids_of_tasks(proxy.bootstrap_servers)
        planned = frame_of(2, (QUERY, 2, run))
        planned.before_task = lambda number: number or check_rows(embedded_kafka, range(2))
        kafka_sink.write_batch(planned, 2, given)
        write(3)
    new = ids_of_tasks(embedded_kafka.bootstrap_servers) - used
    assert len(used) == len(new) == 2, "ids that may be decided are not used again, and others are"
    check_rows(embedded_kafka, range(4))
    assert open_transactions(embedded_kafka.bootstrap_servers, "sink-of-rows") == []


def ids_of_tasks(servers: str) -> set[str]:
    with client_of(servers) as client:
        return {name for row in listed_transactions(client) if not is_drivers(name := row["transactional_id"])}


def be_impatient(*given: Any) -> DeliverySettings:
    return replace(settings_of_cluster(*given), patience_ms=2_000)


def check_rows(kafka: EmbeddedBroker, numbers: range) -> None:
    assert rows_in(kafka.bootstrap_servers, "rows") == rows_of(numbers)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_an_export_that_is_repeated_aborts_what_a_killed_repetition_has_left(embedded_kafka: EmbeddedBroker) -> None:
    """The killed one is in no record of the ledger: it had nothing to decide."""
    given = options(embedded_kafka.bootstrap_servers, "rows", **{"batch.id": "day-1"})
    kafka_sink.write(frame_of(0), given)

    def die_before_the_commit() -> None:
        with mock.patch.object(second_door, "commit_write", side_effect=lambda *_: os._exit(1)):
            kafka_sink.write(frame_of(0), given)

    child = FORKS.Process(target=die_before_the_commit)
    child.start()
    child.join(PATIENCE_S)
    assert len(open_transactions(embedded_kafka.bootstrap_servers, "sink-of-rows", patience_s=0)) == 2
    assert kafka_sink.write(frame_of(0), given).is_repeated
    assert open_transactions(embedded_kafka.bootstrap_servers, "sink-of-rows") == []
    check_rows(embedded_kafka, range(1))


def test_of_two_writes_of_one_batch_at_the_same_time_a_failing_one_does_not_abort_what_the_other_has_decided(
    embedded_kafka: EmbeddedBroker,
) -> None:
    """Only the user's word says that they are one query: nothing else tells the sink."""
    with KafkaProxy(embedded_kafka.bootstrap_servers) as proxy:
        given = options(proxy.bootstrap_servers, "rows", **{"query.id": "q"})
        kafka_sink.write_batch(frame_of(0), 0, given)
        decided, may_commit = threading.Event(), threading.Event()

        def hold() -> None:
            decided.set()
            assert may_commit.wait(PATIENCE_S)

        proxy.on(END_TXN, Harm.DELAY_REQUEST, where=of_a_task, before=hold)
        failing = frame_of(1)
        failing.before_task = fail_in_the_second
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(kafka_sink.write_batch, frame_of(1), 1, given)
            assert decided.wait(PATIENCE_S)
            with pytest.raises(ArithmeticError):
                kafka_sink.write_batch(failing, 1, given)
            may_commit.set()
            assert first.result().rows == 6
    servers = embedded_kafka.bootstrap_servers
    assert rows_in(servers, "rows") == rows_of(range(2))
    assert open_transactions(servers, "sink-of-rows") == []


def fail_in_the_second(number: int) -> None:
    if number == 1:
        raise ArithmeticError("a row of the user")


class RepeatingFrame(BareFrame):
    """A Spark that passes on the result of its first partition twice."""

    def mapInArrow(self, *given: Any) -> Any:
        action = super().mapInArrow(*given)

        def collect() -> list[tuple[bytes]]:
            first, *others = action.collect()
            return [first, first, *others]

        return SimpleNamespace(collect=collect, sparkSession=self.sparkSession)


def test_two_results_of_one_partition_are_refused(embedded_kafka: EmbeddedBroker) -> None:
    servers = embedded_kafka.bootstrap_servers
    frame: Any = RepeatingFrame([["a"], ["b"]])
    with pytest.raises(LocalProtocolError, match="3 results of this write, and some are of the same partition"):
        kafka_sink.write(frame, options(servers, "rows"))
    assert open_transactions(servers, "sink-of-rows") == []
    assert rows_in(servers, "rows") == Counter()
