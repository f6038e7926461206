"""AWS_MSK_IAM: credentials from each place that may hold them, and signatures that brokers verify."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import botocore.credentials
import botocore.tokens
import botocore.utils
import pytest

from kafka_sink import AuthenticationError, ConfigError, KafkaSinkError, Producer, TransportError
from kafka_sink.kafka.auth.aws import get_credentials
from kafka_sink.kafka.auth.secured import authenticator
from kafka_sink.kafka.client.authentication import Authenticator
from kafka_sink.options import ProducerOptions
from kafka_sink.options.parse import parse_producer_options
from kafka_sink.testing import EmbeddedBroker
from tests.conftest import NEWEST, without_kafka
from tests.integration.aws_endpoints import CONTAINER_TOKEN, IMDS_TOKEN, ROLES, SSO_TOKEN, AwsEndpoints
from tests.integration.exhausted_descriptors import no_descriptor_left
from tools.java import PRODUCER_PERFORMANCE, run_class
from tools.kafka_jars import KafkaUnavailable, cache_folder, msk_iam_jars

WAIT_S = 90
HOST = "b-1.orders.c2.kafka.eu-west-1.amazonaws.com"
IAM = "software.amazon.msk.auth.iam.IAMLoginModule required"
HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
ROLE = "arn:aws:iam::123456789012:role/orders"


@pytest.fixture
def endpoints() -> Iterator[AwsEndpoints]:
    with AwsEndpoints() as endpoints:
        yield endpoints


@pytest.fixture(autouse=True)
def nothing_of_aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes what this machine knows of AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    # The jars stay where they are: in another home, Maven would fetch all of them again for each test.
    monkeypatch.setenv("PYKAFKA_SINK_CACHE", str(cache_folder()))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    # botocore read HOME when it was loaded; its pause between three attempts is removed as well.
    for kind in (botocore.credentials.SSOProvider, botocore.tokens.SSOTokenProvider):
        monkeypatch.setattr(kind, "_SSO_TOKEN_CACHE_DIR", str(tmp_path / ".aws" / "sso" / "cache"))
    monkeypatch.setattr(botocore.utils.ContainerMetadataFetcher, "SLEEP_TIME", 0)


def options(**more: Any) -> ProducerOptions:
    chosen: dict[str, Any] = {
        "bootstrap.servers": "b:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.login.retry.backoff.max.ms": 100,
    }
    return parse_producer_options(chosen | {name.replace("_", "."): value for name, value in more.items()})


def made(chosen: ProducerOptions) -> Authenticator:
    found = authenticator(chosen)
    assert found is not None
    return found


def message(host: str = HOST, **more: Any) -> dict[str, str]:
    found: dict[str, str] = json.loads(made(options(**more))(host).first())
    return found


def who(**more: Any) -> tuple[str, str | None]:
    """The id of the key, and the session token."""
    found = message(**more)
    return found["x-amz-credential"].split("/")[0], found.get("x-amz-security-token")


def refusal(**more: Any) -> KafkaSinkError:
    with pytest.raises(KafkaSinkError) as caught:
        message(**more)
    assert "hunter2" not in str(caught.value) and str(caught.value).isprintable()
    return caught.value


def write_profiles(tmp_path: Path, text: str, name: str = "config") -> None:
    (tmp_path / ".aws").mkdir(exist_ok=True)
    (tmp_path / ".aws" / name).write_text(text)


# ---- places of credentials -------------------------------------------------------------------------------------

KEYS_OF_OPTIONS = {"sasl_aws_access_key_id": "AKIDOWN", "sasl_aws_secret_access_key": "hunter2"}


def test_keys_of_the_options_are_used_by_reference_too(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"sasl_aws_access_key_id": "AKIDOPTION", "sasl_aws_secret_access_key": "${env:MY_SECRET}"}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
    monkeypatch.setenv("MY_SECRET", "hunter2")
    assert who(**keys) == ("AKIDOPTION", None)
    assert who(**keys, sasl_aws_session_token="t") == ("AKIDOPTION", "t")
    monkeypatch.setenv("MY_SECRET", "hunter2\n")
    error = refusal(**keys)
    assert isinstance(error, ConfigError) and "sasl.aws.access.key.id and what belongs to it" in str(error)


def test_without_botocore_keys_of_the_options_are_enough_and_everything_else_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "botocore"]:
        monkeypatch.setitem(sys.modules, name, None)
    jaas = f'{IAM} awsRoleAccessKeyId="AKIDJAAS" awsRoleSecretAccessKey="hunter2" awsRoleSessionToken="t";'
    assert who(**KEYS_OF_OPTIONS) == ("AKIDOWN", None)
    assert who(sasl_jaas_config=jaas) == ("AKIDJAAS", "t")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
    for more in ({}, {"sasl_aws_profile": "p"}, {**KEYS_OF_OPTIONS, "sasl_aws_role_arn": ROLE}):
        error = refusal(**more)
        assert isinstance(error, ConfigError) and error.name == "PKS-4009"
        assert "pip install 'pykafka-sink[aws]'" in str(error) and "or set sasl.aws.access.key.id" in str(error)


def test_keys_of_the_environment_are_read_anew_for_each_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
    assert "the environment has AWS credentials without AWS_SECRET_ACCESS_KEY" in str(refusal())
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    new_exchange = made(options(sasl_jaas_config=f"{IAM};", sasl_client_callback_handler_class=HANDLER))
    assert b"AKIDENV" in new_exchange(HOST).first()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDNEXT")
    assert b"AKIDNEXT" in new_exchange(HOST).first()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2\n")
    assert "the AWS keys that were found" in str(refusal())


def test_profiles_are_found_by_option_jaas_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def profile(name: str) -> str:
        return f"[{name}]\naws_access_key_id = AKID{name.upper()}\naws_secret_access_key = hunter2\n"

    write_profiles(tmp_path, profile("default") + profile("dev"), "credentials")
    (tmp_path / "config").write_text("[profile far]\naws_access_key_id = AKIDFAR\naws_secret_access_key = x\n")
    assert who() == ("AKIDDEFAULT", None)
    assert who(sasl_aws_profile="dev") == ("AKIDDEV", None)
    assert who(sasl_jaas_config=f'{IAM} awsProfileName="dev";') == ("AKIDDEV", None)
    monkeypatch.setenv("AWS_PROFILE", "far")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert who() == ("AKIDFAR", None)
    error = refusal(sasl_aws_profile="none")
    assert isinstance(error, ConfigError) and "there is no AWS profile 'none' in ~/.aws" in str(error)


@pytest.mark.parametrize("text", ["hunter2", "[a\nb", "[a]\nhunter2", "\0"])
def test_a_file_that_holds_no_profiles_is_named_without_its_content(text: str, tmp_path: Path) -> None:
    write_profiles(tmp_path, text)
    error = refusal()
    assert isinstance(error, ConfigError) and f"{tmp_path}/.aws/config is no file of AWS profiles" in str(error)


def test_a_web_identity_is_exchanged_for_credentials(
    endpoints: AwsEndpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("hunter2.jwt")
    for name, value in (("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token")), ("AWS_ROLE_ARN", ROLE)):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ROLE_SESSION_NAME", "me")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoints.url)
    assert who() == ("AKIDGIVEN", "session")
    ((path, _, headers, form),) = endpoints.requests
    assert (path, "authorization" in headers) == ("/", False)
    assert form == {"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleArn": ROLE,
                    "RoleSessionName": "me", "WebIdentityToken": "hunter2.jwt"}  # fmt: skip
    monkeypatch.delenv("AWS_ROLE_ARN")
    assert isinstance(refusal(), ConfigError)


@pytest.mark.parametrize("profile", [None, "p"])
def test_keys_that_cannot_be_read_for_lack_of_a_descriptor_are_not_missing(
    profile: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys").write_text("[default]\naws_access_key_id = AKIDOWN\naws_secret_access_key = hunter2\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    write_profiles(tmp_path, "[profile p]\nregion = eu-west-1\n")
    more = {} if profile is None else {"sasl_aws_profile": profile}
    if profile is None:
        assert who()[0] == "AKIDOWN"
    with no_descriptor_left():
        error = refusal(**more)
    assert isinstance(error, TransportError) and error.name == "PKS-5008"


def test_a_token_that_cannot_be_read_for_lack_of_a_descriptor_is_not_refused(
    endpoints: AwsEndpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("hunter2.jwt")
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoints.url)
    assert who()[0] == "AKIDGIVEN"
    with no_descriptor_left():
        error = refusal()
    assert isinstance(error, TransportError) and error.name == "PKS-5008"


def test_a_role_is_assumed_with_the_credentials_at_hand(
    endpoints: AwsEndpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoints.url)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    jaas = f'{IAM} awsRoleArn="{ROLE}" awsRoleSessionName="me" awsRoleExternalId="ext" awsStsRegion="eu-north-1";'
    assert who(**KEYS_OF_OPTIONS, sasl_jaas_config=jaas) == ("AKIDGIVEN", "session")
    assert who(**KEYS_OF_OPTIONS, sasl_aws_role_arn=ROLE) == ("AKIDGIVEN", "session")
    (_, _, headers, form), (_, _, later, plain) = endpoints.requests
    assert "/eu-north-1/sts/aws4_request" in headers["authorization"] and "AKIDOWN/" in headers["authorization"]
    assert "/eu-west-1/sts/aws4_request" in later["authorization"] and plain["RoleSessionName"] == "pykafka-sink"
    assert (form["Action"], form["RoleSessionName"], form["ExternalId"]) == ("AssumeRole", "me", "ext")
    assert "hunter2" not in str(endpoints.requests)
    error = refusal(**KEYS_OF_OPTIONS, sasl_aws_role_arn="hunter2")
    assert isinstance(error, ConfigError) and "a role's ARN, session name or external id is none" in str(error)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    assert who(sasl_aws_role_arn=ROLE) == ("AKIDGIVEN", "session")
    assert "AKIDENV/" in endpoints.requests[-1][2]["authorization"]


def test_a_profile_may_assume_a_role(endpoints: AwsEndpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    role = f"role_arn = {ROLE}\n"
    write_profiles(
        tmp_path,
        f"[profile a]\n{role}source_profile = b\nrole_session_name = me\n[profile c]\n{role}source_profile = d\n"
        f"[profile d]\n{role}source_profile = c\n[profile e]\n{role}source_profile = h\n"
        f"[profile f]\n{role}credential_source = Ec2InstanceMetadata\n[profile g]\n{role}"
        f"[profile h]\n{role}source_profile = b\nmfa_serial = arn:aws:iam::123456789012:mfa/me\n"
        f"[profile i]\n{role}source_profile = none\n",
    )
    text = "[b]\naws_access_key_id = AKIDB\naws_secret_access_key = hunter2\naws_session_token = t\n"
    write_profiles(tmp_path, text, "credentials")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoints.url)
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoints.url)
    assert who(sasl_aws_profile="a") == ("AKIDGIVEN", "session")
    ((_, _, headers, form),) = endpoints.requests
    assert "AKIDB/" in headers["authorization"] and headers["x-amz-security-token"] == "t"
    assert form["RoleSessionName"] == "me"
    for name, says in (("c", "'c' is its own source_profile"), ("g", "without source_profile or credential_source"),
                       ("h", "'h' has mfa_serial, and nobody is here"), ("e", "'h' has mfa_serial, and nobody is here"),
                       ("i", "'i', or one that it names, cannot be used: check its role_arn")):  # fmt: skip
        error = refusal(sasl_aws_profile=name)
        assert isinstance(error, ConfigError) and says in str(error), error
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    assert who(sasl_aws_profile="f") == ("AKIDGIVEN", "session")


def program(tmp_path: Path, text: str) -> None:
    """The program of the profile p."""
    (tmp_path / "program.py").write_text(text)
    write_profiles(tmp_path, f"[profile p]\ncredential_process = {sys.executable} {tmp_path / 'program.py'}\n")


def test_a_program_gives_credentials_and_is_run_anew_unless_they_end(tmp_path: Path) -> None:
    found = {"Version": 1, "AccessKeyId": "AKIDFIRST", "SecretAccessKey": "hunter2", "SessionToken": "t"}
    program(tmp_path, f"print({json.dumps(found)!r})")
    new_exchange = made(options(sasl_aws_profile="p"))
    assert b"AKIDFIRST" in new_exchange(HOST).first()
    program(tmp_path, f"print({json.dumps({**found, 'AccessKeyId': 'AKIDNEXT'})!r})")
    assert b"AKIDNEXT" in new_exchange(HOST).first()
    program(tmp_path, f"print({json.dumps({**found, 'Expiration': '2100-01-01T00:00:00Z'})!r})")
    assert get_credentials(options(sasl_aws_profile="p")).end_s == 4_102_444_800.0
    new_exchange = made(options(sasl_aws_profile="p"))
    program(tmp_path, f"print({json.dumps({**found, 'AccessKeyId': 'AKIDNEXT'})!r})")
    assert b"AKIDFIRST" in new_exchange(HOST).first()


@pytest.mark.parametrize(
    "text",
    [
        "import sys; sys.exit('hunter2')",
        "print('hunter2')",
        "print('[]')",
        """print('{"Version": 2, "AccessKeyId": "hunter2"}')""",
        """print('{"Version": 1, "AccessKeyId": "hunter2"}')""",
        """print('{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "hunter2", "Expiration": "hunter2"}')""",
    ],
)
def test_what_a_program_says_instead_of_credentials_is_not_shown(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program(tmp_path, text)
    error = refusal(sasl_aws_profile="p")
    assert isinstance(error, AuthenticationError) and "botocore got no AWS credentials" in str(error)
    assert "hunter2" not in caplog.text
    write_profiles(tmp_path, "[profile p]\ncredential_process = /no/such/hunter2\n")
    assert "(FileNotFoundError)" in str(refusal(sasl_aws_profile="p"))


SSO_PROFILES = """
[sso-session s]
sso_start_url = https://sso.example.org/start
sso_region = eu-west-1
[profile p]
sso_session = s
sso_account_id = 123456789012
sso_role_name = orders
[profile old]
sso_start_url = https://sso.example.org/start
sso_region = eu-west-1
sso_account_id = 123456789012
sso_role_name = orders
"""


@pytest.mark.parametrize(("profile", "key"), [("p", "s"), ("old", "https://sso.example.org/start")])
def test_what_aws_sso_login_has_left_is_used(
    profile: str, key: str, endpoints: AwsEndpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def log_in(token: str, end: str) -> None:
        (folder / f"{hashlib.sha1(key.encode()).hexdigest()}.json").write_text(
            json.dumps({"startUrl": "https://sso.example.org/start", "accessToken": token, "expiresAt": end})
        )

    write_profiles(tmp_path, SSO_PROFILES)
    folder = tmp_path / ".aws" / "sso" / "cache"
    folder.mkdir(parents=True)
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", endpoints.url)
    says = f"no SSO token that is valid: run aws sso login --profile {profile!a}"
    error = refusal(sasl_aws_profile=profile)
    assert isinstance(error, AuthenticationError) and says in str(error)
    log_in("hunter2", "2020-01-01T00:00:00Z")
    assert says in str(refusal(sasl_aws_profile=profile))
    del endpoints.requests[:]
    log_in(SSO_TOKEN, "2100-01-01T00:00:00Z")
    assert who(sasl_aws_profile=profile) == ("AKIDGIVEN", "session")
    ((path, method, headers, _),) = endpoints.requests
    assert (method, "authorization" in headers) == ("GET", False)
    assert path.startswith("/federation/credentials?") and "role_name=orders" in path
    log_in("hunter2", "2100-01-01T00:00:00Z")
    assert says in str(refusal(sasl_aws_profile=profile))
    assert len(list(folder.iterdir())) == 1


def test_a_container_and_an_instance_are_asked_last(endpoints: AwsEndpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    error = refusal()
    assert isinstance(error, ConfigError) and error.name == "PKS-4009"
    assert "no AWS credentials in options, environment and ~/.aws" in str(error)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"{endpoints.url}/")
    assert who() == ("AKIDGIVEN", "session")
    assert endpoints.paths == ["/latest/api/token", ROLES, f"{ROLES}my-role"]
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{endpoints.url}/container")
    error = refusal()
    assert isinstance(error, AuthenticationError) and "no AWS credentials by container-role" in str(error)
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", CONTAINER_TOKEN)
    del endpoints.requests[:]
    assert who() == ("AKIDGIVEN", "session")
    assert endpoints.paths == ["/container"]


@pytest.mark.parametrize("url", ["http://example.org/c", "file:///etc/passwd"])
def test_the_authorization_token_of_a_container_goes_to_its_host_alone(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)
    assert "botocore got no AWS credentials (ValueError)" in str(refusal())


GIVEN = {"AccessKeyId": "AKID", "SecretAccessKey": "hunter2", "Token": "t", "Expiration": "2100-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((200, b"hunter2"), AuthenticationError),
        ((200, b"[]"), AuthenticationError),
        ((200, b"[" * 100_000), AuthenticationError),
        ((200, json.dumps({**GIVEN, "AccessKeyId": 7}).encode()), KafkaSinkError),
        ((200, json.dumps({**GIVEN, "SecretAccessKey": "hunter2 \n"}).encode()), ConfigError),
        ((200, json.dumps({**GIVEN, "Token": ["hunter2"]}).encode()), ConfigError),
        ((200, json.dumps({**GIVEN, "Expiration": "hunter2"}).encode()), AuthenticationError),
        ((200, json.dumps({**GIVEN, "Expiration": 5}).encode()), AuthenticationError),
        ((404, b"hunter2"), AuthenticationError),
        ((429, b"hunter2"), TransportError),
        ((503, b"hunter2"), TransportError),
    ],
)
def test_an_answer_of_a_container_without_credentials_is_told_without_its_content(
    endpoints: AwsEndpoints, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, bytes], kind: type[KafkaSinkError]
) -> None:
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{endpoints.url}/container")
    endpoints.answers += [answer] * 5
    error = refusal()
    assert isinstance(error, kind) and error.name == "PKS-4009", error


def test_a_container_that_does_not_answer_is_asked_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with AwsEndpoints() as endpoints:
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{endpoints.url}/container")
    error = refusal()
    assert isinstance(error, TransportError) and f"the endpoint {endpoints.url}/container of AWS" in str(error)


def test_the_log_of_a_command_has_no_keys_of_a_role(endpoints: AwsEndpoints) -> None:
    own = {"AWS_ACCESS_KEY_ID": "AKIDOWN", "AWS_SECRET_ACCESS_KEY": "hunter2", "AWS_REGION": "eu-west-1"}
    jaas = f'{IAM} awsRoleArn="{ROLE}";'
    options = {"security.protocol": "SASL_SSL", "sasl.mechanism": "AWS_MSK_IAM", "sasl.jaas.config": jaas}
    words = ["ledger", "-v", "--timeout", "1", "--bootstrap-server", "127.0.0.1:1"]
    words += [word for name, value in options.items() for word in ("--option", f"kafka.{name}={value}")]
    done = subprocess.run(
        [sys.executable, "-m", "kafka_sink", *words],
        env={**os.environ, **own, "AWS_ENDPOINT_URL_STS": endpoints.url},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 3 and set(endpoints.paths) == {"/"} and "DEBUG:kafka_sink:" in done.stderr
    assert not any(secret in done.stderr for secret in ("hunter2", *endpoints.keys.values()))


def sts_error(code: str) -> bytes:
    return f"<ErrorResponse><Error><Code>{code}</Code><Message>hunter2</Message></Error></ErrorResponse>".encode()


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        ((403, sts_error("AccessDenied")), AuthenticationError,
         "AssumeRole of AWS answered 403 (AccessDenied): check the role"),
        ((403, sts_error("hunter2 !")), AuthenticationError, "AssumeRole of AWS answered 403: check"),
        ((200, b"x" * 1_000_000), AuthenticationError, "botocore got no AWS credentials"),
        ((200, b"<AccessKeyId>A</AccessKeyId>hunter2"), AuthenticationError, "botocore got no AWS credentials"),
        ((200, b"<a><b>hunter2</b></a>"), AuthenticationError, "botocore got no AWS credentials"),
        ((302, b""), AuthenticationError, "botocore got no AWS credentials"),
        ((400, sts_error("Throttling")), TransportError,
         "answered 400 (Throttling); it is asked again"),
        ((503, b"<html>hunter2</html>"), TransportError, "answered 503; it is asked again"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_profile", [False, True])
def test_an_answer_of_sts_without_credentials_is_told_without_its_content(
    endpoints: AwsEndpoints,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    answer: tuple[int, bytes],
    kind: type[KafkaSinkError],
    says: str,
    is_profile: bool,
) -> None:
    """STS gets one request: sasl.login.retry.backoff.ms decides about the next one."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoints.url)
    endpoints.answers += [answer] * 5
    keys = "aws_access_key_id = AKIDOWN\naws_secret_access_key = hunter2\n"
    write_profiles(tmp_path, f"[profile p]\nrole_arn = {ROLE}\nsource_profile = q\n[profile q]\n{keys}")
    error = refusal(**({"sasl_aws_profile": "p"} if is_profile else {**KEYS_OF_OPTIONS, "sasl_aws_role_arn": ROLE}))
    assert isinstance(error, kind) and says in str(error), error
    assert len(endpoints.requests) == 1
    # botocore, which would log the text of the endpoint, must not do so either; its log filters are the user's.
    assert caplog.records == [] and logging.getLogger("botocore.credentials").filters == []


