"""Programs in the place of clouds, and the machines that they list."""

import base64
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import boto3  # pyright: ignore[reportMissingTypeStubs]
from aliyun_server import FAKE, aliyun_environment, steer
from moto_server import SERVER, aws_environment

PRICES = """\
import sys; sys.path.insert(0, sys.argv[1])
from fake_aws_prices import PriceListHandler, ThreadingHTTPServer
ThreadingHTTPServer(("0.0.0.0", int(sys.argv[2])), PriceListHandler).serve_forever()
"""


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A machine as the cloud lists it.

    Attributes:
        external_id: The cloud's identifier.
        is_on: Whether the machine should run.
        address: Address for everybody.
        inner_address: Address for the other machines.
        key: Public ssh key.
        deadline_at: Time in seconds since 1970 at which it powers itself off, from its script.
    """

    external_id: str
    is_on: bool
    address: str
    inner_address: str
    key: str
    deadline_at: float


class ListedMachines(Protocol):
    """The machines of a cloud, as a test sees them."""

    def listed(self) -> list[Listed]:
        """Return all machines that have not ended."""
        ...

    def end(self, external_id: str) -> None:
        """End a machine that has powered itself off, or is taken away."""


class CloudStandIn(Protocol):
    """A program in the place of a cloud."""

    @property
    def port(self) -> int:
        """Port of the program on its host."""
        ...

    @property
    def services(self) -> Sequence[str]:
        """Command lines of the program, and of those beside it."""
        ...

    @property
    def environ(self) -> Mapping[str, str]:
        """Variables of its clients."""
        ...

    def machines(self) -> ListedMachines:
        """Return its machines; called in the network of its host."""
        ...


class MotoStandIn:
    """The server of moto in the place of AWS, with a fake of the price list beside it."""

    port, price_port = 5000, 5002
    services = (
        f"{SERVER} -H 0.0.0.0 -p {port}",
        shlex.join((sys.executable, "-c", PRICES, str(Path(__file__).parent), str(price_port))),
    )

    def __init__(self, address: str) -> None:
        self._url = f"http://{address}:{self.port}"
        prices = {"AWS_ENDPOINT_URL_PRICING": f"http://{address}:{self.price_port}"}
        self.environ = {**aws_environment(self._url), **prices}

    def machines(self) -> "MotoMachines":
        """Return its machines."""
        return MotoMachines(self._url)


class AliyunStandIn:
    """The fake of Alibaba Cloud.

    Args:
        address: Address of its host.
        program: Program that starts the fake, with a port and an address as arguments.
        region: Name of the region.
    """

    port = 5001

    def __init__(self, address: str, program: Path = FAKE, region: str = "cn-test") -> None:
        self._url = f"http://{address}:{self.port}"
        self.services = (f"{sys.executable} {program} {self.port} 0.0.0.0",)
        self.environ = {**aliyun_environment(self._url), "ALIYUN_DEFAULT_REGION": region}

    def machines(self) -> "AliyunMachines":
        """Return its machines."""
        return AliyunMachines(self._url)


class AliyunMachines:
    """The machines that the fake of Alibaba Cloud lists."""

    def __init__(self, url: str) -> None:
        self._url = url

    def listed(self) -> list[Listed]:
        """Return all machines that have not ended."""
        items = steer(self._url, "machines")
        deadlines = [deadline_in(item.pop("script")) for item in items]
        return [Listed(**item, deadline_at=at) for item, at in zip(items, deadlines, strict=True)]

    def end(self, external_id: str) -> None:
        """End a machine that has powered itself off, or is taken away."""
        steer(self._url, "end", external_id=external_id)


class MotoMachines:
    """The machines that moto's server lists."""

    def __init__(self, url: str) -> None:
        variables = aws_environment(url)
        self.client: Any = boto3.client(  # pyright: ignore[reportUnknownMemberType]
            "ec2",
            endpoint_url=url,
            region_name=variables["AWS_DEFAULT_REGION"],
            aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        )
        self._deadlines: dict[str, float] = {}

    def listed(self) -> list[Listed]:
        """Return all machines that have not ended."""
        pairs = self.client.describe_key_pairs(IncludePublicKey=True)["KeyPairs"]
        keys = {pair["KeyName"]: pair["PublicKey"] for pair in pairs}
        pages = self.client.get_paginator("describe_instances").paginate()
        instances = [
            item for page in pages for made in page["Reservations"] for item in made["Instances"]
        ]
        return [
            Listed(
                external_id=item["InstanceId"],
                is_on=item["State"]["Name"] in ("pending", "running"),
                address=item.get("PublicIpAddress", ""),
                inner_address=item["PrivateIpAddress"],
                key=keys.get(item.get("KeyName", ""), ""),
                deadline_at=self._deadline(item["InstanceId"]),
            )
            for item in instances
            if item["State"]["Name"] not in ("shutting-down", "terminated")
        ]

    def end(self, external_id: str) -> None:
        """End a machine that has powered itself off, or is taken away."""
        self.client.terminate_instances(InstanceIds=[external_id])

    def _deadline(self, external_id: str) -> float:
        if external_id not in self._deadlines:
            answer = self.client.describe_instance_attribute(
                InstanceId=external_id, Attribute="userData"
            )
            script = answer["UserData"].get("Value", "")
            text = base64.b64decode(script).decode()
            self._deadlines[external_id] = deadline_in(text)
        return self._deadlines[external_id]


def deadline_in(script: str) -> float:
    """Return the time in seconds since 1970 at which the script of a machine powers it off."""
    found = re.search(r"echo (\d+) > /etc/slipstream-deadline", script)
    return float(found[1]) if found else float("inf")
