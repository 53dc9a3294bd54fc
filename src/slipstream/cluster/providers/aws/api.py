"""Calls of AWS's API: one way in, where calls are counted, repeated and their errors translated.

boto3 finds credentials and addresses in its own places: AWS_ACCESS_KEY_ID, AWS_PROFILE,
AWS_ENDPOINT_URL, the files in ~/.aws, or the role of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import boto3  # pyright: ignore[reportMissingTypeStubs]
import botocore  # pyright: ignore[reportMissingTypeStubs]
import botocore.config  # pyright: ignore[reportMissingTypeStubs]
from botocore.exceptions import (  # pyright: ignore[reportMissingTypeStubs]
    BotoCoreError,
    ClientError,
)

from slipstream.cluster.outside import outside
from slipstream.cluster.providers.aws.errors import translated
from slipstream.errors import ConfigError

# boto3 repeats refused and lost calls itself, with a back-off and random pauses.
_MAX_ATTEMPTS = 8
# The names of the fields that continue a list, where they are not NextToken.
_MARKERS = {"efs": ("NextMarker", "Marker")}


class AwsApi:
    """The clients of one region.

    Args:
        region: Name of the region; "" for the region that boto3 is configured for.
        max_attempts: Number of times that a call is tried (default 8).

    Raises:
        ConfigError: no region is known.
    """

    def __init__(self, region: str = "", max_attempts: int = _MAX_ATTEMPTS) -> None:
        self._session = _made(lambda: cast(Any, boto3.Session(region_name=region or None)))
        self._config = botocore.config.Config(
            retries={"mode": "standard", "max_attempts": max_attempts},
            connect_timeout=10,
            read_timeout=60,
            user_agent_extra="slipstream",
        )
        self._clients: dict[str, Any] = {}
        self.region: str = self._session.region_name or ""
        if not self.region:
            raise ConfigError(
                "no region of AWS is chosen; set AWS_DEFAULT_REGION, such as us-east-1, or name one"
            )

    def call(self, service: str, operation: str, **arguments: Any) -> Mapping[str, Any]:
        """Return the response of one call.

        Args:
            service: Name of the service, such as "ec2".
            operation: Name of the operation, such as "RunInstances".
            arguments: Arguments of the operation.

        Raises:
            BusyError: the call must be repeated later.
            UsageError: the request can never be fulfilled.
            ConfigError: credentials, clock, permissions, region or address are wrong.
            QuotaError: a quota is used up, or no such machine is left.
        """
        client = self._client(service)
        method = getattr(client, cast(Any, botocore).xform_name(operation))
        with outside(f"{service}.{operation}"):
            try:
                return method(**arguments)
            except (ClientError, BotoCoreError) as error:
                failure = translated(f"{service}.{operation}", error)
        raise failure

    def items(self, service: str, operation: str, field: str, **arguments: Any) -> list[Any]:
        """Return the items of all pages of a list.

        Args:
            service: Name of the service.
            operation: Name of the operation.
            field: Name of the field of the response that has the items.
            arguments: Arguments of the operation.
        """
        out, into = _MARKERS.get(service, ("NextToken", "NextToken"))
        found: list[Any] = []
        marker: dict[str, Any] = {}
        while True:
            page = self.call(service, operation, **arguments, **marker)
            found += page[field]
            if not page.get(out):
                return found
            marker = {into: page[out]}

    def _client(self, service: str) -> Any:
        if service not in self._clients:
            # Prices of all regions are served in one.
            region = "us-east-1" if service == "pricing" else self.region
            self._clients[service] = _made(
                lambda: self._session.client(service, region_name=region, config=self._config)
            )
        return self._clients[service]


def _made(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except BotoCoreError as error:
        raise translated("boto3", error) from error
