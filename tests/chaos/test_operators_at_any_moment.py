"""An operator ends a sink's transactions at any moment: no row is lost in silence, none is doubled.

Each moment is a request of a running micro-batch: before it arrives, somebody ends every open transaction of the tasks
(`meddler.py` says what is sent), and the micro-batch goes on. Rows are sorted by partition in every other batch, as in
an export: then a task can go on after its transaction was ended, without a request that is refused.

The query goes on, or stops with CommitAborted and runs the batch again. After a decision only another client than the
sink's command can do harm: then the query stops with CommitLost, an operator accepts the loss, and exactly what the
error names is missing.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable

import pytest

from kafka_sink.__main__ import main
from kafka_sink.commit import messages
from kafka_sink.errors import CommitAborted, CommitLost, KafkaSinkError
from kafka_sink.kafka.wire.apis import ADD_PARTITIONS_TO_TXN, PRODUCE
from tests.chaos.bare_spark import PARTITIONS, ROWS, BareQuery
from tests.chaos.bare_stream import BareStream
from tests.chaos.clusters import cluster_of
from tests.chaos.extent import NEWEST_MAINLY
from tests.chaos.meddler import Meddler, Way
from tests.chaos.numbered_records import numbered_value
from tests.conftest import NEWEST
from tests.support.faults import Harm, Request, of_a_task
from tools.kafka_cluster import KafkaCluster

pytestmark = [pytest.mark.chaos, pytest.mark.kafka, pytest.mark.timeout(900)]

# Each way twice, or for several moments of each kind of request.
FEW, MANY = 14, 30
# Most micro-batches send more requests than this, so most moments are hit.
REQUESTS = 28
# The sink's command takes seconds: it looks twice whether anything moves.
WAYS = [*[Way.END, Way.END_OF_VERSION_1, Way.MARKER] * 2, Way.COMMAND]
ROWS_LOST = re.compile(r"rows not visible: (\d+) rows")


def writes_rows(request: Request) -> bool:
    """A marker is written while a task writes: nothing protects from one between the check and the end."""
    return request.api_key in (PRODUCE.key, ADD_PARTITIONS_TO_TXN.key) and of_a_task(request)


class Moments:
    def __init__(self, stream: BareStream) -> None:
        self.stream = stream
        self.pick = random.Random(f"moments of {stream.kafka.version}")
        self.ends: Counter[str] = Counter()
        self.acted: Counter[Way] = Counter()
        # Rows that a CommitLost has named, by batch.
        self.lost: dict[int, int] = {}
        self._meddler = Meddler(stream.kafka, stream.sink_id)

    def play(self, number: int) -> None:
        way = WAYS[number % len(WAYS)]
        is_sorted = bool(number % 2)
        nth = self.pick.randint(1, 6 if way is Way.MARKER else REQUESTS)
        where = writes_rows if way is Way.MARKER else lambda _: True

        def act() -> None:
            self.acted[way] += self._meddler.act(way) > 0

        batch = self.stream.checkpoint.committed + 1
        fault = self.stream.proxy.on(None, Harm.DELAY_REQUEST, nth=nth, where=where, before=act)
        with self.stream.query(is_sorted=is_sorted) as query:
            end = self._run(query, way)
        fault.stop()
        self.ends[f"{way.value}: {end}"] += 1
        while self.stream.checkpoint.committed < batch:
            with self.stream.query(is_sorted=is_sorted) as query:
                query.run_batch()

    def _run(self, query: BareQuery, way: Way) -> str:
        batch = query.batch_id
        try:
            query.run_batch()
        except CommitLost as error:
            assert way in (Way.END, Way.END_OF_VERSION_1), error
            (named,) = ROWS_LOST.findall(str(error))
            self.lost[batch] = int(named)
            where = ["--bootstrap-server", self.stream.kafka.bootstrap_servers, "--sink-id", self.stream.sink_id]
            assert main(["resolve", "--accept", "--yes", *where]) == 0
        except CommitAborted as error:
            # The second one: its run is stopped, because the sink's own command had listed its transactions.
            assert "another tool" in str(error) or messages.SWEPT in str(error), error
        except KafkaSinkError as error:
            # A task whose next request was refused; Spark would run it again.
            assert "abort" in str(error) or "epoch" in str(error), error
            return "a task failed"
        else:
            return "went on"
        return "CommitLost" if batch in self.lost else "CommitAborted"

    def check(self) -> None:
        """None missing but those that a CommitLost has named, none doubled."""
        assert self.stream.open() == []
        seen = self.stream.times_seen()
        missing: Counter[int] = Counter()
        for row in range((self.stream.checkpoint.committed + 1) * ROWS):
            count = seen.pop(numbered_value(row % PARTITIONS, row // PARTITIONS, row), 0)
            assert count <= 1, f"row {row} is there {count} times"
            missing[row // ROWS] += not count
        assert seen == Counter()
        assert +missing == +Counter(self.lost)


def play(stream: BareStream, moments: int) -> None:
    stream.run()
    played = Moments(stream)
    for number in range(moments):
        played.play(number)
    stream.run()
    print(f"\n{stream.kafka.version}: acted {dict(played.acted)}, {dict(played.ends)}, lost {played.lost}")
    played.check()
    assert played.acted.total() >= moments // 2
    assert any("CommitAborted" in end for end in played.ends)


def test_no_row_is_lost_in_silence_whenever_somebody_ends_the_transactions_of_tasks(
    stream_on: Callable[..., BareStream], kafka_4: KafkaCluster
) -> None:
    play(stream_on(kafka_4), FEW)


@pytest.mark.slow
def test_nor_is_one_lost_at_many_moments_with_each_version_of_the_brokers(stream: BareStream) -> None:
    play(stream, MANY)


@pytest.mark.slow
def test_so_it_is_where_the_newest_brokers_have_the_older_transaction_version(
    stream_on: Callable[..., BareStream],
) -> None:
    with cluster_of(NEWEST, transaction_version=1) as kafka:
        play(stream_on(kafka), MANY)


@NEWEST_MAINLY
@pytest.mark.parametrize("way", [Way.END, Way.END_OF_VERSION_1, Way.MARKER])
def test_a_task_that_goes_on_after_its_transaction_was_ended_is_not_believed(
    stream: BareStream, way: Way, kafka: KafkaCluster
) -> None:
    """Sorted rows: the first partition is complete when somebody ends the transaction, and the task goes on with the
    next one. After an EndTxn its next request may be refused."""
    meddler = Meddler(kafka, stream.sink_id)
    acted: list[int] = []
    with stream.query(is_sorted=True) as query:
        query.plan()
        fault = stream.proxy.on(
            PRODUCE, Harm.DELAY_REQUEST, nth=2, where=of_a_task, before=lambda: acted.append(meddler.act(way))
        )
        messages = []
        try:
            messages = query.write_tasks()
            query.commit(messages)
        except CommitAborted as error:
            assert "another tool" in str(error)
            query.abort(messages)
        except KafkaSinkError as error:
            assert (way is not Way.MARKER and "transaction must be aborted" in str(error)) or way is Way.END, error
        else:
            raise AssertionError("the batch was delivered")
        # One transaction, or two if the next task had begun.
        assert fault.has_acted and len(acted) == 1 and acted[0] >= 1
    stream.run()
    stream.check(1)
