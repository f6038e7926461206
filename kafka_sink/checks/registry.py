"""The schema registry: does it answer, accept the login, and do the columns fit its schema? Nothing is registered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kafka_sink.checks.finding import FAIL, OK, WARN, ProbeResult
from kafka_sink.checks.job import CheckedJob
from kafka_sink.errors import KafkaSinkError
from kafka_sink.options.format_names import ENCODED
from kafka_sink.options.format_options import SideFormat

# Texts of registry/resolution.py.
_TO_REGISTER, _MISFIT = "set auto.register.schemas=true", "is not compatible with"
_REACH_ADVICE = "compare schema.registry.url, its TLS options and credentials with the registry"


def registry(job: CheckedJob) -> Iterator[ProbeResult]:
    formats = job.options.formats
    if formats is None or formats.registry is None:
        return
    from kafka_sink.admin.schema_registry import RegistryClient
    from kafka_sink.registry.request import RegistryRequest

    urls = ", ".join(formats.registry.urls)
    try:
        answer = RegistryClient(formats.registry).ask(RegistryRequest("/subjects"), retries_max=0)
    except KafkaSinkError as error:
        yield ProbeResult("registry", FAIL, f"{urls}: {error}", _REACH_ADVICE)
        return
    if answer.status in (401, 403):
        text = f"{urls} refuses this login (HTTP {answer.status})"
        yield ProbeResult("registry", FAIL, text, "set basic.auth.user.info or the bearer options of docs/schemas.md")
    elif answer.status >= 300:
        yield ProbeResult(
            "registry", WARN, f"{urls} answers HTTP {answer.status} when asked for its subjects", _REACH_ADVICE
        )
    else:
        yield ProbeResult("registry", OK, f"{urls} answers")
        for side, chosen in (("value", formats.value), ("key", formats.key)):
            if chosen is not None and chosen.format in ENCODED:
                yield from _schema(job, side, chosen)


def _schema(job: CheckedJob, side: str, chosen: SideFormat) -> Iterator[ProbeResult]:
    if job.schema is None:
        return
    from kafka_sink.admin.side_planning import plan_side
    from kafka_sink.schemas.spark_types import arrow_type_from_json
    from kafka_sink.spark.columns import choose_columns

    assert job.options.formats is not None
    columns = choose_columns(job.schema, job.options.topic, job.options.formats)
    if side == "value" and columns.record:
        fields = [job.schema.fields[index] for _, index in columns.record]
        kind = arrow_type_from_json(type(job.schema)(fields).jsonValue(), "")
    else:
        index = columns.indices[columns.names.index(side)]
        kind = arrow_type_from_json(job.schema.fields[index].dataType.jsonValue(), side)
    looked_up = replace(chosen, schema=replace(chosen.schema, registers=False))
    try:
        plan_side(side, looked_up, job.options.formats.registry, kind, job.options.topic)
    except KafkaSinkError as error:
        if chosen.schema.registers and _TO_REGISTER in str(error) and _MISFIT not in str(error):
            yield ProbeResult("schema", OK, f"{side}: not registered yet; the job does it")
        else:
            yield ProbeResult("schema", FAIL, str(error), f"pykafka-sink schema check --side {side} --help")
        return
    yield ProbeResult("schema", OK, f"{side}: the columns fit the schema")
