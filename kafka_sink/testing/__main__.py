"""An embedded Kafka from the command line, until Ctrl-C:

python -m kafka_sink.testing --port 9092 --topic events:6 --brokers 3 --data-dir /tmp/kafka --schema-registry 8081
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from contextlib import ExitStack
from functools import partial

from kafka_sink.errors import ConfigError
from kafka_sink.testing.errors import Refused
from kafka_sink.testing.quirks import QUIRKS
from kafka_sink.testing.registry.server import EmbeddedRegistry
from kafka_sink.testing.server import EmbeddedBroker
from kafka_sink.testing.settings import RELEASES


def _split_name(text: str, separator: str) -> tuple[str, str]:
    name, _, rest = text.partition(separator)
    if not name or not rest:
        raise argparse.ArgumentTypeError(f"name{separator}... is needed, not {text!r}")
    return name, rest


def _parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a number above 0 is needed, not {text!r}")
    return int(text)


def _parse_topic(text: str) -> tuple[str, int]:
    name, count = _split_name(text, ":")
    return name, _parse_count(count)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m kafka_sink.testing", description="an embedded Kafka for tests, until Ctrl-C"
    )
    parser.add_argument("--brokers", type=_parse_count, default=1, help="how many brokers (default 1)")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on and to tell clients")
    parser.add_argument("--port", type=int, default=9092, help="of the first broker, the others follow; 0: any")
    parser.add_argument("--topic", type=_parse_topic, action="append", default=[], metavar="NAME:PARTITIONS")
    parser.add_argument(
        "--user",
        type=partial(_split_name, separator=":"),
        action="append",
        metavar="NAME:PASSWORD",
        help="clients must authenticate (SASL_PLAINTEXT)",
    )
    parser.add_argument(
        "--property", type=partial(_split_name, separator="="), action="append", default=[], metavar="NAME=VALUE"
    )
    parser.add_argument("--release", choices=RELEASES, default=RELEASES[0], help="whose API versions are offered")
    parser.add_argument("--quirks", choices=list(QUIRKS), default="", help="behave like this service")
    parser.add_argument("--data-dir", help="where to keep topics and records; without it they are gone at the end")
    parser.add_argument(
        "--schema-registry", type=int, metavar="PORT", help="an embedded schema registry beside it; 0: any port"
    )
    given = parser.parse_args(arguments)
    try:
        kafka = EmbeddedBroker(
            given.brokers,
            topics=dict(given.topic),
            users=dict(given.user) if given.user else None,
            data_dir=given.data_dir,
            properties=dict(given.property),
            release=given.release,
            quirks=given.quirks,
            host=given.host,
            port=given.port,
        )
    except ConfigError as error:
        parser.error(str(error))
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with ExitStack() as running:
        try:
            running.enter_context(kafka)
            print(f"bootstrap.servers={kafka.bootstrap_servers}", flush=True)
            if given.schema_registry is not None:
                registry = running.enter_context(EmbeddedRegistry(host=given.host, port=given.schema_registry))
                print(f"schema.registry.url={registry.url}", flush=True)
        except Refused as refusal:
            parser.error(f"a topic cannot be created: {refusal}")
        except (OSError, OverflowError) as error:  # a port above 65535 overflows
            if isinstance(error, OSError) and error.filename is not None:
                parser.error(f"the data directory cannot be used: {error}")
            reason = error.strerror if isinstance(error, OSError) else error
            parser.error(f"it cannot listen: {reason}. Choose other ports, or 0 for any")
        while kafka.is_running and not stopped.wait(1.0):  # split: a signal just before it sleeps does not wake it
            pass
        if not stopped.is_set():
            sys.exit(1)  # the server's thread has reported why it ended


if __name__ == "__main__":
    main()
