"""Will the next start of this query find its checkpoint?

Spark accepts foreachBatch without checkpointLocation: it makes a folder for this one start, under a new query id. So
the next start reads all input again and numbers its batches anew. Under the new id its rows would be written again;
under a query.id of the user's, new rows would be left out as repeated ones. The same is true of an unnamed query whose
folder Spark makes in that of the session, also with the format.

Spark tells where a running query has its checkpoint in a classic session only, through objects behind its interface.
Where they cannot be reached, and over Spark Connect, only a folder that options name can contradict.

Each query is looked at once: another checkpoint has another query id.

Assumptions, for PySpark 3.4 to 4.3: `activeStreamingQueries` of the shared state has the executions by query id, and
one is not active any more before its stop cancels or interrupts anything; the
folder of one start is called temporary-UUID; Spark writes the file `metadata` before the first batch. Where one of them
fails, nothing is refused. For the format: the writer's queryName and checkpointLocation are among its options.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from kafka_sink.commit.location import read_location
from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.writes import CHECKPOINT_MISSING
from kafka_sink.kafka.io.warn_once import warn_once
from kafka_sink.options.sink_options import SinkOptions
from kafka_sink.spark.files import local_folder

LOCATION_OF_SESSION = "spark.sql.streaming.checkpointLocation"
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_OF_ONE_START = re.compile(rf".*/temporary-{_UUID}/?", re.DOTALL)
_UNNAMED = re.compile(rf"(.*)/{_UUID}/?", re.DOTALL)
# Of a path: Spark has replaced a relative one by the folder that was meant.
_BEFORE_NAMES = re.compile(r"\A(/|(\.\./)+)")
_LOCAL = re.compile(r"(file:|/)")
_BEGIN_ANEW = "Spark begins anew at each start, and every row is written again"
SEEN_MAX = 1024
_seen: dict[tuple[str, str | None], None] = {}  # by query id and location


class _RunningQuery(NamedTuple):
    checkpoint: str
    is_named: bool


def check_checkpoint(
    session: Any, query_id: str, batch_id: int | str, location: str | None, *, is_exactly_once: bool
) -> None:
    """`query_id`: Spark's, empty if it is not known here; `location`: the option."""
    seen = (query_id, location)
    if query_id and seen in _seen:
        return
    running = _running_query(session, query_id) if query_id else None
    problem = _of_one_start(session, running, batch_id) or _of_another_query(query_id, location, running)
    if problem:
        _tell(problem, is_exactly_once=is_exactly_once)
    if len(_seen) >= SEEN_MAX:
        _seen.clear()
    _seen[seen] = None


def check_checkpoint_of_format(options: SinkOptions) -> None:
    """Spark passes the writer's location and queryName to the format, and takes no stream of it without a location. So
    if it passes neither, the location is the session's, where only a name makes it the same at each start."""
    if not options.checkpoint_location and not options.query_name:
        _tell(_unnamed_in_session("a new folder"), is_exactly_once=options.is_exactly_once)


def _tell(problem: str, *, is_exactly_once: bool) -> None:
    if is_exactly_once:
        raise ConfigError(problem, CHECKPOINT_MISSING)
    warn_once(problem)


def is_running(session: Any, query_id: str) -> bool:
    """False: it has ended, somebody has stopped it, or Spark does not tell."""
    with suppress(Exception):  # as below
        return bool(_execution_of(session, query_id).isActive())
    return False


def _running_query(session: Any, query_id: str) -> _RunningQuery | None:
    with suppress(Exception):  # py4j's, of a JVM that ends, and whatever a platform has in place of these objects
        found = _execution_of(session, query_id)
        return _RunningQuery(str(found.resolvedCheckpointRoot()), found.name() is not None)
    return None


def _execution_of(session: Any, query_id: str) -> Any:
    of_id = session._jvm.java.util.UUID.fromString(query_id)
    return session._jsparkSession.sharedState().activeStreamingQueries().get(of_id)


def _of_one_start(session: Any, running: _RunningQuery | None, batch_id: int | str) -> str:
    if running is None:
        return ""
    if _OF_ONE_START.fullmatch(running.checkpoint):
        return (
            f"this query has no checkpoint that its next start could find: Spark has made {running.checkpoint} for "
            'this start alone. Set .option("checkpointLocation", ...) on the writer, beside foreachBatch (among the '
            f"options of the function it is only a name): without it {_BEGIN_ANEW}"
        )
    # Who resumes such a folder names it on the writer: it has had batches.
    unnamed = None if running.is_named or batch_id != 0 else _UNNAMED.fullmatch(running.checkpoint)
    if unnamed and _is_of_session(unnamed[1], session.conf.get(LOCATION_OF_SESSION, None)):
        return _unnamed_in_session(f"a new folder, {running.checkpoint}")
    return ""


def _unnamed_in_session(folder: str) -> str:
    return (
        f"this query has no checkpoint that its next start could find: {LOCATION_OF_SESSION} gives each start of a "
        f"query without a name {folder}. Set .queryName(...) on the writer, or "
        f'.option("checkpointLocation", ...): without them {_BEGIN_ANEW}'
    )


def _is_of_session(folder: str, setting: str | None) -> bool:
    """The folder has its file system and begins at the root; the setting may leave out both."""
    if not setting:
        return False
    end = _BEFORE_NAMES.sub("", read_location(str(setting)).path)
    return (read_location(folder).path or "/").endswith(f"/{end}")


def _of_another_query(query_id: str, location: str | None, running: _RunningQuery | None) -> str:
    folder = local_folder(location)
    if folder is None or (running is not None and not _LOCAL.match(running.checkpoint)):
        return ""
    named = _query_named_in(folder)
    if named is None or (named and query_id in ("", named)):
        return ""
    its = f"Its query is {named}" if named else "It has no file metadata with the id of a query"
    theirs = f", and the one that runs is {query_id}" if query_id else ""
    theirs += f", with its checkpoint in {running.checkpoint}" if running else ""
    return (
        f"checkpointLocation={location}, among the options of this write, is not the checkpoint of the query. {its}"
        f'{theirs}. Give it the location that the writer has in .option("checkpointLocation", ...); if the writer has '
        "none, set it there first: without it Spark begins anew at each start, and every row is written again"
    )


def id_in_checkpoint(location: str | None) -> str | None:
    """Spark writes it there when it starts the query. Only in a folder that this process can read."""
    folder = local_folder(location)
    return (_query_named_in(folder) or None) if folder is not None else None


def _query_named_in(folder: Path) -> str | None:
    """Empty: the folder is there, without an id; None: it cannot be read."""
    try:
        found = (folder / "metadata").read_bytes()
    except FileNotFoundError:
        return "" if folder.is_dir() else None
    except (OSError, ValueError):
        return None
    with suppress(ValueError, KeyError, TypeError):
        query_id = json.loads(found)["id"]
        return query_id if isinstance(query_id, str) else ""
    return ""
