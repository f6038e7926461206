"""What applications do with a producer, as scripts: generators that yield how long to sleep, or a call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kafka_sink.errors import TransactionAborted
from kafka_sink.producer.engine import commands as c
from kafka_sink.producer.engine.commands import TransactionEvent, TransactionReceipt
from tests.sim.client import Client, MakeCall, Script
from tests.sim.history import End, Fate, Transaction
from tests.sim.scenario import TOPICS, TRANSACTIONAL
from tests.sim.trace import Violation

# With few retries, the first try after the last fault may still go to a former leader.
RECOVERY_TRIES = 6
RECOVERY_PAUSE_MS = 1_000
# A coordinator makes the changes of a transaction one by one, and a broker answers the requests of a connection one by
# one. In a slow cluster that takes seconds, and a producer with a shorter time-out would succeed at random.
PATIENT_MS = 5_000


def group_of(transactional_id: str) -> str:
    return f"readers-of-{transactional_id}"


class Stage:
    """What all scripts of a run can see: whether to stop, and receipts that wait for a new owner."""

    def __init__(self, make_quick: Callable[[], None]) -> None:
        self.is_over = False
        # Makes brokers and network answer everything without delay from then on.
        self.make_quick = make_quick
        self.receipts: dict[str, tuple[TransactionReceipt, Transaction]] = {}


def script(client: Client, stage: Stage) -> Script:
    return _transactional(client, stage) if client.plan.kind == TRANSACTIONAL else _plain(client, stage)


def _plain(client: Client, stage: Stage) -> Script:
    pick = client.pick
    while not stage.is_over:
        for _ in range(pick.randint(1, 4)):
            client.send(pick.choice(TOPICS))
        if pick.random() < 0.05:
            result = yield c.Flush
            _check_flushed(client, result)
        yield _pause_ms(client)
        if client.refusal is not None:
            break
    result = yield c.Flush
    _check_flushed(client, result)
    if stage.is_over:
        yield from _prove_recovery(client, stage)
    yield c.Close
    yield 1
    client.watch.check_empty()
    return None


def _recovery_tries(client: Client) -> int:
    """Every broker's connection may be silent for ever; each is found out by a request that gets no answer."""
    options = client.plan.options
    return RECOVERY_TRIES + len(options.bootstrap_servers) * options.request_timeout_ms // RECOVERY_PAUSE_MS


def _prove_recovery(client: Client, stage: Stage) -> Script:
    """After all faults a producer that still accepts records must be able to deliver them to every partition."""
    last_error = None
    _leave_nothing_to_luck(client, stage)
    for _ in range(_recovery_tries(client)):
        if client.refusal is not None:
            return None
        records = client.send_to_all()
        yield c.Flush
        lost = [one for one in records if one.fate is not Fate.DELIVERED]
        if records and not lost:
            client.trace.count("producer recovered")
            return None
        last_error = lost[0] if lost else None
        yield RECOVERY_PAUSE_MS
    raise Violation("I12", f"{client.name} works again and still delivers nothing: {last_error}")


def _pause_ms(client: Client) -> int:
    return 1 + int(client.pick.expovariate(1 / client.plan.pause_ms))


def _check_flushed(client: Client, result: c.Finished | None) -> None:
    if result is not None and result.error is not None and client.refusal is None:
        raise Violation("I6", f"{client.name}: flush failed though the producer works: {result.error}")


def _transactional(client: Client, stage: Stage) -> Script:
    waiting = stage.receipts.pop(str(client.plan.options.transactional_id), None)
    if waiting is not None:
        error = yield from _resume(client, *waiting)
    else:
        error = yield from _ask(partial(c.TransactionStep, event=TransactionEvent.INIT))
    while error is None and not stage.is_over:
        error = yield from _one_transaction(client, stage)
        if client.transaction is not None and client.transaction.is_prepared:
            break
        yield _pause_ms(client)
    if error is None and (client.transaction is None or not client.transaction.is_prepared):
        yield from _prove_commit(client, stage)
    yield from _ask(c.Close)
    yield 1
    client.watch.check_empty()
    return error


def _leave_nothing_to_luck(client: Client, stage: Stage) -> None:
    if client.plan.options.delivery_timeout_ms < PATIENT_MS:
        stage.make_quick()


