"""Maps botocore's exceptions to errors of this package: is it configuration, a refusal, or worth another attempt?

Their texts are not shown, because they may repeat what an endpoint, a program or a file contained: only names that
botocore itself defines, and an AWS error code if it looks like one.
"""

from __future__ import annotations

import re

from botocore import exceptions

from kafka_sink.errors import AuthenticationError, ConfigError, KafkaSinkError, TransportError
from kafka_sink.errors.table.brokers import AWS_LOGIN
from kafka_sink.kafka.io.web import redact_url

_NO_CONNECTION = (exceptions.HTTPClientError, exceptions.ConnectionError)
_NO_SSO_TOKEN = (exceptions.SSOError, exceptions.TokenRetrievalError, exceptions.NoAuthTokenError)
# Not in the oldest supported botocore.
_NO_LOGIN = getattr(exceptions, "LoginError", ())
_HERE = "(on this host, as this user)"
_CODE = re.compile(r"[A-Za-z0-9.]{1,80}")
# Temporary errors with status 400. IDPCommunicationError: STS could not reach the issuer of a web identity token.
_PASSING_CODES = re.compile(r"Throttl.*|IDPCommunicationError|RequestLimitExceeded")
# A credential_source of a profile, compared without regard to case.
_INSTANCE = "ec2instancemetadata"
# A temporary error of a container's host. Botocore has the status in its text only.
_PASSING_STATUS = re.compile(r"non 200 response (429|5\d\d)\b")


def explain_failure(error: Exception, profile: str) -> KafkaSinkError:
    """`profile`: the one that was used."""
    connection = _failed_connection(error)
    if connection is not None:
        return _connection_error(connection)
    if isinstance(error, exceptions.ClientError):
        return _refusal_error(error)
    text = _explain_profile(error, profile)
    if text:
        return ConfigError(text, AWS_LOGIN)
    if isinstance(error, _NO_SSO_TOKEN):
        text = f"the AWS profile {profile!a} has no SSO token that is valid: run aws sso login --profile {profile!a}"
        return AuthenticationError(f"{text} {_HERE}", AWS_LOGIN)
    if isinstance(error, _NO_LOGIN):
        text = f"the AWS profile {profile!a} has no login session that is valid: run aws login --profile {profile!a}"
        return AuthenticationError(f"{text} {_HERE}", AWS_LOGIN)
    return _other_error(error)


def _failed_connection(error: Exception) -> BaseException | None:
    """Also one that botocore has wrapped, as it does for a container's host."""
    behind: BaseException | None = error
    while isinstance(behind, (exceptions.CredentialRetrievalError, exceptions.MetadataRetrievalError)):
        behind = behind.__context__
    return behind if isinstance(behind, _NO_CONNECTION) else None


def _connection_error(error: BaseException) -> TransportError:
    url = getattr(error, "kwargs", {}).get("endpoint_url")
    at = f" {redact_url(url)}" if isinstance(url, str) else ""
    return TransportError(f"the endpoint{at} of AWS did not answer: {type(error).__name__}", AWS_LOGIN)


def _refusal_error(error: exceptions.ClientError) -> KafkaSinkError:
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = str(error.response.get("Error", {}).get("Code", ""))
    text = f"{error.operation_name} of AWS answered {status}"
    if _CODE.fullmatch(code) and code != str(status):
        text += f" ({code})"
    if status == 429 or status >= 500 or _PASSING_CODES.fullmatch(code):
        return TransportError(f"{text}; it is asked again", AWS_LOGIN)
    return AuthenticationError(f"{text}: check the role, its trust policy and the keys", AWS_LOGIN)


def _explain_profile(error: Exception, profile: str) -> str:
    """Empty if neither files nor the environment are the cause."""
    if isinstance(error, exceptions.ProfileNotFound):
        return f"there is no AWS profile {profile!a} in ~/.aws (on this host, for this user)"
    if isinstance(error, exceptions.PartialCredentialsError):
        missing, is_environment = error.kwargs["cred_var"], error.kwargs["provider"] == "env"
        where = "the environment" if is_environment else f"the AWS profile {profile!a}, or one that it names,"
        return f"{where} has AWS credentials without {missing}"
    if isinstance(error, exceptions.InfiniteLoopConfigError):
        return f"the AWS profile {profile!a} is its own source_profile"
    if isinstance(error, exceptions.InvalidConfigError):
        return (
            f"the AWS profile {profile!a}, or one that it names, cannot be used: check its role_arn, source_profile, "
            "credential_source, web_identity_token_file and sso_*, and AWS_ROLE_ARN of the environment"
        )
    if isinstance(error, exceptions.ParamValidationError):
        return "a role's ARN, session name or external id is none that STS takes: too short, or too long"
    if isinstance(error, exceptions.ConfigParseError):
        return f"{error.kwargs['path']} is no file of AWS profiles: expected [names] and lines such as key = value"
    return ""


def _other_error(error: Exception) -> KafkaSinkError:
    place, is_passing = "", False
    if isinstance(error, exceptions.CredentialRetrievalError):
        place = f" by {error.kwargs['provider']}"
        # Botocore does not tell an instance without a role from one that did not respond.
        is_passing = place.lower().endswith(_INSTANCE) or bool(_PASSING_STATUS.search(str(error)))
    elif isinstance(error, exceptions.MetadataRetrievalError):
        # The instance returned no token for IMDSv2, and v1 is disabled.
        is_passing = True
    if is_passing:
        return TransportError(f"an endpoint gave no AWS credentials{place}; it is asked again", AWS_LOGIN)
    return AuthenticationError(
        f"botocore got no AWS credentials{place} ({type(error).__name__}): on this host, aws configure "
        "export-credentials says why",
        AWS_LOGIN,
    )
