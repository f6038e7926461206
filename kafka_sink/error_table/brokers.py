"""Errors in communication with brokers: topics, logins, permissions, sending."""

from __future__ import annotations

from kafka_sink.error_table.entry import BEFORE, TASK, ErrorEntry

# ---- 30xx: brokers and topics ----
NO_BROKER = ErrorEntry(
    "PKS-3001",
    "no broker answers",
    "None of the addresses in kafka.bootstrap.servers answered in time. The text gives the reason for each address.",
    BEFORE,
    "Check the addresses and the port. Check that the driver and the executors can reach the addresses that brokers "
    "advertise (advertised.listeners).",
    ("no broker has answered",),
    "quickstart.md",
)
TOPIC_UNKNOWN = ErrorEntry(
    "PKS-3002",
    "topic is not known",
    "The topic does not exist, or not all of its partitions have a leader.",
    TASK,
    "Create the topic, or correct its name. If brokers could not be reached either, the text says so.",
    ("is not known within", "but not all of its partitions have a leader"),
    "quickstart.md",
)
CONNECTION_FAILED = ErrorEntry(
    "PKS-3003",
    "connection failed",
    "A broker or another server could not be reached, or the connection was lost.",
    TASK,
    "Check that the server runs and that this host can reach it; Spark can retry the task or batch. If a node "
    "advertises the address, it is that broker's advertised.listeners: driver and executors must be able to reach it.",
    ("could not be established", "was lost with", "was lost while it authenticated", "advertises this address"),
    "quickstart.md",
)
BROKER_REFUSED = ErrorEntry(
    "PKS-3004",
    "broker refused a request",
    "A broker answered with an error code that is not retriable. The text has the name and number of the code.",
    TASK,
    "Look up the code and read the broker's log. Then change the topic or the request as the text says.",
    (),
    "compatibility.md",
)
NOT_KAFKA = ErrorEntry(
    "PKS-3005",
    "answer is not from a Kafka broker",
    "The server sent bytes that are not a valid Kafka response. It may be another kind of server, or a proxy.",
    TASK,
    "Check host and port. If the server is a Kafka broker, report the error with the broker's version.",
    ("broke the protocol", "no Kafka broker, or too old?"),
    "compatibility.md",
)
LEDGER_FORGETS = ErrorEntry(
    "PKS-3006",
    "ledger topic deletes decisions",
    "The ledger topic is not compacted. Retention would delete decisions, and batches would be delivered twice.",
    BEFORE,
    "Run the kafka-configs command that the text shows, or choose another ledger.topic.",
    ("decisions would be deleted with age",),
    "exactly-once.md",
)
TRANSACTION_TOO_LONG = ErrorEntry(
    "PKS-3007",
    "transaction time-out above what brokers allow",
    "kafka.transaction.timeout.ms is larger than the brokers' transaction.max.timeout.ms.",
    BEFORE,
    "Lower kafka.transaction.timeout.ms, or raise transaction.max.timeout.ms on the brokers. If the limit was lowered "
    "while the query was running and the option is not set, restart the query.",
    ("is more than the brokers allow",),
    "options.md",
)
BROKER_TOO_OLD = ErrorEntry(
    "PKS-3008",
    "broker too old",
    "The broker does not support a request version that the sink needs.",
    BEFORE,
    "Use Apache Kafka 3.6 or newer, or remove the option that the broker does not support.",
    (),
    "compatibility.md",
)
TOO_SLOW = ErrorEntry(
    "PKS-3009",
    "no answer in time",
    "An operation took longer than its time limit. It continues, and the call can be repeated. The text names the "
    "cause if it is known.",
    TASK,
    "Fix the cause that the text names. If it names none, check whether brokers are overloaded, or raise the limit.",
    ("did not end within", "did not answer InitProducerId at once"),
    "performance.md",
)
NO_TRANSACTIONS = ErrorEntry(
    "PKS-3010",
    "brokers without transactions",
    "Exactly-once needs transactions, and the service does not offer them. Event Hubs has them in some tiers.",
    BEFORE,
    "Set delivery.fallback=at-least-once if duplicates are acceptable, or use a service that has transactions.",
    ("these brokers offer no transactions",),
    "services.md",
)
TOPIC_NOT_CREATED = ErrorEntry(
    "PKS-3011",
    "brokers refused to create the topic",
    "The sink asked for partitions, replicas or a configuration that the brokers refuse: topic.create, or the ledger.",
    BEFORE,
    "Change the option that the broker's error code refers to. There cannot be more replicas than brokers.",
    ("was not created: ",),
    "options.md",
)
TOPIC_NOT_EVERYWHERE = ErrorEntry(
    "PKS-3012",
    "new topic is not known everywhere",
    "The topic was created, but after kafka.max.block.ms some broker does not know it, or it has no leader.",
    BEFORE,
    "Start the write again: it finds the topic. If the error repeats, check the brokers.",
    ("was created, and after max.block.ms=",),
    "operations.md",
)
NOT_TOLD = ErrorEntry(
    "PKS-3013",
    "figures, spans or lineage were not delivered",
    "A warning in the driver's log: figures, spans or lineage of a batch could not be sent to a Pushgateway, a "
    "collector, a lineage receiver or a file. The sink skips that receiver for 30 seconds.",
    "Safe: no batch fails because of it. The batch's figures are sent with the next batch; spans and events are lost.",
    "Check the address, the login and metrics.timeout.ms for the receiver that the text names.",
    ("Batches go on",),
    "metrics.md",
)
# ---- 40xx: logins and permissions ----
LOGIN_REFUSED = ErrorEntry(
    "PKS-4001",
    "login refused",
    "The broker does not accept the name and password, token or ticket. The sink tried them once, because repeated "
    "attempts would lock the account.",
    BEFORE,
    "Correct the credentials; the broker's reason is in the text.",
    ("refused the credentials for", "with the server failed"),
    "security.md#what-an-error-means",
)
CERTIFICATE_REFUSED = ErrorEntry(
    "PKS-4002",
    "certificate refused",
    "A broker's certificate or the client's own certificate is refused: wrong name, unknown authority, or expired.",
    "Nothing was sent to that broker.",
    "Set kafka.ssl.truststore.location to the authority that signed it, or connect by a name that it contains.",
    ("does not prove that it is",),
    "security.md#what-an-error-means",
)
TLS_MISMATCH = ErrorEntry(
    "PKS-4003",
    "port and security.protocol do not match",
    "One side uses TLS or SASL on this port and the other does not, or they have no TLS version in common.",
    BEFORE,
    "Set kafka.security.protocol to the protocol of this listener, or use the port of the other listener.",
    ("does not speak TLS on this port", "does not want SASL on this port", "does this listener speak TLS?"),
    "security.md#what-an-error-means",
)
MECHANISM_NOT_OFFERED = ErrorEntry(
    "PKS-4004",
    "login mechanism is not offered",
    "The broker does not offer the mechanism of kafka.sasl.mechanism on this port.",
    BEFORE,
    "Choose one of the mechanisms that the text lists.",
    ("does not take sasl.mechanism", "offers no SaslHandshake"),
    "security.md",
)
NOT_AUTHORIZED = ErrorEntry(
    "PKS-4005",
    "permission missing",
    "The user lacks a permission that the sink needs. The text names the resource and the operation.",
    TASK,
    "Grant the permission (kafka-acls, or the service's console).",
    ("not authorized to describe topic", "The principal needs"),
    "exactly-once.md#permissions",
)
KEY_FILE = ErrorEntry(
    "PKS-4006",
    "key or certificate file cannot be used",
    "A key store, trust store or PEM file has another format than expected, or its password is wrong.",
    BEFORE,
    "Convert the file as the text says, or correct the password.",
    ("is a JKS file", "is no file of PEM", "cannot be opened as PKCS12"),
    "security.md",
)
LOGIN_OPTIONS = ErrorEntry(
    "PKS-4007",
    "login options are inconsistent",
    "A login option is missing, or two options set the same thing.",
    BEFORE,
    "Set the option that the text names; security.md has a recipe for each kind of login.",
    ("sasl.jaas.config is not valid", "needs sasl.kerberos.principal"),
    "security.md",
)
TOKEN_UNUSABLE = ErrorEntry(
    "PKS-4008",
    "no usable token",
    "The token endpoint, or your own function, did not return a usable token.",
    BEFORE,
    "Check client id, secret and scope, or the function.",
    ("answered without an access_token", "check client id, secret and scope"),
    "security.md",
)
AWS_LOGIN = ErrorEntry(
    "PKS-4009",
    "no AWS credentials",
    "None of the places where AWS keeps credentials has usable ones.",
    BEFORE,
    "Set keys in options, in the environment or in a profile, or run with a role; check the place that the text names. "
    "Without keys in options botocore is needed: pip install 'pykafka-sink[aws]'.",
    (
        "no AWS credentials in options, environment and ~/.aws",
        "there is no AWS profile",
        "with the package botocore",
        "botocore got no AWS credentials",
        "run aws sso login",
    ),
    "security.md",
)
KERBEROS_LOGIN = ErrorEntry(
    "PKS-4010",
    "no Kerberos ticket",
    "The Kerberos library did not return a ticket for the broker.",
    BEFORE,
    "Check the keytab, the principal and the service name with kinit and kvno on that host.",
    ("Kerberos gives",),
    "security.md",
)
# ---- 50xx: sending ----
NOT_DELIVERED = ErrorEntry(
    "PKS-5001",
    "records were not delivered",
    "Records were refused or given up; the text says why, and whether they may be in the log anyway.",
    TASK,
    "Spark retries the task. If it fails each time, fix the cause that the text names.",
    ("given up after", "dropped: "),
    "performance.md",
)
DELIVERY_TOO_SLOW = ErrorEntry(
    "PKS-5002",
    "records were not delivered in time",
    "kafka.delivery.timeout.ms passed since the records were accepted. The text names the cause if it is known.",
    TASK,
    "Spark retries the task. Fix the cause that the text names. If it names none, check whether brokers are "
    "overloaded, or raise kafka.delivery.timeout.ms.",
    ("not delivered within delivery.timeout.ms",),
    "performance.md",
)
BUFFER_FULL = ErrorEntry(
    "PKS-5003",
    "buffer stayed full",
    "kafka.buffer.memory stayed full for kafka.max.block.ms: brokers accept rows too slowly for the task.",
    TASK,
    "If brokers recover without help, raise kafka.max.block.ms; otherwise they are too slow for this load.",
    ("no room for ... records",),
    "performance.md",
)
TRANSACTION_FAILED = ErrorEntry(
    "PKS-5004",
    "transaction was aborted",
    "The transaction of this task or Producer can no longer be committed.",
    "No record of the transaction becomes visible.",
    "Spark retries the task. With a Producer: abort, and begin a new transaction.",
    ("the transaction must be aborted", "the transaction was aborted"),
    "producer.md",
)
PRODUCER_FENCED = ErrorEntry(
    "PKS-5005",
    "another producer took over",
    "A newer producer has the same transactional id, or the transaction was open longer than its time limit.",
    "No record of the transaction becomes visible.",
    "Stop the other producer, or raise kafka.transaction.timeout.ms above the time of the slowest task.",
    ("another producer took it over",),
    "producer.md",
)
WRONG_CALL = ErrorEntry(
    "PKS-5006",
    "call out of order",
    "A method of the Producer was called in a state that does not allow it, or an internal rule was broken.",
    TASK,
    "Correct the order of the calls. If Spark made the call, report the error with the whole trace.",
    ("the producer is closed", "inside a delivery callback would wait for ever"),
    "producer.md",
)
OUT_OF_MEMORY = ErrorEntry(
    "PKS-5007",
    "out of memory or threads",
    "A Python process of Spark reached a memory or thread limit of Spark, of a container or of the host.",
    TASK,
    "Raise the limit that the text names, or run fewer tasks at a time. spark.executor.pyspark.memory limits the "
    "address space, and a task reserves more than it uses: set it to 1g or more, or do not set it. On the driver it is "
    "spark.sql.planner.pythonExecution.memory.",
    ("has no memory left", "cannot start a thread"),
    "performance.md#memory-of-a-task",
)
NO_DESCRIPTOR = ErrorEntry(
    "PKS-5008",
    "no file descriptor left",
    "This process or its host has reached the limit of open files and sockets.",
    TASK,
    "Raise the limit (ulimit -n; for a service LimitNOFILE), or find the process that leaves files open: ls -l "
    "/proc/PID/fd. The sink needs three descriptors per task and one per broker.",
    ("cannot open more files",),
    "operations.md",
)
