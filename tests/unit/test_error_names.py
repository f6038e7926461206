"""Names of errors: the pages match the table, the code uses every name, and some test raises it."""

from __future__ import annotations

import ast
import os
import pickle
import re
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from kafka_sink import errors, sink_metrics
from kafka_sink.commit.receipt import BatchKey
from kafka_sink.errors import BrokerError, ConfigError, KafkaSinkError, LocalProtocolError, OutOfMemory, explain_error
from kafka_sink.errors.table import ENTRIES
from kafka_sink.formats.records.columns import RecordColumns, columns_by_topic
from kafka_sink.formats.records.compression import decompress
from kafka_sink.formats.records.routing import PartitionView, Router
from kafka_sink.formats.registry.subject import subject_name
from kafka_sink.formats.schemas.avro import AvroSchema
from kafka_sink.formats.schemas.misfit import make_errors
from kafka_sink.formats.schemas.naming import Problems
from kafka_sink.formats.schemas.spark_types import parse_struct
from kafka_sink.kafka.io.tls import pkcs12_to_pem, tls_context
from kafka_sink.operate.cli.arguments import parse_arguments
from kafka_sink.operate.cli.brokers import producer_options
from kafka_sink.operate.cli.replay import filters_of
from kafka_sink.options.host.files import read_file
from kafka_sink.options.host.functions import load_user_function
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.options.parse_sink import parse_sink_options
from kafka_sink.options.sink_options import EnvelopeOptions
from kafka_sink.producer.serialize import read_headers
from kafka_sink.security.oauthbearer import parse_token_answer
from kafka_sink.security.reference import replace_references
from kafka_sink.spark import datasource
from kafka_sink.spark.batch_name import batch_of_task
from kafka_sink.spark.columns import choose_columns
from kafka_sink.spark.datasource import KafkaSinkDataSource
from kafka_sink.spark.first_line import HIDE_TRACEBACK, explain_to_spark
from kafka_sink.spark.query_checkpoint import check_checkpoint
from kafka_sink.spark.same_version import unpickle
from kafka_sink.spark.task_context import place_in_stream
from kafka_sink.spark.triggers import continuous_error
from tools.error_reference import CHAPTERS, PATH, main

ROOT = Path(__file__).parents[2]
SERVERS = {"kafka.bootstrap.servers": "b:9092"}
VALUE = StructType([StructField("value", StringType())])
ENTRIES_OF = re.compile(r"^([A-Z_]+) = \w+\(\n    \"(PKS-\d+)\"", re.MULTILINE)
CLASSES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, KafkaSinkError)]


def sink(**options: str) -> object:
    return parse_sink_options({**SERVERS, **{name.replace("_", "."): value for name, value in options.items()}})


def rows(**columns: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(["v"] * len(next(iter(columns.values())))), **columns})


def routed(partitioner: object) -> object:
    columns = RecordColumns.from_rows([b"k"], [b"v"])
    router = Router(sticky_bytes=1, random_number=lambda: 0.0, partitioner=partitioner)  # type: ignore[arg-type]
    return router.route("t", columns, PartitionView(2, (0, 1)))


def misfit() -> None:
    raise make_errors([(np.array([3]), "a.b", "is null, and the schema wants a value")], "value", 0)[3]


def columns_misfit() -> None:
    problems = Problems()
    problems.add("there is no column for field a")
    problems.raise_any("Avro")


def refused_trigger() -> None:
    raise continuous_error()


def file_that_is_not_allowed() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYKAFKA_SINK_FILES", "none")
        read_file("ssl.truststore.location", "/etc/ca.pem")


