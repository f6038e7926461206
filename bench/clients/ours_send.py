"""This project's producer, one `send` per record."""

from __future__ import annotations

from bench.clients.common import Job, main, shuffle
from kafka_sink.producer.producer import Producer


class OursSend:
    def __init__(self, job: Job) -> None:
        self._topic = job.topic
        self._producer = Producer(ours_config(job))

    def prepare(self, payload: list[bytes], count: int) -> list[bytes]:
        return shuffle(payload, count)

    def send(self, work: list[bytes]) -> None:
        producer, topic = self._producer, self._topic
        for value in work:
            producer.send(topic, value)

    def flush(self) -> None:
        self._producer.flush()

    def close(self) -> None:
        self._producer.close()


def ours_config(job: Job) -> dict[str, object]:
    return {
        "bootstrap.servers": job.bootstrap_servers,
        "acks": "all",
        "enable.idempotence": True,
        "compression.type": job.codec,
        "batch.size": job.batch_bytes,
        "linger.ms": job.linger_ms,
        **job.security,
    }


if __name__ == "__main__":
    main(OursSend)
