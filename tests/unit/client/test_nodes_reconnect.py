"""Back-off after failures, and time limits for setting a connection up."""

from __future__ import annotations

import pytest
from fake_cluster import FakeCluster
from network_driver import Driver, fail_to_connect, notices

from kafka_sink.client.cluster import Endpoint
from kafka_sink.client.commands import Connected, Disconnect, Resolve, Resolved


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
