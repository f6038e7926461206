"""Ledger records: the meaning of the newest one, what fits into a megabyte, and that arbitrary bytes do no harm."""

import tracemalloc
import zlib
from dataclasses import replace

import pytest

from kafka_sink.commit import ledger_codec
from kafka_sink.commit.command_texts import CommandTexts
from kafka_sink.commit.identity import TaskIdentity, label_of
from kafka_sink.commit.ledger import (
    Kind,
    LedgerRecord,
    LedgerState,
    TransactionEntry,
    TransactionOutcome,
    batch_at_hand,
    is_decided,
    is_replaced,
    ledger_key,
    successor_runs,
    transaction_entry_of,
)
from kafka_sink.commit.ledger_codec import (
    ENTRIES_MAX,
    FORMAT,
    JSON_BYTES_MAX,
    TOPICS_MAX,
    VALUE_BYTES_MAX,
    Unrecordable,
    decode_record,
    encode_record,
)
from kafka_sink.commit.manifest import Manifest
from kafka_sink.commit.messages import lost_error
from kafka_sink.commit.next_step import NextStep, first_step, next_step
from kafka_sink.commit.phase import Phase
from kafka_sink.commit.receipt import (
    BatchKey,
    PreparedTransaction,
    TaskReceipt,
    WrittenPartition,
    summarize_receipts,
)
from kafka_sink.commit.session import (
    Conclusion,
    DeliverySettings,
    DriverOperation,
    DriverSession,
    Job,
)
from kafka_sink.errors import LocalProtocolError, RemoteProtocolError
from kafka_sink.errors.table.commits import CHECKPOINT_SET_BACK, ROWS_LOST, SINK_UNKNOWN, TAKEN_OVER
from kafka_sink.errors.table.entry import ErrorEntry
from kafka_sink.kafka.client.producer_identity import ProducerIdentity

RUN, OLD_RUN = "b" * 16, "a" * 16
ENTRY = TransactionEntry(0, 0, 4711, 3, 2, "t", 5, 1_000, 10)
TOO_MANY = tuple(WrittenPartition("t", n, 1, n, n) for n in range(ENTRIES_MAX + 1))
LONG_MANIFEST = Manifest("m", 0, "s", written=TOO_MANY)
LONG_LETTERS = Manifest("m", 0, "s", dead_letters=TOO_MANY)


def record(kind: Kind, batch: int | str = 5, query: str = "q", run: str = OLD_RUN, **more: object) -> LedgerRecord:
    has_entries = kind in (Kind.INTENT, Kind.STUCK)
    made = LedgerRecord(
        kind=kind,
        sink_id="sink",
        key=BatchKey(query, batch),
        run=run,
        row_count=10,
        topics={"t": 10},
        entries=(ENTRY,) if has_entries else (),
        outcomes=(TransactionOutcome.LOST,) if kind is Kind.STUCK else (),
    )
    return replace(made, **more)  # type: ignore[arg-type]


def state(*records: LedgerRecord) -> LedgerState:
    return LedgerState("sink", {ledger_key("sink", one.key): one for one in records})


def judge(ledger: LedgerState, key: BatchKey, *, accept_unknown_sink: bool = False) -> NextStep:
    """The next step of a commit that has fenced all others."""
    session = DriverSession("sink", RUN, identity=ProducerIdentity(1, 1), ledger=ledger)
    prepared = PreparedTransaction(TaskIdentity("sink", RUN, 0, 0).transactional_id, 1, 1, 2)
    receipt = TaskReceipt(key, RUN, 0, 0, prepared, written=(WrittenPartition("t", 0, 10, 0, 9),), row_count=10)
    batch = batch_at_hand("sink", key, RUN, summarize_receipts([receipt]))
    settings = DeliverySettings(accept_unknown_sink=accept_unknown_sink)
    return next_step(Job(DriverOperation.COMMIT, key, [receipt]), session, settings, ledger, batch, is_remembered=False)


@pytest.mark.parametrize("operation", DriverOperation)
def test_to_ask_what_comes_first_changes_nothing_that_the_process_remembers(operation: DriverOperation) -> None:
    session = DriverSession("sink", RUN, identity=ProducerIdentity(1, 1), ledger=state(record(Kind.DONE, 4)))
    before = replace(session)
    first = first_step(Job(operation, BatchKey("q", 5)), session)
    assert session == before
    assert (first is not None and first.forgets) == (operation is DriverOperation.ABORT)


