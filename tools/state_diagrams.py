"""Draws the state diagrams of the pages from the tables in the code, so that they agree with the code.

    python -m tools.state_diagrams           rewrite DESIGN.md and docs/commit-protocol.md
    python -m tools.state_diagrams --check   exit 1 if one of them differs from the tables

A page has a pair of markers for each machine; the text between them is replaced. Transitions that exist for nearly
every state (a fatal error) are described in a sentence, because too many arrows make a diagram unreadable. The phases
of a commit have so many transitions that they are a table; the purpose of each phase comes from the module's docstring.
"""

from __future__ import annotations

import argparse
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from kafka_sink.commit import phase
from kafka_sink.kafka.client import connection
from kafka_sink.producer.engine import transaction

ROOT = pathlib.Path(__file__).resolve().parent.parent
# An event that leads to the same state from more states than this becomes a sentence instead of arrows.
ARROWS_MAX = 5


def diagram(transitions: Mapping[tuple[Any, Any], Any], initial: Enum) -> str:
    arrows: dict[tuple[Any, Any], list[tuple[Any, Any]]] = {}
    for (source, event), target in transitions.items():
        arrows.setdefault((event, target), []).append((source, target))
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {initial.name}"]
    sentences = []
    for (event, target), pairs in arrows.items():
        if len(pairs) > ARROWS_MAX:
            missing = [state.name for state in type(initial) if (state, target) not in pairs and state is not target]
            spared = f" except {', '.join(missing)}" if missing else ""
            sentences.append(f"*{event.value}* leads to {target.name} from every other state{spared}.")
            continue
        lines.extend(f"    {source.name} --> {target.name}: {event.value}" for source, target in pairs)
    lines.append("```")
    return "\n".join(lines + [""] + sentences if sentences else lines)


def phase_table(transitions: Mapping[Any, Sequence[Any]], introduction: str) -> str:
    meanings = dict(re.findall(r"^  ([A-Z]+) +(.+)$", introduction, re.MULTILINE))
    lines = ["| phase | what happens | may be followed by |", "| --- | --- | --- |"]
    for source, targets in transitions.items():
        if targets:
            followers = ", ".join(target.name for target in targets)
            lines.append(f"| {source.name} | {meanings[source.name]} | {followers} |")
    return "\n".join(lines)


PAGES: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "DESIGN.md": {
        "connection": lambda: diagram(connection.TRANSITIONS, connection.ConnectionState.CONNECTING),
        "transaction": lambda: diagram(transaction.TRANSITIONS, transaction.TransactionState.UNINITIALIZED),
    },
    "docs/commit-protocol.md": {"commit": lambda: phase_table(phase.TRANSITIONS, phase.__doc__ or "")},
}


def draw_page(name: str, page: str) -> str:
    for machine, draw in PAGES[name].items():
        pattern = re.compile(rf"(<!-- states: {machine} -->\n).*?(<!-- end of states: {machine} -->)", re.DOTALL)
        if not pattern.search(page):
            raise SystemExit(f"{name} has no markers for the machine {machine!r}")
        page = pattern.sub(lambda match, draw=draw: f"{match[1]}{draw()}\n{match[2]}", page)  # type: ignore[misc]
    return page


def main() -> int:
    parser = argparse.ArgumentParser(description="Draw the state diagrams of the pages from the code.")
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 if a page is out of date")
    arguments = parser.parse_args()
    is_current = True
    for name in PAGES:
        path = ROOT / name
        page = path.read_text()
        expected = draw_page(name, page)
        is_current = is_current and page == expected
        if not arguments.check:
            path.write_text(expected)
    return 0 if is_current or not arguments.check else 1


if __name__ == "__main__":
    raise SystemExit(main())