def test_time_limits_of_the_options_hold_for_each_client_of_sts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = "aws_access_key_id = AKIDOWN\naws_secret_access_key = hunter2\n"
    write_profiles(tmp_path, f"[profile p]\nrole_arn = {ROLE}\nsource_profile = q\n[profile q]\n{keys}")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        for more in ({"sasl_aws_profile": "p"}, {**KEYS_OF_OPTIONS, "sasl_aws_role_arn": ROLE}):
            error = refusal(**more, sasl_login_read_timeout_ms=50)
            assert isinstance(error, TransportError)
            assert f"the endpoint {url}/ of AWS did not answer: ReadTimeoutError" in str(error)


TOKEN, NAME = (200, IMDS_TOKEN.encode()), (200, b"my-role")


@pytest.mark.parametrize(
    "answers",
    [
        [(200, b"")],
        [(200, b"\n")],
        [(200, b"\xff\xfe")],
        [(200, b"hunter2" * 70_000)],
        [(200, b"\x01\r\nX-Injected: hunter2")],
        [TOKEN, (200, b"hunter2")],
        [TOKEN, (200, b"../hunter2?\r\n")],
        [TOKEN, NAME, (200, b"[" * 100_000)],
        [TOKEN, NAME, (200, b"5")],
        [TOKEN, NAME, (200, b'{"Code": "Failed", "Message": "hunter2"}')],
        [TOKEN, NAME, (200, json.dumps({**GIVEN, "Expiration": "hunter2"}).encode())],
        [TOKEN, (404, b"hunter2")],
    ],
)
def test_hostile_metadata_is_told_without_its_content(
    endpoints: AwsEndpoints, monkeypatch: pytest.MonkeyPatch, answers: list[tuple[int, bytes]]
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoints.url)
    monkeypatch.setattr(endpoints, "answer", lambda *_: (404, b""))
    endpoints.answers += answers
    error = refusal()
    assert isinstance(error, (TransportError, AuthenticationError)) and error.name == "PKS-4009", error