RAISED: dict[str, Callable[[], object]] = {
    "PKS-1001": lambda: sink(tpoic="t"),
    "PKS-1002": lambda: sink(record_errors="ignore"),
    "PKS-1003": lambda: parse_sink_options({"topic": "t"}),
    "PKS-1004": lambda: sink(kafka_enable_idempotence="true", kafka_acks="0", delivery_guarantee="at-least-once"),
    "PKS-1005": lambda: sink(kafka_key_serializer="x"),
    "PKS-1006": lambda: sink(kafka_key_serializer="x", tpoic="t"),
    "PKS-1007": lambda: load_user_function("no_such_module:place", "summary.listener"),
    "PKS-1008": lambda: read_file("ssl.truststore.location", "/no/such/file.pem"),
    "PKS-1009": lambda: replace_references("sasl.password", "${env:NOT_SET}", lambda *_: None),
    "PKS-1010": lambda: pkcs12_to_pem("ssl.truststore.location=s.p12", "s.p12", "truststore", b"", None),
    "PKS-1011": lambda: sink(header_x="${query}"),
    "PKS-1012": lambda: sink(cloudevents="binary"),
    "PKS-1013": lambda: sink(preset="msk-provisioned"),
    "PKS-1014": lambda: sink(topic="t", topic_partitions="3"),
    "PKS-1015": lambda: sink(topic="t", traceparent_task="true"),
    "PKS-1016": lambda: sink(kafka_sasl_password="x"),
    "PKS-1017": file_that_is_not_allowed,
    "PKS-1101": lambda: KafkaSinkDataSource({}).schema(),
    "PKS-1102": lambda: KafkaSinkDataSource({}).writer(VALUE, True),
    "PKS-1103": lambda: KafkaSinkDataSource(SERVERS).streamWriter(VALUE, False),
    "PKS-1104": lambda: KafkaSinkDataSource(SERVERS).writer(VALUE, False),
    "PKS-1105": refused_trigger,
    "PKS-1106": lambda: KafkaSinkDataSource({**SERVERS, "topic": "t"}).streamWriter(VALUE, False),
    "PKS-1107": lambda: batch_of_task(BatchKey("", "7"), "sink", None, None),
    "PKS-1108": lambda: place_in_stream(None),
    "PKS-1109": lambda: sink_metrics("driver:9400"),
    "PKS-1110": lambda: unpickle("0.0.1", "/elsewhere", b""),
    "PKS-1111": lambda: check_checkpoint(None, "", 0, str(Path(__file__).parent), is_exactly_once=True),
    "PKS-1201": lambda: choose_columns(StructType([StructField("Value", StringType())]), "t"),
    "PKS-1202": lambda: choose_columns(VALUE, None),
    "PKS-1203": lambda: choose_columns(StructType([StructField("value", IntegerType())]), "t"),
    "PKS-1204": lambda: choose_columns(VALUE, "t", envelope=EnvelopeOptions(traceparent_column="trace")),
    "PKS-2001": lambda: columns_by_topic([b"v"], topic="t"),  # type: ignore[arg-type]
    "PKS-2002": lambda: columns_by_topic(rows(topic=pa.array(["t", None])), topic=None),
    "PKS-2003": lambda: RecordColumns.from_rows([None], [b"x" * 100]).check_record_sizes(50),
    "PKS-2004": lambda: read_headers("t", [(5, b"v")]),  # type: ignore[list-item]
    "PKS-2005": lambda: RecordColumns.from_arrow(rows(partition=pa.array([0, -1], pa.int32()))),
    "PKS-2006": lambda: RecordColumns.from_arrow(rows(timestamp=pa.array([0, -1], pa.int64()))),
    "PKS-2007": misfit,
    "PKS-2008": lambda: routed(lambda *_: [5]),
    "PKS-3005": lambda: decompress(9, b"", bytes_max=1),
    "PKS-4006": lambda: tls_context(
        parse_producer_options(
            {"bootstrap.servers": "b:1", "security.protocol": "SSL", "ssl.truststore.location": __file__}
        )
    ),
    "PKS-4007": lambda: sink(
        kafka_security_protocol="SASL_SSL", kafka_sasl_mechanism="PLAIN", kafka_sasl_jaas_config="user=me"
    ),
    "PKS-4008": lambda: parse_token_answer(b"{}", "the endpoint", 0),
    "PKS-7001": lambda: AvroSchema.parse("{"),
    "PKS-7002": columns_misfit,
    "PKS-7003": lambda: sink(value_format="protobuf"),
    "PKS-7004": lambda: parse_struct("a INTERVAL"),
    "PKS-7009": lambda: subject_name("TopicNameStrategy", "value", None, None),
    "PKS-8001": lambda: producer_options(parse_arguments(["ledger"])),
    "PKS-8004": lambda: filters_of([("colour", "red")]),
}


@pytest.mark.parametrize("name", RAISED)
def test_what_goes_wrong_has_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "PKS-1010":
        monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    if name == "PKS-1103":
        monkeypatch.delattr("pyspark.sql.datasource.DataSourceArrowWriter")
    if name == "PKS-1104":
        monkeypatch.setattr(datasource, "find_spec", lambda _name: None)
    with pytest.raises(KafkaSinkError) as caught:
        RAISED[name]()
    assert caught.value.name == name, caught.value


# ---- the table -------------------------------------------------------------------------------------------------------


def test_names_are_in_order_and_each_entry_says_everything() -> None:
    assert list(ENTRIES) == sorted(ENTRIES)
    assert len({entry.title for entry in ENTRIES.values()}) == len(ENTRIES) > 70
    for entry in ENTRIES.values():
        assert re.fullmatch(r"PKS-\d{4}", entry.name) and entry.name[:6] in CHAPTERS
        assert len(entry.title) <= 50 and not entry.title.endswith(".")
        assert all(text.endswith(".") for text in (entry.happened, entry.data, entry.cure)), entry


def headings(page: str) -> set[str]:
    """The anchors of a page: of each heading its own, or the former one that it keeps."""
    found = re.findall(r'^#+ (?:<a id="([^"]+)"></a>)?(.*)$', (PATH.parent / page).read_text("utf-8"), re.MULTILINE)
    return {former or re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for former, title in found}


