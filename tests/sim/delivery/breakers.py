"""Assumptions about Spark, brokers and users that do not hold everywhere: which of them a seed breaks, and how often.

  processes     Spark moves the commits of one run between driver-side Python processes; each keeps its state
  twins         two queries with a checkpoint each write under one sink id at the same time
  set_back      a checkpoint is set back by any number of batches; the rows under a batch id are the same, or others
  lost_markers  the marker of a ledger transaction is lost with its only replica (KAFKA-20734)
  expiry        the coordinator forgets ids that were idle for a while
  lies          for some seconds a coordinator answers wrongly, as from a stale cache
  pool          a worker process of a run uses a transactional id for one task after the other
  unnamed       batch writes without a name: they have no ledger, and no later run can finish them
  cancelled     jobs of batch writes are cancelled while brokers stall, and the workers of their tasks live on; there is
                no other fault then

The first seven are faults and settings of the run that a seed draws; the last two are other kinds of queries.
"""

from __future__ import annotations

from random import Random

from tests.sim.scenario import FaultEvent, draw_events

PROCESSES, TWINS, SET_BACK, LOST_MARKERS, EXPIRY, LIES, POOL, UNNAMED, CANCELLED = (
    "processes", "twins", "set_back", "lost_markers", "expiry", "lies", "pool", "unnamed", "cancelled",
)  # fmt: skip
# One that was added later is at the end, so that earlier seeds keep theirs.
BREAKERS = (PROCESSES, TWINS, SET_BACK, LOST_MARKERS, EXPIRY, LIES, POOL, UNNAMED, CANCELLED)
# Other kinds of queries.
KINDS = frozenset({UNNAMED, CANCELLED})
# The faults that belong to a breaker; the other breakers apply to the whole run.
FAULTS_OF = {
    PROCESSES: "end_process", TWINS: "second_query", SET_BACK: "set_back", LOST_MARKERS: "lose_marker",
    EXPIRY: "expire_ids", LIES: "lie", CANCELLED: "cancel_job",
}  # fmt: skip
MEANS_MS = {
    "end_process": (1_000, 4_000), "second_query": (1_000, 3_000), "set_back": (1_500, 5_000),
    "lose_marker": (200, 1_000), "expire_ids": (200, 1_000), "lie": (500, 2_000),
    "cancel_job": (3_000, 8_000),
}  # fmt: skip
SHARES = (0.0, 0.2, 0.5)
KIND_SHARE = 0.07
# The option `replay.mismatch`: what happens to a repeated batch that has another number of rows.
REPLAY_MISMATCH = ("fail", "fail", "fail", "warn", "skip")


def drawn_breakers(pick: Random) -> frozenset[str]:
    share = pick.choice(SHARES)
    on = [one for one in BREAKERS if pick.random() < (KIND_SHARE if one in KINDS else share)]
    if CANCELLED in on:
        return frozenset(on) & KINDS
    return frozenset(on) - ({TWINS, SET_BACK, LOST_MARKERS} if UNNAMED in on else set())


def breaker_faults(pick: Random, breakers: frozenset[str], busy_ms: int) -> list[FaultEvent]:
    """Drawn for each breaker, enabled or not, so that disabling one changes nothing about the others."""
    events: list[FaultEvent] = []
    for breaker, kind in FAULTS_OF.items():
        mean_ms, length_ms = pick.choice(MEANS_MS[kind]), pick.choice((400, 1_500, 4_000))
        own = Random(pick.getrandbits(64))
        busy_with_it_ms = busy_ms if breaker in breakers else 0
        events += draw_events(own, kind, mean_ms, length_ms, busy_with_it_ms, longest_ms=10_000)
    return events
