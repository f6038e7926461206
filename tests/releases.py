"""An earlier release, unpacked from the history of this clone, for tests of an upgrade."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# The last commit before the query id became a part of the sink id: decisions are stored under the sink id alone.
BEFORE_QUERY_IDS = "98dd2ad"
# The last commit before ledger records contained the name of their sink.
BEFORE_NAMES = "d2cfa39"


def release_of(commit: str, folder: Path) -> Path:
    """Unpacks all files of this commit; the test is skipped if the clone does not contain the commit."""
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True)
    if archive.returncode != 0:
        pytest.skip(f"commit {commit} is not in this clone")
    folder.mkdir()
    subprocess.run(["tar", "x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder
