"""Runs Java against a version's jars: a tool's main class, or a small source file of our own.

Used by the console reader, by benchmarks (ProducerPerformance) and by the scripts that record golden bytes and
placements from the Java client. `java Source.java` compiles in memory, so no class file remains.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.kafka_jars import class_path, java_command, tools_version
from tools.kafka_node import archive_options

PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
# From Kafka 3.8 on.
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"

_QUIET = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=error",)
# A tool runs for seconds; the second compiler tier would cost more than it saves.
_SHORT_RUN = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def dump_log_segments(version: str) -> str:
    """This class moved after Kafka 4.0."""
    return "kafka.tools.DumpLogSegments" if release(version) < (4, 1) else "org.apache.kafka.tools.DumpLogSegments"


def console_consumer(version: str) -> str:
    """This class moved in Kafka 3.8."""
    return "kafka.tools.ConsoleConsumer" if release(version) < (3, 8) else CONSOLE_CONSUMER


def release(version: str) -> tuple[int, int]:
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


class JavaFailed(Exception):
    """A Java program ended with an error; the text contains its output."""


def run_class(
    version: str,
    main_class: str,
    arguments: Sequence[str],
    *,
    input_bytes: bytes = b"",
    timeout_s: float = 300,
    jvm_options: Sequence[str] = _SHORT_RUN,
    more_jars: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
) -> bytes:
    """The standard output of `main_class` from the jars of `version`, or of the newest tools if it has none.

    `environment` is added to that of this process.
    """
    return _run(
        tools_version(version), [*jvm_options], [main_class, *arguments], input_bytes, timeout_s, more_jars, environment
    )


def run_source(
    version: str, source: Path, arguments: Sequence[str] = (), *, input_bytes: bytes = b"", timeout_s: float = 300
) -> bytes:
    """Compiles a source file against the jars of `version`, runs its main, and returns its standard output."""
    return _run(version, [*_SHORT_RUN], [str(source), *arguments], input_bytes, timeout_s)


def _run(
    version: str,
    options: Sequence[str],
    program: Sequence[str],
    input_bytes: bytes,
    timeout_s: float,
    more_jars: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
) -> bytes:
    jars = os.pathsep.join([class_path(version), *map(str, more_jars)])
    command = [java_command(), *_QUIET, *archive_options(version), *options, "-cp", jars, *program]
    whole = {**os.environ, **(environment or {})}
    run = subprocess.run(command, input=input_bytes, capture_output=True, timeout=timeout_s, env=whole)
    if run.returncode != 0:
        text = (run.stderr[-3000:] + run.stdout[-1000:]).decode(errors="replace")
        raise JavaFailed(f"{program[0]} ended with {run.returncode}: {text}")
    return run.stdout
