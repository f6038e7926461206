"""STS, the SSO portal, a container's credentials endpoint and an instance's metadata, on one port of 127.0.0.1.

They check what Amazon's services check (the token of IMDSv2, the authorization token, a form with the right action).
What a test puts into `answers` is sent instead, to play a hostile service.
"""

from __future__ import annotations

import datetime
import json
import time
from urllib.parse import parse_qs

from tests.support.local_server import LocalServer, QuietHandler

ROLES = "/latest/meta-data/iam/security-credentials/"
IMDS_TOKEN, CONTAINER_TOKEN, SSO_TOKEN = "imds-token", "container-token", "sso-token"


class AwsEndpoints(LocalServer):
    def __init__(self) -> None:
        self.life_s = 3600.0
        # (path, method, headers, form) of the requests.
        self.requests: list[tuple[str, str, dict[str, str], dict[str, str]]] = []
        # (status, body) of answers to send instead, one after the other.
        self.answers: list[tuple[int, bytes]] = []
        self.keys = {"AKIDGIVEN": "secretOfGiven"}
        endpoints = self

        class Handler(QuietHandler):
            def _any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                form = {name: values[0] for name, values in parse_qs(body).items()}
                headers = {name.lower(): value for name, value in self.headers.items()}
                endpoints.requests.append((self.path, self.command, headers, form))
                if endpoints.answers:
                    self.send(*endpoints.answers.pop(0))
                else:
                    self.send(*endpoints.answer(self.path, self.command, headers, form))

            do_GET = do_PUT = do_POST = _any

        super().__init__(Handler)

    @property
    def paths(self) -> list[str]:
        return [path for path, *_ in self.requests]

    def answer(self, path: str, method: str, headers: dict[str, str], form: dict[str, str]) -> tuple[int, bytes]:
        if path == "/latest/api/token":
            is_v2 = method == "PUT" and int(headers["x-aws-ec2-metadata-token-ttl-seconds"]) > 0
            return (200, IMDS_TOKEN.encode()) if is_v2 else (403, b"")
        if path.startswith(ROLES):
            if headers.get("x-aws-ec2-metadata-token") != IMDS_TOKEN:
                return 401, b""
            return (200, b"my-role\n") if path == ROLES else (200, self._json())
        if path == "/container":
            return (200, self._json()) if headers.get("authorization") == CONTAINER_TOKEN else (401, b"")
        if path.startswith("/federation/credentials?"):
            is_known = headers.get("x-amz-sso_bearer_token") == SSO_TOKEN
            return (200, self._portal()) if is_known else (401, b'{"__type": "UnauthorizedException"}')
        if form.get("Action") in ("AssumeRole", "AssumeRoleWithWebIdentity") and method == "POST":
            return 200, self._xml(form["Action"])
        return 404, b""

    def _json(self) -> bytes:
        (key_id, secret), *_ = self.keys.items()
        named = {"AccessKeyId": key_id, "SecretAccessKey": secret, "Token": "session", "Expiration": self._end()}
        return json.dumps({"Code": "Success", "Type": "AWS-HMAC", **named}).encode()

    def _portal(self) -> bytes:
        (key_id, secret), *_ = self.keys.items()
        named = {"accessKeyId": key_id, "secretAccessKey": secret, "sessionToken": "session"}
        return json.dumps(
            {"roleCredentials": {**named, "expiration": int((time.time() + self.life_s) * 1000)}}
        ).encode()

    def _xml(self, action: str) -> bytes:
        (key_id, secret), *_ = self.keys.items()
        return (
            f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result><Credentials>'
            f"<AccessKeyId>{key_id}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>"
            f"<SessionToken>session</SessionToken><Expiration>{self._end()}</Expiration>"
            f"</Credentials></{action}Result></{action}Response>"
        ).encode()

    def _end(self) -> str:
        end = datetime.datetime.fromtimestamp(time.time() + self.life_s, datetime.timezone.utc)
        return end.strftime("%Y-%m-%dT%H:%M:%SZ")
