"""What AWS offers in a region: types of machines, images, networks; and the plan of a cluster."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from slipstream.cluster.providers.aws.api import AwsApi
from slipstream.cluster.providers.aws.prices import AwsPrices
from slipstream.cluster.providers.cloud import ClusterPlan
from slipstream.cluster.providers.protocol import ClusterRequest, MachineOffer
from slipstream.errors import UsageError

# Canonical's account, which publishes Ubuntu.
UBUNTU_OWNER = "099720109477"
# Publishers whose images may be chosen by name; anybody can publish one under a name of theirs.
TRUSTED_OWNERS = ("self", "amazon", UBUNTU_OWNER)
UBUNTU_NAME = "ubuntu/images/hvm-ssd*/ubuntu-*-2?.04-{machine}-server-*"
# User names of images that are not Ubuntu, by the beginning of their names.
_LOGINS = {"amzn": "ec2-user", "al20": "ec2-user", "RHEL": "ec2-user", "debian": "admin"}
_MACHINES = {"x86_64": "amd64", "arm64": "arm64"}


class AwsCatalogue:
    """The offers of one region.

    Args:
        api: Clients of the region.
    """

    def __init__(self, api: AwsApi) -> None:
        self._api = api
        self._prices = AwsPrices(api)

    def plan(self, request: ClusterRequest) -> ClusterPlan:
        """Check a request and fill in its zone, image and price.

        Raises:
            UsageError: the region has no such type, zone, image or network.
        """
        described = self._described(request.instance_type)
        image = self._image(request.image, described["ProcessorInfo"]["SupportedArchitectures"])
        given = self._given(request)
        zone = given.pop("zone", "") or self._zone(request)
        price, source = self._price(request)
        return ClusterPlan(
            request=replace(request, zone=zone),
            image=image["ImageId"],
            login="root" if request.as_root else _login(image["Name"]),
            price_per_hour=price,
            price_source=source,
            given=given,
            facts={
                "root_device": image["RootDeviceName"],
                "has_gpu": _gpu(described)[0] > 0,
                "user": _login(image["Name"]),
            },
        )

    def offers(self, pattern: str) -> list[MachineOffer]:
        """Return the types of machines whose name or GPU contains a text, by price."""
        types = self._api.items("ec2", "DescribeInstanceTypes", "InstanceTypes")
        named = {item["InstanceType"]: item for item in types}
        chosen = {
            name: item
            for name, item in named.items()
            if pattern.lower() in f"{name} {_gpu(item)[1]}".lower()
        }
        if not chosen:
            return []
        prices, source = self._prices.on_demand(pattern if list(chosen) == [pattern] else "")
        spot = self._prices.spot(list(chosen))
        offers = [
            _offer(item, prices.get(name), spot.get(name), source) for name, item in chosen.items()
        ]
        return sorted(offers, key=lambda offer: (offer.price is None, offer.price or 0.0))

    def images(self, pattern: str) -> list[tuple[str, str]]:
        """Return identifiers and names of own images, Amazon's and Ubuntu's, the newest first."""
        listed = self._named_images(f"*{pattern}*")
        return [(item["ImageId"], item["Name"]) for item in listed]

    def _price(self, request: ClusterRequest) -> tuple[float | None, str]:
        name = request.instance_type
        if request.is_spot:
            price = self._prices.spot([name]).get(name)
            return price, "the present spot price" if price else f"no spot price of {name} is known"
        prices, source = self._prices.on_demand(name)
        return prices.get(name), source if name in prices or not prices else f"no price of {name}"

    def _described(self, name: str) -> Mapping[str, Any]:
        filters = [{"Name": "instance-type", "Values": [name]}]
        found = self._api.items("ec2", "DescribeInstanceTypes", "InstanceTypes", Filters=filters)
        if found:
            return found[0]
        types = self._api.items("ec2", "DescribeInstanceTypes", "InstanceTypes")
        close = difflib.get_close_matches(name, [item["InstanceType"] for item in types], 3)
        raise UsageError(
            f"AWS has no type of machine {name!r} in {self._api.region}"
            f"{'; similar: ' + ', '.join(close) if close else ''}; list them with: slipstream"
            " cluster gpus"
        )

    def _zone(self, request: ClusterRequest) -> str:
        filters = [{"Name": "instance-type", "Values": [request.instance_type]}]
        listed = self._api.items(
            "ec2",
            "DescribeInstanceTypeOfferings",
            "InstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=filters,
        )
        zones = sorted(item["Location"] for item in listed)
        if not zones or (request.zone and request.zone not in zones):
            raise UsageError(
                f"{request.zone or self._api.region} has no machines of type"
                f" {request.instance_type}; zones that have: {', '.join(zones) or 'none'}"
            )
        return request.zone or zones[0]

    def _image(self, wanted: str, architectures: Sequence[str]) -> Mapping[str, Any]:
        machine = next((_MACHINES[name] for name in architectures if name in _MACHINES), "amd64")
        if wanted.startswith("ami-"):
            found = self._images(Filters=[{"Name": "image-id", "Values": [wanted]}])
        elif wanted:
            found = self._named_images(wanted)
        else:
            found = self._named_images(UBUNTU_NAME.format(machine=machine), UBUNTU_OWNER)
        if not found:
            raise UsageError(
                f"AWS has no image {wanted or 'of Ubuntu'!r} in {self._api.region}; list"
                " images with: slipstream cluster images"
            )
        return found[0]

    def _named_images(self, name: str, *owners: str) -> list[Mapping[str, Any]]:
        """Return images of trusted publishers with a name that may have asterisks."""
        filters = [{"Name": "name", "Values": [name]}]
        return self._images(Owners=list(owners or TRUSTED_OWNERS), Filters=filters)

    def _images(self, **arguments: Any) -> list[Mapping[str, Any]]:
        """Return images, the newest first."""
        found = self._api.items("ec2", "DescribeImages", "Images", **arguments)
        return sorted(found, key=lambda item: item.get("CreationDate", ""), reverse=True)

    def _given(self, request: ClusterRequest) -> dict[str, str]:
        """Return the network of the user that the cluster uses, with its subnet and its zone."""
        if not request.network:
            return {}
        by = "vpc-id" if request.network.startswith("vpc-") else "tag:Name"
        filters = [{"Name": by, "Values": [request.network]}]
        networks = self._api.items("ec2", "DescribeVpcs", "Vpcs", Filters=filters)
        if len(networks) != 1:
            raise UsageError(
                f"{len(networks)} networks of {self._api.region} are named {request.network!r};"
                " name one by its identifier (vpc-...)"
            )
        network = networks[0]["VpcId"]
        filters = [{"Name": "vpc-id", "Values": [network]}]
        subnets = self._api.items("ec2", "DescribeSubnets", "Subnets", Filters=filters)
        zone = self._zone(request) if request.zone else ""
        fitting = [item for item in subnets if zone in ("", item["AvailabilityZone"])]
        if not fitting:
            raise UsageError(f"the network {request.network!r} has no subnet in {zone or 'a zone'}")
        subnet = min(fitting, key=lambda item: item["SubnetId"])
        ids = {"network": network, "subnet": subnet["SubnetId"], "gateway": ""}
        return {**ids, "zone": subnet["AvailabilityZone"]}


def _login(image_name: str) -> str:
    return next((user for start, user in _LOGINS.items() if image_name.startswith(start)), "ubuntu")


def _gpu(described: Mapping[str, Any]) -> tuple[int, str]:
    """Return the number of GPUs of a type and their name."""
    gpus = described.get("GpuInfo", {}).get("Gpus", [])
    return sum(gpu["Count"] for gpu in gpus), gpus[0]["Name"] if gpus else ""


def _offer(
    described: Mapping[str, Any], price: float | None, spot_price: float | None, source: str
) -> MachineOffer:
    num_gpus, gpu = _gpu(described)
    return MachineOffer(
        instance_type=described["InstanceType"],
        num_gpus=num_gpus,
        gpu=gpu,
        num_cores=described["VCpuInfo"]["DefaultVCpus"],
        memory_gib=described["MemoryInfo"]["SizeInMiB"] / 1024,
        price=price,
        spot_price=spot_price,
        price_source=source,
    )
