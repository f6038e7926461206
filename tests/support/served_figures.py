"""What an exporter serves, read as Prometheus reads it, and the process that serves it."""

from __future__ import annotations

import re
import urllib.request
from http.client import HTTPException
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families


def served(port: int, address: str = "127.0.0.1") -> str:
    with urllib.request.urlopen(f"http://{address}:{port}/metrics", timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def value(text: str, name: str, **labels: str) -> float:
    return sum(value for found, value in samples(text)[name] if labels.items() <= found.items())


def exporter_of(folder: str) -> int:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"kafka_sink.telemetry.metrics.exporter" in words and folder.encode() in words:
            return int(path.parent.name)
    raise LookupError(folder)


def answers(port: int) -> bool:
    """An exporter that ends during a request may cut off its answer, which counts as no answer."""
    try:
        served(port)
    except (OSError, HTTPException):
        return False
    return True


def labels_asked(expression: str) -> set[str]:
    grouped = {name.strip() for group in re.findall(r"\bby \(([^)]*)\)", expression) for name in group.split(",")}
    matched = {name for group in re.findall(r"\{([^}]*)\}", expression) for name in re.findall(r"(\w+)\s*[=!]", group)}
    values = set(re.findall(r"label_values\(\w+, (\w+)\)", expression))
    return grouped | matched | values
