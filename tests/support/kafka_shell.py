"""A shell with this package's command and Apache Kafka's own tools in its path, to paste what a text says."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.kafka_jars import class_path, java_command, tools_version
from tools.kafka_node import archive_options

ROOT = Path(__file__).parents[2]
TOOLS: Mapping[str, str] = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-reassign-partitions.sh": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
}


class KafkaShell:
    def __init__(self, folder: Path, version: str) -> None:
        self._folder = folder
        tools = tools_version(version)
        options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *archive_options(tools)]
        for name, main_class in TOOLS.items():
            self._write(name, [java_command(), *options, "-cp", class_path(tools), main_class])
        self._write("pykafka-sink", [sys.executable, "-m", "kafka_sink"])

    def paste(self, command: str) -> str:
        """Its output; whoever answers a question says yes."""
        path = f"{self._folder}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
        run = subprocess.run(
            ["bash", "-c", command], cwd=self._folder, env=environment, input="y\n", capture_output=True, text=True,
            timeout=300,
        )  # fmt: skip
        assert run.returncode == 0, f"{command}\n{run.stdout}{run.stderr}"
        return run.stdout

    def _write(self, name: str, command: list[str]) -> None:
        script = self._folder / name
        script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        script.chmod(0o755)
