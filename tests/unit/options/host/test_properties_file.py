"""Files of options, as every command and job reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.options.host.properties_file import read_settings, reference_hints
from kafka_sink.options.parse_sink import parse_sink_options


def read(folder: Path, content: str | bytes) -> dict[str, str]:
    path = folder / "job.properties"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_settings("--properties", str(path))


def problem(folder: Path, content: str | bytes) -> str:
    with pytest.raises(ConfigError) as refused:
        read(folder, content)
    return str(refused.value).replace(f"{folder}/", "")


def test_names_are_those_of_a_job_whichever_way_the_file_writes_them(tmp_path: Path) -> None:
    content = """\
# of a job
topic=orders
kafka.acks : all
bootstrap.servers=a:1,\\
    b:2
metadata.max.age.ms 5000
header.source=${batch.id}
value.format=json
"""
    found = read(tmp_path, content)
    assert found == {
        "topic": "orders",
        "kafka.acks": "all",
        "kafka.bootstrap.servers": "a:1,b:2",
        "kafka.metadata.max.age.ms": "5000",
        "header.source": "${batch.id}",
        "value.format": "json",
    }
    assert parse_sink_options(found).producer.bootstrap_servers == (("a", 1), ("b", 2))


def test_a_reference_in_the_name_of_an_export_is_filled_in_and_another_template_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAY", "monday")
    assert read(tmp_path, "sink.id=s\nbatch.id=export-${env:DAY}")["batch.id"] == "export-monday"
    text = problem(tmp_path, "sink.id=s\nbatch.id=export-{{ ds }}")
    assert text.startswith("job.properties, line 2: batch.id='export-{{ ds }}' is taken as it is written")


def test_it_is_utf_8_and_windows_may_mark_it(tmp_path: Path) -> None:
    assert read(tmp_path, "\ufeffclient.id=größe\r\n") == {"kafka.client.id": "größe"}
    text = problem(tmp_path, "acks=all\r\nsasl.password=hüsh\n".encode("latin-1"))
    assert (
        text.startswith("--properties job.properties cannot be read: line 2 is not UTF-8") and "sh" not in text[60:80]
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("acks=all\n\nlinger.ms=\\u00g1", "job.properties, line 3: the value of linger.ms has a \\u"),
        ("acsk=hush", "job.properties, line 1: 'acsk' is not an option of this sink: did you mean kafka.acks?"),
        ("\nkafka.acsk=hush", "job.properties, line 2: 'acsk' is not a producer option: did you mean acks?"),
        ("topik = hush", "job.properties, line 1: 'topik' is not an option of this sink: did you mean topic?"),
        ("group.id=hush", "job.properties, line 1: group.id is an option of consumers: leave it out"),
        ("ssl.provider=hush", "job.properties, line 1: ssl.provider is not supported"),
        ("# a\nacks=7", "job.properties, line 2: acks='7' is not valid: expected all, -1, 0 or 1"),
        ("record.errors=skip", "job.properties, line 1: record.errors='skip' is not valid"),
        ("value.format=xml", "job.properties, line 1: value.format='xml' is not valid"),
        ("header.=hush", "job.properties, line 1: header.: a header needs a name"),
        ("sasl.password=\n", "job.properties, line 1: sasl.password=[hidden] is not valid"),
        ("sasl.password=begin\n  hush", "job.properties, line 2: NAME=VALUE is needed"),
        ("acks=all\nkafka.acks=1", "job.properties, line 2: acks and kafka.acks mean the same and have different"),
        ("client.id=${env:NOT_THERE}", "job.properties, line 1: client.id refers to ${env:NOT_THERE}, which is not"),
        ("topic=${file:gone:key}", "job.properties, line 1: topic=gone: there is no such file"),
        ("acks=7\nlinger.ms=-3", "- job.properties, line 2: linger.ms='-3' is not valid"),
    ],
)
def test_a_mistake_is_told_with_file_line_and_name_and_without_a_secret(
    content: str, told: str, tmp_path: Path
) -> None:
    text = problem(tmp_path, content)
    assert told in text and "hush" not in text and "begin" not in text


def test_the_last_one_of_equal_names_wins_and_two_spellings_may_agree(tmp_path: Path) -> None:
    assert read(tmp_path, "acks=1\nkafka.linger.ms=3\nacks=all\nlinger.ms=3") == {
        "kafka.acks": "all", "kafka.linger.ms": "3"
    }  # fmt: skip


def test_references_are_resolved_except_in_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKERS", "a:1")
    monkeypatch.setenv("PASSWORD", "hush")
    (tmp_path / "more").write_text("topic = or\\u0064ers\n")
    content = f"bootstrap.servers=${{env:BROKERS}}\ntopic=${{file:{tmp_path}/more:topic}}\n"
    secrets = "kafka.sasl.password=${env:PASSWORD}\nschema.registry.basic.auth.user.info=u:${env:PASSWORD}\n"
    found = read(tmp_path, content + secrets)
    assert found == {
        "kafka.bootstrap.servers": "a:1",
        "topic": "orders",
        "kafka.sasl.password": "${env:PASSWORD}",
        "schema.registry.basic.auth.user.info": "u:${env:PASSWORD}",
    }


def test_what_looks_like_a_reference_gets_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PW", "hush")

    def hint(value: str) -> str:
        return "".join(reference_hints({"kafka.sasl.password": value}))

    as_written = "kafka.sasl.password is taken as it is written: "
    for wrong in ("${KAFKA_PW}", " ${env.KAFKA_PW} ", "${ENV:KAFKA_PW}"):
        assert hint(wrong) == f"{as_written}did you mean ${{env:KAFKA_PW}}?"
    general = f"{as_written}a variable of the environment is ${{env:NAME}}, a key of a file ${{file:PATH:KEY}}"
    assert hint("${Hunter2}") == hint("${vault:secret:x}") == general
    for fine in ("${env:KAFKA_PW}", "a${KAFKA_PW}", "$ConnectionString", "${}", "{}"):
        assert hint(fine) == ""
    assert not list(reference_hints({"header.x": "${query.id}"}))
