"""The names of the SASL mechanisms, and the interface that each of them has.

Each mechanism is a module of its own, which is imported only where somebody logs in with it.
"""

from __future__ import annotations

from typing import Protocol

PLAIN, OAUTHBEARER, AWS_MSK_IAM, GSSAPI = "PLAIN", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"
SCRAM_SHA_256, SCRAM_SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER, AWS_MSK_IAM, GSSAPI)


class Exchange(Protocol):
    """`first` once, then `step` with each answer of the server until it gives None.

    None means: nothing more is to be said, and the server has proved itself as far as the mechanism lets it. Both
    raise `AuthenticationError` for what the server must not say.
    """

    mechanism: str

    def first(self) -> bytes: ...

    def step(self, challenge: bytes) -> bytes | None: ...
