"""Kafka's error codes as facts: number, name, and whether the same request may succeed later.

`retriable` and `stale_metadata` follow the Java client's exception classes (RetriableException, and of those
InvalidMetadataException); whether a code is retried for a given request is not decided here. The numbers are those of
Apache Kafka 4.3. A number that is not in the table comes from a newer broker: it is kept and is not retriable.
"""

from __future__ import annotations

from kafka_sink.frozen import frozen


@frozen
class ErrorCode:
    number: int
    name: str
    retriable: bool
    stale_metadata: bool
    text: str


def code(number: int) -> ErrorCode:
    known = CODES.get(number)
    return known or ErrorCode(number, f"UNKNOWN_CODE_{number}", False, False, "an error code newer than this client")


# Number, name, kind, text. The codes of stale metadata may succeed later, too.
_ROWS = """
-1 UNKNOWN_SERVER_ERROR final unexpected error in the broker; its log says more
0 NONE final no error
1 OFFSET_OUT_OF_RANGE final the offset is outside the log
2 CORRUPT_MESSAGE retry the batch does not pass the broker's checks (checksum, size, or a null key on a compacted topic)
3 UNKNOWN_TOPIC_OR_PARTITION stale the broker knows no such topic or partition
4 INVALID_FETCH_SIZE final the fetch size is not valid
5 LEADER_NOT_AVAILABLE stale the partition has no leader at the moment
6 NOT_LEADER_OR_FOLLOWER stale the broker is not the leader (or a replica) of the partition
7 REQUEST_TIMED_OUT retry the broker did not finish the request in time
8 BROKER_NOT_AVAILABLE final the broker is not available
9 REPLICA_NOT_AVAILABLE stale the replica is not available
10 MESSAGE_TOO_LARGE final the batch is larger than the topic's max.message.bytes
11 STALE_CONTROLLER_EPOCH final the controller has moved to another broker
12 OFFSET_METADATA_TOO_LARGE final the metadata of the committed offset is too long
13 NETWORK_EXCEPTION stale the connection closed before the answer came
14 COORDINATOR_LOAD_IN_PROGRESS retry the coordinator is still loading its state
15 COORDINATOR_NOT_AVAILABLE retry the coordinator is not available
16 NOT_COORDINATOR retry the broker is not the coordinator
17 INVALID_TOPIC_EXCEPTION final the topic name is not valid, or the topic is internal
18 RECORD_LIST_TOO_LARGE final the batch is larger than a log segment
19 NOT_ENOUGH_REPLICAS retry too few in-sync replicas; nothing was written
20 NOT_ENOUGH_REPLICAS_AFTER_APPEND retry too few in-sync replicas; the batch was written all the same
21 INVALID_REQUIRED_ACKS final acks is not valid
22 ILLEGAL_GENERATION final the group generation is not the current one
23 INCONSISTENT_GROUP_PROTOCOL final the group's members have no protocol in common
24 INVALID_GROUP_ID final the group id is not valid
25 UNKNOWN_MEMBER_ID final the coordinator does not know the group member
26 INVALID_SESSION_TIMEOUT final the session time-out is outside the broker's range
27 REBALANCE_IN_PROGRESS final the group is rebalancing; the member has to join again
28 INVALID_COMMIT_OFFSET_SIZE final the size of the committed offsets is not valid
29 TOPIC_AUTHORIZATION_FAILED final no permission for the topic
30 GROUP_AUTHORIZATION_FAILED final no permission for the group
31 CLUSTER_AUTHORIZATION_FAILED final no permission for the cluster
32 INVALID_TIMESTAMP final the record's timestamp is outside the range that the topic accepts
33 UNSUPPORTED_SASL_MECHANISM final the broker does not offer the SASL mechanism
34 ILLEGAL_SASL_STATE final the request does not fit the state of authentication
35 UNSUPPORTED_VERSION final the broker does not speak this version of the API
36 TOPIC_ALREADY_EXISTS final the topic exists already
37 INVALID_PARTITIONS final the number of partitions is not valid
38 INVALID_REPLICATION_FACTOR final the replication factor is not valid for the number of brokers
39 INVALID_REPLICA_ASSIGNMENT final the replica assignment is not valid
40 INVALID_CONFIG final the configuration is not valid
41 NOT_CONTROLLER retry the broker is not the controller
42 INVALID_REQUEST final the broker finds the request malformed or illegal
43 UNSUPPORTED_FOR_MESSAGE_FORMAT final the topic's message format does not support the request
44 POLICY_VIOLATION final a policy of the broker forbids the request
45 OUT_OF_ORDER_SEQUENCE_NUMBER final the sequence number does not follow the last one the broker has
46 DUPLICATE_SEQUENCE_NUMBER final the broker has this sequence number already
47 INVALID_PRODUCER_EPOCH final the producer epoch is not the current one
48 INVALID_TXN_STATE final the transaction is not in a state for this request
49 INVALID_PRODUCER_ID_MAPPING final the producer id does not belong to the transactional id
50 INVALID_TRANSACTION_TIMEOUT final the transaction time-out is above the broker's transaction.max.timeout.ms
51 CONCURRENT_TRANSACTIONS retry another operation on the same transaction is still going on
52 TRANSACTION_COORDINATOR_FENCED final a newer transaction coordinator exists
53 TRANSACTIONAL_ID_AUTHORIZATION_FAILED final no permission for the transactional id
54 SECURITY_DISABLED final the broker has no authorizer
55 OPERATION_NOT_ATTEMPTED final the broker did not try, because an earlier part of the request failed
56 KAFKA_STORAGE_ERROR stale the broker has a disk error
57 LOG_DIR_NOT_FOUND final the log directory is not configured
58 SASL_AUTHENTICATION_FAILED final the credentials were refused
59 UNKNOWN_PRODUCER_ID final the broker has no state for the producer id, perhaps because its records have expired
60 REASSIGNMENT_IN_PROGRESS final a reassignment of the partition is going on
61 DELEGATION_TOKEN_AUTH_DISABLED final the broker has no delegation tokens
62 DELEGATION_TOKEN_NOT_FOUND final the delegation token is unknown
63 DELEGATION_TOKEN_OWNER_MISMATCH final the delegation token belongs to somebody else
64 DELEGATION_TOKEN_REQUEST_NOT_ALLOWED final delegation tokens are not allowed on this kind of connection
65 DELEGATION_TOKEN_AUTHORIZATION_FAILED final no permission for the delegation token
66 DELEGATION_TOKEN_EXPIRED final the delegation token has expired
67 INVALID_PRINCIPAL_TYPE final the principal type is not supported
68 NON_EMPTY_GROUP final the group has members
69 GROUP_ID_NOT_FOUND final the group does not exist
70 FETCH_SESSION_ID_NOT_FOUND retry the fetch session is unknown
71 INVALID_FETCH_SESSION_EPOCH retry the fetch session has another epoch
72 LISTENER_NOT_FOUND stale the leader has no listener of this name
73 TOPIC_DELETION_DISABLED final the cluster does not allow topics to be deleted
74 FENCED_LEADER_EPOCH stale the leader epoch in the request is too old
75 UNKNOWN_LEADER_EPOCH retry the leader epoch in the request is newer than the broker's
76 UNSUPPORTED_COMPRESSION_TYPE final the asking side does not support the compression of the partition
77 STALE_BROKER_EPOCH final the broker epoch has changed
78 OFFSET_NOT_AVAILABLE retry the offset is not known yet after a change of leader
79 MEMBER_ID_REQUIRED final the member needs an id before it may join
80 PREFERRED_LEADER_NOT_AVAILABLE stale the preferred leader is not available
81 GROUP_MAX_SIZE_REACHED final the group is full
82 FENCED_INSTANCE_ID final another member with the same group.instance.id has taken over
83 ELIGIBLE_LEADERS_NOT_AVAILABLE stale no replica may become leader
84 ELECTION_NOT_NEEDED stale no election is needed
85 NO_REASSIGNMENT_IN_PROGRESS final no reassignment is going on
86 GROUP_SUBSCRIBED_TO_TOPIC final the group is subscribed to the topic
87 INVALID_RECORD final the broker's validation refused a record
88 UNSTABLE_OFFSET_COMMIT retry offsets of an open transaction stand in the way
89 THROTTLING_QUOTA_EXCEEDED retry a quota is used up
90 PRODUCER_FENCED final a newer producer has the same transactional id
91 RESOURCE_NOT_FOUND final the named resource does not exist
92 DUPLICATE_RESOURCE final the request names a resource twice
93 UNACCEPTABLE_CREDENTIAL final the new credential does not meet the broker's rules
94 INCONSISTENT_VOTER_SET final the voter set does not match
95 INVALID_UPDATE_VERSION final the version of the update is not valid
96 FEATURE_UPDATE_FAILED final the features could not be updated
97 PRINCIPAL_DESERIALIZATION_FAILURE final a principal could not be read after forwarding
98 SNAPSHOT_NOT_FOUND final the snapshot does not exist
99 POSITION_OUT_OF_RANGE final the position is outside the snapshot
100 UNKNOWN_TOPIC_ID stale the broker knows no topic with this id
101 DUPLICATE_BROKER_REGISTRATION final the broker id is taken
102 BROKER_ID_NOT_REGISTERED final the broker id is not registered
103 INCONSISTENT_TOPIC_ID stale the topic id is not the one of the log
104 INCONSISTENT_CLUSTER_ID final the cluster id is another one
105 TRANSACTIONAL_ID_NOT_FOUND final the transactional id is unknown
106 FETCH_SESSION_TOPIC_ID_ERROR retry the fetch session mixes topics with and without id
107 INELIGIBLE_REPLICA final a replica may not be in the in-sync set
108 NEW_LEADER_ELECTED final the update succeeded, and the leader changed with it
109 OFFSET_MOVED_TO_TIERED_STORAGE final the offset has moved to tiered storage
110 FENCED_MEMBER_EPOCH final the member epoch is fenced; the member has to join again
111 UNRELEASED_INSTANCE_ID final the instance id is still in use in the group
112 UNSUPPORTED_ASSIGNOR final the group does not support the assignor
113 STALE_MEMBER_EPOCH final the member epoch is stale
114 MISMATCHED_ENDPOINT_TYPE final the request was sent to the wrong kind of endpoint
115 UNSUPPORTED_ENDPOINT_TYPE final this kind of endpoint is not supported
116 UNKNOWN_CONTROLLER_ID final the controller id is unknown
117 UNKNOWN_SUBSCRIPTION_ID final the telemetry subscription is unknown or old
118 TELEMETRY_TOO_LARGE final the telemetry is larger than the broker accepts
119 INVALID_REGISTRATION final the registration is not valid
120 TRANSACTION_ABORTABLE final the transaction must be aborted; the producer may go on after that
121 INVALID_RECORD_STATE final the record is not in a state for this acknowledgement
122 SHARE_SESSION_NOT_FOUND retry the share session does not exist
123 INVALID_SHARE_SESSION_EPOCH retry the share session has another epoch
124 FENCED_STATE_EPOCH final the state epoch of the share group is fenced
125 INVALID_VOTER_KEY final the voter key is not the one of the replica
126 DUPLICATE_VOTER final the voter is in the set already
127 VOTER_NOT_FOUND final the voter is not in the set
128 INVALID_REGULAR_EXPRESSION final the regular expression is not valid
129 REBOOTSTRAP_REQUIRED final the client's metadata is too old; it has to start again from its bootstrap servers
130 STREAMS_INVALID_TOPOLOGY final the topology is not valid
131 STREAMS_INVALID_TOPOLOGY_EPOCH final the topology epoch is not valid
132 STREAMS_TOPOLOGY_FENCED final the topology epoch is outdated
133 SHARE_SESSION_LIMIT_REACHED retry no more share sessions are possible
"""


