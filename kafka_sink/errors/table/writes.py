"""Errors of a write that cannot work: options, modes, columns. Rows that cannot be sent."""

from __future__ import annotations

from functools import partial

from kafka_sink.errors.table.entry import BEFORE, HELD, TASK, ErrorEntry

# Laid out as a table: the first line of an entry is its heading.
# fmt: off

# ---- 10xx: options ----
_of_options = partial(ErrorEntry, data=BEFORE)

OPTION_UNKNOWN = _of_options(
    "PKS-1001", "unknown option",
    "It may be a typo, a consumer option, or a producer option without its prefix `kafka.`.",
    "Correct the name.",
    ("is not an option of this sink", "is not a producer option", "is an option of consumers",
     "is no producer option: did you mean"),
)
OPTION_INVALID = _of_options(
    "PKS-1002", "invalid value of an option",
    "The value is not one that the option takes.",
    "Set one that the text describes.",
    ("is not valid: expected", "is empty: expected", "is too short: it must be at least"),
)
OPTION_MISSING = _of_options(
    "PKS-1003", "missing option",
    "The option is always required, or another option needs it.",
    "Set it. In SQL: INSERT INTO table WITH (`name` = 'value') ...; Spark does not pass options of CREATE TABLE to a "
    "Python sink.",
    ("bootstrap.servers is missing", "batch.id needs sink.id", "needs the option dead.letter.topic"),
)
OPTIONS_CONTRADICT = _of_options(
    "PKS-1004", "options contradict each other",
    "Two options exclude each other.",
    "Keep one of them, or change one as the text says.",
    ("contradict each other: keep one", "mean the same and have different values"),
)
OPTION_NOT_SUPPORTED = _of_options(
    "PKS-1005", "option not supported",
    "Another client has this option.",
    "Use what the text names instead.",
    ("is not supported", "is written as it is, binary as bytes",
     "is not possible with asyncProgressTrackingEnabled=true"),
)
OPTIONS_WRONG = _of_options(
    "PKS-1006", "several options are wrong",
    "The text has a line for each problem.",
    "Correct all of them.",
    ("problems with the options",),
)
FUNCTION_UNUSABLE = _of_options(
    "PKS-1007", "function cannot be loaded",
    "The function that an option names does not exist, is none, or its module cannot be loaded.",
    "Write `module:function`, and install the module on the driver and each executor, or pass it with `--py-files`.",
    ("cannot be imported here", "is no function but a"),
)
FILE_UNREADABLE = _of_options(
    "PKS-1008", "file cannot be read",
    "A file of an option is missing or unreadable on a host that connects to brokers.",
    "Put the file on the driver and each executor, readable by Spark's user, or ship it with `--files`.",
    ("there is no such file in", "cannot be read:"),
    page="security.md",
)
REFERENCE_UNRESOLVED = _of_options(
    "PKS-1009", "unresolved reference to a secret",
    "An option refers to an environment variable, or to a key of a file, that is not on this host.",
    "Set it on the driver and on each executor.",
    ("which is not there (on this host, in this process)",),
    page="security.md",
)
PACKAGE_MISSING = _of_options(
    "PKS-1010", "package missing",
    "An option needs an optional package.",
    "Install the extra that the text names, on the driver and on each executor.",
    ("needs the package",),
)
HEADER_OPTION = _of_options(
    "PKS-1011", "invalid header option",
    "An option header.NAME has no name or an unknown placeholder, or two options set the same header.",
    "Correct the option, or write a column headers.",
    ("a header needs a name", "is no placeholder; there are", "are both set, and a record has one trace"),
    page="headers.md#headers",
)
EVENT_OPTION = _of_options(
    "PKS-1012", "invalid CloudEvents options",
    "An attribute is missing, set twice or fixed, or the mode does not support the format.",
    "Every event needs type and source; structured mode needs value.format=json.",
    ("names of attributes are made of small letters and digits",
     "puts the data into a JSON object, which value.format=", "it is the same for all rows", "cannot be set: "),
    page="headers.md#cloudevents",
)
PRESET_UNKNOWN = _of_options(
    "PKS-1013", "unknown preset",
    "No preset has this name.",
    "Choose one that the text lists, or none: what behaves like Apache Kafka needs none.",
    ("there is no preset",),
    page="services.md",
)
TOPIC_OPTION = _of_options(
    "PKS-1014", "topic options without a topic to create",
    "topic.partitions, topic.replication.factor or topic.config.* without topic.create=true, or that one without "
    "topic.",
    "Set topic.create=true together with topic, or none of them.",
    ("topic.create=true needs the option topic", "set topic.create=true, or leave it out"),
    page="options.md#topiccreate",
)
TELLING_OPTION = _of_options(
    "PKS-1015", "metrics or lineage option without effect",
    "An option says how figures, traces or lineage are sent, and none says where; or a key would be sent without TLS.",
    "Set the option that the text names, or remove this one.",
    ("is set, and nothing uses it without", "lineage.api.key.file needs a lineage.url with https://"),
    page="metrics.md",
)
CREDENTIALS_IN_CLEAR = _of_options(
    "PKS-1016", "credentials over a connection without encryption",
    "A password or token would cross the network in clear, or is set with security.protocol=PLAINTEXT, the default, "
    "which neither encrypts nor logs in.",
    "Set kafka.security.protocol=SASL_SSL and the port of that listener, or schema.registry.url with https://. Where "
    "nobody else can read the network, kafka.allow.plaintext.credentials=true or "
    "schema.registry.allow.plaintext.credentials=true allows it. The same host needs neither.",
    ("would cross the network in clear", "neither encrypts nor logs in"),
    page="security.md#recipes",
)
NOT_ALLOWED_HERE = _of_options(
    "PKS-1017", "file or variable not allowed here",
    "The operator of this Spark allows only other files or variables (PYKAFKA_SINK_FILES and PYKAFKA_SINK_VARIABLES "
    "of driver or executors).",
    "Use one that the text allows, or ask the operator.",
    ("that is not allowed on this host",),
    page="security.md#where-users-are-not-trusted",
)
# ---- 11xx: Spark ----
_of_spark = partial(ErrorEntry, data=BEFORE)

