"""The list of probes, and running them: independent ones in parallel, all within the timeout.

    options -> environment -> bootstrap, registry in parallel -> login, once -> groups of probes in parallel

Probes of a group share one client and so one login; each group has a thread. A group that does not finish in time is
abandoned, and its findings until then count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kafka_sink.commit.admin.client import Client
from kafka_sink.errors import ConfigError, KafkaSinkError
from kafka_sink.kafka.io.side_by_side import call_side_by_side
from kafka_sink.operate.checks import (
    brokers,
    cluster,
    environment,
    ledger,
    permissions,
    probe_write,
    quotas,
    registry,
    topics,
    transactions,
    workers,
)
from kafka_sink.operate.checks.finding import FAIL, OK, CheckReport, ProbeResult, fail, ok, warn
from kafka_sink.operate.checks.job import CheckedJob
from kafka_sink.operate.checks.spark_settings import HIDES_OPTIONS, REDACTION, active_session, hides_options
from kafka_sink.options.parse_sink import make_texts, parse_sink_options
from kafka_sink.options.presets import PRESETS
from kafka_sink.options.secret_options import literal_secrets
from kafka_sink.spark.shown_secrets import is_of_connect, shown_secrets_text

TIMEOUT_S = 2.0
ClusterProbe = Callable[[CheckedJob, Client], Iterable[ProbeResult]]
# Groups by the name used in the report if one does not finish.
GROUPS: Mapping[str, Sequence[ClusterProbe]] = {
    "brokers": (brokers.listeners, brokers.clock),
    "topic": (topics.topics,),
    "transaction log": (cluster.transaction_log, cluster.other_topics, cluster.request_size, quotas.quotas),
    "permissions": (permissions.permissions,),
    "transactions": (transactions.availability, permissions.coordinator, transactions.ids),
    "ledger": (ledger.ledger,),
}
_ANY_ADVICE = "docs/errors.md"
# Order of the report.
_ORDER = (
    *("options", "preset", "columns", "python", "package", "pyarrow", "pyspark", "sockets", "arrow", "pyspark.zip"),
    *("bootstrap", "login", "brokers", "versions", "clock", "topic", "replicas", "sizes", "new topics", "permissions"),
    *("quotas", "transactions", "time limits", "transaction log", "coordinator", "ids", "ledger", "decisions"),
    *("consumer groups", "registry", "schema", "workers", "write"),
)
# Starting Python workers takes seconds, and executors that are not there yet take minutes.
WORKERS_S = 300.0
# Importing PySpark and pandas is no matter of the brokers, and takes seconds on a busy machine.
ENVIRONMENT_S = 60.0


def check(
    options: Mapping[str, object],
    schema: Any | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    probe_write: bool = False,
    probe_workers: bool = False,
    batch_minutes: float | None = None,
) -> CheckReport:
    """Checks whether a job with these options will work here. `options` of the Spark job, `schema` of its DataFrame.

    Nothing is written, unless `probe_write`: then one record in a transaction that is aborted. `probe_workers` runs a
    small Spark job, which tells the release of this package on the executors. `batch_minutes`: how long the longest
    batch takes (a micro-batch, or a whole batch write), for the time limits of transactions.
    """
    session = active_session()  # of this thread; the probes have threads of their own
    if session is not None:
        from kafka_sink.spark.files import look_in_spark_files

        look_in_spark_files()  # options may name files that Spark has distributed
    try:
        settings = make_texts(options)
        parsed = parse_sink_options(settings)
    except ConfigError as error:
        # The text may list several problems.
        title, *problems = str(error).split("\n- ")
        findings = [fail("options", " ".join(each.splitlines()), "docs/options.md") for each in problems or [title]]
        return _make_report([*findings, *environment.environment(session)])
    batch_ms = None if batch_minutes is None else int(batch_minutes * 60_000)
    job = CheckedJob(settings, parsed, schema, timeout_s, probe_write, batch_ms)
    asked = run_side_by_side({"workers": lambda: workers.workers(session)}, WORKERS_S) if probe_workers else ()
    return _make_report([*_check_options(job, session), *_run_probes(job, session), *asked])


def _check_options(job: CheckedJob, session: Any | None) -> Iterator[ProbeResult]:
    shown = literal_secrets(job.settings) if is_of_connect(session) and not hides_options(session) else []
    if shown:
        hide = f'spark.conf.set("{REDACTION}", r"{HIDES_OPTIONS}")'
        advice = f"`{hide}` in this session, or the same in spark-defaults.conf of the server; or references"
        yield warn("options", shown_secrets_text(shown), f"{advice} (docs/security.md)")
    for notice in job.options.notices:
        yield warn("options", notice, "docs/options.md")
    if not job.options.notices and not shown:
        yield ok("options", f"{len(job.settings)} options, all known")
    if job.options.preset is not None:
        preset = PRESETS[job.options.preset]
        advice = f"pykafka-sink check --preset {job.options.preset} --explain"
        yield ok("preset", f"{preset.title}: sets {len(preset.settings)} options", advice)
    if job.schema is not None:
        yield from _columns(job, job.schema)


def _columns(job: CheckedJob, schema: Any) -> Iterator[ProbeResult]:
    from kafka_sink.spark.columns import choose_columns

    try:
        options = job.options
        columns = choose_columns(schema, options.topic, options.formats, options.envelope, options.changes)
    except ConfigError as error:
        yield fail("columns", str(error), "docs/quickstart.md")
        return
    ignored = f"; not written: {', '.join(columns.ignored)}" if columns.ignored else ""
    written = [name for name, _ in columns.record] + list(columns.names)
    yield ok("columns", f"written: {', '.join(written)}{ignored}")


def _run_probes(job: CheckedJob, session: Any | None) -> list[ProbeResult]:
    of_machine = run_side_by_side({"python": lambda: environment.environment(session)}, ENVIRONMENT_S)
    return [*of_machine, *_probe_others(job)]


def _probe_others(job: CheckedJob) -> list[ProbeResult]:
    deadline = time.monotonic() + job.timeout_s
    found = run_side_by_side(
        {
            "bootstrap": lambda: _probe_bootstrap_and_login(job),
            "registry": lambda: registry.registry(job),
        },
        job.timeout_s,
    )
    if any(each.verdict == FAIL and each.name in ("bootstrap", "login") for each in found):
        return found
    left_s = max(job.timeout_s / 4, deadline - time.monotonic())
    hurried = replace(job, timeout_s=left_s)
    groups = {name: _with_client(hurried, probes) for name, probes in GROUPS.items()}
    found += run_side_by_side(groups, left_s)
    if job.writes:
        # Last: other probes would see its transaction.
        patient = replace(job, timeout_s=max(job.timeout_s, TIMEOUT_S))
        work = {"write": _with_client(patient, (probe_write.probe_write,))}
        found += run_side_by_side(work, patient.timeout_s * 2)
    return found


def _probe_bootstrap_and_login(job: CheckedJob) -> Iterator[ProbeResult]:
    found = list(brokers.bootstrap(job))
    yield from found
    if any(each.verdict == OK for each in found):
        yield from brokers.login(job)


def _with_client(job: CheckedJob, probes: Sequence[ClusterProbe]) -> Callable[[], Iterator[ProbeResult]]:
    def run() -> Iterator[ProbeResult]:
        with job.client() as client:
            client.reach()
            for probe in probes:
                yield from probe(job, client)

    return run


def run_side_by_side(work: Mapping[str, Callable[[], Iterable[ProbeResult]]], limit_s: float) -> list[ProbeResult]:
    """What each has found in time."""
    boxes: dict[str, list[ProbeResult]] = {name: [] for name in work}

    def collect(name: str) -> bool:
        for each in work[name]():
            boxes[name].append(each)
        return True

    ends = call_side_by_side([partial(collect, name) for name in work], limit_s)
    found: list[ProbeResult] = []
    for name, end in zip(work, ends, strict=True):
        found += list(boxes[name])
        if isinstance(end, KafkaSinkError):
            found.append(fail(name, str(end), _ANY_ADVICE))
        elif isinstance(end, Exception):
            # Without a line the report would look as if all had been checked. Only the texts of the operating system
            # are known to have no secrets in them.
            text = f"this could not be checked: {type(end).__name__}"
            text += f": {end}" if isinstance(end, OSError) else ""
            found.append(fail(name, text, _ANY_ADVICE))
        elif end is None:
            found.append(fail(name, f"no answer within {limit_s:.1f} s", "repeat it with a longer --timeout"))
    return found


def _make_report(findings: Iterable[ProbeResult]) -> CheckReport:
    return CheckReport(sorted(dict.fromkeys(findings), key=lambda each: _ORDER.index(each.name)))
