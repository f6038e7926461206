"""Whom to ask when any broker will do, and since when a broker could not take requests."""

from __future__ import annotations

from fake_cluster import FakeCluster
from network_driver import Driver, fail_to_connect, notices, produce, produce_body

from kafka_sink.client.cluster import Endpoint
from kafka_sink.wire.apis import PRODUCE

FIRST_ALTERNATIVE = -2


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
