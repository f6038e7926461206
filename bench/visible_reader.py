"""Measures when the last row of each micro-batch is visible: `python -m bench.visible_reader SERVERS TOPIC
PARTITIONS ROWS`, until its input ends. Keys are row numbers; each micro-batch has ROWS of them. Prints JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from confluent_kafka import Consumer, TopicPartition


def main() -> None:
    servers, topic, partitions, rows = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "visible", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    is_over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
    seen: dict[int, float] = {}
    while not is_over.is_set():
        for message in consumer.consume(10_000, timeout=0.002):
            if message.error() is None:
                seen[int(message.key()) // rows] = time.time() * 1000
    consumer.close()
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
