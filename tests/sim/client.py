"""One engine with its application: an inbox, a clock, and a script that makes calls and waits for their results.

It replaces the runtime of a producer: it collects events and calls, calls `engine.step` when there are any or when the
engine asked for a call, and carries out the commands. The script is a generator. It yields a number of milliseconds to
sleep, or a call, and continues with the `Finished` of that call.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable, Generator
from random import Random

import lz4.frame
import numpy as np

from kafka_sink.errors import DeliveryError, KafkaSinkError
from kafka_sink.formats.records.batch import EncodedBatch, Share
from kafka_sink.formats.records.scalar import Record as ScalarRecord
from kafka_sink.formats.records.scalar import encode_records
from kafka_sink.kafka.client.commands import Notice, RequestObserved
from kafka_sink.producer.engine import commands as c
from kafka_sink.producer.engine.engine import Engine
from kafka_sink.producer.engine.producer_batch import ProducerBatch
from tests.sim.history import Fate, History, Record, TopicPartition, Transaction
from tests.sim.host import Host
from tests.sim.loop import Loop
from tests.sim.network import NETWORK_COMMANDS, Network
from tests.sim.scenario import TOPICS, ProducerPlan
from tests.sim.trace import Trace, Violation
from tests.sim.watch import Watch

MakeCall = Callable[[int], c.Call]
Script = Generator["int | MakeCall", "c.Finished | None", "KafkaSinkError | None"]
CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "none": (0, bytes),
    "gzip": (1, lambda data: gzip.compress(data, mtime=0)),
    "lz4": (3, lambda data: lz4.frame.compress(data, block_linked=False)),
}
OPEN_BATCHES_MAX = 40


class Client(Host):
    def __init__(
        self, name: str, plan: ProducerPlan, *, loop: Loop, network: Network, history: History, trace: Trace,
        pick: Random, jitter: Callable[[], float],
    ) -> None:  # fmt: skip
        super().__init__(name, loop, network, trace)
        self.plan = plan
        self.history = history
        self.pick = pick
        self.engine = Engine(plan.options, jitter=jitter)
        self.watch = Watch(self.engine, name, plan.options, history, trace)
        self.transaction: Transaction | None = None
        self.refusal: KafkaSinkError | None = None
        self.is_script_over = False
        # The number of unanswered appends, and the call that the script waits for.
        self.unfinished: Counter[ProducerBatch] = Counter()
        self.open_call: int | None = None
        self.open_call_since_ms = 0
        self._calls: list[c.Call] = []
        self._script: Script | None = None
        self._call_count = 0
        self._whole: dict[ProducerBatch, int] = {}

    # ---- the script ----

    def run(self, script: Script) -> None:
        self._script = script
        self._resume(None)

    def _resume(self, finished: c.Finished | None) -> None:
        if not self.is_alive or self._script is None:
            return
        if self.loop.now_ms < self.paused_until_ms:
            self.loop.at(self.paused_until_ms, lambda: self._resume(finished))
            return
        try:
            wanted = self._script.send(finished)
        except StopIteration:
            self.is_script_over = True
            return
        if isinstance(wanted, int):
            self.loop.after(wanted, lambda: self._resume(None))
        else:
            self._call_count += 1
            self.open_call, self.open_call_since_ms = self._call_count, self.loop.now_ms
            call = wanted(self._call_count)
            self.trace.note(self.loop.now_ms, f"{self.name} calls {_title_of(call)}")
            self.call(call)

    def call(self, call: c.Call) -> None:
        if self.is_alive:
            self._calls.append(call)
            self.plan_step(self.loop.now_ms)

    def send(self, topic: str) -> None:
        """Appends a batch of some records to one partition of the topic, if its partitions are known."""
        count = self.engine.cluster.partition_count(topic) or 0
        if count == 0:
            self.call(c.WantTopic(topic))
        elif self.refusal is None and len(self.unfinished) < OPEN_BATCHES_MAX:
            self._append((topic, self.pick.randrange(count)), self.pick.randint(1, self.plan.batch_records_max))

    def send_to_all(self) -> list[Record]:
        """Appends one record to every known partition; returns the records."""
        first = len(self.history.records)
        for topic in TOPICS:
            self.call(c.WantTopic(topic))
            for partition in range(self.engine.cluster.partition_count(topic) or 0):
                self._append((topic, partition), 1)
        return self.history.records[first:]

    def _append(self, topic_partition: TopicPartition, record_count: int) -> None:
        options = self.plan.options
        now_ms = self.loop.now_ms
        records = [
            self.history.new_record(
                self.name, topic_partition, is_idempotent=options.enable_idempotence, acks=options.acks,
                transaction=self.transaction,
            )
            for _ in range(record_count)
        ]  # fmt: skip
        values = [record.number.to_bytes(8, "big") + b"x" * self.pick.randrange(30) for record in records]
        content = encode_records([ScalarRecord(now_ms, None, value) for value in values], now_ms)
        codec, compress = CODECS[self.plan.codec]
        encoded = EncodedBatch(codec, compress(content), len(records), now_ms, now_ms, len(content))
        share = Share(None, np.array([record.number for record in records]), 0)
        batch = ProducerBatch(*topic_partition, encoded, now_ms, (share,))
        self.unfinished[batch] += 1
        self._whole[batch] = len(records)
        self.trace.note(now_ms, f"{self.name} appends {records[0].number}+{len(records)} {topic_partition}")
        self.call(c.Append([batch]))

    def kill(self, *, is_silent: bool) -> None:
        """The process is gone. Records without a result get the fate UNKNOWN."""
        super().kill(is_silent=is_silent)
        for record in self.history.records:
            if record.client == self.name and record.fate is Fate.PENDING:
                record.fate = Fate.UNKNOWN
                record.reason = "its producer died"

    # ---- the step ----

    def step(self) -> None:
        now_ms = self.loop.now_ms
        calls, self._calls = self._calls, []
        step = self.engine.step(now_ms, self.take_inbox(), calls)
        self.refusal = self.engine.refusal
        for completion in step.completions:
            if isinstance(completion, c.Delivered):
                for batch in completion.batches:
                    self._on_result(batch, None)
            else:
                self._on_result(completion.batch, completion.error)
        for command in step.commands:
            if isinstance(command, NETWORK_COMMANDS):
                connection = self.network.carry_out(self, command)
                self.watch.on_network_command(now_ms, command, connection, self.transaction)
            elif isinstance(command, (Notice, RequestObserved)):
                self.watch.on_observation(now_ms, command)
        for observation in step.observations:
            self.watch.on_observation(now_ms, observation)
        self.watch.after_step()
        if step.wake_at_ms is not None:
            self.plan_step(step.wake_at_ms)
        for result in step.finished:
            self._on_finished(result)

    def _on_finished(self, result: c.Finished) -> None:
        error = "" if result.error is None else f" {type(result.error).__name__}: {result.error}"
        self.trace.note(self.loop.now_ms, f"{self.name} finished {result.operation}{error}")
        if result.operation != self.open_call:
            raise Violation("I6", f"{self.name}: call {result.operation} ended twice or was never made")
        self.open_call = None
        self._resume(result)

    # ---- results ----

    def _on_result(self, batch: ProducerBatch, error: KafkaSinkError | None) -> None:
        """`error` is None if the batch was delivered."""
        whole = batch
        while whole.split_from is not None:
            whole = whole.split_from
        if whole not in self._whole:
            raise Violation("I6", f"{self.name}: a batch ended that was not open: {error or 'delivered'}")
        position = 0
        for share in batch.shares:
            for number in share.rows:
                self._settle(self.history.records[int(number)], batch, error, position)
                position += 1
        if position != batch.record_count:
            raise Violation("I6", f"{self.name}: shares of {position} records in a batch of {batch.record_count}")
        self._whole[whole] -= batch.record_count
        if self._whole[whole] == 0:
            del self._whole[whole], self.unfinished[whole]

    def _settle(self, record: Record, batch: ProducerBatch, error: KafkaSinkError | None, position: int) -> None:
        if record.fate is not Fate.PENDING or record.client != self.name:
            raise Violation("I6", f"{record} ended a second time: {error or 'delivered'}")
        if error is None:
            record.fate = Fate.DELIVERED
            record.offset = batch.base_offset + position if batch.base_offset >= 0 else -1
        else:
            # Errors of other classes (a missing permission) do not say whether an earlier try succeeded.
            is_sure = isinstance(error, DeliveryError) and not error.ambiguous
            record.fate = Fate.FAILED if is_sure else Fate.UNKNOWN
            record.reason = f"{error}"
        if position == 0:
            text = f"{self.name} {record.fate.value} {record.number} at {record.offset} {record.reason}"
            self.trace.note(self.loop.now_ms, text)


def _title_of(call: c.Call) -> str:
    return call.event.value if isinstance(call, c.TransactionStep) else type(call).__name__
