"""This project's producer, one `send_arrow` per Arrow record batch of 10,000 rows (what Spark hands over)."""

from __future__ import annotations

import pyarrow as pa

from bench.clients.common import Job, main, shuffle
from bench.clients.ours_send import ours_config
from kafka_sink.producer.producer import Producer

ROWS_PER_BATCH = 10_000
# The size of all different batches, which are sent repeatedly: ten times the payload file, far below a gigabyte.
SOURCE_BYTES = 20_000_000


class OursArrow:
    def __init__(self, job: Job) -> None:
        self._topic = job.topic
        self._producer = Producer(ours_config(job))

    def prepare(self, payload: list[bytes], count: int) -> list[pa.RecordBatch]:
        different = max(1, SOURCE_BYTES // (ROWS_PER_BATCH * len(payload[0])))
        values = shuffle(payload, min(count, different * ROWS_PER_BATCH))
        source = pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])
        batches: list[pa.RecordBatch] = []
        left = count
        while left:
            start = len(batches) % different * ROWS_PER_BATCH
            batches.append(source.slice(start, min(left, ROWS_PER_BATCH)))
            left -= batches[-1].num_rows
        return batches

    def send(self, work: list[pa.RecordBatch]) -> None:
        for arrow_batch in work:
            self._producer.send_arrow(arrow_batch, topic=self._topic)

    def flush(self) -> None:
        self._producer.flush()

    def close(self) -> None:
        self._producer.close()


if __name__ == "__main__":
    main(OursArrow)
