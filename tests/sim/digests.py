"""Equal seeds give equal runs in any process, whatever the order of its sets is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def digest_elsewhere(module: str, seed: int) -> str:
    """Of another process with another hash seed. That of this one is random, unless somebody has set it."""
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    command = [sys.executable, "-m", module, "--seed", str(seed)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    output = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    return output.split()[-1]
