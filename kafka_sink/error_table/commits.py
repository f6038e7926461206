"""Errors of commits, of schemas and their registry, of the command line."""

from __future__ import annotations

from kafka_sink.error_table.entry import BEFORE, DECIDED, HELD, UNCHANGED, ErrorEntry

# ---- 60xx: committing ----
NOT_COMMITTED = ErrorEntry(
    "PKS-6001",
    "batch not committed",
    "The driver could not commit the batch, and made no decision.",
    HELD,
    "Restart the query; it runs the batch again.",
    ("Nothing of it is visible and nothing is lost",),
    "exactly-once.md#when-a-commit-fails",
)
TAKEN_OVER = ErrorEntry(
    "PKS-6002",
    "another query has the same sink id",
    "Another driver, or a newer run, writes under this sink id. Each sink id has one live writer.",
    HELD,
    "Stop one of the two queries, or give it a sink.id of its own.",
    ("has taken over",),
    "exactly-once.md#when-a-commit-fails",
)
CHECKPOINT_SET_BACK = ErrorEntry(
    "PKS-6003",
    "checkpoint is older than the ledger",
    "The checkpoint was set back, restored or copied: the ledger knows later batches. Running on would double rows.",
    HELD,
    "Restore the newer checkpoint; or start with a new one, if rows may be there twice.",
    ("the checkpoint has been rolled back to an older state",),
    "exactly-once.md#when-a-commit-fails",
)
OTHER_ROWS = ErrorEntry(
    "PKS-6004",
    "batch comes again with other rows",
    "A batch that was delivered comes again under the same name, with other counts of rows; within one run, with other "
    "rows.",
    "What was delivered before stays. The rows of this time were not written.",
    "Another export: give it a batch.id of its own. Two writes inside foreachBatch: give each a sink.id of its own. A "
    "stream: restore its newer checkpoint. replay.mismatch=warn goes on without the rows of this time.",
    ("comes again with other rows",),
    "exactly-once.md#when-a-commit-fails",
)
SINK_UNKNOWN = ErrorEntry(
    "PKS-6005",
    "ledger does not know this sink",
    "The query has run before, and the ledger has no record of it: it was deleted, is another one, or the query "
    "delivered at least once until now.",
    HELD,
    "Correct ledger.topic; or set ledger.accept.new.sink=true for the first start. After another sink.id: first "
    "`pykafka-sink recover` with that one.",
    ("has no record of sink",),
    "exactly-once.md#when-a-commit-fails",
)
OTHER_CLUSTER = ErrorEntry(
    "PKS-6006",
    "ledger was copied from another cluster",
    "The ledger has an open decision about transactions of another Kafka cluster.",
    "Nothing was written. The batch of that decision may be in one of the clusters.",
    "`pykafka-sink recover` in the old cluster, or `pykafka-sink resolve` here.",
    ("was copied from there",),
    "exactly-once.md#when-a-commit-fails",
)
NOT_STARTED = ErrorEntry(
    "PKS-6007",
    "nothing could be asked",
    "An abort, a recovery or a command could not begin: brokers did not answer, or refused.",
    UNCHANGED,
    "Mend what the text names and try again.",
    ("was not possible",),
    "exactly-once.md#when-a-commit-fails",
)
COMMIT_PENDING = ErrorEntry(
    "PKS-6011",
    "decided, not finished",
    "The batch is decided, and some of its transactions are not known to be committed.",
    DECIDED,
    "Restart the query, or run `pykafka-sink recover`, before the transactions time out "
    "(kafka.transaction.timeout.ms, 15 minutes unless set).",
    ("transactions are not known to be committed yet",),
    "exactly-once.md#when-a-commit-fails",
)
IN_DOUBT = ErrorEntry(
    "PKS-6012",
    "decision in doubt",
    "Whether the decision was written to the ledger is not known.",
    DECIDED,
    "Restart the query, or run `pykafka-sink recover`, before the transactions time out.",
    ("whether the decision to commit it was written to the ledger is not known",),
    "exactly-once.md#when-a-commit-fails",
)
NOT_RECORDED = ErrorEntry(
    "PKS-6013",
    "delivered, not recorded",
    "The batch is committed and visible; the ledger could not be told.",
    "Safe: every row is visible, once.",
    "Restart the query; it sees that all is committed and goes on.",
    ("is committed and visible, but the ledger could not be told so",),
    "exactly-once.md#when-a-commit-fails",
)
CHOICE_NOT_RECORDED = ErrorEntry(
    "PKS-6014",
    "choice in doubt",
    "Whether the ledger took what you chose with `pykafka-sink resolve` is not known.",
    "No row was changed.",
    "Look with `pykafka-sink ledger`, and resolve again if it still shows the batch as lost.",
    ("It is not known whether the ledger has been told",),
    "exactly-once.md#when-a-commit-fails",
)
EARLIER_PENDING = ErrorEntry(
    "PKS-6015",
    "earlier batch not finished",
    "An earlier batch of this sink is decided and not finished; until it is, no other can be committed.",
    DECIDED,
    "Restart the query within kafka.transaction.timeout.ms; it finishes the earlier batch first.",
    ("was decided earlier and is not finished",),
    "exactly-once.md#when-a-commit-fails",
)
ROWS_LOST = ErrorEntry(
    "PKS-6021",
    "rows of a decided batch are missing",
    "Transactions of a decided batch timed out before the query ran again.",
    "Not safe: the rows that the text names are not visible. Spark still has the input of the batch.",
    "Choose: `pykafka-sink resolve --replay` (rows that are visible appear twice) or `--accept` (the rest stays "
    "missing).",
    ("The query stops here until you choose",),
    "exactly-once.md#when-a-commit-fails",
)
WRITE_IN_PART = ErrorEntry(
    "PKS-6022",
    "batch write is visible in part",
    "A batch write without sink.id and batch.id failed in its commit; some transactions are committed, some not.",
    "Not safe: some rows are visible, and writing again doubles them.",
    "Look into the topic before writing again. With sink.id and batch.id a write can be repeated.",
    ("is visible in part",),
    "exactly-once.md#batch-writes",
)
LEDGER_UNREADABLE = ErrorEntry(
    "PKS-6031",
    "ledger cannot be read",
    "A record of the ledger is of a newer release, damaged, or somebody else's.",
    UNCHANGED,
    "Use the newer release, or see what `pykafka-sink resolve --set-aside` says can be given up.",
    ("of the ledger cannot be read",),
    "exactly-once.md#when-a-commit-fails",
)
# ---- 70xx: schemas ----
SCHEMA_INVALID = ErrorEntry(
    "PKS-7001",
    "schema cannot be read",
    "The schema in value.schema or key.schema, or the one in the registry, is not valid.",
    BEFORE,
    "Correct the schema where the text points.",
    ("an Avro schema is JSON, and this is not", "a JSON schema is JSON, and this is not"),
    "schemas.md",
)
SCHEMA_MISMATCH = ErrorEntry(
    "PKS-7002",
    "columns do not fit the schema",
    "The columns of the DataFrame cannot be written as the schema says; each misfit is in the text.",
    BEFORE,
    "Cast or rename the columns, or change the schema.",
    ("the columns do not fit the",),
    "schemas.md",
)
SCHEMA_MISSING = ErrorEntry(
    "PKS-7003",
    "no schema",
    "No option and no registry says which schema to write with.",
    BEFORE,
    "Set value.schema, value.schema.id or schema.registry.url, as the text says.",
    ("no schema for the", "needs a schema, since field numbers"),
    "schemas.md",
)
TYPE_UNWRITABLE = ErrorEntry(
    "PKS-7004",
    "type without a schema",
    "No schema can be made for a column of this type, or its description is no Spark type.",
    BEFORE,
    "Cast the column as the text says, or give a schema.",
    ("which no format can write",),
    "schemas.md",
)
REGISTRY_REFUSED = ErrorEntry(
    "PKS-7005",
    "schema registry refused",
    "The registry has no such subject or schema, or finds it incompatible; its reason is in the text.",
    BEFORE,
    "Register the schema first, or make it compatible, as the text says.",
    ("the schema is not registered under", "has no subject"),
    "schemas.md",
)
REGISTRY_UNREACHABLE = ErrorEntry(
    "PKS-7006",
    "schema registry does not answer",
    "The registry could not be reached, or fails again and again. A stream that has its schema goes on.",
    BEFORE,
    "Check schema.registry.url, and that the driver can reach it.",
    ("again and again",),
    "schemas.md",
)
REGISTRY_LOGIN = ErrorEntry(
    "PKS-7007",
    "schema registry refused the login",
    "The registry does not accept the user, or the user may not do this.",
    BEFORE,
    "Check schema.registry.basic.auth.user.info or the bearer token, and the user's permissions.",
    ("check schema.registry.basic.auth.user.info or the bearer token",),
    "schemas.md",
)
NOT_A_REGISTRY = ErrorEntry(
    "PKS-7008",
    "answer that is no schema registry",
    "What answered under schema.registry.url is no schema registry.",
    BEFORE,
    "Check the address: a proxy or a login page may stand in between.",
    ("is it the address of a schema registry", "is it a schema registry?"),
    "schemas.md",
)
SUBJECT_UNNAMED = ErrorEntry(
    "PKS-7009",
    "subject cannot be named",
    "The strategy for names of subjects needs one topic, or the name of a record, or an id in another form.",
    BEFORE,
    "Set what the text names, or choose another strategy or framing.",
    ("needs one topic for all rows", "needs the name of a record"),
    "schemas.md",
)
# ---- 80xx: the command line ----
COMMAND_WRONG = ErrorEntry(
    "PKS-8001",
    "command cannot be carried out as given",
    "Something is missing or wrong among the words behind the command.",
    UNCHANGED,
    "Correct the command; `pykafka-sink COMMAND --help` explains it.",
    ("no brokers are named", "choose one with --"),
    "exactly-once.md",
)
NO_LEDGER = ErrorEntry(
    "PKS-8002",
    "no ledger in this cluster",
    "The cluster has no ledger topic of that name.",
    UNCHANGED,
    "Compare --bootstrap-server and --ledger-topic with the options of the query.",
    ("there is no ledger topic",),
    "exactly-once.md",
)
NO_SUCH_SINK = ErrorEntry(
    "PKS-8003",
    "sink is not in the ledger",
    "The ledger has no record of the sink id that was given.",
    UNCHANGED,
    "`pykafka-sink ledger` without --sink-id lists those that there are.",
    ("has no record of sink",),
    "exactly-once.md",
)
REPLAY_WRONG = ErrorEntry(
    "PKS-8004",
    "replay cannot be done like this",
    "Topics, filters or name of a replay do not fit together, or not to a replay of that name that was begun before.",
    "Nothing was written. What earlier runs of the replay have written stays.",
    "Correct what the text names; `pykafka-sink replay --help` has examples.",
    (
        "the records would be among their own letters",
        "there is no such topic in this cluster",
        "letters can be chosen by",
        "with other filters: choose",
        "a replay writes in transactions",
    ),
    "headers.md#dead-letters",
)
REPLAY_IN_DOUBT = ErrorEntry(
    "PKS-8005",
    "replay whose last step is in doubt",
    "The last transaction of the replay has ended, and how is not to be had: its marker in the ledger is lost.",
    "Records up to that transaction are there once; those of it are there or not.",
    "Look into the target for its records, and begin another replay, with --name, for what is missing there.",
    ("is lost: whether its records are visible is not known",),
    "headers.md#dead-letters",
)
NOT_HAD = ErrorEntry(
    "PKS-8006",
    "brokers did not tell it in time",
    "Brokers answer, and not what the command asked for, until its --timeout was over: a partition has no leader, or a "
    "coordinator is being moved.",
    UNCHANGED,
    "Repeat the command, with a longer --timeout; if it stays so, look at the brokers that the text names.",
    ("was not to be had: ",),
    "operations.md",
)
