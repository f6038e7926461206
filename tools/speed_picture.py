"""Draws docs/pictures/speed.svg from docs/benchmarks/spark-shapes.md: `python -m tools.speed_picture [file]`.

It shows our rows per second as a multiple of Spark's own sink. A test compares the committed file, so that picture and
page agree.
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "benchmarks" / "spark-shapes.md"
PATH = ROOT / "docs" / "pictures" / "speed.svg"

# A logarithmic scale: 0.5 and 2 are equally far from 1.
LOWEST, HIGHEST = 0.5, 10.0
LEFT, RIGHT, TOP, STEP = 230, 800, 74, 24

_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 {height}" role="img" aria-labelledby="title" \
font-family="system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif" font-size="12.5">
<title id="title">Rows per second, exactly once, as a multiple of Spark's own sink, at least once</title>
<style>
.card {{ fill: #ffffff; stroke: #d0d7de }} .text {{ fill: #1f2328 }} .soft {{ fill: #59636e }}
.grid {{ stroke: #d0d7de }} .one {{ stroke: #59636e }} .more {{ fill: #1a7f37 }} .less {{ fill: #bc4c00 }}
@media (prefers-color-scheme: dark) {{
.card {{ fill: #0d1117; stroke: #3d444d }} .text {{ fill: #f0f6fc }} .soft {{ fill: #9198a1 }}
.grid {{ stroke: #2f353d }} .one {{ stroke: #9198a1 }} .more {{ fill: #2ea043 }} .less {{ fill: #db6d28 }}
}}
</style>
<rect class="card" x="1" y="1" width="858" height="{inner}" rx="10"/>
<text class="text" x="24" y="32" font-size="14" font-weight="600">\
Rows per second, as a multiple of Spark's own sink</text>
<text class="soft" x="24" y="50">\
ours exactly once, Spark's at least once, with the same settings; 4 partitions, 2 tasks unless named otherwise</text>
"""


def ratios(page: str) -> list[tuple[str, float]]:
    rows = re.findall(r"^\| ([\w-]+B?-[\w-]+) \| [\d,]+ \| [^|]+ \| [^|]+ \| ([\d.]+) \|", page, re.MULTILINE)
    return sorted(((name, float(ratio)) for name, ratio in rows), key=lambda row: -row[1])


def picture(page: str) -> str:
    rows = ratios(page)
    bottom = TOP + STEP * len(rows)
    parts = [_HEAD.format(height=bottom + 40, inner=bottom + 38)]
    for factor in (0.5, 1, 2, 5, 10):
        kind = "one" if factor == 1 else "grid"
        x = _x(factor)
        parts.append(f'<path class="{kind}" d="M{x} {TOP - 8}V{bottom}"/>')
        parts.append(f'<text class="soft" x="{x}" y="{bottom + 18}" text-anchor="middle">{factor:g}</text>\n')
    for number, (name, ratio) in enumerate(rows):
        y = TOP + STEP * number
        start, end = sorted((_x(1), _x(ratio)))
        kind = "more" if ratio >= 1 else "less"
        parts.append(f'<text class="text" x="{LEFT - 12}" y="{y + 12}" text-anchor="end">{name}</text>')
        parts.append(f'<rect class="{kind}" x="{start}" y="{y}" width="{max(end - start, 1):.1f}" height="16" rx="2"/>')
        parts.append(f'<text class="text" x="{end + 6:.1f}" y="{y + 12}">{ratio:.2f}</text>\n')
    return "".join([*parts, "</svg>\n"])


def _x(factor: float) -> float:
    share = math.log(factor / LOWEST) / math.log(HIGHEST / LOWEST)
    return round(LEFT + share * (RIGHT - LEFT), 1)


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    path = Path(given[0]) if given else PATH
    path.write_text(picture(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
