"""Tables of short histories of a producer: events, the sequence numbers it sends, and how each batch and call ends.

    both are resent in order when the first of two fails
        with retries=5
        send send:2 not_leader out_of_order 100ms sent=3 ok@0 ok@1
        => 0/0 0/1 0/0 0/1 | 0 1

A history has a title, perhaps options, the events, then every batch as it was sent (epoch/sequence, with `p1:` before
those of partition 1), and the ends in the order of `send` and of calls. Events:

    send send:3 send/p1 old:5000   a batch is appended: one record; three records; for partition 1; 5 s old
    ok ok@7 refused ...            the oldest Produce is answered: success; with an offset; a code (`CODES`)
    forgot@20                      the leader no longer knows the producer, and its log starts at 20
    lost down up                   the connection to node 0 is lost; its port refuses; it accepts again
    100ms tick:100                 time passes, with a step at the end; without a step
    due=100                        sleeps until the engine asked to be called, which must take 100 ms
    rest                           all remaining requests succeed
    sent=3 waits                   three batches have been sent so far; no call has ended yet
    says:"may be in the log"       one of the errors so far contains these words
    doomed sound fatal             the transaction can only be aborted; there is no error; the producer has failed
    flush close abandon            calls of any producer
    begin commit abort prepare     calls of a transactional producer

Ends of a batch: its offset; `open`; `failed`, or `doubtful` if it may be in the log; `expired`, or `expired?` if it may
be. A split batch has the ends of its parts, joined by `+`. Ends of a call: `done`, `waiting`, `aborted` or the name of
its error.
"""

from __future__ import annotations

import re
from ast import literal_eval
from dataclasses import dataclass
from typing import Any

import pytest

from kafka_sink.errors import DeliveryError, DeliveryTimeout, TransactionAborted, TransportError
from kafka_sink.kafka.wire.apis import PRODUCE
from kafka_sink.producer.engine.commands import Abandon, Append, Close, Flush
from kafka_sink.producer.engine.producer_batch import ProducerBatch
from tests.unit.producer.engine.driver import EngineDriver, new_batch
from tests.unit.producer.engine.transaction_driver import TransactionDriver

CODES = {
    "server_error": -1, "ok": 0, "not_leader": 6, "timed_out": 7, "too_large": 10, "not_enough": 19, "after_append": 20,
    "out_of_order": 45, "duplicate": 46, "stale_epoch": 47, "invalid_state": 48, "id_forbidden": 53,
    "storage_error": 56, "forgot": 59, "refused": 87, "fenced": 90, "abortable": 120, "newer": 4711,
}  # fmt: skip
ROW = re.compile(
    r"(?P<title>\S.+)\n(?:    with (?P<options>.+)\n)?(?P<events>(?:    (?!=>).+\n)+)(?:    => (?P<outcome>.*)\n)?"
)
EVENT = re.compile(r'(?:[^\s"]|"[^"]*")+')


@dataclass(frozen=True)
class History:
    title: str
    options: dict[str, Any]
    events: list[str]
    outcome: str


def histories(table: str) -> pytest.MarkDecorator:
    """Makes one test of each history in the table; every line of the table must belong to one."""
    rows = []
    for block in table.strip("\n").split("\n\n"):
        row = ROW.fullmatch(f"{block}\n")
        assert row, f"no history: {block}"
        options = dict(option.split("=") for option in (row["options"] or "").split())
        values = {name: _value(text) for name, text in options.items()}
        rows.append(History(row["title"], values, EVENT.findall(row["events"]), row["outcome"] or ""))
    return pytest.mark.parametrize("history", rows, ids=[row.title for row in rows])


def _value(text: str) -> Any:
    try:
        return literal_eval(text)
    except ValueError:
        return text


def plain(options: dict[str, Any]) -> EngineDriver:
    """A producer without transactions; partition 0 has been written to."""
    return EngineDriver(warm=[0], **options)


def in_transaction(transaction_version: int, options: dict[str, Any]) -> TransactionDriver:
    """An open transaction in which partition 0 has been written to; coordinator and leader are different nodes."""
    driver = TransactionDriver(transaction_version, brokers=2, coordinator=1, **options)
    assert driver.ok(driver.begin())
    driver.warm(0)
    driver.hold(PRODUCE)
    return driver


