"""The notebooks of examples/ run from top to bottom, each in its own kernel."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import require_java

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def test_notebooks_are_kept_without_what_they_printed() -> None:
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


# It starts a separate Spark application in a separate process.
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_notebook_shows_each_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_java()
    import nbformat
    from nbclient import NotebookClient

    (path,) = NOTEBOOKS
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent))
    monkeypatch.setenv("JUPYTER_DATA_DIR", kernel_of_this_python(tmp_path))
    # Any, since nbformat has no types.
    notebook: Any = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="here", resources={"metadata": {"path": str(tmp_path)}}).execute()
    said = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    results = [output["data"]["text/plain"] for output in said if output["output_type"] == "execute_result"]
    assert [result.count("name") for result in results[:1]] == [3] and results[1] == "['one', 'three', 'two']"
    printed = "".join(output["text"] for output in said if output.get("name") == "stdout")
    assert "PKS-1001 unknown option: 'tpoic' is not an option of this sink: did you mean topic?" in printed


def kernel_of_this_python(folder: Path) -> str:
    kernel = folder / "kernels" / "here"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "here", "language": "python"}))
    return str(folder)
