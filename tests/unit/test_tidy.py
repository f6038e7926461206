"""The project follows its own style, and each rule of tools/tidy.py finds what it is meant to find."""

from __future__ import annotations

import ast
import socket
import threading
import time
from graphlib import TopologicalSorter

import pytest

from tools import tidy
from tools.tidy import Source


def found(rule: object, path: str, text: str) -> list[str]:
    assert callable(rule)
    return list(rule(Source(path, text)))


def test_every_node_is_looked_at_but_for_what_says_how_a_name_is_used() -> None:
    tree = ast.parse(
        "@a(b=1)\nasync def f(x, *y, z: int = 2, **w):\n    return [k async for k in x if k], {**w}, f'{x!r:>3}'\n"
    )
    every = [node for node in ast.walk(tree) if not isinstance(node, ast.expr_context)]
    assert tidy.walk(tree) == every and len(every) > 25


def test_the_whole_project_is_tidy() -> None:
    assert tidy.complaints(tidy.read_sources()) == []


@pytest.mark.parametrize(
    ("path", "text", "is_allowed"),
    [
        ("kafka_sink/producer/engine/a.py", "from kafka_sink.formats.records.batch import seal", True),
        ("kafka_sink/producer/engine/a.py", "from kafka_sink.producer.engine.commands import Step", True),
        ("kafka_sink/producer/engine/a.py", "from kafka_sink.kafka.io.clock import now_ms", False),
        ("kafka_sink/formats/records/a.py", "from kafka_sink.kafka.wire import codes", False),
        ("kafka_sink/formats/records/a.py", "from kafka_sink.kafka import wire", False),
        ("kafka_sink/formats/records/a.py", "import kafka_sink.producer.engine.commands", False),
        ("kafka_sink/formats/records/a.py", "def f():\n    from ...producer.engine import commands", False),
        ("kafka_sink/kafka/wire/a.py", "from .schema import Field", True),
        ("kafka_sink/errors/__init__.py", "from kafka_sink.options import parse", False),
        ("kafka_sink/producer/a.py", "RUN = 'kafka_sink.spark.task:run'", False),
        ("kafka_sink/operate/cli/arguments.py", "RUN = 'kafka_sink.operate.checks.run:check'", True),
        ("kafka_sink/testing/server.py", "from kafka_sink.kafka.io import network", False),
        ("kafka_sink/kafka/io/a.py", "import confluent_kafka", False),
        ("kafka_sink/novel/a.py", "", False),
        ("tools/a.py", "import confluent_kafka", True),
    ],
)
def test_imports_go_one_way(path: str, text: str, is_allowed: bool) -> None:
    assert (found(tidy.layers, path, text) == []) is is_allowed


def test_rooms_form_no_circle() -> None:
    """Each folder in a room may import only what is below it; so may the rooms, if each is taken as a whole."""
    rooms: dict[str, set[str]] = {}
    for layer, below in tidy.LAYERS.items():
        room = layer.partition("/")[0]
        rooms.setdefault(room, set()).update({each.partition("/")[0] for each in below} - {room})
    assert len(list(TopologicalSorter(rooms).static_order())) == len(rooms) and "kafka" in rooms


@pytest.mark.parametrize(
    ("path", "text", "is_allowed"),
    [
        ("kafka_sink/producer/engine/a.py", "import socket", False),
        ("kafka_sink/producer/engine/a.py", "from time import monotonic", False),
        ("kafka_sink/producer/engine/a.py", "def f():\n    import os.path", False),
        ("kafka_sink/formats/records/a.py", "import concurrent.futures", False),
        ("kafka_sink/formats/records/a.py", "x = datetime.now()", False),
        ("kafka_sink/formats/records/a.py", "x = np.random.default_rng()", False),
        ("kafka_sink/formats/records/a.py", "x = open('file')", False),
        ("kafka_sink/formats/records/a.py", "def f(now_ms: int) -> int:\n    return now_ms", True),
        ("kafka_sink/testing/broker.py", "import threading", False),
        ("kafka_sink/testing/server.py", "import threading", True),
        ("kafka_sink/kafka/io/a.py", "import socket", True),
        ("tools/a.py", "import socket", True),
    ],
)
def test_pure_folders_touch_nothing_outside(path: str, text: str, is_allowed: bool) -> None:
    assert (found(tidy.purity, path, text) == []) is is_allowed


