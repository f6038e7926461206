"""confluent-kafka, `produce_batch`: a list of dictionaries per call. Messages that it rejects are passed again."""

from __future__ import annotations

from confluent_kafka import Producer

from bench.clients.common import Job, main, shuffle
from bench.clients.confluent import confluent_producer

ROWS_PER_BATCH = 10_000

Messages = list[dict[str, object]]


class ConfluentBatch:
    def __init__(self, job: Job) -> None:
        self._topic = job.topic
        self._producer: Producer = confluent_producer(job)

    def prepare(self, payload: list[bytes], count: int) -> list[bytes]:
        return shuffle(payload, count)

    def send(self, work: list[bytes]) -> None:
        for start in range(0, len(work), ROWS_PER_BATCH):
            # The call writes errors into its dictionaries, so each batch needs new ones.
            messages: Messages = [{"value": value} for value in work[start : start + ROWS_PER_BATCH]]
            while messages:
                taken = self._producer.produce_batch(self._topic, messages)
                if taken == len(messages):
                    break
                messages = [{"value": message["value"]} for message in messages if "_error" in message]
                self._producer.poll(0.01)
            self._producer.poll(0)

    def flush(self) -> None:
        if left := self._producer.flush(300):
            raise TimeoutError(f"{left} records are not delivered")


if __name__ == "__main__":
    main(ConfluentBatch)
