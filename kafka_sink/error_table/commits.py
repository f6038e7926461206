"""Errors of commits, of schemas and their registry, of the command line."""

from __future__ import annotations

from kafka_sink.error_table.entry import BEFORE, DECIDED, HELD, UNCHANGED, ErrorEntry

# ---- 60xx: committing ----
NOT_COMMITTED = ErrorEntry(
    "PKS-6001",
    "batch not committed",
    "The driver could not commit the batch, and did not write a decision.",
    HELD,
    "Restart the query; it runs the batch again.",
    ("Nothing of it is visible and nothing is lost",),
    "exactly-once.md#when-a-commit-fails",
)
TAKEN_OVER = ErrorEntry(
    "PKS-6002",
    "another query has the same sink id",
    "Another driver or a newer run writes under this sink id. Each sink id can have only one live writer.",
    HELD,
    "Stop one of the two queries, or give it its own sink.id.",
    ("has taken over",),
    "exactly-once.md#when-a-commit-fails",
)
CHECKPOINT_SET_BACK = ErrorEntry(
    "PKS-6003",
    "checkpoint is older than the ledger",
    "The checkpoint was set back, restored or copied: the ledger has later batches. Continuing would duplicate rows.",
    HELD,
    "Restore the newer checkpoint, or start with a new one if duplicate rows are acceptable.",
    ("the checkpoint has been rolled back to an older state",),
    "exactly-once.md#when-a-commit-fails",
)
OTHER_ROWS = ErrorEntry(
    "PKS-6004",
    "repeated batch has other rows",
    "A batch that was delivered is repeated under the same name with different row counts, or, within one run, with "
    "different rows.",
    "The rows that were delivered before stay. The rows of the repetition were not written.",
    "Another export: give it its own batch.id. Two writes inside foreachBatch: give each its own sink.id. A stream: "
    "restore its newer checkpoint. replay.mismatch=warn continues without the rows of the repetition.",
    ("comes again with other rows",),
    "exactly-once.md#when-a-commit-fails",
)
SINK_UNKNOWN = ErrorEntry(
    "PKS-6005",
    "ledger does not know this sink",
    "The query has run before, and the ledger has no record of it. The record was deleted, this is another ledger, or "
    "the query was at-least-once until now.",
    HELD,
    "Correct ledger.topic, or set ledger.accept.new.sink=true for the first start. After a change of sink.id, run "
    "`pykafka-sink recover` with the old one first.",
    ("has no record of sink",),
    "exactly-once.md#when-a-commit-fails",
)
OTHER_CLUSTER = ErrorEntry(
    "PKS-6006",
    "ledger was copied from another cluster",
    "The ledger has an open decision about transactions of another Kafka cluster.",
    "Nothing was written. The batch of that decision may be in one of the clusters.",
    "Run `pykafka-sink recover` in the old cluster, or `pykafka-sink resolve` here.",
    ("was copied from there",),
    "exactly-once.md#when-a-commit-fails",
)
NOT_STARTED = ErrorEntry(
    "PKS-6007",
    "brokers could not be asked",
    "An abort, a recovery or a command could not start: brokers did not answer, or refused the request.",
    UNCHANGED,
    "Fix the cause that the text names and try again.",
    ("was not possible",),
    "exactly-once.md#when-a-commit-fails",
)
COMMIT_PENDING = ErrorEntry(
    "PKS-6011",
    "batch decided but not finished",
    "The batch is decided, but some of its transactions are not known to be committed.",
    DECIDED,
    "Restart the query, or run `pykafka-sink recover`, before the transactions time out "
    "(kafka.transaction.timeout.ms, 15 minutes unless set).",
    ("transactions are not known to be committed yet",),
    "exactly-once.md#when-a-commit-fails",
)
IN_DOUBT = ErrorEntry(
    "PKS-6012",
    "decision in doubt",
    "It is not known whether the decision was written to the ledger.",
    DECIDED,
    "Restart the query, or run `pykafka-sink recover`, before the transactions time out.",
    ("whether the decision to commit it was written to the ledger is not known",),
    "exactly-once.md#when-a-commit-fails",
)
NOT_RECORDED = ErrorEntry(
    "PKS-6013",
    "batch delivered but not recorded",
    "The batch is committed and visible, but the ledger could not be updated.",
    "Safe: every row is visible, once.",
    "Restart the query; it finds that the batch is committed and continues.",
    ("is committed and visible, but the ledger could not be updated",),
    "exactly-once.md#when-a-commit-fails",
)
CHOICE_NOT_RECORDED = ErrorEntry(
    "PKS-6014",
    "choice in doubt",
    "It is not known whether the ledger has recorded your choice with `pykafka-sink resolve`.",
    "No row was changed.",
    "Check with `pykafka-sink ledger`, and resolve again if it still shows the batch as lost.",
    ("It is not known whether the ledger has recorded that",),
    "exactly-once.md#when-a-commit-fails",
)
EARLIER_PENDING = ErrorEntry(
    "PKS-6015",
    "earlier batch not finished",
    "An earlier batch of this sink is decided but not finished. No other batch can be committed before it.",
    DECIDED,
    "Restart the query within kafka.transaction.timeout.ms; it finishes the earlier batch first.",
    ("was decided earlier and is not finished",),
    "exactly-once.md#when-a-commit-fails",
)
NOT_DISCARDED = ErrorEntry(
    "PKS-6016",
    "repetition not discarded",
    "The batch was delivered by an earlier run. Its repetition could not be discarded, because a partition has no "
    "leader.",
    "Safe: every row is visible, once.",
    "Restart the query when the partition that the text names has a leader again.",
    ("what this run wrote for it again could not be discarded",),
    "exactly-once.md#when-a-commit-fails",
)
ROWS_LOST = ErrorEntry(
    "PKS-6021",
    "rows of a decided batch are missing",
    "Transactions of a decided batch timed out before the query ran again.",
    "Not safe: the rows that the text names are not visible. Spark still has the input of the batch.",
    "Choose: `pykafka-sink resolve --replay` (rows that are visible appear twice) or `--accept` (missing rows stay "
    "missing).",
    ("The query stops here until you choose",),
    "exactly-once.md#when-a-commit-fails",
)
WRITE_IN_PART = ErrorEntry(
    "PKS-6022",
    "batch write is partly visible",
    "A batch write without sink.id and batch.id failed in its commit. Only some transactions are committed.",
    "Not safe: some rows are visible, and writing again duplicates them.",
    "Check the topic before you write again. With sink.id and batch.id a write can be repeated safely.",
    ("is visible in part",),
    "exactly-once.md#batch-writes",
)
LEDGER_UNREADABLE = ErrorEntry(
    "PKS-6031",
    "ledger cannot be read",
    "A ledger record was written by a newer release or another program, or is damaged.",
    UNCHANGED,
    "Use the newer release, or check what `pykafka-sink resolve --set-aside` says you would give up.",
    ("of the ledger cannot be read",),
    "exactly-once.md#when-a-commit-fails",
)
# ---- 70xx: schemas ----
SCHEMA_INVALID = ErrorEntry(
    "PKS-7001",
    "schema cannot be read",
    "The schema in value.schema or key.schema, or the one in the registry, is not valid.",
    BEFORE,
    "Correct the schema at the position that the text gives.",
    ("an Avro schema is JSON, and this is not", "a JSON schema is JSON, and this is not"),
    "schemas.md",
)
SCHEMA_MISMATCH = ErrorEntry(
    "PKS-7002",
    "columns do not fit the schema",
    "The columns of the DataFrame cannot be written with the schema. The text lists each mismatch.",
    BEFORE,
    "Cast or rename the columns, or change the schema.",
    ("the columns do not fit the",),
    "schemas.md",
)
SCHEMA_MISSING = ErrorEntry(
    "PKS-7003",
    "no schema",
    "No option and no registry provides a schema for the write.",
    BEFORE,
    "Set value.schema, value.schema.id or schema.registry.url, as the text says.",
    ("no schema for the", "needs a schema, since field numbers"),
    "schemas.md",
)
TYPE_UNWRITABLE = ErrorEntry(
    "PKS-7004",
    "type without a schema",
    "No schema can be derived for a column of this type, or its description is not a Spark type.",
    BEFORE,
    "Cast the column as the text says, or provide a schema.",
    ("which no format can write",),
    "schemas.md",
)
REGISTRY_REFUSED = ErrorEntry(
    "PKS-7005",
    "schema registry refused",
    "The registry has no such subject or schema, or reports it as incompatible. The text has the registry's reason.",
    BEFORE,
    "Register the schema first, or make it compatible, as the text says.",
    ("the schema is not registered under", "has no subject"),
    "schemas.md",
)
REGISTRY_UNREACHABLE = ErrorEntry(
    "PKS-7006",
    "schema registry does not answer",
    "The registry could not be reached, or failed on every attempt. A stream that has its schema continues.",
    BEFORE,
    "Check schema.registry.url, and that the driver can reach it.",
    ("again and again",),
    "schemas.md",
)
REGISTRY_LOGIN = ErrorEntry(
    "PKS-7007",
    "schema registry refused the login",
    "The registry does not accept the user, or the user lacks a permission.",
    BEFORE,
    "Check schema.registry.basic.auth.user.info or the bearer token, and the user's permissions.",
    ("check schema.registry.basic.auth.user.info or the bearer token",),
    "schemas.md",
)
NOT_A_REGISTRY = ErrorEntry(
    "PKS-7008",
    "answer is not from a schema registry",
    "The server at schema.registry.url is not a schema registry.",
    BEFORE,
    "Check the address: a proxy or a login page may answer instead.",
    ("is it the address of a schema registry", "is it a schema registry?"),
    "schemas.md",
)
SUBJECT_UNNAMED = ErrorEntry(
    "PKS-7009",
    "subject name cannot be determined",
    "The subject name strategy needs a single topic, a record name, or an id in another form.",
    BEFORE,
    "Set the option that the text names, or choose another strategy or framing.",
    ("needs one topic for all rows", "needs the name of a record"),
    "schemas.md",
)
# ---- 80xx: the command line ----
COMMAND_WRONG = ErrorEntry(
    "PKS-8001",
    "invalid command",
    "An argument of the command is missing or wrong.",
    UNCHANGED,
    "Correct the command; `pykafka-sink COMMAND --help` explains it.",
    ("no brokers are named", "choose one with --"),
    "exactly-once.md",
)
NO_LEDGER = ErrorEntry(
    "PKS-8002",
    "no ledger in this cluster",
    "The cluster has no ledger topic with that name.",
    UNCHANGED,
    "Compare --bootstrap-server and --ledger-topic with the options of the query.",
    ("there is no ledger topic",),
    "exactly-once.md",
)
NO_SUCH_SINK = ErrorEntry(
    "PKS-8003",
    "sink is not in the ledger",
    "The ledger has no record of the given sink id.",
    UNCHANGED,
    "Run `pykafka-sink ledger` without --sink-id to list the sinks in the ledger.",
    ("has no record of sink",),
    "exactly-once.md",
)
REPLAY_WRONG = ErrorEntry(
    "PKS-8004",
    "invalid replay",
    "Topics, filters or name of the replay contradict each other, or an earlier run with that name.",
    "Nothing was written. The records of earlier runs of the replay stay.",
    "Correct what the text names; `pykafka-sink replay --help` has examples.",
    (
        "the records would be among their own letters",
        "there is no such topic in this cluster",
        "letters can be chosen by",
        "with other filters: choose",
        "a replay writes in transactions",
        "the progress of replay",
        "but earlier runs of replay",
    ),
    "headers.md#dead-letters",
)
REPLAY_IN_DOUBT = ErrorEntry(
    "PKS-8005",
    "last transaction of a replay is in doubt",
    "The last transaction of the replay has ended, but its outcome is unknown: its marker in the ledger is lost.",
    "Records before that transaction are written once. Its own records may or may not be there.",
    "Check which of its records the target has, and start another replay with --name for the missing ones.",
    ("is lost: whether its records are visible is not known",),
    "headers.md#dead-letters",
)
NOT_HAD = ErrorEntry(
    "PKS-8006",
    "brokers did not provide the data in time",
    "Brokers answered, but did not return the requested data within --timeout: a partition has no leader, or a "
    "coordinator is being moved.",
    UNCHANGED,
    "Repeat the command with a longer --timeout. If the error repeats, check the brokers that the text names.",
    ("was not available: ",),
    "operations.md",
)
