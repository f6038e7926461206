"""Streams of Spark Connect with a function for foreachBatch, which runs in a process of the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WORKER_LATE = "Python worker failed to connect back"
TRIES_MAX = 20


def stream_of(connected: Any, folder: Path) -> Any:
    """Two micro-batches: a and b, then c."""
    folder.mkdir()
    for number, text in enumerate(("a\nb\n", "c\n")):
        (folder / f"{number}.txt").write_text(text)
    return connected.readStream.option("maxFilesPerTrigger", 1).text(str(folder))


def start(rows: Any, function: Any, checkpoint: Path, **trigger: Any) -> Any:
    """Again if the process for the function was late: Spark waits ten seconds for it, which no setting changes. No
    query has started then."""
    writer = rows.writeStream.foreachBatch(function).option("checkpointLocation", str(checkpoint)).trigger(**trigger)
    for _ in range(TRIES_MAX):
        try:
            return writer.start()
        except Exception as error:
            if WORKER_LATE not in str(error):
                raise
    raise TimeoutError(WORKER_LATE)


def run(rows: Any, function: Any, checkpoint: Path) -> None:
    query = start(rows, function, checkpoint, availableNow=True)
    try:
        assert query.awaitTermination(600)
    finally:
        query.stop()
