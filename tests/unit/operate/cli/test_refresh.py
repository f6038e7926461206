"""Commands that go on until they are stopped."""

from __future__ import annotations

import argparse
import signal

import pytest

from kafka_sink.operate.cli.refresh import Look, repeat, until_stopped
from kafka_sink.operate.cli.report import DONE
from kafka_sink.operate.cli.streams import ReaderGone


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_what_goes_on_without_an_error(number: signal.Signals) -> None:
    def look() -> Look:
        signal.raise_signal(number)
        raise AssertionError("the signal was ignored")

    before = signal.getsignal(signal.SIGTERM)
    given = argparse.Namespace(json=True, count=0, interval=1)
    assert repeat(look, given).exit_code == DONE
    assert signal.getsignal(signal.SIGTERM) is before


def test_another_error_is_raised_and_the_handler_is_gone_all_the_same() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with until_stopped():
        raise ReaderGone
    with pytest.raises(ValueError, match="other"), until_stopped():
        raise ValueError("other")
    assert signal.getsignal(signal.SIGTERM) is before
