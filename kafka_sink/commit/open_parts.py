"""Where the transactions of a batch are still open, as the leaders of its partitions say (DescribeProducers, KIP-664).

The coordinator alone cannot tell. An abort by the rules of transaction version 1 leaves the epoch, so what the task
writes afterwards begins another transaction under the same id and epoch, and may add a partition again. And Kafka's own
tool writes the marker of an abort into one partition without a word to the coordinator, in both versions. A leader
tells since which offset a producer id has a transaction open: a part that was aborted is closed, or open since a later
offset than the task's first row. There is no cheaper sign: the last stable offset is about the oldest open transaction
of all, and what a marker has ended leaves no trace at the coordinator.

The same answer has the sequence number of the producer's last record. A task begins its transaction with an epoch of
its own, so it numbers its records from 0 in each partition, whatever is split or sent again: the number is one less
than what was acknowledged. If it is lower, brokers may have lost the end of their log under the open transaction, and
lost_rows.py looks.

The leaders are asked in parallel with the coordinators. Where they do not answer (Read on the topic is missing, brokers
before Kafka 2.8, servers without DescribeProducers), or tell of too many producers, only the coordinator's list of
partitions is compared. That finds every abort of a transaction but three: a marker of Kafka's own tool; in version 1 an
abort that is followed by a late copy of the task's AddPartitionsToTxn; in version 2 an abort by the rules of version 1,
as from an old client, after which the task writes to all of its partitions again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from kafka_sink.commit.receipt import PreparedTransaction, TaskReceipt, WrittenPartition
from kafka_sink.kafka.client.ask import Leaders
from kafka_sink.kafka.client.outcome import DriverOutcome, describe_answer, driver_outcome
from kafka_sink.kafka.wire.apis import DESCRIBE_PRODUCERS

NOT_TOLD = (
    "whether a part of a transaction was aborted is checked only with its coordinator, not with the leaders of its "
    "partitions ({}). Do not end transactions of a running query, as with kafka-transactions.sh"
)
NOT_SPOKEN = "the brokers do not speak DescribeProducers"
# A leader tells of every producer that has written to a partition within a day (producer.id.expiration.ms): with
# thousands of them an answer takes longer than the rest of a commit.
PRODUCERS_MAX = 5_000
CROWDED = f"they tell of more than {PRODUCERS_MAX} producers, and are asked every ten minutes"
# Each takes 37 bytes and, once decoded, ten times as many. A thousand tasks that write to a thousand partitions are a
# million; a frame has room for less than three.
PRODUCERS_ASKED_MAX = 100_000
TOO_MANY = f"they would tell of more than {PRODUCERS_ASKED_MAX} producers"
# From this number of a batch's own on, the first question of a process is about one partition of each topic, because
# earlier batches had as many. It costs one more round trip.
SAMPLED_FROM = 100
NOTHING_OPEN = -1
# After the last number comes 0.
SEQUENCE_MODULUS = 2**31

Partition = tuple[str, int]


class ToldPart(NamedTuple):
    """What a leader tells of a producer. `last_sequence` -1: nothing."""

    start: int
    epoch: int
    last_sequence: int


NOT_TOLD_OF = ToldPart(NOTHING_OPEN, -1, -1)


class ShortPart(NamedTuple):
    """A leader tells of fewer records than it, or another leader before it, has acknowledged."""

    transaction: PreparedTransaction
    written: WrittenPartition
    missing_count: int


class ProducerQuestion:
    """About partitions whose leaders tell of their producers. `is_sampled`: first about one partition of each topic."""

    def __init__(self, partitions: Iterable[Partition], *, is_sampled: bool = True) -> None:
        self.missing = dict.fromkeys(sorted(partitions))
        # Why some leaders have not told anything.
        self.refusal = ""
        # How many producers.
        self._told: Counter[Partition] = Counter()
        # To be asked for after a sample.
        self._later: dict[Partition, None] = {}
        if is_sampled:
            sample = {topic: (topic, index) for topic, index in reversed(self.missing)}
            self._later = {one: None for one in self.missing if sample[one[0]] != one}
            self.missing = dict.fromkeys(sample[topic] for topic in sorted(sample))

    def question(self) -> tuple[Leaders, Mapping[str, Any]]:
        indexes: dict[str, list[int]] = {}
        for topic, index in self.missing:
            indexes.setdefault(topic, []).append(index)
        asked = [{"name": topic, "partition_indexes": found} for topic, found in indexes.items()]
        return Leaders(tuple(self.missing)), {"topics": asked}

    def ask_rest(self) -> None:
        """After the sample: the rest is to be asked, unless there would be too much of it."""
        later, self._later = self._later, {}
        sizes = Counter(topic for topic, _ in later)
        if sum(sizes[topic] * count for (topic, _), count in self._told.items()) > PRODUCERS_ASKED_MAX:
            self.give_up(TOO_MANY)
        else:
            self.missing = later

    def ask_again(self, partitions: Iterable[Partition]) -> None:
        """What was told about them is not believed yet."""
        self.missing = dict.fromkeys(sorted(partitions))

    def on_body(self, body: Mapping[str, Any]) -> str:
        """Why some partitions have to be asked for again, or an empty text."""
        trouble = ""
        for topic in body["topics"]:
            for told in topic["partitions"]:
                where, error_code = (topic["name"], told["partition_index"]), told["error_code"]
                found = driver_outcome(DESCRIBE_PRODUCERS, error_code)
                if where not in self.missing:
                    continue
                if found is DriverOutcome.DONE:
                    self._told[where] = len(told["active_producers"])
                    self.on_told(where, told["active_producers"])
                elif found is DriverOutcome.REFUSED:
                    self.refusal = f"{topic['name']}: {describe_answer(DESCRIBE_PRODUCERS.name, error_code)}"
                else:
                    trouble = f"{where[0]}-{where[1]}: {describe_answer(DESCRIBE_PRODUCERS.name, error_code)}"
                    continue
                del self.missing[where]
        return trouble

    def on_told(self, where: Partition, producers: Iterable[Mapping[str, Any]]) -> None:
        """For those who want to know more than how many there are."""

    def give_up(self, why: str) -> None:
        self.missing.clear()
        self._later.clear()
        self.refusal = why


class OpenParts(ProducerQuestion):
    """`own_count`: how many producers of this batch the leaders will tell of, one for each task and partition.
    `is_known`: it is known that they do not tell of many more."""

    def __init__(
        self, partitions: Iterable[Partition], producer_ids: Collection[int], own_count: int, *, is_known: bool
    ) -> None:
        super().__init__(partitions, is_sampled=own_count > SAMPLED_FROM and not is_known)
        self._producer_ids = frozenset(producer_ids)
        self._parts: dict[Partition, dict[int, ToldPart]] = {}
        if own_count > PRODUCERS_ASKED_MAX:
            self.give_up(TOO_MANY)

    @property
    def is_crowded(self) -> bool:
        return self.refusal == TOO_MANY or self._told.total() > PRODUCERS_MAX

    @property
    def note(self) -> str:
        return NOT_TOLD.format(self.refusal) if self.refusal else ""

    def ask_again(self, partitions: Iterable[Partition]) -> None:
        super().ask_again(self._parts.keys() & set(partitions))
        for where in self.missing:
            del self._parts[where]

    def on_told(self, where: Partition, producers: Iterable[Mapping[str, Any]]) -> None:
        self._parts[where] = {
            one["producer_id"]: ToldPart(one["current_txn_start_offset"], one["producer_epoch"], one["last_sequence"])
            for one in producers
            if one["producer_id"] in self._producer_ids
        }

    def closed_part(self, transaction: PreparedTransaction, written: Iterable[WrittenPartition]) -> str | None:
        """The first partition in which some of these rows are outside the open transaction, in words."""
        for each in written:
            told = self._parts.get((each.topic, each.partition))
            if told is None:
                continue
            start = told.get(transaction.producer_id, NOT_TOLD_OF).start
            # A broker may acknowledge a retried request without its offset (-1).
            if start == NOTHING_OPEN or (each.first_offset >= 0 and start > each.first_offset):
                since = "is not open" if start == NOTHING_OPEN else f"is open since offset {start} only"
                return f"{since} in {each.topic}-{each.partition}, where its rows begin at offset {each.first_offset}"
        return None

    def short_parts(self, receipt: TaskReceipt) -> Iterator[ShortPart]:
        """Not where the place of some rows is unknown: nobody could look for them."""
        transaction = receipt.transaction
        assert transaction is not None
        for each in receipt.written:
            where = each.topic, each.partition
            told = self._parts.get(where, {}).get(transaction.producer_id, NOT_TOLD_OF)
            is_known = told.epoch == transaction.producer_epoch and told.last_sequence >= 0
            if not is_known or each.last_offset < 0 or where in receipt.unknown:
                continue
            missing_count = (each.row_count - 1 - told.last_sequence) % SEQUENCE_MODULUS
            # Of an open part the first row is there.
            if 0 < missing_count < min(each.row_count, SEQUENCE_MODULUS // 2):
                yield ShortPart(transaction, each, missing_count)
