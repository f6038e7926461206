"""The meaning of botocore's failures for a login: what to do, and whether to try again. Their texts are not shown."""

from __future__ import annotations

from typing import Any

import pytest
from botocore import exceptions, parsers

from kafka_sink.errors import AuthenticationError, ConfigError, KafkaSinkError, TransportError
from kafka_sink.kafka.auth.aws_failures import explain_failure


def refused(status: int, code: Any) -> exceptions.ClientError:
    response = {"Error": {"Code": code, "Message": "hunter2"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return exceptions.ClientError(response, "AssumeRole")


def wrapped(behind: Exception) -> Exception:
    """The exception of botocore if the credential endpoint of a container does not answer."""
    outer = exceptions.CredentialRetrievalError(provider="container-role", error_msg="hunter2")
    outer.__context__ = exceptions.MetadataRetrievalError(error_msg="hunter2")
    outer.__context__.__context__ = behind
    return outer


URL = "https://hunter2@sts.example.org/?hunter2"
FAILURES = [
    (exceptions.EndpointConnectionError(endpoint_url=URL), TransportError,
     "the endpoint https://sts.example.org/ of AWS did not answer: EndpointConnectionError"),
    (exceptions.ConnectTimeoutError(endpoint_url=URL), TransportError, "ConnectTimeoutError"),
    (exceptions.ReadTimeoutError(endpoint_url=URL), TransportError, "ReadTimeoutError"),
    (exceptions.SSLError(endpoint_url=URL, error="hunter2"), TransportError, "SSLError"),
    (exceptions.HTTPClientError(error="hunter2"), TransportError, "the endpoint of AWS did not answer"),
    (wrapped(exceptions.ConnectTimeoutError(endpoint_url=URL)), TransportError, "did not answer: ConnectTimeoutError"),
    (wrapped(ValueError("hunter2")), AuthenticationError, "by container-role (CredentialRetrievalError)"),
    (exceptions.CredentialRetrievalError(provider="Ec2InstanceMetadata", error_msg="hunter2"), TransportError,
     "an endpoint gave no AWS credentials by Ec2InstanceMetadata; it is asked again"),
    (exceptions.MetadataRetrievalError(error_msg="hunter2"), TransportError, "it is asked again"),
    (refused(403, "AccessDenied"), AuthenticationError, "AssumeRole of AWS answered 403 (AccessDenied): check"),
    (refused(403, "hunter2 says"), AuthenticationError, "answered 403: check the role"),
    (refused(400, "ThrottlingException"), TransportError, "(ThrottlingException); it is asked again"),
    (refused(400, "IDPCommunicationError"), TransportError, "it is asked again"),
    (refused(429, "429"), TransportError, "answered 429; it is asked again"),
    (refused(500, "InternalFailure"), TransportError, "answered 500 (InternalFailure); it is asked again"),
    (exceptions.ProfileNotFound(profile="p"), ConfigError, "there is no AWS profile 'p'"),
    (exceptions.PartialCredentialsError(provider="shared-credentials-file", cred_var="aws_secret_access_key"),
     ConfigError, "the AWS profile 'p', or one that it names, has AWS credentials without aws_secret_access_key"),
    (exceptions.InfiniteLoopConfigError(source_profile="p", visited_profiles=["p"]), ConfigError,
     "'p' is its own source_profile"),
    (exceptions.InvalidConfigError(error_msg="hunter2"), ConfigError, "'p', or one that it names, cannot be used"),
    (exceptions.ConfigParseError(path="/a/config", error="hunter2"), ConfigError, "/a/config is no file of AWS"),
    (exceptions.ParamValidationError(report="hunter2"), ConfigError, "a role's ARN, session name or external id"),
    (exceptions.SSOTokenLoadError(error_msg="hunter2"), AuthenticationError, "run aws sso login --profile 'p'"),
    (exceptions.UnauthorizedSSOTokenError(), AuthenticationError, "run aws sso login --profile 'p'"),
    (exceptions.TokenRetrievalError(provider="sso", error_msg="hunter2"), AuthenticationError, "run aws sso login"),
    (exceptions.InvalidIMDSEndpointError(endpoint="hunter2"), AuthenticationError, "(InvalidIMDSEndpointError)"),
    (parsers.ResponseParserError("hunter2"), AuthenticationError, "(ResponseParserError)"),
    (ValueError("hunter2"), AuthenticationError, "botocore got no AWS credentials (ValueError)"),
]  # fmt: skip


@pytest.mark.parametrize(("failure", "kind", "says"), FAILURES)
def test_a_failure_is_told_by_its_kind_and_without_its_text(
    failure: Exception, kind: type[KafkaSinkError], says: str
) -> None:
    error = explain_failure(failure, "p")
    assert type(error) is kind and error.name == "PKS-4009" and says in str(error), error
    assert "hunter2" not in str(error)


@pytest.mark.skipif(not hasattr(exceptions, "LoginError"), reason="this botocore knows no aws login")
def test_a_login_that_has_ended_is_told_with_the_command_that_renews_it() -> None:
    for failure in (exceptions.LoginRefreshRequired(), exceptions.LoginTokenLoadError(error_msg="hunter2")):
        error = explain_failure(failure, "p")
        assert isinstance(error, AuthenticationError) and "run aws login --profile 'p'" in str(error)
        assert "hunter2" not in str(error)
