"""The runner of the suite, on small suites: counts, processes that die, Ctrl-C, and what is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools import kafka_watchdog
from tools.waiting import wait_until

ROOT = Path(__file__).parents[2]
PASSES = "def test_passes(tmp_path):\n    assert True\n"
# Spelled in pieces: if the word occurs in a file, the runner loads the plugin.
LOADS_NO_MORE_THAN_IT_ASKS_FOR = "import sys\ndef test_loaded():\n    assert 'hypo' + 'thesis' not in sys.modules\n"
DRAWS = """
from hypothesis import HealthCheck, given, settings, strategies

@settings(max_examples=5, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(strategies.integers())
def test_draws(number):
    print('drew', number)
    assert isinstance(number, int)
"""
WAITS = """
import pathlib, subprocess, time, pytest
HERE = pathlib.Path(__file__).parent

@pytest.fixture
def resource(tmp_path):
    with subprocess.Popen(["sleep", "600"]) as child:
        (HERE / "started").touch()
        yield
        (HERE / "torn-down").touch()
        child.kill()

def test_waits(resource):
    time.sleep(600)
"""

IMPORTS = """
import pathlib, subprocess, sys

def test_imports():
    subprocess.run([sys.executable, "-c", "import helper"], cwd=pathlib.Path(__file__).parent, check=True)
"""

SHARES = """
import os, pathlib, pytest
from tools.suite.shared_kafka import SharedKafka

def test_shares():
    with SharedKafka("4.3.1", pathlib.Path(os.environ["PYKAFKA_SINK_FOLDER"])) as kafka:
        name = kafka.create_topic(f"of-{os.getpid()}")
        with open("told", "a") as told:
            told.write(f"{kafka.bootstrap_servers} {name} {kafka.data_folder(1)}\\n")
        with pytest.raises(ValueError, match="serves other tests as well"):
            kafka.kill(1)
"""


class SmallSuite:
    def __init__(self, folder: Path) -> None:
        # With this folder name nothing has to be downloaded.
        self.tests = folder / "tests" / "unit"
        self.tests.mkdir(parents=True)
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self._folder = folder

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.tests / f"test_{name}.py").write_text(text)

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        ours = {name: text for name, text in os.environ.items() if name != "PYTEST_ADDOPTS"} | variables
        return subprocess.Popen(
            [sys.executable, "-m", "tools.suite", *arguments],
            cwd=self._folder,
            env={**ours, "PYTHONPATH": str(ROOT), "TMPDIR": str(self.temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, **variables: str) -> tuple[int, str]:
        process = self.start(*arguments, **variables)
        output, _ = process.communicate(timeout=500)
        return process.returncode, output

    def left_behind(self) -> tuple[list[str], list[int]]:
        return os.listdir(self.temporary), kafka_watchdog.processes_using(str(self.temporary))


@pytest.fixture
def suite(tmp_path: Path) -> SmallSuite:
    return SmallSuite(tmp_path)


def test_the_last_line_has_the_sums_of_all_files_and_the_exit_code_is_zero(suite: SmallSuite) -> None:
    skips = "import pytest\ndef test_skips():\n    pytest.skip('no moon')\n"
    skips += "@pytest.mark.xfail\ndef test_known():\n    assert 0\n"
    suite.write(one=PASSES, two=LOADS_NO_MORE_THAN_IT_ASKS_FOR, three=skips, none="X = 1\n")
    code, output = suite.run()
    assert code == 0
    assert output.splitlines()[-1] == "2 passed, 0 failed, 2 skipped"
    assert "  1 in tests/unit/test_three.py: no moon" in output.splitlines()
    assert len(re.findall(r"^\[ +\d+/4 +\d+:\d\d, \d+ min left\] tests/unit/test_\w+\.py: ", output, re.MULTILINE)) == 3
    assert suite.left_behind() == ([], [])


def test_what_a_process_of_a_test_imports_is_compiled_once_for_all(suite: SmallSuite) -> None:
    """Also if the environment says that Python should not keep what it compiles."""
    suite.write(one=IMPORTS)
    (suite.tests / "helper.py").write_text("X = 1\n")
    code, _ = suite.run(PYTHONDONTWRITEBYTECODE="1")
    assert code == 0
    assert [path.name for path in suite.tests.glob("__pycache__/helper.*.pyc")] != []


def test_a_test_that_fails_is_shown_whole_and_named_with_what_repeats_it(suite: SmallSuite) -> None:
    fails = PASSES + "def test_fails():\n    print('what it printed')\n    assert [1, 2] == [1, 3]\n"
    fixture = "import pytest\n@pytest.fixture\ndef bad():\n    yield\n    raise ValueError\ndef test_torn(bad): pass\n"
    suite.write(good=PASSES, fails=fails, cannot="import nowhere\n", torn=fixture)
    code, output = suite.run("--seed", "5")
    assert code == 1
    assert output.splitlines()[-2:] == ["seed 5", "2 passed, 3 failed, 0 skipped"]
    assert "what it printed" in output and "assert [1, 2] == [1, 3]" in output and "No module named 'nowhere'" in output
    assert "  tests/unit/test_fails.py::test_fails" in output.splitlines()
    assert re.search(r"^ +\.venv/bin/pytest --randomly-seed=5 .*tests/unit/test_fails.py", output, re.MULTILINE)


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
        ("os._exit(0)", "ended with exit code 0"),
        # In every run below, after a second try.
        pytest.param("os._exit(7)", "ended with exit code 7", marks=pytest.mark.slow),
    ],
)
def test_a_process_that_ends_before_its_tests_counts_as_failed(suite: SmallSuite, end: str, told: str) -> None:
    suite.write(good=PASSES, dies=f"import os\ndef test_dies():\n    {end}\n")
    code, output = suite.run()
    assert code == 1
    assert re.fullmatch(r"[01] passed, 1 failed, 0 skipped", output.splitlines()[-1])
    assert "tests/unit/test_dies.py" in output and told in output


FAILS_ONCE = """
from pathlib import Path
def test_fails_once():
    trace = Path(__file__).with_suffix(".trace")
    is_first = not trace.exists()
    trace.touch()
    assert not is_first, "what it said the first time"
"""


def test_a_test_that_passes_at_its_second_try_is_named_with_its_first_output_and_fails_nothing(
    suite: SmallSuite,
) -> None:
    suite.write(good=PASSES, unsteady=PASSES + FAILS_ONCE)
    code, output = suite.run("--seed", "5", "--second-try", "1")
    lines = output.splitlines()
    assert (code, lines[-1]) == (0, "3 passed, 0 failed, 0 skipped")
    assert "what it said the first time" in output
    assert lines[lines.index("  tests/unit/test_unsteady.py::test_fails_once") - 1].startswith("unsteady: ")
    assert re.search(r"^ +\.venv/bin/pytest --randomly-seed=5 .*tests/unit/test_unsteady.py", output, re.MULTILINE)
    assert suite.left_behind() == ([], [])


def test_without_being_asked_nothing_is_tried_again(suite: SmallSuite) -> None:
    suite.write(unsteady=FAILS_ONCE)
    code, output = suite.run()
    assert (code, output.splitlines()[-1]) == (1, "0 passed, 1 failed, 0 skipped")


def test_a_second_try_does_not_help_what_fails_again_nor_many_failures_nor_a_process_that_died(
    suite: SmallSuite,
) -> None:
    fails = "import pytest\n@pytest.mark.parametrize('number', [1, 2])\ndef test_fails(number): assert 0\n"
    suite.write(fails=fails, unsteady=FAILS_ONCE)
    code, output = suite.run("--second-try", "3")
    assert (code, output.splitlines()[-1]) == (1, "1 passed, 2 failed, 0 skipped")
    (suite.tests / "test_unsteady.trace").unlink()
    code, output = suite.run("--second-try", "2")
    assert (code, output.splitlines()[-1]) == (1, "0 passed, 3 failed, 0 skipped")
    suite.write(fails="import os\ndef test_dies(): os._exit(7)\n")
    code, output = suite.run("--second-try", "3")
    assert code == 1 and "ended with exit code 7" in output


def test_what_follows_two_dashes_is_for_pytest_and_a_seed_gives_the_same_order_again(suite: SmallSuite) -> None:
    many = "".join(f"def test_{number}():\n    print('ran {number}')\n    assert {number}\n" for number in range(9))
    suite.write(many=many + DRAWS, other=PASSES)
    orders = []
    for seed in ("3", "3", "4"):
        code, output = suite.run("tests/unit/test_many.py", "--seed", seed, "--", "-s", "-k", "not test_8")
        assert code == 1 and output.splitlines()[-1] == "8 passed, 1 failed, 0 skipped"
        orders.append((re.findall(r"ran (\d)", output), re.findall(r"drew (\S+)", output)))
        assert all(orders[-1])
    assert orders[0] == orders[1] != orders[2]


def test_a_run_of_no_test_is_no_success(suite: SmallSuite) -> None:
    suite.write(one=PASSES)
    code, output = suite.run("--", "-k", "nothing_of_that_name")
    assert code == 1 and output.splitlines()[-1] == "0 passed, 0 failed, 0 skipped"
    code, output = suite.run("tests/unti")
    assert code == 1 and output == "no test file at tests/unti\n"


def test_ctrl_c_lets_fixtures_end_and_leaves_no_process_and_no_file(suite: SmallSuite) -> None:
    suite.write(waits=WAITS)
    runner = suite.start()
    wait_until((suite.tests / "started").exists, "the test runs")
    runner.send_signal(signal.SIGINT)
    output, _ = runner.communicate(timeout=300)
    assert runner.returncode == 1
    assert output.splitlines()[-1] == "0 passed, 1 failed, 0 skipped" and "Traceback" not in output
    assert (suite.tests / "torn-down").exists()
    assert suite.left_behind() == ([], [])


def test_a_runner_that_is_killed_leaves_no_process_and_no_file(suite: SmallSuite) -> None:
    suite.write(waits=WAITS)
    runner = suite.start()
    wait_until((suite.tests / "started").exists, "the test runs")
    assert suite.left_behind() != ([], [])
    runner.kill()
    runner.communicate(timeout=300)
    wait_until(lambda: suite.left_behind() == ([], []), "nothing is left")


@pytest.mark.usefixtures("kafka_4")  # without Apache Kafka there is no broker to share
def test_all_processes_of_a_run_share_one_broker_and_it_ends_with_the_run(suite: SmallSuite, tmp_path: Path) -> None:
    suite.write(one=SHARES, two=SHARES)
    # The files take too long for one process.
    costs = {f"tests/unit/test_{name}.py": [150.0, 10.0, ""] for name in ("one", "two")}
    (suite.tests.parent / "durations.json").write_text(json.dumps(costs))
    code, output = suite.run()
    assert code == 0, output
    (address, one, folder), (other_address, two, other_folder) = (
        line.split() for line in (tmp_path / "told").read_text().splitlines()
    )
    assert (address, folder) == (other_address, other_folder) and one != two
    assert suite.left_behind() == ([], [])
