"""A Jupyter kernel of this Python, for notebooks that tests run."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def kernel_of_this_python(folder: Path) -> str:
    kernel = folder / "kernels" / "here"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "here", "language": "python"}))
    return str(folder)
