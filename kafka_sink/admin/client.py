"""Requests to a cluster without a producer: what the driver of a Spark job, the planner and the command line ask.

    with Client(options) as client:
        client.reach()
        verdict = client.run(Committer(settings, session, job, client.now_ms()))

`run` is the hands of the driver's machine; the rest are facts about the cluster and its topics. Waiting is limited by
max.block.ms, and what an error says is what the brokers said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol, TypeVar

from kafka_sink.admin.loop import AdminLoop
from kafka_sink.client.admin_request import (
    AdminRequest,
    AdminResponse,
    AllBrokers,
    AnyBroker,
    Controller,
    Coordinator,
    Coordinators,
    Leader,
    Leaders,
    OneBroker,
    ResponseKind,
    Target,
)
from kafka_sink.client.outcome import describe
from kafka_sink.client.partitions import PartitionInfo, partition_infos
from kafka_sink.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    ConfigError,
    KafkaSinkError,
    LocalProtocolError,
    OperationTimeout,
    TransportError,
)
from kafka_sink.exactly_once import request as d
from kafka_sink.version import CLIENT_SOFTWARE_NAME, VERSION
from kafka_sink.wire.apis import ADD_PARTITIONS_TO_TXN, API_VERSIONS, CREATE_TOPICS, DESCRIBE_CONFIGS, METADATA
from kafka_sink.wire.codes import code

RESOURCE_TOPIC, RESOURCE_BROKER = 2, 4
TOPIC_ALREADY_EXISTS, NOT_CONTROLLER, UNSUPPORTED_VERSION = 36, 41, 35
TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED = 29, 31
UNAUTHORIZED = (TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED)
# From here -1 stands for the broker's default (KIP-464).
CREATE_TOPICS_FIRST_WITH_DEFAULTS = 4
TRANSACTION_FEATURE, GENERATION_2_LEVEL = "transaction.version", 2
# From here on, that is from Kafka 3.6, leaders ask the coordinator whether a transaction is open (KIP-890, part 1).
ADD_PARTITIONS_FIRST_THAT_VERIFIES, VERIFICATION = 4, "transaction.partition.verification.enable"
ABOUT_US = {"client_software_name": CLIENT_SOFTWARE_NAME, "client_software_version": VERSION}
# A broker that is asked for a topic creates it a little later, or says that it cannot now.
CREATION_REPEATED_MS = 1_000

V_co = TypeVar("V_co", covariant=True)


class TransactionSupport(NamedTuple):
    """`generation`: 2 from KIP-890 on, else 1. `verifies`: a record that arrives after the end of its transaction is
    refused, in place of opening one that no coordinator knows."""

    generation: int
    verifies: bool


class MachineStep(Protocol[V_co]):
    """What a machine wants next; `verdict` None: it is not over."""

    @property
    def requests(self) -> Sequence[d.DriverRequest]: ...

    @property
    def wake_at_ms(self) -> int | None: ...

    @property
    def verdict(self) -> V_co | None: ...


class Machine(Protocol[V_co]):
    """A `Committer`, or whatever else decides by requests and answers."""

    def step(self, now_ms: int, answers: Sequence[d.DriverAnswer]) -> MachineStep[V_co]: ...


class Client(AdminLoop):
    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- the driver's machine --------------------------------------------------------------------------------------

    def run(self, machine: Machine[V_co]) -> V_co:
        """Carries out what the machine asks for until it has a verdict. Every request is answered exactly once.

        A request whose key is used again before it was answered is one that the machine has given up: its answer must
        not be taken for one to the newer request.
        """
        self._start_afresh_if_refused()
        requests: dict[d.RequestKey, AdminRequest] = {}
        answers: list[d.DriverAnswer] = []
        try:
            while True:
                progress = machine.step(self.now_ms(), answers)
                if progress.verdict is not None:
                    return progress.verdict
                asked = {request.key: _question(request) for request in progress.requests}
                requests.update(asked)
                until_ms = progress.wake_at_ms
                if not requests and until_ms is None:
                    raise LocalProtocolError(f"{type(machine).__name__} waits for nothing and has no verdict")
                if until_ms is not None:
                    until_ms = max(until_ms, self.now_ms() + 1)  # it has just been stepped
                replies = self._replies(tuple(asked.values()), until_ms)
                answers = [answer for reply in replies for answer in _current(requests, reply)]
        finally:
            if self._asking is not None:
                self._asking.forget_questions()

    # ---- the cluster -----------------------------------------------------------------------------------------------

    def reach(self, timeout_ms: int | None = None) -> None:
        """Returns when a broker has said who the brokers are; max.block.ms is the time limit by default."""
        self._start_afresh_if_refused()
        limit_ms = self.options.max_block_ms if timeout_ms is None else timeout_ms
        metadata = self._opened()[1].metadata
        if metadata.is_just_learnt(self.now_ms()):
            return
        seen = metadata.view
        metadata.request_update()
        if self._wait_until(lambda: self._has_news(seen), self.now_ms() + limit_ms):
            return
        raise OperationTimeout(f"no broker has answered within {self._limit(timeout_ms)}: {self._said()}")

    def features(self) -> dict[str, int]:
        """Finalised features and their levels, such as transaction.version. Empty before they existed."""
        limit_ms = self.options.max_block_ms
        answer = self.ask(AnyBroker(), API_VERSIONS, ABOUT_US, timeout_ms=limit_ms, changes_nothing=True)
        return {row["name"]: row["max_version_level"] for row in answer.get("finalized_features") or ()}

    def transaction_generation(self) -> int:
        """By which rules the cluster ends transactions: 2 from KIP-890 on, else 1."""
        return 2 if self.features().get(TRANSACTION_FEATURE, 0) >= GENERATION_2_LEVEL else 1

    def transaction_support(self) -> TransactionSupport:
        generation = self.transaction_generation()
        return TransactionSupport(generation, generation == 2 or self._brokers_verify())

    def cluster_id(self) -> str:
        """Empty if the brokers do not name their cluster."""
        if not self._opened()[1].cluster.brokers:
            self.reach()
        return self._opened()[1].cluster.cluster_id or ""

    def broker_configs(self, names: Sequence[str]) -> dict[str, str | None] | None:
        """As one of the brokers has them; a name that it does not know is left out. None: it does not tell us."""
        self.reach()
        node_ids = sorted(self._opened()[1].cluster.brokers)
        while True:
            node_id = node_ids.pop(0)
            try:
                return self._configs(OneBroker(node_id), RESOURCE_BROKER, str(node_id), names)
            except TransportError:
                if not node_ids:
                    raise

    # ---- topics ----------------------------------------------------------------------------------------------------

    def describe_topic(
        self, topic: str, *, create: bool | None = None, timeout_ms: int | None = None
    ) -> list[PartitionInfo]:
        """The partitions; waits until the topic is known, at most max.block.ms by default.

        `create`: brokers that create topics on demand (auto.create.topics.enable) may do so; allow.auto.create.topics
        by default.
        """
        creates = self.creates_topics if create is None else create
        limit_ms = self.options.max_block_ms if timeout_ms is None else timeout_ms
        deadline_ms = self.now_ms() + limit_ms
        self._start_afresh_if_refused()
        metadata = self._opened()[1].metadata
        seen = metadata.view
        metadata.want_topic(topic, self.now_ms())
        metadata.request_update()
        while True:
            if creates:
                self._ask_to_create(topic)
            patience_ms = min(deadline_ms, self.now_ms() + CREATION_REPEATED_MS)
            if self._wait_until(lambda: self._is_topic_settled(topic, seen), patience_ms):
                break
            if self.now_ms() >= deadline_ms:
                trouble = metadata.topic_trouble(topic) or self._said()
                raise OperationTimeout(f"topic {topic} is not known within {self._limit(timeout_ms)}: {trouble}")
            metadata.want_topic(topic, self.now_ms())
        error = metadata.topic_error(topic)
        if error is not None:
            raise error
        return partition_infos(metadata.view, topic)

    def topic_configs(self, topic: str, names: Sequence[str] | None = None) -> dict[str, str | None] | None:
        """None: the broker does not tell us."""
        return self._configs(AnyBroker(), RESOURCE_TOPIC, topic, names)

    def create_topic(
        self,
        name: str,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> list[PartitionInfo]:
        """Returns its partitions when all are led. A topic that exists already is taken as it is.

        -1 stands for the broker's default.
        """
        limit_ms = self.options.max_block_ms if timeout_ms is None else timeout_ms
        deadline_ms = self.now_ms() + limit_ms
        row = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
        }
        attempt = 0
        while True:
            attempt += 1
            error = self._creation_error(row, is_first=attempt == 1, left_ms=max(0, deadline_ms - self.now_ms()))
            if error is None:
                break
            retry_at_ms = self.now_ms() + self._backoff.delay_ms(attempt)
            # A request that got lost may have done it: then the next one hears that the topic exists.
            is_final = isinstance(error, BrokerError) and not code(error.code).retriable
            if is_final or not isinstance(error, (BrokerError, TransportError)) or retry_at_ms >= deadline_ms:
                raise error
            self._wait_until(lambda: False, retry_at_ms)
        while True:
            infos = self.describe_topic(name, timeout_ms=max(0, deadline_ms - self.now_ms()))
            if all(info.leader_id is not None for info in infos):
                return infos
            retry_at_ms = self.now_ms() + self._backoff.delay_ms(1)
            if retry_at_ms >= deadline_ms:
                raise OperationTimeout(f"topic {name} exists, but not all of its partitions have a leader yet")
            self._wait_until(lambda: False, retry_at_ms)

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _brokers_verify(self) -> bool:
        """Every broker that answers does, since any may lead a partition; one that is away cannot be asked."""
        question = AdminRequest(AllBrokers(), API_VERSIONS, ABOUT_US, self.options.request_timeout_ms)
        (reply,) = self._replies((question,))
        highest = [
            row["max_version"]
            for body in reply.bodies
            for row in body["api_keys"]
            if row["api_key"] == ADD_PARTITIONS_TO_TXN.key
        ]
        if not highest or min(highest) < ADD_PARTITIONS_FIRST_THAT_VERIFIES:
            return False
        return (self.broker_configs([VERIFICATION]) or {}).get(VERIFICATION) != "false"

    def _has_news(self, seen: object) -> bool:
        view = self._opened()[1].cluster
        return view is not seen and bool(view.brokers)

    def _is_topic_settled(self, topic: str, seen: object) -> bool:
        """Known, or known to be out of reach. What was known before we asked does not count."""
        metadata = self._opened()[1].metadata
        if not self._has_news(seen):
            return False
        return metadata.view.partition_count(topic) is not None or metadata.topic_error(topic) is not None

    def _said(self) -> str:
        """Every bootstrap server and what became of the attempt to use it."""
        nodes = self._opened()[1].nodes
        said = [str(failure or f"{title}: no answer so far") for title, failure in nodes.bootstrap_failures()]
        last = str(nodes.last_failure or "")
        return "; ".join([*said, last] if last and last not in said else said)

    def _limit(self, timeout_ms: int | None) -> str:
        return f"max.block.ms={self.options.max_block_ms}" if timeout_ms is None else f"{timeout_ms} ms"

    def _ask_to_create(self, topic: str) -> None:
        body = {"topics": [{"name": topic}], "allow_auto_topic_creation": True}
        (reply,) = self._replies((AdminRequest(AnyBroker(), METADATA, body, self.options.request_timeout_ms),))
        if isinstance(reply.error, (AuthenticationError, ConfigError)):
            raise reply.error
        for answer in reply.bodies:
            if answer["topics"][0]["error_code"] == TOPIC_AUTHORIZATION_FAILED:
                raise AuthorizationError(
                    f"not authorized to describe topic {topic} (operation Describe, which Read and Write imply), or to "
                    "create it (Create)"
                )

    def _creation_error(self, row: Mapping[str, Any], *, is_first: bool, left_ms: int) -> KafkaSinkError | None:
        name = row["name"]
        has_defaults = -1 in (row["num_partitions"], row["replication_factor"])
        timeout_ms = min(left_ms, self.options.request_timeout_ms)
        body = {"topics": [row], "timeout_ms": timeout_ms}
        version_min = CREATE_TOPICS_FIRST_WITH_DEFAULTS if has_defaults else 0
        try:
            answer = self.ask(
                Controller(), CREATE_TOPICS, body, timeout_ms=timeout_ms, version_min=version_min,
                find_again=not is_first,
            )  # fmt: skip
        except KafkaSinkError as error:
            return error
        (result,) = answer["topics"]
        error_code = result["error_code"]
        if error_code in (0, TOPIC_ALREADY_EXISTS):
            return None
        text = f"topic {name} was not created: {describe(error_code)}"
        if result["error_message"]:
            text += f"; the broker says: {result['error_message']}"
        if error_code in UNAUTHORIZED:
            return AuthorizationError(f"{text}. The principal needs Create on topic {name!r} or on the cluster")
        return BrokerError(text, code=error_code, api=CREATE_TOPICS.name, topic=name)

    def _configs(
        self, target: Target, resource_type: int, name: str, names: Sequence[str] | None
    ) -> dict[str, str | None] | None:
        keys = None if names is None else list(names)
        resource = {"resource_type": resource_type, "resource_name": name, "configuration_keys": keys}
        try:
            question = {"resources": [resource], "include_synonyms": False}
            answer = self.ask(target, DESCRIBE_CONFIGS, question, changes_nothing=True)
        except BrokerError as error:
            if error.code == UNSUPPORTED_VERSION:
                return None
            raise
        (result,) = answer["results"]
        error_code = result["error_code"]
        if error_code in UNAUTHORIZED:
            return None
        if error_code:
            kind = "topic" if resource_type == RESOURCE_TOPIC else "broker"
            text = f"the configuration of {kind} {name} was refused: {describe(error_code)}"
            raise BrokerError(text, code=error_code, api=DESCRIBE_CONFIGS.name)
        return {row["name"]: row["value"] for row in result["configs"]}


# ---- between the driver's words and the engine's ---------------------------------------------------------------


def _question(request: d.DriverRequest) -> AdminRequest:
    return AdminRequest(
        _target(request.target),
        request.api,
        request.body,
        request.timeout_ms,
        request.version_min,
        request.version_max,
        request.find_again,
    )


def _target(target: d.Target) -> Target:
    if isinstance(target, d.CoordinatorOf):
        return Coordinator(target.transactional_id)
    if isinstance(target, d.CoordinatorsOf):
        return Coordinators(target.transactional_ids)
    if isinstance(target, d.LeadersOf):
        return Leaders(target.partitions)
    if isinstance(target, d.LeaderOf):
        return Leader(target.topic, target.partition)
    return AllBrokers()


_FATES = {
    ResponseKind.ANSWERED: d.AnswerStatus.ANSWERED,
    ResponseKind.LOST: d.AnswerStatus.LOST,
    ResponseKind.UNSUPPORTED: d.AnswerStatus.UNSUPPORTED,
    ResponseKind.REFUSED: d.AnswerStatus.REFUSED,
}


def _current(requests: dict[d.RequestKey, AdminRequest], reply: AdminResponse) -> Iterator[d.DriverAnswer]:
    for key, question in list(requests.items()):
        if question is reply.question:
            del requests[key]
            yield d.DriverAnswer(key, _FATES[reply.ending], reply.bodies, reply.error)