def test_a_long_function_and_a_long_file_are_named_with_their_length() -> None:
    text = "def short():\n    pass\n\n\ndef long():\n" + "    x = 1\n" * 70
    assert found(tidy.sizes, "kafka_sink/kafka/wire/a.py", text) == [
        "kafka_sink/kafka/wire/a.py:5: long has 71 lines, at most 70"
    ]
    assert found(tidy.sizes, "kafka_sink/kafka/wire/a.py", "x = 1\n" * 601) == [
        "kafka_sink/kafka/wire/a.py: 601 lines, at most 600"
    ]
    assert found(tidy.sizes, "kafka_sink/kafka/wire/a.py", "x = 1\n" * 600) == []
    assert found(tidy.sizes, "tests/unit/test_a.py", "x = 1\n" * 601) == []


def test_a_module_without_introduction_is_found_unless_it_is_empty() -> None:
    assert found(tidy.introductions, "kafka_sink/kafka/wire/a.py", "x = 1\n") == [
        "kafka_sink/kafka/wire/a.py: no module docstring"
    ]
    assert found(tidy.introductions, "kafka_sink/kafka/wire/a.py", '"""Says what."""\nx = 1\n') == []
    assert found(tidy.introductions, "kafka_sink/kafka/wire/__init__.py", "") == []


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ("def joined(): ...", False),
        ("def _checked(): ...", False),
        ("class A:\n    def told(self): ...", False),
        ("def join(): ...", True),
        ("def feed(): ...", True),
        ("def signed_headers(): ...", True),
        ("class A:\n    @property\n    def closed(self): ...", True),
        ("def told_all(): ...", True),
    ],
)
def test_a_function_is_named_by_a_verb(text: str, is_allowed: bool) -> None:
    assert (found(tidy.participles, "kafka_sink/kafka/wire/a.py", text) == []) is is_allowed
    assert found(tidy.participles, "tests/unit/test_a.py", text) == []


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ("def is_ready(self):\n        return self.count > 1", True),
        ("def is_ready(self):\n        count = self.count\n        return count", True),
        ("def is_ready(self):\n        self.count = 1", False),
        ("def can_use(self):\n        first, self.count = 1, 2", False),
        ("def _waits_for_it(self):\n        self.counts['a'] += 1", False),
        ("def has_next(self):\n        return self.queue.popleft()", False),
        ("def find_outcome(self):\n        self.offset += 1", False),
        ("def _without_unused(self):\n        return [one for one in self.topics if one]", True),
        ("def has_next(self):\n        return list(self.queue).pop()", True),
        ("def has_next(self):\n        queue = []\n        queue.append(self)", True),
        ("def can_use(self):\n        return self.connect()\n    def connect(self):\n        self.count = 1", False),
        ("def connect(self):\n        self.count = 1", True),
        ("@property\n    def count(self):\n        del self.counts[0]", False),
    ],
)
def test_a_question_changes_nothing(text: str, is_allowed: bool) -> None:
    module = f"class A:\n    {text}\n"
    assert (found(tidy.questions, "kafka_sink/spark/a.py", module) == []) is is_allowed
    assert found(tidy.questions, "tools/a.py", module) == []


def test_files_that_import_each_other_are_found_also_if_only_for_types() -> None:
    sources = [
        Source("kafka_sink/kafka/__init__.py", ""),
        Source("kafka_sink/kafka/a.py", "from kafka_sink.kafka import b\nfrom kafka_sink.kafka.d import D"),
        Source("kafka_sink/kafka/b.py", "def f():\n    import kafka_sink.kafka.c"),
        Source("kafka_sink/kafka/c.py", "if TYPE_CHECKING:\n    from kafka_sink.kafka.a import A"),
        Source("kafka_sink/kafka/d.py", "from kafka_sink.kafka import __name__"),
    ]
    (told,) = tidy.circles(sources)
    assert {told.count(f"kafka/{name}.py") for name in "abc"} <= {1, 2} and "d.py" not in told
    assert list(tidy.circles([*sources[:3], *sources[4:]])) == []


def test_a_sentence_that_names_a_file_which_is_gone_is_found() -> None:
    text = '''"""See b.py, engine/b.py and c.py."""\n# as d.py and *_e.py and pyspark/daemon.py\nx = "f.py"\n'''
    sources = [
        Source("kafka_sink/producer/engine/a.py", text),
        Source("kafka_sink/producer/engine/b.py", ""),
        Source("DESIGN.md", "first\n`engine/b.py`, `client/b.py`"),
        Source("docs/guide.md", "`my_job.py`"),
    ]
    assert list(tidy.lost_files(sources)) == [
        "kafka_sink/producer/engine/a.py:1: there is no c.py",
        "kafka_sink/producer/engine/a.py:2: there is no d.py",
        "DESIGN.md:2: there is no client/b.py",
    ]


def test_unfinished_work_is_found_in_code_and_in_documents() -> None:
    word = "TO" + "DO"
    assert found(tidy.unfinished_work, "README.md", f"fine\n{word}: write") == [f"README.md:2: {word}"]
    assert found(tidy.unfinished_work, "tools/a.py", "mastodon = 'todos'") == []


