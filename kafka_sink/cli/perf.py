"""`pykafka-sink perf`: how fast this producer writes to a cluster; options and lines of Kafka's producer-perf-test.

Records are sent as Arrow batches, as by a Spark task. A batch has one creation time and one latency: from the send
call, including the wait for buffer memory, until its last record is acknowledged. So latencies are upper bounds, and
with --throughput they are those of a stream, because then the rate determines the size of batches.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.cli.brokers import producer_options, read_argument_file
from kafka_sink.cli.perf_meter import Meter
from kafka_sink.cli.report import DONE, Report
from kafka_sink.cli.streams import StatusLine, print_text
from kafka_sink.error_table.commits import COMMAND_WRONG
from kafka_sink.errors import ConfigError
from kafka_sink.options.values import TOPIC_NAME
from kafka_sink.producer.arrow_future import ArrowFuture
from kafka_sink.producer.producer import Producer

ROWS_MAX = 10_000
# Bytes of distinct records, from which batches are made repeatedly.
SOURCE_BYTES = 16 * 1024 * 1024
# With --throughput: milliseconds between batches.
PACE_MS = 10
BAR_WIDTH = 30


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
        rows = ROWS_MAX if self.per_second <= 0 else min(ROWS_MAX, max(1, int(self.per_second * PACE_MS / 1000)))
        self.source = _make_source(given, rows)
        own = dict(given.properties_given)
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
    _write(load, load.warm_up_count, warm_up)
    meter.begin()
    _write(load, load.record_count - load.warm_up_count, meter)
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


def _write(load: LoadTest, count: int, meter: Meter) -> None:
    """Sends `count` records at the requested rate, and waits until all are acknowledged."""
    started_s = committed_s = time.monotonic()
    sent = 0
    with StatusLine() as status:
        for batch in load.source.batches(count):
            if load.per_second > 0:
                time.sleep(max(0.0, started_s + sent / load.per_second - time.monotonic()))
            handed_over_s = time.monotonic()
            future = load.producer.send_arrow(batch, topic=load.topic)
            byte_count = pc.sum(pc.binary_length(batch.column("value"))).as_py()
            future.add_done_callback(partial(_on_done, meter, byte_count, handed_over_s))
            sent += batch.num_rows
            meter.check()
            meter.tell_if_due()
            status.show(_bar(sent * 100 // count))
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


class _Repeated:
    """Repeated slices of one batch of distinct records."""

    def __init__(self, values: pa.Array, rows: int) -> None:
        self._values = pa.RecordBatch.from_arrays([values], ["value"])
        self._rows = min(rows, len(values))

    def batches(self, count: int) -> Iterator[pa.RecordBatch]:
        start = 0
        while count:
            rows = min(count, self._rows, self._values.num_rows - start)
            yield self._values.slice(start, rows)
            count -= rows
            start = (start + rows) % self._values.num_rows


class _Rising:
    """1, 2, 3 and so on as text, continued from call to call."""

    def __init__(self, rows: int) -> None:
        self._next = 1
        self._rows = rows

    def batches(self, count: int) -> Iterator[pa.RecordBatch]:
        end = self._next + count
        while self._next < end:
            stop = min(end, self._next + self._rows)
            values = pa.array(np.arange(self._next, stop)).cast(pa.string())
            self._next = stop
            yield pa.RecordBatch.from_arrays([values], ["value"])


def _make_source(given: argparse.Namespace, rows: int) -> _Repeated | _Rising:
    if given.payload_monotonic:
        return _Rising(rows)
    draw = np.random.default_rng(0)
    if given.record_size is not None:
        size: int = given.record_size
        count = max(1, min(given.num_records, SOURCE_BYTES // size))
        letters = draw.integers(ord("A"), ord("Z") + 1, count * size, np.uint8)
        offsets = np.arange(count + 1, dtype=np.int32) * np.int32(size)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
        return _Repeated(pa.Array.from_buffers(pa.binary(), count, buffers), rows)
    lines = _lines(given.payload_file, given.payload_delimiter)
    longest = max(len(line) for line in lines)
    count = max(1, min(given.num_records, SOURCE_BYTES // longest))
    return _Repeated(pa.array(lines, pa.binary()).take(pa.array(draw.integers(0, len(lines), count))), rows)


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
