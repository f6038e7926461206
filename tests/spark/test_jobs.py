"""The jobs in spark_jobs/ as a user starts them: spark-submit, the zip, the files in conf/, a standalone cluster."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from kafka_sink import ChunkSummary, ExportSummary, WriteSummary
from tests.conftest import NEWEST
from tests.spark.parity import writable_topic
from tests.support.secured_kafka import SHORT, USERS, SecuredKafka
from tools.foreign_reader import ForeignRecord, end_offsets, read_topic
from tools.jvm_cluster import SparkFailed, SubmittedJob
from tools.kafka_cluster import KafkaCluster
from tools.kafka_security import SASL_SSL
from tools.make_zip import write_zip
from tools.spark_cluster import SparkCluster
from tools.waiting import wait_until

ROOT = Path(__file__).parents[2]
JOBS, CONF = ROOT / "spark_jobs", ROOT / "conf"
# The time limit of a job on a busy machine.
PATIENCE_S = 500
# Each look scans all processes of the machine.
LOOK_S = 0.5
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("zip") / "pykafka_sink.zip"
    write_zip(path)
    return path


@pytest.fixture
def submit(spark_cluster: SparkCluster, package: Path) -> Callable[..., SubmittedJob]:
    def submitted(
        script: Path,
        *arguments: object,
        executors: int = 2,
        files: Sequence[Path] = (),
        environment: Mapping[str, str] | None = None,
    ) -> SubmittedJob:
        return spark_cluster.submit(
            script,
            [str(argument) for argument in arguments],
            py_files=[package],
            files=files,
            conf={"spark.cores.max": str(executors)},
            environment=environment,
            properties_file=CONF / "spark-defaults-standalone.conf",
        )

    return submitted


def to(kafka: KafkaCluster, topic: str) -> list[str]:
    options = ["--to", f"kafka.bootstrap.servers={kafka.bootstrap_servers}", "--to", f"topic={topic}"]
    return [*options, "--properties", str(CONF / "producer.properties")]


def keys(records: list[ForeignRecord]) -> Counter[int]:
    return Counter(int(record.key or b"-1") for record in records)


@pytest.fixture
def parse(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[object, str]]:
    """Parses arguments that are wrong: the exit code, and what was said."""
    monkeypatch.syspath_prepend(JOBS)

    def parsed(script: str, *arguments: str) -> tuple[object, str]:
        with pytest.raises(SystemExit) as end:
            importlib.import_module(script).arguments(list(arguments))
        return end.value.code, capsys.readouterr().err

    return parsed


@pytest.mark.parametrize("script", ["stream_to_kafka.py", "export_to_kafka.py"])
def test_help_has_an_example_and_the_exit_codes(script: str) -> None:
    command = [sys.executable, str(JOBS / script), "--help"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0
    assert f"spark_jobs/{script}" in run.stdout and "exit codes: 0" in run.stdout


@pytest.mark.parametrize(
    ("script", "arguments", "text"),
    [
        ("stream_to_kafka", ["--format", "rate"], "--checkpoint"),
        ("stream_to_kafka", ["--format", "rate", "--checkpoint", "c", "--to", "topic"], "NAME=VALUE is needed"),
        (
            "stream_to_kafka",
            ["--format", "rate", "--checkpoint", "c", "--properties", "gone"],
            "gone cannot be read",
        ),
        ("stream_to_kafka", ["--format=rate", "--checkpoint=c", "--once", "--trigger=1 second"], "not allowed with"),
        ("export_to_kafka", ["--to", "topic=x"], "one of the arguments --table --sql --format is required"),
        ("export_to_kafka", ["--table", "t", "--path", "p"], "belong to --format"),
        ("export_to_kafka", ["--table", "t", "--chunks", "3"], "--chunks and --chunk-by belong together"),
        ("export_to_kafka", ["--table", "t", "--chunks-at-once", "2"], "--chunks-at-once belongs to --chunks"),
    ],
)
def test_wrong_arguments_end_with_2_and_a_text_that_says_what_is_wrong(
    parse: Callable[..., tuple[object, str]], script: str, arguments: list[str], text: str
) -> None:
    code, said = parse(script, *arguments)
    assert code == 2
    assert text in said


def test_an_option_with_a_mistake_is_not_shown(parse: Callable[..., tuple[object, str]]) -> None:
    mistaken = ("--to", "kafka.ssl.key.password:hush")
    code, said = parse("stream_to_kafka", "--format=rate", "--checkpoint=c", *mistaken)
    assert code == 2 and "--to: NAME=VALUE is needed" in said and "hush" not in said


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"# fine\nkafka.acks=all\nkafka.ssl.key.pasword: hush\n", "wrong, line 3: ssl.key.pasword is not supported"),
        ("kafka.ssl.key.password=hüsh\n".encode("latin-1"), "wrong cannot be read: line 1 is not UTF-8"),
    ],
)
def test_a_properties_file_with_a_mistake_is_named_and_no_line_of_it_is_shown(
    parse: Callable[..., tuple[object, str]], tmp_path: Path, content: bytes, text: str
) -> None:
    (tmp_path / "wrong").write_bytes(content)
    given = ("--format=rate", "--checkpoint=c", "--properties", str(tmp_path / "wrong"))
    code, said = parse("stream_to_kafka", *given)
    assert code == 2
    assert text in said
    assert "hush" not in said and "Traceback" not in said


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topic": "t", "Record.Errors": "fail"}, "exported 5 rows"),
        ({"record.errors": "drop"}, "exported 5 rows, less those left out by record.errors=drop"),
    ],
)
def test_an_export_does_not_claim_rows_that_may_have_been_left_out(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, str], text: str
) -> None:
    monkeypatch.syspath_prepend(JOBS)
    assert importlib.import_module("export_to_kafka").result_text(5, options) == text


def test_an_export_in_chunks_says_what_was_there_before_and_what_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(JOBS)
    written = WriteSummary(7, 100, 2, (), {"row too large": 1})
    done = ExportSummary((ChunkSummary(1, "a/1-of-2-by-key", 5), ChunkSummary(2, "a/2-of-2-by-key", 7, written)))
    text = importlib.import_module("export_to_kafka").chunks_text(done)
    assert text == (
        "exported 12 rows in 2 chunks, 1 of them were delivered by earlier runs, 1 rows left out: row too large"
    )


@pytest.mark.parametrize(("more", "parallel"), [([], 1), (["--chunks-at-once", "2"], 2)])
def test_an_export_is_divided_as_the_arguments_say(
    monkeypatch: pytest.MonkeyPatch, more: list[str], parallel: int
) -> None:
    monkeypatch.syspath_prepend(JOBS)
    job = importlib.import_module("export_to_kafka")
    called = list[tuple[tuple[object, ...], dict[str, object]]]()
    monkeypatch.setattr(job, "write_in_chunks", lambda *given, **named: called.append((given, named)))
    job.export_in_chunks("frame", {"topic": "t"}, job.arguments(["--table=t", "--chunks=4", "--chunk-by=key", *more]))
    ((given, named),) = called
    assert given == ("frame", {"topic": "t"}) and callable(named.pop("on_chunk"))
    assert named == {"chunks": 4, "by": "key", "parallel": parallel}


# In every run the export below replaces an executor.
@pytest.mark.parametrize("is_attacked", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_tasks_on_both_workers_have_the_package_from_the_zip_also_where_an_executor_was_killed_and_a_worker_paused(
    submit: Callable[..., SubmittedJob], spark_cluster: SparkCluster, tmp_path: Path, is_attacked: bool
) -> None:
    gate = tmp_path / "gate"
    job = submit(Path(__file__).parent / "jobs" / "wait_in_tasks.py", gate)
    wait_until(lambda: len(spark_cluster.python_workers()) == 2, "both tasks run", PATIENCE_S, poll_s=LOOK_S)
    paused = attack(spark_cluster) if is_attacked else None
    gate.touch()
    if paused is not None:
        spark_cluster.resume(paused)
    driver, *tasks = job.wait(PATIENCE_S).splitlines()
    paths, hosts = zip(*(line.split() for line in tasks), strict=True)
    assert all(path.endswith("pykafka_sink.zip/kafka_sink/__init__.pyc") for path in (driver, *paths))
    assert sorted(hosts) == ["127.0.0.2", "127.0.0.3"]


def attack(spark_cluster: SparkCluster) -> int:
    """Kills one executor and pauses the worker of the other one, which is returned."""
    killed, other = spark_cluster.executors()
    assert (killed.host, other.host) == ("127.0.0.2", "127.0.0.3")
    (paused,) = spark_cluster.python_workers(other)
    spark_cluster.pause(paused)
    spark_cluster.kill(killed.process_id)

    def is_replaced() -> bool:
        """And its task runs there; else the other executor takes it. The killed process may be listed for a moment."""
        now = spark_cluster.executors()
        is_gone = killed.process_id not in [one.process_id for one in now]
        return is_gone and len(now) == 2 and all(map(spark_cluster.python_workers, now))

    wait_until(is_replaced, "it is replaced", PATIENCE_S, poll_s=LOOK_S)
    return paused


@pytest.mark.slow  # the same script without the format: test_jobs_without_format.py
def test_an_export_that_cannot_be_done_ends_with_1_and_says_why(
    submit: Callable[..., SubmittedJob], kafka_4: KafkaCluster, topic_name: str
) -> None:
    kafka_4.create_topic(topic_name)
    sink = to(kafka_4, topic_name)
    job = submit(JOBS / "export_to_kafka.py", "--sql", "SELECT 1 AS n", *sink, executors=1)
    with pytest.raises(SparkFailed, match="the job ended with 1"):
        job.wait(PATIENCE_S)
    # spark-submit writes both streams of a script to its standard output.
    told = job.output + job.log
    assert "export_to_kafka: " in told and "required column value not found" in told


# The second run: without the format in every run of the tests (test_jobs_without_format.py).
@pytest.mark.parametrize("is_run_again", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_stream_arrives_whole_with_files_of_spark_submit_and_a_second_run_writes_only_what_is_new(
    submit: Callable[..., SubmittedJob],
    secured_kafka_of: Callable[[str], SecuredKafka],
    topic_name: str,
    tmp_path: Path,
    is_run_again: bool,
) -> None:
    """Options name the files as executors have them, without a path. Python processes load PySpark from Spark's zip, as
    they do for users; those of other tests leave it out (tools/spark_python.py)."""
    secured = secured_kafka_of(NEWEST)
    writable_topic(secured.kafka, topic_name)
    trusted, secrets = tmp_path / "trusted.pem", tmp_path / "secrets.properties"
    trusted.write_text(secured.authority.text)
    secrets.write_text(f"alice={USERS['alice']}\n")
    settings = {
        "kafka.bootstrap.servers": secured.kafka.bootstrap_servers_of(SASL_SSL),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": SHORT,
        "kafka.sasl.jaas.config": f'{SCRAM} required username="alice" password="${{file:secrets.properties:alice}}";',
        "kafka.ssl.truststore.location": trusted.name,
        "topic": topic_name,
    }
    properties = tmp_path / "sink.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    (tmp_path / "in").mkdir()

    def run(file: str, ids: range) -> Counter[int]:
        (tmp_path / "in" / file).write_text("".join(json.dumps({"id": number, "name": "n"}) + "\n" for number in ids))
        columns = ["--select", "CAST(id AS STRING) AS key", "--select", "to_json(struct(*)) AS value"]
        source = ["--format", "json", "--schema", "id BIGINT, name STRING", "--path", tmp_path / "in"]
        query = ["--checkpoint", tmp_path / "checkpoint", "--once", "--name", "people", "--properties", properties]
        job = submit(
            JOBS / "stream_to_kafka.py", *source, *columns, *query, executors=1, files=[trusted, secrets],
            environment={"PYSPARK_PYTHON": sys.executable},
        )  # fmt: skip
        assert f"{len(ids):,} rows\n" in job.wait(PATIENCE_S)
        assert USERS["alice"] not in job.output + job.log
        return keys(read_topic(secured.kafka.bootstrap_servers, topic_name))

    assert run("a.json", range(3000)) == Counter(range(3000))
    if is_run_again:
        assert run("b.json", range(3000, 3100)) == Counter(range(3100))


def test_every_row_is_there_once_though_an_executor_was_killed_in_the_middle_of_an_export(
    submit: Callable[..., SubmittedJob], spark_cluster: SparkCluster, kafka_4: KafkaCluster, topic_name: str
) -> None:
    count = 60_000
    kafka_4.create_topic(topic_name, partitions=3)
    servers = kafka_4.bootstrap_servers
    # Rows are produced so slowly that the test can find the executor: fifteen seconds for each of two tasks.
    pause = "IF(id % 2 = 0, java_method('java.lang.Thread', 'sleep', 1L), '')"
    value = f"concat('row ', id, ' ', {pause}, repeat('.', 100))"
    query = f"SELECT CAST(id AS STRING) AS key, {value} AS value FROM range(0, {count}, 1, 2)"
    job = submit(JOBS / "export_to_kafka.py", "--sql", query, *to(kafka_4, topic_name))

    def has_rows() -> bool:
        job.check("rows")
        return sum(end_offsets(servers, topic_name).values()) > 0

    # Each call starts a new client, which takes time.
    wait_until(has_rows, "rows", PATIENCE_S, poll_s=1.0)
    killed = spark_cluster.executors()[0]
    spark_cluster.kill(killed.process_id)
    assert sum(end_offsets(servers, topic_name).values()) < count
    assert job.wait(PATIENCE_S).endswith(f"exported {count} rows\n")
    assert f"executor {killed.executor_id}" in job.log.lower()
    records = read_topic(servers, topic_name)
    assert keys(records) == Counter(range(count))
    assert all((record.value or b"").startswith(b"row %b " % record.key) for record in records)
    assert {record.partition for record in records} == {0, 1, 2}
