"""The first write of a fresh application: `python -m bench.cold_start [--rounds N]`.

Each measurement starts a new Spark application that writes a thousand rows to our sink, by the format or through the
second door, to Spark's own, or to the null sink. The null sink is a Python sink that discards its rows. Its time is
Spark's cost for any format in Python: it looks up, creates, plans, runs and commits such a sink in one Python process
each. The application writes twice; applications alternate. The time starts when the session is ready and ends when
`save()` or `write()` returns. The Python processes start one after the other, and their start times show the steps of
the first write. The page also has the time that a Python worker needs to import the sink, in addition to the imports of
Spark's own worker.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from bench.contest import BROKER_JVM, BROKER_PROPERTIES
from bench.report import conditions, machine, publish
from tools.kafka_cluster import KafkaCluster
from tools.spark_jars import java_sink_jars

_ROOT = Path(__file__).parent.parent
# `kafka_sink.write` has no format.
DOOR = "second-door"
SINKS: Mapping[str, str] = {
    "ours, exactly once": "pykafka-sink",
    "second door, exactly once": DOOR,
    "Spark's own sink": "kafka",
    "null sink": "null-sink",
}
APPLICATION = f"""
import sys, time
from pyspark.sql import SparkSession
source, servers, topic, jars = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
spark.range(10).count()
for _ in range(2):
    started = time.monotonic()
    print("began", time.time())
    rows = spark.range(1000).selectExpr("CAST(id AS STRING) AS key", "repeat('x', 100) AS value")
    options = dict((("kafka.bootstrap.servers", servers), ("topic", topic)))
    if source == "{DOOR}":
        import kafka_sink
        kafka_sink.write(rows, options)
    else:
        rows.write.format(source).options(**options).mode("append").save()
    print("took", time.monotonic() - started)
"""
IMPORT = """
import sys, time
import numpy, pyarrow, pyspark.sql.datasource, pyspark.sql.types, pyspark.worker
started = time.perf_counter()
for name in sys.argv[1:]:
    __import__("kafka_sink.spark." + name)
print("took", time.perf_counter() - started)
"""
IMPORTED = {
    "a task": ("writers", "task"),
    "planning": ("datasource", "writers", "planning"),
    "a commit": ("writers", "driver"),
}


# Spark finds data sources like this: a package whose name starts with pyspark_ on the path of its workers.
# Python runs this code at the start of each process. It records the time and the purpose of the process.
STEPS, STEPS_CODE = (
    "COLD_STEPS",
    """
import os, sys, time
path = os.environ.get("COLD_STEPS")
if path and "pyspark.daemon" in sys.orig_argv:
    with open(path, "a") as file:
        file.write(f"{time.time()} {sys.orig_argv[-1]}\\n")
""",
)
# The steps in their order.
STEP_TITLES = {
    "pyspark.sql.worker.lookup_data_sources": "looking for the format",
    "pyspark.sql.worker.create_data_source": "creating the data source",
    "pyspark.sql.worker.write_into_data_source": "planning",
    "pyspark.worker": "the tasks",
    "pyspark.sql.worker.commit_data_source_write": "the commit",
}
NULL_PACKAGE, NULL_CODE = "pyspark_null_sink", "from bench.spark_peers import NullSink as DefaultSource\n"


def took(code: str, *arguments: str, steps: dict[str, list[float]] | None = None) -> list[float]:
    """`steps` receives the duration of each step of the first write."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    # Modules are compiled like an installed package: otherwise half of the measured time is Python's compiler.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / NULL_PACKAGE
        package.mkdir()
        (package / "__init__.py").write_text(NULL_CODE)
        (Path(folder) / "sitecustomize.py").write_text(STEPS_CODE)
        noted = Path(folder) / "steps"
        noted.touch()
        environment[STEPS] = str(noted)
        environment["PYTHONPATH"] = os.pathsep.join((folder, str(_ROOT)))
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], env=environment, cwd=_ROOT, text=True, capture_output=True,
            timeout=300,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(done.stderr[-2000:])
        if steps is not None:
            first_s = next(float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("began"))
            first_took_s = next(float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("took"))
            for title, step_ms in _steps(noted.read_text(), first_s, first_s + first_took_s):
                steps.setdefault(title, []).append(step_ms)
    return [float(line.split()[1]) * 1000 for line in done.stdout.splitlines() if line.startswith("took")]


