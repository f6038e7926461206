"""What options may name where the operator limits it: all ways to a file, and to variables of the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructType

from kafka_sink.errors import ConfigError
from kafka_sink.kafka.auth.kerberos import _resolve_cache, _resolve_keytab
from kafka_sink.options.host import files
from kafka_sink.options.host.files import add_search_folder, locate_file, read_file, resolve_references
from kafka_sink.options.host.operator_rules import FILES, VARIABLES
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.spark.columns import choose_columns
from kafka_sink.spark.telemetry import begin_telemetry

CONTENT = "the-content-of-the-file"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`allowed` may be named, `other` may not; each has a file, and `allowed` a link to the other one."""
    for name in ("allowed", "other", "allowed-not"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(f"key={CONTENT}\n")
    (tmp_path / "allowed" / "link").symlink_to(tmp_path / "other" / "file")
    monkeypatch.setenv(FILES, f"/nowhere:{tmp_path / 'allowed'}")
    monkeypatch.setattr(files, "_more_folders", [])
    return tmp_path


def refusal(option: str, name: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read_file(option, name)
    assert caught.value.name == "PKS-1017" and CONTENT not in str(caught.value)
    return str(caught.value)


def test_a_file_below_an_allowed_folder_is_read_and_no_other(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert CONTENT.encode() in read_file("ssl.x", str(place / "allowed" / "file"))
    outside = ["other/file", "allowed/link", "allowed/../other/file", "allowed-not/file", "other/no-such-file"]
    for name in outside:
        text = refusal("ssl.x", str(place / name))
        assert "ssl.x names a file that is not allowed on this host" in text
        assert f"{FILES} allows only these folders: /nowhere:{place / 'allowed'}" in text
        assert str(place / name) not in text
    monkeypatch.chdir(place / "other")
    refusal("ssl.x", "file")
    monkeypatch.chdir(place / "allowed")
    assert CONTENT.encode() in read_file("ssl.x", "file")


def test_a_file_that_spark_has_shipped_needs_its_folder_to_be_allowed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    add_search_folder(str(place / "other").__str__)
    refusal("ssl.x", "file")
    add_search_folder(str(place / "allowed").__str__)
    assert locate_file("ssl.x", "file") == place / "allowed" / "file"


@pytest.mark.parametrize("rule", ["none", "", "relative/folder"])
def test_files_can_be_switched_off(rule: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv(FILES, rule)
    for name in (str(place / "allowed" / "file"), "allowed/file"):
        assert "not allowed on this host" in refusal("ssl.x", name)


def test_a_reference_to_a_file_keeps_to_the_same_rule(place: Path) -> None:
    assert resolve_references("sasl.password", f"${{file:{place}/allowed/file:key}}") == CONTENT
    with pytest.raises(ConfigError, match=r"sasl\.password names a file that is not allowed") as caught:
        resolve_references("sasl.password", f"${{file:{place}/other/file:key}}")
    assert caught.value.name == "PKS-1017" and CONTENT not in str(caught.value)


def test_a_file_that_would_be_written_keeps_to_the_same_rule(place: Path) -> None:
    schema = StructType().add("value", StringType())
    for name, is_fine in (("allowed/events", True), ("other/events", False)):
        options = parse_sink_options(
            {"kafka.bootstrap.servers": "h:1", "topic": "t", "lineage.file": str(place / name)}
        )
        assert options.telemetry is not None
        if is_fine:
            begin_telemetry(options.telemetry, choose_columns(schema, "t"), schema)
            continue
        with pytest.raises(ConfigError, match=r"lineage\.file names a file that is not allowed"):
            begin_telemetry(options.telemetry, choose_columns(schema, "t"), schema)


@pytest.mark.parametrize(
    ("rule", "is_fine"),
    [(None, True), ("KAFKA_PASSWORD", True), ("A, KAFKA_*", True), ("none", False), ("", False), ("KAFKA", False)],
)
def test_variables_can_be_limited_by_their_names(
    rule: str | None, is_fine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", CONTENT)
    if rule is not None:
        monkeypatch.setenv(VARIABLES, rule)
    if is_fine:
        assert resolve_references("sasl.password", "${env:KAFKA_PASSWORD}") == CONTENT
        return
    with pytest.raises(ConfigError, match=r"refers to a variable of the environment that is not allowed") as caught:
        resolve_references("sasl.password", "${env:KAFKA_PASSWORD}")
    assert caught.value.name == "PKS-1017" and CONTENT not in str(caught.value)


@pytest.mark.parametrize("kind", ["", "FILE:", "WRFILE:"])
def test_a_keytab_keeps_to_the_rule_whatever_type_is_written_before_it(kind: str, place: Path) -> None:
    assert _resolve_keytab(f"{kind}{place}/allowed/file") == f"FILE:{place}/allowed/file"
    with pytest.raises(ConfigError, match="keyTab names a file that is not allowed"):
        _resolve_keytab(f"{kind}{place}/other/file")


def test_a_ticket_cache_keeps_to_the_rule_whatever_type_it_has(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DIR:{}", "DIR::{}/tkt"):
        allowed = name.format(place / "allowed")
        assert _resolve_cache(allowed) == allowed
        with pytest.raises(ConfigError, match="ticketCache names a file that is not allowed"):
            _resolve_cache(name.format(place / "other"))
    assert _resolve_cache(f"FILE:{place}/allowed/file") == f"FILE:{place}/allowed/file"
    elsewhere = ("KEYRING:persistent:0", "KCM:", "MEMORY:x", "dir:/tmp/cc", "API:")
    for name in elsewhere:
        with pytest.raises(ConfigError, match="not allowed on this host"):
            _resolve_cache(name)
        with pytest.raises(ConfigError, match="not allowed on this host"):
            _resolve_keytab(name)
    monkeypatch.delenv(FILES)
    assert [_resolve_cache(name) for name in elsewhere] == list(elsewhere)


def begin_at(endpoint: str) -> None:
    schema = StructType().add("value", StringType())
    options = parse_sink_options({"kafka.bootstrap.servers": "h:1", "topic": "t", "metrics.otlp.endpoint": endpoint})
    assert options.telemetry is not None
    begin_telemetry(options.telemetry, choose_columns(schema, "t"), schema)


@pytest.mark.parametrize("name", ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"])
def test_headers_of_the_drivers_environment_go_nowhere_in_clear_and_only_where_their_variable_may_be_named(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = ("https://collector:4318", "http://127.0.0.1:4318", "http://localhost:4318")
    for place in (*places, "http://collector:4318"):
        begin_at(place)
    monkeypatch.setenv(name, f"api-key={CONTENT}")
    for place in places:
        begin_at(place)
    with pytest.raises(ConfigError, match=f"{name} .* would cross the network in clear") as caught:
        begin_at("http://collector:4318")
    assert caught.value.name == "PKS-1016" and CONTENT not in str(caught.value)
    monkeypatch.setenv(VARIABLES, "KAFKA_*")
    for place in places:
        with pytest.raises(ConfigError, match=r"metrics\.otlp\.endpoint refers to a variable") as caught:
            begin_at(place)
        assert caught.value.name == "PKS-1017"
    monkeypatch.setenv(VARIABLES, "OTEL_*")
    begin_at("https://collector:4318")
