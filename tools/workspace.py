"""A temporary folder that is removed at the end together with every process that uses it.

A process uses the folder if its command line has a path inside, or if its environment has kafka_watchdog.MARK with the
folder, which child processes inherit. A watchdog does the same if the owner is killed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools import kafka_watchdog


@contextmanager
def workspace(prefix: str) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    command = [sys.executable, "-S", "-E", kafka_watchdog.__file__, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True):
        # At the end of the block the watchdog's input is closed, and it does the same again.
        try:
            yield folder
        finally:
            kafka_watchdog.remove_everything(str(folder))
