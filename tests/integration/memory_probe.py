"""Feeds a producer as fast as it goes and reports, as JSON, how far the process has grown: run by test_memory.py.

A process of its own, because resident memory of a test run that did other things before says nothing. The baseline is
taken after the first delivered record: imports, threads, sockets and metadata are in it.
"""

from __future__ import annotations

import json
import sys
import time

import pyarrow as pa

from kafka_sink import Producer

VALUE_BYTES = 1000
ARROW_ROWS = 2000


def status_bytes(field: str) -> int:
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    raise LookupError(field)


def reset_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def main() -> None:
    servers, topic, settings, entry, total_text = sys.argv[1:]
    total_bytes = int(total_text)
    values = [bytes([number % 251]) * (VALUE_BYTES - 8) + b"%8d" % number for number in range(ARROW_ROWS)]
    columns = pa.table({"value": pa.array(values, pa.binary())})
    longest_s = first_block_s = 0.0
    first_block_bytes = 0
    with Producer({"bootstrap.servers": servers, **json.loads(settings)}) as producer:
        producer.send(topic, value=b"first").result(30)
        reset_peak()
        baseline = status_bytes("VmRSS")
        started = time.monotonic()
        sent = 0
        while sent < total_bytes:
            before = time.monotonic()
            if entry == "send":
                producer.send(topic, value=values[sent // VALUE_BYTES % ARROW_ROWS])
                sent += VALUE_BYTES
            else:
                producer.send_arrow(columns, topic=topic)
                sent += VALUE_BYTES * ARROW_ROWS
            took = time.monotonic() - before
            longest_s = max(longest_s, took)
            if not first_block_s and took > 0.05:
                first_block_s, first_block_bytes = before - started, sent
        fed_s = time.monotonic() - started
        producer.flush(timeout_s=120)
        done_s = time.monotonic() - started
        peak = status_bytes("VmHWM")
    print(
        json.dumps(
            {
                "grown": peak - baseline, "baseline": baseline, "sent": sent, "fed_s": fed_s, "done_s": done_s,
                "longest_s": longest_s, "first_block_s": first_block_s, "first_block_bytes": first_block_bytes,
            }
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
