"""How open decisions stand: whether their transactions can still be committed, and how much time is left.

Coordinators are only asked, so it is safe while queries run. Of a transaction that its coordinator does not know any
more, or knows in another state, its last row tells what readers see (verdict.py), for as long as it is there. Else the
decision is overdue: rows may be missing. Then only the rest of the log may tell, and an operation that ends
transactions reads it. Time left is measured by the brokers' clocks, as far as these are known: it is at most all that a
transaction has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from kafka_sink.commit import messages
from kafka_sink.commit.describe_transactions import DescribeTransactions, TransactionDescription
from kafka_sink.commit.ledger import LedgerRecord, TransactionOutcome
from kafka_sink.commit.receipt import PreparedTransaction
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.commit.verdict import SeenByReaders
from kafka_sink.frozen import frozen
from kafka_sink.kafka.client.producer_identity import PRODUCER_EPOCH_MAX
from kafka_sink.kafka.wire.apis import COMPLETE_COMMIT, ONGOING, PREPARE_COMMIT

COMMITTED_STATES = (PREPARE_COMMIT, COMPLETE_COMMIT)
Outcomes = Mapping[PreparedTransaction, TransactionOutcome]
FOLLOWING_STATES = (ONGOING, *COMMITTED_STATES)
HIDDEN_TEXT = "how it stands is not yours to see: this login may not describe its transactional ids"


class Standing(Enum):
    OPEN = "open"
    # All of it; only the record that closes the decision is missing.
    COMMITTED = "committed"
    OVERDUE = "overdue"
    # The brokers do not tell.
    UNKNOWN = "unknown"
    # They do not tell this login, which may not describe all of its transactions: it is somebody else's.
    HIDDEN = "hidden"


@frozen
class OpenDecision:
    """`left_ms`: until the first of its transactions times out, if it is OPEN."""

    record: LedgerRecord
    standing: Standing
    left_ms: int | None = None


def describe_open(settings: DeliverySettings, records: Sequence[LedgerRecord]) -> DescribeTransactions:
    """The question about these decisions; `ask_rows` and `judge_open` understand what it has found."""
    ids = [one.transactional_id for record in records for one in record.transactions]
    return DescribeTransactions(settings, ids, passes_over_refused=True)


def ask_rows(
    settings: DeliverySettings, answered: DescribeTransactions, records: Sequence[LedgerRecord]
) -> SeenByReaders:
    """The question that is left: how the transactions ended whose coordinators do not say that."""
    is_told = answered.failure is None and answered.is_supported
    return SeenByReaders(
        settings,
        (
            (transaction, entry)
            for record in records
            if is_told and not _is_hidden(record, answered)
            for transaction, entry in zip(record.transactions, record.entries, strict=True)
            if not _is_told(transaction, answered.found.get(transaction.transactional_id))
        ),
    )


def judge_open(
    answered: DescribeTransactions, records: Sequence[LedgerRecord], wall_ms: int, seen: Outcomes
) -> list[OpenDecision]:
    """One for each of these records, which are intents. `wall_ms`: what time it is for the brokers. `seen`: what rows
    have told."""
    if answered.failure is not None or not answered.is_supported:
        return [OpenDecision(record, Standing.UNKNOWN) for record in records]
    return [
        OpenDecision(record, Standing.HIDDEN)
        if _is_hidden(record, answered)
        else _judge(record, answered.found, wall_ms, seen)
        for record in records
    ]


def _is_hidden(record: LedgerRecord, answered: DescribeTransactions) -> bool:
    return any(one.transactional_id in answered.refused for one in record.transactions)


def _judge(
    record: LedgerRecord, found: Mapping[str, TransactionDescription], wall_ms: int, seen: Outcomes
) -> OpenDecision:
    left: list[int] = []
    for transaction in record.transactions:
        state = found.get(transaction.transactional_id)
        if state is not None and _is_open(transaction, state):
            left.append(min(state.timeout_ms, state.start_ms + state.timeout_ms - wall_ms))
        elif not _is_told(transaction, state) and seen.get(transaction) is not TransactionOutcome.COMMITTED:
            return OpenDecision(record, Standing.OVERDUE)
    if not left:
        return OpenDecision(record, Standing.COMMITTED)
    left_ms = min(left)
    return OpenDecision(record, Standing.OPEN if left_ms > 0 else Standing.OVERDUE, left_ms)


def _is_told(transaction: PreparedTransaction, state: TransactionDescription | None) -> bool:
    """That it is open or committed."""
    signs = (_is_open, _is_committed, _has_used_up_its_epochs, _is_followed)
    return state is not None and any(is_sign(transaction, state) for is_sign in signs)


def _is_open(transaction: PreparedTransaction, state: TransactionDescription) -> bool:
    return state.state == ONGOING and state.identity == transaction.identity


def _is_committed(transaction: PreparedTransaction, state: TransactionDescription) -> bool:
    """Transaction version 2 raises the epoch with the commit."""
    epochs = (transaction.producer_epoch, transaction.producer_epoch + 1)
    is_same = state.producer_id == transaction.producer_id and state.producer_epoch in epochs
    return is_same and state.state in COMMITTED_STATES


def _has_used_up_its_epochs(transaction: PreparedTransaction, state: TransactionDescription) -> bool:
    """The commit of the last epoch gives another producer id, with its first epoch. In transaction version 2 no other
    commit leaves that one."""
    is_last = transaction.transaction_version == 2 and transaction.producer_epoch == PRODUCER_EPOCH_MAX
    is_new = state.producer_id != transaction.producer_id and state.producer_epoch == 0
    return is_last and is_new and state.state == COMPLETE_COMMIT


def _is_followed(transaction: PreparedTransaction, state: TransactionDescription) -> bool:
    """A task of the next batch uses the id again, so the commit of this one is over. It was not if user code inside
    foreachBatch has caught its error; then the next commit says what became of the batch."""
    is_later = state.producer_id == transaction.producer_id and state.producer_epoch > transaction.producer_epoch
    return transaction.transaction_version == 2 and is_later and state.state in FOLLOWING_STATES


def advice_text(found: OpenDecision, settings: DeliverySettings) -> str:
    """What is known about an open decision, and the command that works now."""
    record, commands = found.record, settings.commands
    if record.is_of_another_cluster(settings.cluster_id):
        return str(messages.other_cluster_error(record, settings))
    command = f"`{commands.recover(record.sink_id)}`"
    begin = f"{record.key} of sink {record.sink_id} is decided, and "
    if found.standing is Standing.HIDDEN:
        return f"{begin}{HIDDEN_TEXT}"
    if found.standing is Standing.OVERDUE:
        return (
            f"{begin}transactions of it have ended, or should have, before anybody was known to commit them: rows may "
            f"be missing. {command} finds out: it commits what is left, and if rows are missing, it names the commands "
            f"to choose from. A start of the query finds out as well{commands.hint}"
        )
    if found.standing is Standing.UNKNOWN:
        return (
            f"{begin}its {len(record.entries)} transactions are not known to be committed, nor how much time is left "
            f"to them (kafka.transaction.timeout.ms, 15 minutes unless set). If no query is at it, start the query or "
            f"run {command}: in time it finishes the batch, and later it says whether rows are missing{commands.hint}"
        )
    if found.standing is Standing.COMMITTED:
        return (
            f"{begin}all of its transactions are committed; only the ledger has to be told. The next commit of the "
            f"query does that, or {command}{commands.hint}"
        )
    assert found.left_ms is not None
    return (
        f"{begin}its {len(record.entries)} transactions are not known to be committed. If no query is at it, start the "
        f"query or run {command} within {found.left_ms // 1000} s: then they time out{commands.hint}"
    )