def _steps(noted: str, began_s: float, ended_s: float) -> list[tuple[str, float]]:
    """Each step lasts until the next one begins."""
    starts = sorted((float(at), name) for at, name in (line.split() for line in noted.splitlines()))
    moments = [(began_s, "before the first process")]
    moments += [(at, STEP_TITLES.get(name, name)) for at, name in starts if began_s <= at <= ended_s]
    ends = [at for at, _ in moments[1:]] + [ended_s]
    return [(title, (end - at) * 1000) for (at, title), end in zip(moments, ends, strict=True)]


def markdown(
    times: Mapping[str, Sequence[Sequence[float]]],
    steps: Mapping[str, Mapping[str, Sequence[float]]],
    imports: Mapping[str, Sequence[float]],
    about: Mapping[str, str],
) -> str:
    lines = [
        "# The first write of a fresh application",
        "",
        "Written by `python -m bench.cold_start`. Each application writes a thousand rows twice. The time starts",
    ]
    lines += ["when the session is ready and ends when `save()` or `write()` returns: milliseconds, median"]
    lines += ["(lowest..highest).", ""]
    lines += ["| sink | first write | second write |", "| --- | --: | --: |"]
    for sink in times:
        lines.append(f"| {sink} | " + " | ".join(_spread(found) for found in zip(*times[sink], strict=True)) + " |")
    lines += [
        "",
        "Spark finds the null sink in the same way, and it discards its rows: the cost of any sink in Python.",
    ]
    lines += ["", "Steps of the first write; each lasts until the Python process of the next step starts.", ""]
    lines += ["| | " + " | ".join(steps) + " |", "| --- |" + " --: |" * len(steps)]
    for title in dict.fromkeys(title for found in steps.values() for title in found):
        cells = [f"{median(found[title]):,.0f}" if title in found else "" for found in steps.values()]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    lines += ["", "Time to import the sink, in addition to numpy, pyarrow and the imports of Spark's own worker:"]
    lines += ["; ".join(f"{who} {_spread(found)} ms" for who, found in imports.items()) + "."]
    return "\n".join([*lines, "", conditions(about)]) + "\n"


def _spread(found: Sequence[float]) -> str:
    return f"{median(found):,.0f} ({min(found):,.0f}..{max(found):,.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cold_start", description="Measure the first write.")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    jars = ",".join(str(jar) for jar in java_sink_jars())
    times: dict[str, list[list[float]]] = {sink: [] for sink in SINKS}
    steps: dict[str, dict[str, list[float]]] = {sink: {} for sink in SINKS}
    with KafkaCluster(properties=BROKER_PROPERTIES, jvm_options=BROKER_JVM) as kafka:
        topic = kafka.create_topic("cold", partitions=4)
        for number in range(options.rounds + 1):
            for sink, source in SINKS.items():
                arguments = (source, kafka.bootstrap_servers, topic, jars)
                found = took(APPLICATION, *arguments, steps=steps[sink] if number else None)
                if number:  # in the first round the broker and the machine's file cache are cold
                    times[sink].append(found)
                    print(f"{number}/{options.rounds} {sink:20} {found[0]:6.0f} {found[1]:6.0f} ms", flush=True)
    imports: dict[str, list[float]] = {who: [] for who in IMPORTED}
    for _ in range(2 * options.rounds):
        for who, modules in IMPORTED.items():
            imports[who] += took(IMPORT, *modules)
    about = {"applications": f"{options.rounds} each, alternating", **machine()}
    text = markdown(times, steps, imports, about)
    publish("cold-start", text, {"about": about, "ms": times, "steps_ms": steps, "import_ms": imports})


if __name__ == "__main__":
    main()
