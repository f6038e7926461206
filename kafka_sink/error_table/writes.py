"""Errors of a write that cannot work: options, modes, columns. Rows that cannot be sent."""

from __future__ import annotations

from kafka_sink.error_table.entry import BEFORE, HELD, TASK, ErrorEntry

# ---- 10xx: options ----

OPTION_UNKNOWN = ErrorEntry(
    "PKS-1001",
    "unknown option",
    "The name of an option is not known. A typing error, an option of consumers, or a producer option without its "
    "prefix `kafka.`.",
    BEFORE,
    "Correct the name; options.md lists all of them.",
    ("is not an option of this sink", "is not a producer option", "is an option of consumers"),
    "options.md",
)
OPTION_INVALID = ErrorEntry(
    "PKS-1002",
    "invalid value of an option",
    "An option has a value that it cannot have.",
    BEFORE,
    "Set it to what the text says it expects.",
    ("is not valid: expected", "is empty: expected", "is too short: it must be at least"),
    "options.md",
)
OPTION_MISSING = ErrorEntry(
    "PKS-1003",
    "missing option",
    "An option that is needed is not set: always, or because of another one.",
    BEFORE,
    "Set the option that the text names. In SQL: INSERT INTO table WITH (`name` = 'value') ...; what CREATE TABLE "
    "was given does not reach a sink in Python.",
    ("bootstrap.servers is missing", "batch.id needs sink.id", "needs the option dead.letter.topic"),
    "options.md",
)
OPTIONS_CONTRADICT = ErrorEntry(
    "PKS-1004",
    "options contradict each other",
    "Two options cannot both be as they are.",
    BEFORE,
    "Keep one of them, or change one as the text says.",
    ("contradict each other: keep one", "mean the same and have different values"),
    "options.md",
)
OPTION_NOT_SUPPORTED = ErrorEntry(
    "PKS-1005",
    "option not supported",
    "The option is known from another client, and this sink does not have what it asks for.",
    BEFORE,
    "Use what the text offers instead.",
    ("is not supported", "serializer is not supported", "is not possible with asyncProgressTrackingEnabled=true"),
    "options.md",
)
OPTIONS_WRONG = ErrorEntry(
    "PKS-1006",
    "several options are wrong",
    "More than one option is wrong, in more than one way; the text has a line for each.",
    BEFORE,
    "Correct all of them.",
    ("problems with the options",),
    "options.md",
)
FUNCTION_UNUSABLE = ErrorEntry(
    "PKS-1007",
    "function cannot be loaded",
    "`kafka.partitioner.class`, `summary.listener` or another option names a function that is not there, or something "
    "that is no function.",
    BEFORE,
    "Install its module on the driver and each executor, or give it with `--py-files`; the name is `module:function`.",
    ("cannot be imported here", "is no function but a"),
    "options.md",
)
FILE_UNREADABLE = ErrorEntry(
    "PKS-1008",
    "file cannot be read",
    "A file that an option names is not there, or cannot be read, on a host that connects.",
    BEFORE,
    "Put the file on the driver and each executor, readable for Spark's user, or ship it with `--files`.",
    ("there is no such file in", "cannot be read:"),
    "security.md",
)
REFERENCE_UNRESOLVED = ErrorEntry(
    "PKS-1009",
    "reference to a secret leads nowhere",
    "An option refers to an environment variable or to a key of a file, and it is not there on this host.",
    BEFORE,
    "Set it where connections are made: on the driver and on each executor.",
    ("which is not there (on this host, in this process)",),
    "security.md",
)
PACKAGE_MISSING = ErrorEntry(
    "PKS-1010",
    "package missing",
    "An option asks for something that an optional package does.",
    BEFORE,
    "Install the extra that the text names, on the driver and on each executor.",
    ("needs the package",),
    "quickstart.md",
)
HEADER_OPTION = ErrorEntry(
    "PKS-1011",
    "header that cannot be made",
    "An option header.NAME has no name, or a placeholder that does not exist; or two options want the same header.",
    BEFORE,
    "Correct the option, or write the header into the column headers.",
    ("a header needs a name", "is no placeholder; there are", "are both set, and a record has one trace"),
    "headers.md#headers",
)
EVENT_OPTION = ErrorEntry(
    "PKS-1012",
    "CloudEvents cannot be made like this",
    "An attribute is missing, set twice, or not the user's to set; or the mode does not go with the format.",
    BEFORE,
    "Set what the text names: every event needs type and source; structured mode goes with value.format=json.",
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
    "The option preset names a service that has none.",
    BEFORE,
    "Choose one of those that the text lists, or none: a Kafka that behaves as Apache Kafka does needs no preset.",
    ("there is no preset",),
    "services.md",
)
TOPIC_OPTION = ErrorEntry(
    "PKS-1014",
    "topic options without a topic to create",
    "Options topic.partitions, topic.replication.factor or topic.config.* are set without topic.create=true; or "
    "topic.create=true without the option topic.",
    BEFORE,
    "Set topic.create=true together with topic, or leave them all out.",
    ("topic.create=true needs the option topic", "set topic.create=true, or leave it out"),
    "options.md",
)
TELLING_OPTION = ErrorEntry(
    "PKS-1015",
    "option of metrics or lineage without effect",
    "An option says how figures, traces or lineage are sent, and none says where to; or a key would go over a "
    "connection without TLS.",
    BEFORE,
    "Set the option that the text names, or leave this one out.",
    ("is set, and nothing uses it without", "lineage.api.key.file needs a lineage.url with https://"),
    "metrics.md",
)
# ---- 11xx: Spark ----
SINK_ONLY = ErrorEntry(
    "PKS-1101",
    "sink only",
    "The format was used to read.",
    "Nothing was read or written.",
    'Read with Spark\'s own format("kafka") and option("kafka.isolation.level", "read_committed").',
    ("pykafka-sink only writes",),
    "quickstart.md",
)
MODE_NOT_SUPPORTED = ErrorEntry(
    "PKS-1102",
    "mode not supported",
    "A topic is only appended to: there is no overwrite, and no complete mode of a stream.",
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
    "package is not complete where Spark runs Python",
    "Spark found the format, but its Python interpreter lacks a package that the format needs.",
    BEFORE,
    "Install pykafka-sink there, or set PYSPARK_PYTHON (spark.pyspark.python) to the interpreter that has it, on the "
    "driver and on each executor.",
    ("Spark runs ..., where ... cannot be loaded",),
    "quickstart.md",
)
TRIGGER_NOT_SUPPORTED = ErrorEntry(
    "PKS-1105",
    "continuous trigger",
    "Spark hands no row of a continuous query to a Python data source: all would be lost.",
    "Nothing was written or committed. If the text is only in the driver's log, the query stands still: stop it.",
    "Use trigger(processingTime=...), trigger(availableNow=True), or none.",
    ("trigger(continuous=...) is not supported",),
    "parity.md#triggers",
)
STREAM_UNNAMED = ErrorEntry(
    "PKS-1106",
    "stream without a place",
    "Exactly once has to know a stream again after a restart, by its checkpoint or by a name.",
    BEFORE,
    "Set option checkpointLocation on the writer (a default of the session is not passed on), or sink.id.",
    ("exactly-once has to know this stream again after a restart",),
    "exactly-once.md",
)
BATCH_UNNAMED = ErrorEntry(
    "PKS-1107",
    "batch number without its query",
    "Inside foreachBatch over Spark Connect, or in threads, Spark does not tell whose batch this is; under a new "
    "checkpoint the numbers begin again, and rows would be taken for repetitions.",
    BEFORE,
    "Set option query.id, another text for each new checkpoint; or put a letter into a batch.id of your own.",
    ("is only a number, and nobody says of which query",),
    "exactly-once.md#foreachbatch",
)
SPARK_UNEXPECTED = ErrorEntry(
    "PKS-1108",
    "Spark did something unexpected",
    "Spark called the sink in a way that it does not know from the versions that it was tried with.",
    HELD,
    "Restart the query; report it with the versions of Spark and pykafka-sink.",
    ("Spark did not tell this task its streaming batch", "a writer can only write inside a Spark task"),
    "compatibility.md",
)
FIGURES_MISSING = ErrorEntry(
    "PKS-1109",
    "no figures to be had",
    "kafka_sink.sink_metrics found nothing to ask: no running application, none on this host, or no endpoint there.",
    "Nothing is written by looking at figures.",
    "Set metrics.prometheus.port on a stream, and give sink_metrics the address of the driver with that port.",
    ("this session is one of Spark Connect", "this session has no running Spark application", "no figures at"),
    "metrics.md#notebooks",
)
# ---- 12xx: columns ----
VALUE_MISSING = ErrorEntry(
    "PKS-1201",
    "no column value",
    "The DataFrame has no column of exactly this name; `Value` is another one.",
    BEFORE,
    'Name the payload: selectExpr("to_json(struct(*)) AS value"), or set value.format to write all columns.',
    ("required column value not found", "no column is left for the value"),
    "quickstart.md",
)
TOPIC_MISSING = ErrorEntry(
    "PKS-1202",
    "no topic",
    "Neither the option topic nor a string column topic is there. With the option, the column is not looked at.",
    BEFORE,
    "Set the option topic.",
    ("no topic: set the option topic, or add a string column topic",),
    "options.md",
)
COLUMN_TYPE = ErrorEntry(
    "PKS-1203",
    "column of a wrong type",
    "A column has a type that is not written to Kafka as it is; nothing is converted silently.",
    BEFORE,
    "Use the expression that the text proposes, or a format such as value.format=json.",
    ("has the unsupported type", "and the format is"),
    "schemas.md",
)
COLUMN_MISSING = ErrorEntry(
    "PKS-1204",
    "column that an option names is missing",
    "cloudevents.NAME.column or traceparent.column names a column that the DataFrame does not have. Names are exact.",
    BEFORE,
    "Correct the name, or add the column to what is selected.",
    ("there is no such column",),
    "headers.md",
)
# ---- 20xx: rows ----
ROW_INVALID = ErrorEntry(
    "PKS-2001",
    "row cannot be sent",
    "A row, or a record given to a Producer, has something in it that Kafka cannot take.",
    TASK,
    "Mend the row that the text names, or choose record.errors=dead-letter or drop.",
    ("holds rows that cannot be sent", "is not UTF-8"),
    "exactly-once.md",
)
ROW_WITHOUT_TOPIC = ErrorEntry(
    "PKS-2002",
    "row without a topic",
    "The column topic of a row is null.",
    TASK,
    "Set the option topic, fill the column, or choose record.errors=dead-letter or drop.",
    ("null topic in row",),
    "options.md",
)
ROW_TOO_LARGE = ErrorEntry(
    "PKS-2003",
    "row too large",
    "A record is larger than a request, the buffer, or 2 GiB.",
    TASK,
    "Raise the limit that the text names, kafka.max.request.size (and the topic's max.message.bytes) or "
    "kafka.buffer.memory; or choose record.errors=dead-letter: the letter has key and headers, and says how large the "
    "value was.",
    ("bytes in a request; max.request.size allows", "never fits into buffer.memory"),
    "options.md",
)
ROW_HEADERS = ErrorEntry(
    "PKS-2004",
    "headers cannot be sent",
    "A header has no key, or something that is no header is among them. Kafka has no such headers.",
    TASK,
    "Filter them, or choose record.errors=dead-letter or drop.",
    ("a header whose key is null",),
    "quickstart.md",
)
ROW_PARTITION = ErrorEntry(
    "PKS-2005",
    "partition that is not there",
    "A row asks for a partition that the topic does not have. Partitions count from 0.",
    TASK,
    "Correct the column partition, leave it null (the key decides then), or add partitions to the topic.",
    ("names partition", "is no number in 0.."),
    "quickstart.md",
)
ROW_TIMESTAMP = ErrorEntry(
    "PKS-2006",
    "timestamp out of range",
    "A record's timestamp is before 1970, or not a number of milliseconds.",
    TASK,
    "Correct or leave out the column timestamp: bigint is milliseconds since 1970, so seconds need * 1000.",
    ("Kafka counts milliseconds from 1970 on",),
    "quickstart.md",
)
ROW_MISFIT = ErrorEntry(
    "PKS-2007",
    "row does not fit its schema",
    "A value of a row cannot be written as the schema says: null where it is needed, out of range, no such symbol.",
    TASK,
    "Mend the value or widen the schema; record.errors=dead-letter sets such rows aside.",
    (),
    "schemas.md",
)
PARTITIONER_FAILED = ErrorEntry(
    "PKS-2008",
    "partitioner failed",
    "The function of kafka.partitioner.class raised, or answered with something else than partitions of the topic.",
    TASK,
    "Mend the function: it gets whole columns and returns one whole number per row.",
    ("the partitioner raised", "the partitioner answered for topic", "the partitioner chose"),
    "migration.md",
)
EVENT_INCOMPLETE = ErrorEntry(
    "PKS-2009",
    "row that makes no CloudEvent",
    "The column of id, source or type is null or empty in a row; or its value is no JSON, as datacontenttype says.",
    TASK,
    "Fill the column, set cloudevents.datacontenttype to what the values are, or choose record.errors=dead-letter.",
    ("which every CloudEvent must have", "is no JSON, and datacontenttype says that it is"),
    "headers.md#cloudevents",
)
