"""No secret of any option is in what Spark writes and serves, whichever way a job enters Spark.

One secret each for every option that can hold one. Sessions of PySpark have literal secrets and the settings that
docs/security.md advises; spark-sql and the Thrift server have references, because Spark shows the text.
tests/compat/test_connect_canary.py has the same over Spark Connect.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.options.secret_options import secret_options
from tests.spark.canaries import (
    ACCEPTED,
    COMPANIONS,
    MARKER,
    OF_EACH_KIND,
    PASSWORD,
    UNKNOWN_TO_SPARK,
    Canaries,
    advised_expression,
    canaries,
    canonical,
    lines_with,
    places,
    statement,
    variable,
)
from tests.spark.conftest import require_java
from tests.spark.doors import JOB, THRIFT_SERVER, Door
from tools.spark_jvm import spark_home

EXPLAIN = ("EXPLAIN", "EXPLAIN EXTENDED", "EXPLAIN CODEGEN", "EXPLAIN COST", "EXPLAIN FORMATTED")
TABLE = "CREATE TABLE IF NOT EXISTS doors (value STRING) USING `pykafka-sink`"
WARNING = "in clear, which Spark Connect, spark-sql and the Thrift server write to event log"
# What errors say of each option: tests/integration/test_secrets_in_errors.py.
SECRETS = pytest.mark.parametrize(
    "names", [pytest.param(OF_EACH_KIND, id="of-each-kind"), pytest.param(None, id="all", marks=pytest.mark.slow)]
)


@pytest.fixture(autouse=True)
def _java() -> None:
    require_java()


def test_every_secret_option_has_a_canary() -> None:
    assert {canonical(name) for name in secret_options()} == set(COMPANIONS)
    assert set(secret_options()) > ACCEPTED


@SECRETS
@pytest.mark.timeout(590)
def test_a_session_of_pyspark_with_the_advised_expression_shows_no_secret(
    tmp_path: Path, names: Collection[str] | None
) -> None:
    """In plans of writes to a table, too, which hold all options: UI in each explain mode, errors of the analyser. Also
    in checkpoints."""
    with canaries(tmp_path) as held:
        door = Door(tmp_path / "door", held.environment, spark__redaction__regex=advised_expression())
        submit = [str(spark_home() / "bin" / "spark-submit")]
        writes = held.writes("literal", names)
        order = held.order("literal", writes=writes, streams=held.streams, is_stream_by_format=True)
        if names is not None:  # EXPLAIN has the others, and their texts are parts of these
            order["modes"] = ("extended", "formatted")
        for how in ("file", "env"):
            order["writes"] += held.writes(how, ACCEPTED)
        assert "\nend\n" in door.run_job("job", order, under=submit)
        outputs = door.outputs()
        assert held.found_in(outputs) == set()
    # The search works.
    assert places(outputs, MARKER) == {"events", "pages", "out"}
    assert lines_with(outputs, WARNING) == []


@pytest.mark.slow  # in every run: plans of such a write in test_second_door.py
@SECRETS
@pytest.mark.timeout(590)
def test_a_session_of_pyspark_shows_no_secret_of_the_second_door_without_any_setting(
    tmp_path: Path, names: Collection[str] | None
) -> None:
    """Options are in no plan: tasks get them in their pickled function."""
    with canaries(tmp_path) as held:
        door = Door(tmp_path / "door", held.environment)
        order = held.second_door(names, settings={"spark.sql.ui.explainMode": "extended"})
        assert "\nend\n" in door.run_job("job", order)
        outputs = door.outputs()
        assert held.found_in(outputs) == set()
    assert "out" in places(outputs, MARKER)
    assert lines_with(outputs, WARNING) == []


NOTEBOOK = (sys.executable, str(JOB.parent / "in_a_notebook.py"))


@pytest.mark.slow  # some minutes; test_canary.py searches the same surfaces of a script
@pytest.mark.timeout(590)
def test_a_notebook_with_the_advised_expression_shows_no_secret(tmp_path: Path) -> None:
    """Its outputs, with tracebacks, too."""
    with canaries(tmp_path) as held:
        door = Door(tmp_path / "door", held.environment, spark__redaction__regex=advised_expression())
        order = held.order("literal", statements=held.statements("env") + held.statements("file"))
        for how in ("file", "env"):
            order["writes"] += held.writes(how, ACCEPTED)
        printed = door.run_job("job", order, under=NOTEBOOK)
        outputs = door.outputs()
        assert held.found_in(outputs) == set()
    refused = len(held.secrets) - len(ACCEPTED)
    tracebacks = [output for output in outputs_of(printed) if output["output_type"] == "error"]
    # Of writes; of the same to a table, which the analyser refuses; of one statement for each kind of reference.
    assert len(tracebacks) == refused + len(order["writes"]) + 2
    assert any("end\n" in output.get("text", "") for output in outputs_of(printed))
    assert places(outputs, MARKER) == {"events", "pages", "out"}
    assert lines_with(outputs, WARNING) == []


@pytest.mark.slow
@pytest.mark.timeout(590)
def test_a_notebook_without_the_expression_shows_what_spark_does_not_know_as_secret(tmp_path: Path) -> None:
    """Of a variable in SQL, which Spark replaces, and of a secret itself in a write to a table. References to files are
    not shown, nor variables in DataFrames."""
    in_sql, in_table = "schema.registry.basic.auth.user.info", "kafka.ssl.keystore.key"
    with canaries(tmp_path) as held:
        door = Door(tmp_path / "door", held.environment)
        variable_in_sql = held.options(in_sql, held.value(in_sql, "env"))
        literals = held.common | {name: held.value(name, "literal") for name in (in_table, PASSWORD)}
        order = held.order(
            "file", writes=held.writes("env", ACCEPTED), shown=[literals],
            statements=["SET spark.sql.ui.explainMode=extended", *held.statements("file"), statement(variable_in_sql)],
        )  # fmt: skip
        printed = door.run_job("job", order, under=NOTEBOOK)
        assert any("end\n" in output.get("text", "") for output in outputs_of(printed))
        found = held.found_in(door.outputs())
        assert {name for name, _ in found} == {in_sql, in_table} < UNKNOWN_TO_SPARK
        assert "events" in {place.split("/")[0] for _, place in found}


def outputs_of(printed: str) -> list[dict[str, Any]]:
    cells = json.loads(printed[printed.index("{") :])["cells"]
    return [output for cell in cells for output in cell["outputs"]]


def script(held: Canaries, names: Collection[str] | None = None, *, control: str) -> str:
    """References to files; then to variables, with Spark's own substitution off; then, for comparison, with it on. One
    function resolves all references, so of those to variables there are few writes, and one with every option."""
    together = held.all_together("file")
    rows = [TABLE, *(statement(write["options"]) for write in held.writes("file", names))]
    rows += [statement(together, mode) for mode in EXPLAIN] + [statement(together).replace("SELECT", "SELECT 1,")]
    rows += ["SET spark.sql.variable.substitute=false"]
    rows += held.statements("env")
    rows += ["SET spark.sql.variable.substitute=true"]
    # The last one succeeds, so that the client does.
    rows += [statement(held.options(PASSWORD, f"${{env:{control}}}")), "SELECT 1"]
    return "".join(f"{row};\n" for row in rows)


# Of a user that the brokers do not know.
CONTROL = "control-of-the-canaries"


def check_sql(held: Canaries, door: Door) -> None:
    outputs = door.outputs()
    assert held.found_in(outputs) == set()
    assert places(outputs, f"{MARKER}] connected to") == {"out"}
    # Spark replaced the last reference itself: its value is a literal for the sink, and in the text that Spark shows.
    assert "events" in places(outputs, CONTROL)
    warnings = lines_with(outputs, WARNING)
    assert warnings and all(f"{PASSWORD} holds a secret" in line and CONTROL not in line for line in warnings)


@SECRETS
@pytest.mark.timeout(590)
def test_references_in_spark_sql_show_no_secret(tmp_path: Path, names: Collection[str] | None) -> None:
    with canaries(tmp_path) as held:
        door = Door(tmp_path / "door", {**held.environment, variable("control"): CONTROL})
        path = held.folder / "held" / "script.sql"
        path.write_text(script(held, names, control=variable("control")))
        ignoring = ("--hiveconf", "hive.cli.errors.ignore=true")
        door.run("sql", str(spark_home() / "bin" / "spark-sql"), *ignoring, "-f", str(path))
        check_sql(held, door)


@pytest.mark.slow  # the same statements as of spark-sql
@pytest.mark.timeout(590)
def test_references_over_the_thrift_server_show_no_secret(tmp_path: Path) -> None:
    with canaries(tmp_path) as held:
        door = Door(tmp_path / "door", {**held.environment, variable("control"): CONTROL})
        path = held.folder / "held" / "script.sql"
        path.write_text(script(held, control=variable("control")))
        with door.server(THRIFT_SERVER, "spark.hadoop.hive.server2.thrift.port") as port:
            beeline = [str(spark_home() / "bin" / "beeline"), "-u", f"jdbc:hive2://127.0.0.1:{port}", "-n", "me"]
            door.run("sql", *beeline, "--force=true", "-f", str(path))
            door.fetch("/sqlserver/")
        check_sql(held, door)
