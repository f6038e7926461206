"""Spark's folder of distributed files, when Spark cannot say where it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

IN_A_WORKER_WITHOUT_A_TASK = """
from kafka_sink.spark import files
files.is_sparks = lambda: True
print(files.spark_folder())
"""
# Nothing listens on this port any more: as for a driver process whose JVM has ended.
BEHIND_AN_ENDED_JVM = """
import socket
from py4j.java_gateway import GatewayParameters, JavaGateway
from pyspark import SparkContext, SparkFiles
from kafka_sink.options.host.files import locate_file
from kafka_sink.spark.files import look_in_spark_files
with socket.socket() as listener:
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
context = object.__new__(SparkContext)
context._jvm = JavaGateway(gateway_parameters=GatewayParameters(port=port)).jvm
SparkContext._active_spark_context = SparkFiles._sc = context
look_in_spark_files()
try:
    locate_file("ssl.x", "ca.pem")
except Exception as error:
    print(type(error).__name__)
"""


def output_of(script: str, *options: str) -> str:
    done = subprocess.run([sys.executable, *options, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("options", [(), ("-O",)], ids=["plain", "optimized"])
def test_a_process_of_spark_without_a_task_has_no_folder(options: tuple[str, ...]) -> None:
    assert output_of(IN_A_WORKER_WITHOUT_A_TASK, *options) == "None"


def test_a_file_is_missing_and_nothing_worse_if_the_jvm_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    assert output_of(BEHIND_AN_ENDED_JVM) == "ConfigError"