@pytest.mark.parametrize(
    ("newest", "wanted"),
    [
        (record(Kind.DONE, 4), Phase.CHECKING),
        (record(Kind.DONE, 5), Conclusion.ALREADY_DELIVERED),
        (record(Kind.DONE, 5, run=RUN), Conclusion.ALREADY_DELIVERED),
        (record(Kind.DONE, 6), CHECKPOINT_SET_BACK),
        (record(Kind.DONE, 9, query="another"), Phase.CHECKING),
        (record(Kind.INTENT, 4), Phase.FINISHING),
        (record(Kind.INTENT, 5), Phase.FINISHING),
        (record(Kind.INTENT, 6), CHECKPOINT_SET_BACK),
        (record(Kind.INTENT, 9, query="another"), Phase.FINISHING),
        (record(Kind.STUCK, 4), ROWS_LOST),
        (record(Kind.STUCK, 5), ROWS_LOST),
        (record(Kind.STUCK, 9, query="another"), ROWS_LOST),
        (record(Kind.REPLAY, 5), Phase.CHECKING),
        (record(Kind.REPLAY, 6), CHECKPOINT_SET_BACK),
        (record(Kind.DONE, 4, runs=(RUN,)), TAKEN_OVER),
        (record(Kind.DONE, 5, runs=(RUN,)), Conclusion.ALREADY_DELIVERED),
    ],
    ids=lambda value: f"{value.kind.value} {value.key}" if isinstance(value, LedgerRecord) else None,
)
def test_the_newest_record_says_what_to_do_with_batch_five(
    newest: LedgerRecord, wanted: Phase | Conclusion | ErrorEntry
) -> None:
    found = judge(state(newest), BatchKey("q", 5))
    assert wanted in (found.phase, found.conclusion, found.error and found.error.entry)
    assert found.record is newest or found.phase is not Phase.FINISHING


def test_an_empty_ledger_is_a_beginning_only_for_batch_zero_and_for_labels() -> None:
    assert judge(state(), BatchKey("q", 0)).phase is Phase.CHECKING
    assert judge(state(), BatchKey("", "monday")).phase is Phase.CHECKING
    unknown = judge(state(), BatchKey("q", 1)).error
    assert unknown is not None and unknown.entry is SINK_UNKNOWN
    assert judge(state(), BatchKey("q", 1), accept_unknown_sink=True).phase is Phase.CHECKING


def test_an_open_decision_of_another_label_is_finished_first_and_a_lost_one_is_not_in_the_way() -> None:
    key = BatchKey("", "tuesday")
    assert judge(state(record(Kind.INTENT, "monday", "")), key).phase is Phase.FINISHING
    assert judge(state(record(Kind.STUCK, "monday", "")), key).phase is Phase.CHECKING


def test_transactions_may_be_aborted_only_where_no_decision_can_name_them() -> None:
    key = BatchKey("q", 5)
    assert not is_decided(state(), key, RUN)
    assert not is_decided(state(record(Kind.DONE, 4, run=RUN)), key, RUN)
    assert not is_decided(state(record(Kind.INTENT, 5, run=OLD_RUN)), key, RUN)
    for kind in (Kind.INTENT, Kind.DONE, Kind.STUCK):
        assert is_decided(state(record(kind, 5, run=RUN)), key, RUN)
    assert not is_decided(state(record(Kind.REPLAY, 5, run=RUN)), key, RUN)


def test_what_a_replaced_run_has_open_is_part_of_no_decision() -> None:
    successors = state(record(Kind.INTENT, 6, runs=(RUN,)))
    assert is_replaced(successors, BatchKey("q", 5), RUN) and not is_decided(successors, BatchKey("q", 5), RUN)
    assert not is_replaced(successors, BatchKey("q", 5), "9" * 16) and not is_replaced(state(), BatchKey("q", 5), RUN)


def test_the_list_of_runs_grows_by_each_new_run_and_is_bounded() -> None:
    newest = record(Kind.DONE, 0, run="0" * 16)
    assert successor_runs(newest, "0" * 16) == ()
    for number in range(1, 100):
        run = f"{number:016x}"
        newest = replace(newest, runs=successor_runs(newest, run), run=run)
    assert len(newest.runs) == 32 and newest.runs[-1] == f"{98:016x}"


def test_ten_thousand_transactions_fit_into_a_megabyte_whatever_their_numbers_are() -> None:
    entries = tuple(
        TransactionEntry(
            spark_partition=number,
            attempt=number % 4,
            producer_id=(number * 2_654_435_761) % 10**9,
            producer_epoch=(number * 40_503) % 32_767,
            transaction_version=2,
            topic=f"a-topic-with-a-rather-long-name-{number % 50}",
            partition=(number * 97) % 1_000,
            last_offset=(number * 11_400_714_819_323_198_485) % 10**15,
            row_count=(number * 7_919) % 10**7,
        )
        for number in range(10_000)
    )
    intent = record(Kind.INTENT, entries=entries)
    value = encode_record(intent)
    assert len(value) < 500_000
    assert decode_record(value) == intent


