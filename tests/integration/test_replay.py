"""`pykafka-sink replay`: dead letters become their records again, exactly once, wherever the run is killed.

Assumptions that are broken here: a run may die at any request, its last commit may be carried out although it gets no
answer, and another run may begin while one is active.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # stubs do not re-export it

from kafka_sink import Producer
from kafka_sink.commit import log_scan
from kafka_sink.commit.admin.client import Client
from kafka_sink.commit.admin.ledger_topic import LEDGER_PARTITION
from kafka_sink.commit.admin.topic_reader import PartitionReader
from kafka_sink.commit.admin.topics import TopicState, topic_state
from kafka_sink.errors import DataError, OperationTimeout
from kafka_sink.formats.records import headers as encoded_headers
from kafka_sink.kafka.client.cluster import NO_TOPIC_ID
from kafka_sink.kafka.client.nodes import NodeSet
from kafka_sink.operate.cli import replay
from kafka_sink.spark.unsendable import Unsendable
from kafka_sink.testing import EmbeddedBroker, Fault, acl, settings
from kafka_sink.testing.acl import Acl
from tests.support.asking import client_of
from tests.support.commanding import Shell
from tools.foreign_reader import ForeignRecord, end_offsets, read_topic
from tools.kafka_cluster import KafkaCluster
from tools.waiting import wait_until

ROOT = Path(__file__).parents[2]
DEAD, BACK, LEDGER = "orders-dead", "orders", "__pykafka_sink_ledger"
PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
OFFSET_OUT_OF_RANGE, NOT_LEADER, DUPLICATE_SEQUENCE_NUMBER = 1, 6, 46
TIME_MS = 1_700_000_000_000


pytestmark = pytest.mark.embedded_kafka(topics={DEAD: 2, BACK: 3})


def rows(count: int, first: int = 0) -> pa.RecordBatch:
    numbers = range(first, first + count)
    headers = [[{"key": "trace", "value": b"%d" % number}, {"key": "none", "value": None}] for number in numbers]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([b"key-%d" % (number % 7) if number % 5 else None for number in numbers], pa.binary()),
            pa.array([b"\x00\xff%d" % number for number in numbers], pa.binary()),
            pa.array(headers, PAIRS),
            pa.array([TIME_MS + number for number in numbers], pa.int64()),
        ],
        ["key", "value", "headers", "timestamp"],
    )


def letters(
    given: pa.RecordBatch, reason: str | None = None, told: tuple[str, ...] = (), topic: str = BACK
) -> pa.RecordBatch:
    errors = [DataError(f"row {row} is bad", row=row, column=reason) for row in range(given.num_rows)]
    unsendable = Unsendable(given, list(range(given.num_rows)), errors, told)
    place = {"batch.id": "7", "query.id": "q"}
    return unsendable.make_letters(place=place, topic=topic, first_row=0, bytes_max=1_000_000)


def send(servers: str, batch: pa.RecordBatch, *, aborted: bool = False, topic: str = DEAD) -> None:
    with Producer({"bootstrap.servers": servers, "transactional.id": "letters", "linger.ms": 0}) as producer:
        producer.init_transactions()
        for start in range(0, batch.num_rows, 250):
            producer.begin_transaction()
            producer.send_arrow(batch.slice(start, 250), topic)
            if aborted:
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    # They are answered before their markers are written; a replay reads up to the last marker.
    ends = lambda level: end_offsets(servers, topic, level)  # noqa: E731
    wait_until(lambda: ends("read_committed") == ends("read_uncommitted"), "the markers are written")


def words(servers: str, *more: str) -> tuple[str, ...]:
    return ("replay", "--bootstrap-server", servers, "--from", DEAD, "--to", BACK, *more)


def content(record: ForeignRecord) -> tuple[Any, ...]:
    return record.key, record.value, record.headers, record.timestamp_ms


def expected(given: pa.RecordBatch) -> Counter[tuple[Any, ...]]:
    return Counter(
        (
            row["key"],
            row["value"],
            tuple((pair["key"], pair["value"]) for pair in row["headers"]),
            row["timestamp"],
        )
        for row in given.to_pylist()
    )


def back(servers: str) -> Counter[tuple[Any, ...]]:
    return Counter(map(content, read_topic(servers, BACK)))


def test_letters_come_back_byte_for_byte_and_a_second_run_writes_only_what_is_new(
    broker: EmbeddedBroker, shell: Shell
) -> None:
    check_coming_back(broker.bootstrap_servers, shell)


@pytest.mark.embedded_kafka(topics={BACK: 3})
def test_rows_come_back_with_their_own_time_from_a_topic_where_brokers_set_it(
    broker: EmbeddedBroker, shell: Shell
) -> None:
    broker.create_topic(DEAD, 2, {"message.timestamp.type": "LogAppendTime"})
    given = rows(20)
    send(broker.bootstrap_servers, letters(given))
    assert min(record.timestamp_ms for record in read_topic(broker.bootstrap_servers, DEAD)) > TIME_MS + 20
    assert shell(*words(broker.bootstrap_servers, "--yes")).exit_code == 0
    assert back(broker.bootstrap_servers) == expected(given)


def test_letters_come_back_on_apache_kafka(kafka: KafkaCluster, shell: Shell) -> None:
    for name in (DEAD, BACK):
        kafka.create_topic(name, partitions=2)
    check_coming_back(kafka.bootstrap_servers, shell)


def check_coming_back(servers: str, shell: Shell) -> None:
    first, more = rows(600), rows(50, first=1000)
    send(servers, letters(first))
    send(servers, letters(rows(100, first=5000)), aborted=True)
    looked = shell(*words(servers, "--dry-run", "--json"))
    assert (looked.exit_code, looked.content["would_write"], looked.content["reasons"]) == (0, 600, {"too large": 600})
    assert read_topic(servers, BACK) == []
    done = shell(*words(servers, "--yes", "--batch-size", "100"))
    assert done.exit_code == 0 and "600 records written to orders" in done.out
    assert "the letters stay" in done.err
    assert back(servers) == expected(first)

    again = shell(*words(servers, "--yes", "--json"))
    assert (again.exit_code, again.content["written_now"], again.content["written"]) == (0, 0, 600)
    send(servers, letters(more))
    third = shell(*words(servers, "--yes", "--json"))
    assert (third.content["written_now"], third.content["written"]) == (50, 650)
    assert "Earlier runs have written 600" in third.err
    assert back(servers) == expected(first) + expected(more)
    # The ledger also holds the record of the replay, which is not a decision.
    decisions = shell("ledger", "--bootstrap-server", servers, "--json").content["decisions"]
    # Other tests that run at the same time make decisions, too.
    assert not any(BACK in decision["topics"] for decision in decisions)


def test_filters_choose_and_what_cannot_be_written_again_is_counted(broker: EmbeddedBroker, shell: Shell) -> None:
    servers = broker.bootstrap_servers
    send(servers, letters(rows(10)))
    send(servers, letters(rows(20, first=100), "partition"))
    send(servers, letters(rows(5, first=200), told=("value",)))
    send(servers, rows(3, first=300))
    done = shell(*words(servers, "--filter", "reason=no such partition", "--filter", "batch.id=7", "--yes", "--json"))
    assert done.content["written_now"] == 20 and done.content["left_out_now"] == {
        "left out by --filter": 15, "no dead letter of this sink": 3,
    }  # fmt: skip
    assert back(servers) == expected(rows(20, first=100))
    others = shell(*words(servers, "--filter", "reason=too large", "--yes", "--json"))
    assert others.content["written_now"] == 10
    assert others.content["left_out_now"]["kept as JSON, since it did not fit its schema"] == 5
    assert "Another replay of the same letters has written 20 to orders" in others.err
    assert back(servers) == expected(rows(20, first=100)) + expected(rows(10))


def letters_of_partitions(partitions: list[int], column: str | None = None) -> pa.RecordBatch:
    """Of rows that named them, and have one key."""
    count = len(partitions)
    columns = {"key": pa.array([b"7"] * count), "value": pa.array([b"%d" % each for each in partitions])}
    named = pa.RecordBatch.from_pydict({**columns, "partition": pa.array(partitions, pa.int32())})
    return letters(named, column)


def places(servers: str) -> list[tuple[int, bytes | None]]:
    return sorted((record.partition, record.value) for record in read_topic(servers, BACK))


def test_a_row_comes_back_to_the_partition_that_it_named(broker: EmbeddedBroker, shell: Shell) -> None:
    servers = broker.bootstrap_servers
    send(servers, letters_of_partitions([0, 1, 2]))
    assert shell(*words(servers, "--yes")).exit_code == 0
    assert places(servers) == [(0, b"0"), (1, b"1"), (2, b"2")]
    send(servers, letters_of_partitions([3]))
    refused = shell(*words(servers, "--yes"))
    assert refused.exit_code == 4 and "the letter at offset" in refused.err and "partition 3" in refused.err


def test_a_row_whose_partition_was_missing_comes_to_it_or_to_that_of_its_key(
    broker: EmbeddedBroker, shell: Shell
) -> None:
    servers = broker.bootstrap_servers
    send(servers, letters_of_partitions([3, 9], "partition"))
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(BACK, 4)])[BACK].result(30)
    assert shell(*words(servers, "--yes")).exit_code == 0
    with Producer({"bootstrap.servers": servers}) as producer:
        of_key = producer.send(BACK, b"9", b"7").result().partition
    assert places(servers) == sorted([(3, b"3"), (of_key, b"9"), (of_key, b"9")])


@pytest.mark.embedded_kafka(topics={DEAD: 40, BACK: 3})
def test_what_is_asked_does_not_grow_with_partitions_and_letters(
    broker: EmbeddedBroker, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two requests tell where the letters of all partitions are, and the target is looked at once for each write."""
    servers = broker.bootstrap_servers
    send(servers, letters_of_partitions(list(range(60)), "partition"))
    asked, looked = Counter[str](), list[str]()
    send_request, partitions_for = NodeSet.send, Producer.partitions_for

    def count_requests(nodes: NodeSet, node: object, request: Any, now_ms: int) -> object:
        asked[request.api.name] += 1
        return send_request(nodes, node, request, now_ms)  # type: ignore[arg-type]

    def count_looks(producer: Producer, topic: str, **more: bool) -> object:
        looked.append(topic)
        return partitions_for(producer, topic, **more)

    monkeypatch.setattr(NodeSet, "send", count_requests)
    monkeypatch.setattr(Producer, "partitions_for", count_looks)
    assert shell(*words(servers, "--dry-run")).exit_code == 0
    assert asked["ListOffsets"] == 2
    done = shell(*words(servers, "--yes", "--batch-size", "20", "--json"))
    assert done.content["written_now"] == 60 and [place for place, _ in places(servers)].count(0) > 0
    assert looked == [BACK] * 3