def test_no_answer_of_an_instance_says_where_was_looked_and_may_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_profiles(tmp_path, f"[profile f]\nrole_arn = {ROLE}\ncredential_source = Ec2InstanceMetadata\n")
    with AwsEndpoints() as endpoints:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoints.url)
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    error = refusal()
    assert isinstance(error, TransportError)
    assert "no AWS credentials in options, environment and ~/.aws, no container, and the instance" in str(error)
    assert isinstance(refusal(sasl_aws_profile="f"), TransportError)
    monkeypatch.setenv("AWS_EC2_METADATA_V1_DISABLED", "true")
    assert isinstance(refusal(), TransportError)


def test_an_instance_is_asked_again_before_its_credentials_end(
    endpoints: AwsEndpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """botocore extends the life of credentials that are about to end; a timer that relies on this is too late."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoints.url)
    monkeypatch.setattr(botocore.utils, "random", SimpleNamespace(randint=lambda least, _most: least))
    endpoints.life_s = 1000
    given_end_s = time.time() + endpoints.life_s
    end_s = get_credentials(options()).end_s
    assert end_s is not None and end_s < given_end_s


def test_credentials_are_renewed_behind_the_scenes(
    endpoints: AwsEndpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "token").write_text("hunter2.jwt")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", endpoints.url)
    endpoints.life_s = 20
    window = {"sasl_login_refresh_window_factor": 0.5, "sasl_login_refresh_window_jitter": 0}
    caplog.set_level(logging.DEBUG, "kafka_sink")
    new_exchange = made(options(**window, sasl_login_refresh_buffer_seconds=0, sasl_login_refresh_min_period_seconds=0))
    assert b"AKIDGIVEN" in new_exchange(HOST).first() and len(endpoints.requests) == 1
    endpoints.keys = {"AKIDLATER": "x"}
    endpoints.answers.append((503, b"<html>hunter2</html>"))
    deadline_s = time.monotonic() + WAIT_S
    while b"AKIDLATER" not in new_exchange(HOST).first():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    assert "no new AWS credentials, the current one is still used: AssumeRoleWithWebIdentity" in caplog.text
    assert "hunter2" not in caplog.text and "botocore" not in {record.name.split(".")[0] for record in caplog.records}


def test_the_region_is_that_of_the_option_the_host_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"sasl_aws_access_key_id": "A123", "sasl_aws_secret_access_key": "x"}
    error = refusal(host="broker", **keys)
    assert isinstance(error, ConfigError) and "the host name broker says no region of AWS" in str(error)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-2")
    for more, host, region in (
        ({}, "broker", "us-east-2"),
        ({}, HOST, "eu-west-1"),
        ({"sasl_aws_region": "me-south-1"}, HOST, "me-south-1"),
    ):
        assert message(host, **keys, **more)["x-amz-credential"].split("/")[2] == region


# ---- brokers ---------------------------------------------------------------------------------------------------

KEYS = {"AKIDEXAMPLE": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
ENABLED = {"sasl.enabled.mechanisms": "AWS_MSK_IAM"}


def settings(kafka: EmbeddedBroker, secret: str = KEYS["AKIDEXAMPLE"]) -> dict[str, Any]:
    return {
        "bootstrap.servers": kafka.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": f"{IAM};",
        "sasl.client.callback.handler.class": HANDLER,
        "sasl.aws.region": "eu-west-1",
        "sasl.aws.access.key.id": "AKIDEXAMPLE",
        "sasl.aws.secret.access.key": secret,
    }


def test_a_broker_that_verifies_signatures_is_written_to_over_several_sessions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    properties = {**ENABLED, "connections.max.reauth.ms": "1500"}
    with EmbeddedBroker(2, topics={"events": 2}, access_keys=KEYS, properties=properties) as kafka:
        chosen = {**settings(kafka), "transactional.id": "t"}
        with caplog.at_level(logging.DEBUG, "kafka_sink"), Producer(chosen) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for number in range(20):
                producer.send("events", value=b"%d" % number).result(WAIT_S)
                time.sleep(0.15)
            producer.commit_transaction()
        ends = kafka.do(lambda core: [each.log.end_offset for each in core.cluster.topics["events"].partitions])
    assert sum(ends) >= 20 and "new session with" in caplog.text
    assert KEYS["AKIDEXAMPLE"] not in caplog.text


def test_a_wrong_secret_is_refused_at_once_with_what_to_check() -> None:
    with (
        EmbeddedBroker(topics={"events": 1}, access_keys=KEYS, properties=ENABLED) as kafka,
        Producer(settings(kafka, "hunter2")) as producer,
        pytest.raises(AuthenticationError) as caught,
    ):
        producer.send("events", value=b"never").result(WAIT_S)
    text = str(caught.value)
    assert "refused the credentials for AWS_MSK_IAM: SASL_AUTHENTICATION_FAILED (58)" in text
    assert "Access denied" in text and "kafka-cluster:Connect" in text and "hunter2" not in text


@pytest.mark.kafka
@pytest.mark.parametrize("secret", [KEYS["AKIDEXAMPLE"], "wrong"])
def test_amazons_own_library_for_java_gets_in_by_the_same_check(secret: str) -> None:
    """Shows that the broker's check is right: it accepts and refuses Amazon's client like ours."""
    try:
        jars = msk_iam_jars()
    except KafkaUnavailable as missing:
        without_kafka(str(missing))
    # Java looks up the name of an address and signs for the name, so the test uses a name from the start.
    with EmbeddedBroker(topics={"events": 1}, access_keys=KEYS, properties=ENABLED, host="localhost") as kafka:
        theirs = {name: value for name, value in settings(kafka).items() if not name.startswith("sasl.aws.")}
        theirs |= {"delivery.timeout.ms": "9000", "request.timeout.ms": "8000", "linger.ms": "0"}
        arguments = ["--topic", "events", "--num-records", "10", "--record-size", "10", "--throughput", "-1"]
        arguments += ["--producer-props", *(f"{name}={value}" for name, value in theirs.items())]
        environment = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "eu-west-1"}
        run_class(NEWEST, PRODUCER_PERFORMANCE, arguments, more_jars=jars, environment=environment)
        count = kafka.do(lambda core: core.cluster.topics["events"].partitions[0].log.end_offset)
    assert count == (0 if secret == "wrong" else 10)