def receipt_of(transactional_id: str, spark_partition: int) -> TaskReceipt:
    return TaskReceipt(
        BatchKey("q", 5),
        RUN,
        spark_partition,
        900,
        transaction=PreparedTransaction(transactional_id, 4711, 3, 2),
        timeout_ms=60_000,
        remaining_ms=50_000,
        written=(WrittenPartition("t", 0, 1, 0, 0),),
        row_count=1,
    )


def test_an_entry_has_the_numbers_of_its_id_and_names_the_task_that_wrote_it() -> None:
    used = TaskIdentity("sink", RUN, 3, 41)
    entry = transaction_entry_of("sink", RUN, receipt_of(used.transactional_id, spark_partition=1))
    intent = record(Kind.INTENT, run=RUN, entries=(entry,))
    read = decode_record(encode_record(intent))
    assert read == intent and read.transactional_id(read.entries[0]) == used.transactional_id
    assert read.entries[0].spark_task == 1
    assert "Spark partition 1 (1 rows" in str(lost_error(CommandTexts(), read, [TransactionOutcome.LOST]))


def test_a_record_of_the_release_before_names_the_tasks_by_their_ids() -> None:
    """Such records have no column for the task; newer ones omit it too if each id belongs to its own task."""
    value = encode_record(record(Kind.INTENT))
    assert b"task_partition" not in value
    assert [entry.spark_task for entry in decode_record(value).entries] == [0]


@pytest.mark.parametrize("name", ["sink-driver", f"other-{RUN}-0-0", f"sink-{OLD_RUN}-0-0", f"sink-{RUN}-0-00"])
def test_what_is_no_task_id_of_this_sink_and_run_cannot_be_recorded(name: str) -> None:
    with pytest.raises(LocalProtocolError, match=f"of run '{RUN}' of sink 'sink'"):
        transaction_entry_of("sink", RUN, receipt_of(name, 0))


def test_a_small_record_can_be_read_by_a_person() -> None:
    value = encode_record(record(Kind.DONE))
    assert value.startswith(b'pykafka-sink-ledger 1 json\n{"kind":"done","sink":"sink","query":"q","batch":5,')


OF_THE_RELEASE_BEFORE = (
    b'pykafka-sink-ledger 1 json\n{"kind":"done","sink":"sink","query":"q","batch":5,"run":"aaaaaaaaaaaaaaaa",'
    b'"runs":[],"since_ms":-1,"wall_ms":0,"rows":10,"topics":{"t":10}}'
)


def test_a_record_without_a_name_is_read_and_written_as_ever() -> None:
    assert decode_record(OF_THE_RELEASE_BEFORE) == record(Kind.DONE)
    assert encode_record(record(Kind.DONE)) == OF_THE_RELEASE_BEFORE


@pytest.mark.parametrize("found", ["7", "[]", '"' + "x" * 1_001 + '"', r'"half of a pair: \ud800"'])
def test_a_name_that_is_none_stops_nobody(found: str) -> None:
    value = OF_THE_RELEASE_BEFORE[:-1] + f',"name":{found}}}'.encode()
    assert decode_record(value) == record(Kind.DONE)


@pytest.mark.parametrize(
    ("name", "location", "label"),
    [
        ("orders", "/checkpoints/a", "orders"),
        (None, "/checkpoints/a", "/checkpoints/a"),
        (None, "s3a://key:secret@bucket/checkpoints/a", "s3a://bucket/checkpoints/a"),
        (None, "/" + "x" * 200, "..." + "x" * 117),
        ("a\nb\udcff", None, "a?b?"),
        (None, None, ""),
    ],
)
def test_a_sink_is_called_by_its_query_or_by_its_checkpoint(name: str | None, location: str | None, label: str) -> None:
    assert label_of(name, location) == label
    assert decode_record(encode_record(record(Kind.DONE, label=label))).label == label


def refused(value: bytes, words: str) -> None:
    with pytest.raises(RemoteProtocolError, match=words):
        decode_record(value)


