"""The blocks of docs/quickstart.md work in each form in which a reader may paste them, as one reader after the other
pastes them: typed into an interpreter, in cells of a notebook, and in a file; with the broker of the package and with a
Kafka of the reader's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_sink.__main__ import main
from tests.spark.conftest import require_java
from tests.spark.kernels import kernel_of_this_python
from tests.support.page_blocks import BROKER, ROOT, blocks, commands, placed
from tools.kafka_cluster import KafkaCluster

# Each form starts a Spark of its own.
pytestmark = pytest.mark.slow
BLOCKS = [block for block in blocks("docs/quickstart.md") if block.language in ("python", "sh")]
PROGRAM = [block.code for block in BLOCKS if block.language == "python"]
OWN = [code for code in PROGRAM if code.startswith("servers = ")]
PEOPLE = ["Ada", "Grace", "Edsger"]


def with_the_package() -> list[str]:
    return [code for code in PROGRAM if code not in OWN]


def with_ones_own() -> list[str]:
    return [code for code in PROGRAM if "kafka." not in code.replace("kafka.bootstrap.servers", "")]


def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, "SPARK_LOCAL_IP": "127.0.0.1"}


def run(command: list[str], folder: Path, typed: str = "") -> str:
    ended = subprocess.run(
        command, cwd=folder, env=environment(), input=typed, capture_output=True, text=True, timeout=540, check=False
    )
    assert ended.returncode == 0 and "Traceback" not in ended.stderr, ended.stderr
    return ended.stdout


def typed_into_an_interpreter(codes: list[str], folder: Path) -> str:
    """A block is pasted with an empty line at its end."""
    return run([sys.executable, "-i", "-q"], folder, "\n".join([*codes, "exit()\n"]))


def in_a_file(codes: list[str], folder: Path) -> str:
    (folder / "program.py").write_text("\n".join(codes))
    return run([sys.executable, "program.py"], folder)


def in_a_notebook(codes: list[str], folder: Path) -> str:
    import nbformat
    from nbclient import NotebookClient

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_DATA_DIR", kernel_of_this_python(folder))
        for name, value in environment().items():
            patch.setenv(name, value)
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code) for code in codes])
        where = {"metadata": {"path": str(folder)}}
        NotebookClient(notebook, timeout=540, kernel_name="here", resources=where).execute()
    said = [output for cell in notebook.cells for output in cell.outputs]
    return "".join(output["text"] for output in said if output.get("name") == "stdout")


@pytest.mark.parametrize("form", [typed_into_an_interpreter, in_a_notebook, in_a_file])
@pytest.mark.filterwarnings("default")
def test_each_form_writes_and_shows_the_rows(form: Callable[[list[str], Path], str], tmp_path: Path) -> None:
    require_java()
    said = form(with_the_package(), tmp_path)
    assert all(name in said for name in PEOPLE) and "100 rows" in said


@pytest.mark.kafka
def test_with_ones_own_kafka_topics_are_made_and_a_command_shows_the_rows(
    kafka: KafkaCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    require_java()
    places = {BROKER: kafka.bootstrap_servers}
    assert "100 rows" in in_a_file([placed(code, places) for code in with_ones_own()], tmp_path)
    lines = [words for block in BLOCKS if block.language == "sh" for words in commands(placed(block.code, places))]
    ours = [words for program, *words in lines if program == "pykafka-sink"]
    assert [words[0] for words in ours] == ["check", "topic"]
    capsys.readouterr()
    for words in ours:
        assert main(words) in (0, 1)  # 1: advice, of a Kafka of one node
    said = capsys.readouterr().out
    assert [name for name in PEOPLE if f'"name":"{name}"' not in said] == []
