"""One record into the ledger in a transaction of the driver's id: C3 and C5.

  APPENDING  in version 1 first a new epoch, after an own transaction: requested with the old one, so that a fenced
             driver is told so instead of fencing its successor (KIP-360); then the ledger's partition becomes part of
             the transaction. In both versions one batch with one record: the same bytes at each try, so a retry is
             recognised by its sequence
  HELD       it is in the log; EndTxn is sent when the caller asks for it (`release`)
  ENDING     EndTxn(commit); from the moment it is sent, the record may be committed. If the coordinator has forgotten
             the transaction, the ledger is searched for its marker, after the record
  WRITTEN, NOT_WRITTEN

A write given up before ENDING is certainly not committed: no one else commits this transaction. "Fenced" in response to
the very first EndTxn is just as certain; after a try without a response it is not, and the log is searched.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from kafka_sink.commit.commit_step import CommitStep
from kafka_sink.commit.end_txn import CommitTransactions, ask_end
from kafka_sink.commit.ledger import Kind, LedgerRecord, TransactionOutcome, ledger_key
from kafka_sink.commit.ledger_codec import Unrecordable, encode_record
from kafka_sink.commit.ledger_read import KEYS_MAX
from kafka_sink.commit.log_scan import PRODUCE_LAST_BY_NAME, ask_append, read_append_answer
from kafka_sink.commit.outcome import Meaning, describe_answer, meaning
from kafka_sink.commit.receipt import PreparedTransaction, WrittenPartition
from kafka_sink.commit.session import DeliverySettings, DriverIdentity, DriverSession
from kafka_sink.formats.records.batch import NO_TIMESTAMP, seal
from kafka_sink.formats.records.compression import make_compressor
from kafka_sink.formats.records.scalar import Record, encode_batch
from kafka_sink.kafka.client.admin_request import AdminResponse, Coordinator, RequestKey
from kafka_sink.kafka.client.transaction_apis import INIT_PRODUCER_ID_FIRST_WITH_IDENTITY, versions_of
from kafka_sink.kafka.wire.apis import ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID, PRODUCE, Api

RENEW, ADD, WRITE, END = (
    RequestKey("renew driver epoch"),
    RequestKey("add ledger partition"),
    RequestKey("write ledger record"),
    RequestKey("end ledger transaction"),
)
MESSAGE_TOO_LARGE = 10


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
        now_ms: int,
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
        # No timestamp: a broker rejects one that is far in the future, and the driver's clock may be wrong.
        self._batch = encode_batch([Record(NO_TIMESTAMP, *self._content())], make_compressor("none"))
        if settings.transaction_version == 2:
            self._ask_produce(now_ms)
        elif session.is_used:
            self._ask_renewal(now_ms)
        else:
            self._ask_add(now_ms)
        session.is_used = True

    def _content(self) -> tuple[bytes, bytes | None]:
        """Key and value, checked to be readable, before any request is sent."""
        key, ledger = ledger_key(self.record.sink_id, self.record.key), self._session.ledger
        if ledger is not None and key not in ledger.newest and ledger.key_count >= KEYS_MAX:
            raise Unrecordable(
                f"the ledger has {KEYS_MAX} records of sink {self.record.sink_id!r}, which is as many as are read. "
                "Choose another sink.id for further batches with a batch.id"
            )
        value = encode_record(self.record)
        # Nobody asks for a write without a label again: once it is closed, nothing of it stays in the ledger.
        is_over = not self.record.key.is_named and self.record.kind in (Kind.DONE, Kind.REPLAY)
        return key.encode(), None if is_over else value

    @property
    def is_finished(self) -> bool:
        return self.state in (WriteState.WRITTEN, WriteState.NOT_WRITTEN) or self.failure is not None

    @property
    def may_be_written(self) -> bool:
        return self.state in (WriteState.ENDING, WriteState.WRITTEN)

    def release(self, now_ms: int) -> None:
        """Sends EndTxn: from here on the record may be committed."""
        self._is_draft = False
        if self.state is WriteState.HELD:
            self.state = WriteState.ENDING
            self._ask_end(now_ms)

    def give_up(self) -> None:
        """Time is up. The state tells whether the record is committed; the epoch cannot be used again."""
        self.queue.drop_all()
        self._session.forget_identity()
        if self.is_finished:
            return
        # Not only `last_trouble`: a coordinator's "fenced" that is still being checked is not a result.
        reason = f"no time left ({self.reason})"
        if self.may_be_written:
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
        version_min = INIT_PRODUCER_ID_FIRST_WITH_IDENTITY
        self.queue.ask(now_ms, RENEW, target, INIT_PRODUCER_ID, body, version_min=version_min)

    def _ask_add(self, now_ms: int) -> None:
        body: dict[str, Any] = {f"v3_and_below_{name}": value for name, value in self._owner().items()}
        topic, partition = self.settings.ledger
        body["v3_and_below_topics"] = [{"name": topic, "partitions": [partition]}]
        target = Coordinator(self._session.transactional_id)
        _, version_max = versions_of(ADD_PARTITIONS_TO_TXN, self.settings.transaction_version)
        self.queue.ask(now_ms, ADD, target, ADD_PARTITIONS_TO_TXN, body, version_max=version_max)

    def _ask_produce(self, now_ms: int) -> None:
        header = seal(
            self._batch,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        version_min, version_max = versions_of(PRODUCE, self.settings.transaction_version)
        ask_append(
            self.queue,
            now_ms,
            WRITE,
            self.settings,
            header + self._batch.payload,
            transactional_id=self._session.transactional_id,
            version_min=version_min,
            version_max=min(version_max, PRODUCE_LAST_BY_NAME),
        )

    def _ask_end(self, now_ms: int) -> None:
        ask_end(self.queue, now_ms, END, self._ending(), commit=True)

    def _ending(self) -> PreparedTransaction:
        return PreparedTransaction(self._session.transactional_id, *self._identity, self.settings.transaction_version)

    # ---- responses ----

    def on_answer(self, now_ms: int, answer: AdminResponse) -> None:
        if self._search is None:
            super().on_answer(now_ms, answer)
            return
        self._search.on_answer(now_ms, answer)
        # Unless the search has trouble of its own, what it looks into is why the record is not written.
        self.last_trouble = self._search.last_trouble or self.last_trouble
        self._on_searched()

    def on_lost(self, now_ms: int, answer: AdminResponse) -> None:
        self._end_is_in_doubt = self._end_is_in_doubt or answer.key == END
        super().on_lost(now_ms, answer)

    def on_body(self, now_ms: int, key: RequestKey, body: Mapping[str, Any]) -> None:
        if key == RENEW:
            self._on_renewed(now_ms, body)
        elif key == ADD:
            self._on_added(now_ms, body)
        elif key == WRITE:
            self._on_produced(now_ms, body)
        else:
            self._on_ended(now_ms, body)

    def on_refused(self, now_ms: int, key: RequestKey, reason: str, *, is_fenced: bool = False) -> None:
        if key == END and self._end_is_in_doubt:
            self.last_trouble = reason
            self.queue.repeat(now_ms, key)  # an earlier try may have been carried out: only a response tells
        else:
            self._refuse(reason, is_fenced=is_fenced)

    def _on_renewed(self, now_ms: int, body: Mapping[str, Any]) -> None:
        if not self.is_done(now_ms, RENEW, INIT_PRODUCER_ID, body["error_code"]):
            return
        self.queue.drop(RENEW)
        renewed = DriverIdentity(body["producer_id"], body["producer_epoch"])
        if renewed.producer_id != self._identity.producer_id:
            # The unused transactional id has expired: the coordinator then assigns a new producer id to any request,
            # whatever its epoch. Another driver may have been active in between, so this process's view of the ledger
            # is not reliable.
            self._refuse(f"{self._session.transactional_id} has expired and is another producer now", is_fenced=True)
            return
        self._identity = renewed
        self._ask_add(now_ms)

    def _on_added(self, now_ms: int, body: Mapping[str, Any]) -> None:
        codes = [
            partition["partition_error_code"]
            for topic in body["results_by_topic_v3_and_below"]
            for partition in topic["results_by_partition"]
        ]
        error_code = next((number for number in codes if number), 0)
        if not self.is_done(now_ms, ADD, ADD_PARTITIONS_TO_TXN, error_code):
            return
        self.queue.drop(ADD)
        self._ask_produce(now_ms)

    def _on_produced(self, now_ms: int, body: Mapping[str, Any]) -> None:
        error_code, offset = read_append_answer(body)
        if not self.is_done(now_ms, WRITE, PRODUCE, error_code):
            return
        self.queue.drop(WRITE)
        self.state = WriteState.HELD
        self._offset = offset
        if not self._is_draft:
            self.release(now_ms)

    def _on_ended(self, now_ms: int, body: Mapping[str, Any]) -> None:
        error_code = body["error_code"]
        if meaning(END_TXN, error_code) is Meaning.SUPERSEDED:
            if self._end_is_in_doubt:
                self._begin_search(now_ms, error_code)
            else:
                self._refuse(self.error_text(END, END_TXN, error_code), is_fenced=True)
        elif self.is_done(now_ms, END, END_TXN, error_code):
            self._on_committed(body)
        else:
            self._end_is_in_doubt = True

    def _on_committed(self, body: Mapping[str, Any]) -> None:
        self.queue.drop(END)
        self.state = WriteState.WRITTEN
        session = self._session
        session.ledger = session.ledger and session.ledger.with_record(self.record)
        if self.settings.transaction_version == 1:
            session.identity = self._identity
        elif body.get("producer_id", -1) >= 0:
            # In version 2 the response to EndTxn has the epoch of the next transaction, for a retry as well.
            session.identity = DriverIdentity(body["producer_id"], body["producer_epoch"])
        else:
            session.forget_identity()

    def _begin_search(self, now_ms: int, error_code: int) -> None:
        """Superseded after a try without a response. There is another driver now; was this record committed?"""
        self._session.forget_identity()
        self.last_trouble = self.error_text(END, END_TXN, error_code)
        if self._offset < 0:
            # Acknowledged as a duplicate, without an offset. A search from the start of the log would find the marker
            # of the record before: in version 2 that has the epoch of this transaction.
            self.fail(self.last_trouble)
            return
        witness = WrittenPartition(*self.settings.ledger, 1, self._offset, self._offset)
        self._search = CommitTransactions(self.settings, [self._ending()], [witness], now_ms, is_ended=True)
        self.queue = self._search.queue

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
            self.fail(self._search.obstacles.get(0) or self.last_trouble)

    def error_text(self, key: RequestKey, api: Api, error_code: int) -> str:
        where = (
            self.settings.ledger_title if api in (PRODUCE, ADD_PARTITIONS_TO_TXN) else self._session.transactional_id
        )
        text = f"{where}: {describe_answer(api.name, error_code)}"
        if error_code != MESSAGE_TOO_LARGE:
            return text
        return (
            f"{text}. The record has {self._batch.size} bytes, one part for each task: raise "
            f"max.message.bytes of topic {self.settings.ledger_topic}, or write with fewer tasks"
        )

    def _refuse(self, reason: str, *, is_fenced: bool = False) -> None:
        self.state = WriteState.NOT_WRITTEN
        self.is_fenced = is_fenced
        self._session.forget_identity()
        self.fail(reason)
