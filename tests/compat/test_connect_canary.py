"""Spark Connect: what a server and a client show of secrets in options, with each way to write them.

The server has a process of its own, and so has the client: it logs, keeps an event log and serves its UI.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.spark.canaries import (
    ACCEPTED,
    MARKER,
    PASSWORD,
    Canaries,
    advised_expression,
    canaries,
    lines_with,
    places,
)
from tests.spark.doors import CONNECT_SERVER, Door

pytest.importorskip("grpc")

# As docs/guides/connect.md advises it for servers; a client can set it for its own session.
ADVISED = {"spark.sql.redaction.string.regex": r"(?s)options \{[^}]*\}"}
SUBSTITUTE_OFF = {"spark.sql.variable.substitute": "false"}
WARNING = "in clear, which Spark Connect"
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "connect.md"


@pytest.mark.timeout(1200)
def test_no_secret_is_shown_over_connect(tmp_path: Path) -> None:
    """References; then secrets themselves, with the setting for requests, and without it. The other setting, for plans,
    is made when the server starts; references do not need it (test_canary_doors.py)."""
    ((name, value),) = ADVISED.items()
    assert f"{name}={value}" in PAGE.read_text()
    with canaries(tmp_path) as held:
        door = Door(tmp_path / "door", held.environment, spark__redaction__regex=advised_expression())
        with door.server(CONNECT_SERVER, "spark.connect.grpc.binding.port") as port:
            remote = f"sc://127.0.0.1:{port}"
            with_file = held.order("file")
            with_file["writes"] = held.writes("file") + held.writes("env", ACCEPTED)
            door.run_job("references", with_file, remote=remote)
            assert held.found_in(door.outputs()) == set()
            assert lines_with(door.outputs(), WARNING) == []
            # In options of DataFrames only: SQL has tests of its own.
            door.run_job("secrets", held.order("literal", settings=ADVISED, explained=[]), remote=remote)
            outputs = door.outputs()
            assert held.found_in(outputs) == set()
            assert places(outputs, MARKER) == {"events", "pages", "out"}
            assert any(f"{PASSWORD} holds a secret in clear" in line for line in lines_with(outputs, "Spark Connect"))
            # The search works: without the setting Spark shows them.
            bare = {**held.order("literal"), "writes": held.writes("literal", ACCEPTED), "shown": []}
            door.run_job("bare", {**bare, "explained": []}, remote=remote)
            found = {place.split("/")[0] for _, place in held.found_in(door.outputs())}
            assert found == {"events", "pages"}


@pytest.mark.timeout(590)
def test_no_secret_of_the_second_door_is_shown_over_connect_without_any_setting(tmp_path: Path) -> None:
    """The client plans and commits; Spark logs no more than the first bytes of a function that it gets."""
    with canaries(tmp_path) as held:
        door = Door(tmp_path / "door", held.environment)
        with door.server(CONNECT_SERVER, "spark.connect.grpc.binding.port") as port:
            door.run_job("second", held.second_door(), remote=f"sc://127.0.0.1:{port}")
            outputs = door.outputs()
    assert held.found_in(outputs) == set()
    assert "out" in places(outputs, MARKER)
    assert lines_with(outputs, WARNING) == []


def sql(held: Canaries, how: str, **settings: str) -> dict[str, Any]:
    """Statements only."""
    more = {"writes": [], "shown": [], "explained": [], "settings": settings}
    return held.order(how, statements=held.statements(how), **more)


@pytest.mark.timeout(590)
def test_sql_over_connect_shows_secrets_themselves_and_no_references(tmp_path: Path) -> None:
    """With both settings: the one for requests does not concern SQL."""
    with canaries(tmp_path) as held:
        door = Door(tmp_path / "door", held.environment, spark__redaction__regex=advised_expression())
        with door.server(CONNECT_SERVER, "spark.connect.grpc.binding.port") as port:
            remote = f"sc://127.0.0.1:{port}"
            door.run_job("files", sql(held, "file"), remote=remote)
            door.run_job("left", sql(held, "env", **SUBSTITUTE_OFF), remote=remote)
            assert lines_with(door.outputs(), WARNING) == []
            # Spark replaces these, in the plan and not in the text.
            door.run_job("replaced", sql(held, "env"), remote=remote)
            assert held.found_in(door.outputs()) == set()
            assert any(f"{PASSWORD} holds a secret in clear" in line for line in lines_with(door.outputs(), WARNING))
            door.run_job("secrets", sql(held, "literal", **ADVISED), remote=remote)
            found = held.found_in(door.outputs())
            assert {name for name, _ in found} == set(held.secrets)
            assert {place.split("/")[0] for _, place in found} == {"events", "pages"}


@pytest.mark.timeout(590)
def test_references_in_sql_over_connect_are_hidden_without_the_settings(tmp_path: Path) -> None:
    """Plans of SQL show options in `spark.sql.ui.explainMode=extended` only (test_canary_doors.py)."""
    with canaries(tmp_path) as held:
        door = Door(tmp_path / "door", held.environment)
        with door.server(CONNECT_SERVER, "spark.connect.grpc.binding.port") as port:
            remote = f"sc://127.0.0.1:{port}"
            door.run_job("files", sql(held, "file"), remote=remote)
            door.run_job("left", sql(held, "env", **SUBSTITUTE_OFF), remote=remote)
            door.run_job("replaced", sql(held, "env"), remote=remote)
            assert held.found_in(door.outputs()) == set()
