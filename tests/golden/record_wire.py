"""Records the traffic between foreign clients and a real broker: a proxy in front of a running broker.

Usage: record_wire.py <broker version> <plain proxy:broker> <sasl proxy:broker> <directory of jars> <output>

The broker must advertise the two proxy ports: its own requests are recorded as well, so the proxy of the tests, which
puts its own address into answers, cannot be used. Clients: the Java client of the same version
(RecordWireTraffic.java), confluent-kafka and kafka-python. For each client, API and version it keeps the first request
that has an answer, both as whole frames in hex; the SASL secret in them was invented for this recording.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from importlib.metadata import version as version_of
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

FRAME_BYTES_MAX = 20_000  # a longer one would only enlarge the file


class Recorder:
    def __init__(self) -> None:
        self.client = ""
        self.pairs: dict[tuple[str, int, int], dict[str, Any]] = {}
        self._lock = threading.Lock()

    def on_pair(self, request: bytes, answer: bytes) -> None:
        api_key, version = int.from_bytes(request[:2], "big"), int.from_bytes(request[2:4], "big")
        with self._lock:
            if len(request) + len(answer) < FRAME_BYTES_MAX:
                entry = {"client": self.client, "api_key": api_key, "version": version}
                entry |= {"request": request.hex(), "answer": answer.hex()}
                self.pairs.setdefault((self.client, api_key, version), entry)


def read_frame(stream: Any) -> bytes | None:
    prefix = stream.read(4)
    return stream.read(int.from_bytes(prefix, "big")) if len(prefix) == 4 else None


def serve(recorder: Recorder, proxy_port: int, broker_port: int) -> None:
    listener = socket.create_server(("127.0.0.1", proxy_port))

    def accept() -> None:
        while True:
            client, _ = listener.accept()
            broker = socket.create_connection(("127.0.0.1", broker_port))
            requests: dict[int, bytes] = {}
            for source, target, is_request in ((client, broker, True), (broker, client, False)):
                threading.Thread(
                    target=pump, args=(recorder, source, target, is_request, requests), daemon=True
                ).start()

    threading.Thread(target=accept, daemon=True).start()


def pump(recorder: Recorder, source: Any, target: Any, is_request: bool, requests: dict[int, bytes]) -> None:
    stream = source.makefile("rb")
    try:
        while (frame := read_frame(stream)) is not None:
            if is_request:
                requests[int.from_bytes(frame[4:8], "big")] = frame
            elif request := requests.pop(int.from_bytes(frame[:4], "big"), None):
                recorder.on_pair(request, frame)
            target.sendall(len(frame).to_bytes(4, "big") + frame)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return


def run_confluent(address: str) -> None:
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": address, "transactional.id": "rdkafka"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce("payments", b"value", b"key")
    producer.commit_transaction(20)
    consumer = Consumer({"bootstrap.servers": address, "group.id": "audit", "auto.offset.reset": "earliest"})
    consumer.subscribe(["payments"])
    while consumer.poll(1) is None:
        pass
    consumer.close()


def run_kafka_python(address: str) -> None:
    from kafka import KafkaConsumer, KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, transactional_id="kafka-python")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("refunds", b"value", b"key").get(20)
    producer.commit_transaction()
    producer.close()
    options = {"group_id": "support", "auto_offset_reset": "earliest", "consumer_timeout_ms": 8000}
    consumer = KafkaConsumer("refunds", bootstrap_servers=address, **options)
    next(iter(consumer))
    consumer.close()


def main(broker_version: str, plain: str, sasl: str, jars: str, output: str) -> None:
    recorder = Recorder()
    addresses = []
    for pair in (plain, sasl):
        proxy_port, broker_port = map(int, pair.split(":"))
        serve(recorder, proxy_port, broker_port)
        addresses.append(f"127.0.0.1:{proxy_port}")
    recorder.client = f"kafka-clients {broker_version}"
    program = Path(__file__).with_name("RecordWireTraffic.java")
    subprocess.run(
        ["java", "-cp", f"{jars}/*", str(program), *addresses], check=True, timeout=120, stdout=DEVNULL, stderr=DEVNULL
    )
    recorder.client = f"confluent-kafka {version_of('confluent-kafka')}"
    run_confluent(addresses[0])
    recorder.client = f"kafka-python {version_of('kafka-python')}"
    run_kafka_python(addresses[0])
    entries = sorted(recorder.pairs.values(), key=lambda entry: (entry["api_key"], entry["version"], entry["client"]))
    provenance = f"record_wire.py between the named clients and Apache Kafka {broker_version}, one KRaft node"
    document = {"broker": f"Apache Kafka {broker_version}", "provenance": provenance, "pairs": entries}
    Path(output).write_text(json.dumps(document, indent=1) + "\n")
    print(len(entries), "pairs")


if __name__ == "__main__":
    main(*sys.argv[1:])
