"""What is wrong with the manifests of a sink, by a reader that is not ours."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from tools.foreign_reader import ForeignRecord, read_topic


def manifest_problems(
    bootstrap_servers: str, manifest_topic: str, sink: str, batches: Sequence[object], topic: str
) -> list[str]:
    """There must be one for each of `batches`, and their ranges must have every row of the topic, and share none."""
    records = read_topic(bootstrap_servers, manifest_topic)
    found = [json.loads(record.value or b"") for record in records]
    found = [each for each in found if each["sink"] == sink]
    problems = []
    times = Counter(each["batch"] for each in found)
    if times != Counter(batches):
        problems.append(f"manifests of {sink}: {dict(times)} instead of one for each of {batches}")
    rows = read_topic(bootstrap_servers, topic)
    for each in found:
        problems += _range_problems(each, topic, rows)
    counted = sum(each["topics"][topic]["rows"] for each in found if topic in each["topics"])
    if counted != len(rows):
        problems.append(f"the manifests of {sink} count {counted} rows, in {topic} are {len(rows)}")
    return problems


def _range_problems(manifest: dict[str, object], topic: str, rows: Sequence[ForeignRecord]) -> list[str]:
    told = manifest["topics"]
    assert isinstance(told, dict)
    if list(told) != [topic] or manifest["rows"] != told[topic]["rows"]:
        return [f"a manifest says {manifest}"]
    problems = []
    for partition, first, last, count in told[topic]["partitions"]:
        there = sum(row.partition == partition and first <= row.offset <= last for row in rows)
        if there != count:
            problems.append(f"batch {manifest['batch']}: {there} rows in partition {partition} instead of {count}")
    return problems
