"""All brokers and the connections to them: which can take a request now, which are blocked, and the responses.

Bootstrap servers are nodes too, with the ids -2, -3, ... in the order of their listing. They are used only while no
broker is known: at the start, and after `rebootstrap`. If a broker has the same host and port, it takes the connection
over. There is one connection per node; requests whose order does not matter may use further ones (`pick_lane`), each a
node of its own for the same broker.

It must not know what requests mean, nor when a connection is needed: callers say so (`prepare`, `prepare_any`,
`prepare_lane`, `connect`). It decides when a connection is closed, but never to retry a request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from kafka_sink.errors import (
    AuthenticationError,
    KafkaSinkError,
    LocalProtocolError,
    TransportError,
    copy_error,
)
from kafka_sink.errors.table.brokers import TOO_MANY_LOGINS
from kafka_sink.kafka.client.authentication import Authenticator
from kafka_sink.kafka.client.backoff import Backoff
from kafka_sink.kafka.client.cluster import Endpoint
from kafka_sink.kafka.client.commands import (
    Connect,
    Connected,
    Disconnect,
    Disconnected,
    NetworkCommand,
    NetworkEvent,
    Notice,
    Resolve,
    Resolved,
    Written,
)
from kafka_sink.kafka.client.connection import Connection, ConnectionState
from kafka_sink.kafka.client.connection_loss import failure_of_loss, is_final, notice_level
from kafka_sink.kafka.client.node import LANE_STEP, Node, broker_of, first_due_ms
from kafka_sink.kafka.client.request import Answer, Request
from kafka_sink.kafka.wire.apis import Api
from kafka_sink.options import ProducerOptions

BOOTSTRAP_ID_FIRST = -2
# A broker processes the requests of one connection one by one, and several connections in parallel: with 16 to 200
# transactions their ends took 0.55 to 0.72 of the time.
LANES_MAX = 4
# Amazon counts the logins of a second. The jitter takes a fifth off: never below a second.
LOGINS_BACKOFF_MS, LOGINS_BACKOFF_MS_MAX = 1_250, 10_000
# How long a broker that alone has refused a login is left in peace, as in kafka/auth/refused.py.
REFUSED_BACKOFF_MS, REFUSED_BACKOFF_MS_MAX = 60_000, 300_000
TRANSACTION_FEATURE = "transaction.version"
# 4.1-IV0 and 4.2-IV1: every broker of the cluster is of that Kafka or a newer one.
METADATA_FEATURE, METADATA_OF_4_1, METADATA_OF_4_2 = "metadata.version", 26, 29


class NodeSet:
    def __init__(
        self,
        options: ProducerOptions,
        *,
        jitter: Callable[[], float],
        authenticator: Authenticator | None = None,
        outlives_refusal: bool = False,
    ) -> None:
        self._options = options
        self._in_flight_max = options.max_in_flight_requests_per_connection
        self._authenticator = authenticator
        self._jitter = jitter
        self._reconnect = Backoff(options.reconnect_backoff_ms, options.reconnect_backoff_max_ms, jitter)
        self._after_many_logins = Backoff(LOGINS_BACKOFF_MS, LOGINS_BACKOFF_MS_MAX, jitter)
        self._after_refusal = Backoff(REFUSED_BACKOFF_MS, REFUSED_BACKOFF_MS_MAX, jitter)
        self._setup_timeout = Backoff(
            options.socket_connection_setup_timeout_ms, options.socket_connection_setup_timeout_max_ms, jitter
        )
        self._bootstrap = {
            BOOTSTRAP_ID_FIRST - index: Node(BOOTSTRAP_ID_FIRST - index, Endpoint(host, port), is_bootstrap=True)
            for index, (host, port) in enumerate(options.bootstrap_servers)
        }
        self._brokers: dict[int, Node] = {}
        # Further connections to brokers. Once the login of one was refused none is opened until another login succeeds.
        self._lanes: dict[int, Node] = {}
        self._has_lanes = True
        # By connection id. The owner reads it, too, for its metrics.
        self.by_connection: dict[int, Node] = {}
        self._next_connection_id = 1
        self.answers: list[Answer] = []
        # Connections append theirs, too.
        self.commands: list[NetworkCommand] = []
        # When nodes that were wanted in this step may be tried again; the owner clears it when a step begins.
        self.moments: list[int] = []
        # The next deadline of any node. Recomputed only after an event on a node.
        self.due_ms: int | None = None
        self._has_changed = True
        # Number of failed connections since the start; the metadata code watches it for changes.
        self.losses = 0
        self.last_failure: KafkaSinkError | None = None
        # Why no node is tried any more: credentials or certificates were refused, by us or by a broker.
        self.refusal: KafkaSinkError | None = None
        # The broker that has refused them alone, and how often.
        self._outlives_refusal = outlives_refusal
        self._refusing_id: int | None = None
        self._refusals = 0
        # From the ApiVersions responses of the brokers: API keys, and finalised features.
        self.offered_apis: frozenset[int] = frozenset()
        self.finalized_features: Mapping[str, int] = MappingProxyType({})
        self.finalized_features_epoch = -1

    # ---- metadata --------------------------------------------------------------------------------------------------

    def set_brokers(self, now_ms: int, brokers: Mapping[int, Endpoint]) -> None:
        self._has_changed = True
        self._set(now_ms, self._brokers, brokers)
        self._hand_over_bootstrap_connections(now_ms)
        if self._lanes:
            there = {lane: brokers[broker_of(lane)] for lane in self._lanes if broker_of(lane) in brokers}
            self._set(now_ms, self._lanes, there)

    def _set(self, now_ms: int, nodes: dict[int, Node], brokers: Mapping[int, Endpoint]) -> None:
        for node_id, endpoint in brokers.items():
            place = Endpoint(endpoint.host, endpoint.port)  # a changed rack alone does not matter
            node = nodes.setdefault(node_id, Node(node_id, place))
            node.is_leaving = False
            if node.endpoint != place:
                node.addresses = ()
                node.last_address = None
                node.retry_at_ms = node.failures = 0
                node.endpoint = place
            self._settle(node)
            self._note_availability(node, now_ms)
        for node_id in nodes.keys() - brokers.keys():
            nodes[node_id].is_leaving = True
            self._settle(nodes[node_id])

    def _hand_over_bootstrap_connections(self, now_ms: int) -> None:
        """A new connection to the same address would take several round trips, most of them with TLS and SASL."""
        for server in self._bootstrap.values():
            connection = server.connection if server.is_ready else None
            unconnected = [
                node for node in self._brokers.values() if node.endpoint == server.endpoint and node.is_unused
            ]
            if connection is None or not unconnected:
                continue
            node = unconnected[0]
            node.take_over(connection, server)
            self.by_connection[connection.connection_id] = node
            self._note_availability(node, now_ms)

    def rebootstrap(self, now_ms: int) -> None:
        """Forgets the brokers; responses in flight are awaited, within their timeouts.

        An open bootstrap connection leads to where the name pointed then, so it is closed, too.
        """
        self.set_brokers(now_ms, {})
        for node in self._bootstrap.values():
            node.connected_endpoint = None
            self._settle(node)

    # ---- queries ---------------------------------------------------------------------------------------------------

    def is_ready(self, node_id: int, now_ms: int) -> bool:
        node = self._brokers.get(node_id) or self._find(node_id)
        return node is not None and node.can_take(now_ms, self._in_flight_max)

    def is_full(self, node_id: int, now_ms: int) -> bool:
        """It works, but must answer a request first."""
        node = self._brokers.get(node_id)
        connection = None if node is None else node.connection
        return (
            connection is not None
            and len(connection.in_flight) >= self._in_flight_max
            and (connection.session_end_ms is None or now_ms < connection.session_end_ms)
        )

    def is_throttled(self, node_id: int, now_ms: int) -> bool:
        """Nothing is wrong with it: a quota is used up, and it asked for a pause."""
        node = self._find(node_id)
        return node is not None and node.connection is not None and node.throttled_until_ms > now_ms

    def is_any_throttled(self, now_ms: int) -> bool:
        return any(self.is_throttled(node_id, now_ms) for node_id in self._active())

    def blocked_until_ms(self, node_id: int, now_ms: int) -> int | None:
        node = self._find(node_id)
        if node is None or node.is_preparing:
            return None
        until_ms = node.throttled_until_ms if node.connection is not None else node.retry_at_ms
        return until_ms if until_ms > now_ms else None

    def stalled_since_ms(self, node_id: int) -> int | None:
        """Since when it was needed but could take no request: not connected, throttled or full. None: it can."""
        node = self._find(node_id)
        return None if node is None else node.unavailable_since_ms

    def failure_of(self, node_id: int) -> KafkaSinkError | None:
        """Why it could not be used the last time; None: it works, or was never tried."""
        node = self._find(node_id)
        return None if node is None else node.failure

    def bootstrap_failures(self) -> list[tuple[str, KafkaSinkError | None]]:
        return [(node.title, node.failure) for node in self._bootstrap.values()]

    def in_flight_count(self, node_id: int) -> int:
        node = self._find(node_id)
        return 0 if node is None or node.connection is None else node.connection.in_flight_count

    def version_of(self, node_id: int, api: Api) -> int | None:
        """The version a request would have. None: not connected, or no common version."""
        node = self._find(node_id)
        return None if node is None or node.connection is None else node.connection.version_for(api)

    def pick_lane(self, node_id: int, now_ms: int, in_flight_max: int) -> int | None:
        """For a request to this broker (which `is_ready`) whose order does not matter: the connection with the fewest
        requests in flight. None: all are busy (`prepare_lane`). Once all connections are open, requests are sent
        without waiting for answers, because each wait would cost a round trip."""
        ready = [lane for lane in _lanes_of(node_id) if lane == node_id or self.is_ready(lane, now_ms)]
        best = min(ready, key=self.in_flight_count)
        has_room = self.in_flight_count(best) < in_flight_max or len(ready) == LANES_MAX
        return best if has_room else None

    def least_loaded(self, now_ms: int) -> int | None:
        """The node for a request that any broker can answer: connected before connecting before connectable."""
        active = list(self._active().values())
        # Ties are broken at random, or all producers of a fleet would ask the broker that is listed first.
        offset = int(self._jitter() * len(active))
        active = active[offset:] + active[:offset]
        # An open bootstrap connection saves a new one, but brokers are preferred.
        extra = [node for node in self._bootstrap.values() if node not in active]
        ready = [node for node in active + extra if node.can_take(now_ms, self._in_flight_max)]
        if ready:
            return min(ready, key=lambda node: (node in extra, self.in_flight_count(node.node_id))).node_id
        preparing = [node for node in active if node.is_preparing]
        if preparing:
            return preparing[-1].node_id
        connectable = [node for node in active if node.is_connectable(now_ms)]
        return min(connectable, key=lambda node: node.attempt_ms).node_id if connectable else None

    def is_any_reachable(self, now_ms: int) -> bool:
        """False: every known node has just failed and is in back-off."""
        if any(node.is_ready for node in self._bootstrap.values()):
            return True
        return any(
            node.connection is not None or node.is_resolving or node.is_connectable(now_ms)
            for node in self._active().values()
        )

    def retry_at_ms(self) -> int | None:
        """When the first of the failed nodes may be tried again."""
        waiting = [n.retry_at_ms for n in self._active().values() if n.connection is None and not n.is_resolving]
        return min(waiting, default=None)

    def update_deadline(self, now_ms: int) -> int | None:
        """When the next step is due for the nodes' sake; None: only after an event."""
        # A request refused here has its answer already, and no network event will announce it.
        if self.answers:
            return now_ms
        if self._has_changed:
            nodes = [*self._brokers.values(), *self._bootstrap.values(), *self._lanes.values()]
            self.due_ms = first_due_ms(nodes, now_ms, self._options.connections_max_idle_ms)
            self._has_changed = False
        return self.due_ms

    # ---- requests --------------------------------------------------------------------------------------------------

    def connect(self, node_id: int, now_ms: int) -> None:
        self._has_changed = True
        node = self._find(node_id)
        if node is None or node.is_leaving or self.refusal is not None or not node.is_connectable(now_ms):
            return
        if node.connection is not None:
            node.connection.renew_session(now_ms)
            self._take_from(node, node.connection, now_ms)
            return
        node.on_attempt(now_ms, self._setup_timeout)
        if node.addresses:
            self._open(node, now_ms)
        else:
            self._resolve(node)

    @property
    def transaction_version(self) -> int:
        """The rules of transactions: 2 from version 2 of the feature on (KIP-890), else 1."""
        return 2 if self.finalized_features.get(TRANSACTION_FEATURE, 0) >= 2 else 1

    @property
    def epoch_of_end_is_safe(self) -> bool:
        """Whether a transaction may begin with the epoch that the end of the last one gave, although its markers may
        arrive twice. They have the same epoch, and in transaction version 2 leaders before Kafka 4.2 accept a late one
        as the end of the new transaction (KAFKA-19446). InitProducerId raises the epoch once more."""
        is_strict = self.finalized_features.get(METADATA_FEATURE, 0) >= METADATA_OF_4_2
        return is_strict and self.transaction_version == 2

    @property
    def fence_raises_max(self) -> int:
        """By how much the epoch of a transaction rises when brokers end it by themselves: twice with Kafka 4.0.0
        (KAFKA-19367)."""
        is_newer = self.finalized_features.get(METADATA_FEATURE, 0) >= METADATA_OF_4_1
        return 1 if is_newer or self.transaction_version < 2 else 2

    def prepare(self, node_id: int, now_ms: int) -> None:
        """For a node that is wanted and not ready: starts connecting, or notes the end of the back-off."""
        self.connect(node_id, now_ms)
        blocked_until_ms = self.blocked_until_ms(node_id, now_ms)
        if blocked_until_ms is not None:
            self.moments.append(blocked_until_ms)

    def prepare_any(self, now_ms: int) -> int | None:
        """For a request that any broker can answer: a node that is ready. None: one is being prepared, if possible."""
        node_id = self.least_loaded(now_ms)
        if node_id is None or self.is_ready(node_id, now_ms):
            return node_id
        self.prepare(node_id, now_ms)
        return None

    def prepare_lane(self, node_id: int, now_ms: int) -> None:
        """For a broker whose connections are all busy: starts one more, unless one is being prepared."""
        if not self._has_lanes:
            return
        for lane in _lanes_of(node_id)[1:]:
            node = self._lanes.setdefault(lane, Node(lane, self._brokers[node_id].endpoint))
            if node.is_preparing:
                return
            if node.is_connectable(now_ms):
                self.connect(lane, now_ms)
                return

    def send(self, node_id: int, request: Request, now_ms: int) -> None:
        """Only if it `is_ready`."""
        node = self._brokers.get(node_id) or self._find(node_id)
        if node is None or node.connection is None:
            raise LocalProtocolError(f"{request.api.name} sent to node {node_id}, which is not ready")
        refusal = node.connection.send(request, now_ms)
        if refusal is not None:
            self.answers.append(refusal)
        self._has_changed = True
        # Nothing else has changed.
        if len(node.connection.in_flight) < self._in_flight_max:
            node.unavailable_since_ms = None
        elif node.unavailable_since_ms is None:
            node.unavailable_since_ms = now_ms

    def close_all(self) -> None:
        for node in self._all():
            node.is_leaving = True
            if node.connection is not None:
                text = f"connection to {node.title} was closed because the producer was closed"
                self.answers += node.connection.on_lost(TransportError(text))
                self._disconnect(node)
            node.forget_connection()

    def log(self, level: str, text: str) -> None:
        """A log message for an operator, in order among the commands."""
        self.commands.append(Notice(level, text))

    def take_answers(self) -> list[Answer]:
        taken, self.answers = self.answers, []
        return taken

    def take_commands(self) -> list[NetworkCommand]:
        taken = self.commands.copy()
        self.commands.clear()
        return taken

    # ---- events ----------------------------------------------------------------------------------------------------

    def on_input(self, now_ms: int, event: NetworkEvent) -> None:
        self._has_changed = True
        if isinstance(event, Resolved):
            self._on_resolved(now_ms, event)
            return
        node = self.by_connection.get(event.connection_id)
        if node is None or node.connection is None:
            return  # closed by us before the event: already handled
        connection = node.connection
        if isinstance(event, Disconnected):
            del self.by_connection[event.connection_id]  # there is nothing to disconnect
            self._fail(node, now_ms, failure_of_loss(connection, event.reason))
            return
        if isinstance(event, Connected):
            connection.on_connected(now_ms)
        elif isinstance(event, Written):
            self.answers += connection.on_written()
        else:
            was_ready = connection.state is ConnectionState.READY
            answers = connection.on_received(now_ms, event.data)
            if answers:  # not before: a SASL listener answers ApiVersions in any case
                node.failure = self.last_failure = None
            self.answers += answers
            if connection.state is ConnectionState.READY and not was_ready:
                self._on_negotiated(node, connection)
        self._take_from(node, connection, now_ms)

    def _take_from(self, node: Node, connection: Connection, now_ms: int) -> None:
        """Handles the state of the connection after an event."""
        if connection.throttled_until_ms > node.throttled_until_ms:
            node.throttled_until_ms = connection.throttled_until_ms
        if connection.failure is not None:
            self._fail(node, now_ms, connection.failure)
        elif node.is_leaving or node.connected_endpoint is not node.endpoint:
            self._settle(node)
        self._note_availability(node, now_ms)

    def on_time(self, now_ms: int) -> None:
        """Handles timeouts. Before `due_ms`, set when the deadline was computed, there are none."""
        self._has_changed = True
        for node in self._all():
            connection = node.connection
            if node.is_setting_up and now_ms >= node.setup_deadline_ms:
                what = "name was not resolved" if node.is_resolving else "connection was not established"
                text = f"{node.attempt_title}: {what} within {now_ms - node.attempt_ms} ms"
                self._fail(node, now_ms, TransportError(text))
            elif connection is not None and connection.deadline_ms is not None:
                if now_ms >= connection.deadline_ms:
                    self._fail(node, now_ms, TransportError(connection.timeout_text(now_ms)))
            elif connection is not None and connection.is_idle(now_ms, self._options.connections_max_idle_ms):
                self.log("debug", f"connection to {node.title} was idle and is closed")
                self._disconnect(node)
                node.on_closed()
            self._note_availability(node, now_ms)

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _on_resolved(self, now_ms: int, event: Resolved) -> None:
        node = self._find(event.node_id)
        if node is None or node.asked_endpoint is None:
            return
        is_current = node.asked_endpoint == node.endpoint
        node.asked_endpoint = None
        self._settle(node)
        if event.addresses and is_current:
            node.on_resolved(event.addresses)
        if not node.is_resolving:
            return  # given up meanwhile; the next attempt uses the addresses
        if not is_current:
            self._resolve(node)
        elif event.addresses:
            self._open(node, now_ms)
        else:
            reason = event.failure or TransportError("the name has no address")
            self._fail(node, now_ms, copy_error(reason, f"the host name of {node.title} was not resolved: {reason}"))

    def _resolve(self, node: Node) -> None:
        node.is_resolving = True
        if node.asked_endpoint is None:
            node.asked_endpoint = node.endpoint
            self.commands.append(Resolve(node.node_id, node.endpoint.host, node.endpoint.port))

    def _open(self, node: Node, now_ms: int) -> None:
        node.is_resolving = False
        address, authenticator = node.take_address(), self._authenticator
        node.connection = Connection(
            self._next_connection_id,
            node.node_id,
            node.attempt_title,
            self._options,
            now_ms=now_ms,
            new_exchange=partial(authenticator, node.endpoint.host) if authenticator is not None else None,
            jitter=self._jitter,
            commands=self.commands,
        )
        node.connected_endpoint = node.endpoint
        self.by_connection[self._next_connection_id] = node
        self.commands.append(Connect(self._next_connection_id, node.node_id, address, node.endpoint.host))
        self._next_connection_id += 1

    def _on_negotiated(self, node: Node, connection: Connection) -> None:
        node.failures = node.setup_failures = 0
        self._has_lanes = self._has_lanes or node.node_id < LANE_STEP
        if self._refusing_id == node.node_id:
            self._refusing_id, self._refusals = None, 0
        self.log("debug", f"{'connected to' if connection.sessions == 1 else 'new session with'} {connection.title}")
        self.offered_apis |= connection.ranges.keys()
        # Brokers learn of a feature at different times; the highest epoch is the newest (KIP-584).
        if connection.finalized_features_epoch > self.finalized_features_epoch:
            self.finalized_features_epoch = connection.finalized_features_epoch
            self.finalized_features = connection.finalized_features

    def _fail(self, node: Node, now_ms: int, failure: KafkaSinkError) -> None:
        self._disconnect(node)
        connection = node.connection
        was_ready = connection is not None and connection.state is ConnectionState.READY
        is_theirs = isinstance(failure, TransportError) and not failure.is_local
        if is_theirs and node.is_setting_up and not node.is_bootstrap:
            # A user who set only the bootstrap servers does not know where this address comes from.
            origin = f"node {broker_of(node.node_id)} advertises this address (advertised.listeners)"
            failure = TransportError(f"{failure}; {origin}", failure.entry)
        has_many = failure.entry is TOO_MANY_LOGINS
        node.on_failed(now_ms, self._after_many_logins if has_many else self._reconnect, failure)
        if connection is not None:
            self.answers += connection.on_lost(failure)
        self.losses += 1
        self.last_failure = failure
        hint = f" (next attempt in {node.retry_at_ms - now_ms} ms at the earliest)"
        if is_final(failure):
            hint = self._on_refusal(node, now_ms, failure)
        level = notice_level(failure, was_ready=was_ready, failures=node.failures)
        self.log(level, f"{failure}{hint}")
        self._settle(node)

    def _on_refusal(self, node: Node, now_ms: int, failure: KafkaSinkError) -> str:
        """Of a further connection: the credentials were good when the first one was opened, and what is in flight there
        is answered. They are not tried on others, and the first one finds out itself when its session ends."""
        broker_id = broker_of(node.node_id)
        first = self._brokers.get(broker_id)
        if node.node_id >= LANE_STEP and first is not None and first.is_ready:
            self._has_lanes = False
            return ". The connection that is open is used alone"
        if not self._refuses_alone(broker_id, failure):
            self.refusal = self.refusal or failure
            return ""
        self._refusing_id, self._refusals = broker_id, self._refusals + 1
        wait_ms = self._after_refusal.delay_ms(self._refusals)
        for one in (node, first or node):
            one.failure, one.retry_at_ms = failure, now_ms + wait_ms
        return f". Another broker has taken them: it is still asked, and this one again after {wait_ms} ms"

    def _refuses_alone(self, broker_id: int, failure: KafkaSinkError) -> bool:
        """A broker may have an older view of users than the others have, or a broken certificate: what they can do for
        a commit is still done. Before any broker has taken the credentials, or once a second one refuses them, they
        count as wrong: at most two are tried, and the one again after minutes, so that no account is locked.
        A producer cannot do without the leader of a partition, and would only wait for it: it fails at once."""
        is_first = self._refusing_id in (None, broker_id)
        is_bearable = self._outlives_refusal and isinstance(failure, AuthenticationError)
        others = (node.is_ready and broker_of(node.node_id) != broker_id for node in self._all())
        return is_first and is_bearable and any(others)

    def _disconnect(self, node: Node) -> None:
        """The shell closes the socket; the caller updates the node."""
        if node.connection is not None and self.by_connection.pop(node.connection.connection_id, None) is not None:
            self.commands.append(Disconnect(node.connection.connection_id))

    def _settle(self, node: Node) -> None:
        """Closes an outdated node once it has no request in flight."""
        if not node.is_outdated:
            return
        if node.connection is not None and node.connection.in_flight_count == 0:
            self.log("debug", f"connection to {node.connection.title} is out of date and is closed")
            self._disconnect(node)
            node.on_closed()
        if node.is_leaving and node.connection is None:
            node.is_resolving = False
            # A pending result of the resolver must not be taken for that of a later query.
            if node.asked_endpoint is None:
                self._brokers.pop(node.node_id, None)
                self._lanes.pop(node.node_id, None)

    def _note_availability(self, node: Node, now_ms: int) -> None:
        if node.can_take(now_ms, self._in_flight_max):
            node.unavailable_since_ms = None
        elif node.unavailable_since_ms is None and node.connection is not None:
            node.unavailable_since_ms = now_ms

    def _find(self, node_id: int) -> Node | None:
        return self._brokers.get(node_id) or self._bootstrap.get(node_id) or self._lanes.get(node_id)

    def _all(self) -> list[Node]:
        return [*self._brokers.values(), *self._bootstrap.values(), *self._lanes.values()]

    def _active(self) -> dict[int, Node]:
        brokers = {node_id: node for node_id, node in self._brokers.items() if not node.is_leaving}
        return brokers or self._bootstrap


def _lanes_of(node_id: int) -> list[int]:
    return [node_id + number * LANE_STEP for number in range(LANES_MAX)]
