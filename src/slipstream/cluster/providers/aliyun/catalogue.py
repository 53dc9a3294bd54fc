"""What Alibaba Cloud offers in a region: types, images and prices; and the plan of a cluster."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from slipstream.cluster.providers.aliyun.api import AliyunApi
from slipstream.cluster.providers.aliyun.errors import GoneError
from slipstream.cluster.providers.aliyun.machines import DISK_CATEGORY
from slipstream.cluster.providers.cloud import ClusterPlan
from slipstream.cluster.providers.protocol import ClusterRequest, MachineOffer
from slipstream.errors import UsageError

SOURCE = "Alibaba Cloud's DescribePrice, with the system disk"
# Each price is a call, so only so many of the smallest types have prices.
MAX_PRICED = 40
_UBUNTU = re.compile(r"ubuntu_(\d\d)_04_")
_ARCHITECTURES = {"X86": "x86_64", "ARM": "arm64"}
_TYPES_PER_PAGE = 100


class AliyunCatalogue:
    """The offers of one region.

    Args:
        api: Services of the region.
    """

    def __init__(self, api: AliyunApi) -> None:
        self._api = api

    def plan(self, request: ClusterRequest) -> ClusterPlan:
        """Check a request and fill in its zone, image and price.

        Raises:
            UsageError: the region has no such type, zone, image or network.
        """
        described = self._described(request.instance_type)
        given = self._given(request)
        zone = given.pop("zone", "") or self._zone(request)
        image = self._image(request.image, described)
        as_user = bool(image.get("LoginAsNonRootSupported", False)) and not request.as_root
        price, source = self._price(request.instance_type, request.is_spot, request.system_disk_gib)
        return ClusterPlan(
            request=replace(request, zone=zone),
            image=image["ImageId"],
            login="ecs-user" if as_user else "root",
            price_per_hour=price,
            price_source=source,
            given=given,
            facts={"as_user": as_user, "has_gpu": int(described.get("GPUAmount", 0)) > 0},
        )

    def offers(self, pattern: str) -> list[MachineOffer]:
        """Return the types of machines whose name or GPU contains a text, by price."""
        chosen = [
            item
            for item in self._types()
            if pattern.lower() in f"{item['InstanceTypeId']} {item.get('GPUSpec', '')}".lower()
        ]
        chosen.sort(key=lambda item: (int(item.get("GPUAmount", 0)), item["CpuCoreCount"]))
        offers = [
            self._offer(item, is_priced=position < MAX_PRICED)
            for position, item in enumerate(chosen)
        ]
        return sorted(offers, key=lambda offer: (offer.price is None, offer.price or 0.0))

    def images(self, pattern: str) -> list[tuple[str, str]]:
        """Return identifiers and names of own and public images, the newest first."""
        listed = self._images()
        return [
            (item["ImageId"], item["ImageName"]) for item in listed if pattern in item["ImageName"]
        ]

    def _offer(self, described: Mapping[str, Any], *, is_priced: bool) -> MachineOffer:
        name = described["InstanceTypeId"]
        price, source = None, f"more than {MAX_PRICED} types match: give a longer part of the name"
        spot_price = None
        if is_priced:
            price, source = self._price(name, False)
            spot_price, _ = self._price(name, True)
        return MachineOffer(
            instance_type=name,
            num_gpus=int(described.get("GPUAmount", 0)),
            gpu=described.get("GPUSpec", ""),
            num_cores=int(described["CpuCoreCount"]),
            memory_gib=float(described["MemorySize"]),
            price=price,
            spot_price=spot_price,
            price_source=source,
        )

    def _price(self, name: str, is_spot: bool, disk_gib: int = 40) -> tuple[float | None, str]:
        """Return the price of a machine in dollars for one hour, and where it comes from."""
        try:
            answer = self._api.call(
                "ecs",
                "DescribePrice",
                ResourceType="instance",
                InstanceType=name,
                PriceUnit="Hour",
                SpotStrategy="SpotAsPriceGo" if is_spot else "NoSpot",
                SystemDisk={"Category": DISK_CATEGORY, "Size": disk_gib},
            )
        except UsageError as error:
            return None, f"no price of {name} is known: {error}"
        price = answer["PriceInfo"]["Price"]
        amount, currency = float(price["TradePrice"]), price["Currency"]
        rate = self._api.settings.yuan_per_dollar
        if currency == "USD":
            return amount, SOURCE
        if currency == "CNY" and rate is not None:
            return amount / rate, f"{SOURCE}, at {rate:g} yuan a dollar"
        return None, (
            f"{name} costs {amount:g} {currency} an hour; set ALIYUN_YUAN_PER_DOLLAR to count it"
        )

    def _described(self, name: str) -> Mapping[str, Any]:
        try:
            answer = self._api.call("ecs", "DescribeInstanceTypes", InstanceTypes=[name])
            found: list[Any] = answer["InstanceTypes"]["InstanceType"]
        except GoneError:
            found = []
        if found:
            return found[0]
        types = [item["InstanceTypeId"] for item in self._types()]
        close = ", ".join(difflib.get_close_matches(name, types, 3))
        raise UsageError(
            f"Alibaba Cloud has no type of machine {name!r}; similar: {close or 'none'}; list them"
            " with: slipstream cluster gpus"
        )

    def _types(self) -> list[Any]:
        found: list[Any] = []
        token = ""
        while True:
            page = self._api.call(
                "ecs", "DescribeInstanceTypes", MaxResults=_TYPES_PER_PAGE, NextToken=token
            )
            found += page["InstanceTypes"]["InstanceType"]
            token = page.get("NextToken", "")
            if not token:
                return found

    def _zone(self, request: ClusterRequest) -> str:
        answer = self._api.call(
            "ecs",
            "DescribeAvailableResource",
            DestinationResource="InstanceType",
            InstanceType=request.instance_type,
            InstanceChargeType="PostPaid",
            SpotStrategy="SpotAsPriceGo" if request.is_spot else "NoSpot",
        )
        zones = answer.get("AvailableZones", {}).get("AvailableZone", [])
        known = sorted(zone["ZoneId"] for zone in zones)
        stocked = sorted(zone["ZoneId"] for zone in zones if _has_stock(zone))
        wanted = request.zone or self._api.settings.zone
        if not known or (wanted and wanted not in known):
            raise UsageError(
                f"{wanted or self._api.region} has no machines of type {request.instance_type};"
                f" zones that have: {', '.join(stocked) or 'none'}"
            )
        # A zone without stock is refused by the creation: a cluster may be complete already.
        return wanted or (stocked or known)[0]

    def _image(self, wanted: str, described: Mapping[str, Any]) -> Mapping[str, Any]:
        if wanted:
            by = "ImageName" if not wanted.startswith("m-") else "ImageId"
            found = self._images(**{by: wanted}) or self._images(ImageId=wanted)
        else:
            architecture = _ARCHITECTURES.get(described.get("CpuArchitecture", "X86"), "x86_64")
            found = self._images(ImageOwnerAlias="system", Architecture=architecture)
            found = sorted(filter(_ubuntu_release, found), key=_ubuntu_release, reverse=True)
        if not found:
            raise UsageError(
                f"Alibaba Cloud has no image {wanted or 'of Ubuntu'!r} in {self._api.region}; list"
                " images with: slipstream cluster images"
            )
        return found[0]

    def _images(self, **parameters: str) -> list[Mapping[str, Any]]:
        """Return images of Linux, the newest first."""
        found = self._api.items(
            "ecs", "DescribeImages", "Images", "Image", OSType="linux", **parameters
        )
        return sorted(found, key=lambda item: item["CreationTime"], reverse=True)

    def _given(self, request: ClusterRequest) -> dict[str, str]:
        """Return the network of the user that the cluster uses, with its subnet and its zone."""
        if not request.network:
            return {}
        by = "VpcId" if request.network.startswith("vpc-") else "VpcName"
        networks = self._api.items("vpc", "DescribeVpcs", "Vpcs", "Vpc", **{by: request.network})
        if len(networks) != 1:
            raise UsageError(
                f"{len(networks)} networks of {self._api.region} are named {request.network!r};"
                " name one by its identifier (vpc-...)"
            )
        network = networks[0]["VpcId"]
        subnets = self._api.items("vpc", "DescribeVSwitches", "VSwitches", "VSwitch", VpcId=network)
        zone = self._zone(request)
        fitting = [item["VSwitchId"] for item in subnets if item["ZoneId"] == zone]
        if not fitting:
            raise UsageError(f"the network {request.network!r} has no vSwitch in {zone}")
        return {"network": network, "subnet": min(fitting), "zone": zone}


def _has_stock(zone: Mapping[str, Any]) -> bool:
    """Return whether a zone has machines of the type that was asked for."""
    return zone.get("StatusCategory", zone.get("Status")) in ("WithStock", "Available")


def _ubuntu_release(image: Mapping[str, Any]) -> int:
    """Return the year of an image's release of Ubuntu with long support; 0 for another image."""
    match = _UBUNTU.match(image["ImageId"])
    year = int(match.group(1)) if match else 0
    return year if year % 2 == 0 else 0
