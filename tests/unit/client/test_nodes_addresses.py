"""Addresses in turn, and brokers that move or vanish."""

from __future__ import annotations

from fake_cluster import FakeCluster
from network_driver import Driver, fail_to_connect, notices, produce, produce_body, tried

from kafka_sink.client.cluster import Endpoint
from kafka_sink.client.commands import Address, Resolve, Resolved
from kafka_sink.wire.apis import PRODUCE

OLD: tuple[Address, ...] = tuple((2, (f"10.200.20.{last}", 9092)) for last in (100, 101, 102))
NEW: tuple[Address, ...] = tuple((2, (f"10.200.20.{last}", 9092)) for last in (103, 104, 105))


class ManyAddresses(FakeCluster):
    """Broker 0 listens on every address of its host, except on those that are `dead`."""

    def __init__(self) -> None:
        super().__init__({0: ("a", 9092)})
        self.addresses["a"] = OLD
        self.dead: set[Address] = set()

    def _connect(self, command: object) -> None:
        address = command.address  # type: ignore[attr-defined]
        self.refusing = {0} if address in self.dead else set()
        self.brokers = {0: tuple(address[1])}  # type: ignore[dict-item]
        super()._connect(command)  # type: ignore[arg-type]
        self.brokers = {0: ("a", 9092)}


def test_a_dead_first_address_is_followed_by_the_next_without_asking_the_resolver_again() -> None:
    driver = Driver(ManyAddresses())
    driver.cluster.dead = {OLD[0]}  # type: ignore[attr-defined]
    driver.nodes.connect(0, driver.now_ms)
    driver.run()
    driver.sleep(50)
    driver.await_ready()
    assert tried(driver) == [OLD[0], OLD[1]]
    assert len(driver.resolves()) == 1


def test_the_resolver_is_asked_again_when_all_addresses_have_failed() -> None:
    driver = Driver(ManyAddresses())
    driver.cluster.dead = set(OLD)  # type: ignore[attr-defined]
    for _ in range(4):
        driver.sleep(driver.delay_ms())
        driver.nodes.connect(0, driver.now_ms)
        driver.run()
    assert tried(driver) == [OLD[0], OLD[1], OLD[2], OLD[0]]
    assert len(driver.resolves()) == 2


def test_a_single_address_is_tried_again_and_again() -> None:
    driver = Driver()
    fail_to_connect(driver, 3)
    assert set(tried(driver)) == {(2, ("a", 9092))}


def test_after_a_lost_connection_the_name_is_resolved_again() -> None:
    driver = Driver(ManyAddresses())
    driver.await_ready()
    driver.cluster.addresses["a"] = NEW
    driver.cluster.disconnect(0)
    driver.run()
    driver.sleep(50)
    driver.await_ready()
    assert tried(driver) == [OLD[0], NEW[0]]
    assert len(driver.resolves()) == 2


def test_after_a_lost_connection_a_dead_new_address_is_followed_by_the_next_new_one() -> None:
    driver = Driver(ManyAddresses())
    driver.await_ready()
    driver.cluster.addresses["a"] = NEW
    driver.cluster.dead = {NEW[0]}  # type: ignore[attr-defined]
    driver.cluster.disconnect(0)
    driver.run()
    driver.sleep(50)
    driver.nodes.connect(0, driver.now_ms)
    driver.run()
    driver.sleep(100)
    driver.await_ready()
    assert tried(driver) == [OLD[0], NEW[0], NEW[1]]
    assert len(driver.resolves()) == 2


def test_the_address_just_lost_is_not_the_first_to_be_tried() -> None:
    driver = Driver(ManyAddresses())
    driver.await_ready()
    driver.cluster.disconnect(0)
    driver.run()
    driver.sleep(50)
    driver.await_ready()
    assert tried(driver) == [OLD[0], OLD[1]]


