"""aiokafka, one awaited `send` per record; its futures are not awaited one by one."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaProducer

from bench.clients.common import Job, main, shuffle


class AioKafka:
    def __init__(self, job: Job) -> None:
        self._topic = job.topic
        self._loop = asyncio.new_event_loop()
        self._producer = self._loop.run_until_complete(_start(job))

    def prepare(self, payload: list[bytes], count: int) -> list[bytes]:
        return shuffle(payload, count)

    def send(self, work: list[bytes]) -> None:
        self._loop.run_until_complete(self._send(work))

    def flush(self) -> None:
        self._loop.run_until_complete(self._producer.flush())

    async def _send(self, work: list[bytes]) -> None:
        producer, topic = self._producer, self._topic
        for value in work:
            await producer.send(topic, value)


async def _start(job: Job) -> AIOKafkaProducer:
    producer = AIOKafkaProducer(
        bootstrap_servers=job.bootstrap_servers,
        acks="all",
        enable_idempotence=True,
        compression_type=None if job.codec == "none" else job.codec,
        max_batch_size=job.batch_bytes,
        linger_ms=job.linger_ms,
    )
    await producer.start()
    return producer


if __name__ == "__main__":
    main(AioKafka)
