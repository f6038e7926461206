"""C1, second half: read the ledger.

A driver that has fenced the others and written its claim (takeover.py) reads up to the claim: others can add nothing
after that. Without a claim, at planning, the end is the leader's high watermark, and nothing proves that the broker is
still the leader: a record that is found was written, one that is not found may have been. The next commit reads again.

Reading starts at offset 0 without requesting the start of the log, because compaction does not move it. If records were
deleted in another way (DeleteRecords), the broker answers that the offset is out of range; only then is the start
requested. Without a claim the end is requested together with the first records.

Records are fetched with read_uncommitted and judged here by the control records that follow them. A read_committed
reader would stop at the last stable offset, which the open transaction of any other sink in the same ledger holds back;
a decision of this sink after it would be missed. A record whose marker is not there yet counts as not written. A reader
that only looks (listing.py) waits briefly for the marker: a coordinator answers a commit before it has written the
markers, so right after a decision there may be none.

A record without a marker below the last stable offset has ended. The cleaner keeps an abort marker as long as the
records of the transaction, so the record was committed: but only if the marker was looked for wherever it can be. The
answer that tells the offset may end long before it (a segment ends, or the answer is full), and the marker may lie even
above it, as other transactions are open. So the end of the log is requested after the last stable offset was told, and
the record is believed when everything up to that end has been read. An intent is doubted even so, like the ones below:
if its abort marker was lost, the end of a later transaction of its driver has ended it for the leader.

A fence ends every transaction of earlier drivers. If a record written before the fence still has no marker below the
claim that follows, the marker was lost with its only replica (KAFKA-20734), and whether the record was committed is
unknown. An intent may then be decided or not: what has become of its transactions tells (unmarked.py). How a decision
ended (done, stuck) is true whether or not its record was committed. An operator's choice is not assumed: it must be
made again. `Committer` makes sure that there was such a fence: an open record could still be aborted, and the ledger
would not contain what was believed.

An example, with one ledger key:

 0  intent of batch 7   epoch 3
 1  commit marker       epoch 4   so record 0 was written: batch 7 is decided
 2  done, batch 7       epoch 4
 3  abort marker        epoch 5   so record 2 was not: batch 7 is still open
 4  done, batch 7       epoch 6   no marker below the claim: it was lost. Batch 7 has ended all the same
 5  claim                         nothing after it is read

A null value (set_aside.py) deletes the earlier records of its key, as compaction does.

A record under a ledger key that was written without a transaction is not of a sink: another program wrote it, or a tool
that copies topics. As the newest of its key it is an unreadable record, and not one to be skipped: it hides the
decision below, and compaction removes that. Only claims are written so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from kafka_sink.commit import messages
from kafka_sink.commit.commit_step import CommitStep
from kafka_sink.commit.division import division_of
from kafka_sink.commit.identity import Line, belongs_to, code_of_label
from kafka_sink.commit.ledger import (
    Kind,
    LedgerRecord,
    LedgerState,
    OtherName,
    claim_key,
    decode_key,
    is_nameless,
    is_of_stream,
    line_of_key,
    stop_key,
)
from kafka_sink.commit.ledger_codec import VALUE_BYTES_MAX, beginning_of_plain, decode_claim, decode_record
from kafka_sink.commit.ledger_found import (
    ERASED,
    NO_PRODUCER,
    Found,
    Newest,
    Unmarked,
    decode_found,
    is_of_earlier_batch,
    number_of,
)
from kafka_sink.commit.log_scan import (
    EARLIEST,
    FETCH_WAIT_MS,
    LATEST,
    RawBatch,
    fetch_ask,
    offset_ask,
    raw_batches,
    read_fetch_answer,
    read_offset_answer,
)
from kafka_sink.commit.session import DeliverySettings, DriverSession
from kafka_sink.errors import RemoteProtocolError
from kafka_sink.errors.table.commits import LEDGER_DAMAGED, LEDGER_UNREADABLE
from kafka_sink.formats.records.skim import Skimmed, skim_batch
from kafka_sink.kafka.client.ask import Ask
from kafka_sink.kafka.client.outcome import DriverOutcome, describe_answer, driver_outcome
from kafka_sink.kafka.wire.apis import FETCH

LOG_START, LOG_STOP = "ledger start", "ledger stop"
READ = "read ledger"
# Ledger keys of one sink: one for its stream and one per labelled batch write. No writer adds one above the first
# number; writers at the same time do not know of each other's, so more are read.
KEYS_MAX, KEYS_READ_MAX = 100_000, 200_000


# A live coordinator writes its markers within milliseconds; the open transaction of a driver that died has none.
MARKER_QUESTIONS, MARKER_WAIT_MS = 5, 100
# No command passes over a damaged batch, which may have the newest record of any sink.
OTHER_REPLICA = (
    "Each broker has checked what it was sent, so another replica may have it whole: let another broker lead the "
    "partition, and start again. If none has, begin an empty ledger"
)


class LedgerRead(CommitStep):
    """`claim_offset`: read up to there, whatever the leader's high watermark is; None: up to the high watermark.

    `code`: of the line that is read; None: all lines of the sink. `named_sink_id`: the sink id without the query, under
    which 0.1.0 kept this stream. `query_suffix`: what a sink id of this query ends with, whatever its name is.
    `is_of_name`: every sink under the name `sink_id`, including those of its queries; of each the same line.
    """

    # Without a claim: wait for the markers of records that are already there.
    awaits_markers = False
    limits_keys = True

    @classmethod
    def of_session(
        cls, settings: DeliverySettings, session: DriverSession, *, claim_offset: int | None, is_of_name: bool
    ) -> LedgerRead:
        return cls(
            settings, session.sink_id, code=session.code, named_sink_id=session.named_sink_id,
            query_suffix=session.query_suffix, claim_offset=claim_offset, is_of_name=is_of_name,
        )  # fmt: skip

    def __init__(
        self,
        settings: DeliverySettings,
        sink_id: str,
        *,
        code: str | None = None,
        named_sink_id: str = "",
        query_suffix: str = "",
        claim_offset: int | None = None,
        is_of_name: bool = False,
    ) -> None:
        super().__init__(settings)
        self.state: LedgerState | None = None
        # Offset of the last record that is believed although it has no marker; -1: none.
        self.unmarked_offset = -1
        self._sink_id = sink_id
        self._code = code
        self._named_sink_id = named_sink_id
        self._query_suffix = query_suffix
        self._elsewhere: tuple[OtherName, ...] = ()
        self._claim_key = claim_key(Line(sink_id, code or "")).encode()
        # Of all lines of the sink. A release in which a claim was about all of them wrote to the first of these keys.
        self._older_claim_key = claim_key(Line(sink_id)).encode()
        self._older_claim = -1
        self._stop_prefix = stop_key(sink_id, "").encode()
        self._claim_offset = claim_offset
        self._is_of_name = is_of_name
        # A look at open decisions, which fences nobody.
        self._is_planning = is_of_name and code is not None
        self._questions_left = MARKER_QUESTIONS if self.awaits_markers and claim_offset is None else 0

    def ask_first(self, now_ms: int) -> None:
        self._read_from(now_ms, 0)

    def _read_from(self, now_ms: int, next_offset: int | None) -> None:
        """`next_offset` None: at the start of the log, which is requested first."""
        self._next_offset = next_offset
        # As told by the newest answer, with the high watermark.
        self._last_stable_offset = self._high_watermark = -1
        # All markers of transactions that have ended below the first one are looked for; for the second one, they were.
        self._sought_offset = self._ended_offset = -1
        self._stop_offset = None if self._claim_offset is None else self._claim_offset + 1
        # By producer id and epoch: ledger key and content of the records that wait for their marker.
        self._waiting: dict[tuple[int, int], list[tuple[str, Found]]] = {}
        # Of all records that waited. The markers of other producers say nothing about a record that is read.
        self._producer_ids: set[int] = set()
        # Of all sinks, without markers: what a start has to read.
        self.batch_count = 0
        # By ledger key: the newest record so far.
        self._newest: dict[str, Found] = {}
        # The same without records that have ended without a marker, and the offsets of those.
        self._marked: dict[str, Found] = {}
        self._without_marker: set[int] = set()
        # By ledger key: the highest record of an earlier batch than the newest one.
        self._copied: dict[str, Found] = {}
        # By ledger key: later records without a marker, if this read has no claim.
        self._unbelieved: dict[str, list[Found]] = {}
        self._key_counts = Counter[str]()
        self._has_too_many = False
        self._claims: dict[str, int] = {}
        self._stopped: set[str] = set()
        ledger = self.settings.ledger
        if self._stop_offset is None:
            self.asks.add(now_ms, offset_ask(LOG_STOP, ledger, LATEST))
        if next_offset is None:
            self.asks.add(now_ms, offset_ask(LOG_START, ledger, EARLIEST))
        else:
            # An empty ledger is fetched as well: ListOffsets needs Describe, only Fetch finds out that Read is missing.
            # Without a claim the ledger may be empty, and the broker would wait in vain for records.
            wait_ms = 0 if self._stop_offset is None else FETCH_WAIT_MS
            self.asks.add(now_ms, fetch_ask(READ, ledger, next_offset, wait_ms))

    def on_body(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        if ask.purpose == READ:
            self._on_fetched(now_ms, ask, body)
            return
        error_code, offset = read_offset_answer(body)
        if self.refuse_or_repeat(now_ms, ask, error_code):
            return
        self.asks.drop(ask)
        if ask.purpose == LOG_START:
            self._next_offset = offset
        else:
            # Never less than was told before: this answer may be from an outdated leader.
            self._stop_offset = max(offset, self._sought_offset, self._high_watermark)
        self._read_on(now_ms)

    def _on_fetched(self, now_ms: int, ask: Ask, body: Mapping[str, Any]) -> None:
        answer = read_fetch_answer(body)
        if driver_outcome(FETCH, answer.error_code) is DriverOutcome.OUT_OF_RANGE:
            # Records at the start were deleted, before or during this read.
            self.asks.drop_all()
            self._read_from(now_ms, None)
            return
        if self.refuse_or_repeat(now_ms, ask, answer.error_code):
            return
        assert self._next_offset is not None
        before = self._next_offset
        self._take_all(answer.records, before)
        if self._has_too_many:
            text = f"more than {KEYS_READ_MAX} records of sink {self._sink_id}. Choose another sink.id for what is new"
            raise RemoteProtocolError(self._about_ledger(text))
        if self._stop_offset is not None and self._next_offset == before < self._stop_offset:
            if answer.records:
                raise self._damaged_error(f"there is no whole batch at offset {before}")
            # There are more records: a broker that returns none is no longer the leader. Or it is not Apache Kafka, and
            # has something at these offsets that clients do not get.
            unshown = f"its leader shows nothing from offset {before} on, and has told an end of {self._stop_offset}"
            self.last_trouble = self._about_ledger(unshown)
            self.asks.repeat(now_ms, ask, find_again=True)
            return
        self.asks.drop(ask)
        self._last_stable_offset, self._high_watermark = answer.last_stable_offset, answer.high_watermark
        self._read_on(now_ms)

    def _take_all(self, records: bytes, offset: int) -> None:
        try:
            for batch in raw_batches(records):
                self._take(batch)
                offset = max(offset, batch.next_offset)
        except RemoteProtocolError as error:
            if error.entry is LEDGER_UNREADABLE:
                raise
            raise self._damaged_error(f"the batch at offset {offset} is damaged: {error}") from None

    def _damaged_error(self, what: str) -> RemoteProtocolError:
        return RemoteProtocolError(self._about_ledger(f"{what}. {OTHER_REPLICA}"), LEDGER_DAMAGED)

    def _take(self, raw: RawBatch) -> None:
        assert self._next_offset is not None
        if raw.next_offset <= self._next_offset:
            return
        self._next_offset = raw.next_offset
        self.batch_count += not raw.is_control
        if raw.is_control and self._is_of_others(raw):
            raw.check()
        elif raw.is_control:
            marker = raw.decode_marker()
            if marker.is_commit_marker or marker.is_abort_marker:
                ended = self._waiting.pop(self._transaction_ended_by(raw, is_abort=marker.is_abort_marker), [])
                for ledger_key, found in ended if marker.is_commit_marker else []:
                    self._keep(ledger_key, found)
        elif raw.is_transactional:
            for offset, key, content in self._skim(raw, self._is_of_decision):
                self._producer_ids.add(raw.producer_id)
                waiting = self._waiting.setdefault((raw.producer_id, raw.producer_epoch), [])
                value = ERASED if content is None else content
                waiting.append((decode_key(key), Found(offset, value, raw.producer_id)))
        else:
            for offset, key, content in self._skim(raw, self._is_of_decision_or_line):
                if (key or b"").startswith(self._stop_prefix):
                    self._take_stop(key or b"", content)
                elif not self._is_claim(key):
                    self._keep(decode_key(key), Found(offset, beginning_of_plain(content), NO_PRODUCER))
                elif content is not None:
                    self._take_claim(offset, key or b"", content)

    def _is_of_others(self, marker: RawBatch) -> bool:
        """Most are in a shared ledger. Their checksums are compared, and what is in them is not decoded."""
        return marker.producer_id not in self._producer_ids

    def _skim(self, raw: RawBatch, is_wanted: Callable[[bytes | None], bool]) -> Iterator[Skimmed]:
        """What is under foreign keys is passed over, whatever it is. Of a record that is too large, one byte over the
        limit is enough for it to be rejected if it is the newest of its key."""
        return skim_batch(raw.content, is_wanted, value_bytes_max=VALUE_BYTES_MAX + 1)

    def _is_claim(self, key: bytes | None) -> bool:
        return (key or b"").startswith(self._older_claim_key)

    def _is_of_decision(self, key: bytes | None) -> bool:
        ledger_key = decode_key(key)
        return self._is_own(ledger_key) or self._is_elsewhere(ledger_key)

    def _is_of_decision_or_line(self, key: bytes | None) -> bool:
        return self._is_claim(key) or (key or b"").startswith(self._stop_prefix) or self._is_of_decision(key)

    def _take_stop(self, key: bytes, value: bytes | None) -> None:
        if value is not None:
            self._stopped.add(decode_key(key).rpartition("/")[2])

    def _transaction_ended_by(self, marker: RawBatch, *, is_abort: bool) -> tuple[int, int]:
        """A marker has the epoch of its transaction, or the next one (a fence, a time-out, version 2 always). It does
        not end an older transaction of the same producer id whose own marker was lost. Where a fence may raise the
        epoch twice, no marker is lost (KAFKA-20734 came later), so an older one is the one that was fenced."""
        leads = range(1 + (self.settings.fence_raises_max if is_abort else 1))
        possible = [(marker.producer_id, marker.producer_epoch - lead) for lead in leads]
        return next((one for one in possible if one in self._waiting), possible[0])

    def _take_claim(self, offset: int, key: bytes, value: bytes) -> None:
        # An unreadable claim gives no run; it never stops a driver.
        with suppress(RemoteProtocolError):
            found = decode_claim(value)
            if self._code and found.code is None and key == self._older_claim_key:
                self._older_claim = offset
            if self._is_own_claim(key, found.code):
                self._claims.setdefault(found.run, offset)

    def _is_own_claim(self, key: bytes, code: str | None) -> bool:
        """What the driver of a labelled write claims under the key of its sink is said to drivers of 0.2.0, and is not
        about this line."""
        if self._code is None:
            return key == self._older_claim_key or key.startswith(self._older_claim_key + b"/")
        return key == self._claim_key and code in (None, self._code)

    def _is_own(self, ledger_key: str) -> bool:
        sink_id = ledger_key.partition("/")[0]
        if self._is_planning and is_nameless(ledger_key):
            return True
        if not self._sink_id:  # a write without a label is planned, and its sink has no id yet
            return False
        if self._is_of_name:
            return belongs_to(sink_id, self._sink_id)
        return sink_id == self._sink_id or (ledger_key != "" and ledger_key == self._named_sink_id)

    def _is_of_line(self, ledger_key: str) -> bool:
        """The other keys of the sink are only counted: what they say may be about a driver that is alive."""
        if self._code is None:
            return True
        if self._is_planning and is_nameless(ledger_key):
            return False
        sink_id, code = line_of_key(ledger_key, self.settings.ledger_topic)
        return self._code == code and (not code or sink_id == self._sink_id)

    def _is_elsewhere(self, ledger_key: str) -> bool:
        """Of this query, under another name."""
        suffix = self._query_suffix
        return suffix != "" and ledger_key.endswith(suffix) and "/" not in ledger_key and not self._is_own(ledger_key)

    def _keep(self, ledger_key: str, found: Found) -> None:
        if ledger_key not in self._newest:
            sink_id = ledger_key.partition("/")[0]
            self._key_counts[sink_id] += 1
            self._has_too_many |= self.limits_keys and self._key_counts[sink_id] > KEYS_READ_MAX
        known = self._newest.get(ledger_key)
        if known is None:
            self._newest[ledger_key] = found
            return
        lower, upper = sorted((known, found), key=lambda one: one.offset)
        is_copy = is_of_earlier_batch(ledger_key, upper, lower)
        self._newest[ledger_key] = lower if is_copy else upper
        if is_copy:
            self._copied[ledger_key] = upper

    def _read_on(self, now_ms: int) -> None:
        if self._next_offset is None or self._stop_offset is None or self.asks.find(READ) is not None:
            return
        ledger = self.settings.ledger
        if self._next_offset < self._stop_offset:
            self.asks.add(now_ms, fetch_ask(READ, ledger, self._next_offset))
            return
        self._ended_offset = max(self._ended_offset, self._sought_offset)
        if self._may_have_unread_marker():
            self._sought_offset = self._last_stable_offset
            self._stop_offset = None
            self.asks.add(now_ms, offset_ask(LOG_STOP, ledger, LATEST))
        elif self._questions_left and self._is_marker_missing():
            self._questions_left -= 1
            self.asks.add(now_ms, fetch_ask(READ, ledger, self._next_offset, MARKER_WAIT_MS))
        else:
            self._conclude()

    def _may_have_unread_marker(self) -> bool:
        """A transaction has ended, and its marker may be above what has been read."""
        return any(self._ended_offset <= offset < self._last_stable_offset for offset in self._offsets_waiting())

    def _offsets_waiting(self) -> Iterator[int]:
        return (found.offset for waiting in self._waiting.values() for _, found in waiting)

    def _is_marker_missing(self) -> bool:
        return any(offset >= self._last_stable_offset for offset in self._offsets_waiting())

    def _conclude(self) -> None:
        waiting = [each for listed in self._waiting.values() for each in listed]
        self._marked = dict(self._newest)
        for ledger_key, found in waiting:
            if found.offset < self._ended_offset:
                self._without_marker.add(found.offset)
                self._keep(ledger_key, found)
        unmarked: dict[str, list[Found]] = {}
        later = unmarked if self._claim_offset is not None else self._unbelieved
        for ledger_key, found in waiting:
            if found.offset >= self._ended_offset and self._is_later(ledger_key, found):
                later.setdefault(ledger_key, []).append(found)
        self._closed = frozenset(key for key, one in self._newest.items() if one.value == ERASED and is_nameless(key))
        newest = {key: one for key, one in self._newest.items() if one.value != ERASED}
        self._elsewhere = self._take_other_names(newest, unmarked)
        self._on_newest(newest, unmarked)

    def _is_later(self, ledger_key: str, found: Found) -> bool:
        known = self._newest.get(ledger_key)
        if known is None:
            return True
        return found.offset > known.offset and not is_of_earlier_batch(ledger_key, found, known)

    def _take_other_names(self, found: dict[str, Found], unmarked: dict[str, list[Found]]) -> tuple[OtherName, ...]:
        """Decisions of the query under another name only have to be known, in whichever state they are."""
        own_offset = max(
            (found[key].offset for key in (self._sink_id, self._named_sink_id) if key in found), default=-1
        )
        names = []
        for key in {key for key in (*found, *unmarked, *self._unbelieved) if self._is_elsewhere(key)}:
            records = [found.pop(key)] if key in found else []
            records += [open_one for listed in (unmarked, self._unbelieved) for open_one in listed.pop(key, ())]
            offset, latest = max(one.offset for one in records), self._latest_of(key, records)
            name, batch = key.removesuffix(self._query_suffix), None if latest is None else latest.key
            other = OtherName(name, batch, offset > own_offset, frozenset(latest.topics if latest else ()))
            names.append((number_of(batch), offset, other))
        return tuple(other for *_, other in sorted(names, key=lambda name: name[:2], reverse=True))

    def _latest_of(self, key: str, records: Sequence[Found]) -> LedgerRecord | None:
        with suppress(RemoteProtocolError):
            decoded = [decode_found(key, one, self.settings.cluster_id) for one in records]
            return max(decoded, key=lambda record: number_of(record.key))
        return None

    def _on_newest(self, found: Newest, unmarked: Unmarked) -> None:
        """Only the newest record of a key is decoded: earlier ones, perhaps of an older release, do not matter."""
        others = self._split_by_cluster(self._open_elsewhere(found)) if self._is_planning else ()
        key_count = sum(key.partition("/")[0] == self._sink_id for key in found)
        chunks = tuple(self._chunks_of_line(found)) if self._code else ()
        found = {key: newest for key, newest in found.items() if self._is_of_line(key)}
        unmarked = {key: listed for key, listed in unmarked.items() if self._is_of_line(key)}
        ended = self._ended_keys() if self._is_of_name else ()
        newest = {key: self._decode(key, one) for key, one in found.items() if key not in ended}
        settled = dict(newest)
        doubtful = self._doubt_ended(found, newest, settled)
        doubtful |= self._believe_unmarked(unmarked, newest, settled)
        self._note_copies(newest)
        older_key = self._older_key(newest)
        if older_key is None:
            newest.pop(self._named_sink_id, None)
        older_sink_id, older_offset = self._older_driver(older_key)
        self.state = LedgerState(
            self._sink_id,
            newest,
            claims=self._claims,
            stopped=frozenset(self._stopped),
            older_key=older_key,
            older_sink_id=older_sink_id,
            older_offset=older_offset,
            key_count=key_count,
            closed=self._closed,
            others=others,
            unmarked=frozenset(doubtful & newest.keys()),
            settled=settled,
            elsewhere=self._elsewhere,
            chunks=chunks,
        )

    def _note_copies(self, newest: Mapping[str, LedgerRecord]) -> None:
        """As long as there is nothing newer of the stream above them."""
        for key, copied in sorted(self._copied.items()):
            if key in newest and copied.offset > self._newest[key].offset:
                record = decode_record(copied.value)
                self._notes.append(messages.copied_late_text(self.settings.ledger_topic, newest[key], record))

    def _doubt_ended(
        self, found: Newest, newest: Mapping[str, LedgerRecord], settled: dict[str, LedgerRecord]
    ) -> set[str]:
        """The keys whose record has ended without a marker and is an intent. Out of `settled` it is taken."""
        doubtful = {
            key for key, record in newest.items()
            if found[key].offset in self._without_marker and record.kind is Kind.INTENT
        }  # fmt: skip
        for key in doubtful:
            del settled[key]
            if key in self._marked and self._marked[key].value != ERASED:
                settled[key] = self._decode(key, self._marked[key])
        return doubtful

    def _believe_unmarked(
        self, unmarked: Unmarked, newest: dict[str, LedgerRecord], settled: dict[str, LedgerRecord]
    ) -> set[str]:
        """Takes the records without a marker over into `newest`, and those that tell an end into `settled`. Returns the
        keys whose newest record is an intent that may have been decided."""
        doubtful: set[str] = set()
        for key, listed in unmarked.items():
            for offset, record in self._decode_believed(key, listed):
                if key not in doubtful:
                    newest[key] = record
                self.unmarked_offset = max(self.unmarked_offset, offset)
                if record.kind is not Kind.INTENT:
                    settled[key] = record
                    break
                doubtful.add(key)
        return doubtful

    def _chunks_of_line(self, found: Newest) -> Iterator[str]:
        """Each chunk is a line of its own. But the whole must not be written beside them."""
        for key in sorted(found):
            sink_id, _, label = key.partition("/")
            division = division_of(label) if sink_id == self._sink_id else None
            if division is not None and self._code == code_of_label(division.batch_id, self.settings.ledger_topic):
                yield label

    def _open_elsewhere(self, found: Newest) -> Iterator[LedgerRecord]:
        """Open decisions of batch writes without a label. One that cannot be read stops no other write, and one that
        may be undecided is left to its own driver."""
        ended = self._ended_keys()
        for key, one in sorted(found.items()):
            if is_nameless(key) and key not in ended and one.offset not in self._without_marker:
                with suppress(RemoteProtocolError):
                    record = self._decode(key, one)
                    if record.kind is Kind.INTENT:
                        yield record

    def _split_by_cluster(self, records: Iterable[LedgerRecord]) -> tuple[LedgerRecord, ...]:
        """Those of this cluster. Nobody can finish the others here, at no start."""
        here: list[LedgerRecord] = []
        elsewhere: list[LedgerRecord] = []
        for record in records:
            (elsewhere if record.is_of_another_cluster(self.settings.cluster_id) else here).append(record)
        if elsewhere:
            self._notes.append(messages.open_elsewhere_text(self.settings.ledger_topic, elsewhere))
        return tuple(here)

    def _ended_keys(self) -> Collection[str]:
        """For a look at open decisions that fences nobody. A done record without a marker may still be aborted, but it
        was written when all transactions of its decision had been committed: nothing is left to be finished. They must
        not be looked at again, as their markers may have been lost (KAFKA-20734). The next commit reads with a claim.
        """
        ended = []
        for key, unbelieved in self._unbelieved.items():
            # One that cannot be read says nothing: it may never be committed, and the commit will tell.
            if is_nameless(key) and any(one.value == ERASED for one in unbelieved):
                ended.append(key)
                continue
            with suppress(RemoteProtocolError):
                if any(record.kind is Kind.DONE for _, record in self._decode_believed(key, unbelieved)):
                    ended.append(key)
        return ended

    def _older_key(self, newest: Mapping[str, LedgerRecord]) -> str | None:
        """The key that this stream had in 0.1.0, as long as there is no newer record of the stream."""
        older = newest.get(self._named_sink_id)
        is_known = older is not None and self._sink_id not in newest and is_of_stream(older, self._sink_id)
        return self._named_sink_id if is_known else None

    def _older_driver(self, older_key: str | None) -> tuple[str, int]:
        """The sink id whose driver of an earlier release could decide here, and how late there was a sign of it."""
        if older_key is not None:
            return self._named_sink_id, 0
        return (self._sink_id, self._older_claim) if self._older_claim >= 0 else ("", -1)

    def _decode_believed(self, key: str, unmarked: Sequence[Found]) -> Iterator[tuple[int, LedgerRecord]]:
        """Newest first."""
        for found in sorted(unmarked, reverse=True):
            record = None if found.value == ERASED else self._decode(key, found)
            if record is not None and record.kind is not Kind.REPLAY and not record.is_accepted:
                yield found.offset, record

    def _decode(self, key: str, found: Found) -> LedgerRecord:
        try:
            return decode_found(key, found, self.settings.cluster_id)
        except RemoteProtocolError as error:
            text = self._about_ledger(f"{error} (offset {found.offset})")
            raise RemoteProtocolError(text, LEDGER_UNREADABLE) from None

    def error_text(self, ask: Ask, error_code: int) -> str:
        return self._about_ledger(describe_answer(ask.api.name, error_code))

    def _about_ledger(self, text: str) -> str:
        return f"{self.settings.ledger_title}: {text}"
