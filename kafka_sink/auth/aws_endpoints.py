"""The three AWS endpoints for credentials: STS for roles, the container's host, the instance's metadata.

Each has the same address as in Amazon's own libraries, and the same environment variables change it. All responses are
bounded and checked (`security/aws_answers.py`); only the error code of STS is shown.
"""

from __future__ import annotations

import os
import time
import urllib.parse
from collections.abc import Mapping

from kafka_sink.error_table.brokers import AWS_LOGIN
from kafka_sink.errors import AuthenticationError, ConfigError, TransportError
from kafka_sink.io import web
from kafka_sink.io.files import read_file
from kafka_sink.options import ProducerOptions
from kafka_sink.security import aws_answers
from kafka_sink.security.aws_answers import ANSWER_BYTES_MAX
from kafka_sink.security.sigv4 import AwsCredentials, scope_at, sign_headers

STS_TIMEOUT_MS = 10_000
# They are local, or do not exist.
NEAR_TIMEOUT_MS = 2_000
STS_VERSION, STS_GLOBAL_REGION = "2011-06-15", "us-east-1"
CONTAINER, INSTANCE = "http://169.254.170.2", "http://169.254.169.254"
# Hosts to which a container may send its authorization token without TLS (ECS and EKS).
_CONTAINER_HOSTS = ("169.254.170.2", "169.254.170.23", "fd00:ec2::23")
_ROLES = "/latest/meta-data/iam/security-credentials/"
_TOKEN_LIFE_S = 21_600


# ---- STS -------------------------------------------------------------------------------------------------------


def assume_role(
    options: ProducerOptions, own: AwsCredentials, form: Mapping[str, str], region: str | None
) -> AwsCredentials:
    return ask_sts(options, "AssumeRole", form, own, region)


def ask_sts(
    options: ProducerOptions, action: str, form: Mapping[str, str], own: AwsCredentials | None, region: str | None
) -> AwsCredentials:
    """Signed with `own` credentials, or unsigned."""
    url = _sts_url(region)
    web.check_is_safe("AWS_ENDPOINT_URL_STS", url)
    source = f"{action} at {web.redact_url(url)}"
    body = urllib.parse.urlencode({"Action": action, "Version": STS_VERSION, **form}).encode()
    headers = {"content-type": "application/x-www-form-urlencoded"}
    if own is not None:
        headers["host"] = urllib.parse.urlsplit(url).netloc
        headers = sign_headers(own, scope_at(time.time(), region or STS_GLOBAL_REGION, "sts"), headers, body)
    answer = web.ask(
        source, options, url, headers=headers, body=body, bytes_max=ANSWER_BYTES_MAX, timeout_ms=STS_TIMEOUT_MS
    )
    if answer.is_good:
        return aws_answers.credentials_from_xml(answer.body, source)
    word = aws_answers.error_from_xml(answer.body)
    raise _refusal_error(source, answer, f" ({word})" if word else "", "check the role, its trust policy and the keys")


def _sts_url(region: str | None) -> str:
    chosen = os.environ.get("AWS_ENDPOINT_URL_STS") or os.environ.get("AWS_ENDPOINT_URL")
    if chosen:
        return chosen.rstrip("/") + "/"
    domain = "amazonaws.com.cn" if (region or "").startswith("cn-") else "amazonaws.com"
    return f"https://sts.{region}.{domain}/" if region else f"https://sts.{domain}/"


# ---- containers ------------------------------------------------------------------------------------------------


def has_container() -> bool:
    return bool(_container_url())


def _container_url() -> str:
    relative = os.environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    return f"{CONTAINER}{relative}" if relative else os.environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")


def get_container_credentials(options: ProducerOptions) -> AwsCredentials:
    url = _container_url()
    if not url:
        raise ConfigError(
            "no AWS credentials of a container: AWS_CONTAINER_CREDENTIALS_RELATIVE_URI is not set", AWS_LOGIN
        )
    if urllib.parse.urlsplit(url).hostname not in _CONTAINER_HOSTS:
        web.check_is_safe("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)
    source = f"the credentials endpoint {web.redact_url(url)}"
    headers = {"Accept": "application/json"}
    path, token = (os.environ.get(f"AWS_CONTAINER_AUTHORIZATION_TOKEN{each}") for each in ("_FILE", ""))
    if path:
        token = read_file("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path).decode(errors="replace").strip()
    if token:
        headers["Authorization"] = _check_one_line("AWS_CONTAINER_AUTHORIZATION_TOKEN", token)
    answer = _ask_nearby(source, options, url, headers)
    return aws_answers.credentials_from_json(answer.body, source)


# ---- instances -------------------------------------------------------------------------------------------------


def get_instance_credentials(options: ProducerOptions) -> AwsCredentials:
    """IMDSv2: first a token, then the name of the role, then its credentials."""
    at = (os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or INSTANCE).rstrip("/")
    source = f"the instance metadata at {web.redact_url(at)}"
    lived = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_LIFE_S)}
    token = _parse_word(_ask_nearby(source, options, f"{at}/latest/api/token", lived, method="PUT"), source)
    headers = {"X-aws-ec2-metadata-token": token}
    role = _parse_word(_ask_nearby(source, options, f"{at}{_ROLES}", headers), source)
    answer = _ask_nearby(source, options, f"{at}{_ROLES}{urllib.parse.quote(role)}", headers)
    return aws_answers.credentials_from_json(answer.body, source)


def _parse_word(answer: web.HttpAnswer, source: str) -> str:
    """A token or a role name: it is put into the next request, so it must be one printable word."""
    lines = answer.body.decode("ascii", errors="replace").split()
    if not lines or not lines[0].isprintable() or len(lines[0]) > ANSWER_BYTES_MAX // 8 or not lines[0].isascii():
        raise AuthenticationError(f"{source} answered without credentials", AWS_LOGIN)
    return lines[0]


def _ask_nearby(
    source: str, options: ProducerOptions, url: str, headers: Mapping[str, str], *, method: str = "GET"
) -> web.HttpAnswer:
    answer = web.ask(
        source, options, url, headers=headers, method=method, bytes_max=ANSWER_BYTES_MAX, timeout_ms=NEAR_TIMEOUT_MS
    )
    if not answer.is_good:
        raise _refusal_error(source, answer, "", "is a role attached?")
    return answer


def _check_one_line(name: str, value: str) -> str:
    if not value.isprintable() or not value.isascii():
        raise ConfigError(f"{name} is not one line of text", AWS_LOGIN)
    return value


def _refusal_error(source: str, answer: web.HttpAnswer, word: str, hint: str) -> TransportError | AuthenticationError:
    text = f"{source} answered {answer.status}{word}"
    return (
        TransportError(f"{text}; it is asked again", AWS_LOGIN)
        if answer.is_retriable
        else AuthenticationError(f"{text}: {hint}", AWS_LOGIN)
    )
