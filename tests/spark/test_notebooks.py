"""The notebooks of examples/ run from top to bottom, each in its own kernel."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.testing import EmbeddedBroker
from tests.spark.conftest import require_java
from tests.spark.kernels import kernel_of_this_python

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def test_notebooks_are_kept_without_what_they_printed() -> None:
    assert len(NOTEBOOKS) == 2
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


# What a platform has in each notebook.
PLATFORM = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
"""


PLACES = 'servers, folder = "broker:9092", "/Volumes/main/default/kafka"'


def run_notebook(path: Path, folder: Path, before: str = "", places: str = "") -> Any:
    """Cells with the tag `platform` are those that only a platform can run. `places`: in place of those of the text."""
    import nbformat
    from nbclient import NotebookClient

    # Any, since nbformat has no types.
    notebook: Any = nbformat.read(path, as_version=4)
    notebook.cells = [cell for cell in notebook.cells if "platform" not in cell.metadata.get("tags", ())]
    if places:
        (cell,) = (cell for cell in notebook.cells if PLACES in cell.source)
        cell.source = cell.source.replace(PLACES, places)
    if before:
        notebook.cells.insert(0, nbformat.v4.new_code_cell(before))
    where = {"metadata": {"path": str(folder)}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(EXAMPLES.parent))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("JUPYTER_DATA_DIR", kernel_of_this_python(folder))
        NotebookClient(notebook, timeout=300, kernel_name="here", resources=where).execute()
    return [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def printed_by(said: Any) -> str:
    return "".join(output["text"] for output in said if output.get("name") == "stdout")


# Each starts a separate Spark application in a separate process.
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_notebook_shows_each_row_once(tmp_path: Path) -> None:
    require_java()
    said = run_notebook(EXAMPLES / "spark_to_kafka.ipynb", tmp_path)
    results = [output["data"]["text/plain"] for output in said if output["output_type"] == "execute_result"]
    assert [result.count("name") for result in results[:1]] == [3] and results[1] == "['one', 'three', 'two']"
    assert "PKS-1001 unknown option: 'tpoic' is not an option of this sink: did you mean topic?" in printed_by(said)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_notebook_of_a_platform_writes_a_table_and_a_stream(tmp_path: Path) -> None:
    require_java()
    with EmbeddedBroker() as kafka:
        places = f"servers, folder = {kafka.bootstrap_servers!r}, {str(tmp_path)!r}"
        said = run_notebook(EXAMPLES / "on_a_platform.ipynb", tmp_path, PLATFORM, places)
        printed = printed_by(said)
        assert "3 rows, delivered before: False" in printed and "100 rows" in printed
        (checked,) = (output["data"]["text/plain"] for output in said if output["output_type"] == "execute_result")
        assert "orders" in checked
        assert (len(kafka.records("orders")), len(kafka.records("numbers"))) == (3, 100)
