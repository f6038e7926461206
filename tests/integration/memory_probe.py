"""Feeds a producer as fast as possible and reports, as JSON, how far the process has grown; test_memory.py runs it.

It is a process of its own, since the resident memory of a test run with other work before it means nothing. The
baseline is taken after the first delivered record, so it includes imports, threads, sockets and metadata.
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
    longest_s = 0.0
    with Producer({"bootstrap.servers": servers, **json.loads(settings)}) as producer:
        producer.send(topic, value=b"first").result(30)
        reset_peak()
        baseline = status_bytes("VmRSS")
        started, started_cpu_s = time.monotonic(), time.process_time()
        sent = 0
        while sent < total_bytes:
            before = time.monotonic()
            if entry == "send":
                producer.send(topic, value=values[sent // VALUE_BYTES % ARROW_ROWS])
                sent += VALUE_BYTES
            else:
                producer.send_arrow(columns, topic=topic)
                sent += VALUE_BYTES * ARROW_ROWS
            longest_s = max(longest_s, time.monotonic() - before)
        fed_s, fed_cpu_s = time.monotonic() - started, time.process_time() - started_cpu_s
        producer.flush(timeout_s=120)
        done_s = time.monotonic() - started
        peak = status_bytes("VmHWM")
    found = {"grown": peak - baseline, "baseline": baseline, "sent": sent, "longest_s": longest_s}
    print(json.dumps({**found, "fed_s": fed_s, "fed_cpu_s": fed_cpu_s, "done_s": done_s}))


if __name__ == "__main__":
    main()
