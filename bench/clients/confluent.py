"""confluent-kafka (librdkafka), one `produce` per record, without delivery callbacks, which would slow it down."""

from __future__ import annotations

from confluent_kafka import Producer

from bench.clients.common import Job, main, shuffle

# Without callbacks there is little to poll for, but delivered messages must be fetched now and then.
POLL_EVERY = 10_000


class Confluent:
    def __init__(self, job: Job) -> None:
        self._topic = job.topic
        self._producer = confluent_producer(job)

    def prepare(self, payload: list[bytes], count: int) -> list[bytes]:
        return shuffle(payload, count)

    def send(self, work: list[bytes]) -> None:
        producer, topic = self._producer, self._topic
        produce = producer.produce
        for start in range(0, len(work), POLL_EVERY):
            for value in work[start : start + POLL_EVERY]:
                while True:
                    try:
                        produce(topic, value)
                        break
                    except BufferError:
                        producer.poll(0.01)
            producer.poll(0)

    def flush(self) -> None:
        if left := self._producer.flush(300):
            raise TimeoutError(f"{left} records are not delivered")


def confluent_producer(job: Job) -> Producer:
    return Producer(
        {
            "bootstrap.servers": job.bootstrap_servers,
            "acks": "all",
            "enable.idempotence": True,
            "compression.type": job.codec,
            "batch.size": job.batch_bytes,
            "linger.ms": job.linger_ms,
        }
    )


if __name__ == "__main__":
    main(Confluent)
