"""The embedded broker as a process: data directory, restart, command line, pytest fixture, faults."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from urllib.request import urlopen

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_sink import Producer
from kafka_sink.errors import ConfigError
from kafka_sink.kafka.wire import apis, frames
from kafka_sink.testing import BrokerCluster, EmbeddedBroker, EmbeddedRegistry, Fault
from kafka_sink.testing.server import SAVE_INTERVAL_S
from tools.foreign_reader import read_topic
from tools.waiting import wait_until

WAIT_S = 90


def write(servers: str, topic: str, values: list[bytes], **config: object) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "log_level": 0, **config})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(WAIT_S) == 0


def read(servers: str, topic: str, count: int, group: str = "g") -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    try:
        while len(values) < count:
            message = consumer.poll(WAIT_S)
            assert message is not None and message.error() is None
            values.append(message.value())
    finally:
        consumer.close()
    return values


def identities(core: BrokerCluster) -> tuple[bytes, int, int]:
    record = core.coordinator.transactions["tx"].record
    return core.cluster.topics["t"].topic_id, record.producer_id, record.producer_epoch


def test_topics_records_transactions_and_offsets_survive_a_restart(tmp_path: Path) -> None:
    data = tmp_path / "kafka"
    with EmbeddedBroker(topics={"t": 1}, data_dir=data) as kafka:
        producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "tx"})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.produce("t", b"first")
        producer.commit_transaction(WAIT_S)
        gone_id = kafka.do(lambda core: core.cluster.create_topic("gone", 1, 1)).topic_id.hex()
        kafka.do(lambda core: core.cluster.delete_topic("gone"))
        old = kafka.do(identities)
    with EmbeddedBroker(topics={"t": 1}, data_dir=data) as kafka:
        assert kafka.do(identities) == old
        assert kafka.do(lambda core: core.cluster.create_topic("gone", 1, 1)).topic_id.hex() != gone_id
        write(kafka.bootstrap_servers, "t", [b"second"])
        assert read(kafka.bootstrap_servers, "t", 2) == [b"first", b"second"]


def test_offsets_of_an_open_transaction_survive_a_restart(tmp_path: Path) -> None:
    with EmbeddedBroker(topics={"t": 1}, data_dir=tmp_path) as kafka:
        servers = kafka.bootstrap_servers
        consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "g", "log_level": 0})
        producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": "tx", "log_level": 0})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        place = confluent_kafka.TopicPartition("t", 0, 5)
        producer.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), WAIT_S)
        port = int(servers.rpartition(":")[2])
    with EmbeddedBroker(data_dir=tmp_path, port=port):
        producer.commit_transaction(WAIT_S)
        [found] = consumer.committed([confluent_kafka.TopicPartition("t", 0)], timeout=WAIT_S)
        consumer.close()
    assert found.offset == 5


def test_a_data_directory_is_used_by_one_broker_at_a_time(tmp_path: Path) -> None:
    with EmbeddedBroker(topics={"t": 1}, data_dir=tmp_path):
        for _ in range(2):
            with pytest.raises(OSError, match="another embedded broker uses it"):
                EmbeddedBroker(data_dir=tmp_path).start()
        done = told_by("--data-dir", str(tmp_path))
        assert done.returncode == 2 and "the data directory cannot be used: [Errno 11] another" in done.stderr
    for _ in range(2):
        with EmbeddedBroker(data_dir=tmp_path) as kafka:
            assert kafka.records("t") == []


def test_every_change_is_written_soon_although_nothing_follows_it(tmp_path: Path) -> None:
    """A change just after the last write: only the time that has passed tells that it is to be written."""
    with EmbeddedBroker(data_dir=tmp_path) as kafka:
        delays_s = []
        for number in range(5):
            time.sleep(0.3)
            kafka.create_topic(f"first-{number}")
            time.sleep(0.1)
            kafka.create_topic(f"second-{number}")
            changed_s = time.monotonic()
            while f"second-{number}" not in (tmp_path / "state.json").read_text():
                time.sleep(0.005)
            delays_s.append(time.monotonic() - changed_s)
    assert min(delays_s) < 2 * SAVE_INTERVAL_S, delays_s


def test_partitions_hold_no_descriptors_and_deleted_ones_no_files(tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=tmp_path) as kafka:
        before = len(os.listdir("/proc/self/fd"))
        kafka.create_topic("many", 100)
        wait_until(lambda: len(list(tmp_path.glob("*.log"))) == 100, "the logs are written")
        assert len(os.listdir("/proc/self/fd")) < before + 50
        kafka.do(lambda core: core.cluster.delete_topic("many"))
        wait_until(lambda: not list(tmp_path.glob("*.log")), "the logs are removed")


def test_brokers_that_cannot_all_listen_leave_no_port_taken() -> None:
    for _ in range(20):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1] - 1
            kafka = EmbeddedBroker(2, port=port)
            with pytest.raises(OSError, match="in use") as failed:
                kafka.start()
        if str(port) not in str(failed.value):  # else somebody has the first port, too
            socket.create_server(("127.0.0.1", port)).close()
            return
    pytest.fail("no two neighbouring ports are free")


def test_an_ipv6_address_is_told_in_brackets() -> None:
    with EmbeddedBroker(topics={"t": 1}, host="::1") as kafka, EmbeddedRegistry(host="::1") as registry:
        with Producer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
            producer.send("t", b"x").result()
        with urlopen(f"{registry.url}/subjects") as answer:
            assert json.load(answer) == []
    assert re.fullmatch(r"\[::1\]:\d+", kafka.bootstrap_servers)


def test_records_are_those_that_a_read_committed_reader_gets() -> None:
    with EmbeddedBroker(topics={"t": 1}) as kafka:
        config = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}
        for name, is_committed in (("committed", True), ("aborted", False), ("again", True)):
            producer = confluent_kafka.Producer({**config, "transactional.id": name, "compression.type": "lz4"})
            producer.init_transactions(WAIT_S)
            producer.begin_transaction()
            producer.produce(
                "t", name.encode(), key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=1_700_000_000_000
            )
            producer.produce("t", None, key=name.encode(), timestamp=1_700_000_000_001)
            producer.flush(WAIT_S)
            producer.commit_transaction(WAIT_S) if is_committed else producer.abort_transaction(WAIT_S)
        still_open = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "open"})
        with still_open:
            still_open.init_transactions()
            still_open.begin_transaction()
            still_open.send("t", b"open").result()
            found = kafka.records("t")
            expected = read_topic(kafka.bootstrap_servers, "t", settle_timeout_s=0)
    assert [record.value for record in found] == [b"committed", None, b"again", None]
    assert [tuple(record) for record in found] == [astuple(record) for record in expected]
    with pytest.raises(ValueError, match="there is no topic 'other'"):
        kafka.records("other")


def test_a_log_that_was_cut_off_in_the_middle_of_a_batch_loses_that_batch_only(tmp_path: Path) -> None:
    with EmbeddedBroker(topics={"t": 1}, data_dir=tmp_path) as kafka:
        for number in range(3):
            write(kafka.bootstrap_servers, "t", [b"%d" % number])
    [log] = [path for path in tmp_path.glob("*-0.log") if path.stat().st_size > 0]
    log.write_bytes(log.read_bytes()[:-5])
    with EmbeddedBroker(data_dir=tmp_path) as kafka:
        assert read(kafka.bootstrap_servers, "t", 2) == [b"0", b"1"]
        write(kafka.bootstrap_servers, "t", [b"again"])
        assert kafka.do(lambda core: core.cluster.topics["t"].partitions[0].log.end_offset) == 3
    with EmbeddedBroker(data_dir=tmp_path) as kafka:
        assert read(kafka.bootstrap_servers, "t", 1) == [b"again"], "the group's offsets were kept"
        assert read(kafka.bootstrap_servers, "t", 3, "other") == [b"0", b"1", b"again"]


def test_the_command_line_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "kafka_sink.testing",
        "--port",
        "0",
        "--brokers",
        "2",
        "--topic",
        "t:3",
        "--data-dir",
        str(tmp_path),
        "--property",
        "auto.create.topics.enable=false",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.fullmatch(r"bootstrap.servers=(\S+,\S+)\n", process.stdout.readline())
        assert found is not None
        write(found[1], "t", [b"x"] * 10)
        assert len(read(found[1], "t", 10)) == 10
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
    state = json.loads((tmp_path / "state.json").read_text())
    assert [len(topic["partitions"]) for topic in state["topics"] if topic["name"] == "t"] == [3]


def told_by(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kafka_sink.testing", "--port", "0", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S)


def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = told_by("--port", str(taken.getsockname()[1]))
    assert done.returncode == 2 and "it cannot listen: Address already in use" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--brokers", "0"), "argument --brokers: a number above 0 is needed, not '0'"),
        (("--topic", "t:-1"), "argument --topic: a number above 0 is needed, not '-1'"),
        (("--topic", "..:1"), "a topic cannot be created: the topic name is not legal"),
        (("--topic", "t:99999999"), "a topic cannot be created: Excessively large number of partitions"),
        (("--port", "65535", "--brokers", "2"), "it cannot listen: bind(): port must be 0-65535"),
        (("--property", "num.partitions=few"), "property 'num.partitions' cannot be 'few'"),
        (("--data-dir", __file__), "the data directory cannot be used: [Errno 17] File exists"),
    ],
)
def test_a_wrong_argument_is_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = told_by(*arguments)
    assert done.returncode == 2 and message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_data_directory_that_cannot_be_written_any_more_ends_the_process(tmp_path: Path) -> None:
    data = tmp_path / "data"
    command = [sys.executable, "-m", "kafka_sink.testing", "--port", "0", "--data-dir", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        servers = process.stdout.readline().strip().removeprefix("bootstrap.servers=")
        wait_until(lambda: (data / "state.json").exists(), "the first state is written")
        (data / "state.json").unlink()
        (data / "state.json").mkdir()
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(WAIT_S)
        assert process.wait(WAIT_S) == 1
        assert process.stderr is not None and "IsADirectoryError" in process.stderr.read()


def test_an_unknown_property_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"num\.io\.threads"):
        EmbeddedBroker(properties={"num.io.threads": "3"})


@pytest.mark.embedded_kafka(brokers=3, topics={"rows": 6})
def test_the_fixture_starts_what_its_marker_says(embedded_kafka: EmbeddedBroker) -> None:
    admin = AdminClient({"bootstrap.servers": embedded_kafka.bootstrap_servers})
    assert len(admin.list_topics(timeout=WAIT_S).topics["rows"].partitions) == 6
    admin.create_topics([NewTopic("more", 2, 3)])["more"].result(WAIT_S)
    partitions = admin.list_topics(timeout=WAIT_S).topics["more"].partitions
    assert sorted(len(one.replicas) for one in partitions.values()) == [3, 3]


@pytest.mark.embedded_kafka(2)
def test_the_marker_also_takes_what_has_no_name(embedded_kafka: EmbeddedBroker) -> None:
    assert len(embedded_kafka.bootstrap_servers.split(",")) == 2


def test_injected_faults_are_survived_and_counted(embedded_kafka: EmbeddedBroker) -> None:
    embedded_kafka.create_topic("t")
    embedded_kafka.inject(Fault("Produce", error_code=19))
    embedded_kafka.inject(Fault("Produce", delay_before_ms=50, disconnect=True, after_apply=True))
    embedded_kafka.inject(Fault("Produce", disconnect=True))
    write(embedded_kafka.bootstrap_servers, "t", [b"x"], **{"enable.idempotence": True})
    assert embedded_kafka.do(lambda core: core.faults.fired) == 3
    assert read(embedded_kafka.bootstrap_servers, "t", 1) == [b"x"]


def test_nobody_else_gets_the_port_of_a_broker_that_is_stopped() -> None:
    with EmbeddedBroker(brokers=2) as kafka:
        port = kafka.do(lambda core: core.cluster.brokers[2].port)
        kafka.stop_broker(2)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=10)
        kafka.start_broker(2)
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
        kafka.stop_broker(2)
    with socket.create_server(("127.0.0.1", port)):
        pass  # free again


@contextmanager
def forked_child() -> Iterator[int]:
    """A process that does nothing until this one has closed its end of a pipe, or has died."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    try:
        yield child
    finally:
        os.close(writer)
        os.close(reader)
        os.waitpid(child, 0)


