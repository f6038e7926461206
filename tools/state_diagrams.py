"""Draws the state diagrams of DESIGN.md from the tables in the code, so that a picture cannot lie.

    python -m tools.state_diagrams           rewrite DESIGN.md
    python -m tools.state_diagrams --check   exit 1 if DESIGN.md is not what the tables say

The page has a pair of markers per machine; what stands between them is replaced. Transitions that a table repeats for
nearly every state (a fatal error) are told in a sentence instead of drawn: a picture of everything shows nothing.
"""

from __future__ import annotations

import argparse
import pathlib
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from kafka_sink.engine import connection, transaction

PAGE = pathlib.Path(__file__).resolve().parent.parent / "DESIGN.md"
# An event that leads to the same state from more states than this is a sentence, not a set of arrows.
ARROWS_MAX = 5


def diagram(transitions: Mapping[Any, Mapping[Any, Any]], initial: Enum) -> str:
    arrows: dict[tuple[Any, Any], list[tuple[Any, Any]]] = {}
    for source, events in transitions.items():
        for event, target in events.items():
            arrows.setdefault((event, target), []).append((source, target))
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {initial.name}"]
    sentences = []
    for (event, target), pairs in arrows.items():
        if len(pairs) > ARROWS_MAX:
            missing = [state.name for state in transitions if (state, target) not in pairs and state is not target]
            spared = f" except {', '.join(missing)}" if missing else ""
            sentences.append(f"*{event.value}* leads to {target.name} from every other state{spared}.")
            continue
        lines.extend(f"    {source.name} --> {target.name}: {event.value}" for source, target in pairs)
    lines.append("```")
    return "\n".join(lines + [""] + sentences if sentences else lines)


MACHINES: Mapping[str, Callable[[], str]] = {
    "connection": lambda: diagram(connection.TRANSITIONS, connection.State.CONNECTING),
    "transaction": lambda: diagram(transaction.TRANSITIONS, transaction.State.UNINITIALIZED),
}


def drawn(page: str) -> str:
    for name, draw in MACHINES.items():
        pattern = re.compile(rf"(<!-- states: {name} -->\n).*?(<!-- end of states: {name} -->)", re.DOTALL)
        if not pattern.search(page):
            raise SystemExit(f"DESIGN.md has no markers for the machine {name!r}")
        page = pattern.sub(lambda match, draw=draw: f"{match[1]}{draw()}\n{match[2]}", page)  # type: ignore[misc]
    return page


def main() -> int:
    parser = argparse.ArgumentParser(description="Draw the state diagrams of DESIGN.md from the code.")
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 if the page is out of date")
    arguments = parser.parse_args()
    page = PAGE.read_text()
    expected = drawn(page)
    if arguments.check:
        return 0 if page == expected else 1
    PAGE.write_text(expected)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
