"""What a preset sets, what else the service needs, and its limits: for people, and as objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_sink.checks.finding import OK, ProbeResult
from kafka_sink.options.presets import PRESETS, unset_preset_settings

NOT_RUN = "from the service's documentation; run here only against the embedded broker with the same quirk"


def explain_preset(name: str, settings: Mapping[str, str]) -> list[ProbeResult]:
    """`settings` are those of the job, which override the preset."""
    preset = PRESETS[name]
    left = unset_preset_settings(preset, {given.lower(): value for given, value in settings.items()})
    found = [ProbeResult("service", OK, f"{preset.title}: {NOT_RUN}", " ".join(preset.sources))]
    for option, value in preset.settings.items():
        won = "" if option in left else "the option that you set wins"
        found.append(ProbeResult("sets", OK, f"{option}={value}", won))
    if not preset.settings:
        found.append(ProbeResult("sets", OK, "nothing: the sink learns the differences from the brokers"))
    found += [ProbeResult("needs", OK, text) for text in preset.needs]
    found += [ProbeResult("cannot", OK, text) for text in preset.cannot]
    return found


def format_explanation(results: Iterable[ProbeResult]) -> list[str]:
    """Lines without marks: nothing was checked."""
    return [f"{each.name:8} {each.text}" + (f" ({each.advice})" if each.advice else "") for each in results]