def descriptors(pid: int | str = "self") -> set[str]:
    """Of one object of the system every process that has it names the same."""
    folder = Path(f"/proc/{pid}/fd")
    return {os.readlink(one) for one in folder.iterdir() if one.is_symlink()}


def ask_versions(connection: socket.socket) -> bytes:
    """Returns nothing if the broker has closed the connection."""
    request = frames.encode_request(apis.API_VERSIONS, 0, correlation_id=1, client_id="", body={})
    connection.sendall(request)
    with connection.makefile("rb") as received:
        return received.read(int.from_bytes(received.read(4), "big"))


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_connections_and_ports_of_a_broker_are_closed_though_a_forked_child_lives() -> None:
    with EmbeddedBroker(brokers=2) as kafka:
        address = ("127.0.0.1", kafka.do(lambda core: core.cluster.brokers[2].port))
        with socket.create_connection(address, WAIT_S) as connection:
            assert ask_versions(connection)
            with forked_child():
                kafka.inject(Fault("ApiVersions", disconnect=True))
                assert ask_versions(connection) == b""
                kafka.stop_broker(2)
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(address, WAIT_S)
                kafka.start_broker(2)
                with socket.create_connection(address, WAIT_S) as again:
                    assert ask_versions(again)


def test_a_broker_stops_while_a_child_that_was_just_forked_still_has_its_port() -> None:
    with EmbeddedBroker(brokers=2) as kafka:
        port = kafka.do(lambda core: core.cluster.brokers[2].port)
        inherited = socket.socket(fileno=os.dup(kafka._listeners[2].fileno()))
        with inherited:
            kafka.stop_broker(2)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), WAIT_S)
            kafka.start_broker(2)
            with socket.create_connection(("127.0.0.1", port), WAIT_S) as connection:
                assert ask_versions(connection)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_has_nothing_of_broker_and_registry_and_what_it_ends_is_not_the_parents(tmp_path: Path) -> None:
    before = descriptors()
    with EmbeddedBroker(brokers=2, data_dir=tmp_path) as kafka, EmbeddedRegistry() as registry:
        kafka.stop_broker(2)
        own = descriptors() - before
        assert len([one for one in own if one.startswith("socket:")]) >= 4, own
        with forked_child() as child:
            wait_until(lambda: not own & descriptors(child), "the child has closed what it has inherited")
        child = os.fork()
        if child == 0:
            for server in (kafka, registry):
                server.stop()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(OSError, match="another embedded broker uses it"):
            EmbeddedBroker(data_dir=tmp_path).start()
        write(kafka.bootstrap_servers, "t", [b"x"])
        assert urlopen(f"{registry.url}/subjects").read() == b"[]"


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_registry_that_is_stopped_refuses_connections_though_a_forked_child_lives() -> None:
    with EmbeddedRegistry() as registry:
        address = ("127.0.0.1", int(registry.url.rpartition(":")[2]))
        with socket.create_connection(address, WAIT_S) as connection:
            connection.sendall(b"GET /subjects HTTP/1.0\r\n")
            wait_until(lambda: registry._server is not None and registry._server.connections, "it is accepted")
            with forked_child():
                connection.sendall(b"\r\n")
                assert b"".join(iter(lambda: connection.recv(4096), b"")).endswith(b"[]")
                registry.stop()
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(address, WAIT_S)
                registry.start()
                assert urlopen(f"{registry.url}/subjects").read() == b"[]"
