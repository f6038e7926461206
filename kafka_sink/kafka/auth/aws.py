"""AWS credentials: the keys in options, or what botocore finds in the places where all of Amazon's libraries look.

Keys in options or in sasl.jaas.config need no library. All other sources, and roles, need botocore, which is imported
only then (`kafka/auth/aws_search.py`). Requests are signed for the broker's name as it is given; Java signs for the
name that the address resolves to, which is the same where brokers advertise names, as Amazon's do. Credentials without
an expiry are read anew for each session, because the file or the environment that they come from may change; expiring
credentials are renewed like tokens (`Renewed`).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping

from kafka_sink.errors import ConfigError
from kafka_sink.errors.table.brokers import AWS_LOGIN
from kafka_sink.kafka.auth.login import read_login_options
from kafka_sink.kafka.auth.renewal import Renewed
from kafka_sink.kafka.client.authentication import Authenticator
from kafka_sink.options import SecurityOptions
from kafka_sink.options.host.files import resolve_references
from kafka_sink.options.values import AWS_REGION
from kafka_sink.security.aws_msk_iam import AwsMskIamExchange, region_of
from kafka_sink.security.mechanisms import AWS_MSK_IAM
from kafka_sink.security.sigv4 import AwsCredentials, AwsRole

ROLE_SESSION_NAME = "pykafka-sink"
INSTALL = "pip install 'pykafka-sink[aws]'"
# Without this check, a line break at the end of a secret would only show as a wrong signature, at the broker.
_WORD = re.compile(r"[\x21-\x7E]+")


def aws_authenticator(options: SecurityOptions) -> Authenticator:
    credentials = Renewed(
        lambda: get_credentials(options), lambda found: found.end_s, options, what="AWS credentials", shared_s=0.0
    )
    return lambda host: AwsMskIamExchange(credentials.current(), host, find_region(options, host), time.time())


def find_region(options: SecurityOptions, host: str) -> str:
    """The region of a broker."""
    environment = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    found = options.sasl_aws_region or region_of(host) or environment
    if not found or AWS_REGION.convert(found) is None:
        raise ConfigError(f"{AWS_MSK_IAM}: the host name {host} says no region of AWS: set sasl.aws.region", AWS_LOGIN)
    return found


def get_credentials(options: SecurityOptions) -> AwsCredentials:
    module_options = read_login_options(options)
    keys, role = _keys_from_options(options, module_options), _role_from_options(options, module_options)
    if keys is not None and role is None:
        return keys
    _require_library()
    from kafka_sink.kafka.auth import aws_search

    profile = module_options.get("awsProfileName") or options.sasl_aws_profile
    return _require_words("the AWS keys that were found", aws_search.search(options, profile, keys, role))


def _keys_from_options(options: SecurityOptions, module_options: Mapping[str, str]) -> AwsCredentials | None:
    key_id, secret = options.sasl_aws_access_key_id, options.sasl_aws_secret_access_key
    if key_id is not None and secret is not None:
        found = AwsCredentials(
            resolve_references("sasl.aws.access.key.id", key_id),
            resolve_references("sasl.aws.secret.access.key", secret),
            resolve_references("sasl.aws.session.token", options.sasl_aws_session_token or ""),
        )
        return _require_words("sasl.aws.access.key.id and what belongs to it", found)
    if "awsRoleAccessKeyId" not in module_options:
        return None
    key_id, secret, token = (
        module_options.get(f"awsRole{part}", "") for part in ("AccessKeyId", "SecretAccessKey", "SessionToken")
    )
    found = AwsCredentials(key_id, secret, token)
    return _require_words("awsRoleAccessKeyId of sasl.jaas.config and what belongs to it", found)


def _role_from_options(options: SecurityOptions, module_options: Mapping[str, str]) -> AwsRole | None:
    arn = module_options.get("awsRoleArn") or options.sasl_aws_role_arn
    if not arn:
        return None
    session_name = module_options.get("awsRoleSessionName") or ROLE_SESSION_NAME
    external_id, region = module_options.get("awsRoleExternalId"), module_options.get("awsStsRegion")
    return AwsRole(arn, session_name, external_id or None, region or None)


def _require_words(what: str, found: AwsCredentials) -> AwsCredentials:
    values = [found.access_key_id, found.secret_access_key]
    if found.session_token:
        values.append(found.session_token)
    if not all(isinstance(value, str) and _WORD.fullmatch(value) for value in values):
        raise ConfigError(
            f"{what} (secret key, session token) are not valid as AWS credentials: each is one printable word",
            AWS_LOGIN,
        )
    return found


def _require_library() -> None:
    try:
        import botocore.session  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"{AWS_MSK_IAM} finds credentials and assumes roles with the package botocore, which cannot be loaded here "
            f"({error}): install it on the driver and each executor with {INSTALL}, or set sasl.aws.access.key.id and "
            "sasl.aws.secret.access.key, which need it for roles only",
            AWS_LOGIN,
        ) from None
