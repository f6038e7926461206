"""The parts of the driver's machine: identities, receipts, the phase table, meanings of codes, errors."""

import pickle

import pytest

from kafka_sink.commit.asks import Asks
from kafka_sink.commit.identity import (
    NUMBER_MAX,
    Line,
    TaskIdentity,
    has_letters_of_sink_id,
    name_of_stream,
    parse_task_identity,
    run_hash,
    sink_id_of_checkpoint,
)
from kafka_sink.commit.log_scan import read_append_answer
from kafka_sink.commit.phase import TRANSITIONS, Phase
from kafka_sink.commit.receipt import BatchKey, TaskReceipt, WrittenPartition, known_extents, summarize_receipts
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.errors import CommitAborted, CommitError, CommitLost, CommitPending, ConfigError, RemoteProtocolError
from kafka_sink.kafka.client.ask import AllBrokers, Ask, Repeat, Reply, ReplyKind
from kafka_sink.kafka.client.outcome import DriverOutcome, driver_outcome
from kafka_sink.kafka.wire.apis import END_TXN
from kafka_sink.kafka.wire.codes import CODES
from kafka_sink.options.sink_table import SINK_ID
from kafka_sink.spark.attempt import IDENTITIES_MAX


def reachable(start: Phase, *, without: Phase | None = None) -> set[Phase]:
    found, waiting = set(), [start]
    while waiting:
        for phase in TRANSITIONS[waiting.pop()]:
            if phase is not without and phase not in found:
                found.add(phase)
                waiting.append(phase)
    return found


@pytest.mark.parametrize("phase", [Phase.DECIDING, Phase.COMMITTING, Phase.RECORDING])
def test_no_way_leads_from_a_decision_to_discarding_but_by_looking_again(phase: Phase) -> None:
    assert Phase.DISCARDING not in reachable(phase, without=Phase.READING)


def test_every_phase_is_reachable_and_leads_to_the_end() -> None:
    assert reachable(Phase.START) | {Phase.START} == set(Phase) == set(TRANSITIONS)
    assert all(Phase.ENDED in reachable(phase) for phase in Phase if phase is not Phase.ENDED)


@pytest.mark.parametrize("code", sorted(CODES))
def test_no_code_makes_the_driver_take_a_commit_for_done_but_zero_and_none_for_lost(code: int) -> None:
    found = driver_outcome(END_TXN, code)
    assert (found is DriverOutcome.DONE) == (code == 0)
    assert found is not DriverOutcome.NEVER


def test_requests_beyond_the_limit_wait_for_those_in_flight() -> None:
    asks = Asks(DeliverySettings(parallel_requests=2))
    for number in range(4):
        asks.add(0, Ask(AllBrokers(), END_TXN, {}, "x", number))
    out = asks.take_due(0)
    assert [ask.number for ask in out] == [0, 1] and asks.take_due(0) == []
    assert asks.wake_at_ms() is None
    lost = Reply(out[1], ReplyKind.LOST)
    assert asks.accept(lost) and not asks.accept(lost)
    asks.repeat(0, out[1])
    asks.drop(out[0])
    last = asks.take_due(0)
    assert [ask.number for ask in last] == [2, 3]
    asks.drop_all()
    assert not len(asks) and not asks.is_out(last[0])


def test_a_reply_to_an_ask_that_was_replaced_counts_for_nothing() -> None:
    asks = Asks(DeliverySettings())
    asks.add(0, Ask(AllBrokers(), END_TXN, {}, "x"))
    (older,) = asks.take_due(0)
    asks.add(0, Ask(AllBrokers(), END_TXN, {}, "x"))
    assert not asks.accept(Reply(older, ReplyKind.ANSWERED))
    (younger,) = asks.take_due(0)
    assert not asks.accept(Reply(older, ReplyKind.ANSWERED)) and asks.accept(Reply(younger, ReplyKind.ANSWERED))


@pytest.mark.parametrize("kind", ReplyKind)
def test_what_may_have_arrived_is_repeated_only_if_that_is_harmless(kind: ReplyKind) -> None:
    allowed = {how for how in Repeat if Ask(AllBrokers(), END_TXN, {}, repeat=how).may_repeat(kind)}
    expected = {ReplyKind.NOT_SENT: {Repeat.UNSENT, Repeat.ALWAYS}, ReplyKind.LOST: {Repeat.ALWAYS}}
    assert allowed == expected.get(kind, set())


