"""Charts as SVG, without a plotting library: bars with their spread, lines over a logarithmic axis, and what happened
over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import log10
from typing import NamedTuple

_WIDTH, _LEFT, _RIGHT = 860, 260, 120
_BAR, _GAP, _HEAD = 18, 6, 34
_COLOURS = ("#1f6f8b", "#b8c4cc")
_LINE_COLOURS = ("#1f6f8b", "#e07a3f", "#7a8b99", "#9b59b6", "#3f9b5f", "#c0392b")
# Rules win over the attributes that the parts have.
_STYLE = (
    "<style>@media (prefers-color-scheme: dark) { rect[fill=white] { fill: #0d1117 } "
    "text:not([fill]) { fill: #f0f6fc } [stroke=black] { stroke: #9198a1 } "
    "[stroke='#ddd'] { stroke: #2f353d } [fill='#1f6f8b'] { fill: #4fb0d0 } "
    "[stroke='#1f6f8b'] { stroke: #4fb0d0 } }</style>"
)
_PLOT_HEIGHT, _PLOT_LEFT, _PLOT_RIGHT = 260, 60, 190
# Of a history: the height of a figure, and from when on a figure counts as gone.
_STRIP, _GONE_S = 34, 20
# The width of a letter, about.
_LETTER = 8
Point = tuple[float, float]
Event = tuple[float, str]


class Lane(NamedTuple):
    """One row of a waterfall: its title, and the times at which it was active (several spans, which may overlap)."""

    title: str
    spans: Sequence[tuple[float, float]]
    colour: int


class Bar(NamedTuple):
    """The bar is the median; the thin line on it is the spread."""

    title: str
    middle: float
    lowest: float
    highest: float
    is_ours: bool


def bars(panels: Sequence[tuple[str, Sequence[Bar]]]) -> str:
    """One panel per title, each with its own scale."""
    parts: list[str] = []
    top = 10
    for title, rows in panels:
        parts.append(f'<text x="10" y="{top + 16}" font-weight="bold">{escape(title)}</text>')
        top += _HEAD
        scale = (_WIDTH - _LEFT - _RIGHT) / max(row.highest for row in rows)
        for row in rows:
            parts.append(_bar(row, top, scale))
            top += _BAR + _GAP
        top += _GAP
    return _svg(top, parts)


def _bar(row: Bar, top: int, scale: float) -> str:
    middle, base = top + _BAR / 2, top + _BAR - 4
    first, last = _LEFT + row.lowest * scale, _LEFT + row.highest * scale
    return (
        f'<text x="{_LEFT - 8}" y="{base}" text-anchor="end">{escape(row.title)}</text>'
        f'<rect x="{_LEFT}" y="{top}" width="{row.middle * scale:.1f}" height="{_BAR}" '
        f'fill="{_COLOURS[not row.is_ours]}"/>'
        f'<line x1="{first:.1f}" y1="{middle}" x2="{last:.1f}" y2="{middle}" stroke="black"/>'
        f'<text x="{last + 8:.1f}" y="{base}">{row.middle / 1000:,.0f} k</text>'
    )


def curves(panels: Sequence[tuple[str, str, Mapping[str, Sequence[Point]]]]) -> str:
    """Panels of (title, label of the x axis, lines by name). x is logarithmic and positive, y begins at 0."""
    parts: list[str] = []
    top = 10
    for title, axis, lines in panels:
        parts += _panel(title, axis, lines, top)
        top += _PLOT_HEIGHT + 90
    return _svg(top, parts)


def _panel(title: str, axis: str, lines: Mapping[str, Sequence[Point]], top: int) -> list[str]:
    points = [point for line in lines.values() for point in line]
    low, high = log10(min(x for x, _ in points)), log10(max(x for x, _ in points))
    tallest = max(y for _, y in points)
    plot_top, right = top + _HEAD, _WIDTH - _PLOT_RIGHT
    bottom = plot_top + _PLOT_HEIGHT

    def across(x: float) -> float:
        return _PLOT_LEFT + (log10(x) - low) / ((high - low) or 1) * (right - _PLOT_LEFT)

    def up(y: float) -> float:
        return bottom - y / tallest * _PLOT_HEIGHT

    parts = [
        f'<text x="10" y="{top + 16}" font-weight="bold">{escape(title)}</text>',
        f'<path d="M{_PLOT_LEFT} {plot_top}V{bottom}H{right}" fill="none" stroke="black"/>',
        f'<text x="{right}" y="{bottom + 36}" text-anchor="end">{escape(axis)}</text>',
    ]
    for share in (0, 0.5, 1):
        parts.append(
            f'<text x="{_PLOT_LEFT - 6}" y="{up(tallest * share) + 4:.0f}" text-anchor="end">{tallest * share:g}</text>'
        )
    for x in _ticks(low, high):
        parts.append(f'<text x="{across(x):.0f}" y="{bottom + 18}" text-anchor="middle">{x:g}</text>')
        parts.append(f'<line x1="{across(x):.0f}" y1="{bottom}" x2="{across(x):.0f}" y2="{plot_top}" stroke="#ddd"/>')
    for number, (name, line) in enumerate(lines.items()):
        colour = _LINE_COLOURS[number % len(_LINE_COLOURS)]
        path = "L".join(f"{across(x):.1f} {up(y):.1f}" for x, y in line)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{right + 12}" y="{plot_top + 16 + 20 * number}" fill="{colour}">{escape(name)}</text>')
    return parts


def waterfall(title: str, lanes: Sequence[Lane]) -> str:
    """Time runs from left to right, lanes are rows; where spans of a lane overlap they are darker."""
    last = max(end for lane in lanes for _, end in lane.spans)
    scale = (_WIDTH - _LEFT - 70) / last
    parts = [f'<text x="10" y="26" font-weight="bold">{escape(title)}</text>']
    top = _HEAD + 6
    bottom = top + len(lanes) * (_BAR + 2)
    step = next(step for step in (5, 10, 20, 50, 100, 200, 500, 1000, 2000) if last / step <= 12)
    for at in range(0, int(last) + 1, step):
        x = _LEFT + at * scale
        parts.append(f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{at}</text>')
    for lane in lanes:
        parts.append(f'<text x="{_LEFT - 8}" y="{top + _BAR - 5}" text-anchor="end">{escape(lane.title)}</text>')
        for start, end in lane.spans:
            parts.append(
                f'<rect x="{_LEFT + start * scale:.1f}" y="{top}" width="{max(1.0, (end - start) * scale):.1f}" '
                f'height="{_BAR}" fill="{_LINE_COLOURS[lane.colour]}" fill-opacity="0.5"/>'
            )
        first, until = min(start for start, _ in lane.spans), max(end for _, end in lane.spans)
        count = f" ({len(lane.spans)})" if len(lane.spans) > 1 else ""
        parts.append(
            f'<text x="{_LEFT + until * scale + 4:.1f}" y="{top + _BAR - 5}">{until - first:.1f}{count}</text>'
        )
        top += _BAR + 2
    return _svg(bottom + 26, parts)


class Strip(NamedTuple):
    """One row of a history: a figure as a step line, by time. `unit` follows its largest value."""

    title: str
    points: Sequence[Point]
    unit: str = ""


class States(NamedTuple):
    """One row of a history: which state something was in, as (state, begin, end), and what is written behind."""

    title: str
    spans: Sequence[tuple[str, float, float]]
    note: str = ""


def history(
    title: str, strips: Sequence[Strip], states: Sequence[States], colours: Mapping[str, int], events: Sequence[Event]
) -> str:
    """Figures and states over the same seconds, and what happened meanwhile as lines through all of them."""
    last = max([*(x for strip in strips for x, _ in strip.points), *(end for row in states for _, _, end in row.spans)])
    scale = (_WIDTH - _LEFT - _RIGHT) / last
    parts = [f'<text x="10" y="22" font-weight="bold">{escape(title)}</text>']
    top = _HEAD + 18 * len(events) + 6
    for strip in strips:
        parts += _strip(strip, top, scale)
        top += _STRIP + _GAP * 2
    for row in states:
        parts += _states(row, top, scale, colours)
        top += _BAR + _GAP
    step = next(step for step in (30, 60, 120, 300, 600) if last / step <= 12)
    for second in range(0, int(last) + 1, step):
        label = f"{second // 60}:{second % 60:02d}"
        parts.append(f'<text x="{_LEFT + second * scale:.1f}" y="{top + 16}" text-anchor="middle">{label}</text>')
    for number, (at, text) in enumerate(events):
        x, y = _LEFT + at * scale, _HEAD + 10 + 18 * number
        side = ("start", x + 5) if x + _LETTER * len(text) < _WIDTH else ("end", x - 5)
        parts.append(
            f'<line x1="{x:.1f}" y1="{y - 10}" x2="{x:.1f}" y2="{top}" stroke="black" stroke-dasharray="3 3"/>'
        )
        parts.append(f'<text x="{side[1]:.1f}" y="{y}" text-anchor="{side[0]}">{escape(text)}</text>')
    top += 34
    for number, (state, colour) in enumerate(colours.items()):
        x = _LEFT + 110 * number
        parts.append(f'<rect x="{x}" y="{top - 10}" width="12" height="12" fill="{_LINE_COLOURS[colour]}"/>')
        parts.append(f'<text x="{x + 18}" y="{top}">{escape(state)}</text>')
    return _svg(top + 12, parts)


def _strip(strip: Strip, top: int, scale: float) -> list[str]:
    """The value holds until the next point."""
    tallest = max((y for _, y in strip.points), default=0) or 1
    bottom = top + _STRIP
    path = ""
    before: float | None = None
    for x, y in strip.points:
        across, up = _LEFT + x * scale, bottom - y / tallest * (_STRIP - 4)
        path += f"M{across:.1f} {up:.1f}" if before is None or x - before > _GONE_S else f"H{across:.1f}V{up:.1f}"
        before = x
    return [
        f'<text x="{_LEFT - 8}" y="{top + _STRIP / 2 + 4:.0f}" text-anchor="end">{escape(strip.title)}</text>',
        f'<line x1="{_LEFT}" y1="{bottom}" x2="{_WIDTH - _RIGHT}" y2="{bottom}" stroke="#ddd"/>',
        f'<text x="{_WIDTH - _RIGHT + 8}" y="{top + 12}">{tallest:.3g}{escape(strip.unit)}</text>',
        f'<path d="{path}" fill="none" stroke="{_LINE_COLOURS[0]}" stroke-width="2"/>',
    ]


def _states(row: States, top: int, scale: float, colours: Mapping[str, int]) -> list[str]:
    parts = [f'<text x="{_LEFT - 8}" y="{top + _BAR - 5}" text-anchor="end">{escape(row.title)}</text>']
    for state, begin, end in row.spans:
        parts.append(
            f'<rect x="{_LEFT + begin * scale:.1f}" y="{top}" width="{max(1.0, (end - begin) * scale):.1f}" '
            f'height="{_BAR}" fill="{_LINE_COLOURS[colours[state]]}"/>'
        )
    if row.note:
        parts.append(f'<text x="{_WIDTH - _RIGHT + 8}" y="{top + _BAR - 5}">{escape(row.note)}</text>')
    return parts


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten, within the range of the axis."""
    powers = range(int(low) - 1, int(high) + 2)
    marks = [round(step * 10.0**power, 6) for power in powers for step in (1, 2, 5)]
    return [mark for mark in marks if 10**low <= mark * 1.0001 and mark <= 10**high * 1.0001]


def _svg(height: int, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="13">\n{_STYLE}\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )
