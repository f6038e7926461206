"""The names that separate transactions of different writers: sink id, run, and the transactional ids made of them.

A transactional id belongs to one run of a query, because InitProducerId on an id aborts the transaction prepared under
it: a restarted query must never use an id of the run that crashed. The id contains the number of the task attempt that
used it first, which is unique in an application; a later attempt in the same process may reuse it (identity_pool.py).
All ids of a sink begin with `{sink_id}-`: one prefixed ACL covers them, and a hanging transaction can be recognised as
the sink's.

Each query has its own sink id: `{sink_id}-{hash of the query id}`. A name alone is not enough, because two queries can
have the same name by accident (every pod mounts its volume at /checkpoint; a relative path in two folders). Spark
creates the query id with the checkpoint and stores it there, so it moves with a checkpoint and a new checkpoint gets a
new one.

Ids are parsed from the right, since a sink id may contain dashes: three parts follow the sink id, or the word "driver",
alone or with the code of a label.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NamedTuple
from urllib.parse import urlsplit

import mmh3

from kafka_sink.commit.location import read_location
from kafka_sink.errors import ConfigError
from kafka_sink.options.sink_options import SINK_ID_LETTERS

DRIVER = "driver"
# Sink id in the transactional ids of a batch write without a label.
UNNAMED = "batch"
_LETTERS_OF_SINK_ID = re.compile(f"{SINK_ID_LETTERS}+")
_RUN_HASH = re.compile(r"[0-9a-f]{16}")
_OF_QUERY = re.compile(r"-[0-9a-f]{16}\Z")
# Spark counts its attempts in 64 bits.
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
NUMBER_MAX = 2**63 - 1
_LOWER_63_BITS, _HIGHEST_OF_32_BITS = 2**63 - 1, 2**31
_LOWER_31_BITS = 2**31 - 1
# Distance between further ids of one attempt. They differ in the partition number, and no job has this many partitions;
# the attempt number must remain unique.
PARTITION_STEP = 100_000_000
# User and password of a URI: up to the last @ before a slash.
_USER = re.compile(r"://[^/]*@")
SINK_LABEL_MAX = 120


class Line(NamedTuple):
    """A line of decisions: one driver at a time makes them, one after the other, and each knows those before it.

    A stream is one line, and so is a batch write without a label, since its sink id is its own. Each label
    of a sink is a line of its own: none knows of the others, so any number of them can be written at once. `code` is a
    hash of the label and its ledger, empty without a label. It is also the first half of the runs of that label, so
    whoever sees an open transaction knows which driver could still decide about it. Two labels with one code would
    share a line: slower, but not wrong.

    The ledger is part of it, since one export may run twice in a cluster, for testing and in earnest, each with a
    ledger of its own. Neither sees what the other has decided, and would take it for left open.
    """

    sink_id: str
    code: str = ""

    @property
    def driver_id(self) -> str:
        """The transactional id of its driver. It is in the prefix of the sink, and looks like no task's id."""
        return f"{self.sink_id}-{DRIVER}-{self.code}" if self.code else f"{self.sink_id}-{DRIVER}"


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """The parts of a task's transactional id. `run` is the hash, not the run id itself."""

    sink_id: str
    run: str
    spark_partition: int
    attempt: int

    @property
    def transactional_id(self) -> str:
        return f"{self.sink_id}-{self.run}-{self.spark_partition}-{self.attempt}"

    def another(self) -> TaskIdentity:
        """Another id for the same attempt, when it must no longer use this one."""
        return replace(self, spark_partition=self.spark_partition + PARTITION_STEP)


def name_of_stream(sink_id: str | None, checkpoint_location: str | None) -> str | None:
    """The name that a stream has in its ledger, before its query's hash is added. None: neither of the two is given."""
    if sink_id is not None or checkpoint_location is None:
        return sink_id
    return sink_id_of_checkpoint(checkpoint_location)


def sink_id_of_checkpoint(location: str) -> str:
    """The default name of a sink: the same for every spelling of one checkpoint location."""
    try:
        return f"{mmh3.hash128(normalize_location(location).encode()):032x}"
    except ValueError:
        shown = _USER.sub("://", location, count=1)
        raise ConfigError(f"the checkpoint location {shown!a} is neither a path nor a URI") from None