@pytest.mark.parametrize(
    "location",
    [
        "/a/b",
        "/a//b/",
        "file:/a/b",
        "file:///a/b/",
        " /a/b",
        "FILE:/a/b",
        "/a/./b",
        "/a/c/../b",
        "file:///a/b/.",
        "///a/b",
    ],
)
def test_every_spelling_of_a_checkpoint_names_the_same_sink(location: str) -> None:
    assert sink_id_of_checkpoint(location) == sink_id_of_checkpoint("/a/b")


def test_different_places_are_different_sinks() -> None:
    places = ["/a/b", "/A/b", "/a/b/c", "s3a://one/a/b", "s3a://two/a/b", "hdfs://one/a/b", "/", "a/b", "../a/b"]
    places += ["/a/b#1", "/a/b#2", "/a/b?1", "s3a://one/a/b#eu", "s3a://one/a/b#us", "/a/\tb", "/a/\nb", "/a/b;1"]
    assert len({sink_id_of_checkpoint(place) for place in places}) == len(places)
    assert sink_id_of_checkpoint("S3A://One/a/") == sink_id_of_checkpoint("s3a://one/a")


@pytest.mark.parametrize(
    ("location", "sink_id"),
    [
        ("/checkpoints/orders", "de420d5f0f3d73b3d51478e7347a5b8a"),
        ("checkpoints/orders", "57a8c5d627adcbdb83f504417ab6b8b6"),
        ("s3a://bucket/checkpoints/orders", "2afa494201d68b235a98f872a7552dfc"),
        ("s3a://bucket", "ab7e75ce405fe3c9e1cbba56bd253d85"),
        ("hdfs://nn:8020/user/me/cp", "0075e39ab3f8acc25468e5f594a2a866"),
        ("abfss://C@acc.dfs.core.windows.net/cp", "6f8a35c58f23568f9ad2711296683bfd"),
        ("dbfs:/Volumes/main/cp", "b135fa4b04eb07d7ea5e654086a90b4a"),
        ("/cp/café %20;x=1", "a7eaf1e9f42a0d4b9e295f6531b29ec8"),
    ],
)
def test_a_stream_keeps_the_name_that_an_earlier_release_made_of_its_checkpoint(location: str, sink_id: str) -> None:
    assert sink_id_of_checkpoint(location) == sink_id


@pytest.mark.parametrize("sink_id", ["orders", "a-b-c", "a-driver", "x-0123456789abcdef-0-0"])
def test_a_transactional_id_is_read_back_whatever_the_sink_is_called(sink_id: str) -> None:
    identity = TaskIdentity(SINK_ID.parse("sink.id", sink_id), run_hash("run"), 12, 3)
    assert parse_task_identity(identity.transactional_id) == identity
    assert parse_task_identity(Line("plain").driver_id) is None


def test_further_names_of_an_attempt_differ_and_no_number_of_theirs_is_too_long_to_be_read() -> None:
    """Spark's attempt numbers have 64 bits; previous releases read at most ten digits."""
    identity = TaskIdentity("sink", run_hash("run"), 2**31 - 1, NUMBER_MAX)
    names = []
    for _ in range(IDENTITIES_MAX):
        names.append(identity.transactional_id)
        assert parse_task_identity(names[-1]) == identity
        identity = identity.another()
    assert len(set(names)) == IDENTITIES_MAX
    assert parse_task_identity(f"sink-{'a' * 16}-0-{NUMBER_MAX + 1}") is None


@pytest.mark.parametrize(
    "text",
    ["", "driver", "a-b-0-0", "-0123456789abcdef-0-0", "a-0123456789abcdef-00-0", "a\nb-0123456789abcdef-0-0"],
)
def test_what_is_no_id_of_a_task_is_not_read_as_one(text: str) -> None:
    assert parse_task_identity(text) is None


@pytest.mark.parametrize("sink_id", ["", "a b", "a/b", "é", "a" * 201])
def test_a_sink_id_that_no_acl_could_name_is_refused(sink_id: str) -> None:
    with pytest.raises(ConfigError, match=r"sink\.id"):
        SINK_ID.parse("sink.id", sink_id)


