"""`pykafka-sink transactions --abort --transactional-id ID`: ends the transaction of another application.

Whoever asks for a producer id under a transactional id fences its producer, and the coordinator aborts what that has
open. Kafka's own tool does the same (`forceTerminateTransaction`). The ids of sinks are refused: what is open there may
be decided.
"""

from __future__ import annotations

import argparse
import re

from kafka_sink.commit.admin.asking import Bodies
from kafka_sink.commit.describe_transactions import DescribeTransactions, TransactionDescription
from kafka_sink.commit.identity import parse_task_identity
from kafka_sink.commit.listing import OPEN_STATES
from kafka_sink.errors import BrokerError, ConfigError, KafkaSinkError, OperationTimeout
from kafka_sink.errors.table.commits import COMMAND_WRONG
from kafka_sink.kafka.client.ask import Coordinator
from kafka_sink.kafka.client.outcome import DriverOutcome, describe_answer, driver_outcome
from kafka_sink.kafka.wire.apis import INIT_PRODUCER_ID, ONGOING, PREPARE_COMMIT
from kafka_sink.operate.cli.report import DONE, OPEN, Report, confirm
from kafka_sink.operate.cli.sink_client import SinkClient
from kafka_sink.operate.status.findings import span

LOOK_AGAIN_MS = 100
_OF_DRIVER = re.compile(r"(.+)-driver(-[0-9a-f]{8})?")


def end_transaction(sink: SinkClient, given: argparse.Namespace) -> Report:
    name = given.transactional_id
    _check_is_foreign(sink, name)
    found = describe_one(sink, name)
    if found is None or found.state not in OPEN_STATES:
        text = f"no transaction of {name!r} is open; there is nothing to abort"
        return Report(DONE, {"transactional_id": name, "aborted": False}, [text])
    if found.state != ONGOING:
        return _report_unmarked(name, found)
    topics = ", ".join(sorted({topic for topic, _ in found.partitions})) or "no topic yet"
    age = span(sink.wall_ms - found.start_ms)
    confirm(
        given,
        [
            f"{name!r} has a transaction open for {age}, in {topics} (time-out {span(found.timeout_ms)}).",
            "What it has written there is aborted, and its producer is fenced: it fails at its next request.",
        ],
    )
    _fence(sink, found)
    left = describe_one(sink, name)
    is_open = left is not None and left.state in OPEN_STATES and left.producer_epoch == found.producer_epoch
    # Its producer may have ended it in the last moment.
    fenced = f"fenced the producer of {name!r}: what it had open then was aborted"
    text = f"still open: {name!r}" if is_open else fenced
    return Report(OPEN if is_open else DONE, {"transactional_id": name, "aborted": not is_open}, [text])


def _report_unmarked(name: str, found: TransactionDescription) -> Report:
    """How it ends is decided, and readers wait for its markers alone."""
    fate = "committed" if found.state == PREPARE_COMMIT else "aborted"
    text = (
        f"{name!r} is {fate}, only its markers are missing; nothing can be aborted. Brokers write them when each of "
        "its partitions has a leader and enough replicas in sync"
    )
    return Report(OPEN, {"transactional_id": name, "aborted": False}, [text])


def _check_is_foreign(sink: SinkClient, name: str) -> None:
    identity, of_driver = parse_task_identity(name), _OF_DRIVER.fullmatch(name)
    sink_id = identity.sink_id if identity else of_driver[1] if of_driver else None
    if sink_id is not None:
        raise ConfigError(
            f"{name!r} is of sink {sink_id}, and may be decided: use `{sink.commands.abort_transactions(sink_id)}`"
            f"{sink.commands.hint}",
            COMMAND_WRONG,
        )


def describe_one(sink: SinkClient, name: str) -> TransactionDescription | None:
    step = DescribeTransactions(sink.settings(), [name])
    return sink.run_step(step, "the state of the transaction").found.get(name)


def _fence(sink: SinkClient, found: TransactionDescription) -> None:
    """The coordinator refuses until it has aborted the transaction."""
    name, client = found.transactional_id, sink.client

    def lacks(bodies: Bodies) -> KafkaSinkError | None:
        error_code = bodies[0]["error_code"]
        meant = driver_outcome(INIT_PRODUCER_ID, error_code)
        if meant is DriverOutcome.DONE:
            return None
        text = f"{name!r} was not fenced: {describe_answer(INIT_PRODUCER_ID.name, error_code)}"
        if not meant.is_again:
            raise BrokerError(text, code=error_code, api=INIT_PRODUCER_ID.name)
        return OperationTimeout(text)

    client.ask(
        Coordinator(name), INIT_PRODUCER_ID, {"transactional_id": name, "transaction_timeout_ms": found.timeout_ms},
        timeout_ms=client.options.max_block_ms, lacks=lacks, wait_ms=LOOK_AGAIN_MS,
    )  # fmt: skip