def label_of(query_name: str | None, location: str | None) -> str:
    """A readable name for a stream whose sink id is a hash: the query's name, or the end of its checkpoint location. A
    user and password before the host, which some file systems allow, must not appear in a topic."""
    text = query_name or _USER.sub("://", location or "", count=1)
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= SINK_LABEL_MAX else "..." + text[3 - SINK_LABEL_MAX :]


def has_letters_of_sink_id(text: str) -> bool:
    return bool(_LETTERS_OF_SINK_ID.fullmatch(text))


def normalize_location(location: str) -> str:
    """One spelling of a path or URI: `file:/a`, `file:///a/` and `/a` are the same place."""
    scheme, authority, path = read_location(location)
    urlsplit(f"//{authority}")  # a ValueError: no host can be written so
    prefix = f"{scheme}://{authority}" if scheme or authority else ""
    return prefix + (path or "/")


def run_hash(run_id: str) -> str:
    """Short form of a run id. 64 bits: two runs of one sink never share ids by accident."""
    return f"{mmh3.hash128(run_id.encode()) >> 64:016x}"


def run_of_query(run_id: str) -> str:
    """The run of a stream, or of a batch write without a label: its first digit is below 8."""
    return f"{mmh3.hash128(run_id.encode()) >> 64 & _LOWER_63_BITS:016x}"


def run_of_stream(run_id: str, code: str) -> str:
    """The run of a stream whose driver knows `code` alone, when none of its tasks has ended."""
    return f"{code}{_short_hash(run_id):08x}" if code else run_of_query(run_id)


def code_of_stream(application: str, location: str) -> str:
    """First half of the runs of one stream in one application. Its first digit is below 8, as in the run of any
    stream."""
    return f"{_short_hash(f'{application}/{location}') & _LOWER_31_BITS:08x}"


def run_of_label(label: str, unique: str, ledger_topic: str) -> str:
    """The run of a labelled batch write: it begins with the code of the label."""
    return f"{code_of_label(label, ledger_topic)}{_short_hash(unique):08x}"


def code_of_label(label: str, ledger_topic: str) -> str:
    """A hash whose first digit is 8 or more. So the runs of labels can be told from all others, and those of one label
    from those of another: transactions left open by a crashed run of the same export are aborted, and those of a
    concurrent one are not."""
    return f"{_short_hash(f'{ledger_topic}/{label}') | _HIGHEST_OF_32_BITS:08x}"


def code_of_run(run: str) -> str:
    """The code of the label whose run it is; empty for every other run."""
    return run[:8] if run[0] >= "8" else ""


def _short_hash(text: str) -> int:
    # A label that is not Unicode is refused later, when it is recorded.
    return mmh3.hash128(text.encode(errors="surrogatepass")) >> 96


def sink_id_of_query(sink_id: str, query_id: str) -> str:
    """The sink id of one query. Without a query (a batch write) it is the given one."""
    return f"{sink_id}-{run_hash(query_id)}" if query_id else sink_id


def sink_id_of_write(named: str | None, run: str) -> str:
    """The sink id of a batch write without a label: its own, in the prefix of the given one if there is one."""
    return f"{named or UNNAMED}-{run}"


def belongs_to(sink_id: str, named: str) -> bool:
    """Whether the sink id is the given one, or that of a query under it."""
    return sink_id == named or (sink_id.startswith(named) and bool(_OF_QUERY.fullmatch(sink_id, len(named))))


def name_of_sink(sink_id: str) -> str:
    """Without the query."""
    return _OF_QUERY.sub("", sink_id)


def transactional_id_prefix(sink_id: str) -> str:
    """Common prefix of the ids of a sink's driver and tasks, for a prefixed ACL."""
    return f"{sink_id}-"


def parse_task_identity(transactional_id: str) -> TaskIdentity | None:
    """None: not a task's id, such as the driver's or that of another application."""
    parts = transactional_id.rsplit("-", 3)
    if len(parts) != 4:
        return None
    sink_id, run, spark_partition, attempt = parts
    if not has_letters_of_sink_id(sink_id) or not _RUN_HASH.fullmatch(run):
        return None
    if not _NUMBER.fullmatch(spark_partition) or not _NUMBER.fullmatch(attempt):
        return None
    identity = TaskIdentity(sink_id, run, int(spark_partition), int(attempt))
    return identity if max(identity.spark_partition, identity.attempt) <= NUMBER_MAX else None
