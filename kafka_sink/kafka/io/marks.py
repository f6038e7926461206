"""Marks of commits that have begun but not succeeded, files called `{run}.{process id}` or `{run}.failed`, and of
aborted batches, `{run}.aborted`."""

from __future__ import annotations

import os

# Instead of the process id: the commit has failed; the batch was aborted, so it has no open decision.
FAILED, ABORTED = "failed", "aborted"


def list_unfinished_marks(folder: str) -> list[str]:
    """Their paths, without those of running commits."""
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder) if not _is_running(name)]
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's process, so it is alive
        return True
    return True


def _is_running(name: str) -> bool:
    state = name.rpartition(".")[2]
    return state.isdecimal() and is_alive(int(state))
