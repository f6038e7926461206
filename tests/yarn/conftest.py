"""Fixtures of `make yarn`: a YARN cluster, and an environment that the guide's own commands have packed.

`make test` leaves this folder out. The cluster runs the PySpark of the interpreter that runs pytest; the environment
has the same Python and no PySpark.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import or_without_kafka
from tests.support.kafka_proxy import KafkaProxy
from tests.yarn.recipe import ARCHIVE, ROOT, Recipe, pack_command
from tools.kafka_cluster import KafkaCluster
from tools.yarn_cluster import YarnCluster

_SOURCES = ("kafka_sink", "pyspark_pykafka_sink", "setup.py", "README.md", "LICENSE", "pyproject.toml")


@pytest.fixture(scope="session")
def _yarn() -> Iterator[YarnCluster]:
    with or_without_kafka(YarnCluster()) as cluster:
        yield cluster


@pytest.fixture
def yarn(_yarn: YarnCluster) -> Iterator[YarnCluster]:
    """One NodeManager. Applications that still run afterwards are killed."""
    yield _yarn
    _yarn.heal()


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the package, as a wheel of these sources, and what it depends on."""
    folder = tmp_path_factory.mktemp("environment")
    sources, python = folder / "sources", folder / "venv" / "bin" / "python"
    sources.mkdir()
    for name in _SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, sources / name)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    pins = ["-c", ROOT / "constraints.txt"]
    subprocess.run([*pip, "install", "-q", *pins, "setuptools", "wheel"], check=True)
    subprocess.run([*pip, "install", "-q", *pins, "--no-build-isolation", sources], check=True)
    return folder / "venv"


@pytest.fixture(scope="session")
def archive(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive")
    activated = f"source {environment / 'bin' / 'activate'}\n{pack_command()}"
    run = subprocess.run(["bash", "-ec", activated], cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder / ARCHIVE


@pytest.fixture
def recipe(yarn: YarnCluster, archive: Path, tmp_path: Path) -> Recipe:
    folder = tmp_path / "submitted-from"
    folder.mkdir()
    (folder / ARCHIVE).hardlink_to(archive)
    return Recipe(yarn, folder)


@pytest.fixture
def proxy(kafka_4: KafkaCluster) -> Iterator[KafkaProxy]:
    with KafkaProxy(kafka_4.bootstrap_servers) as proxy:
        yield proxy
