"""Back-off, set-up time-outs, addresses in turn, moved and vanished brokers, and whom to ask when any will do."""

from __future__ import annotations

import pytest
from fake_cluster import FakeCluster
from network_driver import Driver, notices, produce, produce_body

from kafka_sink.engine.cluster import Endpoint
from kafka_sink.engine.commands import Address, Connected, Disconnect, Resolve, Resolved
from kafka_sink.wire.apis import PRODUCE

OLD: tuple[Address, ...] = tuple((2, (f"10.200.20.{last}", 9092)) for last in (100, 101, 102))
NEW: tuple[Address, ...] = tuple((2, (f"10.200.20.{last}", 9092)) for last in (103, 104, 105))
FIRST_ALTERNATIVE = -2


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


def fail_to_connect(driver: Driver, times: int = 1) -> None:
    driver.cluster.refusing.add(0)
    for _ in range(times):
        driver.sleep(driver.delay_ms())
        driver.nodes.connect(0, driver.now_ms)
        driver.run()
    driver.cluster.refusing.discard(0)


def tried(driver: Driver) -> list[Address]:
    return [command.address for command in driver.connects()]


# ---- back-off


def test_a_node_never_tried_has_no_delay() -> None:
    driver = Driver()
    assert driver.delay_ms() == 0
    assert driver.nodes.is_unavailable_since_ms(0) is None


def test_a_connected_node_has_no_delay() -> None:
    driver = Driver()
    driver.await_ready()
    assert driver.nodes.blocked_until_ms(0, driver.now_ms) is None


def test_the_delay_after_a_disconnect_is_the_first_back_off_and_doubles_when_connecting_fails() -> None:
    driver = Driver()
    driver.await_ready()
    driver.cluster.disconnect(0)
    driver.run()
    assert driver.delay_ms() == 50
    driver.sleep(50)
    assert driver.delay_ms() == 0
    fail_to_connect(driver)
    assert driver.delay_ms() == 100


def test_equal_first_and_longest_back_off_do_not_grow() -> None:
    driver = Driver(reconnect_backoff_ms=100, reconnect_backoff_max_ms=100)
    fail_to_connect(driver, 3)
    assert driver.delay_ms() == 100


@pytest.mark.parametrize(
    ("jitter", "expected_ms"), [(0.0, [40, 80, 160]), (0.5, [50, 100, 200]), (1.0, [60, 120, 240])]
)
def test_jitter_moves_the_back_off_by_20_percent_at_most(jitter: float, expected_ms: list[int]) -> None:
    driver = Driver(jitter=jitter)
    delays = []
    for _ in expected_ms:
        fail_to_connect(driver)
        delays.append(driver.delay_ms())
    assert delays == expected_ms


def test_the_longest_back_off_holds_for_a_hundred_failures_even_with_jitter() -> None:
    driver = Driver(jitter=1.0)
    for _ in range(100):
        fail_to_connect(driver)
        assert 0 < driver.delay_ms() <= 1000
        driver.nodes.connect(0, driver.now_ms)
        assert driver.delay_ms() > 0


def test_connecting_before_the_back_off_is_over_does_nothing() -> None:
    driver = Driver()
    fail_to_connect(driver)
    count = len(driver.connects())
    driver.nodes.connect(0, driver.now_ms + 49)
    assert driver.nodes.take_commands() == []
    driver.nodes.connect(0, driver.now_ms + 50)
    driver.sleep(50)
    assert len(driver.connects()) == count + 1


def test_agreeing_on_versions_resets_the_back_off_and_connecting_alone_does_not() -> None:
    driver = Driver()
    fail_to_connect(driver, 3)
    driver.sleep(driver.delay_ms())
    driver.cluster.silent.add(0)
    driver.nodes.connect(0, driver.now_ms)
    driver.run()
    driver.cluster.disconnect(0)
    driver.run()
    assert driver.delay_ms() == 400
    driver.cluster.silent.clear()
    driver.sleep(400)
    driver.await_ready()
    driver.cluster.disconnect(0)
    driver.run()
    assert driver.delay_ms() == 50


def test_a_failed_connection_is_reported_with_host_port_and_reason() -> None:
    driver = Driver()
    driver.cluster.refusing.add(0)
    driver.nodes.connect(0, driver.now_ms)
    (notice,) = notices(driver.run())
    assert "connection to a:9092 (node 0) could not be established: connection refused" in notice
    assert driver.nodes.losses == 1


def test_nodes_are_told_apart() -> None:
    driver = Driver(FakeCluster({0: ("a", 9092), 1: ("b", 9092)}))
    driver.await_ready(0)
    driver.cluster.refusing.add(1)
    driver.nodes.connect(1, driver.now_ms)
    driver.run()
    assert driver.nodes.is_ready(0, driver.now_ms)
    assert (driver.delay_ms(0), driver.delay_ms(1)) == (0, 50)


# ---- set-up time-outs


