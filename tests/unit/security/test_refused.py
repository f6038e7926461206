"""What was refused is tried again after minutes."""

from __future__ import annotations

import pytest

from kafka_sink.errors import AuthenticationError, TransportError
from kafka_sink.errors.table.brokers import TOKEN_UNUSABLE
from kafka_sink.kafka.auth.refused import RefusedLogin


class Login:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.tried_s: list[float] = []
        self.error: Exception | None = AuthenticationError("refused", TOKEN_UNUSABLE)

    def __call__(self) -> str:
        self.tried_s.append(self.now_s)
        if self.error is not None:
            raise self.error
        return "in"


def test_credentials_that_are_refused_are_tried_after_a_minute_and_then_every_five() -> None:
    login = Login()
    refused = RefusedLogin(lambda: login.now_s)
    for second in range(0, 1_200, 15):
        login.now_s = second
        with pytest.raises(AuthenticationError, match="refused") as raised:
            refused.try_once(login)
        assert raised.value.entry is TOKEN_UNUSABLE
    assert login.tried_s == [0, 60, 180, 420, 720, 1_020]
    login.error = None
    login.now_s = 1_320
    assert refused.try_once(login) == "in" and refused.left_s == 0
    login.error = AuthenticationError("again")
    with pytest.raises(AuthenticationError, match="again"):
        refused.try_once(login)
    assert refused.left_s == 60


def test_what_may_pass_is_tried_again_at_once() -> None:
    login, now_s = Login(), 0.0
    login.error = TransportError("away")
    refused = RefusedLogin(lambda: now_s)
    for _ in range(3):
        with pytest.raises(TransportError):
            refused.try_once(login)
    assert len(login.tried_s) == 3 and refused.left_s == 0
