"""A batch write without sink.id and batch.id is whole or absent, whichever of its processes dies.

The assumptions: Spark calls commit() in a Python process that may die (out of memory, a kill), and then abort() in
another one, with the same messages. If the whole driver dies, nobody calls anything, and nobody writes the same again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import count

import pytest

from kafka_sink.kafka.wire.apis import END_TXN
from tests.chaos.bare_export import ROWS, BareExport
from tests.chaos.bare_spark import Killed
from tests.chaos.bare_stream import BareStream
from tests.chaos.extent import NEWEST_MAINLY
from tests.support.commanding import Shell
from tests.support.faults import Harm, of_a_task
from tests.support.open_transactions import open_transactions
from tools.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

SIDES = {"before-it-arrives": Harm.LOSE_REQUEST, "after-it-was-carried-out": Harm.LOSE_ANSWER}
REQUESTS_MAX = 60


@pytest.fixture
def ledger(topic_name: str) -> str:
    """Of this test: every planning that uses a ledger ends the transactions that are decided there, and other tests
    count requests."""
    return f"ledger-{topic_name}"[:249]


@pytest.fixture
def stream(stream_on: Callable[..., BareStream], kafka: KafkaCluster, ledger: str) -> BareStream:
    return stream_on(kafka, ledger__topic=ledger)


@pytest.fixture
def direct_stream(stream_on: Callable[..., BareStream], kafka: KafkaCluster, ledger: str) -> BareStream:
    return stream_on(kafka, is_direct=True, ledger__topic=ledger)


def rows_of(stream: BareStream) -> set[int]:
    """How often the rows are there: a set of one number if each is there as often as every other one."""
    seen = stream.times_seen()
    assert len(seen) in (0, ROWS)
    return set(seen.values()) or {0}


@NEWEST_MAINLY
@pytest.mark.parametrize(
    "side", ["after-it-was-carried-out", pytest.param("before-it-arrives", marks=pytest.mark.slow)]
)
def test_wherever_in_a_commit_its_process_dies_the_abort_makes_the_write_whole_or_absent(
    stream: BareStream, side: str
) -> None:
    whole = killed = 0
    for nth in count(1):
        assert nth < REQUESTS_MAX
        with BareExport(stream.settings) as export:
            export.plan()
            export.write_tasks()
            fault = stream.proxy.on(None, SIDES[side], nth=nth, before=export.strike)
            try:
                export.commit()
            except Killed:
                killed += 1
                export.abort()
                is_whole = any("all of its 60 rows are visible" in line for line in export.log)
                assert is_whole != any("nothing of the batch is visible" in line for line in export.log), export.log
            else:
                is_whole = True
            sink_id = export.sink_id
        fault.stop()
        whole += is_whole
        assert rows_of(stream) == {whole}, f"after a kill at request {nth} of a commit"
        assert open_transactions(stream.kafka.bootstrap_servers, sink_id) == []
        if not fault.has_acted:
            break
    assert killed > 8 and whole > 4
    print(f"\n{stream.kafka.version}, {side}: {killed} kills, {whole} writes are there")


def test_if_the_whole_driver_dies_the_next_planning_with_that_ledger_finishes_what_it_has_decided(
    stream: BareStream, ledger: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Shell(capsys)
    with BareExport(stream.settings) as export:
        export.plan()
        export.write_tasks()
        stream.proxy.on(END_TXN, Harm.LOSE_REQUEST, nth=2, where=of_a_task, before=export.strike)
        with pytest.raises(Killed):
            export.commit()
        sink_id = export.sink_id
    servers = stream.kafka.bootstrap_servers
    where = ("--bootstrap-server", servers, "--ledger-topic", ledger)
    shown = run("ledger", *where, "--sink-id", sink_id)
    command = f"pykafka-sink recover {' '.join(where)} --sink-id {sink_id}"
    assert shown.exit_code == 1 and command in shown.out
    with BareExport({**stream.settings, "sink.id": "another", "batch.id": "export"}) as other:
        other.plan()
        assert other.log == []
    assert rows_of(stream) == {1} and open_transactions(servers, sink_id) == []
    # Its decision stays until somebody closes it: a command, or a planning when it is old.
    assert run("recover", *where, "--sink-id", sink_id, "--yes").exit_code == 0
    assert sink_id not in run("ledger", *where).out
    assert rows_of(stream) == {1}


@NEWEST_MAINLY
def test_writes_without_a_label_at_once_leave_no_trace_in_the_ledger(
    direct_stream: BareStream, ledger: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exports = [BareExport(direct_stream.settings, tasks=1) for _ in range(6)]
    try:
        for each in exports:
            each.plan()
            each.write_tasks()
        for each in exports:
            each.begin_commit()
        for each in exports:
            each.end_commit()
        where = ("--bootstrap-server", direct_stream.kafka.bootstrap_servers, "--ledger-topic", ledger)
        shown = Shell(capsys)("ledger", *where).out
        assert [each.sink_id for each in exports if each.sink_id in shown] == []
        assert rows_of(direct_stream) == {len(exports)}
        assert Counter(line for each in exports for line in each.log) == Counter()
    finally:
        for each in exports:
            each.__exit__()
