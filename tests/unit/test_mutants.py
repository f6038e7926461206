"""What `make mutants` does around mutmut: which tests judge a folder, its settings, and how results are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.mutant_sample import by_duration, choose, show
from tools.mutants import JUDGES, ROOT, Result, choose_tests, function_of, read_exit_codes, write_settings

PURE = {"options", "security", "formats/registry", "formats/records", "formats/schemas", "kafka/wire"}


@pytest.mark.parametrize("folder", JUDGES)
def test_each_folder_exists_and_every_pattern_of_its_tests_finds_some(folder: str) -> None:
    assert (ROOT / "kafka_sink" / folder).is_dir()
    assert all(list(ROOT.glob(pattern)) for pattern in JUDGES[folder])
    assert len(choose_tests(folder)) >= len(JUDGES[folder])


def test_every_folder_of_bytes_and_settings_is_judged() -> None:
    assert JUDGES.keys() >= PURE


def test_a_test_that_two_patterns_find_is_run_once() -> None:
    found = choose_tests("options")
    assert len(found) == len(set(found)) and "tests/unit/test_options_hooks.py" in found


def test_the_settings_are_those_of_the_project_and_name_what_is_changed_and_what_is_run() -> None:
    text = write_settings(
        "[tool.pytest.ini_options]\ntimeout = 600\n", "kafka/wire", ["tests/unit/kafka/wire"], ["tests", "Makefile"]
    )
    assert text.startswith("[tool.pytest.ini_options]\ntimeout = 600\n\n[tool.mutmut]\n")
    assert 'source_paths = ["kafka_sink/kafka/wire"]\n' in text
    assert 'pytest_add_cli_args_test_selection = ["tests/unit/kafka/wire"]\n' in text
    assert 'also_copy = ["tests", "Makefile"]\n' in text


def test_results_are_read_from_the_files_of_all_modules(tmp_path: Path) -> None:
    for name, codes in (("a.py.meta", {"a.one": 0}), ("deep/b.py.meta", {"b.one": 1, "b.two": 33})):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"exit_code_by_key": codes}))
    assert read_exit_codes(tmp_path) == {"a.one": 0, "b.one": 1, "b.two": 33}
    assert read_exit_codes(tmp_path, ["a.one", "b.two"]) == {"a.one": 0, "b.two": 33}
    assert Result("deep", 3, ("a.one",), 1).killed == 1


@pytest.mark.parametrize("codes", [{"a": None, "b": 1}, {}])
def test_a_run_that_ended_early_is_no_result(tmp_path: Path, codes: dict[str, int | None]) -> None:
    (tmp_path / "a.py.meta").write_text(json.dumps({"exit_code_by_key": codes}))
    with pytest.raises(SystemExit, match="ended early"):
        read_exit_codes(tmp_path)


def test_the_name_of_a_mutant_begins_with_that_of_its_function() -> None:
    assert (
        function_of("kafka_sink.kafka.wire.codes.x__read_row__mutmut_12") == "kafka_sink.kafka.wire.codes.x__read_row"
    )


def test_a_sample_is_the_same_for_the_same_seed() -> None:
    names = [f"x__mutmut_{number}" for number in range(100)]
    assert choose(names, 7, 3) == choose(names, 7, 3) != choose(names, 7, 4)
    assert len(set(choose(names, 7, 3))) == 7 and sorted(choose(names, 1000, 3)) == sorted(names)


def test_the_quickest_file_is_asked_first_and_an_unknown_one_is_not_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "tests" / "unit" / "deep"
    folder.mkdir(parents=True)
    for name in ("slow", "quick", "new"):
        (folder / f"test_{name}.py").touch()
    durations = {"tests/unit/deep/test_slow.py": [30, 1, ""], "tests/unit/deep/test_quick.py": [0.1, 0.1, ""]}
    (tmp_path / "tests" / "durations.json").write_text(json.dumps(durations))
    found = by_duration(tmp_path, ["tests/unit/deep", "tests/unit/deep/test_slow.py"])
    assert found == [f"tests/unit/deep/test_{name}.py" for name in ("quick", "new", "slow")]


def test_of_a_survivor_what_it_changes_is_shown(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    bodies = {"x_f__mutmut_orig": "a + 1", "x_f__mutmut_1": "a - 1"}
    text = "\n\n".join(f"def {name}(a):\n    b = {body}\n    return b" for name, body in bodies.items())
    (tmp_path / "package" / "part.py").write_text(text)
    name = "package.part.x_f__mutmut_1"
    assert show(tmp_path, name) == f"{name}\n-b = a + 1\n+b = a - 1"
