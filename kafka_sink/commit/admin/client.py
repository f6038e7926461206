"""Requests to a cluster without a producer: for the driver of a Spark job, planning and the command line.

    with Client(options) as client:
        client.reach()
        result = client.run(Committer(settings, session, job, client.now_ms()))

`run` carries out the requests of a state machine such as `Committer`; the rest reads facts about the cluster and its
topics. Waiting is limited by max.block.ms, and errors contain what the brokers answered.

There is no thread. Every call polls, steps the pure `AdminEngine` and carries out its commands until it has its result.
Nothing is connected before the first call. Use from one thread at a time.

Any exception inside a call other than an error response (Ctrl-C, an internal error) drops all connections before it is
raised: the next call starts afresh, and no response can be taken for another's. A forked child starts afresh as well;
the sockets belong to the parent.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from kafka_sink.commit.admin.asking import Asking, Bodies, Lacks, lacks_nothing
from kafka_sink.commit.admin.configs import (
    UNAUTHORIZED,
    ConfigAnswer,
    ConfigResource,
    configs_body,
    found_or_raise,
    read_configs,
)
from kafka_sink.commit.admin.support import TRANSACTION_APIS, TransactionSupport
from kafka_sink.commit.commit_step import Progress, SingleStep, StepT
from kafka_sink.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    ConfigError,
    KafkaSinkError,
    LocalProtocolError,
    OperationTimeout,
    RemoteProtocolError,
    TransportError,
    copy_error,
    printable_text,
)
from kafka_sink.errors.table.brokers import NO_BROKER, TOPIC_NOT_CREATED, TOPIC_UNKNOWN
from kafka_sink.kafka.auth.secured import authenticator, tls_contexts
from kafka_sink.kafka.client.admin_engine import AdminEngine
from kafka_sink.kafka.client.ask import AllBrokers, AnyBroker, Ask, Controller, OneBroker, Repeat, Reply, Target
from kafka_sink.kafka.client.backoff import Backoff
from kafka_sink.kafka.client.cluster import ClusterView, PartitionInfo
from kafka_sink.kafka.client.commands import Connect, Disconnect, Notice, Resolve, Send
from kafka_sink.kafka.client.outcome import describe
from kafka_sink.kafka.client.request import VERSION_MAX
from kafka_sink.kafka.io.clock import BootClock
from kafka_sink.kafka.io.network import Network, log_notice
from kafka_sink.kafka.wire.apis import (
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    CREATE_TOPICS,
    DESCRIBE_CONFIGS,
    METADATA,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    Api,
)
from kafka_sink.kafka.wire.codes import TOPIC_ALREADY_EXISTS, TOPIC_AUTHORIZATION_FAILED, UNSUPPORTED_VERSION, code
from kafka_sink.options import ProducerOptions
from kafka_sink.options.sink_options import TopicPlan
from kafka_sink.version import CLIENT_SOFTWARE_NAME, VERSION

_LOGGER = logging.getLogger("kafka_sink")
# The order of requests does not matter; this limits how many are lost with a connection.
PIPELINED_MAX = 100
# Longer waits are split: a signal just before the thread goes to sleep does not wake it, and Ctrl-C would be noticed
# only at the end of the wait.
WAIT_MS_MAX = 1_000

_client_numbers = itertools.count(1)

VERIFICATION = "transaction.partition.verification.enable"
ABOUT_US = {"client_software_name": CLIENT_SOFTWARE_NAME, "client_software_version": VERSION}
# A broker creates a requested topic a little later, or answers that it cannot now.
CREATION_REPEATED_MS = 1_000
STILL_WAITING_MS = 10_000  # between two log lines about one operation

V_co = TypeVar("V_co", covariant=True)


class Machine(Protocol[V_co]):
    """A `Committer`, or another state machine of asks and replies."""

    def step(self, now_ms: int, replies: Sequence[Reply]) -> Progress[V_co]: ...


def topic_row(api: Api, answer: Mapping[str, Any], topic: str) -> Mapping[str, Any]:
    row: Mapping[str, Any] | None = next((each for each in answer["topics"] if each["name"] == topic), None)
    if row is None:
        raise RemoteProtocolError(f"a broker broke the protocol: its {api.name} answer does not name topic {topic}")
    return row


def topic_query(*names: str) -> dict[str, Any]:
    """Creates none of them."""
    return {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}


def new_topic_row(name: str, plan: TopicPlan) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": plan.partitions,
        "replication_factor": plan.replication_factor,
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in plan.configs],
    }


def _creation_trouble(name: str, answer: Mapping[str, Any]) -> KafkaSinkError | None:
    """Raised at once unless it may pass."""
    result = topic_row(CREATE_TOPICS, answer, name)
    error_code = result["error_code"]
    if error_code in (0, TOPIC_ALREADY_EXISTS):
        return None
    text = f"topic {name} was not created: {describe(error_code, result['error_message'])}"
    if error_code in UNAUTHORIZED:
        raise AuthorizationError(f"{text}. The principal needs Create on topic {name!r} or on the cluster")
    error = BrokerError(text, TOPIC_NOT_CREATED, code=error_code, api=CREATE_TOPICS.name, topic=name)
    if not code(error_code).retriable:
        raise error
    return error


class Client:
    def __init__(self, options: ProducerOptions) -> None:
        # Of transactions that brokers end, however long this host sleeps.
        self._clock = BootClock()
        self.options = replace(
            options,
            client_id=options.client_id or f"client-{next(_client_numbers)}",
            max_in_flight_requests_per_connection=PIPELINED_MAX,
            # Looking up a leader must not create the topic.
            allow_auto_create_topics=False,
        )
        self._creates_topics = options.allow_auto_create_topics
        self._backoff = Backoff(options.retry_backoff_ms, options.retry_backoff_max_ms, random.random)
        self._network: Network | None = None
        self._engine: AdminEngine | None = None
        self._wake_at_ms: int | None = 0
        self._is_closed = False

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open" if self._network is not None else "not connected"
        return f"<Client {self.options.client_id} {state}>"

    def close(self) -> None:
        """Closes at once. Requests in flight may still be carried out. Safe to call twice."""
        self._is_closed = True
        self._drop()

    def now_ms(self) -> int:
        """The clock of this client, and of the state machines that it runs."""
        return self._clock.monotonic_ms()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # ---- state machines --------------------------------------------------------------------------------------------

    def run(self, machine: Machine[V_co]) -> V_co:
        """Carries out the asks of the state machine until it has a result. Each has exactly one reply."""
        self._begin()
        try:
            return self._carry_out(machine)
        finally:
            if self._engine is not None:
                self._engine.forget_asks()

    def _carry_out(self, machine: Machine[V_co]) -> V_co:
        replies: list[Reply] = []
        told_ms = self.now_ms()
        while True:
            progress = machine.step(self.now_ms(), replies)
            if progress.result is not None:
                return progress.result
            if progress.trouble and self.now_ms() - told_ms >= STILL_WAITING_MS:
                told_ms = self.now_ms()
                name = printable_text(self.options.client_id)
                _LOGGER.warning("[%s] still waiting: %s", name, progress.trouble)
            until_ms = progress.wake_at_ms
            if until_ms is not None:
                until_ms = max(until_ms, self.now_ms() + 1)  # it has just been stepped
            elif not progress.asks and not self._open_engine().is_asking:
                raise LocalProtocolError(f"{type(machine).__name__} waits for nothing and has no result")
            replies = self._send_and_wait(progress.asks, until_ms)

    def run_step(self, step: StepT) -> StepT:
        """Runs one step alone, for at most max.block.ms, and returns it."""
        return self.run(SingleStep(step, self.now_ms() + self.options.max_block_ms))

    def forget_topics(self, kept: Collection[str]) -> None:
        """Forgets the topics of earlier operations except `kept`: they are not requested with those of the next one."""
        self._open_engine().metadata.forget_topics(kept)

    def look_ahead(self, topics: Collection[str], transactional_ids: Collection[str]) -> None:
        """Announces what the next `run` needs. It is looked up together with what the next call needs."""
        self._begin().look_ahead(self.now_ms(), topics, transactional_ids)

    # ---- requests --------------------------------------------------------------------------------------------------

    def ask(self, target: Target, api: Api, body: Mapping[str, Any], **more: Any) -> Mapping[str, Any]:
        """The response of one broker, like `ask_all`."""
        return self.ask_all(target, api, body, **more)[0]

    def ask_all(
        self,
        target: Target,
        api: Api,
        body: Mapping[str, Any],
        *,
        timeout_ms: int | None = None,
        version_min: int = 0,
        version_max: int = VERSION_MAX,
        find_again: bool = False,
        repeat: Repeat = Repeat.UNSENT,
        lacks: Lacks = lacks_nothing,
        wait_ms: int | None = None,
        needs_all: bool = True,
    ) -> Bodies:
        """The answers of all brokers of the target; the caller checks their error codes.

        It is repeated within the time (`request.timeout.ms` by default) as far as `repeat` allows, and while the
        answers lack something (`Asking`), after `wait_ms` or the usual back-off. Then the failure is raised; so is one
        that a retry does not fix. Without `needs_all`, brokers that do not answer are left out if at least one does.
        """
        self._begin()
        ask = Ask(target, api, body, version_min=version_min, version_max=version_max, repeat=repeat)
        ask.find_again = find_again
        ((reply, trouble),) = self._ask_each([ask], timeout_ms, lacks=lacks, wait_ms=wait_ms, needs_all=needs_all)
        if trouble is not None:
            raise trouble
        return reply.bodies

    def _ask_each(
        self,
        asks: Sequence[Ask],
        timeout_ms: int | None = None,
        *,
        lacks: Lacks = lacks_nothing,
        wait_ms: int | None = None,
        needs_all: bool = True,
    ) -> list[tuple[Reply, KafkaSinkError | None]]:
        """Unlike `run` this leaves alone what was announced by `look_ahead`."""
        try_ms = self.options.request_timeout_ms
        asking = Asking(
            asks,
            deadline_ms=self.now_ms() + (try_ms if timeout_ms is None else timeout_ms),
            try_ms=try_ms,
            delay_ms=self._backoff.delay_ms if wait_ms is None else lambda _: wait_ms,
            lacks=lacks,
            needs_all=needs_all,
        )
        return self._carry_out(asking)

    # ---- the cluster -----------------------------------------------------------------------------------------------

    def look_at_cluster(self) -> ClusterView:
        """The cluster according to the latest metadata."""
        return self._open_engine().cluster

    def reach(self, timeout_ms: int | None = None, *, topics: Sequence[str] = ()) -> None:
        """Returns when the brokers of the cluster are known; the default timeout is max.block.ms. The metadata of
        the topics is requested together with them."""
        metadata = self._begin().metadata
        limit_ms = self.options.max_block_ms if timeout_ms is None else timeout_ms
        is_known = all(topic in metadata.view.topics for topic in topics)
        if is_known and metadata.is_just_answered(self.now_ms()):
            return
        for topic in topics:
            metadata.want_topic(topic, self.now_ms())
        refresh = metadata.request_news()
        if self._wait_until(lambda: self._look_for_news(refresh), self.now_ms() + limit_ms):
            return
        raise OperationTimeout(
            f"no broker has answered within {self._limit_text(timeout_ms)}: {self._describe_failures()}", NO_BROKER
        )

    def look_for_topic(self, topic: str) -> bool:
        """By the metadata that is there, as after `reach`."""
        return self._begin().metadata.view.partition_count(topic) is not None

    def list_apis(self) -> frozenset[int]:
        """API keys that one of the brokers supports."""
        limit_ms = self.options.max_block_ms
        answer = self.ask(AnyBroker(), API_VERSIONS, ABOUT_US, timeout_ms=limit_ms, repeat=Repeat.ALWAYS)
        return frozenset(row["api_key"] for row in answer["api_keys"])

    def answers_of_all(self, api: Api, body: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
        """The responses of all reachable brokers, to a request that changes nothing."""
        return self.ask_all(AllBrokers(), api, body, repeat=Repeat.ALWAYS, needs_all=False)

    def answers_by_broker(self, api: Api, body: Mapping[str, Any]) -> dict[int, Mapping[str, Any] | KafkaSinkError]:
        """For every broker of the cluster its response, or why there is none."""
        self.reach()
        nodes = tuple(self.look_at_cluster().brokers)
        asked = self._ask_each([Ask(OneBroker(node), api, body, repeat=Repeat.NEVER) for node in nodes])
        return {node: trouble or reply.bodies[0] for node, (reply, trouble) in zip(nodes, asked, strict=True)}

    def ask_metadata(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.ask(AnyBroker(), METADATA, body, repeat=Repeat.ALWAYS)

    def transaction_support(self, *, is_sweeping: bool = True) -> TransactionSupport:
        """Read from the ApiVersions responses of existing connections. All brokers are asked only if these do not show
        whether they verify. Without `is_sweeping` they are not asked, because nothing depends on it."""
        nodes = self._open_engine().nodes
        if not nodes.offered_apis:
            self.reach()
            nodes = self._open_engine().nodes
        missing = tuple(api.name for api in TRANSACTION_APIS if api.key not in nodes.offered_apis)
        verifies = not missing and (nodes.transaction_version == 2 or (is_sweeping and self._brokers_verify()))
        return TransactionSupport(
            nodes.transaction_version, verifies, missing, nodes.fence_raises_max, nodes.epoch_of_end_is_safe
        )

    def cluster_id(self) -> str:
        """Empty if the brokers do not return one."""
        if not self.look_at_cluster().brokers:
            self.reach()
        return self.look_at_cluster().cluster_id or ""

    def broker_configs(self, names: Sequence[str]) -> dict[str, str | None] | None:
        """The values of one broker; unknown names are left out. None: it does not return them."""
        self.reach()
        return self.configs_of_broker_and_topic(names)[0]

    def configs_of_broker_and_topic(
        self, broker_keys: Sequence[str], topic: str | None = None, topic_keys: Sequence[str] | None = None
    ) -> tuple[dict[str, str | None] | None, ConfigAnswer]:
        """The values of one broker and of a topic, in one request. It goes to the topic's leader, whose connection is
        used next to read the topic, or else to any broker. Call `reach` first."""
        leader = None if topic is None else self.look_at_cluster().leader(topic, 0)
        node_ids = sorted(self.look_at_cluster().brokers, key=lambda node_id: (node_id != leader, node_id))
        asked = [] if topic is None else [ConfigResource(RESOURCE_TOPIC, topic, topic_keys)]
        while True:
            node_id = node_ids.pop(0)
            broker = ConfigResource(RESOURCE_BROKER, str(node_id), broker_keys)
            try:
                found, *more = self._describe_configs(OneBroker(node_id), [broker, *asked])
            except TransportError:
                if not node_ids:
                    raise
                continue
            return found_or_raise(found), more[0] if more else None

    # ---- topics ----------------------------------------------------------------------------------------------------

    def describe_topic(self, topic: str, *, timeout_ms: int | None = None) -> list[PartitionInfo]:
        """The partitions; waits until the topic is known, by default at most max.block.ms. With
        allow.auto.create.topics, brokers with auto.create.topics.enable create it."""
        limit_ms = self.options.max_block_ms if timeout_ms is None else timeout_ms
        deadline_ms = self.now_ms() + limit_ms
        metadata = self._begin().metadata
        if metadata.is_just_answered(self.now_ms()) and metadata.view.partition_count(topic) is not None:
            return metadata.view.partition_infos(topic)
        metadata.want_topic(topic, self.now_ms())
        refresh = metadata.request_news()
        while True:
            if self._creates_topics:
                self._ask_to_create(topic, max(0, deadline_ms - self.now_ms()))
            patience_ms = min(deadline_ms, self.now_ms() + CREATION_REPEATED_MS)
            if self._wait_until(lambda: self._look_for_topic_anew(topic, refresh), patience_ms):
                break
            if self.now_ms() >= deadline_ms:
                trouble = metadata.topic_trouble(topic) or self._describe_failures()
                raise OperationTimeout(
                    f"topic {topic} is not known within {self._limit_text(timeout_ms)}: {trouble}", TOPIC_UNKNOWN
                )
            metadata.want_topic(topic, self.now_ms())
        error = metadata.topic_error(topic)
        if error is not None:
            raise error
        return metadata.view.partition_infos(topic)

    def topic_configs(self, topic: str, names: Sequence[str] | None) -> ConfigAnswer:
        """All values if `names` is None."""
        return self._describe_configs(AnyBroker(), [ConfigResource(RESOURCE_TOPIC, topic, names)])[0]

    def create_topic(self, name: str, plan: TopicPlan) -> list[PartitionInfo]:
        """Returns its partitions once all have a leader. An existing topic is used as it is."""
        deadline_ms = self.now_ms() + self.options.max_block_ms
        row = new_topic_row(name, plan)
        body = {"topics": [row], "timeout_ms": min(self.options.max_block_ms, self.options.request_timeout_ms)}
        has_defaults = -1 in (plan.partitions, plan.replication_factor)
        try:
            self.ask(
                Controller(), CREATE_TOPICS, body, timeout_ms=self.options.max_block_ms,
                version_min=CREATE_TOPICS.defaults_since if has_defaults else 0,
                # A lost request may have created it: then the next one is told that the topic exists.
                repeat=Repeat.ALWAYS, lacks=lambda bodies: _creation_trouble(name, bodies[0]),
            )  # fmt: skip
        except TransportError as error:
            raise OperationTimeout(f"topic {name} was not created within {self._limit_text(None)}: {error}") from None
        while True:
            infos = self.describe_topic(name, timeout_ms=max(0, deadline_ms - self.now_ms()))
            if all(info.leader_id is not None for info in infos):
                return infos
            retry_at_ms = self.now_ms() + self._backoff.delay_ms(1)
            if retry_at_ms >= deadline_ms:
                raise OperationTimeout(
                    f"topic {name} exists, but not all of its partitions have a leader yet", TOPIC_UNKNOWN
                )
            self._wait_until(lambda: False, retry_at_ms)

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _brokers_verify(self) -> bool:
        """Every reachable broker must, since any may lead a partition. Whether it does is in its own configuration; a
        broker that tells that and has no such setting is not Apache Kafka, and may list versions that it never uses."""
        highest = [
            row["max_version"]
            for body in self.answers_of_all(API_VERSIONS, ABOUT_US)
            for row in body["api_keys"]
            if row["api_key"] == ADD_PARTITIONS_TO_TXN.key
        ]
        if not highest or min(highest) < ADD_PARTITIONS_TO_TXN.verified_since:
            return False
        return all(value == "true" for value in self._values_by_broker(VERIFICATION))

    def _values_by_broker(self, key: str) -> list[str | None]:
        """Of the brokers that are reachable and tell it."""
        resources = {node: ConfigResource(RESOURCE_BROKER, str(node), [key]) for node in self.look_at_cluster().brokers}
        found = self._ask_each(
            [
                Ask(OneBroker(node), DESCRIBE_CONFIGS, configs_body([resource]), repeat=Repeat.NEVER)
                for node, resource in resources.items()
            ]
        )
        told = [
            read_configs([resource], reply.bodies[0])[0]
            for resource, (reply, trouble) in zip(resources.values(), found, strict=True)
            if trouble is None
        ]
        return [one.get(key) for one in told if isinstance(one, dict)]

    def _look_for_news(self, refresh: int) -> bool:
        return self._open_engine().metadata.has_answered(refresh) and bool(self.look_at_cluster().brokers)

    def _look_for_topic_anew(self, topic: str, refresh: int) -> bool:
        """Known, or known to be unavailable. Metadata from before the request does not count."""
        metadata = self._open_engine().metadata
        if not self._look_for_news(refresh):
            return False
        return metadata.view.partition_count(topic) is not None or metadata.topic_error(topic) is not None

    def _describe_failures(self) -> str:
        """Every bootstrap server and why it could not be used."""
        engine = self._open_engine()
        nodes, refused = engine.nodes, engine.metadata.last_failure
        said = [
            str(failure or refused or f"{title}: no answer so far") for title, failure in nodes.bootstrap_failures()
        ]
        last = str(nodes.last_failure or "")
        return "; ".join([*said, last] if last and last not in said else said)

    def _limit_text(self, timeout_ms: int | None) -> str:
        return f"max.block.ms={self.options.max_block_ms}" if timeout_ms is None else f"{timeout_ms} ms"

    def _ask_to_create(self, topic: str, left_ms: int) -> None:
        body = {"topics": [{"name": topic}], "allow_auto_topic_creation": True}
        ((reply, trouble),) = self._ask_each([Ask(AnyBroker(), METADATA, body, repeat=Repeat.NEVER)], left_ms)
        if isinstance(trouble, (AuthenticationError, ConfigError)):
            raise trouble
        for answer in reply.bodies:
            if topic_row(METADATA, answer, topic)["error_code"] == TOPIC_AUTHORIZATION_FAILED:
                raise AuthorizationError(
                    f"not authorized to describe topic {topic} (operation Describe, which Read and Write imply), or to "
                    "create it (Create)"
                )

    def _describe_configs(self, target: Target, wanted: Sequence[ConfigResource]) -> list[ConfigAnswer]:
        try:
            body = self.ask(target, DESCRIBE_CONFIGS, configs_body(wanted), repeat=Repeat.ALWAYS)
        except BrokerError as error:
            if error.code == UNSUPPORTED_VERSION:
                return [None] * len(wanted)
            raise
        return read_configs(wanted, body)

    # ---- polling ---------------------------------------------------------------------------------------------------

    def _send_and_wait(self, asks: Sequence[Ask], until_ms: int | None) -> list[Reply]:
        """Sends the asks and steps until there is a reply, to one of these or an earlier one, or until then."""
        try:
            replies = self._turn(asks, 0)
            while not replies and (until_ms is None or self.now_ms() < until_ms):
                replies = self._turn((), until_ms)
            return replies
        except BaseException:
            self._drop()  # also if it comes between two turns: nobody waits for the replies any more
            raise

    def _wait_until(self, is_true: Callable[[], bool], deadline_ms: int) -> bool:
        """Steps until it is true or the deadline has passed. Metadata changes meanwhile."""
        self._wake_at_ms = 0  # metadata may just have been requested
        while not is_true():
            if self.now_ms() >= deadline_ms:
                return False
            self._turn((), deadline_ms)
            refusal = self._open_engine().nodes.refusal
            if refusal is not None:
                raise copy_error(refusal)
        return True

    def _turn(self, asks: Sequence[Ask], until_ms: int | None) -> list[Reply]:
        """One poll and one step."""
        network, engine = self._ensure_open()
        try:
            now_ms = self.now_ms()
            moments = (self._wake_at_ms, until_ms, now_ms + WAIT_MS_MAX)
            events = network.poll(max(0, min(moment for moment in moments if moment is not None) - now_ms))
            step = engine.step(self.now_ms(), events, asks)
            self._wake_at_ms = step.wake_at_ms
            for command in step.commands:
                if isinstance(command, (Send, Connect, Disconnect, Resolve)):
                    network.execute(command)
                elif isinstance(command, Notice):
                    log_notice(_LOGGER.log, self.options.client_id, command)
            return step.replies
        except BaseException:
            self._drop()
            raise

    def _ensure_open(self) -> tuple[Network, AdminEngine]:
        if self._is_closed:
            raise LocalProtocolError("the client is closed")
        if self._network is None or self._engine is None:
            options = self.options
            tls = tls_contexts(options)
            self._engine = AdminEngine(options, jitter=random.random, authenticator=authenticator(options))
            self._wake_at_ms = 0
            _open.add(self)
            self._network = Network(self._clock, options, tls)
        return self._network, self._engine

    def _open_engine(self) -> AdminEngine:
        return self._ensure_open()[1]

    def _begin(self) -> AdminEngine:
        """For the beginning of a call. Within a call no broker is tried again after a refusal by either side."""
        if self._engine is not None and self._engine.nodes.refusal is not None:
            self._drop()
        return self._open_engine()

    def _drop(self) -> None:
        network, self._network, self._engine = self._network, None, None
        _open.discard(self)
        if network is not None:
            network.close()

    def after_fork_in_child(self) -> None:
        network, self._network, self._engine = self._network, None, None
        if network is not None:
            network.close_descriptors()


_open: weakref.WeakSet[Client] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for client in list(_open):
        client.after_fork_in_child()
    _open.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