def _read_row(line: str) -> ErrorCode:
    number, name, kind, text = line.split(" ", 3)
    return ErrorCode(int(number), name, kind != "final", kind == "stale", text)


CODES = {row.number: row for row in map(_read_row, _ROWS.strip().splitlines())}

# The numbers of those that other modules compare with.
_NUMBERS = {row.name: row.number for row in CODES.values()}
UNKNOWN_TOPIC_OR_PARTITION = _NUMBERS["UNKNOWN_TOPIC_OR_PARTITION"]
LEADER_NOT_AVAILABLE = _NUMBERS["LEADER_NOT_AVAILABLE"]
REPLICA_NOT_AVAILABLE = _NUMBERS["REPLICA_NOT_AVAILABLE"]
MESSAGE_TOO_LARGE = _NUMBERS["MESSAGE_TOO_LARGE"]
INVALID_TOPIC_EXCEPTION = _NUMBERS["INVALID_TOPIC_EXCEPTION"]
TOPIC_AUTHORIZATION_FAILED = _NUMBERS["TOPIC_AUTHORIZATION_FAILED"]
NOT_ENOUGH_REPLICAS = _NUMBERS["NOT_ENOUGH_REPLICAS"]
GROUP_AUTHORIZATION_FAILED = _NUMBERS["GROUP_AUTHORIZATION_FAILED"]
CLUSTER_AUTHORIZATION_FAILED = _NUMBERS["CLUSTER_AUTHORIZATION_FAILED"]
INVALID_TIMESTAMP = _NUMBERS["INVALID_TIMESTAMP"]
UNSUPPORTED_SASL_MECHANISM = _NUMBERS["UNSUPPORTED_SASL_MECHANISM"]
ILLEGAL_SASL_STATE = _NUMBERS["ILLEGAL_SASL_STATE"]
UNSUPPORTED_VERSION = _NUMBERS["UNSUPPORTED_VERSION"]
TOPIC_ALREADY_EXISTS = _NUMBERS["TOPIC_ALREADY_EXISTS"]
INVALID_PARTITIONS = _NUMBERS["INVALID_PARTITIONS"]
INVALID_REPLICATION_FACTOR = _NUMBERS["INVALID_REPLICATION_FACTOR"]
INVALID_CONFIG = _NUMBERS["INVALID_CONFIG"]
INVALID_REQUEST = _NUMBERS["INVALID_REQUEST"]
POLICY_VIOLATION = _NUMBERS["POLICY_VIOLATION"]
INVALID_PRODUCER_EPOCH = _NUMBERS["INVALID_PRODUCER_EPOCH"]
INVALID_TXN_STATE = _NUMBERS["INVALID_TXN_STATE"]
INVALID_PRODUCER_ID_MAPPING = _NUMBERS["INVALID_PRODUCER_ID_MAPPING"]
CONCURRENT_TRANSACTIONS = _NUMBERS["CONCURRENT_TRANSACTIONS"]
INVALID_TRANSACTION_TIMEOUT = _NUMBERS["INVALID_TRANSACTION_TIMEOUT"]
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = _NUMBERS["TRANSACTIONAL_ID_AUTHORIZATION_FAILED"]
OPERATION_NOT_ATTEMPTED = _NUMBERS["OPERATION_NOT_ATTEMPTED"]
SASL_AUTHENTICATION_FAILED = _NUMBERS["SASL_AUTHENTICATION_FAILED"]
INVALID_RECORD = _NUMBERS["INVALID_RECORD"]
THROTTLING_QUOTA_EXCEEDED = _NUMBERS["THROTTLING_QUOTA_EXCEEDED"]
PRODUCER_FENCED = _NUMBERS["PRODUCER_FENCED"]
TRANSACTIONAL_ID_NOT_FOUND = _NUMBERS["TRANSACTIONAL_ID_NOT_FOUND"]
TRANSACTION_ABORTABLE = _NUMBERS["TRANSACTION_ABORTABLE"]
REBOOTSTRAP_REQUIRED = _NUMBERS["REBOOTSTRAP_REQUIRED"]
