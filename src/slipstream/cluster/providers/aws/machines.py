"""The machines of a cluster on AWS: instances of EC2, on demand or spot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slipstream.cluster.providers.aws.api import AwsApi
from slipstream.cluster.providers.aws.network import key_name
from slipstream.cluster.providers.aws.shared_folder import NFS_OPTIONS, AwsSharedFolder
from slipstream.cluster.providers.aws.tagging import own_filter, specification, tags_in
from slipstream.cluster.providers.boot import boot_script
from slipstream.cluster.providers.cloud import (
    FIRST_TAG,
    LOGIN_TAG,
    MACHINE,
    PRICE_TAG,
    ClusterPlan,
    Ids,
    Tags,
    found_by_tags,
    machine_name,
)
from slipstream.cluster.providers.protocol import CLUSTER_TAG, TOKEN_TAG, ClusterMachine, Found

_STATES = {
    "pending": "starting",
    "running": "running",
    "stopping": "stopping",
    "stopped": "stopped",
    "shutting-down": "ending",
}
DATA_DEVICE = "/dev/sdf"


class AwsMachines:
    """The machines in one region.

    Args:
        api: Clients of the region.
        shared_folder: Shared folders of the region.
    """

    def __init__(self, api: AwsApi, shared_folder: AwsSharedFolder) -> None:
        self._api = api
        self._shared_folder = shared_folder

    def launch(self, plan: ClusterPlan, ids: Ids, indices: range, tags: Tags) -> Sequence[str]:
        """Create machines of successive numbers in one call, all or none; return identifiers.

        EC2 numbers the machines of a call (AmiLaunchIndex), which gives them their names.
        """
        spot: dict[str, Any] = {}
        tagged = ["instance", "volume", "network-interface"]
        if plan.request.is_spot:
            spot = {"InstanceMarketOptions": {"MarketType": "spot"}}
            tagged.append("spot-instances-request")
        answer = self._api.call(
            "ec2",
            "RunInstances",
            ImageId=plan.image,
            InstanceType=plan.request.instance_type,
            MinCount=len(indices),
            MaxCount=len(indices),
            KeyName=key_name(plan.request.name),
            ClientToken=tags[TOKEN_TAG],
            InstanceInitiatedShutdownBehavior="terminate",
            UserData=self._boot_script(plan, ids),
            BlockDeviceMappings=_disks(plan),
            NetworkInterfaces=_interfaces(ids),
            # Programs on the machine read its credentials with a session only (IMDSv2).
            MetadataOptions={"HttpTokens": "required"},
            TagSpecifications=specification({**tags, LOGIN_TAG: plan.login}, *tagged),
            **spot,
        )
        instances = sorted(answer["Instances"], key=lambda item: item["AmiLaunchIndex"])
        return [item["InstanceId"] for item in instances]

    def machines(self, cluster: str) -> list[ClusterMachine]:
        """Return the machines of a cluster that have not ended, in the order of their numbers."""
        instances = sorted(self._instances(cluster), key=_index)
        return [_machine(instance) for instance in instances]

    def listed(self, cluster: str = "") -> list[Found]:
        """Return machines of a cluster, or with a tag of Slipstream, that are not gone."""
        return [_found(instance) for instance in self._instances(cluster)]

    def delete(self, found: Found) -> None:
        """Ask for the end of a machine."""
        if found.facts.get("state") != "ending":
            self._api.call("ec2", "TerminateInstances", InstanceIds=[found.external_id])

    def stop(self, machines: Sequence[ClusterMachine]) -> None:
        """Ask machines to stop."""
        self._api.call("ec2", "StopInstances", InstanceIds=[item.external_id for item in machines])

    def start(self, machines: Sequence[ClusterMachine]) -> None:
        """Ask stopped machines to start."""
        self._api.call("ec2", "StartInstances", InstanceIds=[item.external_id for item in machines])

    def _instances(self, cluster: str) -> list[dict[str, Any]]:
        states = {"Name": "instance-state-name", "Values": list(_STATES)}
        filters = [*own_filter(cluster), states]
        reservations = self._api.items("ec2", "DescribeInstances", "Reservations", Filters=filters)
        return [instance for item in reservations for instance in item["Instances"]]

    def _boot_script(self, plan: ClusterPlan, ids: Ids) -> str:
        shared = ids.get(self._shared_folder.kind)
        return boot_script(
            plan.request.deadline_at,
            shared_source=self._shared_folder.address(shared) if shared else "",
            nfs_options=NFS_OPTIONS,
            data_disk_gib=plan.request.data_disk_gib,
            gpu_driver=plan.facts["has_gpu"],
            root_like=plan.facts["user"] if plan.request.as_root else "",
        )


def _disks(plan: ClusterPlan) -> list[dict[str, Any]]:
    sizes = {plan.facts["root_device"]: plan.request.system_disk_gib}
    if plan.request.data_disk_gib:
        sizes[DATA_DEVICE] = plan.request.data_disk_gib
    return [
        {
            "DeviceName": device,
            "Ebs": {
                "VolumeSize": size,
                "VolumeType": "gp3",
                "DeleteOnTermination": True,
                "Encrypted": True,
            },
        }
        for device, size in sizes.items()
    ]


def _interfaces(ids: Ids) -> list[dict[str, Any]]:
    return [
        {
            "DeviceIndex": 0,
            "SubnetId": ids["subnet"],
            "Groups": [ids["firewall"]],
            "AssociatePublicIpAddress": True,
            "DeleteOnTermination": True,
        }
    ]


def _index(instance: dict[str, Any]) -> int:
    return int(tags_in(instance).get(FIRST_TAG, "0")) + instance["AmiLaunchIndex"]


def _price(instance: dict[str, Any]) -> float:
    return float(tags_in(instance).get(PRICE_TAG, "0"))


def _found(instance: dict[str, Any]) -> Found:
    return found_by_tags(
        MACHINE,
        instance["InstanceId"],
        tags_in(instance),
        index=_index(instance),
        price=_price(instance),
        state=_STATES[instance["State"]["Name"]],
        instance_type=instance["InstanceType"],
    )


def _machine(instance: dict[str, Any]) -> ClusterMachine:
    tags = tags_in(instance)
    return ClusterMachine(
        name=machine_name(tags[CLUSTER_TAG], _index(instance)),
        external_id=instance["InstanceId"],
        state=_STATES[instance["State"]["Name"]],
        address=instance.get("PublicIpAddress", ""),
        inner_address=instance.get("PrivateIpAddress", ""),
        login=tags.get(LOGIN_TAG, ""),
        price_per_hour=_price(instance),
        is_spot=instance.get("InstanceLifecycle") == "spot",
    )
