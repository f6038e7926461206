"""Writes docs/services.md: `python -m tools.services_table`. It runs every mode on the embedded broker with each quirk.

The sink is called as by Spark: it is planned, two tasks with a TaskContext write, their pickled messages are committed.
This needs no JVM and takes seconds. confluent-kafka counts the rows that read_committed readers see. What a preset
sets, needs and cannot do comes from kafka_sink/options/presets.py.
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
from kafka_sink.spark.task_context import BATCH_ID, JOB_GROUP, QUERY_ID
from kafka_sink.testing import EmbeddedBroker
from pyspark_pykafka_sink import DefaultSource
from tools.foreign_reader import read_topic

PATH = Path(__file__).parent.parent / "docs" / "services.md"
ROWS, TASKS = 100, 2
TOPIC = "rows"
ARRIVED = "all rows"
SCHEMA = StructType().add("value", StringType())
TRIED = "## What was tried"

_INTRODUCTION = """\
# Services

`preset=NAME` sets the options that a service needs; brokers, login and topics are yours. A job for Confluent Cloud:

```python
options = {
    "preset": "confluent-cloud",
    "kafka.bootstrap.servers": "pkc-12345.europe-west1.gcp.confluent.cloud:9092",
    "kafka.sasl.username": "${env:API_KEY}",
    "kafka.sasl.password": "${env:API_SECRET}",
    "topic": "orders",
    "topic.create": "true",
    "sink.id": "orders",
    "batch.id": "2026-11-26",
}
frame.select("key", "value").write.format("pykafka-sink").mode("append").options(**options).save()
```

Your own options override the preset; `pykafka-sink check --preset NAME --explain` shows both. Where a preset sets
nothing, the sink learns the differences from the brokers. As the services are documented, exactly once works on all of
them but WarpStream, where that is not known, and Event Hubs' tiers without transactions. **Nothing here was run against
a service itself**: each list names its documentation.

If brokers offer no transactions, exactly-once is refused when a write is planned. With
`delivery.fallback=at-least-once` the sink writes with that guarantee and logs this.
"""

_BEFORE_TABLE = f"""\
{TRIED}

On the embedded broker, which imitates the differences (`python -m tools.services_table`). All rows of batch writes and
streams arrived, exactly once and at least once, with each preset and `topic.create=true` and without a preset, but for
these:
"""


class Mode(NamedTuple):
    title: str
    is_stream: bool
    options: Mapping[str, str]
    has_preset: bool = True


# Names the batch, so that it is recorded in a ledger.
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
# The embedded broker needs no TLS and no login; without a preset none is set.
_PLAIN = {"kafka.security.protocol": "PLAINTEXT"}
_ATTEMPTS = itertools.count()
_QUICK = {"kafka.max.block.ms": "8000", "kafka.delivery.timeout.ms": "65000"}


def outcome(service: str, mode: Mode) -> str:
    """The number of visible rows, or the footnote of the error."""
    with EmbeddedBroker(3, quirks=service) as kafka:
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": TOPIC, **_QUICK, **mode.options}
        if mode.has_preset:
            options |= {"preset": service, "topic.create": "true", **_PLAIN}
        else:
            kafka.create_topic(TOPIC, 2)
        try:
            _write(mode, options)
        except KafkaSinkError as error:
            return f"refused: {footnote(error)}"
        finally:
            POOL.close()
        seen = {record.value for record in read_topic(kafka.bootstrap_servers, TOPIC)}
        return ARRIVED if len(seen) == ROWS else f"{len(seen)} of {ROWS} rows"


def _write(mode: Mode, options: Mapping[str, str]) -> None:
    if mode.is_stream:
        query = {QUERY_ID: str(uuid.uuid4()), BATCH_ID: "0", JOB_GROUP: str(uuid.uuid4())}
        located = {**options, "checkpointLocation": f"/checkpoints/{uuid.uuid4()}"}
        messages = _tasks(DefaultSource(dict(located)).streamWriter(SCHEMA, False), query)
        # Spark creates the writer of a stream again for each commit.
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


def footnote(error: KafkaSinkError) -> str:
    """Name and first sentence, without what differs from run to run: port, attempt, partition that failed first."""
    said = str(error).partition("\n")[0].removeprefix(f"{error.name} {error.entry.title}: ")
    said = re.sub(r" \(attempt \d+\)", "", said.partition(". ")[0].rstrip("."))
    said = re.sub(rf"\b({TOPIC})-\d+", r"\1", said)
    said = re.sub(r"127\.0\.0\.1:\d+", "host:port", said).replace("|", "\\|")
    return f"[{error.name}](errors.md#{error.name.lower()}): {said}."


def table(results: Mapping[tuple[str, str], str]) -> Iterator[str]:
    """What did not arrive, by the error; everything else did."""
    yield "| preset | mode | error |"
    yield "|---|---|---|"
    for service in PRESETS:
        others: dict[str, list[str]] = {}
        for mode in (*MODES, FALLBACK):
            result = results.get((service, mode.title), ARRIVED)
            if result != ARRIVED:
                others.setdefault(result.removeprefix("refused: "), []).append(mode.title)
        for said, titles in others.items():
            yield f"| `{service}` | {'; '.join(titles)} | {said} |"


def sections() -> str:
    """The part of the page that depends only on the presets."""
    lines = ["## What each preset sets", ""]
    for name, preset in PRESETS.items():
        lines += [f"### {preset.title}: `preset={name}`", ""]
        if preset.settings:
            lines += ["| option | value |", "|---|---|"]
            lines += [
                f"| `{option}` | {f'`{value}`' if value else 'empty'} |" for option, value in preset.settings.items()
            ]
        else:
            lines.append("Sets nothing.")
        for title, sentences in (("Needs:", preset.needs), ("Cannot:", preset.cannot)):
            if sentences:
                lines += ["", title, "", *(f"- {sentence}" for sentence in sentences)]
        lines += ["", "From " + ", ".join(f"<{source}>" for source in preset.sources) + ".", ""]
    return "\n".join(lines)


def page(results: Mapping[tuple[str, str], str]) -> str:
    return "\n".join([_INTRODUCTION, sections(), _BEFORE_TABLE, *table(results), ""])


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