def _prove_commit(client: Client, stage: Stage) -> Script:
    """After all faults a producer that was not fenced must be able to commit."""
    _leave_nothing_to_luck(client, stage)
    for _ in range(_recovery_tries(client)):
        error = yield from _ask(partial(c.TransactionStep, event=TransactionEvent.BEGIN))
        if error is None:
            client.transaction = transaction = client.history.begin(str(client.plan.options.transactional_id))
            has_records = bool(client.send_to_all())
            error = yield from _end(client, transaction, commit=True)
        if error is not None:
            return error
        if has_records and transaction.end is End.COMMITTED:
            client.trace.count("transactional producer recovered")
            return None
        yield RECOVERY_PAUSE_MS
    raise Violation("I12", f"{client.name} works again and still commits nothing")


def _ask(call: MakeCall) -> Script:
    result = yield call
    assert result is not None
    return result.error


def _resume(client: Client, receipt: TransactionReceipt, transaction: Transaction) -> Script:
    """Another producer takes over the prepared transaction and ends it."""
    client.trace.count("transaction resumed from its receipt")
    error = yield from _ask(lambda number: c.ResumeTransaction(number, receipt))
    client.transaction = transaction
    transaction.is_prepared = False
    if error is None:
        error = yield from _end(client, transaction, commit=client.pick.random() < 0.8)
    return error


def _one_transaction(client: Client, stage: Stage) -> Script:
    pick = client.pick
    error = yield from _ask(partial(c.TransactionStep, event=TransactionEvent.BEGIN))
    if error is not None:
        return error
    client.transaction = transaction = client.history.begin(str(client.plan.options.transactional_id))
    for _ in range(pick.choice((0, 1, 1, 2, 4, 8))):
        for _ in range(pick.randint(1, 4)):
            client.send(pick.choice(TOPICS))
        yield _pause_ms(client)
        if pick.random() < 0.03:
            yield c.Flush
    if pick.random() < 0.2:
        error = yield from _send_offsets(client, transaction)
    if error is None and pick.random() < 0.15:
        return (yield from _prepare(client, stage, transaction))
    return (yield from _end(client, transaction, commit=error is None and pick.random() < 0.8))


def _send_offsets(client: Client, transaction: Transaction) -> Script:
    offset = transaction.number + 1
    client.trace.count("offsets sent in a transaction")
    transaction.offsets = {("source", 0): offset}
    group = c.ConsumerGroup(group_of(transaction.transactional_id))
    return (yield from _ask(lambda number: c.SendOffsets(number, group, {("source", 0): (offset, -1, "")})))


def _prepare(client: Client, stage: Stage, transaction: Transaction) -> Script:
    """Prepares the transaction and hands it over, or keeps it and ends it with the same producer."""
    result = yield partial(c.TransactionStep, event=TransactionEvent.PREPARE)
    assert result is not None
    if result.error is not None:
        return (yield from _end(client, transaction, commit=False))
    assert isinstance(result.result, TransactionReceipt)
    client.trace.count("transaction prepared")
    transaction.is_prepared = True
    if client.pick.random() < 0.3:
        yield _pause_ms(client)
        transaction.is_prepared = False
        return (yield from _end(client, transaction, commit=client.pick.random() < 0.8))
    transaction.wanted_commit = True  # the next owner decides
    stage.receipts[transaction.transactional_id] = (result.result, transaction)
    return None


def _end(client: Client, transaction: Transaction, *, commit: bool) -> Script:
    """Ends it as the Java client recommends: what cannot be committed is aborted; a fatal error is final."""
    if commit:
        transaction.wanted_commit = True
        error = yield from _ask(partial(c.TransactionStep, event=TransactionEvent.COMMIT))
        if error is None:
            transaction.end = End.COMMITTED
            client.trace.count("transaction committed")
            return None
        if not isinstance(error, TransactionAborted):
            transaction.end = End.UNKNOWN
            return error
    error = yield from _ask(partial(c.TransactionStep, event=TransactionEvent.ABORT))
    transaction.end = End.ABORTED if error is None else End.UNKNOWN
    client.trace.count("transaction aborted" if error is None else "transaction ended in a fatal error")
    return error
