"""Assumptions about Spark, brokers and users that do not hold everywhere: which of them a seed breaks, and how often.

  processes     Spark moves the commits of one run between driver-side Python processes; each keeps its state
  twins         two queries with a checkpoint each write under one sink id at the same time
  set_back      a checkpoint is set back by any number of batches; the rows under a batch id are the same, or others
  lost_markers  the marker of a ledger transaction is lost with its only replica (KAFKA-20734)
  expiry        the coordinator forgets ids that were idle for a while
  lies          for some seconds a coordinator answers wrongly, as from a stale cache
  pool          a worker process of a run uses a transactional id for one task after the other
  unnamed       batch writes without a name, which nobody writes again
  operators     operators and other clients end transactions of tasks at any moment
  cancelled     jobs of batch writes are cancelled while brokers stall, and the workers of their tasks live on; there is
                no other fault then
  fenced_reads  while a driver reads the ledger, another client takes the driver's id, and segments begin
  moved         a checkpoint is moved, so that the stream has another name; an error tells the name to go back to
  foreign       a record under a sink's key in the ledger is written without a transaction, until somebody repairs that
  command       an operator runs `pykafka-sink transactions --abort`, also twice at a time; it pauses and dies
  lost_tails    brokers lose the end of a log, acknowledged rows of a batch that is about to be committed
  frozen        a broker that was replaced before a batch wakes up during its commit, and answers as of before
  late_leaders  a driver dies when it has decided, and a partition has no leader for longer than its transactions live

`unnamed` and `cancelled` are other kinds of queries; the others are faults and settings of the run that a seed draws.
"""

from __future__ import annotations

from random import Random

from tests.sim.scenario import FaultEvent, draw_events

(
    PROCESSES, TWINS, SET_BACK, LOST_MARKERS, EXPIRY, LIES, POOL, UNNAMED, OPERATORS, CANCELLED, FENCED_READS, MOVED,
    FOREIGN, COMMAND, LOST_TAILS, FROZEN, LATE_LEADERS,
) = (
    "processes", "twins", "set_back", "lost_markers", "expiry", "lies", "pool", "unnamed", "operators", "cancelled",
    "fenced_reads", "moved", "foreign", "command", "lost_tails", "frozen", "late_leaders",
)  # fmt: skip
# New ones come last, so that earlier seeds keep what they have drawn.
BREAKERS = (
    PROCESSES, TWINS, SET_BACK, LOST_MARKERS, EXPIRY, LIES, POOL, UNNAMED, OPERATORS, CANCELLED, FENCED_READS, MOVED,
    FOREIGN, COMMAND, LOST_TAILS, FROZEN, LATE_LEADERS,
)  # fmt: skip
# Other kinds of queries.
KINDS = frozenset({UNNAMED, CANCELLED})
# The faults that belong to a breaker; the other breakers apply to the whole run.
FAULTS_OF = {
    PROCESSES: "end_process", TWINS: "second_query", SET_BACK: "set_back", LOST_MARKERS: "lose_marker",
    EXPIRY: "expire_ids", LIES: "lie", OPERATORS: "end_transaction", CANCELLED: "cancel_job",
    FENCED_READS: "fence_in_read", MOVED: "move_checkpoint", FOREIGN: "foreign_record",
    COMMAND: "run_command", LOST_TAILS: "lose_tail", FROZEN: "freeze_broker", LATE_LEADERS: "leader_away",
}  # fmt: skip
MEANS_MS = {
    "end_process": (1_000, 4_000), "second_query": (1_000, 3_000), "set_back": (1_500, 5_000),
    "lose_marker": (200, 1_000), "expire_ids": (200, 1_000), "lie": (500, 2_000), "end_transaction": (100, 1_000),
    "cancel_job": (3_000, 8_000), "fence_in_read": (500, 2_000), "move_checkpoint": (300, 1_500),
    "foreign_record": (300, 1_500), "run_command": (300, 1_500), "lose_tail": (300, 1_500),
    "freeze_broker": (300, 1_500), "leader_away": (300, 1_500),
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
    # What is repaired is what the log shows, so no marker may be lost.
    on = [one for one in on if one != FOREIGN or LOST_MARKERS not in on]
    # Whom a write without a name does not know it recognises by the epoch of its id, which brokers keep for a week.
    on = [one for one in on if one != EXPIRY or not {UNNAMED, COMMAND} <= set(on)]
    return frozenset(on) - ({SET_BACK, LOST_MARKERS, FOREIGN} if UNNAMED in on else set())


def breaker_faults(pick: Random, breakers: frozenset[str], busy_ms: int) -> list[FaultEvent]:
    """Drawn for each breaker, enabled or not, so that disabling one changes nothing about the others."""
    events: list[FaultEvent] = []
    for breaker, kind in FAULTS_OF.items():
        mean_ms, length_ms = pick.choice(MEANS_MS[kind]), pick.choice((400, 1_500, 4_000))
        own = Random(pick.getrandbits(64))
        busy_with_it_ms = busy_ms if breaker in breakers else 0
        events += draw_events(own, kind, mean_ms, length_ms, busy_with_it_ms, longest_ms=10_000)
    return events