def test_the_page_of_each_entry_is_there() -> None:
    for page, _, anchor in (entry.page.partition("#") for entry in ENTRIES.values() if entry.page):
        assert anchor == "" or anchor in headings(page), (page, anchor)
        assert (PATH.parent / page).is_file()


def texts_of_the_code() -> str:
    """All string literals of the package except those of the error table; parts of a formatted text are separate."""
    found = []
    for path in sorted((ROOT / "kafka_sink").rglob("*.py")):
        if path.parent.name != "table":
            tree = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            found += [node.value for node in tree if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return "\n".join(found)


def test_the_words_by_which_an_error_is_looked_up_are_those_of_the_code() -> None:
    said = texts_of_the_code()
    phrases = [phrase for entry in ENTRIES.values() for phrase in entry.phrases]
    assert len(phrases) > 80
    parts = [part.strip(" ,") for phrase in phrases for part in re.split(r"(?<!=)\.\.\.", phrase)]
    assert [part for part in parts if part not in said] == []


def test_every_name_is_used_by_the_code() -> None:
    constants: dict[str, str] = {}
    used: set[str] = set()
    for path in sorted((ROOT / "kafka_sink").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.parent.name == "table":
            constants.update(dict(ENTRIES_OF.findall(text)))
        else:
            used |= set(re.findall(r"\b[A-Z][A-Z_]+\b", text))
    assert len(constants) == len(ENTRIES)
    assert sorted(set(constants) - used) == []


def test_every_name_is_in_a_test_that_raises_it() -> None:
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    raised = {name for text in texts for name in re.findall(r'["\[ =](PKS-\d+)\b', text)}
    assert sorted(set(ENTRIES) - raised) == []


def test_the_page_has_a_heading_with_the_title_and_a_short_address_for_each_error() -> None:
    page = PATH.read_text(encoding="utf-8")
    for entry in ENTRIES.values():
        assert f'### <a id="{entry.name.lower()}"></a>{entry.name}: {entry.title}\n' in page


def test_the_committed_page_is_up_to_date(tmp_path: Path) -> None:
    assert main([str(tmp_path / "errors.md")]) == 0
    written = (tmp_path / "errors.md").read_text(encoding="utf-8")
    assert PATH.read_text(encoding="utf-8") == written, "run: python -m tools.error_reference"


# ---- errors and their names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class_of_errors_has_an_entry(kind: type[KafkaSinkError]) -> None:
    assert kind.default_entry.name in ENTRIES


def test_a_name_survives_pickling_and_one_of_a_newer_release_has_the_entry_of_its_class() -> None:
    error = BrokerError("no", ENTRIES["PKS-3008"], code=35)
    assert pickle.loads(pickle.dumps(error)).entry is ENTRIES["PKS-3008"]
    error.name = "PKS-9999"
    assert pickle.loads(pickle.dumps(error)).entry is ENTRIES["PKS-3004"]


def test_the_first_line_has_the_name_and_the_sentence_and_the_others_say_what_next() -> None:
    first, data, cure, more = explain_error(ConfigError("a=1 is not valid")).splitlines()
    assert first == "PKS-1002 invalid value of an option: a=1 is not valid"
    assert data.startswith("  Data: Nothing was written") and cure.startswith("  Next: ")
    assert more == "  More: pykafka-sink explain PKS-1002"


def test_spark_gets_no_traceback_of_what_a_user_can_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HIDE_TRACEBACK, raising=False)
    with pytest.raises(ConfigError, match=r"^PKS-1002 ") as caught, explain_to_spark():
        raise ConfigError("a=1 is not valid")
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    # Not set here: this process is no worker, and may start workers.
    assert HIDE_TRACEBACK not in os.environ
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", ModuleSpec("pyspark.daemon", None))
    monkeypatch.setattr(sys, "argv", ["daemon.py"])
    with pytest.raises(LocalProtocolError, match=r"^PKS-5006 ") as bug, explain_to_spark():
        raise LocalProtocolError("a bug")
    assert isinstance(bug.value.__cause__, LocalProtocolError) and bug.value.name == "PKS-5006"
    assert HIDE_TRACEBACK not in os.environ
    with pytest.raises(OutOfMemory, match=r"^PKS-5007 .* no memory left \(of 3 bytes\)"), explain_to_spark():
        raise MemoryError("of 3 bytes")
    with pytest.raises(OutOfMemory, match=r"^PKS-5007 .* cannot start a thread"), explain_to_spark():
        raise RuntimeError("can't start new thread")
    with pytest.raises(RuntimeError, match=r"^another$"), explain_to_spark():
        raise RuntimeError("another")
    with pytest.raises(ConfigError), explain_to_spark():
        raise ConfigError("a=1 is not valid")
    assert os.environ.pop(HIDE_TRACEBACK) == "1"