def test_a_failure_names_the_address_when_the_host_has_several() -> None:
    driver = Driver(ManyAddresses())
    driver.cluster.dead = {OLD[0]}  # type: ignore[attr-defined]
    driver.nodes.connect(0, driver.now_ms)
    (notice,) = notices(driver.run())
    assert "a:9092 (node 0, address 10.200.20.100) could not be established" in notice


# ---- what metadata changes


def test_a_broker_with_a_new_endpoint_is_reconnected_once_it_owes_no_answer() -> None:
    driver = Driver(FakeCluster({0: ("a", 9092), 1: ("b", 9092)}))
    driver.cluster.scripts[PRODUCE.key] = produce_body
    driver.await_ready()
    driver.cluster.silent.add(0)
    driver.send(produce())
    driver.nodes.set_brokers(driver.now_ms, {0: Endpoint("b", 9092)})
    assert not driver.nodes.is_ready(0, driver.now_ms)
    assert driver.nodes.in_flight_count(0) == 1
    driver.cluster.answer(driver.cluster.pending[0], produce_body(None))
    driver.run()
    assert [answer.failure for answer in driver.take_answers()] == [None]
    assert not driver.cluster.connections
    driver.await_ready()
    assert tried(driver)[-1] == (2, ("b", 9092))


def test_another_rack_is_no_new_endpoint() -> None:
    driver = Driver()
    driver.await_ready()
    driver.nodes.set_brokers(driver.now_ms, {0: Endpoint("a", 9092, "rack-2")})
    assert driver.nodes.is_ready(0, driver.now_ms)


def test_a_broker_that_moves_while_its_old_name_is_resolved_is_connected_at_the_new_place() -> None:
    driver = Driver()
    driver.nodes.connect(0, driver.now_ms)
    driver.nodes.take_commands()
    driver.nodes.set_brokers(driver.now_ms, {0: Endpoint("b", 9093)})
    driver.nodes.on_input(driver.now_ms, Resolved(0, ((2, ("old", 9092)),)))
    assert driver.nodes.take_commands() == [Resolve(0, "b", 9093)]


def test_a_vanished_broker_is_closed_when_it_is_idle_and_forgotten() -> None:
    driver = Driver()
    driver.await_ready()
    driver.nodes.set_brokers(driver.now_ms, {1: Endpoint("b", 9092)})
    driver.run()
    assert not driver.cluster.connections
    driver.nodes.connect(0, driver.now_ms)
    assert driver.nodes.take_commands() == []


def test_a_vanished_broker_still_delivers_what_it_owes() -> None:
    driver = Driver()
    driver.await_ready()
    driver.send(produce())
    driver.nodes.set_brokers(driver.now_ms, {1: Endpoint("b", 9092)})
    driver.run()
    assert driver.nodes.in_flight_count(0) == 1
    driver.cluster.answer(driver.cluster.pending[0], produce_body(None))
    driver.run()
    (answer,) = driver.take_answers()
    assert answer.body is not None
    assert not driver.cluster.connections


def test_a_broker_removed_and_added_again_has_no_back_off() -> None:
    driver = Driver()
    fail_to_connect(driver)
    assert driver.delay_ms() == 50
    driver.nodes.set_brokers(driver.now_ms, {1: Endpoint("b", 9092)})
    driver.nodes.set_brokers(driver.now_ms, {0: Endpoint("a", 9092)})
    assert driver.delay_ms() == 0


def test_a_resolver_answer_for_a_vanished_broker_is_not_taken_for_its_successor() -> None:
    driver = Driver()
    driver.nodes.connect(0, driver.now_ms)
    driver.nodes.take_commands()
    driver.nodes.set_brokers(driver.now_ms, {1: Endpoint("b", 9092)})
    driver.nodes.set_brokers(driver.now_ms, {0: Endpoint("c", 9092)})
    driver.nodes.connect(0, driver.now_ms)
    driver.nodes.on_input(driver.now_ms, Resolved(0, ((2, ("a", 9092)),)))
    assert driver.nodes.take_commands() == [Resolve(0, "c", 9092)]
