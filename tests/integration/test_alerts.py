"""The alert rules over time, as Prometheus itself evaluates them (promtool): what they must not miss, and what is no
reason to wake somebody."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

RULES = Path(__file__).parents[2] / "conf" / "prometheus"
SCRAPE_S = 15
OF_JOBS, OF_STATUS = RULES / "alerts.yml", RULES / "status-alerts.yml"
STREAM = 'sink="s",query="q",query_id="1"'
FAILED = f'{{{STREAM},error="CommitAborted"}}'
LEFT_OUT = f'{{{STREAM},reason="too large"}}'


def at(minute: int) -> int:
    """In scrapes."""
    return minute * 60 // SCRAPE_S


def count_firing(
    tmp_path: Path, rules: Path, series: Mapping[str, str], expected: Sequence[tuple[str, str, int]]
) -> None:
    """`expected`: time, name of an alert, how many fire."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (apt install prometheus)")
    asked = [
        {"expr": f'count(ALERTS{{alertname="{name}", alertstate="firing"}}) or vector(0)', "eval_time": time,
         "exp_samples": [{"labels": "{}", "value": count}]}
        for time, name, count in expected
    ]  # fmt: skip
    test = {
        "interval": f"{SCRAPE_S}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": asked,
    }
    cases = tmp_path / "cases.yml"
    whole = {"rule_files": [str(rules)], "evaluation_interval": f"{SCRAPE_S}s", "tests": [test]}
    cases.write_text(yaml.safe_dump(whole))
    done = subprocess.run([promtool, "test", "rules", str(cases)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_scrape_that_failed_long_after_an_error_is_no_error(tmp_path: Path) -> None:
    """Half an hour after the only commit that failed, and the only row that was left out."""
    values = f"_x{at(1)} {{}}+0x{at(29) - 1} stale {{}}+0x{at(30)}"
    series = {
        f"pykafka_sink_commit_errors_total{FAILED}": values.replace("{}", "1"),
        f"pykafka_sink_last_commit_error_timestamp_seconds{FAILED}": values.replace("{}", "60"),
        f"pykafka_sink_dead_letters_total{LEFT_OUT}": values.replace("{}", "1"),
        f"pykafka_sink_last_left_out_timestamp_seconds{LEFT_OUT}": values.replace("{}", "60"),
    }
    names = ("KafkaSinkCommitsFail", "KafkaSinkRowsLeftOut")
    times = (("2m", 1), ("15m45s", 1), ("16m", 0), ("30m15s", 0), ("45m", 0), ("50m", 0))
    count_firing(tmp_path, OF_JOBS, series, [(time, name, count) for time, count in times for name in names])


def test_the_same_error_after_each_restart_of_an_application_is_told_each_time(tmp_path: Path) -> None:
    """Its counter begins again, and is at 1 each time that somebody looks."""
    series = {
        f"pykafka_sink_commit_errors_total{FAILED}": f"1+0x{at(20)} _x4 1+0x{at(20)}",
        f"pykafka_sink_last_commit_error_timestamp_seconds{FAILED}": f"0+0x{at(20)} _x4 1290+0x{at(20)}",
    }
    expected = [("10m", "KafkaSinkCommitsFail", 1), ("19m", "KafkaSinkCommitsFail", 0),
                ("23m", "KafkaSinkCommitsFail", 1), ("40m", "KafkaSinkCommitsFail", 0)]  # fmt: skip
    count_firing(tmp_path, OF_JOBS, series, expected)


def test_a_nightly_job_that_leaves_out_as_many_rows_as_the_night_before_is_told_each_night(tmp_path: Path) -> None:
    """A Pushgateway has the figures of the last run all day."""
    night = at(60)
    series = {
        f"pykafka_sink_dead_letters_total{LEFT_OUT}": f"3+0x{3 * night}",
        f"pykafka_sink_last_left_out_timestamp_seconds{LEFT_OUT}": f"0+0x{night} 3600+0x{night} 7200+0x{night}",
    }
    times = (("50m", 0), ("65m", 1), ("110m", 0), ("125m", 1))
    expected = [(time, "KafkaSinkRowsLeftOut", count) for time, count in times]
    count_firing(tmp_path, OF_JOBS, series, expected)


@pytest.mark.parametrize("ahead_min", [-1440, -20, 20, 1440])
def test_what_happens_now_is_told_now_whatever_the_clock_of_the_driver_says(tmp_path: Path, ahead_min: int) -> None:
    """A commit fails and a row is left out after 30 minutes."""
    happened = f"_x{at(30)} {(30 + ahead_min) * 60}+0x{at(40)}"
    series = {
        f"pykafka_sink_last_commit_error_timestamp_seconds{FAILED}": happened,
        f"pykafka_sink_last_left_out_timestamp_seconds{LEFT_OUT}": happened,
    }
    times = (("29m", 0), ("31m", 1), ("44m", 1), ("46m", 0), ("65m", 0))
    names = ("KafkaSinkCommitsFail", "KafkaSinkRowsLeftOut")
    count_firing(tmp_path, OF_JOBS, series, [(time, name, count) for time, count in times for name in names])


@pytest.mark.parametrize("ahead_min", [-1440, -20, 0, 20, 1440])
def test_a_stream_that_stops_is_told_and_one_that_runs_is_not_whatever_the_clock_of_its_driver_says(
    tmp_path: Path, ahead_min: int
) -> None:
    """A batch with each scrape, for 30 minutes; then none."""
    batches = f"{ahead_min * 60}+{SCRAPE_S}x{at(30)} {(30 + ahead_min) * 60}+0x{at(40)}"
    series = {f"pykafka_sink_last_batch_timestamp_seconds{{{STREAM}}}": batches}
    times = (("20m", 0), ("30m", 0), ("45m", 0), ("51m", 1), ("60m", 1))
    count_firing(tmp_path, OF_JOBS, series, [(time, "KafkaSinkNoBatch", count) for time, count in times])


def test_a_watcher_that_sees_is_not_blind_because_its_clock_is_behind_and_one_that_looks_no_more_is(
    tmp_path: Path,
) -> None:
    """Its newest look is 3 s old, for 20 minutes; then it stops."""
    series = {
        "pykafka_sink_status_up": f"1+0x{at(40)}",
        "pykafka_sink_status_interval_seconds": f"{SCRAPE_S}+0x{at(40)}",
        "pykafka_sink_status_last_look_timestamp_seconds": f"-300+{SCRAPE_S}x{at(20)} 900+0x{at(20)}",
        "pykafka_sink_status_last_look_age_seconds": f"3+0x{at(20)} 3+{SCRAPE_S}x{at(20)}",
    }
    expected = [(time, "KafkaSinkStatusBlind", count) for time, count in (("10m", 0), ("20m", 0), ("25m", 1))]
    count_firing(tmp_path, OF_STATUS, series, expected)


ENVIRONMENTS = ('env="production"', 'job="staging"')


def test_a_stream_that_delivers_does_not_hide_one_of_the_same_name_elsewhere_that_is_dead(tmp_path: Path) -> None:
    """Each has labels that only its scrape gives."""
    delivered = "pykafka_sink_last_batch_timestamp_seconds"
    dead, alive = f"0+0x{at(40)}", f"0+{SCRAPE_S}x{at(40)}"
    for first, second in ((dead, alive), (alive, dead)):
        series = {
            f"{delivered}{{{STREAM},{where}}}": values
            for where, values in zip(ENVIRONMENTS, (first, second), strict=True)
        }
        count_firing(tmp_path, OF_JOBS, series, [("14m", "KafkaSinkNoBatch", 0), ("25m", "KafkaSinkNoBatch", 1)])


def test_each_environment_of_a_stream_has_its_own_retries_and_errors(tmp_path: Path) -> None:
    """Few of both together, and many of the one."""
    one, many = (f"{{{STREAM},{where}" for where in ENVIRONMENTS)
    failed = f"_x{at(20)} 1200+0x{at(20)}"
    series = {
        f'pykafka_sink_rows_total{one},topic="t"}}': f"0+100000x{at(40)}",
        f'pykafka_sink_rows_total{many},topic="t"}}': f"0+100x{at(40)}",
        f'pykafka_sink_retried_records_total{many},error="NO_ANSWER"}}': f"0+50x{at(40)}",
        f'pykafka_sink_last_commit_error_timestamp_seconds{one},error="CommitAborted"}}': failed,
        f'pykafka_sink_last_commit_error_timestamp_seconds{many},error="CommitAborted"}}': failed,
        f"pykafka_sink_open_decisions{one}}}": f"1+0x{at(40)}",
        f"pykafka_sink_open_decisions{many}}}": f"1+0x{at(40)}",
    }
    expected = [
        ("30m", "KafkaSinkManyRetries", 1),
        ("30m", "KafkaSinkCommitsFail", 2),
        ("30m", "KafkaSinkDecisionOpen", 2),
    ]
    count_firing(tmp_path, OF_JOBS, series, expected)


@pytest.mark.parametrize("label", ["instance", "pod", "query_id"])
def test_a_stream_that_goes_on_elsewhere_is_the_same_one(tmp_path: Path, label: str) -> None:
    """What it was before is still there, as at a Pushgateway or on a host that has not been taken off the list."""
    delivered = "pykafka_sink_last_batch_timestamp_seconds"
    labels = STREAM if label != "query_id" else 'sink="s",query="q"'
    series = {
        f'{delivered}{{{labels},{label}="a"}}': f"0+0x{at(40)}",
        f'{delivered}{{{labels},{label}="b"}}': f"0+{SCRAPE_S}x{at(40)}",
    }
    count_firing(tmp_path, OF_JOBS, series, [("25m", "KafkaSinkNoBatch", 0)])


@pytest.mark.parametrize("kind", ["transaction", "foreign"])
def test_a_transaction_that_kafka_ends_after_fifteen_minutes_is_told_while_it_is_open(
    tmp_path: Path, kind: str
) -> None:
    """It is found from half of its time on: seven and a half minutes are left."""
    labels = f'severity="look",kind="{kind}",ledger="l",sink="",name="",topic="t"'
    series = {f"pykafka_sink_status_findings{{{labels}}}": f"_x30 1+0x{at(7) + 1} stale"}
    name = "KafkaSinkTransactionOpen"
    expected = [("8m", name, 0), ("10m", name, 1), ("17m", name, 0)]
    count_firing(tmp_path, OF_STATUS, series, [*expected, ("14m", "KafkaSinkLook", 0)])


def test_another_finding_is_told_after_fifteen_minutes_and_once(tmp_path: Path) -> None:
    labels = 'severity="look",kind="elsewhere",ledger="l",sink="s",name="",topic=""'
    expected = [("10m", "KafkaSinkLook", 0), ("16m", "KafkaSinkLook", 1), ("16m", "KafkaSinkTransactionOpen", 0)]
    count_firing(tmp_path, OF_STATUS, {f"pykafka_sink_status_findings{{{labels}}}": f"1+0x{at(20)}"}, expected)


def test_of_two_clusters_the_one_that_nobody_watches_is_told(tmp_path: Path) -> None:
    series = {
        'up{job="pykafka-sink-status-a"}': "1+0x40", 'pykafka_sink_status_up{job="pykafka-sink-status-a"}': "1+0x40",
        'up{job="pykafka-sink-status-b"}': "0+0x40",
    }  # fmt: skip
    count_firing(tmp_path, OF_STATUS, series, [("5m", "KafkaSinkStatusDown", 1)])
