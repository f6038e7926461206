"""A batch of thousands of tasks: what the driver does for one of them does not depend on how many there are."""

from __future__ import annotations

from functools import partial

from kafka_sink.commit.asks import Asks
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.kafka.client.ask import Ask, Coordinator, Reply, ReplyKind
from kafka_sink.kafka.client.route import divide_body
from kafka_sink.kafka.wire.apis import END_TXN
from tests.support.work import count_instructions

FEW, MANY = 50, 400
# By which the work may grow more than the number of transactions does.
SLACK = 1.5


def end_one_after_the_other(count: int) -> None:
    """Each answer comes alone, as from brokers that are far away."""
    asks = Asks(DeliverySettings(parallel_requests=4))
    for number in range(count):
        asks.add(0, Ask(Coordinator(f"id-{number}"), END_TXN, {}, "commit", number))
    under_way = asks.take_due(0)
    ended = 0
    while under_way:
        ask = under_way.pop(0)
        assert asks.accept(Reply(ask, ReplyKind.ANSWERED))
        asks.drop(ask)
        ended += 1
        under_way += asks.take_due(0)
        assert len(under_way) <= 4
    assert ended == count and not len(asks)


def test_the_work_for_each_end_does_not_grow_with_their_number() -> None:
    _, few, many = (count_instructions(partial(end_one_after_the_other, count)) for count in (FEW, FEW, MANY))
    assert many / few < MANY / FEW * SLACK


def test_dividing_a_question_looks_at_each_partition_once_however_many_leaders_there_are() -> None:
    partitions = range(MANY)
    body = {"topics": [{"name": "t", "partition_indexes": list(partitions)}]}

    def divide(leaders: int) -> None:
        parts = divide_body(body, {("t", one): one % leaders for one in partitions})
        assert sorted(parts) == list(range(leaders))
        assert parts[1]["topics"][0]["partition_indexes"] == list(range(1, MANY, leaders))

    _, few, many = (count_instructions(partial(divide, leaders)) for leaders in (2, 2, 40))
    assert many < few * SLACK
