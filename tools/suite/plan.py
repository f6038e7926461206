"""Decides which test files share a process, and which process starts next, from figures of an earlier run.

The figures (tests/durations.json) are seconds, seconds of CPU, and the expensive fixtures that a file uses. They may be
out of date. A wrong figure makes the run longer, not wrong; for a file without figures there is a guess.

Files that use the same expensive fixtures share processes, so that a Spark session serves many files. A process starts
when the cores are not busy: files that mostly wait run beside others, files that only compute take a core.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

# Fixtures that take seconds of CPU to start and serve any number of tests of a process.
EXPENSIVE = frozenset({"spark", "_spark_cluster", "kafka_three_nodes", "secured_kafka_of", "pair_of", "secured_of"})
# Fixtures that are made of these, as tests write them in their arguments.
BY_ARGUMENT = {
    **{name: name for name in EXPENSIVE},
    "jvm_spark": "spark",
    "spark_cluster": "_spark_cluster",
    "secured": "secured_kafka_of",
    # With its type: others have folders, too.
    "folder: Folder": "spark",
}
_ARGUMENT = re.compile(r"\b(" + "|".join(BY_ARGUMENT) + r")(?:: |(?<=: Folder)\b)")
# These only compute: they run while a fresh machine downloads brokers.
COMPUTING = tuple(f"tests/{folder}/" for folder in ("unit", "property", "golden", "sim", "model"))
# The most expensive fixtures, in this order: a session with its first write and its first stream takes 20 seconds of
# CPU, each of the clusters 10. Files with one of them share a process whatever else they use, so that few processes
# need them.
COSTLY = ("spark", "_spark_cluster", "kafka_three_nodes")
# Each further process costs two seconds; a long one at the end of the run leaves the other core idle.
BUNDLE_S, COSTLY_BUNDLE_S = 200.0, 420.0
_LOAD_MIN, _LOAD_MAX = 0.15, 2.0


@dataclass(frozen=True, slots=True)
class Cost:
    seconds: float
    cpu_s: float
    shared: frozenset[str] = frozenset()


GUESS = Cost(10.0, 6.0)


def guess_cost(text: str) -> Cost:
    """For a file without figures, from its text: the fixtures are what matters, since each group starts its own."""
    return replace(GUESS, shared=frozenset(BY_ARGUMENT[name] for name in _ARGUMENT.findall(text)))


@dataclass(frozen=True, slots=True)
class Bundle:
    """Files for one process of pytest, or only some of their tests."""

    files: tuple[str, ...]
    seconds: float
    cpu_s: float
    tests: tuple[str, ...] = ()

    @property
    def needs_brokers(self) -> bool:
        return not self.files[0].startswith(COMPUTING)

    @property
    def load(self) -> float:
        """The average number of cores that it keeps busy."""
        return min(_LOAD_MAX, max(_LOAD_MIN, self.cpu_s / max(self.seconds, 0.1)))


def bundles(files: Iterable[str], costs: Mapping[str, Cost]) -> list[Bundle]:
    """Puts every file into exactly one bundle; the longest bundle is first."""
    groups: dict[tuple[frozenset[str], bool], list[str]] = defaultdict(list)
    for file in files:
        groups[_shared_by(costs.get(file, GUESS).shared), file.startswith(COMPUTING)].append(file)
    found: list[Bundle] = []
    for (wanted, _), group in groups.items():
        found += _fill(group, costs, COSTLY_BUNDLE_S if wanted else BUNDLE_S)
    return sorted(found, key=lambda bundle: (-bundle.seconds, bundle.files))


def _shared_by(shared: frozenset[str]) -> frozenset[str]:
    """The fixtures for which a file shares a process."""
    return next((frozenset({name}) for name in COSTLY if name in shared), shared)


def _fill(files: Sequence[str], costs: Mapping[str, Cost], seconds_max: float) -> list[Bundle]:
    """Puts each file, the longest first, into the first bundle that has room for it."""
    found: list[Bundle] = []
    for file in sorted(files, key=lambda one: (-costs.get(one, GUESS).seconds, one)):
        cost = costs.get(file, GUESS)
        for index, bundle in enumerate(found):
            if bundle.seconds + cost.seconds <= seconds_max:
                grown = (*bundle.files, file)
                found[index] = Bundle(grown, bundle.seconds + cost.seconds, bundle.cpu_s + cost.cpu_s)
                break
        else:
            found.append(Bundle((file,), cost.seconds, cost.cpu_s))
    return found


def next_to_start(
    waiting: Sequence[Bundle], running: Sequence[Bundle], cores: float, processes_max: int
) -> Bundle | None:
    """The first bundle, if the cores are not busy. A shorter one never overtakes it because it computes less: then one
    that only computes would start last, and alone."""
    if not waiting or len(running) >= processes_max:
        return None
    return waiting[0] if sum(bundle.load for bundle in running) < cores else None


def seconds_left(waiting: Iterable[Bundle], running: Iterable[tuple[Bundle, float]], cores: float) -> float:
    """The larger of the longest bundle and the work per core. `running` has the share of each bundle that is left."""
    shares = [(bundle, 1.0) for bundle in waiting] + list(running)
    longest = max((bundle.seconds * share for bundle, share in shares), default=0.0)
    return max(longest, sum(bundle.seconds * bundle.load * share for bundle, share in shares) / cores)


def read_costs(text: str) -> dict[str, Cost]:
    return {
        file: Cost(seconds, cpu_s, frozenset(shared.split()))
        for file, (seconds, cpu_s, shared) in json.loads(text).items()
    }


def written_costs(costs: Mapping[str, Cost]) -> str:
    """One line for each file, so that diffs of the table are readable."""
    rows = []
    for file, cost in sorted(costs.items()):
        figures = [round(cost.seconds, 1), round(cost.cpu_s, 1), " ".join(sorted(cost.shared))]
        rows.append(f"{json.dumps(file)}: {json.dumps(figures)}")
    return "{\n" + ",\n".join(rows) + "\n}\n"
