"""Finds AWS credentials with botocore, and assumes a role with them.

Each search has a session of its own: a botocore session caches what it has read, and is not thread-safe. Botocore
refreshes the token of `aws sso login` in ~/.aws/sso/cache; nothing else is written to disk.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import botocore.session
from botocore.config import Config

from kafka_sink.errors import ConfigError, KafkaSinkError, TransportError, no_descriptor_error
from kafka_sink.errors.table.brokers import AWS_LOGIN
from kafka_sink.kafka.auth.aws_failures import explain_failure
from kafka_sink.kafka.io.plain_connection import look_for_descriptor
from kafka_sink.kafka.io.web import login_timeouts_ms
from kafka_sink.options import SecurityOptions
from kafka_sink.security.sigv4 import AwsCredentials, AwsRole

TIMEOUT_MS = 10_000
# Botocore's name for the global endpoint of STS, which is also the default of Amazon's library for Java.
GLOBAL_REGION = "aws-global"
# Botocore's names of sources.
_INSTANCE, _PROFILE_WITH_ROLE = "iam-role", "assume-role"
# How long before the expiry that it reports botocore itself refreshes an instance's credentials.
_INSTANCE_MARGIN_S = 15 * 60
_LOGGERS = ("botocore.credentials", "botocore.tokens")


def search(
    options: SecurityOptions, profile: str | None, keys: AwsCredentials | None, role: AwsRole | None
) -> AwsCredentials:
    """Credentials of the role, if there is one, assumed with `keys` or with what is found; else what is found.

    `profile` None: the environment decides.
    """
    with _explained_failures(profile), _muted_warnings():
        session = _new_session(options, profile)
        own = keys or _find(session)
        return own if role is None else _assume(session, own, role)


@contextmanager
def _explained_failures(profile: str | None) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if (exhausted := _exhaustion(error)) is not None:
            raise exhausted from None
        if isinstance(error, KafkaSinkError):
            raise
        # Not all of them are botocore's own: errors of parsing dates or JSON get through. Texts may hold secrets.
        raise explain_failure(error, profile or _profile_from_environment() or "default") from None


def _exhaustion(error: BaseException) -> TransportError | None:
    """Botocore wraps the error of a file that it could not open, and skips its file of keys without a word: then there
    seem to be no keys, or no such profile, which nobody would ask for again."""
    what = "AWS credentials could not be looked for"
    behind: BaseException | None = error
    while behind is not None:
        if isinstance(behind, OSError) and (exhausted := no_descriptor_error(what, behind)) is not None:
            return exhausted
        behind = behind.__cause__ or behind.__context__
    return look_for_descriptor(what)


def _profile_from_environment() -> str | None:
    return os.environ.get("AWS_DEFAULT_PROFILE") or os.environ.get("AWS_PROFILE")


@contextmanager
def _muted_warnings() -> Iterator[None]:
    """Botocore logs each failed refresh as a warning, with a traceback that repeats the endpoint's response, and Python
    prints warnings by default. The failure is raised anyway. Other threads and lower levels are logged as configured.
    """
    thread = threading.get_ident()

    def is_shown(record: logging.LogRecord) -> bool:
        return record.thread != thread or record.levelno < logging.WARNING

    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(is_shown)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_shown)


def _new_session(options: SecurityOptions, profile: str | None) -> Any:
    session = botocore.session.Session(profile=profile)
    connect_s, read_s = (each / 1000 for each in login_timeouts_ms(options, TIMEOUT_MS))
    # As the session's default it also holds for the clients that botocore makes itself. No retries by botocore:
    # sasl.login.retry.backoff.ms is for that.
    config = Config(connect_timeout=connect_s, read_timeout=read_s, retries={"max_attempts": 0})
    session.set_default_client_config(config)
    # Amazon's other libraries read AWS_REGION; botocore does not.
    region = os.environ.get("AWS_REGION") or session.get_config_variable("region")
    session.set_config_variable("region", region or GLOBAL_REGION)
    # Older releases of botocore use the global endpoint for most regions by default.
    session.set_config_variable("sts_regional_endpoints", "regional")
    return session


def _find(session: Any) -> AwsCredentials:
    found = session.get_credentials()
    if found is None:
        raise _nothing_found_error()
    if found.method == _PROFILE_WITH_ROLE:
        _check_needs_no_person(session)
    keys = found.get_frozen_credentials()
    return AwsCredentials(keys.access_key, keys.secret_key, keys.token or "", _end_s(found))


def _end_s(found: Any) -> float | None:
    """None: they do not expire.

    Botocore has no public attribute for the expiry. The AWS command line reads the same private one, in `aws configure
    export-credentials`.
    """
    end = getattr(found, "_expiry_time", None)
    if end is None:
        return None
    # When an instance's credentials are about to expire, botocore reports a later expiry than the instance did, in case
    # the instance cannot renew them, and refreshes this margin before it. The real expiry may be earlier than reported,
    # so they count as expired from that moment.
    return float(end.timestamp()) - (_INSTANCE_MARGIN_S if found.method == _INSTANCE else 0)


def _nothing_found_error() -> KafkaSinkError:
    text = "no AWS credentials in options, environment and ~/.aws, no container"
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return ConfigError(f"{text}, and AWS_EC2_METADATA_DISABLED is set", AWS_LOGIN)
    # Botocore does not tell an instance without a role from one that did not respond.
    return TransportError(f"{text}, and the instance metadata gave none (is a role attached?)", AWS_LOGIN)


def _check_needs_no_person(session: Any) -> None:
    """Botocore would read the code of an MFA device from standard input, and a Spark process has no user there."""
    profiles, name, seen = session.full_config["profiles"], session.profile or "default", set[str]()
    while name in profiles and name not in seen:
        profile = profiles[name]
        if "role_arn" in profile and "mfa_serial" in profile:
            raise ConfigError(
                f"the AWS profile {name!a} has mfa_serial, and nobody is here to type a code: get keys with the AWS "
                "command line (aws configure export-credentials) and pass them in the environment",
                AWS_LOGIN,
            )
        seen.add(name)
        name = profile.get("source_profile")


def _assume(session: Any, own: AwsCredentials, role: AwsRole) -> AwsCredentials:
    asked = {"RoleArn": role.arn, "RoleSessionName": role.session_name}
    if role.external_id is not None:
        asked["ExternalId"] = role.external_id
    client = session.create_client(
        "sts",
        region_name=role.region,
        aws_access_key_id=own.access_key_id,
        aws_secret_access_key=own.secret_access_key,
        aws_session_token=own.session_token or None,
    )
    with closing(client):
        given = client.assume_role(**asked)["Credentials"]
    return AwsCredentials(
        given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"], given["Expiration"].timestamp()
    )
