"""Runs many seeds, one after the other or in several processes, and prints a table of what happened in all of them.

A seed's run is the same in any process. Garbage is collected between two runs instead of within them, which takes a
sixth of the time.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

SEEDS_PER_TELLING = 500
# A run of this many seeds must contain everything that is required.
SEEDS_THAT_PROVE = 2_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """`kind` is what the table counts seeds by; `trouble` is the report of a broken promise."""

    seed: int
    kind: str
    counts: Counter[str]
    simulated_ms: int
    events: int
    trouble: str | None


Play = Callable[[int], Outcome]


def run_many(seeds: range, play: Play, required: Iterable[str], *, jobs: int = 1, minutes_max: float = 1e9) -> int:
    """Prints results as they arrive; returns 1 if a promise was broken, or if something required never happened in a
    large run. `play` must be a function that another process can import."""
    print(f"seeds {seeds.start}..{seeds.stop - 1}, {jobs} at a time", flush=True)
    counts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    failed: list[int] = []
    simulated_ms = events = events_most = 0
    started = time.monotonic()
    with _outcomes(seeds, play, jobs) as outcomes:
        for outcome in outcomes:
            counts += outcome.counts
            kinds[outcome.kind] += 1
            simulated_ms += outcome.simulated_ms
            events += outcome.events
            events_most = max(events_most, outcome.events)
            if outcome.trouble is not None:
                failed.append(outcome.seed)
                print(outcome.trouble, flush=True)
            if outcome.seed % SEEDS_PER_TELLING == 0:
                print(f"  ... seed {outcome.seed}, {_minutes_since(started):.1f} minutes", flush=True)
            if _minutes_since(started) > minutes_max:
                break
    wanted = set(required)
    for what in sorted({*counts, *wanted}):
        print(f"{counts[what] or 'NEVER':>10} {what}")
    minutes, hours = _minutes_since(started), simulated_ms / 3_600_000
    of_kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    print(
        f"{kinds.total()} seeds ({of_kinds}), {len(failed)} violations {failed[:20]}, {events} events (at most "
        f"{events_most}) in {minutes:.1f} minutes, {hours:.2f} simulated hours, {hours / minutes:.2f} per minute"
    )
    proves_too_little = kinds.total() >= SEEDS_THAT_PROVE and bool(wanted - counts.keys())
    return 1 if failed or proves_too_little else 0


@contextmanager
def _outcomes(seeds: range, play: Play, jobs: int) -> Iterator[Iterable[Outcome]]:
    tidily = partial(_play_and_collect, play)
    if jobs == 1:
        _collect_by_hand()
        try:
            yield map(tidily, seeds)
        finally:
            gc.enable()
            gc.unfreeze()
        return
    with multiprocessing.Pool(jobs, initializer=_collect_by_hand) as pool:
        yield pool.imap(tidily, seeds, chunksize=4)


def _collect_by_hand() -> None:
    gc.collect()
    gc.freeze()
    gc.disable()


def _play_and_collect(play: Play, seed: int) -> Outcome:
    outcome = play(seed)
    gc.collect()
    return outcome


def _minutes_since(started_s: float) -> float:
    return (time.monotonic() - started_s) / 60
