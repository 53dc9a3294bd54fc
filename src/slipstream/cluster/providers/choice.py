"""The choice of a provider by its name; its packages are imported only then."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from slipstream.cluster.providers.cloud_provider import CloudProvider
from slipstream.cluster.providers.pace import Pace
from slipstream.cluster.providers.protocol import ClusterMachine
from slipstream.errors import UnsupportedError, UsageError

# Module and class of each cloud.
CLOUDS = {
    "aws": ("slipstream.cluster.providers.aws.cloud", "AwsCloud"),
    "aliyun": ("slipstream.cluster.providers.aliyun.cloud", "AliyunCloud"),
}


def cloud_provider(
    name: str,
    region: str = "",
    *,
    pace: Pace | None = None,
    address_of: Callable[[ClusterMachine], str] | None = None,
) -> CloudProvider:
    """Return a provider in one region.

    Args:
        name: Name of the provider: "aws" or "aliyun".
        region: Name of the region (default "": that of the provider's environment variables).
        pace: Times of waiting (default `Pace()`).
        address_of: Function that returns the address of a machine for ssh (default None: the
            address that the cloud states).

    Raises:
        UsageError: there is no such provider.
        ConfigError: credentials or region are not set.
        UnsupportedError: a package of the provider is not installed.
    """
    if name not in CLOUDS:
        raise UsageError(f"there is no provider {name!r}; choose one of: {', '.join(CLOUDS)}")
    module, cloud = CLOUDS[name]
    try:
        make = getattr(importlib.import_module(module), cloud)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("slipstream"):
            raise
        raise UnsupportedError(
            f"the provider {name} needs the package {error.name}; pip install 'slipstream[{name}]'"
        ) from error
    return CloudProvider(make(region), pace, address_of)
