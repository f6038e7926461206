"""What an operator reads when a batch was not delivered: which batch and rows, whether data is safe, what to do next.

One function per situation; `batch` is the one that was to be committed. No text contains record contents or settings
that could be secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka_sink.error_table import commits
from kafka_sink.error_table.entry import ErrorEntry
from kafka_sink.errors import CommitAborted, CommitLost, CommitPending
from kafka_sink.exactly_once.ledger import LedgerRecord, TransactionOutcome
from kafka_sink.exactly_once.session import DeliverySettings

# At most this many slots or topics are named; the rest is only counted.
NAMED_MAX = 10


def aborted_error(batch: LedgerRecord, reason: str, entry: ErrorEntry = commits.NOT_COMMITTED) -> CommitAborted:
    again = "it may be written again" if batch.key.is_label else "the batch may run again (restart the query)"
    text = (
        f"{_batch(batch)} was not committed: {reason}. Nothing of it is visible and nothing is lost: "
        f"the input is still with Spark, and {again}"
    )
    return CommitAborted(text, entry, **_facts(batch))


def not_started_error(sink_id: str, operation: str, reason: str) -> CommitAborted:
    text = f"{operation} of sink {sink_id!r} was not possible: {reason}. Nothing was changed; it may be tried again"
    return CommitAborted(text, commits.NOT_STARTED, sink_id=sink_id)


def fenced_error(batch: LedgerRecord, reason: str) -> CommitAborted:
    if batch.key.is_label:
        return _export_taken_over_error(batch, reason)
    return aborted_error(
        batch,
        f"another driver of sink {batch.sink_id!r} has taken over ({reason}). Each sink id has one live writer: stop "
        "the other query, or give this one a sink.id of its own",
        commits.TAKEN_OVER,
    )


def superseded_error(batch: LedgerRecord, newest: LedgerRecord) -> CommitAborted:
    if batch.key.is_label:
        return _export_taken_over_error(batch, f"its last record says {newest.kind.value!r}")
    return aborted_error(
        batch,
        f"a newer run of sink {batch.sink_id!r} has taken over (its last record is about {newest.key}). Stop this "
        "query, or give it a sink.id of its own",
        commits.TAKEN_OVER,
    )


def _export_taken_over_error(batch: LedgerRecord, reason: str) -> CommitAborted:
    return aborted_error(
        batch,
        f"another run of the export {batch.key.batch_id!r} of sink {batch.sink_id!r} has taken over ({reason}). Let "
        f"that one end; `pykafka-sink ledger --sink-id {batch.sink_id}` shows whether it has delivered the export, and "
        "what is delivered is not written again",
        commits.EXPORT_TAKEN_OVER,
    )


def rolled_back_error(batch: LedgerRecord, newest: LedgerRecord) -> CommitAborted:
    return aborted_error(
        batch,
        f"the ledger says that {newest.key} was already {'decided' if newest.entries else 'delivered'}, which is "
        "later: the checkpoint has been rolled back to an older state. Continuing would write rows a second time. "
        "Restore the newer checkpoint, or start with a new checkpoint or sink.id if duplicates are acceptable",
        commits.CHECKPOINT_SET_BACK,
    )


def other_rows_error(record: LedgerRecord, batch: LedgerRecord, how: str, *, is_own: bool) -> CommitAborted:
    """`is_own`: they were delivered by the same run."""
    if is_own:
        cause = (
            "The same run delivered it: inside foreachBatch each write of one batch needs its own sink.id. Set it and "
            "start the query again: it writes the missing rows of this batch, and nothing twice"
        )
    elif record.key.query_id:
        cause = (
            "Either the checkpoint is an older copy and Spark has planned other input under this number, or the query "
            "produces different rows each time it runs, or writes one batch twice under one sink.id. In the first case "
            "restore the newer checkpoint, or start with a new one"
        )
    else:
        cause = "If this is another export, give it its own batch.id"
    text = (
        f"{_batch(batch)} comes again with other rows: delivered under this name "
        f"were {_counts(record.topics)}, this time there are {_counts(batch.topics)} ({how}). Nothing was "
        f"written this time, and what was delivered is untouched. {cause}. replay.mismatch=warn drops these rows and "
        "goes on with what was delivered"
    )
    return CommitAborted(text, commits.OTHER_ROWS, **_facts(batch))


def dropped_rows_text(record: LedgerRecord, batch: LedgerRecord, how: str) -> str:
    return (
        f"{record.key} was delivered before with {_counts(record.topics)}, and was repeated with "
        f"{_counts(batch.topics)} ({how}). The delivered rows stay; the rows of the repetition were not written. "
        "That is correct for a query that produces different rows each time it runs (rand(), uuid(), a shuffle without "
        "order). Rows are lost if the checkpoint was set back, or if two writes use this name"
    )


def unknown_sink_error(batch: LedgerRecord, ledger_topic: str) -> CommitAborted:
    return aborted_error(
        batch,
        f"the ledger topic {ledger_topic!r} has no record of sink {batch.sink_id!r}, although this query has run "
        "batches before. If the ledger was deleted, or another one is configured, it is not known what was delivered. "
        "If the query was at-least-once or used another sink.id until now, set ledger.accept.new.sink=true. After a "
        "change of sink.id, first run `pykafka-sink recover` with the old one: it completes decisions that no query "
        "completes any more",
        commits.SINK_UNKNOWN,
    )


def other_cluster_error(record: LedgerRecord, settings: DeliverySettings) -> CommitAborted:
    """The text is about the record, whichever batch was to be committed: nothing of that batch is visible either."""
    text = (
        f"{_of_record(record)} was decided in the Kafka cluster {record.cluster_id!r}, and this one is "
        f"{settings.cluster_id!r}: the ledger topic {settings.ledger_topic!r} was copied from there, and the "
        "transactions that it names are not here. Nothing was written. If that cluster is alive, run `pykafka-sink "
        "recover` there. Then look whether the rows of that batch are in this one: `pykafka-sink resolve --accept` "
        "takes it as delivered and goes on, `pykafka-sink resolve --replay` has the query run it again"
    )
    return CommitAborted(text, commits.OTHER_CLUSTER, **_facts(record))


def pending_error(record: LedgerRecord, outcomes: Sequence[TransactionOutcome | None], reason: str) -> CommitPending:
    open_count = sum(outcome is None for outcome in outcomes)
    text = (
        f"{_of_record(record)} is decided, but {open_count} of {len(record.entries)} transactions are not known to be "
        f"committed yet: {reason}. {_who_finishes(record)}"
    )
    return CommitPending(text, commits.COMMIT_PENDING, **_facts(record))


def in_doubt_error(record: LedgerRecord, reason: str) -> CommitPending:
    text = (
        f"{_of_record(record)}: whether the decision to commit it was written to the ledger is not known: {reason}. "
        f"Its transactions are left as they are. {_who_finds_out(record)}"
    )
    return CommitPending(text, commits.IN_DOUBT, **_facts(record))


def not_recorded_error(record: LedgerRecord, reason: str) -> CommitPending:
    text = (
        f"{_of_record(record)} is committed and visible, but the ledger could not be updated: {reason}. "
        f"{_who_closes(record)}"
    )
    return CommitPending(text, commits.NOT_RECORDED, **_facts(record))


def choice_not_recorded_error(record: LedgerRecord, reason: str) -> CommitPending:
    choice = "accepted as it is" if record.is_accepted else "to run again"
    text = (
        f"It is not known whether the ledger has recorded that {_of_record(record)} is {choice}: {reason}. If it has "
        "not, the query stops at this batch as before. Check with `pykafka-sink ledger`, and resolve it again if it is "
        "still shown as lost; no row was changed"
    )
    return CommitPending(text, commits.CHOICE_NOT_RECORDED, **_facts(record))


def other_pending_error(batch: LedgerRecord, record: LedgerRecord, reason: str) -> CommitPending:
    text = (
        f"{_of_record(record)} was decided earlier and is not finished: {reason}. Until it is, "
        f"{_batch(batch)} cannot be committed; nothing of it is visible and it may "
        "run again. Restart the query within the transaction timeout; it finishes the earlier batch first"
    )
    return CommitPending(text, commits.EARLIER_PENDING, **_facts(batch))


def not_discarded_error(batch: LedgerRecord, reason: str) -> CommitPending:
    text = (
        f"{_batch(batch)} was delivered by an earlier run and every row is visible, "
        f"but what this run wrote for it again could not be discarded: {reason}. Nothing of that will become visible. "
        "Run the query again when the partition has a leader; nothing is lost and nothing is written twice"
    )
    return CommitPending(text, commits.NOT_DISCARDED, **_facts(batch))


def not_helped_text(record: LedgerRecord, trouble: str) -> str:
    return (
        f"{_of_record(record)}, a write of another driver, is decided and not finished: {trouble}. If that driver does "
        f"not live any more, `pykafka-sink recover --sink-id {record.sink_id}` finishes it"
    )


def lost_error(record: LedgerRecord, outcomes: Sequence[TransactionOutcome | None]) -> CommitLost:
    committed = sum(outcome is TransactionOutcome.COMMITTED for outcome in outcomes)
    text = (
        f"{_of_record(record)} was decided, but not all of its transactions could be committed, most likely because "
        f"they timed out before the query ran again. {committed} of {len(outcomes)} are committed and visible. "
        f"{_missing(record, outcomes)}"
    )
    if not record.key.is_named:
        end = (
            "Nothing of it is visible: it may be written again"
            if not committed
            else "It is visible in part, and writing it again doubles the visible rows: look into the topic first"
        )
        text += f"{end}. `pykafka-sink resolve --accept --sink-id {record.sink_id}` takes this note out of the ledger"
        return CommitLost(text, commits.WRITE_IN_PART, **_facts(record))
    text += (
        "The query stops here until you choose: `pykafka-sink resolve --replay` runs the batch again (rows that are "
        "visible already appear twice), `pykafka-sink resolve --accept` goes on without the missing rows"
    )
    return CommitLost(text, commits.ROWS_LOST, **_facts(record))


# ---- pieces ----


def _batch(record: LedgerRecord) -> str:
    return f"{record.key} ({record.row_count} rows to {_names(record.topics)})"


def _who_finishes(record: LedgerRecord) -> str:
    if not record.key.is_named:
        return (
            "No row is lost: Spark's abort of this write finishes it, and so does the planning of another write with "
            f"this ledger, or `pykafka-sink recover --sink-id {record.sink_id}`, before the transactions time out. Do "
            "not write it again before"
        )
    return (
        "No row is lost as long as the query, or `pykafka-sink recover`, runs again before the transactions time out; "
        "it finishes this batch first and writes nothing twice"
    )


def _who_finds_out(record: LedgerRecord) -> str:
    if not record.key.is_named:
        return (
            "Spark's abort of this write reads the ledger, and then finishes the write or aborts it. If it could not, "
            f"`pykafka-sink recover --sink-id {record.sink_id}` finishes what is decided; do it before they time out"
        )
    return (
        "Run the query again, or `pykafka-sink recover`, before they time out: it reads the ledger, and then either "
        "finishes this batch or runs it again; nothing is written twice"
    )


def _who_closes(record: LedgerRecord) -> str:
    if not record.key.is_named:
        return f"Do not write it again. `pykafka-sink recover --sink-id {record.sink_id}` takes its decision out"
    return (
        "Run the query again: it finds the decision, sees that all is committed, and continues; nothing is written "
        "twice"
    )


def _of_record(record: LedgerRecord) -> str:
    return f"{_batch(record)} of sink {record.sink_id!r}"


def some(named: Sequence[str], more: str) -> str:
    """The first of them, and how many more there are."""
    rest = f" and {len(named) - NAMED_MAX} {more}" if len(named) > NAMED_MAX else ""
    return ", ".join(named[:NAMED_MAX]) + rest


def _counts(rows: Mapping[str, int]) -> str:
    return some([f"{count} rows to {topic}" for topic, count in sorted(rows.items())], "topics more") or "no rows"


def _names(topics: Iterable[str]) -> str:
    return some(sorted(topics), "more") or "no topic"


def _missing(record: LedgerRecord, outcomes: Sequence[TransactionOutcome | None]) -> str:
    """The transactions that are not committed, and what became of them."""
    text = ""
    for wanted, title in (
        (TransactionOutcome.LOST, "Not committed, rows not visible"),
        (TransactionOutcome.UNRESOLVED, "Ended in a way that can no longer be read"),
    ):
        found = [entry for entry, outcome in zip(record.entries, outcomes, strict=True) if outcome is wanted]
        named = [
            f"Spark partition {entry.spark_task} ({entry.row_count} rows, among others to "
            f"{entry.topic}-{entry.partition} up to offset {entry.last_offset})"
            for entry in found
        ]
        if found:
            text += f"{title}: {sum(entry.row_count for entry in found)} rows of {some(named, 'more')}. "
    return text


def _facts(record: LedgerRecord) -> Mapping[str, Any]:
    return {
        "sink_id": record.sink_id,
        "query_id": record.key.query_id,
        "batch_id": record.key.batch_id,
        "row_count": record.row_count,
        "topics": tuple(sorted(record.topics)),
    }
