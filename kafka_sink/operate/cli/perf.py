"""`pykafka-sink perf`: how fast this producer writes to a cluster; options and lines of Kafka's producer-perf-test.

Records are sent as Arrow batches, as by a Spark task. A batch has one creation time and one latency: from the send
call, including the wait for buffer memory, until its last record is acknowledged. So latencies are upper bounds, and
with --throughput they are those of a stream, because then the rate determines the size of batches.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.commits import COMMAND_WRONG
from kafka_sink.operate.cli.brokers import producer_options
from kafka_sink.operate.cli.perf_meter import Meter
from kafka_sink.operate.cli.report import DONE, Report
from kafka_sink.operate.cli.streams import StatusLine, print_text
from kafka_sink.options.host.properties_file import read_argument_file
from kafka_sink.options.presets import PREFIX
from kafka_sink.options.values import TOPIC_NAME
from kafka_sink.producer.arrow_future import ArrowFuture
from kafka_sink.producer.producer import Producer

ROWS_MAX = 10_000
# Bytes of distinct records, from which batches are made repeatedly.
SOURCE_BYTES = 16 * 1024 * 1024
# With --throughput: milliseconds between batches.
PACE_MS = 10
BAR_WIDTH = 30


# Values from the record with this number on, at most so many.
Source: TypeAlias = "Callable[[int, int], pa.Array]"


class LoadTest:
    """The parameters of `perf`, and its producer."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.topic = TOPIC_NAME.parse("--topic", given.topic)
        self.record_count: int = given.num_records
        self.warm_up_count: int = given.warmup_records
        if self.warm_up_count >= self.record_count:
            raise ConfigError("--warmup-records must be fewer than --num-records", COMMAND_WRONG)
        self.per_second: float = given.throughput
        self.transaction_s: float = given.transaction_duration_ms / 1000
        paced = ROWS_MAX if self.per_second <= 0 else int(self.per_second * PACE_MS / 1000)
        self.batch_rows = min(ROWS_MAX, max(1, paced))
        self.source = _make_source(given)
        own = {name.removeprefix(PREFIX): value for name, value in given.properties_given}
        if given.transactional_id is not None:
            own["transactional.id"] = given.transactional_id
        options = producer_options(given, own)
        self.is_transactional = options.transactional_id is not None
        self.producer = Producer(options)

    def __enter__(self) -> LoadTest:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        self.producer.close(None if error is None else 0)


def perf(given: argparse.Namespace) -> Report:
    with LoadTest(given) as load:
        return _run_load(load, given)


def _run_load(load: LoadTest, given: argparse.Namespace) -> Report:
    meter = Meter(given.reporting_interval / 1000, tell=None if given.json else print_text)
    warm_up = Meter(given.reporting_interval / 1000, tell=None)
    if load.is_transactional:
        load.producer.init_transactions()
        load.producer.begin_transaction()
    _write(load, 0, load.warm_up_count, warm_up)
    meter.begin()
    _write(load, load.warm_up_count, load.record_count, meter)
    if load.is_transactional:
        load.producer.commit_transaction()
    content = {"topic": load.topic, "warm_up": warm_up.summary() if load.warm_up_count else None, **meter.summary()}
    lines = [meter.last_line()]
    if given.print_metrics:
        metrics = {
            f"{group}:{name}:{dict(tags)}": value for (group, name, tags), value in load.producer.metrics().items()
        }
        # JSON has no NaN, the value of what was never measured.
        content["metrics"] = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        lines += [f"{name} : {value:.3f}" for name, value in sorted(metrics.items())]
    return Report(DONE, content, lines)


def _write(load: LoadTest, first: int, end: int, meter: Meter) -> None:
    """Sends the records with these numbers at the requested rate, and waits until all are acknowledged."""
    started_s = committed_s = time.monotonic()
    number = first
    with StatusLine() as status:
        while number < end:
            values = load.source(number, min(load.batch_rows, end - number))
            if load.per_second > 0:
                time.sleep(max(0.0, started_s + (number - first) / load.per_second - time.monotonic()))
            handed_over_s = time.monotonic()
            future = load.producer.send_arrow(pa.record_batch([values], ["value"]), topic=load.topic)
            byte_count = pc.sum(pc.binary_length(values)).as_py()
            future.add_done_callback(partial(_on_done, meter, byte_count, handed_over_s))
            number += len(values)
            meter.check()
            meter.tell_if_due()
            status.show(_bar((number - first) * 100 // (end - first)))
            if load.is_transactional and time.monotonic() - committed_s >= load.transaction_s:
                load.producer.commit_transaction()
                load.producer.begin_transaction()
                committed_s = time.monotonic()
        load.producer.flush()
    meter.check()


def _on_done(meter: Meter, byte_count: int, handed_over_s: float, future: ArrowFuture) -> None:
    error = future.exception(0)
    if error is None:
        meter.record(future.result(0).row_count, byte_count, (time.monotonic() - handed_over_s) * 1000)
    else:
        meter.fail(error)


# ---- records ---------------------------------------------------------------------------------------------------------


def _make_source(given: argparse.Namespace) -> Source:
    if given.payload_monotonic:
        return lambda start, rows: pa.array(np.arange(start + 1, start + 1 + rows)).cast(pa.string())
    values = _make_values(given)
    return lambda start, rows: values.slice(start % len(values), rows)


def _make_values(given: argparse.Namespace) -> pa.Array:
    """Distinct records, which are sent again and again."""
    draw = np.random.default_rng(0)
    if given.record_size is not None:
        size: int = given.record_size
        count = max(1, min(given.num_records, SOURCE_BYTES // size))
        letters = draw.integers(ord("A"), ord("Z") + 1, count * size, np.uint8)
        offsets = np.arange(count + 1, dtype=np.int32) * np.int32(size)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
        return pa.Array.from_buffers(pa.binary(), count, buffers)
    lines = _lines(given.payload_file, given.payload_delimiter)
    longest = max(len(line) for line in lines)
    count = max(1, min(given.num_records, SOURCE_BYTES // longest))
    return pa.array(lines, pa.binary()).take(pa.array(draw.integers(0, len(lines), count)))


def _lines(name: str, delimiter: str) -> list[bytes]:
    content = read_argument_file("--payload-file", name)
    found = [line for line in content.split(_unescape(delimiter)) if line]
    if not found:
        raise ConfigError(f"--payload-file {name} holds no record", COMMAND_WRONG)
    return found


def _unescape(delimiter: str) -> bytes:
    """As in a shell: \\n is a newline. The codec reads Latin-1, so other letters are escaped first."""
    try:
        found = delimiter.encode("latin-1", "backslashreplace").decode("unicode_escape").encode()
    except UnicodeError:
        found = b""
    if not found:
        raise ConfigError(f"--payload-delimiter {delimiter!r} is no text to divide a file by", COMMAND_WRONG)
    return found


def _bar(percent: int) -> str:
    return f"[{'#' * (percent * BAR_WIDTH // 100):-<{BAR_WIDTH}}] {percent:3d} %"
