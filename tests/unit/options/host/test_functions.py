"""Functions that options name, and warnings that a process logs once."""

from __future__ import annotations

import json
import logging

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.kafka.io.warn_once import WARNED, warn_once
from kafka_sink.options.host.functions import load_user_function


def test_a_function_is_found_by_module_and_name_also_within_a_class() -> None:
    assert load_user_function("json:loads", "option") is json.loads
    assert load_user_function("json.decoder:JSONDecoder.decode", "option") is json.JSONDecoder.decode
    with pytest.raises(ConfigError, match="cannot be imported here"):
        load_user_function("json:JSONDecoder.nothing", "option")


def test_a_warning_is_logged_once_and_once_more_by_a_forked_child(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    # Not through logging, which reads the clock.
    monkeypatch.setattr(logging.getLogger("kafka_sink"), "warning", lambda text, *more: said.append(text % more))
    for text in ("one", "another one", "one"):
        warn_once(text)
    WARNED.renew()  # as in a forked child
    warn_once("another one")
    assert said == ["one", "another one", "another one"]
