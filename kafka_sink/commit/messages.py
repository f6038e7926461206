"""What an operator reads when a batch was not delivered: which batch and rows, whether data is safe, what to do next.

One function per situation; `batch` is the one that was to be committed. Commands to run are complete (see
command_texts.py) and work when the text is read: before the time-out of the transactions and after it. No text contains
record contents or settings that could be secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka_sink.commit.command_texts import CommandTexts
from kafka_sink.commit.division import Division
from kafka_sink.commit.ledger import LedgerRecord, OtherName, TransactionOutcome
from kafka_sink.commit.receipt import UNNAMED_BATCH, BatchKey
from kafka_sink.commit.session import DeliverySettings
from kafka_sink.errors import CommitAborted, CommitLost, CommitPending
from kafka_sink.errors.table import commits
from kafka_sink.errors.table.entry import ErrorEntry

# At most this many entries of a list are named; the rest is only counted.
NAMED_MAX = 10
# A text is read whenever somebody comes.
_LATER = "After that the same command finds out whether rows are missing"


STILL_ACCEPTED = (
    "ledger.accept.new.sink is set, and the ledger knows this sink: take the option out before the next start. As long "
    "as it is set, a ledger or sink.id that is given by mistake is not noticed, and a batch may be written again"
)
# How notes begin that do not change from start to start.
OPEN_ELSEWHERE = "open decisions of another Kafka cluster are left alone: "
COPIED_LATE = "copied records are passed over: "
SWEPT = (
    "an operator's command (transactions --abort), or the abort of a later batch, was aborting what this sink has open"
)


def aborted_error(batch: LedgerRecord, reason: str, entry: ErrorEntry = commits.NOT_COMMITTED) -> CommitAborted:
    again = "it may be written again" if batch.key.is_label else "the batch may run again (restart the query)"
    text = (
        f"{_batch(batch)} was not committed: {reason}. Nothing of it is visible and nothing is lost: "
        f"the input is still with Spark, and {again}"
    )
    return CommitAborted(text, entry, **_facts(batch))


def complete_reason(commands: CommandTexts, sink_id: str, reason: str, entry: ErrorEntry) -> str:
    """With the way out of a record that cannot be read: the command finds those of the sink."""
    if entry is not commits.LEDGER_UNREADABLE:
        return reason
    return (
        f"{reason}. If a newer release has written the record, use that release. Otherwise "
        f"`{commands.set_aside(sink_id)}` says what is given up with it, and asks{commands.hint}"
    )


def not_started_error(sink_id: str, operation: str, reason: str) -> CommitAborted:
    text = f"{operation} of sink {sink_id!r} was not possible: {reason}. Nothing was changed; it may be tried again"
    return CommitAborted(text, commits.NOT_STARTED, sink_id=sink_id)


# The first claim of a run that died may be held back in a network, and no reader can tell.
_IF_NONE_LIVES = "If none lives, the claim of one that has ended came late: start this one again"


def fenced_error(commands: CommandTexts, batch: LedgerRecord, reason: str) -> CommitAborted:
    if batch.key.is_label:
        return _export_taken_over_error(commands, batch, reason)
    return aborted_error(
        batch,
        f"another driver of sink {batch.sink_id!r} has taken over ({reason}). {_which_to_stop(batch)}. "
        f"{_IF_NONE_LIVES}",
        commits.TAKEN_OVER,
    )


def superseded_error(commands: CommandTexts, batch: LedgerRecord, newest: LedgerRecord) -> CommitAborted:
    if batch.key.is_label:
        return _export_taken_over_error(commands, batch, f"its last record says {newest.kind.value!r}")
    return aborted_error(
        batch,
        f"a newer run of sink {batch.sink_id!r} has taken over (its last record is about {newest.key}). "
        f"{_which_to_stop(batch)}",
        commits.TAKEN_OVER,
    )


def _which_to_stop(batch: LedgerRecord) -> str:
    """A name that is shared by accident is no reason: the query is a part of the sink id, where it is known."""
    if not batch.key.query_id:
        return "Each sink id has one live writer: stop the other query, or give this one a sink.id of its own"
    return (
        "This query runs twice, with one checkpoint or a copy of it: stop one of the two. Another sink.id would write "
        "its rows twice"
    )


def _export_taken_over_error(commands: CommandTexts, batch: LedgerRecord, reason: str) -> CommitAborted:
    return aborted_error(
        batch,
        f"another run of the export {batch.key.batch_id!r} of sink {batch.sink_id!r} has taken over ({reason}). Let "
        f"that one end; `{commands.ledger(batch.sink_id)}` shows whether it has delivered the export, and what is "
        f"delivered is not written again{commands.hint}",
        commits.EXPORT_TAKEN_OVER,
    )


def rolled_back_error(batch: LedgerRecord, newest: LedgerRecord) -> CommitAborted:
    return aborted_error(
        batch,
        f"the ledger says that {newest.key} was already {'decided' if newest.entries else 'delivered'}, which is "
        "later: the checkpoint has been rolled back to an older state. Continuing would write rows a second time. "
        "Restore the newer checkpoint, or start with a new one if duplicates are acceptable",
        commits.CHECKPOINT_SET_BACK,
    )


def other_rows_error(record: LedgerRecord, batch: LedgerRecord, how: str, *, is_own: bool) -> CommitAborted:
    """`is_own`: they were delivered by the same run."""
    if is_own:
        cause = (
            "The same run delivered it: inside foreachBatch each write of one batch needs its own sink.id. If two have "
            "this one, give the second its own and start the query again: it writes the missing rows of this batch, "
            "and nothing twice. If only one has it, and the query was started again in threads of your own, nothing is "
            "missing: start it once more"
        )
    elif record.key.query_id:
        cause = (
            "If the query was changed, or an option that says where its rows go (topic, dead.letter.topic, "
            "record.errors), put that back for one start: this batch is then found, and the change works from the next "
            "one on. If the checkpoint is an older copy, and Spark has planned other input under this number, restore "
            "the newer one. Or the query has other rows each time it runs, or writes one batch twice under one sink.id"
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


def divided_error(batch: LedgerRecord, begun: Division, count: int) -> CommitAborted:
    """An export in one piece of which `count` chunks are in the ledger."""
    text = (
        f"{_batch(batch)} was begun with chunks={begun.chunks}, by={begun.by!r}: {count} of these chunks are "
        "delivered, or decided. In one piece their rows would be written again. Nothing was written this time, and "
        "what was delivered is untouched. Go on with kafka_sink.write_in_chunks(frame, options, "
        f"chunks={begun.chunks}, by={begun.by!r}); or choose another batch.id, which writes all rows, also those that "
        "are delivered"
    )
    return CommitAborted(text, commits.OTHER_CHUNKS, **_facts(batch))


def unreadable_export_error(commands: CommandTexts, sink_id: str, batch_id: str, problem: str) -> CommitAborted:
    """The record that says whether an export was written in one piece."""
    reason = complete_reason(commands, sink_id, problem, commits.LEDGER_UNREADABLE)
    text = f"what the ledger says of export {batch_id!r} cannot be read: {reason}. Nothing was written"
    return CommitAborted(text, commits.LEDGER_UNREADABLE, sink_id=sink_id, batch_id=batch_id)


def dropped_rows_text(record: LedgerRecord, batch: LedgerRecord, how: str) -> str:
    if record.key.query_id:
        loss = "Rows are lost if the checkpoint was set back, or if two writes use this name"
    else:
        loss = "If this is another export, its rows are missing: give it its own batch.id"
    return (
        f"{record.key} was delivered before with {_counts(record.topics)}, and was repeated with "
        f"{_counts(batch.topics)} ({how}). The delivered rows stay; the rows of the repetition were not written. "
        "That is correct for a query that produces different rows each time it runs (rand(), uuid(), a shuffle without "
        f"order). {loss}"
    )


def unknown_sink_error(commands: CommandTexts, batch: LedgerRecord) -> CommitAborted:
    return aborted_error(
        batch,
        f"the ledger topic {commands.ledger_topic!r} has no record of sink {batch.sink_id!r}, although this query has "
        "run batches before. If the ledger was deleted, or another one is configured, it is not known what was "
        "delivered. If the query used another sink.id until now, or a query.id that was added, changed or left out "
        "(it has none with the format), set that again until this batch has ended (trigger availableNow): if it has "
        "delivered it, a new name writes it again. Otherwise (it was at-least-once, or foreachBatch wrote none of its "
        "batches so far), or then, set ledger.accept.new.sink=true for one start. With a new name, first look at "
        f"`{commands.ledger()}`: what the old one has decided and not finished, no query finishes any more, and it "
        f"names the command that does{commands.hint}",
        commits.SINK_UNKNOWN,
    )


def other_name_error(
    batch: LedgerRecord, others: Sequence[OtherName], newest: LedgerRecord | None, ledger_topic: str
) -> CommitAborted:
    """`others`: those that may have delivered the batch, the latest first. `newest`: under the own name."""
    if newest is None:
        known = "not under this one: its checkpoint was moved, or sink.id was changed"
        how_long = "for one start"
    else:
        known = f"under this one only up to {newest.key}: sink.id, or the checkpoint, is one of earlier again"
        how_long = "until the query is past what that id has delivered"
    accept = "set ledger.accept.new.sink=true"
    names, former = [each.name for each in others], [each for each in others if not each.is_elsewhere(batch.topics)]
    if former:
        advice = (
            "Rows that were delivered under that id would be delivered again. "
            f"Set sink.id={former[0].name} and start the query again. If the rows are wanted once more, or the query "
            f"has another topic now, {accept} {how_long}; what that id has decided and not finished stays as it is"
        )
    else:
        # The driver of a copy would be fenced under its name, and its batches counted as this query's.
        advice = (
            f"That id writes to {some(sorted(others[0].topics), 'more')}, and this one to "
            f"{some(sorted(batch.topics), 'more')}: is it a copy of this checkpoint? Stop it, or give it a new "
            f"checkpoint, and {accept} here {how_long}. The same if this query has another topic now. Only if the "
            "query itself had that id, and its batches go to various topics, would that option deliver rows again: "
            f"then set sink.id={names[0]} and start the query again"
        )
    return aborted_error(
        batch,
        f"the ledger topic {ledger_topic!r} knows this query under another sink id ({some(names, 'more')}), and "
        f"{known}. {advice}",
        commits.OTHER_NAME,
    )


def other_cluster_error(record: LedgerRecord, settings: DeliverySettings) -> CommitAborted:
    """The text is about the record, whichever batch was to be committed: nothing of that batch is visible either."""
    commands = settings.commands
    text = (
        f"{_of_record(record)} was decided in the Kafka cluster {record.cluster_id!r}, and this one is "
        f"{settings.cluster_id!r}: the ledger topic {settings.ledger_topic!r} was copied from there, and the "
        "transactions that it names are not here. Nothing was written. If that cluster is alive, run "
        f"`{commands.recover_elsewhere(record.sink_id)}` with its brokers. Then look whether the rows of that batch "
        f"are in this one: `{commands.accept(record)}` takes it as delivered and goes on, `{commands.replay(record)}` "
        f"has the query run it again{commands.hint}"
    )
    return CommitAborted(text, commits.OTHER_CLUSTER, **_facts(record))


def pending_error(
    commands: CommandTexts, record: LedgerRecord, outcomes: Sequence[TransactionOutcome | None], reason: str
) -> CommitPending:
    open_count = sum(outcome is None for outcome in outcomes)
    text = (
        f"{_of_record(record)} is decided, but {open_count} of {len(record.entries)} transactions are not known to be "
        f"committed yet: {reason}. {_who_finishes(commands, record)}{commands.hint}"
    )
    return CommitPending(text, commits.COMMIT_PENDING, **_facts(record))


def open_error(
    commands: CommandTexts,
    batch: LedgerRecord,
    record: LedgerRecord,
    outcomes: Sequence[TransactionOutcome | None],
    reason: str,
) -> CommitPending:
    """`record`: a decision that was found, perhaps of an earlier batch than the one at hand, if any is."""
    if batch.key in (UNNAMED_BATCH, record.key):
        return pending_error(commands, record, outcomes, reason)
    return other_pending_error(commands, batch, record, reason)


def in_doubt_error(commands: CommandTexts, record: LedgerRecord, reason: str) -> CommitPending:
    text = (
        f"{_of_record(record)}: whether the decision to commit it was written to the ledger is not known: {reason}. "
        f"Its transactions are left as they are. {_who_finds_out(commands, record)}{commands.hint}"
    )
    return CommitPending(text, commits.IN_DOUBT, **_facts(record))


def not_recorded_error(commands: CommandTexts, record: LedgerRecord, reason: str) -> CommitPending:
    text = (
        f"{_of_record(record)} is committed and visible, but the ledger could not be updated: {reason}. "
        f"{_who_closes(commands, record)}{commands.hint}"
    )
    return CommitPending(text, commits.NOT_RECORDED, **_facts(record))


def not_closed_text(commands: CommandTexts, record: LedgerRecord, reason: str) -> str:
    """For the log, when the record was to be written after the commit."""
    return (
        f"{_of_record(record)} is committed and visible, but the ledger does not say so yet: {reason}. The next commit "
        f"of the query, or `{commands.recover(record.sink_id)}`, finds the decision, sees that all is committed, and "
        f"records it; nothing is written twice{commands.hint}"
    )


def choice_not_recorded_error(commands: CommandTexts, record: LedgerRecord, reason: str) -> CommitPending:
    again = commands.accept(record) if record.is_accepted else commands.replay(record)
    choice = "accepted as it is" if record.is_accepted else "to run again"
    text = (
        f"It is not known whether the ledger has recorded that {_of_record(record)} is {choice}: {reason}. If it has "
        f"not, the query stops at this batch as before. Look with `{commands.ledger(record.sink_id)}`; while it is "
        f"shown as lost, repeat `{again}`. No row was changed{commands.hint}"
    )
    return CommitPending(text, commits.CHOICE_NOT_RECORDED, **_facts(record))


def other_pending_error(
    commands: CommandTexts, batch: LedgerRecord, record: LedgerRecord, reason: str
) -> CommitPending:
    text = (
        f"{_of_record(record)} was decided earlier and is not finished: {reason}. Until it is, "
        f"{_batch(batch)} cannot be committed; nothing of it is visible and it may "
        f"run again. Restart the query, or run `{commands.recover(record.sink_id)}`, before the transactions of the "
        f"earlier batch time out: it is finished first. {_LATER}{commands.hint}"
    )
    return CommitPending(text, commits.EARLIER_PENDING, **_facts(batch))


def unproven_error(commands: CommandTexts, batch: LedgerRecord, record: LedgerRecord, reason: str) -> CommitPending:
    """`record`: an intent whose marker is lost, perhaps of an earlier batch than the one at hand, if any is."""
    why = f"the end of its record in the ledger is lost, and not all of its transactions tell: {reason}"
    if batch.key in (UNNAMED_BATCH, record.key):
        return in_doubt_error(commands, record, why)
    text = (
        f"{_of_record(record)}: whether it was decided is not known yet: {why}. Until it is, {_batch(batch)} cannot be "
        f"committed; nothing of it is visible and it may run again. {_who_finds_out(commands, record)}{commands.hint}"
    )
    return CommitPending(text, commits.EARLIER_PENDING, **_facts(batch))


def dropped_intent_text(record: LedgerRecord) -> str:
    """Of an intent whose marker is lost. If it was decided, its commit has not said that it was delivered."""
    again = "The query runs it again" if record.key.query_id else "It may be written again"
    return (
        f"{_of_record(record)} was not committed: its transactions are aborted, and nothing of it is visible. The end "
        f"of its record in the ledger is lost, so a commit of it may have called it decided. {again}"
    )


def not_closed_error(commands: CommandTexts, batch: LedgerRecord, record: LedgerRecord, reason: str) -> CommitPending:
    """`record`: of a decision that was found, perhaps of an earlier batch than the one at hand, if any is."""
    if batch.key in (UNNAMED_BATCH, record.key):
        return not_recorded_error(commands, record, reason)
    text = (
        f"{_of_record(record)} was decided earlier and is not finished: all of it is visible, and its record could not "
        f"be written: {reason}. Until it is, {_batch(batch)} cannot be committed; nothing of it is visible and it may "
        f"run again. {_who_closes(commands, record)}{commands.hint}"
    )
    return CommitPending(text, commits.EARLIER_PENDING, **_facts(batch))


def not_discarded_error(batch: LedgerRecord, reason: str) -> CommitPending:
    text = (
        f"{_batch(batch)} was delivered by an earlier run and every row is visible, "
        f"but what this run wrote for it again could not be discarded: {reason}. Nothing of that will become visible. "
        "Run the query again when the partition has a leader; nothing is lost and nothing is written twice"
    )
    return CommitPending(text, commits.NOT_DISCARDED, **_facts(batch))


def not_helped_text(commands: CommandTexts, record: LedgerRecord, trouble: str) -> str:
    return (
        f"{_of_record(record)}, a write of another driver, is decided and not finished: {trouble}. If that driver does "
        f"not live any more, `{commands.recover(record.sink_id)}` finishes it, before its transactions time out. "
        f"{_LATER}{commands.hint}"
    )


TAKEN_BY_RETENTION = (
    "Where a log now starts behind such an offset, retention has taken the rows and the markers, as it does while a "
    "query stands still for long; then to accept it is the usual choice, since rows of that age are gone in either case"
)


def open_elsewhere_text(ledger_topic: str, records: Sequence[LedgerRecord]) -> str:
    """Of batch writes without a label, which stop no other write."""
    clusters = some(sorted({repr(record.cluster_id) for record in records}), "more")
    return (
        f"{OPEN_ELSEWHERE}ledger topic {ledger_topic!r} was copied from {clusters}, with {len(records)} batch writes "
        "without a label that are decided and not finished. If that cluster is alive, the next planning of a write "
        "there finishes them"
    )


def copied_late_text(ledger_topic: str, record: LedgerRecord, copied: LedgerRecord) -> str:
    """`copied`: above the record, and of an earlier batch."""
    origin = f"of the Kafka cluster {copied.cluster_id!r} " if copied.cluster_id else ""
    return (
        f"{COPIED_LATE}above {record.key} of sink {record.sink_id} the ledger topic {ledger_topic!r} has a record "
        f"{origin}of {copied.key}. A stream never goes back, so a tool still copies an older ledger into this one. End "
        "that copying: compaction keeps the copy alone, and then the later batch is not known any more"
    )


def lost_error(
    commands: CommandTexts,
    record: LedgerRecord,
    outcomes: Sequence[TransactionOutcome | None],
    trouble: str = "",
    now: BatchKey | None = None,
) -> CommitLost:
    """`trouble`: why the ledger does not say so. `now`: the batch that was to be committed, if there is one."""
    committed = sum(outcome is TransactionOutcome.COMMITTED for outcome in outcomes)
    if all(outcome is TransactionOutcome.UNRESOLVED for outcome in outcomes):
        text = (
            f"{_of_record(record)} was decided, and nothing tells any more how its transactions ended. "
            f"{_missing(record, outcomes)}{TAKEN_BY_RETENTION}. "
        )
    else:
        text = (
            f"{_of_record(record)} was decided, but not all of its transactions could be committed, most likely "
            f"because they timed out before the query ran again. {committed} of {len(outcomes)} are committed and "
            f"visible. {_missing(record, outcomes)}"
        )
    if not record.key.is_named:
        text += (
            f"{_may_be_written_again(outcomes)}. `{commands.accept(record)}` takes this note out of the ledger"
            f"{commands.hint}"
        )
        return CommitLost(text, commits.WRITE_IN_PART, **_facts(record))
    if now is not None and now.is_later_than(record.key):
        text += (
            f"{_counted_as_done(now)}: `{commands.accept(record)}` has it go on without the missing rows. To have them "
            f"written, `{commands.replay(record)}`, and set the checkpoint back to before that batch (rows that are "
            f"visible already appear twice){commands.hint}"
        )
    else:
        text += (
            f"The query stops here until you choose: `{commands.replay(record)}` has it run the batch again (rows that "
            f"are visible already appear twice), `{commands.accept(record)}` has it go on without the missing rows"
            f"{commands.hint}"
        )
    if trouble:
        text += (
            f". But the ledger could not be updated: {trouble}. Each start of the query, and "
            f"`{commands.recover(record.sink_id)}`, tries that again; before it succeeds there is nothing to choose"
        )
    return CommitLost(text, commits.ROWS_LOST, **_facts(record))


def passed_over_error(record: LedgerRecord, now: BatchKey) -> CommitLost:
    """`record`: of a lost batch that an operator wanted to run again. Once a later one is decided, it cannot be any
    more: the checkpoint would be older than the ledger."""
    text = (
        f"{_of_record(record)} was lost, and chosen to run again. {_counted_as_done(now)}: set the checkpoint back to "
        "before that batch, or set ledger.accept.new.sink=true for one start, which goes on without the missing rows"
    )
    return CommitLost(text, commits.ROWS_LOST, **_facts(record))


# ---- pieces ----


def _counted_as_done(now: BatchKey) -> str:
    """Of a lost batch that nobody runs again."""
    return (
        f"Spark counts it as done: it is at {now} and does not run that one again. The query stops here until you "
        "choose"
    )


def _may_be_written_again(outcomes: Sequence[TransactionOutcome | None]) -> str:
    """Of a write without a label that was lost. Nobody can tell any more how an unresolved transaction ended."""
    if all(outcome is TransactionOutcome.LOST for outcome in outcomes):
        return "Nothing of it is visible: it may be written again"
    what = (
        "It is visible in part"
        if TransactionOutcome.UNRESOLVED not in outcomes
        else "It may be visible, in whole or in part"
    )
    return f"{what}, and writing it again doubles the visible rows: look into the topic first"


def _batch(record: LedgerRecord) -> str:
    return f"{record.key} ({record.row_count} rows to {_names(record.topics)})"


def _who_finishes(commands: CommandTexts, record: LedgerRecord) -> str:
    recover = f"`{commands.recover(record.sink_id)}`"
    if not record.key.is_named:
        return (
            "No row is lost: Spark's abort of this write finishes it, and so does the planning of another write with "
            f"this ledger, or {recover}, before the transactions time out. Do not write it again before. {_LATER}"
        )
    return (
        f"No row is lost if the query, or {recover}, runs before they time out: it finishes this batch first and "
        f"writes nothing twice. {_LATER}"
    )


def _who_finds_out(commands: CommandTexts, record: LedgerRecord) -> str:
    recover = f"`{commands.recover(record.sink_id)}`"
    if not record.key.is_named:
        return (
            "Spark's abort of this write reads the ledger, and then finishes the write or aborts it. If it could not, "
            f"{recover} finishes what is decided if it runs before they time out. {_LATER}"
        )
    return (
        f"Run the query again, or {recover}, before they time out: if it was decided, it is finished, and if not, the "
        f"query runs it again; nothing is written twice. {_LATER}"
    )


def _who_closes(commands: CommandTexts, record: LedgerRecord) -> str:
    recover = f"`{commands.recover(record.sink_id)}`"
    if not record.key.is_named:
        return f"Do not write it again. {recover} takes its decision out"
    return (
        f"Run the query again, or {recover}: it finds the decision, sees that all is committed, and records it; "
        "nothing is written twice"
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
