"""Every error that a user can get, with a permanent name: PKS-1001 and so on.

An error class says whose fault it is and how a program should react; its entry here tells a person what happened,
whether data is safe and what to do next. An error gets its entry where it is created, or has its class's.
docs/errors.md is generated from this table, `pykafka-sink explain` prints it.

A name is never reused. Numbers: 1xxx options and Spark, 2xxx rows, 3xxx brokers and topics, 4xxx logins and
permissions, 5xxx sending, 6xxx committing, 7xxx schemas, 8xxx the command line.
"""

from __future__ import annotations

from kafka_sink.errors.table import brokers, commits, writes
from kafka_sink.errors.table.entry import ErrorEntry as ErrorEntry

ENTRIES = {
    entry.name: entry
    for part in (writes, brokers, commits)
    for entry in vars(part).values()
    if isinstance(entry, ErrorEntry)
}
