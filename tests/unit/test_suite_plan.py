"""Which test files share a process, and which process is started next."""

from __future__ import annotations

from tools.suite.plan import (
    BUNDLE_S,
    COSTLY_BUNDLE_S,
    GUESS,
    Bundle,
    Cost,
    bundles,
    guess_cost,
    next_to_start,
    read_costs,
    seconds_left,
    written_costs,
)

SPARK = frozenset({"spark"})
WAITS, COMPUTES, SHORT = Bundle(("w",), 90, 30), Bundle(("c",), 60, 60), Bundle(("s",), 5, 1)


def test_every_file_is_in_one_bundle_and_the_longest_bundle_is_first() -> None:
    costs = {f"f{number}": Cost(number, number / 2) for number in range(40)}
    files = [*costs, "new"]
    found = bundles(files, costs)
    assert sorted(file for bundle in found for file in bundle.files) == sorted(files)
    assert [bundle.seconds for bundle in found] == sorted((bundle.seconds for bundle in found), reverse=True)
    assert all(bundle.seconds <= BUNDLE_S for bundle in found)
    assert sum(bundle.seconds for bundle in found) == sum(range(40)) + GUESS.seconds


def test_a_file_that_is_longer_than_a_bundle_may_be_is_alone() -> None:
    found = bundles(["long", "short"], {"long": Cost(500, 100), "short": Cost(1, 1)})
    assert [bundle.files for bundle in found] == [("long",), ("short",)]


def test_files_with_the_same_expensive_fixtures_share_bundles_and_no_others() -> None:
    costs = {"a": Cost(5, 1, SPARK), "b": Cost(5, 1), "c": Cost(5, 1, SPARK), "d": Cost(5, 1)}
    assert {bundle.files for bundle in bundles(costs, costs)} == {("a", "c"), ("b", "d")}


def test_files_with_a_spark_session_share_it_whatever_else_they_ask_for_and_then_those_with_a_cluster() -> None:
    asked = {"a": "spark", "b": "spark secured_kafka_of", "c": "_spark_cluster spark", "d": "_spark_cluster",
             "e": "_spark_cluster kafka_three_nodes", "f": "kafka_three_nodes"}  # fmt: skip
    costs = {file: Cost(5, 1, frozenset(names.split())) for file, names in asked.items()}
    assert {bundle.files for bundle in bundles(costs, costs)} == {("a", "b", "c"), ("d", "e"), ("f",)}


def test_a_new_file_shares_the_fixtures_that_its_tests_ask_for() -> None:
    asks = "import spark\ndef test_x(\n    jvm_spark: Session, spark_cluster: Cluster, secured: Secured\n): ..."
    assert guess_cost(asks).shared == {"spark", "_spark_cluster", "secured_kafka_of"}
    assert guess_cost("def test_x(kafka: KafkaCluster, folder: Folder): ...").shared == {"spark"}
    assert guess_cost("def test_x(folder: Path, folders: FolderOf): ...") == GUESS
    assert guess_cost("import pyspark\ndef test_x(kafka: KafkaCluster): ...") == GUESS


def test_a_bundle_with_a_spark_session_may_be_longer_than_others() -> None:
    costs = {f"f{number}": Cost(10, 1, SPARK) for number in range(50)}
    assert [bundle.seconds for bundle in bundles(costs, costs)] == [COSTLY_BUNDLE_S, 500 - COSTLY_BUNDLE_S]


def test_what_needs_no_broker_is_apart_so_that_it_runs_while_brokers_are_downloaded() -> None:
    found = bundles(["tests/unit/test_a.py", "tests/chaos/test_b.py", "tests/sim/test_c.py"], {})
    assert {bundle.files: bundle.needs_brokers for bundle in found} == {
        ("tests/sim/test_c.py", "tests/unit/test_a.py"): False,
        ("tests/chaos/test_b.py",): True,
    }


def test_the_longest_is_started_when_the_cores_are_not_busy_and_is_never_overtaken() -> None:
    assert next_to_start([WAITS, COMPUTES, SHORT], [COMPUTES], 2, 9) is WAITS
    assert next_to_start([COMPUTES, SHORT], [COMPUTES, WAITS], 2, 9) is COMPUTES
    assert next_to_start([COMPUTES, SHORT], [COMPUTES, COMPUTES], 2, 9) is None


def test_never_more_run_than_is_allowed() -> None:
    assert next_to_start([SHORT], [], 1, 9) is SHORT
    assert next_to_start([SHORT], [SHORT, SHORT], 9, 2) is None
    assert next_to_start([], [], 9, 9) is None


def test_the_time_left_is_bound_by_the_cores_and_by_the_longest_bundle() -> None:
    assert seconds_left([COMPUTES] * 4, [], 2) == 120
    assert seconds_left([SHORT], [(WAITS, 0.5)], 2) == 45
    assert seconds_left([], [], 2) == 0


def test_a_table_is_read_as_it_was_written() -> None:
    costs = {"tests/b.py": Cost(1.5, 0.5, frozenset({"spark", "_spark_cluster"})), "tests/a.py": Cost(0.0, 0.0)}
    text = written_costs(costs)
    assert read_costs(text) == costs
    assert text.splitlines()[1:3] == [
        '"tests/a.py": [0.0, 0.0, ""],',
        '"tests/b.py": [1.5, 0.5, "_spark_cluster spark"]',
    ]
