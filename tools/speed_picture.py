"""Draws the pictures of speed from the pages of the benchmarks: `python -m tools.speed_picture [folder]`.

speed.svg has every shape of rows, bars.svg three ways to write the same rows. Both show rows per second as a multiple
of Spark's own sink. A test compares the committed files, so that pictures and pages agree.

matplotlib draws the bars of speed.svg in 49 kB (these have 5), in one colour scheme: a page that is read in the dark
needs a second file. It brings 86 MB of packages and other bytes with each of its versions, and a test compares bytes.
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BENCHMARKS = ROOT / "docs" / "benchmarks"
FOLDER = ROOT / "docs" / "pictures"
SHAPES, SINKS = BENCHMARKS / "spark-shapes.md", BENCHMARKS / "spark-sinks.md"
# The case of bars.svg.
CASE = "100B-keyed-lz4"

# A logarithmic scale: 0.5 and 2 are equally far from 1. The largest value has to stand behind its bar.
LOWEST, HIGHEST, FACTORS = 0.5, 30.0, (0.5, 1, 2, 5, 10, 20)
LEFT, RIGHT, TOP, STEP = 230, 800, 74, 24
# Of the pictures. The one with three bars is on the first page, and has to be read on a phone.
WIDTH, NARROW = 860, 560

_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title" \
font-family="system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif" font-size="12.5">
<title id="title">{title}</title>
<style>
.card {{ fill: #ffffff; stroke: #d0d7de }} .text {{ fill: #1f2328 }} .soft {{ fill: #59636e }}
.grid {{ stroke: #d0d7de }} .one {{ stroke: #59636e }} .more {{ fill: #1a7f37 }} .less {{ fill: #bc4c00 }}
.other {{ fill: #8c959f }}
@media (prefers-color-scheme: dark) {{
.card {{ fill: #0d1117; stroke: #3d444d }} .text {{ fill: #f0f6fc }} .soft {{ fill: #9198a1 }}
.grid {{ stroke: #2f353d }} .one {{ stroke: #9198a1 }} .more {{ fill: #2ea043 }} .less {{ fill: #db6d28 }}
.other {{ fill: #656c76 }}
}}
</style>
<rect class="card" x="1" y="1" width="{inner_width}" height="{inner}" rx="10"/>
<text class="text" x="24" y="32" font-size="14" font-weight="600">{title}</text>
<text class="soft" x="24" y="50">{note}</text>
"""


def ratios(page: str) -> list[tuple[str, float]]:
    rows = re.findall(r"^\| ([\w-]+B?-[\w-]+) \| [\d,]+ \| [^|]+ \| [^|]+ \| ([\d.]+) \|", page, re.MULTILINE)
    return sorted(((name, float(ratio)) for name, ratio in rows), key=lambda row: -row[1])


def share_of_confluent(page: str, case: str) -> str:
    """The rate of confluent-kafka, relative to that of Spark's own sink."""
    (section,) = re.findall(rf"^## {case}:.*?(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    (row,) = re.findall(r"^\| confluent-kafka in .*$", section, re.MULTILINE)
    return str(row.split("|")[4].strip())


def every_shape(page: str) -> str:
    rows = ratios(page)
    bottom = TOP + STEP * len(rows)
    note = (
        "ours exactly once, Spark's at least once, with the same settings; 4 partitions, 2 tasks unless named otherwise"
    )
    parts = [_head("Rows per second, as a multiple of Spark's own sink", note, bottom + 40)]
    for factor in FACTORS:
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


def three_ways(shapes: str, sinks: str) -> str:
    ours = dict(ratios(shapes))[CASE]
    rows = [
        ("pykafka-sink, exactly once", ours, "more"),
        ("Spark's own sink, at least once", 1.0, "other"),
        ("confluent-kafka in foreachPartition", float(share_of_confluent(sinks, CASE)), "other"),
    ]
    height, scale = 30, (NARROW - LEFT - 90) / max(value for _, value, _ in rows)
    note = "keyed rows of 100 bytes, lz4, four partitions, two cores that the broker shares"
    parts = [_head("Rows per second, as a multiple of Spark's own sink", note, TOP + height * len(rows) + 16, NARROW)]
    for number, (name, value, kind) in enumerate(rows):
        y, left = TOP + height * number, LEFT + 20
        parts.append(f'<text class="text" x="{left - 12}" y="{y + 15}" text-anchor="end">{name}</text>')
        parts.append(f'<rect class="{kind}" x="{left}" y="{y}" width="{value * scale:.1f}" height="20" rx="2"/>')
        parts.append(f'<text class="text" x="{left + value * scale + 8:.1f}" y="{y + 15}">{value:.2f}</text>\n')
    return "".join([*parts, "</svg>\n"])


def pictures() -> dict[str, str]:
    shapes, sinks = (path.read_text(encoding="utf-8") for path in (SHAPES, SINKS))
    return {"speed.svg": every_shape(shapes), "bars.svg": three_ways(shapes, sinks)}


def _head(title: str, note: str, height: int, width: int = WIDTH) -> str:
    return _HEAD.format(title=title, note=note, height=height, width=width, inner=height - 2, inner_width=width - 2)


def _x(factor: float) -> float:
    share = math.log(factor / LOWEST) / math.log(HIGHEST / LOWEST)
    return round(LEFT + share * (RIGHT - LEFT), 1)


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    folder = Path(given[0]) if given else FOLDER
    for name, picture in pictures().items():
        (folder / name).write_text(picture, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
