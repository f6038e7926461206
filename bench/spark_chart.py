"""The chart of the shapes: for each shape one bar of our sink and one of Spark's own."""

from __future__ import annotations

from collections.abc import Sequence

from bench.chart import Bar, bars
from bench.spark_application import EXACTLY, JAVA
from bench.spark_cases import Case
from bench.spark_figures import Figures, Result, figures

_TITLES = {EXACTLY: "ours, exactly once", JAVA: "Spark's own, at least once"}


def shapes_chart(cases: Sequence[Case], results: Sequence[Result]) -> str:
    panels = []
    for case in cases:
        shown = [_bar(sink, found) for sink in _TITLES if (found := figures(sink, case, results)) is not None]
        if shown:
            panels.append((f"{case.name}: rows per second", shown))
    return bars(panels)


def _bar(sink: str, found: Figures) -> Bar:
    return Bar(_TITLES[sink], found.rate, found.rate_min, found.rate_max, sink == EXACTLY)
