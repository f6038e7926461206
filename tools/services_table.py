"""Writes docs/services.md: `python -m tools.services_table`. Every mode is run on the embedded broker with each quirk.

The sink is called as Spark calls it: planned, two tasks with a TaskContext, their messages pickled, committed. No JVM
is needed for that, so it is a matter of seconds. confluent-kafka counts what read_committed readers see. What a preset
sets, needs and cannot do is printed from kafka_sink/options/presets.py.
"""

from __future__ import annotations

import itertools
import pickle
import re
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructType

from kafka_sink.errors import KafkaSinkError
from kafka_sink.options.presets import PRESETS
from kafka_sink.producer.pool import POOL
from kafka_sink.spark.place import BATCH_ID, QUERY_ID, RUN_ID
from kafka_sink.testing import EmbeddedBroker
from pyspark_pykafka_sink import DefaultSource
from tools.foreign_reader import read_topic

PATH = Path(__file__).parent.parent / "docs" / "services.md"
ROWS, TASKS = 100, 2
SCHEMA = StructType().add("value", StringType())
SECTIONS = "## What each preset sets"

_INTRODUCTION = f"""\
# Services

The table and the lists below it are written by `python -m tools.services_table`.

`preset=NAME` sets what a service needs; an option that is set beside it wins. `pykafka-sink check --preset NAME
--explain` prints the same lists for the options of a job.

What services differ in is taken from their documentation (the sources stand with each). **Nothing here was run against
a service itself.** Each quirk is emulated by the embedded broker, and {ROWS} rows were written to it in every mode, by
the calls that Spark makes; the table says what happened. `event-hubs` stands for its tiers without transactions.
To try it: `python -m kafka_sink.testing --quirks event-hubs`.

Columns two to five are with the preset, with `topic.create=true` and without TLS and login, which the embedded broker
has no need of. The last two are what the quirk does to a job that names no service, the last one with
`kafka.compression.type=lz4` and at-least-once.
"""

_AFTER_TABLE = """
Where brokers offer no transactions exactly-once is refused when a write is planned, before any row is sent. With
`delivery.fallback=at-least-once` the sink says so in the log and writes with that guarantee; nothing else turns
exactly-once off.
"""


class Mode(NamedTuple):
    title: str
    is_stream: bool
    options: Mapping[str, str]
    has_preset: bool = True


# A batch with a name, so that it is kept in a ledger.
_NAMED = {"sink.id": "services", "batch.id": "one"}
EXACTLY, AT_LEAST = {"delivery.guarantee": "exactly-once"}, {"delivery.guarantee": "at-least-once"}
MODES = (
    Mode("batch, exactly-once", False, {**EXACTLY, **_NAMED}),
    Mode("batch, at-least-once", False, AT_LEAST),
    Mode("stream, exactly-once", True, EXACTLY),
    Mode("stream, at-least-once", True, AT_LEAST),
    Mode("batch, exactly-once, no preset", False, {**EXACTLY, **_NAMED}, False),
    Mode("batch, lz4, no preset", False, {**AT_LEAST, "kafka.compression.type": "lz4"}, False),
)
FALLBACK = Mode("batch, delivery.fallback=at-least-once", False, {**EXACTLY, "delivery.fallback": "at-least-once"})
# What the embedded broker has no need of; without a preset nothing is set.
_PLAIN = {"kafka.security.protocol": "PLAINTEXT"}
_ATTEMPTS = itertools.count()
_QUICK = {"kafka.max.block.ms": "8000", "kafka.delivery.timeout.ms": "65000"}


def outcome(service: str, mode: Mode) -> str:
    """How many rows are visible, or what the error says."""
    with EmbeddedBroker(3, quirks=service) as kafka:
        topic = "rows"
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic, **_QUICK, **mode.options}
        if mode.has_preset:
            options |= {"preset": service, "topic.create": "true", **_PLAIN}
        else:
            kafka.create_topic(topic, 2)
        try:
            _write(mode, options)
        except KafkaSinkError as error:
            return f"refused: {_sentence(str(error))}"
        finally:
            POOL.close()
        seen = {record.value for record in read_topic(kafka.bootstrap_servers, topic)}
        return f"{len(seen)} of {ROWS} rows"


