"""The names of the SASL mechanisms, and their common interface.

Each mechanism is a module of its own, which is imported only if it is used.
"""

from __future__ import annotations

from typing import Protocol

PLAIN, OAUTHBEARER, AWS_MSK_IAM, GSSAPI = "PLAIN", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"
SCRAM_SHA_256, SCRAM_SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
WITH_PASSWORD = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512)
# What others can use if they read it on the network. SCRAM and GSSAPI prove a secret without sending it.
SENT_IN_CLEAR = {PLAIN: "the password", OAUTHBEARER: "the token", AWS_MSK_IAM: "what the client signs in with"}
MECHANISMS = (*WITH_PASSWORD, OAUTHBEARER, AWS_MSK_IAM, GSSAPI)


class Exchange(Protocol):
    """Call `first` once, then `step` with each message of the server until it returns None.

    None means that the exchange is complete, and the server is authenticated as far as the mechanism allows. Both raise
    `AuthenticationError` for an invalid message of the server. `doubt` is what a refusal is told about the credentials,
    if they look like something else.
    """

    mechanism: str
    doubt: str

    def first(self) -> bytes: ...

    def step(self, challenge: bytes) -> bytes | None: ...
