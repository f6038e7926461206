"""The embedded Kafka cluster without sockets: bytes of requests in, bytes of responses out, time as an argument.

`on_bytes` takes data received on a connection, `on_request` one frame; `tick` advances the time. Each returns data to
send now, in order, as (connection id, bytes); None instead of bytes means: close it. As in Kafka, a connection has one
request in progress at a time: the next one waits until the response to the previous one is sent.

The core uses no clock and no random numbers; equal calls return equal bytes. Variation (delays, random choices, faults)
comes from `Settings` and `Faults`.

    core = BrokerCluster(3, topics={"events": 6})
    for connection_id, data in core.on_bytes(broker_id=1, connection_id=7, data=received, now_ms=now_ms): ...
    wake_at_ms = core.next_deadline_ms
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_sink.errors import ConfigError, RemoteProtocolError
from kafka_sink.kafka.wire import frames
from kafka_sink.kafka.wire.apis import API_VERSIONS, APIS
from kafka_sink.testing.acl import Acl, Authorizer
from kafka_sink.testing.api import HANDLERS, sasl
from kafka_sink.testing.api.versions import is_served, refuse_version, version_max
from kafka_sink.testing.call import Call
from kafka_sink.testing.cluster import Cluster
from kafka_sink.testing.core import BrokerCore, ClientConnection, Output
from kafka_sink.testing.credentials import Credentials
from kafka_sink.testing.errors import Refused
from kafka_sink.testing.faults import Faults
from kafka_sink.testing.groups import Groups
from kafka_sink.testing.housekeeping import Housekeeping
from kafka_sink.testing.markers import Markers
from kafka_sink.testing.schedule import Schedule
from kafka_sink.testing.session import Session, Stage
from kafka_sink.testing.settings import Settings
from kafka_sink.testing.topics import BrokerState
from kafka_sink.testing.transactions import TransactionCoordinator


class BrokerCluster(BrokerCore):
    """Broker ids are 1..n unless `brokers` lists them; the caller assigns connection ids.

    With `users` (name -> password), or `access_keys` (id -> secret key) for the mechanism AWS_MSK_IAM, every connection
    must authenticate (SASL_PLAINTEXT); with `acls` anything not allowed is denied, except to `super.users` (a
    property). Both may be changed later: `credentials`, `authorizer`.
    """

    def __init__(
        self,
        brokers: int | list[BrokerState] = 1,
        *,
        topics: Mapping[str, int] | None = None,
        users: Mapping[str, str] | None = None,
        access_keys: Mapping[str, str] | None = None,
        acls: Iterable[Acl] | None = None,
        settings: Settings | None = None,
        now_ms: int = 0,
    ) -> None:
        if isinstance(brokers, int):
            brokers = [BrokerState(number, "localhost", 9091 + number) for number in range(1, brokers + 1)]
        if not brokers:
            raise ConfigError("an embedded cluster needs at least one broker")
        super().__init__()
        self.settings = settings or Settings()
        self.schedule = Schedule()
        self.schedule.run_due(now_ms)
        self.cluster = Cluster(brokers, self.settings, self.schedule)
        self.groups = Groups(self.schedule, self.settings)
        self.cluster.on_deleted = self.groups.forget_topic
        self.coordinator = TransactionCoordinator(self.cluster, Markers(self.cluster, self.groups))
        self.housekeeping = Housekeeping(self.cluster, self.coordinator)
        self.faults = Faults()
        self.has_sasl = users is not None or access_keys is not None
        self.credentials = Credentials(users or {}, self.settings.random_bytes, access_keys)
        super_users = self.settings.names("super.users", ";")
        self.authorizer = Authorizer(acls, super_users) if acls is not None else None
        self.throttle_times_ms = {}
        for name, partitions in (topics or {}).items():
            self.cluster.create_topic(name, partitions, min(3, len(brokers)))

    # ---- events ----

    def on_bytes(self, broker_id: int, connection_id: int, data: bytes, now_ms: int) -> list[Output]:
        connection = self._get_connection(broker_id, connection_id, now_ms)
        if connection is not None:
            limit = "socket.request.max.bytes" if connection.session.is_ready else "sasl.server.max.receive.size"
            connection.received.frame_bytes_max = self.settings.number(limit)
            connection.received.feed(data)
            try:
                while (frame := connection.received.next_frame()) is not None:
                    connection.waiting.append(frame)
            except RemoteProtocolError:
                self.close(connection_id)
        return self._run()

    def on_request(self, broker_id: int, connection_id: int, frame: bytes, now_ms: int) -> list[Output]:
        """`frame` is a whole request without its length prefix; responses include theirs."""
        connection = self._get_connection(broker_id, connection_id, now_ms)
        if connection is not None:
            connection.waiting.append(frame)
        return self._run()

    def on_disconnect(self, connection_id: int) -> None:
        """The client has disconnected. A request in progress is finished; those waiting after it are dropped."""
        self._connections.pop(connection_id, None)

    def tick(self, now_ms: int) -> list[Output]:
        self.schedule.run_due(now_ms)
        return self._run()

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` should be called next; at once if a change of the cluster has made responses ready."""
        return self.schedule.now_ms if self._outputs or self._runnable else self.schedule.next_deadline_ms

    # ---- control ----

    def stop_broker(self, node_id: int, *, is_crash: bool = False) -> None:
        for connection_id, connection in list(self._connections.items()):
            if connection.broker_id == node_id:
                self.close(connection_id)
        self.cluster.stop_broker(node_id, is_crash=is_crash)

    def start_broker(self, node_id: int) -> None:
        self.cluster.start_broker(node_id)

    # ---- requests ----

    def _get_connection(self, broker_id: int, connection_id: int, now_ms: int) -> ClientConnection | None:
        """A broker that is down accepts no connections: it is closed again."""
        self.schedule.run_due(now_ms)
        connection = self._connections.get(connection_id)
        if connection is None:
            if not self.cluster.is_up(broker_id):
                self._outputs.append((connection_id, None))
                return None
            session = Session(Stage.VERSIONS if self.has_sasl else Stage.READY)
            connection = ClientConnection(broker_id, session, used_ms=now_ms)
            self._connections[connection_id] = connection
            self._close_when_idle(connection_id)
        assert connection.broker_id == broker_id, "a connection leads to one broker"
        connection.used_ms = now_ms
        self._runnable.append(connection_id)
        return connection

    def _close_when_idle(self, connection_id: int) -> None:
        """Now, or looks again when the connection may have been idle for long enough."""
        idle_ms, connection = self.settings.quirk.idle_ms, self._connections.get(connection_id)
        if not idle_ms or connection is None:
            return
        left_ms = connection.used_ms + idle_ms - self.schedule.now_ms
        if left_ms > 0:
            self.schedule.after(left_ms, lambda: self._close_when_idle(connection_id))
        else:
            self.close(connection_id)

    def _run(self) -> list[Output]:
        while self._runnable:
            connection_id = self._runnable.popleft()
            connection = self._connections.get(connection_id)
            if connection is not None and not connection.is_busy and connection.waiting:
                connection.is_busy = True
                self._begin(connection_id, connection, connection.waiting.popleft())
        outputs, self._outputs = self._outputs, []
        return outputs

    def _begin(self, connection_id: int, connection: ClientConnection, frame: bytes) -> None:
        """An unreadable request closes the connection: no response could be matched to it."""
        session = connection.session
        if session.awaits_bare_token:
            sasl.on_bare_token(self, connection_id, session, frame)
            return
        try:
            key, version, correlation_id, client_id, body_offset = frames.decode_request_header(frame)
            api = APIS.get(key)
            if api is None or not is_served(self.settings, api):
                raise RemoteProtocolError(f"API {key} is not served")
            identity = (connection.broker_id, connection_id, api, version, correlation_id, client_id or "")
            call = Call(self, *identity, {}, session)
            if not api.version_min <= version <= version_max(self.settings, api):
                if api is not API_VERSIONS:
                    raise RemoteProtocolError(f"{api.name} is not served in version {version}")
                refuse_version(call)
                return
            call.body = api.decode_request(version, frame, body_offset, ignore_rest=True)
        except RemoteProtocolError:
            self.close(connection_id)
            return
        self._fill_in_topic_names(call)
        fault = call.fault = self.faults.next_for(api.name, version, connection.broker_id, call.body)
        if fault is not None and fault.disconnect and not fault.after_apply:
            self.close(connection_id)
            return
        self.schedule.after(fault.delay_before_ms if fault else 0, lambda: self._handle(call))

    def _handle(self, call: Call) -> None:
        if not self.cluster.is_up(call.broker_id) or not sasl.is_admitted(call):
            return
        try:
            answer = HANDLERS[call.api.key](call)
        except Refused as refusal:
            answer = {"error_code": refusal.code}
        if answer is not None:
            call.answer(answer)

    def _fill_in_topic_names(self, call: Call) -> None:
        """Produce v13 and Fetch v13 have topic ids; the rest of the broker needs names. Unknown ids get none."""
        for key, name in (("topic_data", "name"), ("topics", "topic")):
            for entry in call.body.get(key) or ():
                if isinstance(entry, dict) and any(entry.get("topic_id") or b"") and not entry.get(name):
                    topics = self.cluster.topics.values()
                    entry[name] = next((one.name for one in topics if one.topic_id == entry["topic_id"]), "")