def start_two_without_answer() -> Driver:
    driver = Driver(FakeCluster({0: ("a", 9092), 1: ("b", 9092)}))
    for node_id in (0, 1):
        driver.nodes.connect(node_id, driver.now_ms)
    commands = driver.nodes.take_commands()
    for command in commands:
        assert isinstance(command, Resolve)
        driver.nodes.on_input(driver.now_ms, Resolved(command.node_id, ((2, (command.host, command.port)),)))
    return driver


def test_connections_that_nobody_accepts_fail_after_the_set_up_time_out() -> None:
    driver = start_two_without_answer()
    start_ms = driver.now_ms
    assert driver.nodes.next_deadline_ms(start_ms) == start_ms + 10_000
    driver.nodes.on_time(start_ms + 9_999)
    assert not any(isinstance(command, Disconnect) for command in driver.nodes.take_commands())
    driver.nodes.on_time(start_ms + 10_000)
    commands = driver.nodes.take_commands()
    assert sum(isinstance(command, Disconnect) for command in commands) == 2
    assert "a:9092 (node 0): connection was not established within 10000 ms" in notices(commands)[0]
    assert driver.nodes.blocked_until_ms(0, start_ms + 10_000) == start_ms + 10_050


def test_a_connection_begun_later_times_out_later() -> None:
    driver = start_two_without_answer()
    start_ms = driver.now_ms
    driver.nodes.set_brokers(start_ms, {0: Endpoint("a", 9092), 1: Endpoint("b", 9092), 2: Endpoint("c", 9092)})
    driver.nodes.connect(2, start_ms + 5_000)
    driver.nodes.on_input(start_ms + 5_000, Resolved(2, ((2, ("c", 9092)),)))
    driver.nodes.take_commands()
    for at_ms, count in ((10_000, 2), (14_999, 0), (15_000, 1), (30_000, 0)):
        driver.nodes.on_time(start_ms + at_ms)
        assert sum(isinstance(command, Disconnect) for command in driver.nodes.take_commands()) == count


def test_the_set_up_time_out_doubles_up_to_its_limit_and_starts_over_after_success() -> None:
    driver = Driver()
    now_ms = driver.now_ms
    waited = []
    for _ in range(4):
        driver.nodes.connect(0, now_ms)
        driver.nodes.on_input(now_ms, Resolved(0, ((2, ("a", 9092)),)))
        deadline_ms = driver.nodes.next_deadline_ms(now_ms)
        assert deadline_ms is not None
        waited.append(deadline_ms - now_ms)
        now_ms = deadline_ms
        driver.nodes.on_time(now_ms)
        now_ms += 1_000
    assert waited == [10_000, 20_000, 30_000, 30_000]
    driver.nodes.take_commands()
    driver.now_ms = now_ms
    driver.await_ready()
    driver.cluster.disconnect(0)
    driver.run()
    driver.sleep(50)
    driver.nodes.connect(0, driver.now_ms)
    assert driver.nodes.next_deadline_ms(driver.now_ms) == driver.now_ms + 10_000


def test_a_resolver_that_does_not_answer_does_not_block_the_node_for_ever() -> None:
    driver = Driver()
    driver.nodes.connect(0, driver.now_ms)
    assert len(driver.nodes.take_commands()) == 1
    driver.nodes.on_time(driver.now_ms + 10_000)
    (notice,) = notices(driver.nodes.take_commands())
    assert "name was not resolved within 10000 ms" in notice
    # The question is still under way: it is not asked a second time, but its late answer serves the next attempt.
    driver.nodes.connect(0, driver.now_ms + 10_050)
    assert driver.nodes.take_commands() == []
    driver.nodes.on_input(driver.now_ms + 10_060, Resolved(0, ((2, ("a", 9092)),)))
    driver.run(driver.now_ms + 10_060)
    assert driver.nodes.is_ready(0, driver.now_ms)
    assert driver.resolves() == []


def test_closing_while_connecting_leaves_other_nodes_alone() -> None:
    driver = start_two_without_answer()
    driver.nodes.take_commands()
    driver.nodes.set_brokers(driver.now_ms, {1: Endpoint("b", 9092)})
    commands = driver.nodes.take_commands()
    assert [command.connection_id for command in commands if isinstance(command, Disconnect)] == [1]
    driver.nodes.on_input(driver.now_ms, Connected(1))
    assert driver.nodes.take_commands() == []
    driver.nodes.set_brokers(driver.now_ms, {0: Endpoint("a", 9092), 1: Endpoint("b", 9092)})
    driver.await_ready(0)


# ---- addresses


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


# ---- whom to ask


def three_brokers(**options: object) -> Driver:
    cluster = FakeCluster({0: ("a", 9092), 1: ("b", 9092), 2: ("c", 9092)})
    cluster.scripts[PRODUCE.key] = lambda asked: None
    return Driver(cluster, jitter=0.0, **options)


