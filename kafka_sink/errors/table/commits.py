"""Errors of commits, of schemas and their registry, of the command line."""

from __future__ import annotations

from functools import partial

from kafka_sink.errors.table.entry import BEFORE, DECIDED, HELD, UNCHANGED, ErrorEntry

# Laid out as a table: the first line of an entry is its heading.
# fmt: off

# ---- 60xx: committing ----
NOT_COMMITTED = ErrorEntry(
    "PKS-6001", "batch not committed",
    "The driver could not commit the batch, and wrote no decision.",
    "Restart the query; it runs the batch again.",
    ("Nothing of it is visible and nothing is lost",),
    data=HELD,
)
TAKEN_OVER = ErrorEntry(
    "PKS-6002", "another run has taken over",
    "A query runs twice, with one checkpoint or a copy of it. The run that began later goes on.",
    "Stop one of the two. Another sink.id would write the rows twice.",
    ("has taken over",),
    data=HELD,
)
CHECKPOINT_SET_BACK = ErrorEntry(
    "PKS-6003", "checkpoint is older than the ledger",
    "The checkpoint was set back, restored or copied; going on would duplicate rows.",
    "Restore the newer one, or start with a new one if duplicates are acceptable.",
    ("the checkpoint has been rolled back to an older state",),
    data=HELD,
)
OTHER_ROWS = ErrorEntry(
    "PKS-6004", "repeated batch has other rows",
    "A delivered batch comes again under its name with other row counts, or in one run with other rows.",
    "Another export: its own batch.id. Two writes inside foreachBatch: a sink.id for each. A stream: put back for one "
    "start what was changed in the query, or in topic, dead.letter.topic or record.errors; or restore the newer "
    "checkpoint. replay.mismatch=warn goes on without the new rows.",
    ("comes again with other rows",),
    data="The rows that were delivered before stay. The rows of the repetition were not written.",
)
SINK_UNKNOWN = ErrorEntry(
    "PKS-6005", "ledger does not know this sink",
    "The query has run before, and is not there: deleted, in another ledger, under another sink.id or query.id, or "
    "it was at-least-once.",
    "Correct ledger.topic. If sink.id or query.id has changed, the `ledger` command of the text shows what is left "
    "open: set the old one until the batch has ended. Then, or if there was none, set "
    "ledger.accept.new.sink=true for one start.",
    ("has no record of sink",),
    data=HELD,
)
OTHER_CLUSTER = ErrorEntry(
    "PKS-6006", "ledger was copied from another cluster",
    "It has an open decision about transactions of another cluster.",
    "Run the `recover` command of the text with the brokers of the old cluster, or one of its `resolve` commands.",
    ("was copied from there",),
    data="Nothing was written. The batch of that decision may be in one of the clusters.",
)
NOT_STARTED = ErrorEntry(
    "PKS-6007", "brokers could not be asked",
    "An abort, a recovery or a command could not start: brokers did not answer, or refused.",
    "Mend the cause that the text names and try again.",
    ("was not possible",),
    data=UNCHANGED,
)
EXPORT_TAKEN_OVER = ErrorEntry(
    "PKS-6008", "another run of this export has taken over",
    "A batch.id is written twice at a time under one sink.id; the run that began later goes on.",
    "Let it end; the `ledger` command of the text shows whether it has.",
    ("another run of the export",),
    data="Safe, also to run it again: no row of this run is visible. The other run delivers the export, or raises.",
)
OTHER_NAME = ErrorEntry(
    "PKS-6009", "query has another sink id in the ledger",
    "The checkpoint was moved or copied, or sink.id was changed, perhaps back.",
    "Set sink.id to the id that the text names; if its topics are others, stop that copy of the checkpoint. "
    "ledger.accept.new.sink=true may write rows twice. Several outputs of one query: kafka_sink.write_batch for each.",
    ("knows this query under another sink id",),
    data=HELD,
)
COMMIT_PENDING = ErrorEntry(
    "PKS-6011", "batch decided but not finished",
    "Some of its transactions are not known to be committed.",
    "Restart the query, or run the `recover` command of the text, before the transactions time out "
    "(kafka.transaction.timeout.ms, 15 minutes unless set). Later, the same command tells whether rows are missing.",
    ("transactions are not known to be committed yet",),
    data=DECIDED,
)
IN_DOUBT = ErrorEntry(
    "PKS-6012", "decision in doubt",
    "Whether the decision reached the ledger is not known.",
    "Restart the query, or run the `recover` command of the text, before the transactions time out. Later, the same "
    "command tells whether rows are missing.",
    ("whether the decision to commit it was written to the ledger is not known",),
    data=DECIDED,
)
NOT_RECORDED = ErrorEntry(
    "PKS-6013", "batch delivered but not recorded",
    "The ledger could not be updated after the commit.",
    "Restart the query, or run the `recover` command of the text, which records it.",
    ("is committed and visible, but the ledger could not be updated",),
    data="Safe: every row is visible, once.",
)
CHOICE_NOT_RECORDED = ErrorEntry(
    "PKS-6014", "choice in doubt",
    "Whether the ledger has your choice about a lost batch is not known.",
    "Run the `ledger` command of the text, and the `resolve` command again while it shows the batch as lost.",
    ("It is not known whether the ledger has recorded that",),
    data="No row was changed.",
)
EARLIER_PENDING = ErrorEntry(
    "PKS-6015", "earlier batch not finished",
    "It is decided, and no other batch can be committed before it.",
    "Restart the query, or run the `recover` command of the text, within kafka.transaction.timeout.ms.",
    ("was decided earlier and is not finished",),
    data=DECIDED,
)
NOT_DISCARDED = ErrorEntry(
    "PKS-6016", "repetition not discarded",
    "An earlier run delivered the batch; what this run wrote again is still open, because a partition has no leader.",
    "Restart the query when that partition has a leader again.",
    ("what this run wrote for it again could not be discarded",),
    data="Safe: every row is visible, once.",
)
WRITE_TOO_LONG = ErrorEntry(
    "PKS-6017", "write took longer than a transaction may",
    "More than kafka.transaction.timeout.ms, less a minute for the commit, passed between the first row of the batch "
    "and its end.",
    "Divide a batch write: kafka_sink.write_in_chunks, or export_to_kafka.py with --chunks. A stream: make its batches "
    "shorter. Or raise kafka.transaction.timeout.ms and the brokers' transaction.max.timeout.ms.",
    ("The write took longer than", "the task took longer than"),
    data=HELD,
    page="guides/exports.md",
)
OTHER_CHUNKS = ErrorEntry(
    "PKS-6018", "export was begun in another way",
    "Rows of this export are delivered already, divided otherwise or to another topic: going on, rows would be missing "
    "or doubled.",
    "Go on in the way that the text names, or choose another batch.id to write all rows again.",
    ("was begun with", "was written in one piece"),
    data="Nothing was written. What is delivered stays.",
    page="guides/exports.md",
)
ROWS_ELSEWHERE = ErrorEntry(
    "PKS-6019", "manifest of another cluster or topic",
    "In a mirror, or a topic that was made again, its offsets have other rows.",
    "Read the rows where the text says.",
    ("manifests of rows that are not here",),
    data="Nothing was read.",
    page="guides/manifests.md#what-is-in-it",
)
ROWS_LOST = ErrorEntry(
    "PKS-6021", "rows of a decided batch are missing",
    "Transactions of a decided batch timed out before the query ran again.",
    "Choose one of the `resolve` commands of the text: --replay (visible rows appear twice) or --accept (missing rows "
    "stay missing).",
    ("The query stops here until you choose",),
    data="Not safe: the rows that the text names are not visible. Spark still has the input of the batch.",
    page="operations.md#commitlost",
)
WRITE_IN_PART = ErrorEntry(
    "PKS-6022", "batch write is partly visible",
    "A batch write without sink.id and batch.id failed in its commit, after some transactions.",
    "Check the topic before you write again. With sink.id and batch.id it could be repeated safely.",
    ("is visible in part",),
    data="Not safe: some rows are visible, and writing again duplicates them.",
    page="exactly-once.md#batch-writes",
)
LEDGER_UNREADABLE = ErrorEntry(
    "PKS-6031", "ledger cannot be read",
    "A newer release or another program wrote a record, or a tool copied the ledger without transactions.",
    "Use the newer release, or see what the `resolve` command of the text, with --set-aside, says you would give up.",
    ("of the ledger cannot be read",),
    data=UNCHANGED,
)
LEDGER_DAMAGED = ErrorEntry(
    "PKS-6032", "ledger is damaged",
    "A batch of it was damaged on the disk of its leader, or on the way.",
    "Let another broker lead its partition, and make the damaged replica anew.",
    ("has checked what it was sent",),
    data=UNCHANGED,
    page="operations.md#a-ledger-that-is-damaged",
)
# ---- 70xx: schemas ----
_of_schemas = partial(ErrorEntry, data=BEFORE)
SCHEMA_INVALID = _of_schemas(
    "PKS-7001", "schema cannot be read",
    "value.schema, key.schema or the registry has one that is not valid.",
    "Correct it at the position that the text gives.",
    ("is JSON, and this is not", "of the .proto file"),
)
SCHEMA_MISMATCH = _of_schemas(
    "PKS-7002", "columns do not fit the schema",
    "The text lists each mismatch.",
    "Cast or rename columns, leave out those without a field (value.columns), add a column for a field that has no "
    "default, or change the schema.",
    ("the columns do not fit the", "the schema has no field for column", "which has no default and cannot be null"),
)
SCHEMA_MISSING = _of_schemas(
    "PKS-7003", "no schema",
    "Neither an option nor a registry has one.",
    "Set value.schema, value.schema.id or schema.registry.url, as the text says.",
    ("no schema for the", "needs a schema, since field numbers"),
)
TYPE_UNWRITABLE = _of_schemas(
    "PKS-7004", "type without a schema",
    "No schema follows from a column of this type, or its description is no type of Spark.",
    "Cast the column as the text says, or give a schema.",
    ("which no format can write",),
)
REGISTRY_REFUSED = _of_schemas(
    "PKS-7005", "schema registry refused",
    "It has no such subject or schema, or calls it incompatible; its reason is in the text.",
    "Register the schema first (auto.register.schemas=true does), or make it compatible. If it should be there, look "
    "whether this is the right registry and context. A stream whose columns can be null in some batches only needs "
    "value.schema or use.latest.version=true.",
    ("the schema is not registered under", "has no subject"),
)
REGISTRY_UNREACHABLE = _of_schemas(
    "PKS-7006", "schema registry does not answer",
    "It could not be reached, or failed each time. A stream that has its schema goes on.",
    "Check schema.registry.url, and that the driver can reach it. If it is slow, raise "
    "schema.registry.http.read.timeout.ms; if its certificate is not trusted, set "
    "schema.registry.ssl.truststore.location.",
    ("did not answer: ", "again and again"),
)
REGISTRY_LOGIN = _of_schemas(
    "PKS-7007", "schema registry refused the login",
    "It does not accept the user, or the user lacks a permission.",
    "Check schema.registry.basic.auth.user.info or the bearer token, and the user's permissions.",
    ("check schema.registry.basic.auth.user.info or the bearer token",),
)
NOT_A_REGISTRY = _of_schemas(
    "PKS-7008", "answer is not from a schema registry",
    "The server at schema.registry.url is another one.",
    "Check the address: a proxy or a login page may answer.",
    ("is it the address of a schema registry", "is it a schema registry?"),
)
SUBJECT_UNNAMED = _of_schemas(
    "PKS-7009", "subject name cannot be determined",
    "The strategy needs one topic, the name of a record, or an id in another form.",
    "Set the option that the text names, or choose another strategy or framing.",
    ("needs one topic for all rows", "needs the name of a record"),
)
SCHEMA_RULES = _of_schemas(
    "PKS-7010", "schema has rules for writers",
    "Its owner registered rules for writers (a data contract), and the sink applies none.",
    "Write with a client that does, or encrypt and check in Spark and have the rules changed, or set "
    "schema.rules=ignore if rows may be written as they are.",
    ("has rules that a writer must apply",),
    page="schemas.md#data-contracts",
)
# ---- 80xx: the command line ----
_of_commands = partial(ErrorEntry, data=UNCHANGED)

