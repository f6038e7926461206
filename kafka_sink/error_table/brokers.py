"""Errors in communication with brokers: topics, logins, permissions, sending."""

from __future__ import annotations

from kafka_sink.error_table.entry import BEFORE, TASK, ErrorEntry

# ---- 30xx: brokers and topics ----
NO_BROKER = ErrorEntry(
    "PKS-3001",
    "no broker answers",
    "None of the addresses in kafka.bootstrap.servers answered in time; the text says why each failed.",
    BEFORE,
    "Check the addresses, the port, and that driver and executors can reach what brokers advertise "
    "(advertised.listeners).",
    ("no broker has answered",),
    "quickstart.md",
)
TOPIC_UNKNOWN = ErrorEntry(
    "PKS-3002",
    "topic is not known",
    "The topic does not exist, or not all of its partitions have a leader.",
    TASK,
    "Create the topic, or correct its name. Where brokers are not reached either, the text says so.",
    ("is not known within", "but not all of its partitions have a leader"),
    "quickstart.md",
)
CONNECTION_FAILED = ErrorEntry(
    "PKS-3003",
    "connection failed",
    "A broker, or another server, could not be reached, or the connection was lost.",
    TASK,
    "Check that the server runs and can be reached from this host; the task or batch may simply run again. An address "
    "that a node advertises is that broker's advertised.listeners: it must lead there from driver and executors.",
    ("could not be established", "was lost with", "was lost while it authenticated", "advertises this address"),
    "quickstart.md",
)
BROKER_REFUSED = ErrorEntry(
    "PKS-3004",
    "broker refused a request",
    "A broker answered with an error code that cannot be retried; the text has its name and number.",
    TASK,
    "Look up the code and the broker's log; change the topic or the request as the text says.",
    (),
    "compatibility.md",
)
NOT_KAFKA = ErrorEntry(
    "PKS-3005",
    "answer that is no Kafka",
    "The other side sent bytes that are no answer of a Kafka broker: another kind of server, or a proxy.",
    TASK,
    "Check host and port. If it is a Kafka, report it with its version.",
    ("broke the protocol", "no Kafka broker, or too old?"),
    "compatibility.md",
)
LEDGER_FORGETS = ErrorEntry(
    "PKS-3006",
    "ledger topic deletes decisions",
    "The ledger topic is not compacted: decisions would be deleted with age, and batches delivered twice.",
    BEFORE,
    "Run the kafka-configs command of the text, or choose another ledger.topic.",
    ("decisions would be deleted with age",),
    "exactly-once.md",
)
TRANSACTION_TOO_LONG = ErrorEntry(
    "PKS-3007",
    "transaction time-out above what brokers allow",
    "kafka.transaction.timeout.ms is more than the brokers' transaction.max.timeout.ms.",
    BEFORE,
    "Lower it, or raise transaction.max.timeout.ms on the brokers.",
    ("is more than the brokers allow",),
    "options.md",
)
BROKER_TOO_OLD = ErrorEntry(
    "PKS-3008",
    "broker too old",
    "The broker does not speak a version of a request that is needed.",
    BEFORE,
    "Use Apache Kafka 3.6 or newer; leave out the option that needs more than the broker has.",
    (),
    "compatibility.md",
)
TOO_SLOW = ErrorEntry(
    "PKS-3009",
    "no answer in time",
    "An operation took longer than its time limit. It goes on, and may be called again. The text says what is in the "
    "way, if anything is known.",
    TASK,
    "Mend what is in the way. If the text says nothing of it, see whether brokers are overloaded, or raise the limit.",
    ("did not end within", "did not answer InitProducerId at once"),
    "performance.md",
)
NO_TRANSACTIONS = ErrorEntry(
    "PKS-3010",
    "brokers without transactions",
    "Exactly once needs transactions, and the service does not offer them: Event Hubs has them in some tiers.",
    BEFORE,
    "Choose delivery.fallback=at-least-once where duplicates do no harm, or a service that has transactions.",
    ("these brokers offer no transactions",),
    "services.md",
)
TOPIC_NOT_CREATED = ErrorEntry(
    "PKS-3011",
    "brokers do not create such a topic",
    "topic.create asks for partitions, replicas or a configuration that the brokers refuse.",
    BEFORE,
    "Change the option that the broker's code is about: replicas are at most as many as brokers.",
    ("was not created: ",),
    "options.md",
)
TOPIC_NOT_EVERYWHERE = ErrorEntry(
    "PKS-3012",
    "new topic is not known everywhere",
    "The topic was created, and kafka.max.block.ms later some broker still does not know it, or it has no leader.",
    BEFORE,
    "Start the write again: it finds the topic. If it stays so, look at the brokers.",
    ("was created, and after max.block.ms=",),
    "operations.md",
)
NOT_TOLD = ErrorEntry(
    "PKS-3013",
    "figures, spans or lineage were not taken",
    "A warning in the driver's log: a Pushgateway, a collector, a receiver of lineage or a file could not be told of a "
    "batch. It is left out for 30 seconds.",
    "Safe: no batch fails for it. The figures of the batch come with those of the next one; spans and events are lost.",
    "Check address, login and metrics.timeout.ms of the receiver that the text names.",
    ("Batches go on",),
    "metrics.md",
)
# ---- 40xx: logins and permissions ----
LOGIN_REFUSED = ErrorEntry(
    "PKS-4001",
    "login refused",
    "The broker does not accept the name and password, token or ticket. They were tried once: a loop would lock the "
    "account.",
    BEFORE,
    "Correct the credentials; the broker's reason is in the text.",
    ("refused the credentials for", "with the server failed"),
    "security.md#what-an-error-means",
)
CERTIFICATE_REFUSED = ErrorEntry(
    "PKS-4002",
    "certificate does not prove who it is",
    "A broker's certificate, or this client's own, is refused: wrong name, unknown authority, expired.",
    "Nothing was sent to that broker.",
    "Set kafka.ssl.truststore.location to the authority that signed it, or connect by a name that is in it.",
    ("does not prove that it is",),
    "security.md#what-an-error-means",
)
TLS_MISMATCH = ErrorEntry(
    "PKS-4003",
    "port and security.protocol do not fit",
    "One side speaks TLS or SASL on this port and the other does not, or they have no version in common.",
    BEFORE,
    "Set kafka.security.protocol to what this listener speaks, or use the port of the other listener.",
    ("does not speak TLS on this port", "does not want SASL on this port", "does this listener speak TLS?"),
    "security.md#what-an-error-means",
)
MECHANISM_NOT_OFFERED = ErrorEntry(
    "PKS-4004",
    "login mechanism is not offered",
    "The broker does not have the mechanism of kafka.sasl.mechanism on this port.",
    BEFORE,
    "Choose one that the text lists.",
    ("does not take sasl.mechanism", "offers no SaslHandshake"),
    "security.md",
)
NOT_AUTHORIZED = ErrorEntry(
    "PKS-4005",
    "permission missing",
    "The user may not do what the sink needs; the text names resource and operation.",
    TASK,
    "Have the permission granted (kafka-acls, or the service's console).",
    ("not authorized to describe topic", "The principal needs"),
    "exactly-once.md#permissions",
)
KEY_FILE = ErrorEntry(
    "PKS-4006",
    "key or certificate file cannot be used",
    "A key store, trust store or PEM file is of another kind than expected, or its password is wrong.",
    BEFORE,
    "Convert it as the text says, or correct the password.",
    ("is a JKS file", "is no file of PEM", "cannot be opened as PKCS12"),
    "security.md",
)
LOGIN_OPTIONS = ErrorEntry(
    "PKS-4007",
    "login options do not fit together",
    "The options of a login leave something out, or say it twice.",
    BEFORE,
    "Set what the text names; security.md has a recipe for each kind of login.",
    ("sasl.jaas.config is not valid", "needs sasl.kerberos.principal"),
    "security.md",
)
TOKEN_UNUSABLE = ErrorEntry(
    "PKS-4008",
    "no usable token",
    "The token endpoint, or the function of your own, gave no token that can be used.",
    BEFORE,
    "Check client id, secret and scope, or the function.",
    ("answered without an access_token", "check client id, secret and scope"),
    "security.md",
)
AWS_LOGIN = ErrorEntry(
    "PKS-4009",
    "no AWS credentials",
    "No place where AWS keeps credentials has usable ones.",
    BEFORE,
    "Set keys in options, in the environment or in a profile, or run with a role; see the place that the text names. "
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
    "The Kerberos library gives no ticket for the broker.",
    BEFORE,
    "Check keytab, principal and service name with kinit and kvno on that host.",
    ("Kerberos gives",),
    "security.md",
)
# ---- 50xx: sending ----
NOT_DELIVERED = ErrorEntry(
    "PKS-5001",
    "records were not delivered",
    "Records were refused or given up; the text says why, and whether they may be in the log all the same.",
    TASK,
    "Spark repeats the task. If it fails each time, mend what the text names.",
    ("given up after", "dropped: "),
    "performance.md",
)
DELIVERY_TOO_SLOW = ErrorEntry(
    "PKS-5002",
    "records were not delivered in time",
    "kafka.delivery.timeout.ms passed since the records were accepted; the text says what kept them, if it is known.",
    TASK,
    "Spark repeats the task. Mend what kept them; otherwise see whether brokers are overloaded, or raise "
    "kafka.delivery.timeout.ms.",
    ("not delivered within delivery.timeout.ms",),
    "performance.md",
)
BUFFER_FULL = ErrorEntry(
    "PKS-5003",
    "buffer stayed full",
    "kafka.buffer.memory stayed full for kafka.max.block.ms: brokers take rows more slowly than the task makes them.",
    TASK,
    "If brokers recover by themselves, raise kafka.max.block.ms; otherwise they are too slow for this load.",
    ("no room for ... records",),
    "performance.md",
)
TRANSACTION_FAILED = ErrorEntry(
    "PKS-5004",
    "transaction was aborted",
    "The transaction of this task, or Producer, cannot be committed any more.",
    "Nothing of the transaction becomes visible.",
    "Spark repeats the task by itself. With a Producer: abort, and begin anew.",
    ("the transaction must be aborted", "the transaction was aborted"),
    "producer.md",
)
PRODUCER_FENCED = ErrorEntry(
    "PKS-5005",
    "another producer took over",
    "A newer producer has the same transactional id, or the transaction was open for longer than its time limit.",
    "Nothing of the transaction becomes visible.",
    "Stop the other one, or raise kafka.transaction.timeout.ms above the time of the slowest task.",
    ("another producer took it over",),
    "producer.md",
)
WRONG_CALL = ErrorEntry(
    "PKS-5006",
    "call out of order",
    "The Producer was called in a state in which this call makes no sense; or a rule inside was broken.",
    TASK,
    "Correct the order of the calls. If Spark is the caller, report it with the whole trace.",
    ("the producer is closed", "inside a delivery callback would wait for ever"),
    "producer.md",
)
OUT_OF_MEMORY = ErrorEntry(
    "PKS-5007",
    "no memory, or no thread, for a task",
    "The Python process of a task reached a limit of memory or of threads: that of Spark, a container or the host.",
    TASK,
    "Raise the limit that the text names, or run fewer tasks side by side. spark.executor.pyspark.memory counts the "
    "address space, of which a task has more than it uses: set it to 1g or more, or leave it out.",
    ("has no memory left", "cannot start a thread"),
    "performance.md#memory-of-a-task",
)
NO_DESCRIPTOR = ErrorEntry(
    "PKS-5008",
    "no file descriptor left",
    "This process, or its host, has as many files and sockets open as it may.",
    TASK,
    "Raise the limit (ulimit -n; for a service LimitNOFILE), or find what leaves files open: ls -l /proc/PID/fd. The "
    "sink needs three descriptors per task and one per broker.",
    ("may open no more files",),
    "operations.md",
)
