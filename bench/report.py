"""Computes medians, spread and ratios from single runs; formats them for the terminal, as Markdown and as JSON."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median

from bench.contest import Result
from bench.plan import BATCH_BYTES, JAVA, KAFKA_PYTHON, LINGER_MS, PARTITIONS, Case, Contestant, Plan

_ROOT = Path(__file__).parent.parent
# The folders for the figures of a full run and of a partial run.
PAGES, PARTIAL = _ROOT / "docs" / "benchmarks", _ROOT / "build" / "bench"
CALLS = 200_000
# They are in the file of figures, beside the page.
NOT_ON_THE_PAGE = ("system", "lz4", "crc32c", "confluent-kafka", "kafka-python", "aiokafka")
PACKAGES = ("pyarrow", "numpy", "lz4", "crc32c", "confluent-kafka", "kafka-python", "aiokafka")


@dataclass(frozen=True)
class Row:
    """All runs of one contestant in one case. Ratios are of medians; None where the other one did not run."""

    title: str
    rate: float
    rate_min: float
    rate_max: float
    to_java: float | None
    to_kafka_python: float | None
    cpu_us: float
    peak_rss_mib: float
    log_bytes_per_record: float


def rows_of(case: Case, contestants: Sequence[Contestant], results: Sequence[Result]) -> list[Row]:
    runs = {
        each.name: [result for result in results if (result.contestant, result.case) == (each.name, case.name)]
        for each in contestants
    }
    rates = {name: median(result.rate for result in own) for name, own in runs.items() if own}

    def ratio(name: str, other: str) -> float | None:
        return rates[name] / rates[other] if other in rates else None

    return [
        Row(
            title=each.title,
            rate=rates[each.name],
            rate_min=min(result.rate for result in own),
            rate_max=max(result.rate for result in own),
            to_java=ratio(each.name, JAVA),
            to_kafka_python=ratio(each.name, KAFKA_PYTHON),
            cpu_us=median(result.cpu_us for result in own),
            peak_rss_mib=median(result.peak_rss_bytes for result in own) / 2**20,
            log_bytes_per_record=median(result.log_bytes_per_record for result in own),
        )
        for each in contestants
        if (own := runs[each.name])
    ]


def table(rows: Sequence[Row]) -> str:
    """Markdown that is also readable in a terminal."""
    head = [
        "producer", "records/s", "min..max", "to Java", "to kafka-python", "CPU us/record", "peak MiB", "log B/record",
    ]  # fmt: skip
    cells = [head] + [
        [
            row.title,
            _thousands(row.rate),
            f"{_thousands(row.rate_min)}..{_thousands(row.rate_max)}",
            _ratio(row.to_java),
            _ratio(row.to_kafka_python),
            f"{row.cpu_us:.2f}",
            f"{row.peak_rss_mib:.0f}",
            f"{row.log_bytes_per_record:.1f}",
        ]
        for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    lines = ["| " + " | ".join(_pad(line, widths)) + " |" for line in cells]
    rule = (
        "|" + "|".join("-" * (width + 1) + ("-" if column == 0 else ":") for column, width in enumerate(widths)) + "|"
    )
    return "\n".join([lines[0], rule, *lines[1:]])


def conditions(about: Mapping[str, str]) -> str:
    """When, with which code and on which machine a page was measured."""
    return ", ".join(f"{name} {text}" for name, text in about.items() if name not in NOT_ON_THE_PAGE) + "."


def with_conclusion(text: str, path: Path) -> str:
    """The text with the first paragraph of the page as it is now: a person writes it, and a new measurement keeps it.
    Read it again then: it may have become wrong."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    title, _, rest = text.partition("\n\n")
    kept = re.match(r"# .*?\n\n(.*?)\n\nWritten by", before, re.DOTALL)
    return f"{title}\n\n{kept[1]}\n\n{rest}" if kept else text


def publish(name: str, text: str, figures: Mapping[str, object], folder: Path = PAGES) -> None:
    """Prints a page, and writes it and its figures to `folder`."""
    text = with_conclusion(text, PAGES / f"{name}.md")
    print("\n" + text)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text)
    (folder / f"{name}.json").write_text(json.dumps(figures, indent=1) + "\n")


def code() -> dict[str, str]:
    """When the figures were taken, and of which commit; with a star if the package had changed since."""
    return {"measured": time.strftime("%Y-%m-%d"), "commit": _commit()}


def _commit() -> str:
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        return git("rev-parse", "--short=8", "HEAD") + ("*" if git("status", "--porcelain", "kafka_sink") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> dict[str, str]:
    return {
        **code(),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "system": platform.platform(),
        "python": f"{platform.python_version()} ({_call_ns():.0f} ns per call)",
        **{name: version(name) for name in PACKAGES},
    }


def _call_ns() -> float:
    """What one call of a Python function takes here. An interpreter that was built without profile-guided optimisation,
    as version managers build them by default, takes a third longer than that of a distribution or of an image."""

    def call(number: int) -> int:
        return number + 1

    times = []
    for _ in range(5):
        started = time.perf_counter()
        for number in range(CALLS):
            call(number)
        times.append(time.perf_counter() - started)
    return min(times) / CALLS * 1e9


def markdown(plan: Plan, results: Sequence[Result], about: dict[str, str]) -> str:
    parts = [
        "# Producers compared",
        "",
        "Written by `make bench`; how to repeat and how to read it: [README.md](README.md).",
        "",
        _conditions(plan, about),
        "",
        conditions(about),
    ]
    for case in plan.cases:
        parts += ["", f"## {case.title}", "", table(rows_of(case, plan.contestants, results))]
    return "\n".join(parts) + "\n"


def as_json(plan: Plan, results: Sequence[Result], about: dict[str, str]) -> dict[str, object]:
    return {
        "machine": about,
        "repetitions": plan.repetitions,
        "partitions": PARTITIONS,
        "batch_bytes": BATCH_BYTES,
        "linger_ms": LINGER_MS,
        "summary": {
            case.name: [asdict(row) for row in rows_of(case, plan.contestants, results)] for case in plan.cases
        },
        "runs": [asdict(result) for result in results],
    }


def _conditions(plan: Plan, about: dict[str, str]) -> str:
    return (
        f"Apache Kafka {about['apache-kafka']}, one node on the same machine, {PARTITIONS} partitions; acks all, "
        f"idempotence on for all, batch.size {BATCH_BYTES // 1024} KiB, linger.ms {LINGER_MS}, records without key. "
        f"{plan.repetitions} runs each, alternating; medians."
    )


def _pad(line: Sequence[str], widths: Sequence[int]) -> list[str]:
    first, *rest = line
    return [first.ljust(widths[0]), *(text.rjust(width) for text, width in zip(rest, widths[1:], strict=True))]


def _thousands(number: float) -> str:
    return f"{number / 1e6:.2f} M" if number >= 1e6 else f"{number / 1e3:.0f} k"


def _ratio(number: float | None) -> str:
    return "" if number is None else f"{number:.2f}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
