"""A producer that is fed ten times faster than its broker accepts stays within buffer.memory plus a constant, and so
does a task of the sink.

The broker is behind a proxy that passes 1.5 MB a second. send() waits for room and continues, and nothing is lost; if
no room comes, send() ends in BufferExhausted after max.block.ms.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from kafka_sink import Producer
from kafka_sink.errors import BufferExhausted
from tests.support.kafka_proxy import KafkaProxy
from tools.foreign_reader import end_offsets, read_topic
from tools.kafka_cluster import KafkaCluster

BYTES_PER_S = 1_500_000
BUFFER_BYTES = 6 * 1024 * 1024
# Far more than may be held: a producer without a limit would be noticed.
TOTAL_BYTES = 100_000_000
SLOW_S = 8.0
# What docs/proof.md promises beyond buffer.memory.
CONSTANT_BYTES = 48 * 1024 * 1024
BUFFER_OF_A_TASK_BYTES = 32 * 1024 * 1024


@pytest.fixture
def line(kafka_4: KafkaCluster) -> Iterator[KafkaProxy]:
    with KafkaProxy(kafka_4.bootstrap_servers) as proxy:
        yield proxy


def probe(module: str, *arguments: str, timeout_s: float) -> dict[str, float]:
    command = [sys.executable, "-m", f"tests.integration.{module}", *arguments]
    run = subprocess.run(command, capture_output=True, timeout=timeout_s)
    assert run.returncode == 0, run.stderr.decode()[-3000:]
    found: dict[str, float] = json.loads(run.stdout)
    print(json.dumps(found))
    return found


@pytest.mark.parametrize("entry", ["send", "send_arrow"])
def test_a_producer_fed_faster_than_the_broker_takes_stays_within_its_buffer_and_a_constant(
    kafka_4: KafkaCluster, line: KafkaProxy, topic_name: str, entry: str
) -> None:
    kafka_4.create_topic(topic_name, partitions=4)
    line.bytes_per_s = BYTES_PER_S
    settings = json.dumps({"buffer.memory": BUFFER_BYTES, "delivery.timeout.ms": 120_000})
    # A hundred megabytes would take a minute at that rate: the limit is removed once it has been measured.
    freed = threading.Timer(SLOW_S, lambda: setattr(line, "bytes_per_s", None))
    freed.start()
    try:
        place = line.bootstrap_servers, topic_name
        found = probe("memory_probe", *place, settings, entry, str(TOTAL_BYTES), timeout_s=400)
    finally:
        freed.cancel()
        freed.join()
    # The rate with a processor to itself; wall time would also measure the other work of the machine.
    assert found["sent"] / found["fed_cpu_s"] >= 10 * BYTES_PER_S, "the test did not feed ten times faster"
    # It had to wait for the broker, and continued as soon as there was room.
    assert found["fed_s"] >= SLOW_S / 2
    assert found["grown"] <= BUFFER_BYTES + CONSTANT_BYTES, found
    assert sum(end_offsets(kafka_4.bootstrap_servers, topic_name).values()) == found["sent"] // 1000 + 1
    kafka_4.delete_topic(topic_name)


@pytest.mark.parametrize("megabytes", [300, pytest.param(1_000, marks=pytest.mark.slow)])
def test_many_megabytes_through_one_task_of_the_sink_stay_within_buffer_memory_and_a_constant(
    kafka_4: KafkaCluster, topic_name: str, megabytes: int
) -> None:
    kafka_4.create_topic(topic_name, partitions=4)
    found = probe("task_memory_probe", kafka_4.bootstrap_servers, topic_name, str(megabytes * 10**6), timeout_s=500)
    assert found["row_count"] == megabytes * 1000
    assert found["grown"] <= BUFFER_OF_A_TASK_BYTES + CONSTANT_BYTES, found
    # Two tasks, neither of which is committed: all their rows are in the log.
    assert sum(end_offsets(kafka_4.bootstrap_servers, topic_name).values()) >= megabytes * 1000 + 10_000
    kafka_4.delete_topic(topic_name)


def test_send_ends_in_buffer_exhausted_after_max_block_ms_and_goes_on_when_there_is_room_again(
    kafka_4: KafkaCluster, line: KafkaProxy, topic_name: str
) -> None:
    kafka_4.create_topic(topic_name)
    settings = {"bootstrap.servers": line.bootstrap_servers, "buffer.memory": 1_000_000, "max.block.ms": 2000}
    with Producer(settings) as producer:
        assert producer.send(topic_name, value=b"-1").result(60).offset == 0
        line.bytes_per_s = 0
        accepted = 0
        error: BufferExhausted | None = None
        while error is None and accepted < 10_000:
            started = time.monotonic()
            try:
                producer.send(topic_name, value=b"%d" % accepted, key=b"k" * 1000)
                accepted += 1
            except BufferExhausted as caught:
                error = caught
        waited_s = time.monotonic() - started
        assert error is not None
        assert waited_s >= 1.9
        # There is room for at least three quarters of the buffer in payload bytes, and never for more than all of it.
        assert 750 <= accepted <= 1000
        assert "buffer.memory=1000000" in str(error) and "max.block.ms=2000" in str(error)
        assert error.ambiguous is False and error.name == "PKS-5003"

        with pytest.raises(BufferExhausted):
            producer.send_arrow(pa.table({"value": [b"x" * 1000] * 500}), topic=topic_name).result(60)
        line.bytes_per_s = None
        producer.flush(timeout_s=60)
        assert producer.send(topic_name, value=b"last").result(60).offset == accepted + 1
    values = [record.value for record in read_topic(kafka_4.bootstrap_servers, topic_name)]
    assert values == [b"%d" % number for number in range(-1, accepted)] + [b"last"]


def test_senders_in_many_threads_wait_for_room_and_all_get_it(
    kafka_4: KafkaCluster, line: KafkaProxy, topic_name: str
) -> None:
    kafka_4.create_topic(topic_name)
    line.bytes_per_s = 2 * BYTES_PER_S
    thread_count, each = 8, 500
    with Producer({"bootstrap.servers": line.bootstrap_servers, "buffer.memory": 500_000}) as producer:

        def feed(number: int) -> list[int]:
            content = b"x" * 1000
            futures = [producer.send(topic_name, key=b"%d-%d" % (number, turn), value=content) for turn in range(each)]
            return [future.result(60).offset for future in futures]

        with ThreadPoolExecutor(thread_count) as pool:
            offsets = list(pool.map(feed, range(thread_count)))
        metrics = {name: value for (_, name, _), value in producer.metrics().items()}
    # A thread that waits must not close batches that others have just begun.
    assert metrics["batch-size-avg"] > 4000
    assert all(own == sorted(own) for own in offsets)
    assert sorted(offset for own in offsets for offset in own) == list(range(thread_count * each))
