"""The resources of a fake region of Alibaba Cloud: added, found, listed page by page, removed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

# Fields of the answers that list each kind, and the name of its identifier.
LISTS = {
    "DescribeVpcs": ("Vpcs", "Vpc", "VpcId"),
    "DescribeVSwitches": ("VSwitches", "VSwitch", "VSwitchId"),
    "DescribeSecurityGroups": ("SecurityGroups", "SecurityGroup", "SecurityGroupId"),
    "DescribeKeyPairs": ("KeyPairs", "KeyPair", "KeyPairName"),
    "DescribeDisks": ("Disks", "Disk", "DiskId"),
    "DescribeInstances": ("Instances", "Instance", "InstanceId"),
    "DescribeFileSystems": ("FileSystems", "FileSystem", "FileSystemId"),
    "DescribeMountTargets": ("MountTargets", "MountTarget", "MountTargetDomain"),
}
KINDS_OF_ECS = {"Instance", "Disk", "SecurityGroup", "KeyPair"}
# States that a resource goes through, one for each time that it is listed.
NEXT_STATES = {
    "Pending": "Available",
    "Creating": "Active",
    "Starting": "Running",
    "Stopping": "Stopped",
    "Releasing": None,
    "Deleting": None,
}
Parameters = Mapping[str, str]
Item = dict[str, Any]


class RefusalError(Exception):
    """The answer of a call that fails."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class FakeResources:
    """All resources of a region, by kind and identifier."""

    def __init__(self) -> None:
        self.items: dict[str, dict[str, Item]] = {kind: {} for _, kind, _ in LISTS.values()}
        self.numbers = itertools.count(1)

    def list_items(self, action: str, parameters: Parameters) -> Any:
        field, kind, id_field = LISTS[action]
        found = [
            dict(item)
            for item in self.items[kind].values()
            if has_tags(item, parameters, is_ecs=kind in KINDS_OF_ECS)
            and all(
                item.get(name) == parameters[name]
                for name in (id_field, "VpcId", "FileSystemId", "VpcName")
                if name in parameters
            )
        ]
        for item in found:
            self.advance(kind, item[id_field])
        size, number = int(parameters["PageSize"]), int(parameters["PageNumber"])
        page = found[(number - 1) * size : number * size]
        return {field: {kind: page}, "TotalCount": len(found)}

    def advance(self, kind: str, external_id: str) -> None:
        """Let a resource go on to its next state."""
        state = self.items[kind][external_id].get("Status")
        if state in NEXT_STATES:
            following = NEXT_STATES[state]
            if kind == "Instance" and state == "Pending":
                following = "Starting"
            if following is None:
                self.remove(kind, external_id)
            else:
                self.items[kind][external_id]["Status"] = following

    def add(
        self, kind: str, id_field: str, prefix: str, parameters: Parameters, **more: Any
    ) -> Any:
        external_id = f"{prefix}-{next(self.numbers):06}"
        tags = tags_of(parameters, is_ecs=kind in KINDS_OF_ECS)
        self.items[kind][external_id] = {**parameters, **more, id_field: external_id, **tags}
        return {id_field: external_id}

    def find(self, kind: str, external_id: str) -> Item:
        if external_id not in self.items[kind]:
            raise RefusalError(f"Invalid{kind}Id.NotFound", f"{external_id} does not exist")
        return self.items[kind][external_id]

    def remove(self, kind: str, external_id: str) -> None:
        self.find(kind, external_id)
        del self.items[kind][external_id]

    def refuse_if_used(self, kind: str, field: str, external_id: str) -> None:
        users = [key for key, item in self.items[kind].items() if item.get(field) == external_id]
        if users:
            raise RefusalError(f"DependencyViolation.{kind}", f"{users[0]} uses {external_id}")


def numbered(parameters: Parameters, name: str) -> list[str]:
    """Return the values of "name.1", "name.2" and so on."""
    numbers = itertools.count(1)
    keys = itertools.takewhile(lambda key: key in parameters, (f"{name}.{n}" for n in numbers))
    return [parameters[key] for key in keys]


def pairs_of(parameters: Parameters) -> list[tuple[str, str | None]]:
    numbers = itertools.takewhile(lambda n: f"Tag.{n}.Key" in parameters, itertools.count(1))
    return [(parameters[f"Tag.{n}.Key"], parameters.get(f"Tag.{n}.Value")) for n in numbers]


def tags_of(parameters: Parameters, *, is_ecs: bool) -> Any:
    """Return tags as ECS lists them, or as VPC and NAS do."""
    key, value = ("TagKey", "TagValue") if is_ecs else ("Key", "Value")
    return {"Tags": {"Tag": [{key: name, value: text} for name, text in pairs_of(parameters)]}}


def has_tags(item: Item, parameters: Parameters, *, is_ecs: bool) -> bool:
    key, value = ("TagKey", "TagValue") if is_ecs else ("Key", "Value")
    tags = {tag[key]: tag[value] for tag in item.get("Tags", {}).get("Tag", [])}
    pairs = pairs_of(parameters)
    return all(name in tags and text in (None, tags[name]) for name, text in pairs)
