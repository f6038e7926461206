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
    "No address of kafka.bootstrap.servers answered in time; the text has the reason for each.",
    "Check addresses and port, and that driver and executors reach what brokers advertise (advertised.listeners).",
    ("no broker has answered", "is a TLS listener behind this port?", "does this listener want SASL?",
     "the peer is no Kafka broker but"),
    page="troubleshooting.md#advertises-this-address-a-hostname-of-docker-localhost",
)
TOPIC_UNKNOWN = _of_clusters(
    "PKS-3002", "topic is not known",
    "It does not exist, or some of its partitions have no leader.",
    "Create it (topic.create=true does), or correct its name.",
    ("is not known within", "but not all of its partitions have a leader"),
    data=TASK,
    page="options.md#topiccreate",
)
CONNECTION_FAILED = _of_clusters(
    "PKS-3003", "connection failed",
    "A broker or another server could not be reached, or the connection was lost.",
    "Check that it runs and that this host reaches it; Spark can retry. An address that a node advertises is that "
    "broker's advertised.listeners: driver and executors must reach it.",
    ("could not be established", "was lost with", "was lost while it authenticated", "advertises this address"),
    data=TASK,
    page="troubleshooting.md#advertises-this-address-a-hostname-of-docker-localhost",
)
BROKER_REFUSED = _of_clusters(
    "PKS-3004", "broker refused a request",
    "A broker answered with an error that another attempt does not cure. The text has its name and number.",
    "Look up the code, read the broker's log, and change the topic or the request.",
    data=TASK,
)
NOT_KAFKA = _of_clusters(
    "PKS-3005", "answer is not from a Kafka broker",
    "The server's bytes are no answer of Kafka: it may be another server, or a proxy.",
    "Check host and port. If it is a Kafka broker, report the error with its version.",
    ("broke the protocol", "no Kafka broker, or too old?"),
    data=TASK,
)
LEDGER_FORGETS = _of_clusters(
    "PKS-3006", "ledger topic deletes decisions",
    "The ledger topic is not compacted: decisions would be deleted, and batches delivered twice.",
    "Run the kafka-configs command that the text shows, or choose another ledger.topic.",
    ("decisions would be deleted with age",),
    page="exactly-once.md#broker-settings",
)
TRANSACTION_TOO_LONG = _of_clusters(
    "PKS-3007", "transaction time-out above what brokers allow",
    "kafka.transaction.timeout.ms is above the brokers' transaction.max.timeout.ms.",
    "Lower the one or raise the other. A query without the option takes the brokers' limit when it is restarted.",
    ("is more than the brokers allow",),
    page="options.md#transactiontimeoutms",
)
BROKER_TOO_OLD = _of_clusters(
    "PKS-3008", "broker too old",
    "It lacks a version of a request that the sink needs.",
    "Use Apache Kafka 3.6 or newer, or remove the option that needs more.",
    page="compatibility.md",
)
TOO_SLOW = _of_clusters(
    "PKS-3009", "no answer in time",
    "An operation took longer than its limit. It goes on, and the call can be repeated.",
    "Mend the cause that the text names. COORDINATOR_NOT_AVAILABLE: compare transaction.state.log.replication.factor "
    "and transaction.state.log.min.isr with the number of brokers, as the command check does. If it names none, see "
    "whether brokers are overloaded, or raise the limit.",
    ("did not end within", "did not answer InitProducerId at once"),
    data=TASK,
)
NO_TRANSACTIONS = _of_clusters(
    "PKS-3010", "brokers without transactions",
    "Exactly-once needs transactions. Event Hubs has them in some tiers.",
    "Set delivery.fallback=at-least-once if duplicates are acceptable, or use a service with transactions.",
    ("these brokers offer no transactions",),
    page="services.md",
)
TOPIC_NOT_CREATED = _of_clusters(
    "PKS-3011", "brokers refused to create the topic",
    "They refuse the partitions, replicas or configuration that topic.create, or the ledger, asks for.",
    "Change the option that the broker's error is about. There cannot be more replicas than brokers.",
    ("was not created: ",),
    page="options.md#topiccreate",
)
TOPIC_NOT_EVERYWHERE = _of_clusters(
    "PKS-3012", "new topic is not known everywhere",
    "It was created, and after kafka.max.block.ms some broker does not know it, or it has no leader.",
    "Start the write again: it finds the topic. If the error repeats, check the brokers.",
    ("was created, and after max.block.ms=",),
)
NOT_TOLD = _of_clusters(
    "PKS-3013", "figures, spans or lineage were not delivered",
    "A warning in the driver's log. The receiver is skipped for 30 seconds.",
    "Check its address, login and metrics.timeout.ms.",
    ("Batches go on",),
    data="Safe: no batch fails because of it. The batch's figures are sent with the next batch; spans and events are "
    "lost.",
    page="metrics.md",
)
# ---- 40xx: logins and permissions ----
_of_logins = partial(ErrorEntry, data=BEFORE)
LOGIN_REFUSED = _of_logins(
    "PKS-4001", "login refused",
    "The broker does not accept name and password, token or ticket. They were tried once: more would lock the "
    "account.",
    "Correct them; the broker's reason is in the text. With AWS see to role, clock and region too "
    "(kafka-cluster:Connect), with Kerberos to the service. If the server does not know the password, find out which "
    "one answers. A broker must store SCRAM credentials with 4096 to 1,000,000 iterations.",
    ("refused the credentials for", "with the server failed",
     "its signature is wrong: it does not know the password and may be an impostor", "iterations, at least"),
    page="security.md#recipes",
)
CERTIFICATE_REFUSED = _of_logins(
    "PKS-4002", "certificate refused",
    "A broker's certificate or the client's own one: wrong name, unknown authority, or expired.",
    "Set kafka.ssl.truststore.location to the authority that signed it, or connect by, and advertise, a name that it "
    "contains. Not valid yet: set the clocks. Expired, revoked or not for servers: the broker needs a new one. If a "
    "client's one is demanded, set kafka.ssl.keystore.location.",
    ("does not prove that it is", "it was signed by an authority that is not trusted here",
     "there is no list of revoked certificates", "the broker demands a client certificate"),
    page="security.md#client-certificate-mtls",
    data="Nothing was sent to that broker.",
)
TLS_MISMATCH = _of_logins(
    "PKS-4003", "port and security.protocol do not match",
    "One side uses TLS or SASL on this port and the other does not, or they share no TLS version.",
    "Set kafka.security.protocol to that of this listener, or use the other listener's port.",
    ("does not speak TLS on this port", "does not want SASL on this port", "does this listener speak TLS?",
     "no TLS version is allowed by both sides"),
)
MECHANISM_NOT_OFFERED = _of_logins(
    "PKS-4004", "login mechanism is not offered",
    "The broker does not offer kafka.sasl.mechanism on this port.",
    "Choose one that the text lists.",
    ("does not take sasl.mechanism", "offers no SaslHandshake"),
)
NOT_AUTHORIZED = _of_logins(
    "PKS-4005", "permission missing",
    "The text names the resource and the operation.",
    "Grant it (kafka-acls, or the service's console), then start again.",
    ("not authorized to describe topic", "The principal needs"),
    data=TASK,
    page="security.md#permissions",
)
KEY_FILE = _of_logins(
    "PKS-4006", "key or certificate file cannot be used",
    "A key store, trust store or PEM file has another format, or its password is wrong.",
    "Convert the file as the text says, or correct the password.",
    ("is a JKS file", "is no file of PEM", "cannot be opened as PKCS12"),
)
LOGIN_OPTIONS = _of_logins(
    "PKS-4007", "login options are inconsistent",
    "One is missing, or two set the same thing.",
    "Set the option that the text names.",
    ("sasl.jaas.config is not valid", "needs sasl.kerberos.principal"),
    page="security.md#recipes",
)
TOKEN_UNUSABLE = _of_logins(
    "PKS-4008", "no usable token",
    "The token endpoint, or your own function, returned none that can be used.",
    "Check client id, secret and scope, or the function. If the endpoint does not answer: "
    "reach it from this host, or set https_proxy.",
    ("answered without an access_token", "check client id, secret and scope"),
)
AWS_LOGIN = _of_logins(
    "PKS-4009", "no AWS credentials",
    "No place where AWS keeps credentials has usable ones.",
    "Set keys in options, environment or a profile, or run with a role; check the place that the text names. Without "
    "keys in options: pip install 'pykafka-sink[aws]'. Where STS refuses, see to the role and its trust policy.",
    ("no AWS credentials in options, environment and ~/.aws", "there is no AWS profile",
     "botocore got no AWS credentials", "run aws sso login", "says no region of AWS: set sasl.aws.region"),
    page="security.md#amazon-msk-with-iam",
)
KERBEROS_LOGIN = _of_logins(
    "PKS-4010", "no Kerberos ticket",
    "The Kerberos library gave no ticket for the broker.",
    "Check keytab, principal and service name (kinit and kvno on that host), the host name that the broker advertises, "
    "and that the KDC is up. An expired ticket: kinit, or use a keytab.",
    ("Kerberos gives", "has no key for the principal", "the keytab does not have the principal's current key",
     "the ticket has expired: get a new one with kinit", "no proof"),
    page="security.md#kerberos",
)
TOO_MANY_LOGINS = _of_logins(
    "PKS-4011", "too many logins in a second",
    "Brokers of Amazon MSK limit logins by IAM: 100 in a second, 4 on kafka.t3.small. The sink logs in again.",
    "Mostly nothing. If it lasts, start fewer tasks at a time, or use larger brokers.",
    ("takes only so many logins by IAM",),
    page="security.md#amazon-msk-with-iam",
    data="Safe: the login is tried again within the write's own limits of time.",
)
# ---- 50xx: sending ----
_of_sending = partial(ErrorEntry, data=TASK)
NOT_DELIVERED = _of_sending(
    "PKS-5001", "records were not delivered",
    "They were refused or given up; the text says why, and whether they may be in the log anyway.",
    "Spark retries the task. If it fails each time, mend the cause that the text names.",
    ("given up after", "dropped: "),
)
DELIVERY_TOO_SLOW = _of_sending(
    "PKS-5002", "records were not delivered in time",
    "kafka.delivery.timeout.ms passed since they were accepted.",
    "Spark retries the task. Mend the cause that the text names. If it names none, see whether brokers are "
    "overloaded, or raise kafka.delivery.timeout.ms.",
    ("not delivered within delivery.timeout.ms",),
)
BUFFER_FULL = _of_sending(
    "PKS-5003", "buffer stayed full",
    "kafka.buffer.memory stayed full for kafka.max.block.ms: brokers are slower than the task.",
    "If that passes, raise kafka.max.block.ms; otherwise they are too slow for this load.",
    ("no room for ... records",),
)
TRANSACTION_FAILED = _of_sending(
    "PKS-5004", "transaction was aborted",
    "That of this task or Producer can no longer be committed.",
    "Spark retries the task. A Producer aborts, and begins a new one.",
    ("the transaction must be aborted", "the transaction was aborted"),
    data="No record of the transaction becomes visible.",
    page="producer.md#transactions",
)
PRODUCER_FENCED = _of_sending(
    "PKS-5005", "another producer took over",
    "A newer producer has the transactional id, or the transaction was open for longer than its limit.",
    "Stop the other producer, or raise kafka.transaction.timeout.ms above the time of the slowest task.",
    ("another producer took it over", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"),
    data="No record of the transaction becomes visible.",
    page="troubleshooting.md#producer_fenced-invalid_producer_epoch",
)
WRONG_CALL = _of_sending(
    "PKS-5006", "call out of order",
    "A state of the Producer does not allow this method, or an internal rule was broken.",
    "Correct the order of calls. If Spark made the call, report the whole trace.",
    ("the producer is closed", "inside a delivery callback would wait for ever"),
    page="producer.md",
)
OUT_OF_MEMORY = _of_sending(
    "PKS-5007", "out of memory or threads",
    "A Python process of Spark reached a limit of Spark, a container or the host.",
    "Raise the limit that the text names, or run fewer tasks at a time. spark.executor.pyspark.memory (on the driver "
    "spark.sql.planner.pythonExecution.memory) limits addresses, and a task reserves more than it uses: set 1g or "
    "more, or nothing.",
    ("has no memory left", "cannot start a thread"),
    page="performance.md#memory-of-a-task",
)
NO_DESCRIPTOR = _of_sending(
    "PKS-5008", "no file descriptor left",
    "The process or its host reached the limit of open files and sockets.",
    "Raise it (ulimit -n; for a service LimitNOFILE), or find who leaves files open: ls -l /proc/PID/fd. The sink "
    "needs three for a task and one for a broker.",
    ("cannot open more files",),
)
COMMIT_UNKNOWN = _of_sending(
    "PKS-5009", "not known whether the transaction was committed",
    "The producer ended before its commit was answered; the text says why.",
    "Read the end of the topics with isolation.level=read_committed before you write again.",
    ("whether the transaction was committed is not known",),
    data="All records of the transaction are visible, or none.",
    page="producer.md#transactions",
)
PARTITION_GONE = _of_sending(
    "PKS-5010", "topic was created again with fewer partitions",
    "Somebody deleted the topic and created it again while rows were on their way.",
    "Spark retries the task or batch, with the new topic. Rows with a column partition need partitions that exist. "
    "What was in the old topic is gone.",
    ("was deleted and created again: it had",),
)
GIVEN_UP_AT_CLOSE = _of_sending(
    "PKS-5011", "records were given up at the end of a producer",
    "close() was not done in its time. The future of each record has its outcome.",
    "Close without a time-out, or flush before and look at the futures. Calling close() again does not send them.",
    ("close() did not end within",),
)
