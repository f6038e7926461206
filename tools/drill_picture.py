"""Draws docs/pictures/alert-drill.svg from what Prometheus recorded in the drill: `python -m tools.drill_picture`.

The drill is a test, which writes the recording where PYKAFKA_SINK_DRILL says:

    PYKAFKA_SINK_DRILL=docs/pictures/alert-drill.json .venv/bin/pytest tests/integration/test_status_served.py -m slow

Its times are those of that run; another run, on a busier machine, has others.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.chart import Point, States, Strip, history

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
RECORDING, PICTURE = PICTURES / "alert-drill.json", PICTURES / "alert-drill.svg"
# What is asked of Prometheus, by title. The figures of a process that is gone end.
FIGURES = {
    "open decisions": "sum(pykafka_sink_status_open_decisions)",
    "time left until rows are lost": "min(pykafka_sink_status_decision_left_seconds) / 60",
    "findings: act now": 'sum(pykafka_sink_status_findings{severity="act"}) or 0 * sum(pykafka_sink_status_up)',
    "the status process is up": 'up{job="pykafka-sink-status"}',
}
UNITS = {"time left until rows are lost": " min"}
ALERTS = ("KafkaSinkActNow", "KafkaSinkStatusDown")
COLOURS = {"pending": 1, "firing": 5}
# Between two recorded values.
STEP_S = 5


def draw(recording: Mapping[str, Any]) -> str:
    figures, events = recording["figures"], [(at_s, text) for at_s, text in recording["events"]]
    strips = [Strip(title, [(x, y) for x, y in figures[title]], UNITS.get(title, "")) for title in FIGURES]
    states = [
        States(name, spans_of({state: recording["alerts"].get(f"{name} {state}", []) for state in COLOURS}),
               f"fires {recording['notes'][name]}")
        for name in ALERTS
    ]  # fmt: skip
    return history("A drill with Prometheus: minutes and seconds", strips, states, COLOURS, events)


def spans_of(times: Mapping[str, Sequence[float]]) -> list[tuple[str, float, float]]:
    """An alert is in a state from one of these moments to the next."""
    spans: list[tuple[str, float, float]] = []
    for state, moments in times.items():
        for at_s in moments:
            if spans and spans[-1][0] == state and at_s <= spans[-1][2]:
                spans[-1] = (state, spans[-1][1], at_s + STEP_S)
            else:
                spans.append((state, at_s, at_s + STEP_S))
    return sorted(spans, key=lambda span: span[1])


def points_of(values: Sequence[Sequence[Any]], began_s: float) -> list[Point]:
    """Of an answer to `query_range`. Where there is none, the figure was gone."""
    return [(round(at_s - began_s, 1), round(float(value), 2)) for at_s, value in values]


def main() -> None:
    PICTURE.write_text(draw(json.loads(RECORDING.read_text(encoding="utf-8"))), encoding="utf-8")
    sys.stdout.write(f"{PICTURE}\n")


if __name__ == "__main__":
    main()
