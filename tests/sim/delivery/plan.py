"""What one seed determines: cluster, query, behaviour of Spark and its hosts, faults. It is drawn before anything runs.

As in `tests.sim.scenario`, each seed disables most kinds of faults, and the faults are a plain list with times: leaving
some out, to shrink a failure, changes no other draw.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from kafka_sink.options import ProducerOptions
from tests.sim.delivery.breakers import (
    CANCELLED,
    COMMAND,
    LATE_LEADERS,
    LOST_TAILS,
    REPLAY_MISMATCH,
    UNNAMED,
    breaker_faults,
    drawn_breakers,
)
from tests.sim.dice import Dice
from tests.sim.scenario import (
    LINKS,
    REQUEST_AND_ANSWER,
    TOPICS,
    Drawn,
    FaultEvent,
    draw_delays,
    draw_events,
    in_order,
)

# A stream; batch writes with a name; batch writes of foreachBatch, named by the numbers of a stream's batches.
STREAM, LABELLED, FOREACH = "stream", "labelled", "foreach"
SINK = "sink"
# The beginning of the sink ids of batch writes without a name.
UNNAMED_SINKS = "batch"
LEDGER = "ledger"
MANIFESTS = "manifests"
CLUSTER = (
    "crash", "stop", "pause_broker", "move_leader", "lose_leader", "move_coordinator", "below_min_isr", "api_error",
    "throttle", "grow_topic", "stall_replication",
)  # fmt: skip
SPARK = (
    "crash_driver", "crash_in_commit", "crash_before_spark_commits", "long_downtime", "pause_driver", "second_driver",
    "kill_task", "pause_task", "speculate", "fail_task", "spurious_wake",
)  # fmt: skip
# Kinds that were added later are at the end, so that earlier seeds keep their faults.
ALL_FAULTS = (*REQUEST_AND_ANSWER, *LINKS, *CLUSTER, *SPARK, "depose_leader", "cut_in_commit", "late_start")
# Partitions that lose their leader: at any time, or at a step of a commit. Drawn on their own; every eighth seed has
# hardly any other fault.
LEADERLESS = ("no_leader", "no_leader_in_commit")
LEADERLESS_SHARE, LEADERLESS_EVERY, LEADERLESS_ONLY = 0.5, 8, 7
# In every other one of these the leader is away for longer than the driver waits.
IMPATIENT_EVERY = 16
BESIDE_LEADERLESS = (
    (), ("crash_in_commit",), ("crash_in_commit", "cut_in_commit"), ("cut_in_commit", "move_coordinator"),
    ("fail_task", "kill_task"),
)  # fmt: skip
# Some mistakes need a combination of two or three rare faults. Every fourth seed has only such a few, but often.
FOCUS_EVERY, FOCUSED = 4, 1
FOCUSES = (
    ("pause_driver",),
    ("depose_leader", "crash_in_commit"),
    ("depose_leader", "pause_driver", "second_driver"),
    ("cut_in_commit", "second_driver"),
    ("cut_in_commit", "crash_in_commit", "long_downtime"),
    ("late_start", "crash_in_commit", "cut_in_commit"),
)
# The brokers' limit of an answer to Fetch: Kafka's default, and what a few records fill.
FETCH_BYTES_MAX = ("57671680", "57671680", "57671680", "1000")
ROLL_SHARES = (0.0, 0.0, 0.1, 0.5)
PATIENT_MS = 120_000
HASTY_MS, HASTY_ROLL_SHARE = 2_000, 0.1
MANIFESTS_SHARE = 0.25
CLOSES_LATER_SHARE = 0.7
# Batches that are committed long after their last row was written, or planned long before the first one.
LATE_SHARE = 0.3
# Commands that abort without another fault, beside a query that has something to do: no time-out hides what they do.
COMMANDS_ALONE_SHARE, BATCHES_BESIDE_COMMANDS = 0.6, 12
# Leaders that stay away, without another fault: nothing else may keep the driver from its request in time.
LATE_LEADERS_ALONE_SHARE = 0.6
# A task must have several batches in one partition for its last rows to be lost alone.
ROWS_BESIDE_LOSSES = 4
MEAN_PAUSE_MS = (100, 300, 1_000, 4_000)
RARE = frozenset({"crash", "stop", "second_driver", "grow_topic", "pause_task", "kill_task", "fail_task"})


@dataclass(frozen=True, slots=True)
class Plan(Drawn):
    kind: str
    feature_level: int
    options: ProducerOptions
    codec: str
    batches: int
    rows_max: int
    tasks_max: int
    # Mean times between two actions of Spark or of its tasks.
    pause_ms: int
    restart_ms: int
    parallel_requests: int
    # For recovery, and for everything else that no transaction's deadline limits.
    patience_ms: int
    trigger_ms: int
    # Shares: commits in a process without state, tasks on a producer that was idle.
    forgetful: float
    reuse: float
    breakers: frozenset[str]
    processes: int
    replay_mismatch: str
    # How often an append to the ledger or a topic begins a segment, beyond which no Fetch reads.
    roll_share: float
    # If ids are used again: the number of tasks that run at a time; the others follow in the same processes.
    cores: int
    # A manifest is written for each batch.
    has_manifests: bool
    # The processes that commit live on, and close decisions after their commits.
    closes_later: bool
    # Between the plan of a batch, its tasks and its commit much time may pass.
    is_late: bool

    @property
    def transaction_version(self) -> int:
        return 2 if self.feature_level >= 2 else 1

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.kind}, {self.brokers} brokers, transaction.version {self.feature_level}, "
            f"{self.batches} batches, up to {self.tasks_max} tasks, {self.options.transaction_timeout_ms} ms for a "
            f"transaction, {self.busy_ms} ms busy, {len(self.faults)} faults, "
            f"breaks {', '.join(sorted(self.breakers)) or 'no assumption'}"
        )


def draw(seed: int, breakers: frozenset[str] | None = None) -> Plan:
    """`breakers` replaces those that the seed draws; everything else stays the same."""
    dice = Dice(f"delivery {seed}")
    chosen = drawn_breakers(dice["which breakers"])
    breakers = chosen if breakers is None else breakers
    pick = dice["plan"]
    brokers = pick.choice((1, 2, 3, 3, 3))
    version = pick.choice((0, 1, 2, 2))
    batches = pick.randint(2, 6)
    busy_ms = pick.choice((2_000, 5_000, 10_000))
    delays = draw_delays(pick)
    kind = pick.choice((STREAM, STREAM, STREAM, LABELLED, FOREACH))
    faults = (_focused if seed % FOCUS_EVERY == FOCUSED else _faults)(dice["faults"], busy_ms)
    patience_ms = dice["patience"].choice((PATIENT_MS, PATIENT_MS, 3_000, 1_000))
    if is_leaderless := seed % LEADERLESS_EVERY == LEADERLESS_ONLY:
        faults = []
    if is_impatient := seed % IMPATIENT_EVERY == LEADERLESS_ONLY:
        patience_ms = 1_000
    habits = dice["habits"]
    roll_share, fetch_bytes = _answers(dice["segments"], is_patient=patience_ms >= PATIENT_MS)
    options = _options(dice["options"], brokers)
    if options.transaction_timeout_ms <= HASTY_MS:
        # One Fetch for each record of a ledger that grows with each try takes as long as such a transaction lives.
        roll_share = min(roll_share, HASTY_ROLL_SHARE)
    leaderless = _leaderless(dice["leaders"], busy_ms, is_only=is_leaderless, is_long=is_impatient)
    if UNNAMED in breakers:
        kind = UNNAMED
    elif CANCELLED in breakers:
        kind = LABELLED
    if COMMAND in breakers and dice["commands"].random() < COMMANDS_ALONE_SHARE:
        faults, leaderless, batches = [], [], BATCHES_BESIDE_COMMANDS
        options = replace(options, transaction_timeout_ms=max(15_000, options.transaction_timeout_ms))
    if LATE_LEADERS in breakers and dice["late leaders"].random() < LATE_LEADERS_ALONE_SHARE:
        faults, leaderless, patience_ms, busy_ms = [], [], PATIENT_MS, max(busy_ms, 10_000)
        # Help for other writes has five seconds, and must not be saved by a time-out; any other wait must reach it.
        options = replace(options, transaction_timeout_ms=15_000 if kind == UNNAMED else 4_000)
    if CANCELLED in breakers:
        # Nothing may hide a transaction that begins too late: no other fault, no time-out.
        faults, leaderless, patience_ms = [], [], 120_000
        # An abort takes some seconds.
        busy_ms = max(busy_ms, 30_000)
        options = replace(options, transaction_timeout_ms=60_000)
    return Plan(
        seed=seed,
        kind=kind,
        brokers=brokers,
        feature_level=version,
        partitions={topic: pick.randint(1, 3) for topic in TOPICS},
        properties=_properties(pick, brokers, version) | {"fetch.max.bytes": fetch_bytes},
        latency_ms=pick.choice((0.5, 2, 10)),
        delay_means_ms=delays,
        options=options,
        codec=pick.choice(("none", "none", "lz4", "gzip")),
        batches=batches,
        rows_max=pick.choice((4, 12)) * (ROWS_BESIDE_LOSSES if LOST_TAILS in breakers else 1),
        tasks_max=pick.choice((1, 2, 3, 4)),
        pause_ms=pick.choice((5, 30, 100)),
        restart_ms=pick.choice((100, 1_000)),
        parallel_requests=pick.choice((1, 2, 100)),
        patience_ms=patience_ms,
        trigger_ms=busy_ms // batches,
        forgetful=pick.choice((0, 0.3, 1)),
        reuse=pick.choice((0, 0.5, 1)),
        busy_ms=busy_ms,
        faults=in_order([*faults, *breaker_faults(dice["breakers"], breakers, busy_ms), *leaderless]),
        breakers=breakers,
        processes=habits.choice((2, 3, 4)),
        replay_mismatch=habits.choice(REPLAY_MISMATCH),
        cores=habits.choice((1, 2, 4)),
        roll_share=roll_share,
        has_manifests=dice["manifests"].random() < MANIFESTS_SHARE,
        closes_later=dice["closings"].random() < CLOSES_LATER_SHARE,
        is_late=dice["late"].random() < LATE_SHARE and CANCELLED not in breakers,
    )


def _answers(pick: Random, *, is_patient: bool) -> tuple[float, str]:
    """How much of a log one answer has. A driver without patience must be able to read the ledger nevertheless."""
    share, fetch_bytes = pick.choice(ROLL_SHARES), pick.choice(FETCH_BYTES_MAX)
    return (share, fetch_bytes) if is_patient else (share / 20, FETCH_BYTES_MAX[0])


def _properties(pick: Random, brokers: int, version: int) -> dict[str, str]:
    return {
        "transaction.version": str(version),
        "transaction.state.log.num.partitions": "3",
        "offsets.topic.num.partitions": "2",
        "auto.create.topics.enable": "false",
        "min.insync.replicas": "1" if brokers < 3 else pick.choice(("1", "2", "2")),
        "num.partitions": "2",
        "default.replication.factor": str(min(3, brokers)),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": pick.choice(("500", "500", "2000")),
        "log.cleaner.backoff.ms": pick.choice(("500", "15000")),
        "log.cleaner.min.cleanable.ratio": pick.choice(("0.01", "0.5")),
    }


def _options(pick: Random, brokers: int) -> ProducerOptions:
    request_timeout_ms = pick.choice((300, 1_000, 3_000))
    first_backoff_ms = pick.choice((1, 20, 100))
    addresses = tuple((f"b{number}", 9092) for number in range(1, brokers + 1))
    return ProducerOptions(
        bootstrap_servers=addresses[: pick.randint(1, brokers)],
        client_id="sim",
        enable_idempotence=True,
        transaction_timeout_ms=pick.choice((2_000, 2_000, 4_000, 15_000, 60_000)),
        delivery_timeout_ms=request_timeout_ms + pick.choice((500, 5_000, 20_000)),
        request_timeout_ms=request_timeout_ms,
        max_block_ms=10_000,
        max_in_flight_requests_per_connection=pick.randint(1, 5),
        retry_backoff_ms=first_backoff_ms,
        retry_backoff_max_ms=first_backoff_ms * pick.choice((1, 10)),
        reconnect_backoff_ms=pick.choice((1, 20, 50)),
        reconnect_backoff_max_ms=pick.choice((50, 1_000)),
        socket_connection_setup_timeout_ms=pick.choice((200, 1_000)),
        socket_connection_setup_timeout_max_ms=2_000,
        connections_max_idle_ms=pick.choice((1_000, 540_000)),
        metadata_max_age_ms=pick.choice((300, 5_000, 300_000)),
        linger_ms=0,
    )


def _faults(pick: Random, busy_ms: int) -> list[FaultEvent]:
    events: list[FaultEvent] = []
    share_on = pick.choice((0, 0.05, 0.15, 0.3, 0.5))
    for kind in ALL_FAULTS:
        is_on = pick.random() < (max(share_on, 0.4) if kind in SPARK else share_on)
        mean_ms = pick.choice(MEAN_PAUSE_MS) * (3 if kind in RARE else 1)
        length_ms = pick.choice((50, 400, 1_500, 5_000))
        events += draw_events(pick, kind, mean_ms, length_ms, busy_ms if is_on else 0)
    return events


def _leaderless(pick: Random, busy_ms: int, *, is_only: bool, is_long: bool) -> list[FaultEvent]:
    events: list[FaultEvent] = []
    kinds = (*LEADERLESS, *pick.choice(BESIDE_LEADERLESS)) if is_only else LEADERLESS
    if is_only or pick.random() < LEADERLESS_SHARE:
        for kind in kinds:
            means_ms = (800, 2_500) if kind == "no_leader" else (150, 400) if is_only else (500, 1_500)
            lengths_ms = (4_000, 15_000) if is_long else (400, 1_500, 4_000)
            events += draw_events(pick, kind, pick.choice(means_ms), pick.choice(lengths_ms), busy_ms)
    return events


def _focused(pick: Random, busy_ms: int) -> list[FaultEvent]:
    events: list[FaultEvent] = []
    for kind in pick.choice(FOCUSES):
        mean_ms = pick.choice((100, 300, 1_000)) * (2 if kind in RARE else 1)
        events += draw_events(pick, kind, mean_ms, pick.choice((400, 1_500, 5_000)), busy_ms)
    return events
