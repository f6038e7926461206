"""Clients in a process that may open no more files; test_exhaustion.py runs it."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from kafka_sink import KafkaSinkError, Producer, parse_producer_options
from kafka_sink.commit.admin.client import Client


@contextmanager
def no_descriptor_left(free: int = 0) -> Iterator[None]:
    """But `free`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free + free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def tell(call: Callable[[], object]) -> None:
    with no_descriptor_left():
        try:
            call()
        except KafkaSinkError as error:
            print(error.name, error)


def renew_session(bootstrap_servers: str, password_file: str) -> None:
    """The password is read again while there is no descriptor, and once more when there is one."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": f"${{file:{password_file}:password}}",
            "linger.ms": 0,
        }
    )
    producer.send("rows", b"1").result()
    time.sleep(1.5)  # the session is over
    with no_descriptor_left():
        sent = producer.send("rows", b"2")
        time.sleep(0.5)
    print(sent.result().offset)
    producer.close()


def verify_by_folder(bootstrap_servers: str, folder: str) -> None:
    """The producer itself needs three, its connection one: none is left for the authority's file in the folder."""
    options = {"bootstrap.servers": bootstrap_servers, "security.protocol": "SSL", "ssl.truststore.location": folder}
    parsed = parse_producer_options(options)
    from kafka_sink.kafka.io import tls_connection  # noqa: F401 (the module would be one more file)

    with no_descriptor_left(free=4):
        producer = Producer(parsed)
        time.sleep(0.5)
    print(producer.send("rows", b"1").result().offset)
    producer.close()


def main() -> None:
    if len(sys.argv) > 2:
        what, *arguments = sys.argv[2:]
        {"session": renew_session, "folder": verify_by_folder}[what](sys.argv[1], *arguments)
        return
    options = parse_producer_options({"bootstrap.servers": sys.argv[1], "max.block.ms": 1500})
    tell(lambda: Producer(options))
    tell(lambda: Client(options).describe_topic("rows"))
    with Producer(replace(options, connections_max_idle_ms=100)) as producer:
        producer.partitions_for("rows")
        time.sleep(0.5)  # the connection is closed meanwhile
        tell(lambda: producer.send("rows", b"1") and producer.flush(1.5))


if __name__ == "__main__":
    main()
