"""A bar chart of the medians as SVG, without a plotting library: one panel per case, one bar per producer."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from bench.report import Row

_WIDTH, _LEFT, _RIGHT = 860, 260, 120
_BAR, _GAP, _HEAD = 18, 6, 34
_COLOURS = ("#1f6f8b", "#b8c4cc")


def chart(panels: Sequence[tuple[str, Sequence[Row]]]) -> str:
    parts: list[str] = []
    top = 10
    for title, rows in panels:
        parts.append(f'<text x="10" y="{top + 16}" font-weight="bold">{escape(title)}: records per second</text>')
        top += _HEAD
        highest = max(row.rate_max for row in rows)
        for row in rows:
            parts.append(_bar(row, top, (_WIDTH - _LEFT - _RIGHT) / highest))
            top += _BAR + _GAP
        top += _GAP
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top}" width="{_WIDTH}" height="{top}" '
        f'font-family="sans-serif" font-size="13">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _bar(row: Row, top: int, scale: float) -> str:
    """The bar is the median, the thin line the spread."""
    is_ours = "ours" in row.title
    title = row.title.replace("*", "").replace("`", "")
    middle, base = top + _BAR / 2, top + _BAR - 4
    first, last = _LEFT + row.rate_min * scale, _LEFT + row.rate_max * scale
    return (
        f'<text x="{_LEFT - 8}" y="{base}" text-anchor="end">{escape(title)}</text>'
        f'<rect x="{_LEFT}" y="{top}" width="{row.rate * scale:.1f}" height="{_BAR}" fill="{_COLOURS[not is_ours]}"/>'
        f'<line x1="{first:.1f}" y1="{middle}" x2="{last:.1f}" y2="{middle}" stroke="black"/>'
        f'<text x="{last + 8:.1f}" y="{base}">{row.rate / 1000:,.0f} k</text>'
    )
