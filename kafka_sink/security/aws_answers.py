"""Parses AWS credentials: responses of STS (XML), of containers and instances (JSON), and profiles (INI).

The input is untrusted: the caller bounds its size, types are checked here, and error texts contain nothing of it but
the error code of STS. XML is not parsed: four elements without attributes or markup are searched for, so there is no
entity expansion.
"""

from __future__ import annotations

import configparser
import json
import re
from collections.abc import Mapping
from datetime import datetime, timezone

from kafka_sink.error_table.brokers import AWS_LOGIN
from kafka_sink.errors import AuthenticationError, ConfigError
from kafka_sink.security.sigv4 import AwsCredentials

# A session token has at most a few kilobytes.
ANSWER_BYTES_MAX = 256 * 1024
_KEY_ID = re.compile(r"[A-Za-z0-9_\-.]{1,256}")
_SECRET = re.compile(r"[\x21-\x7E]{1,256}")
_SESSION_TOKEN = re.compile(r"[\x21-\x7E]{0,65536}")
_ELEMENT = re.compile(r"<(AccessKeyId|SecretAccessKey|SessionToken|Expiration)>\s*([^<>&\s]+)\s*</\1>")
_ERROR = re.compile(r"<Code>\s*([A-Za-z.]{1,80})\s*</Code>")
Profiles = Mapping[str, Mapping[str, str]]


def make_credentials(
    access_key_id: object, secret_access_key: object, session_token: object = "", end_s: float | None = None
) -> AwsCredentials | None:
    """None: one of the values is invalid."""
    for value, form in ((access_key_id, _KEY_ID), (secret_access_key, _SECRET), (session_token, _SESSION_TOKEN)):
        if not isinstance(value, str) or not form.fullmatch(value):
            return None
    return AwsCredentials(str(access_key_id), str(secret_access_key), str(session_token), end_s)


def credentials_from_json(body: bytes, source: str) -> AwsCredentials:
    """The response of a container or an instance. `Code` must be Success or missing."""
    try:
        answer = json.loads(body) if len(body) <= ANSWER_BYTES_MAX else None
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict) or answer.get("Code", "Success") != "Success":
        raise _no_credentials_error(source)
    return _credentials_from_fields(answer, "Token", source)


def credentials_from_xml(body: bytes, source: str) -> AwsCredentials:
    """The response of STS to AssumeRole and AssumeRoleWithWebIdentity."""
    text = body.decode("ascii", errors="replace") if len(body) <= ANSWER_BYTES_MAX else ""
    return _credentials_from_fields(dict(_ELEMENT.findall(text)), "SessionToken", source)


def error_from_xml(body: bytes) -> str:
    """Such as AccessDenied; or empty."""
    found = _ERROR.search(body[:ANSWER_BYTES_MAX].decode("ascii", errors="replace"))
    return found[1] if found is not None else ""


def _credentials_from_fields(answer: Mapping[str, object], token: str, source: str) -> AwsCredentials:
    end = answer.get("Expiration")
    end_s = _parse_time(end)
    found = make_credentials(answer.get("AccessKeyId"), answer.get("SecretAccessKey"), answer.get(token) or "", end_s)
    if found is None or (end is not None and end_s is None):
        raise _no_credentials_error(source)
    return found


def _parse_time(text: object) -> float | None:
    """2015-08-30T12:36:00Z, also with parts of a second, or another zone."""
    if not isinstance(text, str) or len(text) > 40:
        return None
    try:
        moment = datetime.fromisoformat(re.sub(r"\.\d+", "", text).replace("Z", "+00:00"))
        seconds = moment.replace(tzinfo=moment.tzinfo or timezone.utc).timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if seconds > 0 else None


def _no_credentials_error(source: str) -> AuthenticationError:
    return AuthenticationError(f"{source} answered without credentials", AWS_LOGIN)


def parse_profiles(source: str, text: str, *, is_config: bool) -> dict[str, dict[str, str]]:
    """Settings by profile name. In the config file a section is called `profile NAME`, except the default one."""
    parser = configparser.RawConfigParser(strict=False, default_section="\0", delimiters=("=",))
    try:
        parser.read_string(text)
    except configparser.Error:
        # Its text would contain lines of the file.
        raise ConfigError(
            f"{source} is no file of AWS profiles: expected [names] and lines such as key = value", AWS_LOGIN
        ) from None
    profiles: dict[str, dict[str, str]] = {}
    for section in parser.sections():
        kind, _, name = section.partition(" ")
        if is_config and kind == "profile":
            profiles[name.strip()] = dict(parser[section])
        elif not is_config or section == "default":
            profiles[section.strip()] = dict(parser[section])
    return profiles