def test_a_path_of_one_machine_is_found() -> None:
    assert found(tidy.machine_paths, "tools/a.py", "x = '/" + "work/main'") != []
    assert found(tidy.machine_paths, "tools/a.py", "x = '/" + "home/ada/x'") != []
    assert found(tidy.machine_paths, "tools/a.py", "x = '/var/work', 'work/main'") == []


def test_a_test_without_verdict_is_found_and_helpers_that_check_count_wherever_they_are() -> None:
    helpers = """
def reaches(x):
    examines(x)

def examines(x):
    assert x

def check_output(x):
    print(x)

class Watch:
    def sees(self):
        raise AssertionError
"""
    text = """
from tests.support.a import Watch, check_output, examines as looks, reaches

def test_by_assert():
    assert 1

def test_by_raises():
    with pytest.raises(ValueError):
        f()

def test_by_helper():
    reaches(1)

def test_by_a_helper_that_another_calls(watch: Watch):
    watch.sees()

def test_by_a_name_alone():
    check_output(1)
    subprocess.run(check=True)

def test_nothing():
    print(1)
"""
    sources = [Source("tests/support/a.py", helpers), Source("tests/unit/test_a.py", text)]
    assert list(tidy.verdicts(sources)) == [
        "tests/unit/test_a.py:17: test_by_a_name_alone checks nothing",
        "tests/unit/test_a.py:21: test_nothing checks nothing",
    ]
    assert len(list(tidy.verdicts(sources[1:]))) == 4, "what is not imported does not count"


def test_a_patch_of_what_every_thread_uses_is_told() -> None:
    given = ('time, "sleep"', '"a.signs.time.sleep"', 'threading.Thread, "start"', 'signs, "time"', '"a.signs.time"')
    text = "def test_x(monkeypatch):\n" + "".join(f"    monkeypatch.setattr({each}, 1)\n" for each in given)
    told = found(tidy.shared_patches, "tests/unit/test_a.py", text)
    assert [each.split(":")[1] for each in told] == ["2", "3", "4"]
    assert found(tidy.shared_patches, "tests/support/a.py", text) == []


def test_a_module_nobody_imports_is_dead_and_a_test_does_not_revive_one_of_the_package() -> None:
    sources = [
        Source("kafka_sink/__init__.py", "from kafka_sink.producer.producer import Producer"),
        Source("kafka_sink/producer/producer.py", "from kafka_sink.producer.engine import used"),
        Source("kafka_sink/producer/engine/used.py", ""),
        Source("kafka_sink/operate/cli/__init__.py", 'RUN = "kafka_sink.operate.cli.typed:run"'),
        Source("kafka_sink/operate/cli/typed.py", ""),
        Source("kafka_sink/producer/engine/unused.py", "from kafka_sink.producer.engine.unused import own"),
        Source("tools/helper.py", ""),
        Source("tools/lonely.py", ""),
        Source("tools/program.py", 'if __name__ == "__main__":\n    pass'),
        Source("tests/unit/test_a.py", "from kafka_sink.producer.engine.unused import x\nfrom tools import helper"),
    ]
    assert list(tidy.dead_modules(sources)) == [
        "kafka_sink/producer/engine/unused.py: dead, no other module imports it",
        "tools/lonely.py: dead, no other module imports it",
    ]


def test_a_folder_that_an_installation_would_leave_out_is_found() -> None:
    sources = [Source("kafka_sink/__init__.py", ""), Source("kafka_sink/kafka/io/tls.py", "")]
    assert list(tidy.bare_folders(sources)) == ["kafka_sink/kafka/io: no __init__.py"]


def test_a_public_class_has_a_name_of_its_own() -> None:
    sources = [
        Source("kafka_sink/producer/engine/a.py", "class Event: ...\n\n\nclass _Own: ..."),
        Source("kafka_sink/kafka/client/b.py", "class _Own: ...\n\n\nclass Event: ..."),
        Source("tests/unit/test_a.py", "class Event: ..."),
    ]
    assert list(tidy.names_twice(sources)) == [
        "kafka_sink/kafka/client/b.py:4: there is a class Event in kafka_sink/producer/engine/a.py, too"
    ]


def test_a_unit_test_that_sleeps_or_opens_a_socket_or_starts_a_thread_fails() -> None:
    with pytest.raises(AssertionError, match=r"must not use time\.sleep"):
        time.sleep(0)
    with pytest.raises(AssertionError, match=r"must not use socket\.socket"):
        socket.socket()
    with pytest.raises(AssertionError, match=r"must not use Thread\.start"):
        threading.Thread().start()
    with pytest.raises(AssertionError, match=r"must not use time\.monotonic"):
        time.monotonic()