def test_the_bootstrap_servers_are_asked_while_no_broker_is_known() -> None:
    driver = Driver(knows_brokers=False, bootstrap_servers=(("x", 1), ("a", 9092)), jitter=0.0)
    assert driver.nodes.least_loaded(driver.now_ms) == FIRST_ALTERNATIVE
    driver.nodes.connect(FIRST_ALTERNATIVE, driver.now_ms)
    (notice,) = notices(driver.run())
    assert "x:1 (bootstrap server) could not be established" in notice
    assert driver.nodes.least_loaded(driver.now_ms) == FIRST_ALTERNATIVE - 1


def test_a_node_being_connected_is_waited_for_before_another_is_tried() -> None:
    driver = three_brokers()
    driver.nodes.connect(1, driver.now_ms)
    assert driver.nodes.least_loaded(driver.now_ms) == 1


def test_a_connected_node_is_preferred_and_the_one_with_fewest_in_flight_of_all() -> None:
    driver = three_brokers()
    driver.await_ready(1)
    assert driver.nodes.least_loaded(driver.now_ms) == 1
    driver.await_ready(2)
    driver.send(produce(), 1)
    assert driver.nodes.least_loaded(driver.now_ms) == 2


def test_no_node_is_offered_while_the_only_one_backs_off() -> None:
    driver = Driver()
    driver.await_ready()
    assert driver.nodes.is_any_reachable(driver.now_ms)
    driver.cluster.disconnect(0)
    driver.run()
    assert driver.nodes.least_loaded(driver.now_ms) is None
    assert not driver.nodes.is_any_reachable(driver.now_ms)
    assert driver.nodes.retry_at_ms() == driver.now_ms + 50


def test_a_full_node_is_not_offered_but_counts_as_reachable() -> None:
    driver = Driver(max_in_flight_requests_per_connection=1)
    driver.await_ready()
    assert driver.nodes.least_loaded(driver.now_ms) == 0
    driver.send(produce())
    assert driver.nodes.least_loaded(driver.now_ms) is None
    assert driver.nodes.is_any_reachable(driver.now_ms)


def test_a_throttled_node_is_not_offered() -> None:
    driver = Driver()
    driver.cluster.scripts[PRODUCE.key] = lambda asked: produce_body(asked, throttle_time_ms=100)
    driver.await_ready()
    driver.send(produce())
    assert driver.nodes.least_loaded(driver.now_ms) is None
    assert driver.nodes.is_any_reachable(driver.now_ms)
    driver.sleep(100)
    assert driver.nodes.least_loaded(driver.now_ms) == 0


def test_disconnected_nodes_are_offered_in_turn_the_longest_untried_first() -> None:
    driver = three_brokers()
    driver.cluster.refusing = {0, 1, 2}
    for _ in range(10):
        offered = set()
        for _ in range(3):
            node_id = driver.nodes.least_loaded(driver.now_ms)
            assert node_id is not None
            offered.add(node_id)
            driver.nodes.connect(node_id, driver.now_ms)
            driver.run()
            driver.sleep(1_001)
        assert offered == {0, 1, 2}


def test_jitter_spreads_producers_over_equal_nodes() -> None:
    driver = three_brokers()
    offered = []
    for jitter in (0.0, 0.34, 0.67):
        driver.jitter = jitter
        offered.append(driver.nodes.least_loaded(driver.now_ms))
    assert offered == [0, 1, 2]


def test_an_open_bootstrap_connection_is_used_before_a_new_one_is_made_but_not_before_an_open_broker() -> None:
    driver = Driver(knows_brokers=False)
    driver.await_ready(FIRST_ALTERNATIVE)
    driver.nodes.set_brokers(driver.now_ms, {0: Endpoint("a", 9092)})
    assert driver.nodes.least_loaded(driver.now_ms) == FIRST_ALTERNATIVE
    driver.await_ready(0)
    driver.send(produce(), 0)
    assert driver.nodes.least_loaded(driver.now_ms) == 0


# ---- availability


def test_availability_counts_from_the_first_wish_until_the_node_can_take_a_request() -> None:
    driver = Driver()
    start_ms = driver.now_ms
    fail_to_connect(driver, 2)
    driver.sleep(500)
    assert driver.nodes.is_unavailable_since_ms(0) == start_ms
    driver.await_ready()
    assert driver.nodes.is_unavailable_since_ms(0) is None
    driver.cluster.disconnect(0)
    driver.run()
    assert driver.nodes.is_unavailable_since_ms(0) == driver.now_ms


def test_a_full_node_is_unavailable_until_an_answer_makes_room() -> None:
    driver = Driver(max_in_flight_requests_per_connection=1)
    driver.await_ready()
    driver.send(produce())
    full_ms = driver.now_ms
    driver.sleep(70)
    assert driver.nodes.is_unavailable_since_ms(0) == full_ms
    driver.cluster.answer(driver.cluster.pending[0], produce_body(None))
    driver.run()
    assert driver.nodes.is_unavailable_since_ms(0) is None
