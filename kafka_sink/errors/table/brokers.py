"""Errors in communication with brokers: topics, logins, permissions, sending."""

from __future__ import annotations

from functools import partial

from kafka_sink.errors.table.entry import BEFORE, TASK, ErrorEntry

# Laid out as a table: the first line of an entry is its heading.
# fmt: off

# ---- 30xx: brokers and topics ----
_of_clusters = partial(ErrorEntry, data=BEFORE)
NO_BROKER = _of_clusters(
    "PKS-3001", "no broker answers",
    "None of the addresses in kafka.bootstrap.servers answered in time. The text gives the reason for each address.",
    "Check the addresses and the port. Check that the driver and the executors can reach the addresses that brokers "
    "advertise (advertised.listeners).",
    ("no broker has answered",),
    page="quickstart.md",
)
TOPIC_UNKNOWN = _of_clusters(
    "PKS-3002", "topic is not known",
    "The topic does not exist, or not all of its partitions have a leader.",
    "Create the topic, or correct its name. If brokers could not be reached either, the text says so.",
    ("is not known within", "but not all of its partitions have a leader"),
    data=TASK,
    page="quickstart.md",
)
CONNECTION_FAILED = _of_clusters(
    "PKS-3003", "connection failed",
    "A broker or another server could not be reached, or the connection was lost.",
    "Check that the server runs and that this host can reach it; Spark can retry the task or batch. If a node "
    "advertises the address, it is that broker's advertised.listeners: driver and executors must be able to reach it.",
    ("could not be established", "was lost with", "was lost while it authenticated", "advertises this address"),
    data=TASK,
    page="quickstart.md",
)
BROKER_REFUSED = _of_clusters(
    "PKS-3004", "broker refused a request",
    "A broker answered with an error code that is not retriable. The text has the name and number of the code.",
    "Look up the code and read the broker's log. Then change the topic or the request as the text says.",
    data=TASK,
    page="compatibility.md",
)
NOT_KAFKA = _of_clusters(
    "PKS-3005", "answer is not from a Kafka broker",
    "The server sent bytes that are not a valid Kafka response. It may be another kind of server, or a proxy.",
    "Check host and port. If the server is a Kafka broker, report the error with the broker's version.",
    ("broke the protocol", "no Kafka broker, or too old?"),
    data=TASK,
    page="compatibility.md",
)
LEDGER_FORGETS = _of_clusters(
    "PKS-3006", "ledger topic deletes decisions",
    "The ledger topic is not compacted. Retention would delete decisions, and batches would be delivered twice.",
    "Run the kafka-configs command that the text shows, or choose another ledger.topic.",
    ("decisions would be deleted with age",),
    page="exactly-once.md",
)
TRANSACTION_TOO_LONG = _of_clusters(
    "PKS-3007", "transaction time-out above what brokers allow",
    "kafka.transaction.timeout.ms is larger than the brokers' transaction.max.timeout.ms.",
    "Lower kafka.transaction.timeout.ms, or raise transaction.max.timeout.ms on the brokers. If the limit was lowered "
    "while the query was running and the option is not set, restart the query.",
    ("is more than the brokers allow",),
    page="options.md",
)
BROKER_TOO_OLD = _of_clusters(
    "PKS-3008", "broker too old",
    "The broker does not support a request version that the sink needs.",
    "Use Apache Kafka 3.6 or newer, or remove the option that the broker does not support.",
    page="compatibility.md",
)
TOO_SLOW = _of_clusters(
    "PKS-3009", "no answer in time",
    "An operation took longer than its time limit. It continues, and the call can be repeated. The text names the "
    "cause if it is known.",
    "Fix the cause that the text names. COORDINATOR_NOT_AVAILABLE: brokers cannot make or write __transaction_state; "
    "compare transaction.state.log.replication.factor and transaction.state.log.min.isr with the number of brokers, as "
    "the command check does. If the text names none, check whether brokers are overloaded, or raise the limit.",
    ("did not end within", "did not answer InitProducerId at once"),
    data=TASK,
    page="performance.md",
)
NO_TRANSACTIONS = _of_clusters(
    "PKS-3010", "brokers without transactions",
    "Exactly-once needs transactions, and the service does not offer them. Event Hubs has them in some tiers.",
    "Set delivery.fallback=at-least-once if duplicates are acceptable, or use a service that has transactions.",
    ("these brokers offer no transactions",),
    page="services.md",
)
TOPIC_NOT_CREATED = _of_clusters(
    "PKS-3011", "brokers refused to create the topic",
    "The sink asked for partitions, replicas or a configuration that the brokers refuse: topic.create, or the ledger.",
    "Change the option that the broker's error code refers to. There cannot be more replicas than brokers.",
    ("was not created: ",),
    page="options.md",
)
TOPIC_NOT_EVERYWHERE = _of_clusters(
    "PKS-3012", "new topic is not known everywhere",
    "The topic was created, but after kafka.max.block.ms some broker does not know it, or it has no leader.",
    "Start the write again: it finds the topic. If the error repeats, check the brokers.",
    ("was created, and after max.block.ms=",),
    page="operations.md",
)
NOT_TOLD = _of_clusters(
    "PKS-3013", "figures, spans or lineage were not delivered",
    "A warning in the driver's log: figures, spans or lineage of a batch could not be sent to a Pushgateway, a "
    "collector, a lineage receiver or a file. The sink skips that receiver for 30 seconds.",
    "Check the address, the login and metrics.timeout.ms for the receiver that the text names.",
    ("Batches go on",),
    data="Safe: no batch fails because of it. The batch's figures are sent with the next batch; spans and events are "
    "lost.",
    page="metrics.md",
)
# ---- 40xx: logins and permissions ----
_of_logins = partial(ErrorEntry, data=BEFORE, page="security.md")
LOGIN_REFUSED = _of_logins(
    "PKS-4001", "login refused",
    "The broker does not accept the name and password, token or ticket. The sink tried them once, because repeated "
    "attempts would lock the account.",
    "Correct the credentials; the broker's reason is in the text.",
    ("refused the credentials for", "with the server failed"),
    page="security.md#what-an-error-means",
)
CERTIFICATE_REFUSED = _of_logins(
    "PKS-4002", "certificate refused",
    "A broker's certificate or the client's own certificate is refused: wrong name, unknown authority, or expired.",
    "Set kafka.ssl.truststore.location to the authority that signed it, or connect by a name that it contains.",
    ("does not prove that it is",),
    data="Nothing was sent to that broker.",
    page="security.md#what-an-error-means",
)
TLS_MISMATCH = _of_logins(
    "PKS-4003", "port and security.protocol do not match",
    "One side uses TLS or SASL on this port and the other does not, or they have no TLS version in common.",
    "Set kafka.security.protocol to the protocol of this listener, or use the port of the other listener.",
    ("does not speak TLS on this port", "does not want SASL on this port", "does this listener speak TLS?"),
    page="security.md#what-an-error-means",
)
MECHANISM_NOT_OFFERED = _of_logins(
    "PKS-4004", "login mechanism is not offered",
    "The broker does not offer the mechanism of kafka.sasl.mechanism on this port.",
    "Choose one of the mechanisms that the text lists.",
    ("does not take sasl.mechanism", "offers no SaslHandshake"),
)
NOT_AUTHORIZED = _of_logins(
    "PKS-4005", "permission missing",
    "The user lacks a permission that the sink needs. The text names the resource and the operation.",
    "Grant the permission (kafka-acls, or the service's console).",
    ("not authorized to describe topic", "The principal needs"),
    data=TASK,
    page="security.md#permissions",
)
KEY_FILE = _of_logins(
    "PKS-4006", "key or certificate file cannot be used",
    "A key store, trust store or PEM file has another format than expected, or its password is wrong.",
    "Convert the file as the text says, or correct the password.",
    ("is a JKS file", "is no file of PEM", "cannot be opened as PKCS12"),
)
LOGIN_OPTIONS = _of_logins(
    "PKS-4007", "login options are inconsistent",
    "A login option is missing, or two options set the same thing.",
    "Set the option that the text names; security.md has a recipe for each kind of login.",
    ("sasl.jaas.config is not valid", "needs sasl.kerberos.principal"),
)
TOKEN_UNUSABLE = _of_logins(
    "PKS-4008", "no usable token",
    "The token endpoint, or your own function, did not return a usable token.",
    "Check client id, secret and scope, or the function.",
    ("answered without an access_token", "check client id, secret and scope"),
)
AWS_LOGIN = _of_logins(
    "PKS-4009", "no AWS credentials",
    "None of the places where AWS keeps credentials has usable ones.",
    "Set keys in options, in the environment or in a profile, or run with a role; check the place that the text names. "
    "Without keys in options botocore is needed: pip install 'pykafka-sink[aws]'.",
    ("no AWS credentials in options, environment and ~/.aws", "there is no AWS profile", "with the package botocore",
     "botocore got no AWS credentials", "run aws sso login"),
)
KERBEROS_LOGIN = _of_logins(
    "PKS-4010", "no Kerberos ticket",
    "The Kerberos library did not return a ticket for the broker.",
    "Check the keytab, the principal and the service name with kinit and kvno on that host.",
    ("Kerberos gives",),
)
# ---- 50xx: sending ----
_of_sending = partial(ErrorEntry, data=TASK, page="performance.md")
NOT_DELIVERED = _of_sending(
    "PKS-5001", "records were not delivered",
    "Records were refused or given up; the text says why, and whether they may be in the log anyway.",
    "Spark retries the task. If it fails each time, fix the cause that the text names.",
    ("given up after", "dropped: "),
)
DELIVERY_TOO_SLOW = _of_sending(
    "PKS-5002", "records were not delivered in time",
    "kafka.delivery.timeout.ms passed since the records were accepted. The text names the cause if it is known.",
    "Spark retries the task. Fix the cause that the text names. If it names none, check whether brokers are "
    "overloaded, or raise kafka.delivery.timeout.ms.",
    ("not delivered within delivery.timeout.ms",),
)
BUFFER_FULL = _of_sending(
    "PKS-5003", "buffer stayed full",
    "kafka.buffer.memory stayed full for kafka.max.block.ms: brokers accept rows too slowly for the task.",
    "If brokers recover without help, raise kafka.max.block.ms; otherwise they are too slow for this load.",
    ("no room for ... records",),
)
TRANSACTION_FAILED = _of_sending(
    "PKS-5004", "transaction was aborted",
    "The transaction of this task or Producer can no longer be committed.",
    "Spark retries the task. With a Producer: abort, and begin a new transaction.",
    ("the transaction must be aborted", "the transaction was aborted"),
    data="No record of the transaction becomes visible.",
    page="producer.md",
)
PRODUCER_FENCED = _of_sending(
    "PKS-5005", "another producer took over",
    "A newer producer has the same transactional id, or the transaction was open longer than its time limit.",
    "Stop the other producer, or raise kafka.transaction.timeout.ms above the time of the slowest task.",
    ("another producer took it over",),
    data="No record of the transaction becomes visible.",
    page="producer.md",
)
WRONG_CALL = _of_sending(
    "PKS-5006", "call out of order",
    "A method of the Producer was called in a state that does not allow it, or an internal rule was broken.",
    "Correct the order of the calls. If Spark made the call, report the error with the whole trace.",
    ("the producer is closed", "inside a delivery callback would wait for ever"),
    page="producer.md",
)
OUT_OF_MEMORY = _of_sending(
    "PKS-5007", "out of memory or threads",
    "A Python process of Spark reached a memory or thread limit of Spark, of a container or of the host.",
    "Raise the limit that the text names, or run fewer tasks at a time. spark.executor.pyspark.memory limits the "
    "address space, and a task reserves more than it uses: set it to 1g or more, or do not set it. On the driver it is "
    "spark.sql.planner.pythonExecution.memory.",
    ("has no memory left", "cannot start a thread"),
    page="performance.md#memory-of-a-task",
)
NO_DESCRIPTOR = _of_sending(
    "PKS-5008", "no file descriptor left",
    "This process or its host has reached the limit of open files and sockets.",
    "Raise the limit (ulimit -n; for a service LimitNOFILE), or find the process that leaves files open: ls -l "
    "/proc/PID/fd. The sink needs three descriptors per task and one per broker.",
    ("cannot open more files",),
    page="operations.md",
)
COMMIT_UNKNOWN = _of_sending(
    "PKS-5009", "not known whether the transaction was committed",
    "The commit had been requested, and the producer ended before it was answered. The text says why it ended.",
    "Read the end of the topics with isolation.level=read_committed: the records are there, or none is. Only then "
    "write them again.",
    ("whether the transaction was committed is not known",),
    data="All records of the transaction are visible, or none.",
    page="producer.md#transactions",
)
PARTITION_GONE = _of_sending(
    "PKS-5010", "topic was created again with fewer partitions",
    "Somebody deleted the topic and created it again while rows were on their way to a partition that is gone. The "
    "text has both topic ids and numbers of partitions.",
    "Spark retries the task or the batch, which then uses the new topic. Rows with a partition column "
    "need partitions that exist. What was in the old topic is gone.",
    ("was deleted and created again: it had",),
    page="operations.md",
)
