"""Tables of short histories of micro-batches: who commits which batch, how that ends, and what holds then. The format
is that of `history.py`; each row is played with both transaction versions.

    c1 an open decision about another batch is finished and this batch goes on
        gets:"commit transaction",lost* commit:0=pending commit/2:1=delivered visible=2,2 batch=1 ledger=done

Events, and after `=` how they end (`VERDICTS`). After `/` follows the run, by default run 1; `/1b` is another process
of run 1. After `:` follows the batch, a number or a label:

    commit:0 commit/2:0          two tasks write batch 0, and it is committed
    write:0 write:0,1            two tasks of it write, or one; `write:0,0`: it has no rows. The next commit or abort
                                 uses these receipts
    abort:0                      the last receipts of batch 0 are aborted
    commit abort                 a batch write without a label
    recover finish accept replay sweep                planning, and the commands of an operator
    accept:monday                the command names the batch
    gets:"claim ledger",lost,7   the next operation gets these answers to such requests: codes, `lost`, `refused`,
                                 `unsupported`, `after` (carried out, but the answer is lost), `-` (the real answer);
                                 with `*` for all further requests
    fenced:"claim ledger"        before the next such request another client fences the driver once;
                                 `fenced:"claim ledger",2`: before the first request after two of these
    overtakes:0 overtakes_all:0  before the next commit of a transaction, the first task's transaction times out, or all
    timeout:0 timeout:0,1        the transaction of the first task, or of task 1, times out
    killed/2:0                   a task of run 2 is killed after it has written a part of batch 0
    taken                        another client has had the driver's id before
    init                         another client has sent one InitProducerId for the driver's id
    settle unmark                all markers are written; the last one in the ledger is lost with its only replica
    outdated:5000                for 5,000 ms an outdated leader answers readers that the ledger is empty
    cluster:old                  the brokers belong to cluster "old" from here on
    compacted                    the cleaner has removed every record of the ledger
    forget                       requests are counted from here

What holds: see `Facts`. `says:"..."`, `silent:"..."`: the last error and the notes contain these words, or do not.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_sink.commit.identity import run_of_label
from kafka_sink.commit.receipt import BatchKey, TaskReceipt
from kafka_sink.commit.session import CommitResult, Conclusion, DriverOperation, DriverSession
from kafka_sink.errors import CommitAborted, CommitLost, CommitPending
from kafka_sink.kafka.client.ask import Ask
from tests.support.tiny_broker import LEDGER
from tests.unit.commit.driver_bench import LOST, QUERY, REFUSED, SINK, UNSUPPORTED, Bench, after
from tests.unit.producer.engine.history import History

EVENT = re.compile(r'(\w+)(?:/(\w+))?(?::("[^"]*"|\w+))?(?:,([^="]+))?(?:=(.*))?')
FOR_EVER = 100_000
ANSWERS = {"lost": LOST, "refused": REFUSED, "unsupported": UNSUPPORTED, "after": after(LOST), "-": None}
VERDICTS: dict[Any, str] = {
    Conclusion.DELIVERED: "delivered", Conclusion.ALREADY_DELIVERED: "already", Conclusion.NOTHING_TO_DO: "nothing",
    Conclusion.RECOVERED: "recovered", Conclusion.ABORTED: "aborted", Conclusion.LEFT_ALONE: "left",
    Conclusion.RESOLVED: "resolved", CommitAborted: "refused", CommitPending: "pending", CommitLost: "lost",
}  # fmt: skip
STATES = {"CompleteAbort": "aborted", "CompleteCommit": "committed", "Ongoing": "open"}


def check(bench: Bench, history: History) -> None:
    bench.settings = replace(bench.settings, **history.options)
    facts = Facts(bench)
    for event in history.events:
        row = EVENT.fullmatch(event)
        assert row, event
        name, process, what, more, end = (part or "" for part in row.groups())
        act = getattr(facts, name, None)
        if act is None:
            facts.operate(name, process or "1", what)
            assert facts.verdict() == end, f"{event}, but it is {facts.verdict()}: {facts.last}"
        elif (found := act(process or "1", what.strip('"'), *([more] if more else []))) is not None:
            assert str(found) == end, f"{event}, but it is {found}: {facts.last}"


@dataclass
class Stage:
    bench: Bench
    # By process and label.
    sessions: dict[tuple[str, str], DriverSession] = field(default_factory=dict)
    # Receipts by run and batch, the newest last.
    written: dict[tuple[str, str], list[list[TaskReceipt]]] = field(default_factory=lambda: defaultdict(list))
    unused: set[tuple[str, str]] = field(default_factory=set)
    dead: dict[tuple[str, str], list[TaskReceipt]] = field(default_factory=lambda: defaultdict(list))
    answers: dict[str, list[Any]] = field(default_factory=dict)
    last: CommitResult | None = None
    attempts: int = 0

    def operate(self, name: str, process: str, batch: str) -> None:
        operation = DriverOperation[name.upper()]
        answers, self.answers = self.answers, {}
        if not name.startswith(("commit", "abort")):
            key = _key(batch) if batch else None
            session = self.bench.session("", key)
            # A command's choice is about a batch; planning and the others are about a line.
            key = key if operation in (DriverOperation.ACCEPT, DriverOperation.REPLAY) else None
            stopped_runs = frozenset(_run(*known) for known in (*self.written, *self.dead))
            self.last = self.bench.run(operation, session=session, key=key, answers=answers, stopped_runs=stopped_runs)
            return
        of = (process[0], batch)
        if name.startswith("commit") and of not in self.unused:
            self.write(process, batch)
        self.unused.discard(of)
        self.last = self.bench.run(operation, self.written[of][-1], self.session(process, batch), answers=answers)

    def session(self, process: str, batch: str) -> DriverSession:
        of = (process, "" if batch.isdigit() else batch)
        session = self.bench.session(_run(process, batch), _key(of[1]) if of[1] else None)
        return self.sessions.setdefault(of, session)

    def verdict(self) -> str:
        assert self.last is not None
        return VERDICTS[self.last.conclusion if self.last.error is None else type(self.last.error)]

    # ---- events

    def write(self, process: str, batch: str, tasks: str = "2") -> None:
        key = _key(batch)
        run, of = _run(process, batch), (process[0], batch)
        if tasks == "0":
            receipts = [TaskReceipt(key, run, 0, 0)]
        else:
            query = key.query_id
            receipts = self.bench.receipts(key.batch_id, run=run, attempt=self.attempts, query=query, tasks=int(tasks))
        self.attempts += 1
        self.written[of].append(receipts)
        self.unused.add(of)

    def killed(self, process: str, batch: str) -> None:
        receipt = self.bench.receipt(int(batch), 1, run=process[0] * 16, attempt=self.attempts)
        self.attempts += 1
        self.dead[process[0], batch].append(receipt)

    def gets(self, _: str, purpose: str, answers: str) -> None:
        for answer in answers.split(","):
            name = answer.removesuffix("*")
            told = ANSWERS[name] if name in ANSWERS else int(name)
            self.answers.setdefault(purpose, []).extend([told] * (FOR_EVER if answer != name else 1))

    def fenced(self, _: str, purpose: str, behind: str = "") -> None:
        def rival(request: Ask) -> None:
            if self.bench.purposes().count(purpose) == int(behind) if behind else request.purpose == purpose:
                self.bench.before = None
                self.bench.take_the_drivers_id()

        self.bench.before = rival

    def overtakes(self, process: str, batch: str) -> None:
        self.bench.times_out_before_its_commit(self.written[process, batch][-1][0])

    def overtakes_all(self, process: str, batch: str) -> None:
        def late() -> None:
            for receipt in self.written[process, batch][-1]:
                self.bench.time_out(receipt)
            self.bench.settle()

        self.bench.before_next("commit transaction", late)

    def compacted(self, *_: str) -> None:
        self.bench.settle()
        self.bench.broker.logs[LEDGER, 0].clear()

    def timeout(self, process: str, batch: str, task: str = "0") -> None:
        self.bench.time_out(self.written[process, batch][-1][int(task)])

    def init(self, *_: str) -> None:
        assert self.bench.broker.init(f"{SINK}-driver", None)[0] == 51

    def taken(self, *_: str) -> None:
        self.bench.take_the_drivers_id()

    def settle(self, *_: str) -> None:
        self.bench.settle()

    def unmark(self, *_: str) -> None:
        self.bench.lose_the_last_marker()

    def outdated(self, _: str, time_ms: str) -> None:
        self.bench.outdated = ((LEDGER, 0), 0, self.bench.now_ms + int(time_ms))

    def cluster(self, _: str, name: str) -> None:
        self.bench.settings = replace(self.bench.settings, cluster_id=name)

    def forget(self, *_: str) -> None:
        self.bench.asked.clear()

    def says(self, _: str, words: str) -> None:
        assert words in self._text(), self.last

    def silent(self, _: str, words: str) -> None:
        assert words not in self._text(), self.last

    def _text(self) -> str:
        assert self.last is not None
        return "\n".join([str(self.last.error), *self.last.notes])


class Facts(Stage):
    """Facts that a row may check, as `name=value`, with run and batch before the sign where they apply."""

    def visible(self, *_: str) -> str:
        """The number of rows of each task that readers see."""
        return ",".join(map(str, self.bench.seen()))

    def tasks(self, run: str, batch: str) -> str:
        """The states of the newest transactions of the batch."""
        return self._states(self.written[run, batch][-1])

    def earlier(self, run: str, batch: str) -> str:
        return self._states(receipt for receipts in self.written[run, batch][:-1] for receipt in receipts)

    def remains(self, run: str, batch: str) -> str:
        """The states of the transactions of killed tasks."""
        return self._states(self.dead[run, batch])

    def ledger(self, *_: str) -> str:
        """The kind of the newest record."""
        record = self.bench.ledger().get(SINK)
        return "empty" if record is None else "accepted" if record.is_accepted else record.kind.value

    def labels(self, *_: str) -> str:
        return ",".join(sorted(self.bench.ledger()))

    def batch(self, *_: str) -> object:
        """The batch id of the newest record."""
        return self.bench.ledger()[SINK].key.batch_id

    def times(self, _: str, purpose: str) -> int:
        """The number of requests with this purpose, or of all requests."""
        purposes = self.bench.purposes()
        return purposes.count(purpose) if purpose else len(purposes)

    def identity(self, process: str, batch: str) -> str:
        return "none" if self.session(process, batch).identity is None else "taken"

    def swept(self, *_: str) -> int:
        assert self.last is not None
        return len(self.last.swept)

    def notes(self, *_: str) -> int:
        assert self.last is not None
        return len(self.last.notes)

    def error(self, *_: str) -> str:
        assert self.last is not None and self.last.error is not None
        return self.last.error.name

    def _states(self, receipts: Iterable[TaskReceipt]) -> str:
        self.bench.settle()
        return ",".join(sorted({STATES[self.bench.state_of(receipt)] for receipt in receipts}))


def _run(process: str, batch: str) -> str:
    """A run of a stream, or of a label."""
    return process[0] * 16 if batch.isdigit() or not batch else run_of_label(batch, process[0], LEDGER)


def _key(batch: str) -> BatchKey:
    return BatchKey(QUERY, int(batch)) if batch.isdigit() else BatchKey("", batch)
