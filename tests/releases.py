"""An earlier release, unpacked from the history of this clone, for tests of an upgrade."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# The last commit before the query's id became a part of the sink's: decisions stand under the sink id alone.
BEFORE_QUERY_IDS = "98dd2ad"
# The last commit before records of the ledger had the name of their sink.
BEFORE_NAMES = "d2cfa39"


def release_of(commit: str, folder: Path) -> Path:
    """Everything as it was at this commit; the test is skipped where the history is not there."""
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True)
    if archive.returncode != 0:
        pytest.skip(f"commit {commit} is not in this clone")
    folder.mkdir()
    subprocess.run(["tar", "x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder
