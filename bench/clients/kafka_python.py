"""kafka-python, one `send` per record."""

from __future__ import annotations

from kafka import KafkaProducer

from bench.clients.common import Job, main, shuffle


class KafkaPython:
    def __init__(self, job: Job) -> None:
        self._topic = job.topic
        self._producer = KafkaProducer(
            bootstrap_servers=job.bootstrap_servers,
            acks="all",
            enable_idempotence=True,
            compression_type=None if job.codec == "none" else job.codec,
            batch_size=job.batch_bytes,
            linger_ms=job.linger_ms,
        )

    def prepare(self, payload: list[bytes], count: int) -> list[bytes]:
        return shuffle(payload, count)

    def send(self, work: list[bytes]) -> None:
        producer, topic = self._producer, self._topic
        for value in work:
            producer.send(topic, value)

    def flush(self) -> None:
        self._producer.flush(300)


if __name__ == "__main__":
    main(KafkaPython)
