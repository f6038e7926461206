"""Errors of commits, of schemas and their registry, of the command line."""

from __future__ import annotations

from functools import partial

from kafka_sink.errors.table.entry import BEFORE, DECIDED, HELD, UNCHANGED, ErrorEntry

# Laid out as a table: the first line of an entry is its heading.
# fmt: off

# ---- 60xx: committing ----
_of_commits = partial(ErrorEntry, page="exactly-once.md#when-a-commit-fails")
NOT_COMMITTED = _of_commits(
    "PKS-6001", "batch not committed",
    "The driver could not commit the batch, and did not write a decision.",
    "Restart the query; it runs the batch again.",
    ("Nothing of it is visible and nothing is lost",),
    data=HELD,
)
TAKEN_OVER = _of_commits(
    "PKS-6002", "another query has the same sink id",
    "Another driver or a newer run writes under this sink id. Each sink id can have only one live writer.",
    "Stop one of the two queries, or give it its own sink.id.",
    ("has taken over",),
    data=HELD,
)
CHECKPOINT_SET_BACK = _of_commits(
    "PKS-6003", "checkpoint is older than the ledger",
    "The checkpoint was set back, restored or copied: the ledger has later batches. Continuing would duplicate rows.",
    "Restore the newer checkpoint, or start with a new one if duplicate rows are acceptable.",
    ("the checkpoint has been rolled back to an older state",),
    data=HELD,
)
OTHER_ROWS = _of_commits(
    "PKS-6004", "repeated batch has other rows",
    "A batch that was delivered is repeated under the same name with different row counts, or, within one run, with "
    "different rows.",
    "Another export: give it its own batch.id. Two writes inside foreachBatch: give each its own sink.id. A stream: "
    "restore its newer checkpoint. replay.mismatch=warn continues without the rows of the repetition.",
    ("comes again with other rows",),
    data="The rows that were delivered before stay. The rows of the repetition were not written.",
)
SINK_UNKNOWN = _of_commits(
    "PKS-6005", "ledger does not know this sink",
    "The query has run before, and the ledger has no record of it. The record was deleted, this is another ledger, or "
    "the query was at-least-once until now.",
    "Correct ledger.topic, or set ledger.accept.new.sink=true for the first start. After a change of sink.id, first "
    "run the `ledger` command of the text: it shows what the old one has left open.",
    ("has no record of sink",),
    data=HELD,
)
OTHER_CLUSTER = _of_commits(
    "PKS-6006", "ledger was copied from another cluster",
    "The ledger has an open decision about transactions of another Kafka cluster.",
    "Run the `recover` command of the text with the brokers of the old cluster, or one of its `resolve` commands.",
    ("was copied from there",),
    data="Nothing was written. The batch of that decision may be in one of the clusters.",
)
NOT_STARTED = _of_commits(
    "PKS-6007", "brokers could not be asked",
    "An abort, a recovery or a command could not start: brokers did not answer, or refused the request.",
    "Fix the cause that the text names and try again.",
    ("was not possible",),
    data=UNCHANGED,
)
EXPORT_TAKEN_OVER = _of_commits(
    "PKS-6008", "another run of this export has taken over",
    "The same batch.id is written twice at a time under one sink.id. The run that began later has taken over.",
    "Let the other run end; the `ledger` command of the text shows whether it has. Then run this one again if you "
    "like: what was delivered is not written twice.",
    ("another run of the export",),
    data="Safe: no row of this run is visible. The other run delivers the export, or raises.",
)
OTHER_NAME = _of_commits(
    "PKS-6009", "query has another sink id in the ledger",
    "The ledger has records of this query under another sink id. The checkpoint was moved, or sink.id was changed.",
    "Set sink.id to the id that the text names. ledger.accept.new.sink=true writes the rows a second time.",
    ("knows this query under another sink id",),
    data=HELD,
)
COMMIT_PENDING = _of_commits(
    "PKS-6011", "batch decided but not finished",
    "The batch is decided, but some of its transactions are not known to be committed.",
    "Restart the query, or run the `recover` command of the text, before the transactions time out "
    "(kafka.transaction.timeout.ms, 15 minutes unless set). Later, the same command tells whether rows are missing.",
    ("transactions are not known to be committed yet",),
    data=DECIDED,
)
IN_DOUBT = _of_commits(
    "PKS-6012", "decision in doubt",
    "It is not known whether the decision was written to the ledger.",
    "Restart the query, or run the `recover` command of the text, before the transactions time out. Later, the same "
    "command tells whether rows are missing.",
    ("whether the decision to commit it was written to the ledger is not known",),
    data=DECIDED,
)
NOT_RECORDED = _of_commits(
    "PKS-6013", "batch delivered but not recorded",
    "The batch is committed and visible, but the ledger could not be updated.",
    "Restart the query, or run the `recover` command of the text; it finds that the batch is committed and records "
    "that.",
    ("is committed and visible, but the ledger could not be updated",),
    data="Safe: every row is visible, once.",
)
CHOICE_NOT_RECORDED = _of_commits(
    "PKS-6014", "choice in doubt",
    "It is not known whether the ledger has recorded your choice about a lost batch.",
    "Run the `ledger` command of the text, and the `resolve` command again while it shows the batch as lost.",
    ("It is not known whether the ledger has recorded that",),
    data="No row was changed.",
)
EARLIER_PENDING = _of_commits(
    "PKS-6015", "earlier batch not finished",
    "An earlier batch of this sink is decided but not finished. No other batch can be committed before it.",
    "Restart the query, or run the `recover` command of the text, within kafka.transaction.timeout.ms; the earlier "
    "batch is finished first.",
    ("was decided earlier and is not finished",),
    data=DECIDED,
)
NOT_DISCARDED = _of_commits(
    "PKS-6016", "repetition not discarded",
    "The batch was delivered by an earlier run. Its repetition could not be discarded, because a partition has no "
    "leader.",
    "Restart the query when the partition that the text names has a leader again.",
    ("what this run wrote for it again could not be discarded",),
    data="Safe: every row is visible, once.",
)
WRITE_TOO_LONG = _of_commits(
    "PKS-6017", "write took longer than a transaction may",
    "Brokers end a transaction after kafka.transaction.timeout.ms, 15 minutes unless set, and a commit needs up to a "
    "minute of that. More time passed between the first row of the batch and its end.",
    "Divide a batch write: kafka_sink.write_in_chunks, or export_to_kafka.py with --chunks; each chunk has the whole "
    "time. A stream: make its batches shorter. Or raise kafka.transaction.timeout.ms together with the brokers' "
    "transaction.max.timeout.ms.",
    ("The write took longer than", "the task took longer than"),
    data=HELD,
    page="guides/exports.md",
)
OTHER_CHUNKS = _of_commits(
    "PKS-6018", "export was begun with other chunks",
    "Chunks of this export are delivered, with another number of chunks or by another column. The rows of a chunk "
    "follow from both, so with the new ones rows would be missing or doubled.",
    "Go on with the number and column that the text names, or choose another batch.id to write all rows again.",
    ("was begun with",),
    data="Nothing was written. The chunks that are delivered stay.",
    page="guides/exports.md",
)
ROWS_LOST = _of_commits(
    "PKS-6021", "rows of a decided batch are missing",
    "Transactions of a decided batch timed out before the query ran again.",
    "Choose with one of the `resolve` commands of the text: --replay (rows that are visible appear twice) or --accept "
    "(missing rows stay missing).",
    ("The query stops here until you choose",),
    data="Not safe: the rows that the text names are not visible. Spark still has the input of the batch.",
)
WRITE_IN_PART = _of_commits(
    "PKS-6022", "batch write is partly visible",
    "A batch write without sink.id and batch.id failed in its commit. Only some transactions are committed.",
    "Check the topic before you write again. With sink.id and batch.id a write can be repeated safely.",
    ("is visible in part",),
    data="Not safe: some rows are visible, and writing again duplicates them.",
    page="exactly-once.md#batch-writes",
)
LEDGER_UNREADABLE = _of_commits(
    "PKS-6031", "ledger cannot be read",
    "A ledger record was written by a newer release or another program, or is damaged. Or the ledger was copied by a "
    "tool that does not write in transactions.",
    "Use the newer release, or see what the `resolve` command of the text, with --set-aside, says you would give up.",
    ("of the ledger cannot be read",),
    data=UNCHANGED,
)
# ---- 70xx: schemas ----
_of_schemas = partial(ErrorEntry, data=BEFORE, page="schemas.md")
SCHEMA_INVALID = _of_schemas(
    "PKS-7001", "schema cannot be read",
    "The schema in value.schema or key.schema, or the one in the registry, is not valid.",
    "Correct the schema at the position that the text gives.",
    ("is JSON, and this is not", "of the .proto file"),
)
SCHEMA_MISMATCH = _of_schemas(
    "PKS-7002", "columns do not fit the schema",
    "The columns of the DataFrame cannot be written with the schema. The text lists each mismatch.",
    "Cast or rename the columns, or change the schema.",
    ("the columns do not fit the",),
)
SCHEMA_MISSING = _of_schemas(
    "PKS-7003", "no schema",
    "No option and no registry provides a schema for the write.",
    "Set value.schema, value.schema.id or schema.registry.url, as the text says.",
    ("no schema for the", "needs a schema, since field numbers"),
)
TYPE_UNWRITABLE = _of_schemas(
    "PKS-7004", "type without a schema",
    "No schema can be derived for a column of this type, or its description is not a Spark type.",
    "Cast the column as the text says, or provide a schema.",
    ("which no format can write",),
)
REGISTRY_REFUSED = _of_schemas(
    "PKS-7005", "schema registry refused",
    "The registry has no such subject or schema, or reports it as incompatible. The text has the registry's reason.",
    "Register the schema first, or make it compatible, as the text says.",
    ("the schema is not registered under", "has no subject"),
)
REGISTRY_UNREACHABLE = _of_schemas(
    "PKS-7006", "schema registry does not answer",
    "The registry could not be reached, or failed on every attempt. A stream that has its schema continues.",
    "Check schema.registry.url, and that the driver can reach it.",
    ("again and again",),
)
REGISTRY_LOGIN = _of_schemas(
    "PKS-7007", "schema registry refused the login",
    "The registry does not accept the user, or the user lacks a permission.",
    "Check schema.registry.basic.auth.user.info or the bearer token, and the user's permissions.",
    ("check schema.registry.basic.auth.user.info or the bearer token",),
)
NOT_A_REGISTRY = _of_schemas(
    "PKS-7008", "answer is not from a schema registry",
    "The server at schema.registry.url is not a schema registry.",
    "Check the address: a proxy or a login page may answer instead.",
    ("is it the address of a schema registry", "is it a schema registry?"),
)
SUBJECT_UNNAMED = _of_schemas(
    "PKS-7009", "subject name cannot be determined",
    "The subject name strategy needs a single topic, a record name, or an id in another form.",
    "Set the option that the text names, or choose another strategy or framing.",
    ("needs one topic for all rows", "needs the name of a record"),
)
SCHEMA_RULES = _of_schemas(
    "PKS-7010", "schema has rules for writers",
    "The owner of the schema has registered rules that a writer must apply (a data contract): fields to encrypt, "
    "conditions or changes of values. The sink applies none, and rows written without them would break the contract.",
    "Write with a client that applies the rules, encrypt or check the columns in Spark and have the rules changed, or "
    "set schema.rules=ignore if the rows may be written as they are.",
    ("has rules that a writer must apply",),
    page="schemas.md#data-contracts",
)
# ---- 80xx: the command line ----
_of_commands = partial(ErrorEntry, data=UNCHANGED, page="exactly-once.md")