def _write(mode: Mode, options: Mapping[str, str]) -> None:
    if mode.is_stream:
        query = {QUERY_ID: str(uuid.uuid4()), BATCH_ID: "0", RUN_ID: str(uuid.uuid4())}
        located = {**options, "checkpointLocation": f"/checkpoints/{uuid.uuid4()}"}
        messages = _tasks(DefaultSource(dict(located)).streamWriter(SCHEMA, False), query)
        # Spark makes the writer of a stream anew for each commit.
        DefaultSource(dict(located)).streamWriter(SCHEMA, False).commit(messages, 0)
        return
    writer = DefaultSource(dict(options)).writer(SCHEMA, False)
    writer.commit(_tasks(writer, {}))


def _tasks(writer: Any, properties: Mapping[str, str]) -> list[Any]:
    context: Any = TaskContext._getOrCreate()
    messages = []
    for task in range(TASKS):
        context._partitionId, context._taskAttemptId = task, next(_ATTEMPTS)
        context._localProperties = dict(properties)
        TaskContext._setTaskContext(context)
        values = [str(number) for number in range(task, ROWS, TASKS)]
        rows = pa.RecordBatch.from_arrays([pa.array(values)], ["value"])
        messages.append(pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(writer)).write(iter([rows])))))
    return messages


def _sentence(text: str) -> str:
    """On one line, and without the port and the attempt of the moment."""
    said = re.sub(r" \(attempt \d+\)", "", " ".join(text.split()))
    return re.sub(r"127\.0\.0\.1:\d+", "host:port", said).replace("|", "\\|")


def table(results: Mapping[tuple[str, str], str]) -> Iterator[str]:
    """Errors stand below the table."""
    notes: list[str] = []
    titles = [mode.title for mode in MODES]
    yield "| preset | " + " | ".join(titles) + " |"
    yield "|---" * (len(titles) + 1) + "|"
    for service in PRESETS:
        cells = []
        for title in titles:
            result = results[service, title]
            if result.startswith("refused: "):
                said = result.removeprefix("refused: ")
                if said not in notes:
                    notes.append(said)
                result = f"refused ({notes.index(said) + 1})"
            cells.append(result)
        yield f"| `{service}` | " + " | ".join(cells) + " |"
    yield ""
    yield from (f"{number}. {said}" for number, said in enumerate(notes, 1))
    yield ""
    yield f"`event-hubs` with `delivery.fallback=at-least-once`, batch: {results['event-hubs', FALLBACK.title]}."


def sections() -> str:
    """From the presets alone."""
    lines = [SECTIONS, ""]
    for name, preset in PRESETS.items():
        lines += [f"### {preset.title}: `preset={name}`", ""]
        if preset.settings:
            lines += ["| option | value |", "|---|---|"]
            lines += [
                f"| `{option}` | {f'`{value}`' if value else 'empty'} |" for option, value in preset.settings.items()
            ]
        else:
            lines.append("Sets nothing: what differs is found out from the brokers.")
        for title, sentences in (("Needs:", preset.needs), ("Cannot:", preset.cannot)):
            if sentences:
                lines += ["", title, "", *(f"- {sentence}" for sentence in sentences)]
        lines += ["", "From " + ", ".join(f"<{source}>" for source in preset.sources) + ".", ""]
    return "\n".join(lines)


def page(results: Mapping[tuple[str, str], str]) -> str:
    return "\n".join([_INTRODUCTION, *table(results), _AFTER_TABLE, sections()])


def main() -> None:
    results = {}
    for service in PRESETS:
        for mode in (*MODES, *([FALLBACK] if service == "event-hubs" else [])):
            results[service, mode.title] = outcome(service, mode)
            sys.stdout.write(f"{service}: {mode.title}: {results[service, mode.title]}\n")
            sys.stdout.flush()
    PATH.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main()
