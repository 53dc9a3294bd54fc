"""The machines of a cluster on Alibaba Cloud: instances of ECS, on demand or spot."""

from __future__ import annotations

import base64
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from slipstream.cluster.providers.aliyun.api import AliyunApi
from slipstream.cluster.providers.aliyun.errors import GoneError
from slipstream.cluster.providers.aliyun.network import resource_name
from slipstream.cluster.providers.aliyun.shared_folder import NFS_OPTIONS, AliyunSharedFolder
from slipstream.cluster.providers.aliyun.tagging import as_tags, own_filter, tags_in
from slipstream.cluster.providers.boot import boot_script
from slipstream.cluster.providers.cloud import (
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
    "Pending": "starting",
    "Starting": "starting",
    "Running": "running",
    "Stopping": "stopping",
    "Stopped": "stopped",
}
# ECS refuses to release a machine within half an hour; a minute is for the call itself.
MIN_RELEASE_SECONDS = 31 * 60.0
# Digits of the number in the name of a machine, which ECS counts up.
NAME_DIGITS = 6
DISK_CATEGORY = "cloud_essd"
# Bandwidth to the internet in Mbit/s: the highest, because traffic is what is paid for.
BANDWIDTH = 100


class AliyunMachines:
    """The machines in one region.

    Args:
        api: Services of the region.
        shared_folder: Shared folders of the region.
    """

    def __init__(self, api: AliyunApi, shared_folder: AliyunSharedFolder) -> None:
        self._api = api
        self._shared_folder = shared_folder

    def launch(self, plan: ClusterPlan, ids: Ids, indices: range, tags: Tags) -> Sequence[str]:
        """Create machines of successive numbers in one call, all or none; return identifiers.

        ECS counts up the number in their names, and releases them itself at the deadline.
        """
        request = plan.request
        answer = self._api.call(
            "ecs",
            "RunInstances",
            ImageId=plan.image,
            InstanceType=request.instance_type,
            InstanceName=f"task[{indices.start},{NAME_DIGITS}].{request.name}",
            Amount=len(indices),
            ClientToken=tags[TOKEN_TAG],
            AutoReleaseTime=release_time(request.deadline_at),
            SpotStrategy="SpotAsPriceGo" if request.is_spot else "NoSpot",
            SecurityGroupId=ids["firewall"],
            VSwitchId=ids["subnet"],
            KeyPairName=resource_name(request.name),
            ImageOptions={"LoginAsNonRoot": plan.facts["as_user"]} if plan.facts["as_user"] else {},
            UserData=base64.b64encode(self._boot_script(plan, ids).encode()).decode(),
            InternetChargeType="PayByTraffic",
            InternetMaxBandwidthOut=BANDWIDTH,
            # Programs on the machine read its credentials with a session only.
            HttpEndpoint="enabled",
            HttpTokens="required",
            **_disks(plan),
            Tag=as_tags({**tags, LOGIN_TAG: plan.login}),
        )
        return answer["InstanceIdSets"]["InstanceIdSet"]

    def machines(self, cluster: str) -> list[ClusterMachine]:
        """Return the machines of a cluster that have not ended, in the order of their numbers."""
        return [_machine(item) for item in sorted(self._instances(cluster), key=_index)]

    def listed(self, cluster: str = "") -> list[Found]:
        """Return machines of a cluster, or with a tag of Slipstream, that are not gone."""
        return [_found(item) for item in self._instances(cluster)]

    def delete(self, found: Found) -> None:
        """Ask for the end of a machine, whether it runs or not."""
        try:
            self._api.call("ecs", "DeleteInstance", InstanceId=found.external_id, Force=True)
        except GoneError:
            return

    def stop(self, machines: Sequence[ClusterMachine]) -> None:
        """Ask machines to stop; while they are stopped, only their disks are paid for."""
        ids = [item.external_id for item in machines]
        self._api.call("ecs", "StopInstances", InstanceId=ids, StoppedMode="StopCharging")

    def start(self, machines: Sequence[ClusterMachine]) -> None:
        """Ask stopped machines to start."""
        ids = [item.external_id for item in machines]
        self._api.call("ecs", "StartInstances", InstanceId=ids)

    def release_at(self, external_id: str, deadline_at: float) -> None:
        """Set the time at which ECS releases a machine, in seconds since 1970."""
        self._api.call(
            "ecs",
            "ModifyInstanceAutoReleaseTime",
            InstanceId=external_id,
            AutoReleaseTime=release_time(deadline_at),
        )

    def _instances(self, cluster: str) -> list[dict[str, Any]]:
        return self._api.items(
            "ecs", "DescribeInstances", "Instances", "Instance", Tag=own_filter(cluster)
        )

    def _boot_script(self, plan: ClusterPlan, ids: Ids) -> str:
        shared = ids.get(self._shared_folder.kind)
        return boot_script(
            plan.request.deadline_at,
            shared_source=self._shared_folder.address(shared) if shared else "",
            nfs_options=NFS_OPTIONS,
            data_disk_gib=plan.request.data_disk_gib,
            gpu_driver=plan.facts["has_gpu"],
        )


def release_time(deadline_at: float) -> str:
    """Return the time of a release as ECS takes it: the deadline, but not within half an hour.

    Args:
        deadline_at: Deadline in seconds since 1970.
    """
    seconds = max(deadline_at, time.time() + MIN_RELEASE_SECONDS)
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:00Z")


def _disks(plan: ClusterPlan) -> dict[str, Any]:
    system = {"Category": DISK_CATEGORY, "Size": plan.request.system_disk_gib}
    if not plan.request.data_disk_gib:
        return {"SystemDisk": system}
    data = {"Category": DISK_CATEGORY, "Size": plan.request.data_disk_gib}
    return {"SystemDisk": system, "DataDisk": [{**data, "DeleteWithInstance": True}]}


def _index(instance: Mapping[str, Any]) -> int:
    number = instance["InstanceName"].partition(".")[0].removeprefix("task")
    return int(number) if number.isdecimal() else 0


def _price(instance: Mapping[str, Any]) -> float:
    return float(tags_in(instance).get(PRICE_TAG, "0"))


def _found(instance: Mapping[str, Any]) -> Found:
    return found_by_tags(
        MACHINE,
        instance["InstanceId"],
        tags_in(instance),
        index=_index(instance),
        price=_price(instance),
        state=_STATES[instance["Status"]],
        instance_type=instance["InstanceType"],
    )


def _machine(instance: Mapping[str, Any]) -> ClusterMachine:
    tags = tags_in(instance)
    public = instance["PublicIpAddress"]["IpAddress"]
    inner = instance["VpcAttributes"]["PrivateIpAddress"]["IpAddress"]
    return ClusterMachine(
        name=machine_name(tags[CLUSTER_TAG], _index(instance)),
        external_id=instance["InstanceId"],
        state=_STATES[instance["Status"]],
        address=public[0] if public else "",
        inner_address=inner[0] if inner else "",
        login=tags.get(LOGIN_TAG, ""),
        price_per_hour=_price(instance),
        is_spot=instance["SpotStrategy"] != "NoSpot",
    )
