"""A function that any process can be given, and that writes down what the sink believes to be in there."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple


class Facts(NamedTuple):
    is_sparks: bool
    ends: bool
    lives_on: bool
    folder: str | None
    # Of the sink's logger, after `show_log`.
    handlers: int


def writer_of_facts(file: Path) -> str:
    """The text of a function `tell(place)`, which needs nothing of these tests."""
    return f"""
SEEN = {str(file)!r}

def tell(place, seen=SEEN):
    import json, logging
    from kafka_sink.spark.files import application_folder
    from kafka_sink.spark.process import show_log
    from kafka_sink.spark.process import ends_with_exception, is_sparks, lives_on

    show_log()
    facts = [is_sparks(), ends_with_exception(), lives_on(), application_folder()]
    facts.append(len(logging.getLogger("kafka_sink").handlers))
    with open(seen, "a") as opened:
        opened.write(json.dumps([place, *facts]) + chr(10))
"""


def facts_in(file: Path) -> dict[str, set[Facts]]:
    found = defaultdict(set)
    for line in file.read_text().splitlines():
        place, *facts = json.loads(line)
        found[place].add(Facts(*facts))
    return dict(found)
