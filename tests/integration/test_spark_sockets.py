"""Advice to enable Unix sockets: given where they are disabled and could be enabled, once per application."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_sink.spark import sockets
from kafka_sink.spark.files import LOCAL_FOLDERS
from kafka_sink.spark.sockets import SETTING, advise_sockets, is_reached_over_tcp

OVER_TCP = {"PYTHON_WORKER_FACTORY_SECRET": "s"}
TOLD_IN_A_PROCESS = """
import logging, sys
logging.basicConfig(stream=sys.stdout, level=logging.INFO)
from kafka_sink.spark.sockets import advise_sockets
for _ in range(3):
    advise_sockets()
"""


def told_by_new_process(folder: str) -> int:
    """How often one planning process of that application gives the advice."""
    command = [sys.executable, "-c", TOLD_IN_A_PROCESS]
    environment = OVER_TCP | {"PYTHONPATH": ":".join(sys.path), LOCAL_FOLDERS: folder}
    done = subprocess.run(command, env=environment, capture_output=True, check=True, text=True)
    return done.stdout.count(SETTING)


@pytest.mark.parametrize(
    ("environment", "is_tcp"),
    [
        (OVER_TCP, True),
        ({**OVER_TCP, "PYTHON_UNIX_DOMAIN_ENABLED": "True"}, False),
        ({"PYTHON_UNIX_DOMAIN_ENABLED": "True"}, False),
        ({**OVER_TCP, "PYTHON_UNIX_DOMAIN_ENABLED": "false"}, True),
        ({}, False),  # not a worker of Spark
    ],
)
def test_the_environment_of_a_worker_tells_how_it_is_reached(environment: dict[str, str], is_tcp: bool) -> None:
    assert is_reached_over_tcp(environment) is is_tcp


def test_it_is_said_once_per_application_whatever_processes_it_plans_in(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    assert [told_by_new_process(str(first)) for _ in range(3)] == [1, 0, 0]
    assert told_by_new_process(str(second)) == 1


@pytest.mark.parametrize("folder", [".", "/dev/null/no-folder"])
def test_without_a_folder_of_the_application_it_is_said_once_per_process(folder: str, tmp_path: Path) -> None:
    assert [told_by_new_process(folder) for _ in range(2)] == [1, 1]
    assert not Path(sockets.NOTE).exists()


def connect_to_port_or_path(conn_info: object, auth_secret: object) -> None:
    """As PySpark 4.1 and newer have it."""


def connect_to_port(port: object, auth_secret: object) -> None:
    """As PySpark 4.0 and older have it."""


@pytest.mark.parametrize(("connect", "count"), [(connect_to_port_or_path, 1), (connect_to_port, 0), (None, 0)])
def test_a_spark_that_has_no_unix_sockets_is_left_alone(
    connect: object, count: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sockets._log_once.cache_clear()
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "s")
    monkeypatch.setattr(sockets.util, "local_connect_and_auth", connect)
    monkeypatch.delenv(LOCAL_FOLDERS, raising=False)
    with caplog.at_level(logging.INFO, "kafka_sink"):
        advise_sockets()
    assert [record.getMessage().count(SETTING) for record in caplog.records] == [1] * count


def test_the_installed_pyspark_has_unix_sockets() -> None:
    assert sockets.has_unix_sockets()