@pytest.mark.parametrize("sink_id", ["", "a b", "a/b", "\u00e9"])
def test_the_same_letters_are_those_of_a_sink_id_in_a_ledger(sink_id: str) -> None:
    assert not has_letters_of_sink_id(sink_id)
    assert has_letters_of_sink_id("a.B_9-")


def test_a_stream_is_named_by_its_option_and_otherwise_by_its_checkpoint() -> None:
    assert name_of_stream("orders", "/checkpoints/orders") == "orders"
    assert name_of_stream(None, "/checkpoints/orders") == sink_id_of_checkpoint("/checkpoints/orders")
    assert name_of_stream(None, None) is None


@pytest.mark.parametrize("location", ["s3://[x", "s3://me:hush@[x", "s3://me:hush@a\u2100/x", "/\udcff"])
def test_a_location_that_is_no_uri_is_refused_without_its_password(location: str) -> None:
    with pytest.raises(ConfigError, match="neither a path nor a URI") as refused:
        sink_id_of_checkpoint(location)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("responses", [[], [{"partition_responses": []}]])
def test_an_answer_that_names_no_partition_is_no_answer_to_an_append(responses: list[object]) -> None:
    with pytest.raises(RemoteProtocolError, match="about 0 partitions"):
        read_append_answer({"responses": responses})


def test_a_batch_is_the_sum_of_its_receipts() -> None:
    key = BatchKey("q", 1)
    two, one, five = (
        WrittenPartition("a", 0, 2, 0, 1),
        WrittenPartition("b", 1, 1, 7, 7),
        WrittenPartition("a", 0, 5, 2, 6),
    )
    receipts = [
        TaskReceipt(key, "r", 0, 0, written=(two, one), row_count=3, bytes=30),
        TaskReceipt(key, "r", 1, 0, written=(five,), row_count=5, bytes=50, record_errors={"null": 2}),
        TaskReceipt(key, "r", 2, 0),
    ]
    summary = summarize_receipts(receipts)
    assert (summary.receipt_count, summary.empty_count, summary.row_count, summary.bytes) == (3, 1, 8, 80)
    counts = {name: (topic.row_count, topic.partition_count) for name, topic in summary.topics.items()}
    assert counts == {"a": (7, 1), "b": (1, 1)}
    assert summary.record_errors == {"null": 2}
    assert pickle.loads(pickle.dumps(receipts)) == receipts


@pytest.mark.parametrize("letters", [(), (WrittenPartition("a", 0, 1, 12, 12),)], ids=["rows", "with letters"])
def test_a_range_of_which_a_part_is_unknown_is_not_told_and_its_known_part_stays_the_witness(
    letters: tuple[WrittenPartition, ...],
) -> None:
    """The commit asks whether its transaction still holds the place of a row that is known."""
    key, b = BatchKey("q", 1), WrittenPartition("b", 0, 1, 4, 4)
    partly = TaskReceipt(
        key, "r", 0, 0, written=(WrittenPartition("a", 0, 8, 10, 14), b), unknown=(("a", 0),), dead_letters=letters
    )
    wholly = TaskReceipt(key, "r", 1, 0, written=(WrittenPartition("a", 1, 2, -1, -1), b))
    known = TaskReceipt(key, "r", 2, 0, written=(WrittenPartition("a", 0, 1, 9, 9), WrittenPartition("a", 1, 1, 3, 3)))
    summary = summarize_receipts([partly, wholly, known])
    assert summary.written == (
        WrittenPartition("a", 0, 9, -1, -1), WrittenPartition("a", 1, 3, -1, -1), WrittenPartition("b", 0, 2, 4, 4),
    )  # fmt: skip
    assert summary.dead_letters == tuple(each.untold for each in letters)
    assert (partly.witness, wholly.witness) == (partly.written[0], b)
    assert known_extents([partly, wholly, known])[:2] == (
        WrittenPartition("a", 0, 9, 9, 14), WrittenPartition("a", 1, 3, 3, 3),
    )  # fmt: skip


@pytest.mark.parametrize("error_type", [CommitAborted, CommitPending, CommitLost])
def test_commit_errors_survive_pickling_with_what_they_are_about(error_type: type[CommitError]) -> None:
    error = error_type("text", sink_id="s", query_id="q", batch_id=7, row_count=3, topics=("t",))
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is error_type and str(copy) == "text" and copy.__dict__ == error.__dict__
