"""Have brokers lost rows of a batch that they had acknowledged, before anything is decided about it?

A leader whose log has lost its end (another replica became the leader without it, power failed before it was on disk)
has a transaction open since its first row, as if nothing had happened. What shows the loss is that it tells of fewer
records of the task than were acknowledged (`OpenParts.short_parts`). That number is believed only after a look into the
log: not every server that answers the question need count as Kafka does, and a leader that has been replaced may answer
as well. So the last row of the task is read, from the leader that fresh metadata names. Nothing is asked where each
leader tells of all records.

  another producer's record is there    the row is lost, as with a marker
  no record is there for five seconds   the row is lost
  it is there                           the leader has told something else, or as of before if it was replaced: what
                                        it told of open transactions is asked for again, and the batch goes on
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from kafka_sink.commit.log_scan import FetchedPartition, fetch_ask, raw_batches
from kafka_sink.commit.open_parts import Partition, ShortPart
from kafka_sink.kafka.client.ask import Ask, Leader

LAST_ROWS = "look for the last row of a task"
# So many looks tell whether leaders are to be believed.
LOOKS_MAX = 10
# How long the end of a log may be unknown to a new leader.
PATIENCE_MS = 5_000
NOT_BELIEVED = (
    "leaders tell fewer records of this batch than they have acknowledged, and {}: the number is not believed. Brokers "
    "other than Apache Kafka may count in another way ({})"
)
PROTECTION = "with acks=all, three replicas and min.insync.replicas=2 on the topic rows outlive the loss of a broker"


class LostRows:
    """The looks of one check. `problem`: what is lost; `note`: why a leader is not believed. Empty: nothing."""

    def __init__(self) -> None:
        self.problem = self.note = ""
        # Partitions whose leaders told of fewer rows than there are.
        self.outdated: dict[Partition, None] = {}
        self._short: Sequence[ShortPart] = ()
        # Since when a look has found nothing.
        self._missing_since_ms: dict[int, int] = {}

    @property
    def suspicion(self) -> str:
        """What is lost unless it is found yet."""
        return next((_loss_text(self._short[number]) for number in self._missing_since_ms), "")

    def asks(self, short: Iterable[ShortPart]) -> list[Ask]:
        self._short = tuple(islice(short, LOOKS_MAX))
        asks = [
            fetch_ask(LAST_ROWS, Leader(one.written.topic, one.written.partition), one.written.last_offset, number=at)
            for at, one in enumerate(self._short)
        ]
        for ask in asks:
            ask.find_again = True
        return asks

    def on_fetched(self, now_ms: int, number: int, fetched: FetchedPartition) -> bool:
        """False: it has to be looked at again."""
        one = self._short[number]
        last_offset = one.written.last_offset
        found = next((each for each in raw_batches(fetched.records) if each.next_offset > last_offset), None)
        if found is None and now_ms - self._missing_since_ms.setdefault(number, now_ms) < PATIENCE_MS:
            return False
        self._missing_since_ms.pop(number, None)
        # Not a marker: somebody may have ended the transaction since, and the marker is in the place of the row.
        owner = None if found is None or found.is_control else (found.producer_id, found.producer_epoch)
        if owner != one.transaction.identity:
            self.problem = self.problem or _loss_text(one)
        else:
            self.outdated[one.written.topic, one.written.partition] = None
            self.on_doubt(number, "their last record is there")
        return True

    def on_doubt(self, number: int, why: str) -> None:
        self.note = self.note or NOT_BELIEVED.format(why, _place(self._short[number]))


def _place(one: ShortPart) -> str:
    return f"{one.written.topic}-{one.written.partition}"


def _loss_text(one: ShortPart) -> str:
    return (
        f"the brokers have lost acknowledged rows: transaction {one.transaction.transactional_id} wrote "
        f"{one.written.row_count} rows to {_place(one)}, up to offset {one.written.last_offset}, and the last "
        f"{one.missing_count} of them are gone from its leader. A power failure does that, or a leader that did not "
        f"have them: {PROTECTION}"
    )
