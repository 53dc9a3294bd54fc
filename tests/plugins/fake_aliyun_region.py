"""The actions of ECS, VPC and NAS in a fake region of Alibaba Cloud."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from fake_aliyun_resources import (
    KINDS_OF_ECS,
    LISTS,
    FakeResources,
    Item,
    Parameters,
    RefusalError,
    numbered,
    tags_of,
)

ZONES = ("cn-test-a", "cn-test-b")
TYPES = {
    "ecs.gn6i-c4g1.xlarge": (4, 15, 1, "NVIDIA T4", 0.8),
    "ecs.gn7-c12g1.3xlarge": (12, 94, 1, "NVIDIA A100", 4.1),
    "ecs.c6.large": (2, 4, 0, "", 0.07),
}
IMAGES = ("ubuntu_20_04_x64_20G_alibase_20230101.vhd", "ubuntu_22_04_x64_20G_alibase_20240101.vhd")


class Region(FakeResources):
    """The actions, one method each."""

    def __init__(self) -> None:
        super().__init__()
        self.currency = "USD"

    def answer(self, action: str, parameters: Parameters) -> Any:
        if action in LISTS:
            return self.list_items(action, parameters)
        method: Callable[[Parameters], Any] | None = getattr(self, snake_case(action), None)
        if method is None:
            raise RefusalError("InvalidAction.NotFound", f"{action} is not known to this fake")
        return {"RequestId": "fake", **(method(parameters) or {})}

    def release_until(self, now: float) -> None:
        """Release the machines whose time has come, as ECS does."""
        for external_id, item in list(self.items["Instance"].items()):
            if _seconds(item["AutoReleaseTime"]) <= now:
                self._remove_instance(external_id)

    def machines(self) -> list[Item]:
        """Return what a host needs that stands in for a machine."""
        keys = self.items["KeyPair"]
        return [
            {
                "external_id": external_id,
                "is_on": item["Status"] in ("Pending", "Starting", "Running"),
                "address": item["PublicIpAddress"]["IpAddress"][0],
                "inner_address": item["VpcAttributes"]["PrivateIpAddress"]["IpAddress"][0],
                "key": keys.get(item["KeyPairName"], {}).get("PublicKeyBody", ""),
                "script": base64.b64decode(item["UserData"]).decode(),
            }
            for external_id, item in self.items["Instance"].items()
        ]

    def end(self, external_id: str) -> None:
        """Take a machine away, as ECS does with spot machines."""
        if external_id in self.items["Instance"]:
            self._remove_instance(external_id)

    # ECS

    def describe_instance_types(self, parameters: Parameters) -> Any:
        names = numbered(parameters, "InstanceTypes")
        if set(names) - set(TYPES):
            raise RefusalError("InvalidInstanceType.NotFound", "the type does not exist")
        chosen = names or sorted(TYPES)
        # Two a page, so that a list has several pages.
        first = int(parameters.get("NextToken", 0))
        page = chosen[first : first + 2]
        more = {"NextToken": str(first + 2)} if first + 2 < len(chosen) else {}
        fields = ("CpuCoreCount", "MemorySize", "GPUAmount", "GPUSpec")
        types = [
            {
                "InstanceTypeId": name,
                "CpuArchitecture": "X86",
                **dict(zip(fields, TYPES[name], strict=False)),
            }
            for name in page
        ]
        return {"InstanceTypes": {"InstanceType": types}, **more}

    def describe_available_resource(self, parameters: Parameters) -> Any:
        zones = [{"ZoneId": zone, "StatusCategory": "WithStock"} for zone in ZONES]
        return {"AvailableZones": {"AvailableZone": zones}}

    def describe_images(self, parameters: Parameters) -> Any:
        images = [
            {
                "ImageId": name,
                "ImageName": name,
                "CreationTime": f"{name[-12:-8]}-01-01T00:00:00Z",
                "LoginAsNonRootSupported": True,
            }
            for name in IMAGES
        ]
        wanted = parameters.get("ImageId", parameters.get("ImageName"))
        chosen = [item for item in images if wanted in (None, item["ImageId"])]
        return {"Images": {"Image": chosen}, "TotalCount": len(chosen)}

    def describe_price(self, parameters: Parameters) -> Any:
        price = TYPES[parameters["InstanceType"]][4]
        share = 0.3 if parameters["SpotStrategy"] != "NoSpot" else 1.0
        return {"PriceInfo": {"Price": {"Currency": self.currency, "TradePrice": price * share}}}

    def create_security_group(self, parameters: Parameters) -> Any:
        self.find("Vpc", parameters["VpcId"])
        return self.add("SecurityGroup", "SecurityGroupId", "sg", parameters, Rules=[])

    def authorize_security_group(self, parameters: Parameters) -> None:
        rules = self.find("SecurityGroup", parameters["SecurityGroupId"])["Rules"]
        if dict(parameters) not in rules:
            rules.append(dict(parameters))

    def delete_security_group(self, parameters: Parameters) -> None:
        external_id = parameters["SecurityGroupId"]
        self.refuse_if_used("Instance", "SecurityGroupId", external_id)
        self.remove("SecurityGroup", external_id)

    def import_key_pair(self, parameters: Parameters) -> Any:
        name = parameters["KeyPairName"]
        if name in self.items["KeyPair"]:
            raise RefusalError("KeyPair.AlreadyExist", "the key pair exists")
        self.items["KeyPair"][name] = {
            "KeyPairName": name,
            "PublicKeyBody": parameters["PublicKeyBody"],
            **tags_of(parameters, is_ecs=True),
        }
        return {"KeyPairName": name}

    def delete_key_pairs(self, parameters: Parameters) -> None:
        for name in json.loads(parameters["KeyPairNames"]):
            self.items["KeyPair"].pop(name, None)

    def delete_disk(self, parameters: Parameters) -> None:
        disk = self.find("Disk", parameters["DiskId"])
        if disk["InstanceId"] in self.items["Instance"]:
            raise RefusalError("IncorrectDiskStatus", "the disk is in use")
        self.remove("Disk", parameters["DiskId"])

    def run_instances(self, parameters: Parameters) -> Any:
        self.find("VSwitch", parameters["VSwitchId"])
        self.find("SecurityGroup", parameters["SecurityGroupId"])
        self.find("KeyPair", parameters["KeyPairName"])
        pattern = re.fullmatch(r"(.+)\[(\d+),(\d)\](.*)", parameters["InstanceName"])
        assert pattern is not None
        start, digits = int(pattern[2]), int(pattern[3])
        ids: list[str] = []
        for number in range(start, start + int(parameters["Amount"])):
            name = f"{pattern[1]}{number:0{digits}}{pattern[4]}"
            ids.append(self._add_instance(name, parameters))
        return {"InstanceIdSets": {"InstanceIdSet": ids}}

    def stop_instances(self, parameters: Parameters) -> None:
        self._change(parameters, "Running", "Stopping")

    def start_instances(self, parameters: Parameters) -> None:
        self._change(parameters, "Stopped", "Starting")

    def delete_instance(self, parameters: Parameters) -> None:
        instance = self.find("Instance", parameters["InstanceId"])
        if instance["Status"] in ("Starting", "Pending"):
            raise RefusalError("IncorrectInstanceStatus.Initializing", "the instance is starting")
        self._remove_instance(parameters["InstanceId"])

    def modify_instance_auto_release_time(self, parameters: Parameters) -> None:
        instance = self.find("Instance", parameters["InstanceId"])
        instance["AutoReleaseTime"] = parameters["AutoReleaseTime"]

    def tag_resources(self, parameters: Parameters) -> None:
        everything = {key: item for items in self.items.values() for key, item in items.items()}
        for external_id in numbered(parameters, "ResourceId"):
            item = everything[external_id]
            kind = next(kind for kind, items in self.items.items() if external_id in items)
            new = tags_of(parameters, is_ecs=kind in KINDS_OF_ECS)["Tags"]["Tag"]
            name = "TagKey" if kind in KINDS_OF_ECS else "Key"
            names = {tag[name] for tag in new}
            kept = [tag for tag in item["Tags"]["Tag"] if tag[name] not in names]
            item["Tags"] = {"Tag": [*kept, *new]}

    # VPC and NAS

    def create_vpc(self, parameters: Parameters) -> Any:
        return self.add("Vpc", "VpcId", "vpc", parameters, Status="Pending")

    def delete_vpc(self, parameters: Parameters) -> None:
        for kind in ("VSwitch", "SecurityGroup"):
            self.refuse_if_used(kind, "VpcId", parameters["VpcId"])
        self.remove("Vpc", parameters["VpcId"])

    def create_v_switch(self, parameters: Parameters) -> Any:
        if self.find("Vpc", parameters["VpcId"])["Status"] != "Available":
            raise RefusalError("IncorrectVpcStatus", "the VPC is pending")
        return self.add("VSwitch", "VSwitchId", "vsw", parameters, Status="Pending")

    def delete_v_switch(self, parameters: Parameters) -> None:
        for kind in ("Instance", "MountTarget"):
            self.refuse_if_used(kind, "VSwitchId", parameters["VSwitchId"])
        self.remove("VSwitch", parameters["VSwitchId"])

    def create_file_system(self, parameters: Parameters) -> Any:
        return self.add("FileSystem", "FileSystemId", "nas", parameters)

    def create_mount_target(self, parameters: Parameters) -> Any:
        self.find("VSwitch", parameters["VSwitchId"])
        domain = f"{parameters['FileSystemId']}-{next(self.numbers)}.nas.test"
        item = {"MountTargetDomain": domain, "Status": "Creating", **parameters}
        self.items["MountTarget"][domain] = item
        return {"MountTargetDomain": domain}

    def delete_mount_target(self, parameters: Parameters) -> None:
        target = self.find("MountTarget", parameters["MountTargetDomain"])
        target["Status"] = "Deleting"

    def delete_file_system(self, parameters: Parameters) -> None:
        self.refuse_if_used("MountTarget", "FileSystemId", parameters["FileSystemId"])
        self.remove("FileSystem", parameters["FileSystemId"])

    def _add_instance(self, name: str, parameters: Parameters) -> str:
        number = next(self.numbers)
        address = {"IpAddress": [f"192.0.2.{number % 250}"]}
        added = self.add(
            "Instance",
            "InstanceId",
            "i",
            parameters,
            InstanceName=name,
            Status="Pending",
            PublicIpAddress=address,
            VpcAttributes={"PrivateIpAddress": {"IpAddress": [f"10.0.0.{number % 250}"]}},
        )
        for disk in ("SystemDisk", "DataDisk.1"):
            if f"{disk}.Size" in parameters:
                self.add("Disk", "DiskId", "d", parameters, InstanceId=added["InstanceId"])
        return added["InstanceId"]

    def _remove_instance(self, external_id: str) -> None:
        self.remove("Instance", external_id)
        for disk, item in list(self.items["Disk"].items()):
            if item["InstanceId"] == external_id:
                self.remove("Disk", disk)

    def _change(self, parameters: Parameters, before: str, after: str) -> None:
        for external_id in numbered(parameters, "InstanceId"):
            instance = self.find("Instance", external_id)
            if instance["Status"] != before:
                raise RefusalError(
                    "IncorrectInstanceStatus", f"the instance is {instance['Status']}"
                )
            instance["Status"] = after


def snake_case(action: str) -> str:
    """Return the name of the method for an action, such as "run_instances"."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", action).lower()


def _seconds(text: str) -> float:
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ")
    return moment.replace(tzinfo=timezone.utc).timestamp()