def test_what_is_no_record_of_this_version_is_refused_by_what_is_wrong() -> None:
    good = encode_record(record(Kind.INTENT))
    check_refusals = [
        (good.replace(b" 1 json", b" 2 json"), "version '2'; this release reads version 1"),
        (good.replace(b" 1 json", b" 1 lz99"), "unknown encoding"),
        (b"hello", "something else write"),
        (b"", "something else write"),
        (good[:-1], "not JSON"),
        (good.replace(b'"intent"', b'"marvel"'), "unknown kind"),
        (good.replace(b'"intent"', b'"done"'), "fields of another kind"),
        (good.replace(b'"query":"', b'"query":"\\udc00'), "'query' is not Unicode"),
        (good.replace(b'"topics":["', b'"topics":["\\ud800'), "'topics' is not Unicode"),
        (good.replace(b'"rows":10,', b'"rows":-1,'), "no number from 0"),
        (good.replace(b'"rows":10,', b'"rows":true,'), "no number"),
        (good.replace(b'"rows":10,', b'"rows":1e3,'), "no number"),
        (good.replace(b'"producer_id":[4711]', b'"producer_id":[4711,1]'), "different lengths"),
        (good.replace(b'"generation":[2]', b'"generation":[0]'), "of version 0"),
        (good.replace(b'"topic":[0]', b'"topic":[1]'), "no number from 0 to 0"),
        (f"{FORMAT} 1 json\n".encode() + b"[" * 9_000, "not JSON"),
        (f"{FORMAT} 1 json\n".encode() + b"[" * 100_000, "more items than one has"),
        (f"{FORMAT} 1 json\n[]".encode(), "not an object"),
        (b"x" * (VALUE_BYTES_MAX + 1), "at most"),
    ]
    for value, words in check_refusals:
        refused(value, words)


def test_a_bomb_is_defused_at_the_limit() -> None:
    bomb = zlib.compress(b" " * (JSON_BYTES_MAX + 1), 9)
    refused(f"{FORMAT} 1 zlib\n".encode() + bomb, "larger than")
    refused(f"{FORMAT} 1 zlib\n".encode() + zlib.compress(b"{}")[:-1], "cut off")
    refused(f"{FORMAT} 1 zlib\nrubbish".encode(), "cannot be decompressed")


@pytest.mark.parametrize("item", [b"{},", b"[],", b"0,"])
def test_json_that_would_take_far_more_memory_than_bytes_is_not_parsed(item: bytes) -> None:
    content = b"[" + item * (JSON_BYTES_MAX // len(item) - 10) + b"0]"
    tracemalloc.start()
    try:
        refused(f"{FORMAT} 1 zlib\n".encode() + zlib.compress(content, 1), "more items than one has")
        assert tracemalloc.get_traced_memory()[1] < 4 * JSON_BYTES_MAX
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("unreadable", "field", "advice"),
    [
        (record(Kind.INTENT, "x" * 1_001, ""), "'batch' is no text of at most 1000", "Choose a shorter batch.id"),
        (record(Kind.DONE, "x" * 1_001, ""), "'batch'", "Choose a shorter batch.id"),
        (record(Kind.INTENT, topics={f"t{n}": 1 for n in range(TOPICS_MAX + 1)}), "topics", "fewer topics"),
        (record(Kind.INTENT, entries=(ENTRY,) * (ENTRIES_MAX + 1)), "no list of at most 100000", "fewer tasks"),
        (record(Kind.INTENT, manifest=LONG_MANIFEST), "no list of at most 100000", "fewer partitions"),
        (
            record(Kind.INTENT, manifest=LONG_LETTERS),
            "no list of at most 100000",
            "leave the option manifest.topic out",
        ),
        (record(Kind.INTENT, entries=(replace(ENTRY, last_offset=-1),)), "'last_offset'", "the next run"),
        (record(Kind.INTENT, entries=(replace(ENTRY, attempt=2**63),)), "'attempt'", "Start the query again"),
        (record(Kind.INTENT, entries=(replace(ENTRY, producer_epoch=2**15),)), "'producer_epoch'", "report it"),
        (record(Kind.INTENT, entries=(replace(ENTRY, transaction_version=3),)), "'generation'", "report it"),
        (record(Kind.INTENT, entries=()), "fields of another kind", "report it"),
        (record(Kind.DONE, query="\udc80"), "not Unicode", "report it"),
        (record(Kind.DONE, batch=-1), "'batch' is no number", "batch.id"),
    ],
)
def test_what_could_not_be_read_again_is_not_written_and_says_why(
    unreadable: LedgerRecord, field: str, advice: str
) -> None:
    with pytest.raises(Unrecordable) as caught:
        encode_record(unreadable)
    assert field in str(caught.value) and advice in str(caught.value)


@pytest.mark.parametrize(("bound", "value"), [("VALUE_BYTES_MAX", 1_000), ("JSON_BYTES_MAX", 50_000)])
def test_a_record_that_is_too_large_to_be_read_is_not_written(
    bound: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_codec, bound, value)
    entries = tuple(replace(ENTRY, last_offset=pow(3, n, 2**61 - 1)) for n in range(2_000))
    with pytest.raises(Unrecordable, match="Write with fewer tasks"):
        encode_record(record(Kind.INTENT, entries=entries))


def test_an_attempt_that_took_other_ids_eight_times_can_be_written() -> None:
    last = replace(ENTRY, attempt=8 * 10**9 + 2**31 % 10**9)
    assert decode_record(encode_record(record(Kind.INTENT, entries=(last,)))).entries == (last,)
