"""Errors of a write that cannot work: options, modes, columns. Rows that cannot be sent."""

from __future__ import annotations

from kafka_sink.error_table.entry import BEFORE, HELD, TASK, ErrorEntry

# ---- 10xx: options ----

OPTION_UNKNOWN = ErrorEntry(
    "PKS-1001",
    "unknown option",
    "The option name is unknown. It may be a typo, a consumer option, or a producer option without its prefix "
    "`kafka.`.",
    BEFORE,
    "Correct the name; options.md lists all options.",
    ("is not an option of this sink", "is not a producer option", "is an option of consumers"),
    "options.md",
)
OPTION_INVALID = ErrorEntry(
    "PKS-1002",
    "invalid value of an option",
    "The value of an option is not one of its valid values.",
    BEFORE,
    "Set a value that the text describes as valid.",
    ("is not valid: expected", "is empty: expected", "is too short: it must be at least"),
    "options.md",
)
OPTION_MISSING = ErrorEntry(
    "PKS-1003",
    "missing option",
    "A required option is not set. Some options are always required, others because of another option.",
    BEFORE,
    "Set the option that the text names. In SQL: INSERT INTO table WITH (`name` = 'value') ...; the options of CREATE "
    "TABLE are not passed to a Python sink.",
    ("bootstrap.servers is missing", "batch.id needs sink.id", "needs the option dead.letter.topic"),
    "options.md",
)
OPTIONS_CONTRADICT = ErrorEntry(
    "PKS-1004",
    "options contradict each other",
    "The values of two options exclude each other.",
    BEFORE,
    "Keep one of them, or change one as the text says.",
    ("contradict each other: keep one", "mean the same and have different values"),
    "options.md",
)
OPTION_NOT_SUPPORTED = ErrorEntry(
    "PKS-1005",
    "option not supported",
    "Another client has this option, but this sink does not support it.",
    BEFORE,
    "Use the alternative that the text names.",
    (
        "is not supported",
        "is written as it is, binary as bytes",
        "is not possible with asyncProgressTrackingEnabled=true",
    ),
    "options.md",
)
OPTIONS_WRONG = ErrorEntry(
    "PKS-1006",
    "several options are wrong",
    "More than one option is wrong. The text has one line for each problem.",
    BEFORE,
    "Correct all of them.",
    ("problems with the options",),
    "options.md",
)
FUNCTION_UNUSABLE = ErrorEntry(
    "PKS-1007",
    "function cannot be loaded",
    "`kafka.partitioner.class`, `summary.listener` or another option names a function that does not exist, or "
    "whose module cannot be loaded, or an object that is not a function.",
    BEFORE,
    "Install its module on the driver and each executor, or pass it with `--py-files`; the name is `module:function`.",
    ("cannot be imported here", "is no function but a"),
    "options.md",
)
FILE_UNREADABLE = ErrorEntry(
    "PKS-1008",
    "file cannot be read",
    "A file that an option names does not exist or cannot be read on a host that connects to brokers.",
    BEFORE,
    "Put the file on the driver and each executor, readable by Spark's user, or ship it with `--files`.",
    ("there is no such file in", "cannot be read:"),
    "security.md",
)
REFERENCE_UNRESOLVED = ErrorEntry(
    "PKS-1009",
    "unresolved reference to a secret",
    "An option refers to an environment variable or to a key of a file that does not exist on this host.",
    BEFORE,
    "Set it where connections are opened: on the driver and on each executor.",
    ("which is not there (on this host, in this process)",),
    "security.md",
)
PACKAGE_MISSING = ErrorEntry(
    "PKS-1010",
    "package missing",
    "An option needs an optional package that is not installed.",
    BEFORE,
    "Install the extra that the text names, on the driver and on each executor.",
    ("needs the package",),
    "quickstart.md",
)
HEADER_OPTION = ErrorEntry(
    "PKS-1011",
    "invalid header option",
    "An option header.NAME has no name or an unknown placeholder, or two options set the same header.",
    BEFORE,
    "Correct the option, or write the header to the column headers.",
    ("a header needs a name", "is no placeholder; there are", "are both set, and a record has one trace"),
    "headers.md#headers",
)
EVENT_OPTION = ErrorEntry(
    "PKS-1012",
    "invalid CloudEvents options",
    "An attribute is missing, is set twice, or must not be set by the user; or the mode does not support the format.",
    BEFORE,
    "Set what the text names: every event needs type and source; structured mode needs value.format=json.",
    (
        "names of attributes are made of small letters and digits",
        "puts the data into a JSON object, which value.format=",
        "it is the same for all rows",
        "cannot be set: ",
    ),
    "headers.md#cloudevents",
)
PRESET_UNKNOWN = ErrorEntry(
    "PKS-1013",
    "unknown preset",
    "The option preset names a service for which there is no preset.",
    BEFORE,
    "Choose a preset that the text lists, or none: brokers that behave like Apache Kafka need no preset.",
    ("there is no preset",),
    "services.md",
)
TOPIC_OPTION = ErrorEntry(
    "PKS-1014",
    "topic options without a topic to create",
    "topic.partitions, topic.replication.factor or topic.config.* are set without topic.create=true, or "
    "topic.create=true is set without the option topic.",
    BEFORE,
    "Set topic.create=true together with topic, or set none of them.",
    ("topic.create=true needs the option topic", "set topic.create=true, or leave it out"),
    "options.md",
)
TELLING_OPTION = ErrorEntry(
    "PKS-1015",
    "metrics or lineage option without effect",
    "An option configures how figures, traces or lineage are sent, but no option sets a destination; or a key would be "
    "sent over a connection without TLS.",
    BEFORE,
    "Set the option that the text names, or remove this one.",
    ("is set, and nothing uses it without", "lineage.api.key.file needs a lineage.url with https://"),
    "metrics.md",
)
# ---- 11xx: Spark ----
SINK_ONLY = ErrorEntry(
    "PKS-1101",
    "format is for writing only",
    "The format was used to read.",
    "Nothing was read or written.",
    'Read with Spark\'s own format("kafka") and option("kafka.isolation.level", "read_committed").',
    ("pykafka-sink only writes",),
    "quickstart.md",
)
MODE_NOT_SUPPORTED = ErrorEntry(
    "PKS-1102",
    "mode not supported",
    "The sink can only append to a topic. Overwrite and the complete mode of streams are not supported.",
    BEFORE,
    'Batch: mode("append"). Streams: outputMode("append"), or foreachBatch for the rows that changed.',
    ('mode("overwrite") is not supported', 'outputMode("complete") is not supported'),
    "migration.md",
)
SPARK_TOO_OLD = ErrorEntry(
    "PKS-1103",
    "PySpark is too old for streams",
    "PySpark 4.0 has no Arrow writer for streams. Batch writes work there, also inside foreachBatch.",
    BEFORE,
    "Use PySpark 4.1 or newer.",
    ("streaming needs PySpark 4.1 or newer",),
    "compatibility.md",
)
INTERPRETER_WITHOUT_PACKAGE = ErrorEntry(
    "PKS-1104",
    "package missing in Spark's Python interpreter",
    "Spark found the format, but its Python interpreter lacks a package that the format needs.",
    BEFORE,
    "Install pykafka-sink there, or set PYSPARK_PYTHON (spark.pyspark.python) to an interpreter that has it, on the "
    "driver and on each executor.",
    ("Spark runs ..., where ... cannot be loaded",),
    "quickstart.md",
)
TRIGGER_NOT_SUPPORTED = ErrorEntry(
    "PKS-1105",
    "continuous trigger",
    "Spark passes no rows of a continuous query to a Python data source, so all rows would be lost.",
    "Nothing was written or committed. If the text is only in the driver's log, the query makes no progress: stop it.",
    "Use trigger(processingTime=...), trigger(availableNow=True), or none.",
    ("trigger(continuous=...) is not supported",),
    "parity.md#triggers",
)
STREAM_UNNAMED = ErrorEntry(
    "PKS-1106",
    "stream without checkpoint location or sink.id",
    "Exactly-once must identify a stream after a restart, by its checkpoint or by a name.",
    BEFORE,
    "Set the option checkpointLocation on the writer (Spark does not pass on a session default), or sink.id.",
    ("exactly-once has to know this stream again after a restart",),
    "exactly-once.md",
)
BATCH_UNNAMED = ErrorEntry(
    "PKS-1107",
    "batch number without a query",
    "Inside foreachBatch over Spark Connect, or in threads, Spark does not say which query the batch belongs to. With "
    "a new checkpoint the numbers start again, and new rows would be mistaken for repeated ones.",
    BEFORE,
    "Set the option query.id, with a new value for each new checkpoint; or use a batch.id that contains a letter.",
    ("is only a number, and its query is not known",),
    "exactly-once.md#foreachbatch",
)
SPARK_UNEXPECTED = ErrorEntry(
    "PKS-1108",
    "unexpected call by Spark",
    "Spark called the sink in a way that no tested version of Spark does.",
    HELD,
    "Restart the query, and report the error with the versions of Spark and pykafka-sink.",
    ("Spark did not tell this task its streaming batch", "a writer can only write inside a Spark task"),
    "compatibility.md",
)
FIGURES_MISSING = ErrorEntry(
    "PKS-1109",
    "no metrics available",
    "kafka_sink.sink_metrics found no metrics: no running application, none on this host, or no endpoint.",
    "Reading metrics writes nothing.",
    "Set metrics.prometheus.port on a stream, and pass sink_metrics the address of the driver with that port.",
    ("this session is one of Spark Connect", "this session has no running Spark application", "no figures at"),
    "metrics.md#notebooks",
)
# ---- 12xx: columns ----
VALUE_MISSING = ErrorEntry(
    "PKS-1201",
    "no column value",
    "The DataFrame has no column with exactly this name; names are case-sensitive, so `Value` does not count.",
    BEFORE,
    'Name the payload: selectExpr("to_json(struct(*)) AS value"), or set value.format to write all columns.',
    ("required column value not found", "no column is left for the value"),
    "quickstart.md",
)
TOPIC_MISSING = ErrorEntry(
    "PKS-1202",
    "no topic",
    "There is neither an option topic nor a string column topic. If the option is set, the column is ignored.",
    BEFORE,
    "Set the option topic.",
    ("no topic: set the option topic, or add a string column topic",),
    "options.md",
)
COLUMN_TYPE = ErrorEntry(
    "PKS-1203",
    "unsupported column type",
    "A column has a type that cannot be written to Kafka directly. The sink never converts silently.",
    BEFORE,
    "Use the expression that the text suggests, or a format such as value.format=json.",
    ("has the unsupported type", "and the format is"),
    "schemas.md",
)
COLUMN_MISSING = ErrorEntry(
    "PKS-1204",
    "missing column named by an option",
    "cloudevents.NAME.column or traceparent.column names a column that the DataFrame does not have. Names are exact.",
    BEFORE,
    "Correct the name, or add the column to the DataFrame.",
    ("there is no such column",),
    "headers.md",
)
# ---- 20xx: rows ----
ROW_INVALID = ErrorEntry(
    "PKS-2001",
    "row cannot be sent",
    "A row, or a record passed to a Producer, contains something that Kafka cannot store.",
    TASK,
    "Fix the row that the text names, or set record.errors=dead-letter or drop.",
    ("is not UTF-8",),
    "exactly-once.md",
)
ROW_WITHOUT_TOPIC = ErrorEntry(
    "PKS-2002",
    "row without a topic",
    "A row has a null in the column topic.",
    TASK,
    "Set the option topic, fill the column, or set record.errors=dead-letter or drop.",
    ("null topic in row",),
    "options.md",
)
ROW_TOO_LARGE = ErrorEntry(
    "PKS-2003",
    "row too large",
    "A record is larger than the request limit, the buffer, or 2 GiB.",
    TASK,
    "Raise the limit that the text names: kafka.max.request.size (and the topic's max.message.bytes) or "
    "kafka.buffer.memory. Or set record.errors=dead-letter: the dead letter has the key, the headers and the size of "
    "the value.",
    ("bytes in a request; max.request.size allows", "never fits into buffer.memory"),
    "options.md",
)
ROW_HEADERS = ErrorEntry(
    "PKS-2004",
    "invalid headers",
    "A header has a null key, or an element of headers is not a header. Kafka does not allow such headers.",
    TASK,
    "Filter them out, or set record.errors=dead-letter or drop.",
    ("a header whose key is null",),
    "quickstart.md",
)
ROW_PARTITION = ErrorEntry(
    "PKS-2005",
    "partition does not exist",
    "A row names a partition that the topic does not have. Partitions are numbered from 0.",
    TASK,
    "Correct the column partition, set it to null (the key then decides), or add partitions to the topic.",
    ("names partition", "is no number in 0.."),
    "quickstart.md",
)
ROW_TIMESTAMP = ErrorEntry(
    "PKS-2006",
    "timestamp out of range",
    "A record's timestamp is before 1970, or is not a number of milliseconds.",
    TASK,
    "Correct or remove the column timestamp: a bigint is in milliseconds since 1970, so multiply seconds by 1000.",
    ("Kafka counts milliseconds from 1970 on",),
    "quickstart.md",
)
ROW_MISFIT = ErrorEntry(
    "PKS-2007",
    "row does not fit its schema",
    "A value of a row does not fit the schema: a null in a required field, a value out of range, or an unknown symbol.",
    TASK,
    "Fix the value or widen the schema; record.errors=dead-letter writes such rows to another topic.",
    (),
    "schemas.md",
)
PARTITIONER_FAILED = ErrorEntry(
    "PKS-2008",
    "partitioner failed",
    "The function of kafka.partitioner.class raised an error, or did not return partitions of the topic.",
    TASK,
    "Fix the function: it gets whole columns and returns one whole number per row.",
    ("the partitioner raised", "the partitioner answered for topic", "the partitioner chose"),
    "migration.md",
)
EVENT_INCOMPLETE = ErrorEntry(
    "PKS-2009",
    "row is not a valid CloudEvent",
    "A row has no id, source or type (null or empty), a time outside the years 0 to 9999, or a value that is not JSON "
    "although datacontenttype says so.",
    TASK,
    "Fill the column, set cloudevents.datacontenttype to the type of the values, or set record.errors=dead-letter.",
    (
        "which every CloudEvent must have",
        "as a CloudEvent must have",
        "is no JSON, and datacontenttype says that it is",
    ),
    "headers.md#cloudevents",
)