SINK_ONLY = _of_spark(
    "PKS-1101", "format is for writing only",
    "The format was used to read.",
    'Read with Spark\'s own format("kafka") and option("kafka.isolation.level", "read_committed").',
    ("pykafka-sink only writes",),
    data="Nothing was read or written.",
)
MODE_NOT_SUPPORTED = _of_spark(
    "PKS-1102", "mode not supported",
    "The format only appends: no overwrite, no complete mode. For kafka_sink.write and write_batch a stream is no "
    "batch.",
    'Batch: mode("append"). Streams: outputMode("append"), or kafka_sink.foreach_batch, which takes every mode.',
    ('mode("overwrite") is not supported', 'outputMode("complete") is not supported', "this frame is a stream"),
    page="guides/second-door.md",
)
SPARK_TOO_OLD = _of_spark(
    "PKS-1103", "PySpark is too old for the format",
    "Before 4.0 PySpark has no formats in Python that take Arrow batches.",
    "Use PySpark 4.0 or newer; or kafka_sink.foreach_batch(options) and kafka_sink.write(frame, options), with "
    "PySpark 3.4 or newer.",
    ('format("pykafka-sink") needs PySpark 4.0 or newer',),
    page="guides/second-door.md",
)
INTERPRETER_WITHOUT_PACKAGE = _of_spark(
    "PKS-1104", "package missing in Spark's Python interpreter",
    "Spark found the format; its Python interpreter lacks a package.",
    "Install pykafka-sink there, or set PYSPARK_PYTHON (spark.pyspark.python) to an interpreter that has it, on the "
    "driver and each executor.",
    ("Spark runs ..., where ... cannot be loaded",),
    page="guides/clusters.md",
)
TRIGGER_NOT_SUPPORTED = _of_spark(
    "PKS-1105", "continuous trigger",
    "Spark passes no rows of a continuous query to Python: all would be lost.",
    "Use trigger(processingTime=...), trigger(availableNow=True), or none.",
    ("trigger(continuous=...) is not supported",),
    data="Nothing was written or committed. If the text is only in the driver's log, the query makes no progress: stop "
    "it.",
    page="parity.md#triggers",
)
STREAM_UNNAMED = _of_spark(
    "PKS-1106", "stream without checkpoint location or sink.id",
    "After a restart a stream is known by its checkpoint or by a name.",
    "Set the option checkpointLocation on the writer (Spark does not pass on a session default), or sink.id. "
    "The functions take one of the two among their own options; their writer needs checkpointLocation as well.",
    ("exactly-once has to know this stream again after a restart",),
    page="guides/streams.md",
)
BATCH_UNNAMED = _of_spark(
    "PKS-1107", "batch number without a query",
    "The number is not that of Spark's micro-batch; or Spark does not say which query it belongs to (foreachBatch "
    "over Spark Connect, threads).",
    "Inside foreachBatch pass the number on: str(batch_id). Otherwise set query.id, a new one for each new "
    "checkpoint; or a batch.id with a letter.",
    ("is only a number, and",),
    page="exactly-once.md#foreachbatch",
)
SPARK_UNEXPECTED = _of_spark(
    "PKS-1108", "unexpected call by Spark",
    "No tested version of Spark calls the sink in this way.",
    "Restart the query, and report the versions of Spark and pykafka-sink.",
    ("Spark did not tell this task its streaming batch", "a writer can only write inside a Spark task"),
    data=HELD,
    page="compatibility.md",
)
FIGURES_MISSING = _of_spark(
    "PKS-1109", "no metrics available",
    "No running application, none on this host, or no endpoint.",
    "Set metrics.prometheus.port on a stream, and pass sink_metrics the driver's address with that port.",
    ("this session is one of Spark Connect", "this session has no running Spark application", "no figures at"),
    data="Reading metrics writes nothing.",
    page="metrics.md#notebooks",
)
VERSIONS_DIFFER = _of_spark(
    "PKS-1110", "two versions of the package in one write",
    "The process that planned a write and that of a task or the commit import different versions; the text names both "
    "and their folders.",
    "Install one version everywhere: look in PYTHONPATH, --py-files, spark.submit.pyFiles and the image.",
    ("this write was planned by pykafka-sink",),
    data="Nothing of it is visible; with at-least-once rows may repeat.",
    page="troubleshooting.md",
)
CHECKPOINT_MISSING = _of_spark(
    "PKS-1111", "stream whose next start finds no checkpoint",
    "Each start is a new query to Spark: foreachBatch without checkpointLocation, or a stream without queryName in the "
    "session's checkpoint folder. Or the location among the function's options is not the query's.",
    'Set .option("checkpointLocation", ...) on the writer, or queryName if the session has a folder. Among the options '
    "of a function it is only a name: give it the same location, or set sink.id instead.",
    ("has no checkpoint that its next start could find", "is not the checkpoint of the query"),
    page="guides/second-door.md#what-differs",
)
# ---- 12xx: columns ----
_of_columns = partial(ErrorEntry, data=BEFORE)
VALUE_MISSING = _of_columns(
    "PKS-1201", "no column value",
    "No column has exactly this name; `Value` is another one.",
    'Name the payload: selectExpr("to_json(struct(*)) AS value"), or set value.format to write all columns.',
    ("required column value not found", "no column is left for the value"),
    page="quickstart.md#3-write-a-dataframe",
)
TOPIC_MISSING = _of_columns(
    "PKS-1202", "no topic",
    "There is neither an option topic nor a string column topic.",
    "Set the option topic.",
    ("no topic: set the option topic, or add a string column topic",),
    page="options.md#topic",
)
COLUMN_TYPE = _of_columns(
    "PKS-1203", "unsupported column type",
    "A column has a type that cannot be written as it is, or by which no export can be divided.",
    "Use the expression that the text suggests, or a format such as value.format=json.",
    ("has the unsupported type", "and the format is", "cannot be divided by column"),
    page="schemas.md",
)
COLUMN_MISSING = _of_columns(
    "PKS-1204", "missing column named by an option",
    "cloudevents.NAME.column, traceparent.column, or the argument `by` of write_in_chunks names a column that is not "
    "there. Names are exact.",
    "Correct the name, or add the column.",
    ("there is no such column",),
    page="headers.md",
)
# ---- 20xx: rows ----
_of_rows = partial(ErrorEntry, data=TASK)
ROW_INVALID = _of_rows(
    "PKS-2001", "row cannot be sent",
    "Kafka cannot store something in this row, or in this record of a Producer.",
    "Correct the row, or set record.errors to dead-letter or drop.",
    ("is not UTF-8",),
)
ROW_WITHOUT_TOPIC = _of_rows(
    "PKS-2002", "row without a topic",
    "The column topic is null.",
    "Set the option topic, fill the column, or set record.errors to dead-letter or drop.",
    ("null topic in row",),
)
ROW_TOO_LARGE = _of_rows(
    "PKS-2003", "row too large",
    "The record is larger than a request, the buffer, or 2 GiB.",
    "Raise kafka.max.request.size (and the topic's max.message.bytes) or kafka.buffer.memory, as the text says. Or "
    "set record.errors=dead-letter, which keeps key, headers and the size of the value.",
    ("bytes in a request; max.request.size allows", "never fits into buffer.memory"),
    page="options.md#maxrequestsize",
)
ROW_HEADERS = _of_rows(
    "PKS-2004", "invalid headers",
    "A header's key is null or not UTF-8, or an element of headers is no header.",
    "Filter it out, or set record.errors to dead-letter or drop.",
    ("a header whose key is null", "a header whose key is no text"),
)
ROW_PARTITION = _of_rows(
    "PKS-2005", "partition does not exist",
    "The topic has no such partition; they count from 0.",
    "Correct the column partition, set it to null (then the key decides), or add partitions to the topic.",
    ("names partition", "is no number in 0.."),
)
ROW_TIMESTAMP = _of_rows(
    "PKS-2006", "timestamp out of range",
    "The timestamp is before 1970, or not in milliseconds.",
    "Correct or remove the column timestamp. A bigint is in milliseconds: multiply seconds by 1000, divide "
    "microseconds by 1000.",
    ("Kafka counts milliseconds from 1970 on",),
)
ROW_MISFIT = _of_rows(
    "PKS-2007", "row does not fit its schema",
    "A null in a required field, a value out of range, an unknown symbol.",
    "Correct the value or widen the schema; record.errors=dead-letter writes such rows to another topic.",
    page="schemas.md",
)
PARTITIONER_FAILED = _of_rows(
    "PKS-2008", "partitioner failed",
    "The function of kafka.partitioner.class raised, or returned no partitions of the topic.",
    "Correct it: it gets whole columns, and returns a whole number for each row.",
    ("the partitioner raised", "the partitioner answered for topic", "the partitioner chose"),
    page="migration.md#a-partitioner-of-your-own",
)
EVENT_INCOMPLETE = _of_rows(
    "PKS-2009", "row is not a valid CloudEvent",
    "It has no id, source or type, a time outside the years 0 to 9999, or a value that is not JSON although "
    "datacontenttype says so.",
    "Fill the column, set cloudevents.datacontenttype to the type of the values, or set record.errors=dead-letter.",
    ("which every CloudEvent must have", "as a CloudEvent must have",
     "is no JSON, and datacontenttype says that it is"),
    page="headers.md#cloudevents",
)
CHANGE_UNKNOWN = _of_rows(
    "PKS-2010", "row is no change of a table",
    "With the option envelope, a row has no key, or a text in operation.column that names no operation.",
    "Correct the column, or name another one with operation.column; docs/guides/change-feeds.md lists the operations. "
    "A row that is left out is a change that readers never see.",
    ("names no operation", "has no key, and a change of a table needs one"),
    page="guides/change-feeds.md",
)
ROW_ID_MISSING = _of_rows(
    "PKS-2011", "row without the id of row.id.column",
    "With the option row.id.column, a row has null or an empty text there: readers could not tell it from others.",
    "Fill the column, leave row.id.column out to have ids made of the rows, or set record.errors=dead-letter.",
    ("has no id in the column",),
    page="headers.md#row-ids",
)
