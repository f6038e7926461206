"""What the mechanisms of SASL are called, and what each of them can do: for whoever wants to know no more than that.

Their conversations are in modules of their own, which nobody needs who does not log in.
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
