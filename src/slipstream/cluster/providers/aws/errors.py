"""AWS's error codes, translated into errors that say what to do."""

from __future__ import annotations

from typing import Any, cast

from botocore.exceptions import (  # pyright: ignore[reportMissingTypeStubs]
    ClientError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)

from slipstream.cluster.providers.pace import BusyError
from slipstream.errors import ConfigError, QuotaError, SlipstreamError, UsageError

_CREDENTIALS = {
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "MissingAuthenticationToken",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
_CLOCK = {"RequestExpired", "RequestInTheFuture", "RequestTimeTooSkewed"}
_REFUSED = {"AccessDenied", "AccessDeniedException", "Blocked", "OptInRequired"} | {
    "PendingVerification",
    "UnauthorizedOperation",
}
_CAPACITY = {"InsufficientHostCapacity", "InsufficientInstanceCapacity", "SpotMaxPriceTooLow"}
_THROTTLED = {
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
}
_BUSY = {
    "DependencyViolation",
    "FileSystemInUse",
    "IncorrectFileSystemLifeCycleState",
    "IncorrectInstanceState",
    "IncorrectState",
    "InvalidGroup.InUse",
    "InvalidPlacementGroup.InUse",
    "VolumeInUse",
}
# Resources that were created a moment ago, and are not known everywhere yet.
_NEW = (
    "InvalidVpcID",
    "InvalidSubnetID",
    "InvalidSubnetId",
    "InvalidGroup",
    "InvalidInstanceID",
    "InvalidInternetGatewayID",
    "InvalidInternetGatewayId",
    "InvalidKeyPair",
    "InvalidRouteTableID",
)


class AlreadySetError(SlipstreamError):
    """Go on: the setting is there, or the resource is gone."""


_ALREADY = {
    "FileSystemNotFound",
    "Gateway.NotAttached",
    "InvalidPermission.Duplicate",
    "InvalidVolume.NotFound",
    "MountTargetConflict",
    "Resource.AlreadyAssociated",
    "RouteAlreadyExists",
}


def translated(call: str, error: Exception) -> SlipstreamError:
    """Return the error that says what to do after a call failed.

    Args:
        call: Name of the call, such as "ec2.RunInstances".
        error: Error of botocore.
    """
    if isinstance(error, ClientError):
        response = cast(Any, error).response
        code, message = response["Error"].get("Code", ""), response["Error"].get("Message", "")
        return _translated_code(call, code, message)
    if isinstance(error, (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError)):
        return ConfigError(
            f"{call}: no credentials of AWS: {error}; set AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        )
    if isinstance(error, ProfileNotFound):
        return ConfigError(f"{call}: {error}; set AWS_PROFILE to a profile in ~/.aws/config")
    if isinstance(error, (EndpointConnectionError, HTTPClientError)):
        return ConfigError(
            f"{call}: AWS cannot be reached: {error}; check the network, AWS_DEFAULT_REGION and"
            " AWS_ENDPOINT_URL"
        )
    return UsageError(f"{call}: {error}")


def _translated_code(call: str, code: str, message: str) -> SlipstreamError:
    text = f"{call}: {message} ({code})"
    is_skew = code in _CLOCK or (code == "SignatureDoesNotMatch" and "expired" in message.lower())
    if is_skew:
        return ConfigError(f"{text}; this machine's clock is wrong: set it, for instance by NTP")
    if code in _CREDENTIALS:
        return ConfigError(
            f"{text}; the credentials are wrong or have expired: check AWS_ACCESS_KEY_ID,"
            " AWS_SECRET_ACCESS_KEY and AWS_PROFILE"
        )
    if code in _REFUSED:
        return ConfigError(
            f"{text}; attach the policy slipstream/cluster/providers/policies/aws.json to this user"
        )
    if code in _ALREADY:
        return AlreadySetError(text)
    if code in _BUSY or (code.endswith(".NotFound") and code.startswith(_NEW)):
        return BusyError(text)
    return _refusal(code, text)


def _refusal(code: str, text: str) -> SlipstreamError:
    """Return the error of a request that is not fulfilled now, or never."""
    if code in _CAPACITY:
        return QuotaError(f"{text}; try another zone, another type of machine, or later")
    if code in _THROTTLED:
        return QuotaError(f"{text}; AWS still refused after several tries: wait, and call again")
    if code.endswith(("LimitExceeded", "QuotaExceeded")):
        return QuotaError(
            f"{text}; a quota of this account is used up: ask for fewer machines, delete what is"
            " not needed (slipstream cluster gc), or ask AWS for more in Service Quotas"
        )
    if code in (
        "InternalError",
        "InternalFailure",
        "ServiceUnavailable",
        "Unavailable",
        "500",
        "503",
    ):
        return QuotaError(f"{text}; AWS has a problem: call again later")
    return UsageError(text)
