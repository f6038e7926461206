"""Equal seeds give equal runs in any process, whatever the order of its sets is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def digests_elsewhere(module: str, seed: int) -> set[str]:
    """The digests of two processes with different hash seeds."""
    found = set()
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-m", module, "--seed", str(seed)]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        output = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
        found.add(output.split()[-1])
    return found
