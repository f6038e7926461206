"""What one seed determines: cluster, options, workloads and the list of faults. All is drawn before anything runs.

Swarm testing: each seed disables most kinds of faults and draws a rate for each of the others, so some runs have hardly
any faults and some very many of one kind. The faults are a plain list with times; deleting entries of it (to shrink a
failure) changes no other draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from kafka_sink.options import ProducerOptions
from tests.sim.dice import Dice

DrawnT = TypeVar("DrawnT", bound="Drawn")
TOPICS = ("alpha", "beta")
IDEMPOTENT, TRANSACTIONAL, PLAIN = "idempotent", "transactional", "plain"

REQUEST_AND_ANSWER = (
    "reset_before", "reset_middle", "reset_after", "late_request", "late_request_after_reset", "split_request",
    "lost_answer", "truncated", "byte_by_byte", "glued", "wrong_correlation", "garbage", "short_frame", "late_answer",
)  # fmt: skip
LINKS = ("reset_link", "clog", "silence", "refuse", "slow_connect", "swizzle")
CLUSTER = (
    "crash", "stop", "pause_broker", "move_leader", "lose_leader", "move_coordinator", "below_min_isr", "api_error",
    "throttle", "delete_topic", "recreate_topic", "grow_topic", "stall_replication",
)  # fmt: skip
CLIENTS = ("pause_client", "kill_client", "zombie", "spurious_wake")
# What brokers before 2.8 and servers other than Apache Kafka do. The last, so that the other draws do not depend on it.
OTHER_SERVERS = ("forget_producer",)
ALL_FAULTS = REQUEST_AND_ANSWER + LINKS + CLUSTER + CLIENTS + OTHER_SERVERS
# Faults that take away a leader cost more than one request.
MEAN_PAUSE_MS = (150, 600, 2_500, 10_000)
RARE = frozenset({"delete_topic", "recreate_topic", "grow_topic", "zombie", "kill_client", "crash", "pause_client"})


@dataclass(frozen=True, slots=True)
class FaultEvent:
    at_ms: int
    kind: str
    length_ms: int
    # The seed of the fault's own choices, so that they do not depend on those of other faults.
    pick: int


@dataclass(frozen=True, slots=True)
class ProducerPlan:
    name: str
    kind: str
    options: ProducerOptions
    codec: str
    batch_records_max: int
    pause_ms: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """What both simulations draw: the cluster and the faults."""

    seed: int
    brokers: int
    partitions: dict[str, int]
    properties: dict[str, str]
    latency_ms: float
    delay_means_ms: dict[str, float]
    busy_ms: int
    faults: tuple[FaultEvent, ...]

    def with_faults(self: DrawnT, kept: Sequence[int]) -> DrawnT:
        return replace(self, faults=tuple(self.faults[index] for index in kept))


@dataclass(frozen=True, slots=True)
class Scenario(Drawn):
    transaction_version: int
    producers: tuple[ProducerPlan, ...]
    # Transactional ids start with this epoch: close to the last one, so that producer ids are used up.
    first_epoch: int

    def __str__(self) -> str:
        kinds = ", ".join(f"{one.name}:{one.kind}" for one in self.producers)
        return (
            f"seed {self.seed}: {self.brokers} brokers, transaction.version {self.transaction_version}, {kinds}, "
            f"{self.busy_ms} ms busy, {len(self.faults)} faults"
        )


def draw(seed: int) -> Scenario:
    dice = Dice(seed)
    pick = dice["scenario"]
    brokers = pick.choice((1, 2, 3, 3, 3, 4))
    version = pick.choice((0, 1, 1, 2, 2, 2))
    busy_ms = pick.choice((4_000, 8_000, 15_000))
    properties = {
        "transaction.version": str(version),
        "transaction.state.log.num.partitions": "3",
        "offsets.topic.num.partitions": "2",
        "auto.create.topics.enable": pick.choice(("true", "false")),
        "min.insync.replicas": "1" if brokers < 3 else pick.choice(("1", "2", "2")),
        "num.partitions": "2",
        "default.replication.factor": str(min(3, brokers)),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": pick.choice(("500", "2000", "10000")),
        "message.max.bytes": pick.choice(("1048588", "1048588", "1048588", "200")),
    }
    delays = draw_delays(pick)
    return Scenario(
        seed=seed,
        brokers=brokers,
        transaction_version=version,
        partitions={topic: pick.randint(1, 3) for topic in TOPICS},
        properties=properties,
        latency_ms=pick.choice((0.5, 2, 10, 30)),
        delay_means_ms=delays,
        producers=_draw_producers(dice["producers"], brokers),
        busy_ms=busy_ms,
        first_epoch=pick.choice((-1, -1, -1, 32_760, 32_765)),
        faults=_draw_faults(dice["faults"], busy_ms),
    )


def draw_delays(pick: Random) -> dict[str, float]:
    """Of what a broker does, the mean milliseconds."""
    return {
        what: pick.choice((0, 0, 1, 5, 50)) * scale
        for what, scale in (
            ("transaction_log", 1), ("marker", 4), ("marker_retry", 4), ("replication", 1), ("coordinator_load", 5),
            ("metadata", 10),
        )
    }  # fmt: skip


def _draw_producers(pick: Random, brokers: int) -> tuple[ProducerPlan, ...]:
    plans = []
    for number in range(pick.choice((1, 1, 2, 3))):
        kind = pick.choice((IDEMPOTENT, IDEMPOTENT, TRANSACTIONAL, TRANSACTIONAL, TRANSACTIONAL, PLAIN))
        plans.append(
            ProducerPlan(
                name=f"p{number}",
                kind=kind,
                options=_draw_options(pick, kind, f"tid-{number}", brokers),
                codec=pick.choice(("none", "none", "lz4", "gzip")),
                batch_records_max=pick.choice((1, 3, 12)),
                pause_ms=pick.choice((5, 30, 30, 120)),
            )
        )
    return tuple(plans)


def _draw_options(pick: Random, kind: str, transactional_id: str, brokers: int) -> ProducerOptions:
    request_timeout_ms = pick.choice((300, 1_000, 3_000))
    addresses = tuple((f"b{number}", 9092) for number in range(1, brokers + 1))
    first_backoff_ms = pick.choice((1, 20, 100))
    return ProducerOptions(
        bootstrap_servers=addresses[: pick.randint(1, brokers)],
        client_id="sim",
        acks=pick.choice((-1, 1, 1, 0)) if kind == PLAIN else -1,
        enable_idempotence=kind != PLAIN,
        transactional_id=transactional_id if kind == TRANSACTIONAL else None,
        transaction_timeout_ms=pick.choice((1_500, 5_000, 60_000)),
        delivery_timeout_ms=request_timeout_ms + pick.choice((0, 500, 5_000, 20_000)),
        request_timeout_ms=request_timeout_ms,
        max_in_flight_requests_per_connection=pick.randint(1, 5),
        retries=pick.choice((2**31 - 1, 2**31 - 1, 2**31 - 1, 3)),
        retry_backoff_ms=first_backoff_ms,
        retry_backoff_max_ms=first_backoff_ms * pick.choice((1, 10)),
        reconnect_backoff_ms=pick.choice((1, 20, 50)),
        reconnect_backoff_max_ms=pick.choice((50, 1_000)),
        socket_connection_setup_timeout_ms=pick.choice((200, 1_000)),
        socket_connection_setup_timeout_max_ms=2_000,
        connections_max_idle_ms=pick.choice((1_000, 540_000, 540_000)),
        metadata_max_age_ms=pick.choice((300, 5_000, 300_000)),
        metadata_recovery_rebootstrap_trigger_ms=pick.choice((2_000, 300_000)),
        max_request_size=pick.choice((700, 1_048_576, 1_048_576)),
        linger_ms=0,
    )


def _draw_faults(pick: Random, busy_ms: int) -> tuple[FaultEvent, ...]:
    events: list[FaultEvent] = []
    share_on = pick.choice((0.05, 0.15, 0.3, 0.6))
    for kind in ALL_FAULTS:
        is_on = pick.random() < share_on
        mean_ms = pick.choice(MEAN_PAUSE_MS) * (6 if kind in RARE else 1)
        length_ms = pick.choice((50, 400, 1_500, 5_000))
        events += draw_events(pick, kind, mean_ms, length_ms, busy_ms if is_on else 0)
    return in_order(events)


def draw_events(
    pick: Random, kind: str, mean_ms: float, length_ms: float, busy_ms: int, *, longest_ms: int = 15_000
) -> list[FaultEvent]:
    """Of one kind, at random times and of random lengths with these means."""
    events = []
    at_ms = pick.expovariate(1 / mean_ms)
    while at_ms < busy_ms:
        length = min(1 + int(pick.expovariate(1 / length_ms)), longest_ms)
        events.append(FaultEvent(int(at_ms), kind, length, pick.getrandbits(32)))
        at_ms += 1 + pick.expovariate(1 / mean_ms)
    return events


def in_order(events: list[FaultEvent]) -> tuple[FaultEvent, ...]:
    return tuple(sorted(events, key=lambda event: event.at_ms))
