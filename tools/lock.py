"""Writes requirements-release.txt and requirements-dev.txt: the versions of constraints.txt with hashes of their files.

    python -m tools.lock        needs uv, and asks the package index

Continuous integration and releases install from these two (`make HASHED=1`), and pip then refuses any file that differs
from those that were there when the pins were chosen. Write them again whenever constraints.txt or setup.py changes; a
test compares them. A plain `make` needs only constraints.txt.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tools.release import TOOLS

ROOT = Path(__file__).parent.parent
OLDEST_PYTHON = "3.10"
HEAD = "# Written by `python -m tools.lock` from constraints.txt and setup.py. Do not edit.\n"
# What is installed before anything is built, and what everything else is installed with.
RELEASE, DEV = "requirements-release.txt", "requirements-dev.txt"


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="pykafka-sink-") as folder:
        tools = Path(folder) / "tools.in"
        tools.write_text("".join(f"{name}\n" for name in ("pip", *TOOLS)))
        for name, sources in ((RELEASE, [str(tools)]), (DEV, ["--extra", "dev", "setup.py"])):
            command = [
                "uv", "pip", "compile", "--quiet", "--universal", "--python-version", OLDEST_PYTHON, "--no-header",
                "--no-annotate", "--generate-hashes", "--constraint", "constraints.txt", *sources,
            ]  # fmt: skip
            made = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
            (ROOT / name).write_text(HEAD + made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