def play(driver: EngineDriver, history: History) -> str:
    """Plays all events and returns the outcome."""
    stage = Stage(driver)
    for event in history.events:
        stage.play(event)
    return stage.outcome


class Stage:
    def __init__(self, driver: EngineDriver) -> None:
        self.driver = driver
        # Batches and operation ids, in their order.
        self.acts: list[ProducerBatch | int] = []

    @property
    def outcome(self) -> str:
        return " ".join([*self.sent, "|", *map(self._end_of, self.acts)])

    @property
    def sent(self) -> list[str]:
        return [
            f"{f'p{sent.partition}:' if sent.partition else ''}{sent.identity.producer_epoch}/{sent.base_sequence}"
            for sent in self.driver.sent
        ]

    def play(self, event: str) -> None:
        name, _, number = re.sub("[:@=]", " ", event, count=1).partition(" ")
        if name.startswith("send"):
            self.acts.append(self.driver.send(int(name.partition("/p")[2] or 0), int(number or 1)))
        elif name in CODES:
            where = {"log_start_offset" if name == "forgot" else "base_offset": int(number)} if number else {}
            self.driver.answer(CODES[name], **where)
        elif name.endswith("ms"):
            self.driver.sleep(int(name[:-2]))
        elif name == "says":
            self._says(number.strip('"'))
        elif number:
            getattr(self, f"_{name}")(int(number))
        else:
            getattr(self, f"_{name}", lambda: self._call(name))()

    # ---- events ----------------------------------------------------------------------------------------------------

    def _old(self, age_ms: int) -> None:
        batch = new_batch(opened_ms=self.driver.now_ms - age_ms)
        self.driver.run(Append([batch]))
        self.acts.append(batch)

    def _lost(self) -> None:
        self.driver.disconnect()

    def _down(self) -> None:
        self.driver.cluster.refusing.add(0)

    def _up(self) -> None:
        self.driver.cluster.refusing.clear()

    def _tick(self, time_ms: int) -> None:
        self.driver.now_ms += time_ms

    def _due(self, time_ms: int) -> None:
        assert self.driver.sleep_until_due() == time_ms

    def _rest(self) -> None:
        while self.driver.produces or self.driver.engine._batches.incomplete:
            if self.driver.produces:
                self.driver.answer()
            else:
                self.driver.sleep_until_due()

    def _sent(self, count: int) -> None:
        assert len(self.sent) == count, self.sent

    def _waits(self) -> None:
        assert not self.driver.finished.keys() & set(self.acts)

    def _says(self, words: str) -> None:
        ends = (*self.driver.failed.values(), *self.driver.finished.values())
        assert any(words in str(end.error) for end in ends), words

    def _doomed(self) -> None:
        assert isinstance(self.driver.engine.refusal, TransactionAborted)

    def _sound(self) -> None:
        assert self.driver.engine.refusal is None

    def _fatal(self) -> None:
        assert not isinstance(self.driver.engine.refusal, TransactionAborted | None)

    def _abandon(self) -> None:
        self.driver.run(Abandon(TransportError("enough")))

    def _flush(self) -> None:
        self._post(Flush(self.driver.operation_id()))

    def _close(self) -> None:
        self._post(Close(self.driver.operation_id()))

    def _post(self, call: Flush | Close) -> None:
        self.driver.run(call)
        self.acts.append(call.operation)

    def _call(self, name: str) -> None:
        self.acts.append(getattr(self.driver, name)())

    # ---- ends ------------------------------------------------------------------------------------------------------

    def _end_of(self, act: ProducerBatch | int) -> str:
        driver = self.driver
        if isinstance(act, int):
            if act not in driver.finished:
                return "waiting"
            error = driver.finished[act].error
            return "done" if error is None else "aborted" if isinstance(error, TransactionAborted) else error.name
        if act in driver.delivered:
            return str(driver.offset_of(act))
        if act in driver.failed:
            error = driver.error_of(act)
            if not isinstance(error, DeliveryError):
                return error.name
            if isinstance(error, DeliveryTimeout):
                return "expired?" if error.ambiguous else "expired"
            return "doubtful" if error.ambiguous else "failed"
        parts = [part for part in (*driver.delivered, *driver.failed) if part.split_from is act]
        return "+".join(map(self._end_of, parts)) or "open"
