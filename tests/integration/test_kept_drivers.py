"""What a driver's process keeps of its streams, so that a commit neither fences nor reads the ledger: one driver for
each stream of the application, however many there are, and none that nobody asks for again."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_sink.commit.identity import run_of_query
from kafka_sink.commit.ledger import Kind, LedgerRecord, LedgerState
from kafka_sink.commit.manifest import Manifest
from kafka_sink.commit.receipt import BatchKey, WrittenPartition
from kafka_sink.commit.session import CommitResult, Conclusion
from kafka_sink.kafka.client.nodes import NodeSet
from kafka_sink.spark import driver
from kafka_sink.spark.driver import Driver, FinishedBatch
from kafka_sink.testing import EmbeddedBroker
from tests.integration.test_driver_threads import Stream
from tests.support.finish_closings import finish_closings
from tools.worker_environment import worker_environment

pytestmark = pytest.mark.embedded_kafka(1, topics={"rows": 1})
# More than planning and commits had room for once, which was 64 and 32.
STREAMS = 70


@pytest.fixture(autouse=True)
def fresh_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_driver: None) -> None:
    for name, value in worker_environment(tmp_path).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Requests of this process, its tasks included, by name."""
    found = Counter[str]()
    send = NodeSet.send

    def count(nodes: NodeSet, node: object, request: object, now_ms: int) -> object:
        found[request.api.name] += 1  # type: ignore[attr-defined]
        return send(nodes, node, request, now_ms)  # type: ignore[arg-type]

    monkeypatch.setattr(NodeSet, "send", count)
    return found


def deliver_batch(streams: list[Stream], batch: int) -> None:
    for stream in streams:
        assert stream.deliver(batch) is Conclusion.DELIVERED
    finish_closings()


def test_however_many_streams_take_turns_their_second_batch_asks_for_no_epoch_and_reads_no_ledger(
    broker: EmbeddedBroker, sent: Counter[str]
) -> None:
    streams = [Stream(broker, f"s{number}", sink_id=f"s{number}", kafka_client_id="all") for number in range(STREAMS)]
    deliver_batch(streams, 0)
    first = Counter(sent)
    sent.clear()
    deliver_batch(streams, 1)
    # Planning and the commit look into the ledger. The other InitProducerId is that of the task: these share a process.
    assert first["Fetch"] >= STREAMS and first["InitProducerId"] == 2 * STREAMS
    assert sent["Fetch"] == sent["DescribeConfigs"] == 0 and sent["InitProducerId"] == STREAMS
    assert len(driver.DRIVERS.value) == STREAMS


def test_a_stream_that_is_started_again_takes_the_room_of_its_last_run(broker: EmbeddedBroker) -> None:
    stream = Stream(broker, "s0", sink_id="s0")
    for batch in range(5):
        stream.start()
        deliver_batch([stream], batch)
    assert len(driver.DRIVERS.value) == 1


# ---- which drivers are asked for again -------------------------------------------------------------------------------


def finished(broker: EmbeddedBroker, key: BatchKey, *, run: str = "", write: str = "") -> FinishedBatch:
    options = Stream(broker, "s0", sink_id="s0").plan().options
    return FinishedBatch(options, "s0", key, run or run_of_query(str(uuid.uuid4())), (), write=write)


def use(batch: FinishedBatch, used: list[Driver], names: LedgerState | None = None) -> None:
    def act(driver: Driver, _: object) -> CommitResult:
        used.append(driver)
        driver._session.ledger = names
        return CommitResult(Conclusion.DELIVERED)

    driver._use_driver(batch, "s0", act)


def test_the_driver_of_a_batch_write_is_not_kept(broker: EmbeddedBroker) -> None:
    """Nobody writes under its run again; a server of notebooks makes thousands of them."""
    used: list[Driver] = []
    run = run_of_query("w")
    for key in (BatchKey("", ""), BatchKey("", "day-1"), BatchKey("q", "day-1")):
        use(finished(broker, key, run=run, write=run), used)
    use(finished(broker, BatchKey("q", 1), run=run, write=run_of_query("other")), used)
    assert len(driver.DRIVERS.value) == 0


def test_only_the_same_run_with_the_same_options_and_write_gets_the_kept_driver(broker: EmbeddedBroker) -> None:
    used: list[Driver] = []
    first = finished(broker, BatchKey("q", 1), run=run_of_query("a"))
    other_options = first._replace(options=replace(first.options, commit_visible_timeout_ms=1))
    other_run, other_write = first._replace(run=run_of_query("b")), first._replace(write=first.run)
    for batch in (first, first._replace(key=BatchKey("q", 2)), other_options, other_run, other_write, first):
        use(batch, used)
    assert used[0] is used[1]
    assert len(set(map(id, used[1:]))) == 5, "each of the others is new, the last one too"
    assert len(driver.DRIVERS.value) == 1
    use(first._replace(key=BatchKey("q2", 1)), used)
    assert len(driver.DRIVERS.value) == 2, "another query is another stream"


def ledger_of(topic_count: int) -> LedgerState:
    written = tuple(WrittenPartition(f"t{number}", 0, 1, 0, 0) for number in range(topic_count))
    topics = {each.topic: 1 for each in written}
    manifest = Manifest("m", 0, "s0", written, topic_ids=dict.fromkeys(topics, "id"))
    record = LedgerRecord(Kind.DONE, "s0", BatchKey("q", 1), "a", topics=topics, manifest=manifest)
    return LedgerState("s0", {"s0": record}, {"a": 1})


def test_drivers_whose_ledgers_name_many_topics_take_the_room_of_others(broker: EmbeddedBroker) -> None:
    large = ledger_of(10_000)
    assert large.name_count == 30_001
    used: list[Driver] = []
    for number in range(20):
        use(finished(broker, BatchKey(f"q{number}", 1), run=run_of_query("a")), used, large)
    assert len(driver.DRIVERS.value) == driver.NAMES_MAX // large.name_count == 6
    use(finished(broker, BatchKey("q20", 1), run=run_of_query("a")), used, ledger_of(100_000))
    assert len(driver.DRIVERS.value) == 1, "one that is larger than all of the room still goes on"