@pytest.mark.embedded_kafka(topics={DEAD: 1})
@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_old_values_get_into_a_table_only_with_words(
    policy: str, broker: EmbeddedBroker, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = broker.bootstrap_servers
    broker.create_topic(BACK, 1, {"cleanup.policy": policy})
    given = pa.RecordBatch.from_pydict({"key": [b"7"], "value": [b"old"]})
    send(servers, letters(given))
    warning = "older than what may be there by now under its key: readers of the table would take it for the newest"
    assert warning in shell(*words(servers, "--dry-run")).out
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    refused = shell(*words(servers))
    assert refused.exit_code == 1 and warning in refused.err and 'Type "write old values"' in refused.err
    assert read_topic(servers, BACK) == []
    monkeypatch.setattr(sys, "stdin", io.StringIO("write old values\n"))
    assert shell(*words(servers)).exit_code == 0
    assert [record.value for record in read_topic(servers, BACK)] == [b"old"]
    send(servers, letters(given))
    told = shell(*words(servers, "--yes"))
    assert told.exit_code == 0 and warning in told.err


def test_the_rows_of_other_sinks_get_into_a_topic_only_with_words(
    broker: EmbeddedBroker, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic of dead letters may be shared."""
    servers = broker.bootstrap_servers
    send(servers, letters(rows(4)))
    send(servers, letters(rows(3, first=100), topic="invoices"))
    looked = shell(*words(servers, "--dry-run", "--json"))
    assert looked.content["topics"] == {BACK: 4, "invoices": 3} and looked.content["would_write"] == 7
    warning = "WARNING: 3 of them are of rows for other topics than orders, perhaps of other sinks"
    said = shell(*words(servers, "--dry-run")).out
    assert warning in said and "are of rows for orders (4), invoices (3)" in said
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    refused = shell(*words(servers))
    assert refused.exit_code == 1 and warning in refused.err and 'Type "write rows of other topics"' in refused.err
    assert read_topic(servers, BACK) == []
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    own = shell(*words(servers, "--filter", f"topic={BACK}"))
    assert own.exit_code == 0 and "WARNING" not in own.err and back(servers) == expected(rows(4))
    monkeypatch.setattr(sys, "stdin", io.StringIO("write rows of other topics\n"))
    both = shell(*words(servers, "--name", "replay-both"))
    assert both.exit_code == 0
    assert back(servers) == expected(rows(4)) + expected(rows(4)) + expected(rows(3, first=100))
    send(servers, letters(rows(1), topic="invoices"))
    told = shell(*words(servers, "--yes"))
    assert told.exit_code == 0 and "WARNING: 4 of them" in told.err


# What the help asks for.
PERMISSIONS = [
    Acl(acl.ANONYMOUS, acl.READ, acl.TOPIC, DEAD),
    Acl(acl.ANONYMOUS, acl.WRITE, acl.TOPIC, BACK),
    Acl(acl.ANONYMOUS, acl.READ, acl.TOPIC, LEDGER),
    Acl(acl.ANONYMOUS, acl.WRITE, acl.TOPIC, LEDGER),
    Acl(acl.ANONYMOUS, acl.WRITE, acl.TRANSACTIONAL_ID, "replay-", acl.PREFIXED),
]


@pytest.mark.parametrize("left_out", [None, *range(len(PERMISSIONS))])
def test_the_permissions_in_the_help_are_enough_and_each_is_needed(left_out: int | None, shell: Shell) -> None:
    acls = [one for index, one in enumerate(PERMISSIONS) if index != left_out]
    of_sink = [
        Acl(acl.ANONYMOUS, acl.WRITE, acl.TOPIC, DEAD), Acl(acl.ANONYMOUS, acl.WRITE, acl.TRANSACTIONAL_ID, "letters"),
    ]  # fmt: skip
    with EmbeddedBroker(topics={DEAD: 1, BACK: 1, LEDGER: 1}, acls=[*acls, *of_sink]) as broker:
        send(broker.bootstrap_servers, letters(rows(3)))
        done = shell(*words(broker.bootstrap_servers, "--yes", "--timeout", "2"))
        assert "3 records written" in done.out if left_out is None else done.exit_code == 4


def test_a_letter_of_a_letter_becomes_the_letter(broker: EmbeddedBroker, shell: Shell) -> None:
    once = letters(rows(4))
    send(broker.bootstrap_servers, letters(once))
    assert shell(*words(broker.bootstrap_servers, "--yes")).exit_code == 0
    assert back(broker.bootstrap_servers) == expected(once)


def test_a_letter_whose_header_has_a_name_that_is_no_text_can_be_replayed(
    broker: EmbeddedBroker, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = pa.array([b"\xff\xfe!", b"pykafka-sink.error"]).view(pa.string())
    headers = pa.ListArray.from_arrays(
        pa.array([0, 2], pa.int32()),
        pa.StructArray.from_arrays([names, pa.array([b"1", b"2"])], ["key", "value"]),
    )
    with monkeypatch.context() as patched:
        patched.setattr(encoded_headers, "ASCII_MAX", 255)  # earlier releases wrote any bytes
        send(broker.bootstrap_servers, pa.RecordBatch.from_arrays([pa.array([b"v"]), headers], ["value", "headers"]))
    assert shell(*words(broker.bootstrap_servers, "--yes", "--json")).content["written_now"] == 1
    with client_of(broker.bootstrap_servers) as client:
        found = [
            record
            for reader in (PartitionReader(client, BACK, partition, 60_000) for partition in range(3))
            for records, _ in reader.read(*reader.extent())
            for _, record in records
        ]
    assert [record.headers for record in found] == [(("??!", b"1"),)]


@pytest.mark.parametrize(("answer", "exit_code"), [("no\n", 1), ("", 2)])
def test_nothing_is_written_without_a_yes(
    answer: str, exit_code: int, broker: EmbeddedBroker, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = broker.bootstrap_servers
    send(servers, letters(rows(4)))
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    refused = shell(*words(servers))
    assert refused.exit_code == exit_code and "nothing was changed" in refused.err
    assert "Up to 5 are left to look at, in 2 partitions" in refused.err.replace("Up to 6", "Up to 5")
    assert read_topic(servers, BACK) == []


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (("--to", DEAD), "have to be three topics"),
        (("--to", LEDGER), "have to be three topics"),
        (("--to", "nowhere"), "--to nowhere: there is no such topic"),
        (("--from", "nowhere"), "--from nowhere: there is no such topic"),
        (("--filter", "colour=red"), "can be chosen by reason, topic"),
        (("--name", "a b"), "--name='a b' is not valid"),
    ],
)
def test_wrong_words_are_answered_before_anything_is_written(
    more: tuple[str, ...], text: str, broker: EmbeddedBroker, shell: Shell
) -> None:
    refused = shell(*words(broker.bootstrap_servers), *more)
    assert refused.exit_code == 2 and text in refused.err


def test_a_replay_whose_last_marker_is_lost_in_the_ledger_stops_and_says_what_to_do(
    broker: EmbeddedBroker, shell: Shell
) -> None:
    servers = broker.bootstrap_servers
    send(servers, letters(rows(4)))
    assert shell(*words(servers, "--yes", "--name", "before")).exit_code == 0

    def log_of(core: Any) -> Any:
        return core.cluster.topics[LEDGER].partitions[LEDGER_PARTITION].log

    def open_count(core: Any) -> int:
        """Each transaction writes one batch to the ledger, and then has a marker there."""
        return sum(-1 if each.is_control else 1 for each in log_of(core).batches)

    def lose_marker(core: Any) -> None:
        log = log_of(core)
        newest = max(each.base_offset for each in log.batches if each.is_control)
        log.replace_cleaned([each for each in log.batches if each.base_offset != newest], log.end_offset, set())

    with Producer({"bootstrap.servers": servers, "transactional.id": "stranger", "linger.ms": 0}) as stranger:
        # An open transaction: no offset behind it is stable, as with a lost marker.
        stranger.init_transactions()
        stranger.begin_transaction()
        stranger.send(LEDGER, b"{}", "stranger", partition=LEDGER_PARTITION)
        stranger.flush()
        assert shell(*words(servers, "--yes")).exit_code == 0
        # A commit is answered before its marker is written, and a replay commits once for each partition.
        wait_until(lambda: broker.do(open_count) == 1, "only the stranger's transaction is open")
        broker.do(lose_marker)
        stranger.send(LEDGER, b"{}", "stranger", partition=LEDGER_PARTITION)
        stranger.flush()
        send(servers, letters(rows(2, first=10)))
        stopped = shell(*words(servers, "--yes"))
    assert stopped.exit_code != 0 and "whether its records are visible is not known" in stopped.err
    assert "PKS-8005" in stopped.err and "--name" in stopped.err
    assert len(read_topic(servers, BACK)) == 8


def test_a_ledger_that_nobody_leads_is_asked_until_the_time_is_over(broker: EmbeddedBroker, shell: Shell) -> None:
    servers = broker.bootstrap_servers
    send(servers, letters(rows(4)))
    assert shell(*words(servers, "--yes")).exit_code == 0
    broker.inject(Fault("ListOffsets", NOT_LEADER, topic=LEDGER, times=None))
    stopped = shell(*words(servers, "--yes", "--timeout", "1"))
    assert stopped.exit_code != 0 and "the ledger was not available" in stopped.err and "PKS-8006" in stopped.err


def test_a_leader_that_is_behind_hides_no_letter(broker: EmbeddedBroker, shell: Shell) -> None:
    """One that was cut off answers for a moment, and has a shorter log."""
    servers, given = broker.bootstrap_servers, rows(20)
    send(servers, letters(given))
    behind = broker.inject(Fault("Fetch", OFFSET_OUT_OF_RANGE, topic=DEAD, times=3))
    assert shell(*words(servers, "--yes")).exit_code == 0 and behind.times == 0
    assert back(servers) == expected(given)
    send(servers, letters(rows(1)))
    broker.inject(Fault("Fetch", OFFSET_OUT_OF_RANGE, topic=DEAD, times=None))
    stopped = shell(*words(servers, "--yes", "--timeout", "1"))
    assert stopped.exit_code != 0 and "OFFSET_OUT_OF_RANGE" in stopped.err
    broker.do(lambda core: core.faults.clear())
    assert shell(*words(servers, "--yes", "--json")).content["written_now"] == 1


def test_letters_that_retention_deletes_during_a_run_are_passed_over(broker: EmbeddedBroker) -> None:
    send(broker.bootstrap_servers, letters(rows(20)))
    with client_of(broker.bootstrap_servers) as client:
        reader = PartitionReader(client, DEAD, 0, 20_000)
        first, end = reader.extent()
        broker.do(lambda core: core.cluster.topics[DEAD].partitions[0].log.delete_before(first + 3))
        passed, *read = reader.read(first, end)
        assert passed == ([], first + 3)
        offsets = [offset for records, _ in read for offset, _ in records]
        assert offsets and min(offsets) == first + 3 and read[-1][1] == end


def test_a_letter_that_cannot_be_sent_is_named_and_those_before_it_stay(broker: EmbeddedBroker, shell: Shell) -> None:
    servers = broker.bootstrap_servers
    large = pa.RecordBatch.from_pydict({"value": [b"x" * 5000]})
    for each in (rows(1), large):
        send(servers, letters(each))
    refused = shell(*words(servers, "--yes", "--batch-size", "1", "--option", "kafka.max.request.size=2000"))
    assert refused.exit_code == 4 and "the letter at offset" in refused.err and "max.request.size" in refused.err
    done = shell(*words(servers, "--yes"))
    assert done.exit_code == 0
    assert sorted(len(record.value or b"") for record in read_topic(servers, BACK)) == [3, 5000]


def test_a_second_run_right_after_the_first_counts_nothing_twice(
    broker: EmbeddedBroker, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = broker.bootstrap_servers
    send(servers, letters(rows(4)))
    monkeypatch.setattr(settings, "DEFAULT_DELAYS_MS", {"marker": 200})
    assert shell(*words(servers, "--yes", "--json")).content["written_now"] == 4
    assert shell(*words(servers, "--dry-run", "--json")).content["would_write"] == 0
    # Later than a look waits for: only the run itself finds what the first one has written.
    monkeypatch.setattr(settings, "DEFAULT_DELAYS_MS", {"marker": 2_000})
    send_one(servers)
    assert shell(*words(servers, "--yes", "--json")).content["written_now"] == 1
    assert shell(*words(servers, "--yes", "--json")).content["written_now"] == 0
    assert sum(back(servers).values()) == 5


def send_one(servers: str) -> None:
    with Producer({"bootstrap.servers": servers}) as producer:
        producer.send_arrow(letters(rows(1, first=10)), DEAD)


def test_a_topic_that_was_made_anew_has_letters_of_its_own(broker: EmbeddedBroker, shell: Shell) -> None:
    servers = broker.bootstrap_servers
    send(servers, letters(rows(4)))
    assert shell(*words(servers, "--yes", "--json")).content["written_now"] == 4
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([DEAD])[DEAD].result(60)
    broker.create_topic(DEAD, 2)
    send(servers, letters(rows(2, first=50)))
    again = shell(*words(servers, "--yes", "--json"))
    assert (
        again.content["written_now"] == 2
        and "which was deleted, or is in another cluster: this is a new beginning" in again.err
    )
    assert back(servers) == expected(rows(4)) + expected(rows(2, first=50))


def test_progress_that_was_copied_from_another_cluster_doubles_no_letter_without_a_word(
    broker: EmbeddedBroker, shell: Shell
) -> None:
    """Rows, letters and ledger are copied. Topics have other ids there, letters other offsets, and the records of an
    earlier run are there already."""
    servers, named = broker.bootstrap_servers, ("--yes", "--name", "nightly", "--filter", "batch.id=7")
    send(servers, letters(rows(4)))
    with EmbeddedBroker(topics={DEAD: 1, BACK: 1}) as other:
        other.do(lambda core: setattr(core.cluster, "cluster_id", "mirror"))
        other.create_topic(LEDGER, 1, {"cleanup.policy": "compact"})
        assert shell(*words(servers, *named)).exit_code == 0
        mirror(servers, other.bootstrap_servers)
        refused = shell(*words(other.bootstrap_servers, *named))
        assert refused.exit_code == 2 and "and this one is mirror: " in refused.err and "PKS-8004" in refused.err
        assert back(other.bootstrap_servers) == expected(rows(4))

        (command,) = re.findall(r"`pykafka-sink ([^`]*)`", refused.err)
        done = shell(*shlex.split(command), "--yes")
        assert done.exit_code == 0 and "(nightly, in the cluster embedded-kafka-cluster)" in done.err
        twice = expected(rows(4)) + expected(rows(4))
        assert back(other.bootstrap_servers) == twice
        # Whoever repeats the two commands writes nothing more.
        assert re.findall(r"`pykafka-sink ([^`]*)`", shell(*words(other.bootstrap_servers, *named)).err) == [command]
        assert shell(*shlex.split(command), "--yes", "--json").content["written_now"] == 0
        assert back(other.bootstrap_servers) == twice


def mirror(source: str, target: str) -> None:
    """All three topics, with a transaction, and with letters and rows in one partition."""
    with Producer({"bootstrap.servers": target, "transactional.id": "mirror"}) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        for topic in (DEAD, BACK, LEDGER):
            for record in read_topic(source, topic):
                producer.send(topic, record.value, record.key, list(record.headers), record.timestamp_ms, 0)
        producer.commit_transaction()


def test_one_name_for_the_letters_of_two_topics_is_refused_and_doubles_nothing(
    broker: EmbeddedBroker, shell: Shell
) -> None:
    servers, other = broker.bootstrap_servers, "dead-of-another"
    broker.create_topic(other, 1)
    send(servers, letters(rows(4)))
    send(servers, letters(rows(2, first=50)), topic=other)
    named = ("--yes", "--name", "nightly")
    assert shell(*words(servers, *named)).exit_code == 0
    refused = shell(*words(servers, *named, "--from", other))
    assert refused.exit_code == 2 and "choose another --name" in refused.err and "PKS-8004" in refused.err
    assert shell(*words(servers, *named)).exit_code == 0
    assert back(servers) == expected(rows(4))


def test_brokers_that_begin_to_tell_topic_ids_double_nothing(
    broker: EmbeddedBroker, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = broker.bootstrap_servers
    send(servers, letters(rows(4)))
    with monkeypatch.context() as before:
        before.setattr(replay, "topic_state", without_ids)
        assert shell(*words(servers, "--yes")).exit_code == 0
    send(servers, letters(rows(2, first=50)))
    assert shell(*words(servers, "--yes", "--json")).content["written_now"] == 2
    assert back(servers) == expected(rows(4)) + expected(rows(2, first=50))


def without_ids(client: Client, name: str, configs: Sequence[str] = ()) -> TopicState | None:
    state = topic_state(client, name, configs)
    return None if state is None else state._replace(topic_id=NO_TOPIC_ID)


def test_a_topic_that_was_made_anew_where_brokers_have_no_ids_is_told(
    broker: EmbeddedBroker, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = broker.bootstrap_servers
    monkeypatch.setattr(replay, "topic_state", without_ids)
    send(servers, letters(rows(20)))
    assert shell(*words(servers, "--yes")).exit_code == 0
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([DEAD])[DEAD].result(60)
    broker.create_topic(DEAD, 2)
    send(servers, letters(rows(2, first=50)))
    refused = shell(*words(servers, "--yes"))
    assert refused.exit_code == 2 and "have read up to" in refused.err and "PKS-8004" in refused.err
    assert shell(*words(servers, "--yes", "--name", "again")).exit_code == 0
    assert back(servers) == expected(rows(20)) + expected(rows(2, first=50))


def test_a_partition_that_became_shorter_is_not_read_to_an_end_that_it_no_longer_has(broker: EmbeddedBroker) -> None:
    send(broker.bootstrap_servers, letters(rows(4)))
    with client_of(broker.bootstrap_servers) as client:
        reader = PartitionReader(client, DEAD, 0, 500)
        with pytest.raises(OperationTimeout, match="ends before offset 1000"):
            list(reader.read(1_000, 1_100))


def test_offsets_that_no_answer_shows_are_told_as_that(broker: EmbeddedBroker) -> None:
    send(broker.bootstrap_servers, letters(rows(4)))
    with client_of(broker.bootstrap_servers) as client:
        reader = PartitionReader(client, DEAD, 0, 2_000)
        _, end = reader.extent()
        with pytest.raises(OperationTimeout, match=f"{DEAD}-0: its leader shows nothing from offset {end} on"):
            list(reader.read(end, end + 2))


def test_a_progress_that_cannot_be_read_stops_its_own_replay_only(broker: EmbeddedBroker, shell: Shell) -> None:
    servers = broker.bootstrap_servers
    send(servers, letters(rows(4)))
    assert shell(*words(servers, "--yes", "--name", "one")).exit_code == 0
    with Producer({"bootstrap.servers": servers, "transactional.id": "newer"}) as newer:
        newer.init_transactions()
        with newer.transaction():
            newer.send(LEDGER, b'{"version":2}', "/replay/one", partition=LEDGER_PARTITION)
    refused = shell(*words(servers, "--yes", "--name", "one"))
    assert refused.exit_code == 2 and "the progress of replay one cannot be read: " in refused.err
    assert "has version 2, not 1" in refused.err and "PKS-8004" in refused.err
    assert shell(*words(servers, "--yes", "--name", "two")).exit_code == 0


def test_a_claim_that_has_no_offset_is_not_taken_for_an_empty_ledger(
    broker: EmbeddedBroker, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two partitions, of which only one has new letters; each fetch of the ledger brings one batch."""
    monkeypatch.setattr(log_scan, "FETCH_BYTES_MAX", 1)
    servers = broker.bootstrap_servers

    def put(partition: int, given: pa.RecordBatch) -> None:
        send(servers, letters(given).append_column("partition", pa.array([partition] * given.num_rows, pa.int32())))

    put(0, rows(4))
    put(1, rows(4, first=10))
    assert shell(*words(servers, "--yes")).exit_code == 0
    put(0, rows(2, first=20))
    broker.inject(Fault("Produce", DUPLICATE_SEQUENCE_NUMBER, after_apply=True, topic=LEDGER))
    refused = shell(*words(servers, "--yes"))
    assert refused.exit_code == 4 and "without its offset" in refused.err and "PKS-8006" in refused.err
    assert shell(*words(servers, "--yes", "--json")).content["written_now"] == 2
    put(0, rows(2, first=30))
    assert shell(*words(servers, "--yes", "--json")).content["written_now"] == 2
    assert back(servers) == sum(map(expected, (rows(4), rows(4, 10), rows(2, 20), rows(2, 30))), Counter())


# ---- killed runs -----------------------------------------------------------------------------------------------------


def start(servers: str, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kafka_sink", *words(servers, "--yes", *more)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip


class Killer:
    """Kills the process at its n-th request of a kind. If `arrives`, the broker still handles the request."""

    def __init__(self, api: str, number: int, *, arrives: bool) -> None:
        self._left = number
        self._api = api
        self._arrives = arrives
        self.process: subprocess.Popen[str] | None = None
        self.is_ready = threading.Event()

    def __call__(self, api: str, _version: int, _broker_id: int, _body: Mapping[str, Any]) -> Fault | None:
        if api != self._api or self._left <= 0:
            return None
        self._left -= 1
        if self._left:
            return None
        assert self.is_ready.wait(90) and self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        return None if self._arrives else Fault(disconnect=True)


# The requests of a run: InitProducerId, then a transaction with its claim, then one for every 40 letters.
MOMENTS = [
    ("InitProducerId", 1, True),
    ("EndTxn", 1, True),
    ("Produce", 4, True),
    ("EndTxn", 3, False),
    ("EndTxn", 4, True),
]


def test_a_run_killed_at_any_moment_loses_and_doubles_nothing(broker: EmbeddedBroker, shell: Shell) -> None:
    """One replay is killed five times before it finishes."""
    servers, given = broker.bootstrap_servers, rows(2000)
    send(servers, letters(given))
    seen = 0
    for api, number, arrives in MOMENTS:
        killer = Killer(api, number, arrives=arrives)
        broker.do(lambda cluster, killer=killer: setattr(cluster.faults, "interceptor", killer))
        killer.process = start(servers, "--batch-size", "40")
        killer.is_ready.set()
        output, _ = killer.process.communicate(timeout=300)
        assert killer.process.returncode == -signal.SIGKILL, f"{api} {number}: {output}"
        broker.do(lambda cluster: setattr(cluster.faults, "interceptor", None))
        # The transaction that it had begun is still open and stops foreign readers.
        written = shell(*words(servers, "--dry-run", "--json")).content["written"]
        assert written >= seen
        seen = written
    assert 0 < seen < 2000
    assert shell(*words(servers, "--yes")).exit_code == 0
    assert back(servers) == expected(given)


def test_ctrl_c_ends_a_run_whose_brokers_are_silent(broker: EmbeddedBroker, shell: Shell) -> None:
    """It would wait for its abort and its end, three minutes by default."""
    servers, given = broker.bootstrap_servers, rows(4)
    send(servers, letters(given))
    has_begun = threading.Event()

    def silence(api: str, *_: object) -> Fault | None:
        if api != "Produce":
            return None
        has_begun.set()
        return Fault(delay_before_ms=3_600_000)

    broker.do(lambda cluster: setattr(cluster.faults, "interceptor", silence))
    with start(servers) as running:
        assert has_begun.wait(90)
        running.send_signal(signal.SIGINT)
        output, _ = running.communicate(timeout=60)
    assert running.returncode == 130 and "interrupted" in output
    broker.do(lambda cluster: setattr(cluster.faults, "interceptor", None))
    assert shell(*words(servers, "--yes")).exit_code == 0
    assert back(servers) == expected(given)


def test_of_two_runs_at_once_the_younger_one_goes_on(broker: EmbeddedBroker, shell: Shell) -> None:
    servers, given = broker.bootstrap_servers, rows(2000)
    send(servers, letters(given))
    has_begun = threading.Event()

    def watch(api: str, *_: object) -> None:
        if api == "EndTxn":
            has_begun.set()

    broker.do(lambda cluster: setattr(cluster.faults, "interceptor", watch))
    elder = start(servers, "--batch-size", "10")
    assert has_begun.wait(60)
    younger = shell(*words(servers, "--yes", "--json"))
    output, _ = elder.communicate(timeout=300)
    assert back(servers) == expected(given)
    assert {younger.exit_code, elder.returncode} in ({0}, {0, 4}), output + younger.err
