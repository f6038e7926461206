"""Credentials of AWS, found where Amazon's own libraries find them, and those of a role that is taken on with them.

    what the options or sasl.jaas.config name: keys, or a profile
    AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
    AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN (EKS)      asked of STS
    the profile AWS_PROFILE or default, of ~/.aws
    AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI      asked of the container's host
    the role of the instance                                 asked of 169.254.169.254 (IMDSv2)

The first place where something stands is the one: what is wrong there is an error, and nothing else is tried. Keys in
files and in the environment are read anew for each session; what ends is renewed as tokens are (`Renewed`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from kafka_sink.auth import aws_endpoints
from kafka_sink.auth.renewal import Renewed
from kafka_sink.error_table.brokers import AWS_LOGIN
from kafka_sink.errors import AuthenticationError, ConfigError, TransportError
from kafka_sink.io.files import read_file, resolve_references
from kafka_sink.options import ProducerOptions
from kafka_sink.security import aws_answers
from kafka_sink.security.aws_msk_iam import REGION, region_of
from kafka_sink.security.mechanisms import AWS_MSK_IAM
from kafka_sink.security.sigv4 import AwsCredentials

ROLE_SESSION_NAME = "pykafka-sink"
# What a profile may say that only Amazon's own programs can do.
_ELSEWHERE = ("sso_session", "sso_start_url", "credential_process", "mfa_serial", "login_session")
ModuleOptions = Mapping[str, str]


def credentials_source(
    options: ProducerOptions, module_options: Callable[[], ModuleOptions]
) -> Renewed[AwsCredentials]:
    """`module_options`: what stands in sasl.jaas.config now."""
    return Renewed(
        lambda: _get_credentials(options, module_options()),
        lambda found: found.end_s,
        options,
        what="AWS credentials",
        is_kept=False,
    )


def find_region(options: ProducerOptions, host: str) -> str:
    """That of a broker."""
    found = options.sasl_aws_region or region_of(host) or _region_from_environment()
    if found is None or not REGION.fullmatch(found):
        raise ConfigError(f"{AWS_MSK_IAM}: the host name {host} says no region of AWS: set sasl.aws.region", AWS_LOGIN)
    return found


def _region_from_environment() -> str | None:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or None


def _get_credentials(options: ProducerOptions, module_options: ModuleOptions) -> AwsCredentials:
    own = _credentials_from_options(options, module_options) or _credentials_from_default_chain(options)
    role = module_options.get("awsRoleArn") or options.sasl_aws_role_arn
    if not role:
        return own
    form = {"RoleArn": role, "RoleSessionName": module_options.get("awsRoleSessionName") or ROLE_SESSION_NAME}
    if module_options.get("awsRoleExternalId"):
        form["ExternalId"] = module_options["awsRoleExternalId"]
    return aws_endpoints.assume_role(
        options, own, form, module_options.get("awsStsRegion") or _region_from_environment()
    )


def _credentials_from_options(options: ProducerOptions, module_options: ModuleOptions) -> AwsCredentials | None:
    key_id, secret = options.sasl_aws_access_key_id, options.sasl_aws_secret_access_key
    if key_id is not None and secret is not None:
        return _require_credentials(
            "sasl.aws.access.key.id",
            resolve_references("sasl.aws.access.key.id", key_id),
            resolve_references("sasl.aws.secret.access.key", secret),
            resolve_references("sasl.aws.session.token", options.sasl_aws_session_token or ""),
        )
    if "awsRoleAccessKeyId" in module_options:
        keys = (module_options.get(f"awsRole{part}", "") for part in ("AccessKeyId", "SecretAccessKey", "SessionToken"))
        return _require_credentials("awsRoleAccessKeyId of sasl.jaas.config", *keys)
    profile = module_options.get("awsProfileName") or options.sasl_aws_profile
    return _credentials_from_profile(options, profile, _read_profiles()) if profile else None


def _credentials_from_default_chain(options: ProducerOptions) -> AwsCredentials:
    environment = os.environ
    if environment.get("AWS_ACCESS_KEY_ID"):
        return _credentials_from_environment()
    if environment.get("AWS_WEB_IDENTITY_TOKEN_FILE") and environment.get("AWS_ROLE_ARN"):
        path, role = environment["AWS_WEB_IDENTITY_TOKEN_FILE"], environment["AWS_ROLE_ARN"]
        return _credentials_from_web_identity(options, path, role, environment.get("AWS_ROLE_SESSION_NAME"))
    profiles, chosen = _read_profiles(), environment.get("AWS_PROFILE")
    if chosen or "default" in profiles:
        return _credentials_from_profile(options, chosen or "default", profiles)
    if aws_endpoints.has_container():
        return aws_endpoints.get_container_credentials(options)
    if environment.get("AWS_EC2_METADATA_DISABLED", "").lower() != "true":
        try:
            return aws_endpoints.get_instance_credentials(options)
        except TransportError as error:
            raise TransportError(
                f"no AWS credentials in options, environment and ~/.aws, and {error}", AWS_LOGIN
            ) from None
    raise ConfigError(
        "no AWS credentials in options, environment and ~/.aws, no container, and AWS_EC2_METADATA_DISABLED is set",
        AWS_LOGIN,
    )


def _credentials_from_environment() -> AwsCredentials:
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    return _require_credentials(names[0], *(os.environ.get(name, "") for name in names))


def _require_credentials(what: str, key_id: str, secret: str, session_token: str) -> AwsCredentials:
    found = aws_answers.make_credentials(key_id, secret, session_token)
    if found is None:
        raise ConfigError(f"{what}, its secret key or its session token is not valid as AWS credentials", AWS_LOGIN)
    return found


# ---- profiles --------------------------------------------------------------------------------------------------


def _read_profiles() -> aws_answers.Profiles:
    """Of both files; what the credentials file says of a profile counts more."""
    profiles: dict[str, dict[str, str]] = {}
    for variable, name in (("AWS_CONFIG_FILE", "config"), ("AWS_SHARED_CREDENTIALS_FILE", "credentials")):
        path = Path(os.environ.get(variable) or f"~/.aws/{name}").expanduser()
        if path.is_file():
            text = read_file(variable, str(path)).decode(errors="replace")
            for profile, settings in aws_answers.parse_profiles(variable, text, is_config=name == "config").items():
                profiles.setdefault(profile, {}).update(settings)
    return profiles


def _credentials_from_profile(
    options: ProducerOptions, name: str, profiles: aws_answers.Profiles, above: tuple[str, ...] = ()
) -> AwsCredentials:
    if name in above:
        raise ConfigError(f"the AWS profile {name!a} is its own source_profile", AWS_LOGIN)
    if name not in profiles:
        raise ConfigError(f"there is no AWS profile {name!a} in ~/.aws (on this host, for this user)", AWS_LOGIN)
    profile = profiles[name]
    for setting in _ELSEWHERE:
        if setting in profile:
            raise ConfigError(
                f"the AWS profile {name!a} uses {setting}, which is not built in: get keys with the AWS command line "
                "(aws configure export-credentials) and pass them in the environment",
                AWS_LOGIN,
            )
    role = profile.get("role_arn")
    if role is None:
        return _keys_from_profile(name, profile)
    session = profile.get("role_session_name")
    if "web_identity_token_file" in profile:
        return _credentials_from_web_identity(options, profile["web_identity_token_file"], role, session)
    form = {"RoleArn": role, "RoleSessionName": session or ROLE_SESSION_NAME}
    if "external_id" in profile:
        form["ExternalId"] = profile["external_id"]
    own = _source_credentials(options, name, profiles, above)
    return aws_endpoints.assume_role(options, own, form, profile.get("region") or _region_from_environment())


def _source_credentials(
    options: ProducerOptions, name: str, profiles: aws_answers.Profiles, above: tuple[str, ...]
) -> AwsCredentials:
    """What the role of that profile is taken on with."""
    profile = profiles[name]
    source = profile.get("source_profile")
    if source == name:
        return _keys_from_profile(name, profile)
    if source is not None:
        return _credentials_from_profile(options, source, profiles, (*above, name))
    places: dict[str, Callable[[], AwsCredentials]] = {
        "Environment": _credentials_from_environment,
        "EcsContainer": lambda: aws_endpoints.get_container_credentials(options),
        "Ec2InstanceMetadata": lambda: aws_endpoints.get_instance_credentials(options),
    }
    place = profile.get("credential_source", "")
    if place not in places:
        raise ConfigError(
            f"the AWS profile {name!a} has a role_arn, but neither source_profile, web_identity_token_file nor a "
            f"credential_source of {', '.join(places)}",
            AWS_LOGIN,
        )
    return places[place]()


def _keys_from_profile(name: str, profile: Mapping[str, str]) -> AwsCredentials:
    keys = (profile.get(key, "") for key in ("aws_access_key_id", "aws_secret_access_key", "aws_session_token"))
    return _require_credentials(f"aws_access_key_id of the AWS profile {name!a}", *keys)


def _credentials_from_web_identity(
    options: ProducerOptions, path: str, role: str, session: str | None
) -> AwsCredentials:
    token = read_file("AWS_WEB_IDENTITY_TOKEN_FILE", path).decode(errors="replace").strip()
    if not token:
        raise AuthenticationError("the file of AWS_WEB_IDENTITY_TOKEN_FILE is empty", AWS_LOGIN)
    form = {"RoleArn": role, "RoleSessionName": session or ROLE_SESSION_NAME, "WebIdentityToken": token}
    return aws_endpoints.ask_sts(options, "AssumeRoleWithWebIdentity", form, None, _region_from_environment())
