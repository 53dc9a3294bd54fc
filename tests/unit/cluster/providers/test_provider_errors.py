"""Error codes of both clouds become errors that say what to do."""

from __future__ import annotations

import pytest
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    ParamValidationError,
    ProfileNotFound,
)

from slipstream.cluster.providers import BusyError, cloud_provider
from slipstream.cluster.providers.aliyun.errors import GoneError
from slipstream.cluster.providers.aliyun.errors import translated as translated_aliyun
from slipstream.cluster.providers.aws.errors import AlreadySetError
from slipstream.cluster.providers.aws.errors import translated as translated_aws
from slipstream.errors import ConfigError, QuotaError, UsageError
from slipstream.settings import aliyun_settings


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        ("AuthFailure", ConfigError, "AWS_ACCESS_KEY_ID"),
        ("RequestExpired", ConfigError, "clock"),
        ("UnauthorizedOperation", ConfigError, "policies/aws.json"),
        ("InsufficientInstanceCapacity", QuotaError, "another zone"),
        ("VcpuLimitExceeded", QuotaError, "quota"),
        ("RequestLimitExceeded", QuotaError, "wait"),
        ("InternalError", QuotaError, "later"),
        ("DependencyViolation", BusyError, "DependencyViolation"),
        ("InvalidSubnetID.NotFound", BusyError, "InvalidSubnetID"),
        ("InvalidPermission.Duplicate", AlreadySetError, "Duplicate"),
        ("InvalidAMIID.NotFound", UsageError, "InvalidAMIID"),
    ],
)
def test_codes_of_aws(code: str, kind: type[Exception], advice: str) -> None:
    cause = ClientError({"Error": {"Code": code, "Message": "said AWS"}}, "RunInstances")
    error = translated_aws("ec2.RunInstances", cause)
    assert type(error) is kind
    assert str(error).startswith(f"ec2.RunInstances: said AWS ({code})")
    assert advice in str(error)


@pytest.mark.parametrize(
    ("cause", "kind", "advice"),
    [
        (NoCredentialsError(), ConfigError, "AWS_PROFILE"),
        (ProfileNotFound(profile="me"), ConfigError, "~/.aws/config"),
        (EndpointConnectionError(endpoint_url="http://x"), ConfigError, "network"),
        (ParamValidationError(report="no such"), UsageError, "no such"),
    ],
)
def test_errors_of_the_client_of_aws(cause: Exception, kind: type[Exception], advice: str) -> None:
    error = translated_aws("ec2.RunInstances", cause)
    assert type(error) is kind
    assert advice in str(error)


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        ("InvalidAccessKeyId.NotFound", ConfigError, "ALIYUN_ACCESS_KEY_ID"),
        ("SignatureDoesNotMatch", ConfigError, "ALIYUN_ACCESS_KEY_SECRET"),
        ("InvalidTimeStamp.Expired", ConfigError, "clock"),
        ("Forbidden.RAM", ConfigError, "policies/aliyun.json"),
        ("OperationDenied.NoStock", QuotaError, "another zone"),
        ("QuotaExceed.ElasticQuota", QuotaError, "Quota Center"),
        ("Throttling.User", QuotaError, "wait"),
        ("InternalError", QuotaError, "later"),
        ("DependencyViolation.VSwitch", BusyError, "VSwitch"),
        ("IncorrectInstanceStatus.Initializing", BusyError, "Initializing"),
        ("InvalidInstanceId.NotFound", GoneError, "NotFound"),
        ("MissingParameter", UsageError, "Missing"),
        ("InvalidAction.NotFound", UsageError, "InvalidAction"),
    ],
)
def test_codes_of_alibaba_cloud(code: str, kind: type[Exception], advice: str) -> None:
    error = translated_aliyun("ecs.RunInstances", code, "it said")
    assert type(error) is kind
    assert str(error).startswith(f"ecs.RunInstances: it said ({code})")
    assert advice in str(error)


def test_an_unknown_provider_is_named() -> None:
    with pytest.raises(UsageError, match=r"'gcp'.*aws, aliyun"):
        cloud_provider("gcp")


def test_settings_of_alibaba_cloud() -> None:
    environ = {
        "ALIYUN_ACCESS_KEY_ID": "id",
        "ALIYUN_ACCESS_KEY_SECRET": "secret",
        "ALIYUN_DEFAULT_REGION": "cn-hangzhou",
        "ALIYUN_DEFAULT_ZONE": "cn-hangzhou-b",
        "ALIYUN_YUAN_PER_DOLLAR": "7.2",
    }
    settings = aliyun_settings(environ=environ)
    assert (settings.region, settings.zone) == ("cn-hangzhou", "cn-hangzhou-b")
    assert settings.yuan_per_dollar == 7.2
    assert aliyun_settings("us-west-1", environ).region == "us-west-1"
    with pytest.raises(ConfigError, match=r"ACCESS_KEY_ID, .*_SECRET, ALIYUN_DEFAULT_REGION"):
        aliyun_settings(environ={})
    with pytest.raises(ConfigError, match=r"'seven'.*7\.1"):
        aliyun_settings(environ={**environ, "ALIYUN_YUAN_PER_DOLLAR": "seven"})
