"""Files and references in options: where they are searched, and the errors if they do not exist."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.kafka.auth.secured import authenticator
from kafka_sink.options import ProducerOptions
from kafka_sink.options.host import files
from kafka_sink.options.host.files import add_search_folder, locate_file, read_file, resolve_references
from kafka_sink.options.parse import parse_producer_options


@pytest.fixture
def more_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_more_folders", [])


def first_message(**options: str) -> bytes:
    chosen: ProducerOptions = parse_producer_options(
        {"bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
        | {name.replace("_", "."): value for name, value in options.items()}
    )
    make = authenticator(chosen)
    assert make is not None
    return make("b").first()


@pytest.mark.usefixtures("more_folders")
def test_a_bare_name_is_looked_for_here_and_then_where_spark_keeps_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, sparks = tmp_path / "here", tmp_path / "sparks"
    here.mkdir()
    sparks.mkdir()
    monkeypatch.chdir(here)
    (sparks / "ca.pem").write_text("spark")
    with pytest.raises(ConfigError, match=r"ssl.x=ca.pem: there is no such file in .*here\. The file has to be"):
        locate_file("ssl.x", "ca.pem")
    add_search_folder(lambda: None)
    for _ in range(2):
        add_search_folder(sparks.__str__)
    assert read_file("ssl.x", "ca.pem") == b"spark"
    (here / "ca.pem").write_text("here")
    assert read_file("ssl.x", "ca.pem") == b"here"
    with pytest.raises(ConfigError, match="no such file"):
        locate_file("ssl.x", "/nowhere/ca.pem")


@pytest.mark.usefixtures("more_folders")
def test_other_folders_are_asked_for_only_if_the_file_is_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = []
    add_search_folder(lambda: asked.append("spark"))
    (tmp_path / "ca.pem").write_text("here")
    assert read_file("ssl.x", "ca.pem") == b"here"
    assert asked == []
    with pytest.raises(ConfigError, match="no such file"):
        read_file("ssl.x", "key.pem")
    assert asked == ["spark"]


@pytest.mark.usefixtures("more_folders")
def test_a_bare_name_is_looked_for_although_the_working_directory_was_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="no such file in the working directory, which was deleted"):
        locate_file("ssl.x", "ca.pem")
    (tmp_path / "ca.pem").write_text("spark")
    add_search_folder(tmp_path.__str__)
    assert read_file("ssl.x", "ca.pem") == b"spark"


def test_a_file_that_cannot_be_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_file("ssl.x", str(tmp_path))
    monkeypatch.setattr(files, "FILE_BYTES_MAX", 3)
    (tmp_path / "large").write_text("1234")
    with pytest.raises(ConfigError, match="more than 3 bytes"):
        read_file("ssl.x", str(tmp_path / "large"))


def test_references_are_looked_up_in_the_environment_and_in_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kafka.properties"
    path.write_text("password = s3cr\\u0065t\nother : x\n")
    monkeypatch.setenv("KAFKA_USER", "alice")
    assert resolve_references("o", f"${{env:KAFKA_USER}}/${{file:{path}:password}}") == "alice/s3cret"
    for wrong in ("${env:NOBODY_SET_THIS}", f"${{file:{path}:missing}}"):
        with pytest.raises(ConfigError, match="which is not there"):
            resolve_references("o", wrong)
    with pytest.raises(ConfigError, match="with a key"):
        resolve_references("o", "${file:password}")


def test_a_file_of_secrets_is_in_utf_8_as_for_kafkas_own_provider(tmp_path: Path) -> None:
    path = tmp_path / "kafka.properties"
    path.write_text("plain=pässwörd😀\nescaped=p\\u00e4ss\\ud83d\\ude00\n", "utf-8")
    reference = f"${{file:{path}:plain}}"
    assert first_message(sasl_username="u", sasl_password=reference) == "\0u\0pässwörd😀".encode()
    assert resolve_references("o", f"${{file:{path}:escaped}}") == "päss😀"
    path.write_text("plain=pässwörd\n", "latin-1")
    with pytest.raises(ConfigError, match="is no text in UTF-8") as caught:
        first_message(sasl_username="u", sasl_password=reference)
    assert caught.value.name == "PKS-1008" and "ö" not in str(caught.value)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_secret_that_is_no_text_is_refused_by_the_name_of_its_option(
    mechanism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = {"sasl_mechanism": mechanism, "sasl_username": "u"}
    (tmp_path / "half").write_text("word=secret\\ud83d\n")
    monkeypatch.setitem(os.environb, b"WORD", "sécret".encode("latin-1"))
    for password in ("${env:WORD}", f"${{file:{tmp_path}/half:word}}"):
        with pytest.raises(ConfigError, match=r"sasl\.password refers to a value that is not UTF-8") as caught:
            first_message(**login, sasl_password=password)
        assert "cret" not in repr(caught.value)
    with pytest.raises(ConfigError, match=r"sasl\.password=\[hidden\] is not valid"):
        first_message(**login, sasl_password=os.environ["WORD"])


def test_a_secret_with_quotes_is_no_part_of_the_syntax_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", 'a"; b\\')
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="${env:SECRET}";'
    assert first_message(sasl_jaas_config=jaas) == b'\0u\0a"; b\\'
    monkeypatch.setenv("JAAS", jaas.replace("${env:SECRET}", "p"))
    assert first_message(sasl_jaas_config="${env:JAAS}") == b"\0u\0p"
    monkeypatch.setenv("JAAS", jaas.replace("PlainLoginModule", "ScramLoginModule"))
    with pytest.raises(ConfigError, match=r"names ScramLoginModule, but sasl.mechanism=PLAIN"):
        first_message(sasl_jaas_config="${env:JAAS}")


def test_a_password_that_changes_is_used_by_the_next_session(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = {"sasl_username": "u", "sasl_password": "${env:SECRET}"}
    monkeypatch.setenv("SECRET", "old")
    assert first_message(**chosen) == b"\0u\0old"
    monkeypatch.setenv("SECRET", "new")
    assert first_message(**chosen) == b"\0u\0new"
    monkeypatch.setenv("SECRET", "")
    with pytest.raises(ConfigError, match=r"password for sasl.mechanism=PLAIN is missing or empty"):
        first_message(**chosen)
