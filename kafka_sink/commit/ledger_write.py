"""One record into the ledger in a transaction of the driver's id: C3 and C5. The record that closes a decision may
have a manifest beside it, in another partition.

  APPENDING  after an own transaction first a new epoch, in version 1 and where a marker of that one could arrive again
             and end this one (KAFKA-19446): requested with the old one, so that a fenced driver is told so instead of
             fencing its successor (KIP-360). In version 1 the partitions then become part of the transaction. In both
             versions one batch with one record for each: the same bytes at each try, so a retry is recognised by its
             sequence
  HELD       all is in the log; EndTxn is sent when the caller asks for it (`release`)
  ENDING     EndTxn(commit); from the moment it is sent, the record may be committed. If the coordinator has forgotten
             the transaction, the ledger is searched for its marker, after the record
  WRITTEN, NOT_WRITTEN

A manifest whose topic or partition is gone is left out: nobody can read it, and the decision would stay open for ever.

A write given up before ENDING is certainly not committed: no one else commits this transaction. "Fenced" in response to
the very first EndTxn is just as certain; after a try without a response it is not, and the log is searched. If it is
refused after such a try, it is repeated for a while, and not up to the deadline: until somebody mends what is refused,
the batch may be decided, and the time in which a restart can finish it goes by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

from kafka_sink.commit.commit_step import CommitStep
from kafka_sink.commit.end_txn import CommitTransactions, end_ask
from kafka_sink.commit.ledger import Kind, LedgerRecord, TransactionOutcome, ledger_key
from kafka_sink.commit.ledger_codec import Unrecordable, encode_record
from kafka_sink.commit.ledger_read import KEYS_MAX
from kafka_sink.commit.log_scan import append_ask, read_append_answer
from kafka_sink.commit.receipt import PreparedTransaction, WrittenPartition
from kafka_sink.commit.session import DeliverySettings, DriverSession
from kafka_sink.errors.table.brokers import TOPIC_UNKNOWN
from kafka_sink.formats.records.batch import NO_TIMESTAMP, EncodedBatch, seal
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.scalar import Record, encode_batch
from kafka_sink.kafka.client.ask import Ask, Coordinator, Leader, Reply, ReplyKind
from kafka_sink.kafka.client.outcome import DriverOutcome, describe_answer, driver_outcome
from kafka_sink.kafka.client.producer_identity import ProducerIdentity
from kafka_sink.kafka.client.transaction_apis import versions_of
from kafka_sink.kafka.wire.apis import ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID, PRODUCE
from kafka_sink.kafka.wire.codes import MESSAGE_TOO_LARGE, OPERATION_NOT_ATTEMPTED, UNKNOWN_TOPIC_OR_PARTITION

RENEW, ADD = "renew driver epoch", "add ledger partition"
WRITE, END = "write ledger record", "end ledger transaction"
WRITE_MANIFEST = "write manifest"
NO_MANIFEST = (
    "{batch} of sink {sink!r} is closed without its manifest, because brokers have said for {gone_s} s that there is "
    "no {log[0]}-{log[1]}: {trouble}"
)


# With no more partitions a manifest takes a few kilobytes, which every topic accepts.
SMALL_MANIFEST_PARTITIONS = 100


class ManifestPlace(NamedTuple):
    """`size`: what it takes at most in the topic, whoever closes the decision; 0: it is small."""

    topic: str
    partition: int
    size: int


def manifest_place(batch: LedgerRecord) -> ManifestPlace | None:
    manifest = batch.manifest
    if manifest is None:
        return None
    if len(manifest.written) + len(manifest.dead_letters) <= SMALL_MANIFEST_PARTITIONS:
        return ManifestPlace(*manifest.log, 0)
    record = batch.as_closed(Kind.DONE, batch.wall_ms, is_accepted=True).manifest_record
    assert record is not None
    return ManifestPlace(*manifest.log, _one_record(*record).size)


class WriteState(Enum):
    APPENDING = "appending"
    HELD = "held"
    ENDING = "ending"
    WRITTEN = "written"
    NOT_WRITTEN = "not written"


class LedgerWrite(CommitStep):
    """`is_draft`: the record is appended but not committed before `release`."""

    def __init__(
        self,
        settings: DeliverySettings,
        session: DriverSession,
        record: LedgerRecord,
        *,
        is_draft: bool = False,
    ) -> None:
        super().__init__(settings)
        assert session.identity is not None, "only a driver that has fenced the others writes"
        self.record = record
        self.state = WriteState.APPENDING
        self._session = session
        self._identity = session.identity
        self._is_draft = is_draft
        self._search: CommitTransactions | None = None
        self._offset = -1
        # It is not written, because there is another driver.
        self.is_fenced = False
        # An EndTxn was sent without a definite answer: it may have been carried out.
        self._end_is_in_doubt = False
        # Since when that EndTxn has been refused.
        self._refused_since_ms: int | None = None
        self._batch = _one_record(*self._content())
        manifest = record.manifest_record
        self._manifest_batch = None if manifest is None else _one_record(*manifest)

    def ask_first(self, now_ms: int) -> None:
        if self._session.is_used and self.settings.begins_with_new_epoch:
            self._ask_renewal(now_ms)
        else:
            self._ask_to_begin(now_ms)
        self._session.is_used = True

    def _ask_to_begin(self, now_ms: int) -> None:
        if self.settings.transaction_version == 1:
            self._ask_add(now_ms)
        else:
            self._ask_appends(now_ms)

    def _content(self) -> tuple[bytes, bytes | None]:
        """Key and value, checked to be readable, before any request is sent."""
        key, ledger = ledger_key(self.record.sink_id, self.record.key), self._session.ledger
        if ledger is not None and key not in ledger.newest and ledger.key_count >= KEYS_MAX:
            raise Unrecordable(
                f"the ledger has {KEYS_MAX} records of sink {self.record.sink_id!r}, which is as many as it may have. "
                "Choose another sink.id for further batches with a batch.id"
            )
        value = encode_record(self.record)
        # Nobody asks for a write without a label again: once it is closed, nothing of it stays in the ledger.
        is_over = not self.record.key.is_named and self.record.kind in (Kind.DONE, Kind.REPLAY)
        return key.encode(), None if is_over else value

    @property
    def identity(self) -> ProducerIdentity:
        """Of its transaction, once it has begun."""
        return self._identity

    @property
    def is_finished(self) -> bool:
        return self.state in (WriteState.WRITTEN, WriteState.NOT_WRITTEN) or self.failure is not None

    @property
    def trouble(self) -> str:
        """Why it is not known to be written."""
        return "" if self.state is WriteState.WRITTEN else self.reason

    @property
    def may_be_written(self) -> bool:
        """A coordinator may have been asked for it: not yet, if the request is waiting to be sent, or was not sent."""
        end = self.asks.find(END)
        is_unsent = end is not None and not end.is_out and not self._end_is_in_doubt
        return self.state is WriteState.WRITTEN or (self.state is WriteState.ENDING and not is_unsent)

    def release(self, now_ms: int) -> None:
        """Sends EndTxn: from here on the record may be committed."""
        self._is_draft = False
        if self.state is WriteState.HELD:
            self.state = WriteState.ENDING
            self._ask_end(now_ms)

    def give_up(self) -> None:
        """Time is up. The state tells whether the record is committed; the epoch cannot be used again."""
        may_be_written = self.may_be_written
        self.asks.drop_all()
        self._session.forget_identity()
        if self.is_finished:
            return
        # Not only `last_trouble`: a coordinator's "fenced" that is still being checked is not a result.
        reason = f"no time left ({self.reason})"
        if may_be_written:
            self.fail(reason)
        else:
            self._refuse(reason)

    # ---- requests ----

    def _owner(self) -> dict[str, Any]:
        return {
            "transactional_id": self._session.transactional_id,
            "producer_id": self._identity.producer_id,
            "producer_epoch": self._identity.producer_epoch,
        }

    def _ask_renewal(self, now_ms: int) -> None:
        body = {**self._owner(), "transaction_timeout_ms": self._session.timeout_ms}
        target = Coordinator(self._session.transactional_id)
        version_min = INIT_PRODUCER_ID.identity_since
        self.asks.add(now_ms, Ask(target, INIT_PRODUCER_ID, body, RENEW, version_min=version_min))

    def _ask_add(self, now_ms: int) -> None:
        body: dict[str, Any] = {f"v3_and_below_{name}": value for name, value in self._owner().items()}
        logs = [log for _, log, _ in self._appends()]
        body["v3_and_below_topics"] = [{"name": log.topic, "partitions": [log.partition]} for log in logs]
        target = Coordinator(self._session.transactional_id)
        _, version_max = versions_of(ADD_PARTITIONS_TO_TXN, self.settings.transaction_version)
        self.asks.add(now_ms, Ask(target, ADD_PARTITIONS_TO_TXN, body, ADD, version_max=version_max))

    def _appends(self) -> Iterator[tuple[str, Leader, EncodedBatch]]:
        """Purpose, partition, and what is written there."""
        yield WRITE, self.settings.ledger, self._batch
        if self._manifest_batch is not None and self.record.manifest is not None:
            yield WRITE_MANIFEST, self.record.manifest.log, self._manifest_batch

    def _ask_appends(self, now_ms: int) -> None:
        version_min, version_max = versions_of(PRODUCE, self.settings.transaction_version)
        for purpose, log, batch in self._appends():
            header = seal(
                batch,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.producer_epoch,
                base_sequence=0,
                is_transactional=True,
            )
            append = append_ask(
                purpose,
                self.settings,
                log,
                header + batch.payload,
                transactional_id=self._session.transactional_id,
                version_min=version_min,
                version_max=min(version_max, PRODUCE.last_by_name),
            )
            self.asks.add(now_ms, append)

    def _ask_end(self, now_ms: int) -> None:
        """The manifest's leader has just answered; a repetition looks whether there still is one, because a marker for
        a partition without a leader may be dropped. In the ledger a missing marker is noticed (`LedgerState`)."""
        led = [log for purpose, log, _ in self._appends() if purpose == WRITE_MANIFEST]
        self.asks.add(
            now_ms,
            end_ask(END, self._transaction(), commit=True, led_partitions=tuple(led), are_leaders_known=True),
        )

    def _transaction(self) -> PreparedTransaction:
        return PreparedTransaction(self._session.transactional_id, *self._identity, self.settings.transaction_version)

    # ---- responses ----

    def on_reply(self, now_ms: int, reply: Reply) -> None:
        if self._search is None:
            super().on_reply(now_ms, reply)
            return
        self._search.on_reply(now_ms, reply)
        # Unless the search has trouble of its own, what it looks into is why the record is not written.
        self.last_trouble = self._search.last_trouble or self.last_trouble
        self._on_searched()

    def on_lost(self, now_ms: int, reply: Reply) -> None:
        self._end_is_in_doubt |= reply.ask.purpose == END and reply.kind is ReplyKind.LOST
        if reply.ask.purpose == WRITE_MANIFEST:
            self.note_topic(now_ms, is_gone=reply.error is not None and reply.error.entry is TOPIC_UNKNOWN)
            if self._leave_manifest_out_if_gone(now_ms):
                self._on_appended(now_ms, reply.ask)
                return
        super().on_lost(now_ms, reply)

    def on_leaderless(self, now_ms: int, reply: Reply) -> None:
        self.last_trouble = str(reply.error)
        self.asks.repeat(now_ms, reply.ask)

    def on_body(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        if ask.purpose == RENEW:
            self._on_renewed(now_ms, ask, body)
        elif ask.purpose == ADD:
            self._on_added(now_ms, ask, body)
        elif ask.purpose in (WRITE, WRITE_MANIFEST):
            self._on_produced(now_ms, ask, body)
        else:
            self._on_ended(now_ms, ask, body)

    def on_refused(self, now_ms: int, ask: Ask, reason: str, *, is_fenced: bool = False) -> None:
        if ask.purpose != END or not self._end_is_in_doubt:
            self._refuse(reason, is_fenced=is_fenced)
            return
        # An earlier try may have been carried out: only a response tells.
        if self._refused_since_ms is None:
            self._refused_since_ms = now_ms
        if ask.is_hopeless or now_ms - self._refused_since_ms >= self.settings.refused_ms:
            self._session.forget_identity()
            self.fail(reason)
        else:
            self.last_trouble = reason
            self.asks.repeat(now_ms, ask)

    def _on_renewed(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        if self.refuse_or_repeat(now_ms, ask, body["error_code"]):
            return
        self.asks.drop(ask)
        renewed = ProducerIdentity(body["producer_id"], body["producer_epoch"])
        if renewed.producer_id != self._identity.producer_id:
            # The unused transactional id has expired: the coordinator then assigns a new producer id to any request,
            # whatever its epoch. Or its 32,767 epochs are used up. In the first case another driver may have been
            # active in between, so this process's view of the ledger is not reliable.
            name = self._session.transactional_id
            self._refuse(f"{name} has expired, or its epochs are used up, and is another producer now", is_fenced=True)
            return
        expected = self._identity.producer_epoch + 1
        if renewed.producer_epoch != expected:
            # Apache Kafka refuses an outdated epoch, and gives the next one at a retry, too. Other brokers renew any.
            text = f"{self._session.transactional_id} has epoch {renewed.producer_epoch} now instead of {expected}"
            self._refuse(f"{text}: there is another driver", is_fenced=True)
            return
        self._identity = renewed
        self._ask_to_begin(now_ms)

    def _on_added(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        codes = [
            partition["partition_error_code"]
            for topic in body["results_by_topic_v3_and_below"]
            for partition in topic["results_by_partition"]
        ]
        # That of the partition for which the others were not attempted.
        error_code = next(
            (number for number in codes if number not in (0, OPERATION_NOT_ATTEMPTED)), max(codes, default=0)
        )
        self.note_topic(now_ms, is_gone=self._is_only_manifest_unknown(body))
        if self._leave_manifest_out_if_gone(now_ms):
            self.asks.drop(ask)
            self._ask_add(now_ms)
        elif not self.refuse_or_repeat(now_ms, ask, error_code):
            self.asks.drop(ask)
            self._ask_appends(now_ms)

    def _is_only_manifest_unknown(self, body: Mapping[str, Any]) -> bool:
        unknown = {
            topic["name"]
            for topic in body["results_by_topic_v3_and_below"]
            for partition in topic["results_by_partition"]
            if partition["partition_error_code"] == UNKNOWN_TOPIC_OR_PARTITION
        }
        return self.record.manifest is not None and unknown == {self.record.manifest.topic}

    def _leave_manifest_out_if_gone(self, now_ms: int) -> bool:
        """For good, so after as long a time as a batch is given up that may be lost."""
        manifest, gone_ms = self.record.manifest, self.settings.short_log_ms
        if manifest is None or not self.is_gone_for_good(now_ms, gone_ms):
            return False
        self._manifest_batch = None
        told = {"batch": self.record.key, "sink": self.record.sink_id, "log": manifest.log}
        self._notes.append(NO_MANIFEST.format(**told, gone_s=gone_ms // 1000, trouble=self.last_trouble))
        return True

    def _on_produced(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        error_code, offset = read_append_answer(body)
        if ask.purpose == WRITE_MANIFEST:
            self.note_topic(now_ms, is_gone=False)
        if self.refuse_or_repeat(now_ms, ask, error_code):
            return
        if ask.purpose == WRITE:
            self._offset = offset
        self._on_appended(now_ms, ask)

    def _on_appended(self, now_ms: int, ask: Ask) -> None:
        self.asks.drop(ask)
        if len(self.asks):
            return
        self.state = WriteState.HELD
        if not self._is_draft:
            self.release(now_ms)

    def _on_ended(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        error_code = body["error_code"]
        if driver_outcome(END_TXN, error_code) is DriverOutcome.SUPERSEDED:
            reason = self.error_text(ask, error_code)
            if self._end_is_in_doubt:
                self._begin_search(now_ms, reason)
            else:
                self._refuse(reason, is_fenced=True)
        elif self.refuse_or_repeat(now_ms, ask, error_code):
            self._end_is_in_doubt = True
        else:
            self.asks.drop(ask)
            self._on_committed(body)

    def _on_committed(self, body: Mapping[str, Any]) -> None:
        self.state = WriteState.WRITTEN
        session = self._session
        session.ledger = session.ledger and session.ledger.with_record(self.record)
        if self.settings.transaction_version == 1:
            session.identity = self._identity
        elif body.get("producer_id", -1) >= 0:
            # In version 2 the response to EndTxn has the epoch of the next transaction, for a retry as well.
            session.identity = ProducerIdentity(body["producer_id"], body["producer_epoch"])
        else:
            session.forget_identity()

    def _begin_search(self, now_ms: int, reason: str) -> None:
        """Superseded after a try without a response. There is another driver now; was this record committed?"""
        self._session.forget_identity()
        self.last_trouble = reason
        if self._offset < 0:
            # Acknowledged as a duplicate, without an offset. A search from the start of the log would find the marker
            # of the record before: in version 2 that has the epoch of this transaction.
            self.fail(self.last_trouble)
            return
        witness = WrittenPartition(*self.settings.ledger, 1, self._offset, self._offset)
        search = CommitTransactions(self.settings, [self._transaction()], [witness], is_ended=True)
        self._search = search.begin(now_ms)
        self.asks = search.asks

    def _on_searched(self) -> None:
        assert self._search is not None
        if not self._search.is_finished:
            return
        outcome = self._search.outcomes[0]
        if outcome is TransactionOutcome.COMMITTED:
            self.state = WriteState.WRITTEN
        elif outcome is TransactionOutcome.LOST:
            self._refuse(self.last_trouble, is_fenced=True)
        else:
            # The outcome remains unknown.
            self.fail(self._search.obstacle or self.last_trouble)

    def error_text(self, ask: Ask, error_code: int) -> str:
        target = self._session.transactional_id
        batch, topic, part = self._batch, self.settings.ledger_topic, "task"
        if ask.purpose == WRITE_MANIFEST and self._manifest_batch is not None and self.record.manifest is not None:
            batch, topic, part = self._manifest_batch, self.record.manifest.topic, "partition"
            target = f"manifest topic {topic}-{self.record.manifest.partition}"
        elif ask.api in (PRODUCE, ADD_PARTITIONS_TO_TXN):
            target = self.settings.ledger_title
        text = f"{target}: {describe_answer(ask.api.name, error_code)}"
        if error_code != MESSAGE_TOO_LARGE:
            return text
        text = f"{text}. The record has {batch.size} bytes, one part for each {part}: raise max.message.bytes of topic "
        if self.record.kind is Kind.INTENT:
            return f"{text}{topic}, or write with fewer tasks"
        # What it says is decided: no repetition makes it smaller.
        return f"{text}{topic} to that first, since nothing else helps"

    def _refuse(self, reason: str, *, is_fenced: bool = False) -> None:
        self.state = WriteState.NOT_WRITTEN
        self.is_fenced = is_fenced
        self._session.forget_identity()
        self.fail(reason)


def _one_record(key: bytes, value: bytes | None) -> EncodedBatch:
    """No timestamp: a broker rejects one that is far in the future, and the driver's clock may be wrong."""
    return encode_batch([Record(NO_TIMESTAMP, key, value)], make_compressor("none"))