COMMAND_WRONG = _of_commands(
    "PKS-8001", "invalid command",
    "An argument is missing or wrong.",
    "Correct it; --help after the command's name explains it.",
    ("no brokers are named", ": choose one with "),
)
NO_LEDGER = _of_commands(
    "PKS-8002", "no ledger in this cluster",
    "No topic of that name.",
    "Compare --bootstrap-server and --ledger-topic with the options of the query.",
    ("there is no ledger topic",),
)
NO_SUCH_SINK = _of_commands(
    "PKS-8003", "sink is not in the ledger",
    "It has no record of this sink id.",
    "Correct --sink-id or --checkpoint. Without them the `ledger` command lists all sinks.",
    ("has no record of sink",),
)
REPLAY_WRONG = _of_commands(
    "PKS-8004", "invalid replay",
    "Its topics, filters or name contradict each other, or an earlier run of that name.",
    "Correct what the text names; `pykafka-sink replay --help` has examples.",
    ("the records would be among their own letters", "there is no such topic in this cluster",
     "letters can be chosen by", "choose another --name", "but earlier runs of replay",
     "counts the letters there"),
    data="Nothing was written. The records of earlier runs of the replay stay.",
    page="headers.md#dead-letters",
)
REPLAY_IN_DOUBT = _of_commands(
    "PKS-8005", "last transaction of a replay is in doubt",
    "It has ended, and its marker in the ledger is lost.",
    "See which of its records the target has, and replay the missing ones under another --name.",
    ("is lost: whether its records are visible is not known",),
    data="Records before that transaction are written once. Its own records may or may not be there.",
    page="headers.md#dead-letters",
)
NOT_HAD = _of_commands(
    "PKS-8006", "brokers did not provide the data in time",
    "They answered without the data within --timeout: a partition has no leader, or a coordinator moves.",
    "Repeat with a longer --timeout. If it happens again, check the brokers that the text names.",
    ("was not available: ",),
)
