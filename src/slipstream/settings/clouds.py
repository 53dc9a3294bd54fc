"""The environment variables of Alibaba Cloud, under the names of its tools; AWS's are boto3's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from slipstream.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class AliyunSettings:
    """The access to one region of Alibaba Cloud.

    Args:
        key_id: Identifier of the access key.
        key_secret: Secret of the access key.
        region: Name of the region, such as "cn-hangzhou".
        security_token: Token of temporary credentials; "" (the default) for lasting ones.
        zone: Name of the zone for machines; "" (the default) for any.
        endpoint: Address that is called for all services, for tests; "" (the default) for those of
            Alibaba Cloud.
        yuan_per_dollar: Rate that converts prices in yuan; None (the default) if there is none.
    """

    key_id: str
    key_secret: str = field(repr=False)
    region: str
    security_token: str = field(default="", repr=False)
    zone: str = ""
    endpoint: str = ""
    yuan_per_dollar: float | None = None


def aliyun_settings(region: str = "", environ: Mapping[str, str] = os.environ) -> AliyunSettings:
    """Return the settings of Alibaba Cloud.

    Args:
        region: Name of the region (default "": that of ALIYUN_DEFAULT_REGION).
        environ: Environment variables (default: this process's environment).

    Raises:
        ConfigError: a variable that is needed is not set, or is no number.
    """
    region = region or environ.get("ALIYUN_DEFAULT_REGION", "")
    needed = {
        "ALIYUN_ACCESS_KEY_ID": environ.get("ALIYUN_ACCESS_KEY_ID", ""),
        "ALIYUN_ACCESS_KEY_SECRET": environ.get("ALIYUN_ACCESS_KEY_SECRET", ""),
        "ALIYUN_DEFAULT_REGION": region,
    }
    missing = [name for name, value in needed.items() if not value]
    if missing:
        raise ConfigError(
            f"Alibaba Cloud needs the environment variables {', '.join(missing)}; set them to an"
            " access key of a RAM user, and to a region such as cn-hangzhou"
        )
    return AliyunSettings(
        key_id=needed["ALIYUN_ACCESS_KEY_ID"],
        key_secret=needed["ALIYUN_ACCESS_KEY_SECRET"],
        region=region,
        security_token=environ.get("ALIYUN_SECURITY_TOKEN", ""),
        zone=environ.get("ALIYUN_DEFAULT_ZONE", ""),
        endpoint=environ.get("ALIYUN_ENDPOINT", ""),
        yuan_per_dollar=_rate(environ.get("ALIYUN_YUAN_PER_DOLLAR", "")),
    )


def _rate(text: str) -> float | None:
    if not text:
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if rate <= 0.0:
        raise ConfigError(f"ALIYUN_YUAN_PER_DOLLAR is {text!r}; set it to a rate such as 7.1")
    return rate