COMMAND_WRONG = _of_commands(
    "PKS-8001", "invalid command",
    "An argument of the command is missing or wrong.",
    "Correct the command; with --help after its name it explains itself.",
    ("no brokers are named", ": choose one with "),
)
NO_LEDGER = _of_commands(
    "PKS-8002", "no ledger in this cluster",
    "The cluster has no ledger topic with that name.",
    "Compare --bootstrap-server and --ledger-topic with the options of the query.",
    ("there is no ledger topic",),
)
NO_SUCH_SINK = _of_commands(
    "PKS-8003", "sink is not in the ledger",
    "The ledger has no record of the given sink id.",
    "Correct --sink-id or --checkpoint. The `ledger` command without them lists the sinks in the ledger.",
    ("has no record of sink",),
)
REPLAY_WRONG = _of_commands(
    "PKS-8004", "invalid replay",
    "Topics, filters or name of the replay contradict each other, or an earlier run with that name.",
    "Correct what the text names; `pykafka-sink replay --help` has examples.",
    ("the records would be among their own letters", "there is no such topic in this cluster",
     "letters can be chosen by", "with other filters: choose", "a replay writes in transactions",
     "the progress of replay", "but earlier runs of replay"),
    data="Nothing was written. The records of earlier runs of the replay stay.",
    page="headers.md#dead-letters",
)
REPLAY_IN_DOUBT = _of_commands(
    "PKS-8005", "last transaction of a replay is in doubt",
    "The last transaction of the replay has ended, but its outcome is unknown: its marker in the ledger is lost.",
    "Check which of its records the target has, and start another replay with --name for the missing ones.",
    ("is lost: whether its records are visible is not known",),
    data="Records before that transaction are written once. Its own records may or may not be there.",
    page="headers.md#dead-letters",
)
NOT_HAD = _of_commands(
    "PKS-8006", "brokers did not provide the data in time",
    "Brokers answered, but did not return the requested data within --timeout: a partition has no leader, or a "
    "coordinator is being moved.",
    "Repeat the command with a longer --timeout. If the error repeats, check the brokers that the text names.",
    ("was not available: ",),
    page="operations.md",
)
