"""Marks of commits that have begun and have not ended well: files called `{run}.{process id}` or `{run}.failed`."""

from __future__ import annotations

import os

# In place of the process id: the commit has ended, in an error.
FAILED = "failed"


def list_unfinished_marks(folder: str) -> list[str]:
    """Their paths, without those of commits that go on."""
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder) if not _is_running(name)]
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's, so it lives
        return True
    return True


def _is_running(name: str) -> bool:
    state = name.rpartition(".")[2]
    return state.isdecimal() and is_alive(int(state))
