"""Alibaba Cloud's error codes, translated into errors that say what to do."""

from __future__ import annotations

from slipstream.cluster.providers.pace import BusyError
from slipstream.errors import ConfigError, QuotaError, SlipstreamError, UsageError

_THROTTLED = ("Throttling", "ServiceUnavailable", "QpsLimitExceeded")
_CREDENTIALS = (
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidSecurityToken",
    "MissingSecurityToken",
    "SignatureDoesNotMatch",
)
_CLOCK = ("InvalidTimeStamp", "IllegalTimestamp", "SignatureNonceUsed")
_REFUSED = ("Forbidden", "NoPermission", "UnauthorizedOperation", "RealNameAuthenticationError")
_CAPACITY = ("NoStock", "InsufficientCapacity", "ResourceNotAvailable", "Zone.NotOnSale")
_QUOTA = ("QuotaExceed", "LimitExceed", "ElasticQuota", "InstanceQuota")
_BUSY = (
    "CannotRelease",
    "Conflict",
    "DependencyViolation",
    "IncorrectDiskStatus",
    "IncorrectInstanceStatus",
    "IncorrectStatus",
    "IncorrectVSwitchStatus",
    "IncorrectVpcStatus",
    "InvalidStatus",
    "OperationConflict",
    "TaskConflict",
    "VolumeUnavailable",
)
_GONE = ("NotFound", "NotExist")


class GoneError(UsageError):
    """Go on: the resource is gone. Where it was named by the user, its name is wrong."""


def is_throttled(code: str) -> bool:
    """Return whether a call was refused because there are too many."""
    return code.startswith(_THROTTLED)


def translated(call: str, code: str, message: str) -> SlipstreamError:
    """Return the error that says what to do after a call failed.

    Args:
        call: Name of the call, such as "ecs.RunInstances".
        code: Code of the error.
        message: Message of the error.
    """
    text = f"{call}: {message} ({code})"
    if code.startswith(_CLOCK):
        return ConfigError(f"{text}; this machine's clock is wrong: set it, for instance by NTP")
    if code.startswith(_CREDENTIALS):
        return ConfigError(
            f"{text}; the access key is wrong: check ALIYUN_ACCESS_KEY_ID and"
            " ALIYUN_ACCESS_KEY_SECRET"
        )
    if code.startswith(_REFUSED):
        return ConfigError(
            f"{text}; attach the policy slipstream/cluster/providers/policies/aliyun.json to this"
            " RAM user"
        )
    if code.startswith(_BUSY):
        return BusyError(text)
    return _refusal(code, text)


def _refusal(code: str, text: str) -> SlipstreamError:
    """Return the error of a request that is not fulfilled now, or never."""
    if any(part in code for part in _CAPACITY):
        return QuotaError(f"{text}; try another zone, another type of machine, or later")
    if any(part in code for part in _QUOTA):
        return QuotaError(
            f"{text}; a quota of this account is used up: ask for fewer machines, delete what is"
            " not needed (slipstream cluster gc), or ask for more in the Quota Center"
        )
    if is_throttled(code):
        return QuotaError(f"{text}; it still refused after several tries: wait, and call again")
    if code.startswith("InternalError"):
        return QuotaError(f"{text}; Alibaba Cloud has a problem: call again later")
    if any(part in code for part in _GONE) and not code.startswith("InvalidAction"):
        return GoneError(text)
    return UsageError(text)
