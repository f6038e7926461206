"""The contestants, the kinds of records, and their number."""

from __future__ import annotations

from dataclasses import dataclass

BATCH_BYTES = 128 * 1024
LINGER_MS = 5
PARTITIONS = 4
RECORD_SIZES = (100, 1000)
CODECS = ("none", "lz4")


@dataclass(frozen=True)
class Contestant:
    """`rates` are rough guesses of records/s at 100 B and 1000 B; they only decide how long a run takes."""

    name: str
    title: str
    module: str
    rates: tuple[int, int]


JAVA = "java"
KAFKA_PYTHON = "kafka-python"
# `module` of the contestants on the JVM is the first argument of PerformanceTwice.
JVM_PROGRAMS = ("tool", "loop")
CONTESTANTS = (
    Contestant("send_arrow", "**ours**, `send_arrow()`", "bench.clients.ours_arrow", (1_500_000, 300_000)),
    Contestant("send", "**ours**, `send()`", "bench.clients.ours_send", (250_000, 150_000)),
    Contestant(JAVA, "Java, ProducerPerformance", "tool", (800_000, 200_000)),
    Contestant("java-loop", "Java, bare loop", "loop", (800_000, 200_000)),
    Contestant("confluent", "confluent-kafka, `produce()`", "bench.clients.confluent", (350_000, 150_000)),
    Contestant(
        "confluent-batch", "confluent-kafka, `produce_batch()`", "bench.clients.confluent_batch", (400_000, 150_000)
    ),
    Contestant(KAFKA_PYTHON, "kafka-python", "bench.clients.kafka_python", (60_000, 40_000)),
    Contestant("aiokafka", "aiokafka", "bench.clients.aiokafka_client", (40_000, 30_000)),
)


@dataclass(frozen=True)
class Case:
    record_bytes: int
    codec: str

    @property
    def name(self) -> str:
        return f"{self.record_bytes}B-{self.codec}"

    @property
    def title(self) -> str:
        return f"{self.record_bytes} B, {self.codec}"

    def records(self, contestant: Contestant, seconds: float) -> int:
        rate = contestant.rates[0] if self.record_bytes < 500 else contestant.rates[1]
        return max(1000, int(rate * seconds) // 1000 * 1000)


@dataclass(frozen=True)
class Plan:
    """`run_s` and `warm_up_s` are right if the guessed rates are. A JVM needs a longer warm-up than an interpreter."""

    repetitions: int
    run_s: float
    warm_up_s: float
    java_warm_up_s: float
    cases: tuple[Case, ...] = tuple(Case(size, codec) for size in RECORD_SIZES for codec in CODECS)
    contestants: tuple[Contestant, ...] = CONTESTANTS


FULL = Plan(repetitions=5, run_s=3, warm_up_s=1, java_warm_up_s=3)
QUICK = Plan(repetitions=2, run_s=1, warm_up_s=0.3, java_warm_up_s=1.5)
