"""The shared folder of a cluster on Alibaba Cloud: a NAS file system that all machines mount."""

from __future__ import annotations

from typing import Any

from slipstream.cluster.providers.aliyun.api import AliyunApi
from slipstream.cluster.providers.aliyun.errors import GoneError
from slipstream.cluster.providers.aliyun.tagging import as_tags, own_filter, tags_in
from slipstream.cluster.providers.cloud import ClusterPlan, Ids, Tags, found_by_tags
from slipstream.cluster.providers.pace import BusyError
from slipstream.cluster.providers.protocol import TOKEN_TAG, Found

# Options for NFS 4.0 clients that the documentation of NAS recommends.
NFS_OPTIONS = "minorversion=0,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport"
# The group of permissions that lets all addresses of the network mount.
ACCESS_GROUP = "DEFAULT_VPC_GROUP_NAME"


class AliyunSharedFolder:
    """The network file system.

    Args:
        api: Services of the region.
    """

    kind = "shared_folder"

    def __init__(self, api: AliyunApi) -> None:
        self._api = api

    def is_wanted(self, plan: ClusterPlan) -> bool:
        """Return whether the request has a shared folder."""
        return plan.request.shared_folder

    def create(self, plan: ClusterPlan, ids: Ids, tags: Tags) -> str:
        """Create it with its tags; return its identifier."""
        answer = self._api.call(
            "nas",
            "CreateFileSystem",
            FileSystemType="standard",
            ProtocolType="NFS",
            StorageType="Performance",
            EncryptType=1,
            ClientToken=tags[TOKEN_TAG],
            Tag=as_tags(tags),
        )
        return answer["FileSystemId"]

    def complete(self, plan: ClusterPlan, ids: Ids) -> None:
        """Give it an address in the machines' subnet; raise BusyError until it is active."""
        targets = self._mount_targets(ids[self.kind])
        if not targets:
            self._api.call(
                "nas",
                "CreateMountTarget",
                FileSystemId=ids[self.kind],
                NetworkType="Vpc",
                VpcId=ids["network"],
                VSwitchId=ids["subnet"],
                AccessGroupName=ACCESS_GROUP,
            )
        if not any(target["Status"] == "Active" for target in targets):
            raise BusyError(f"the address of {ids[self.kind]} is still being created")

    def address(self, file_system: str) -> str:
        """Return the address at which machines of the network mount it, in the form "host:/"."""
        return f"{self._mount_targets(file_system)[0]['MountTargetDomain']}:/"

    def listed(self, cluster: str = "") -> list[Found]:
        """Return those of a cluster, or with a tag of Slipstream, that are not gone."""
        items = self._api.items(
            "nas", "DescribeFileSystems", "FileSystems", "FileSystem", Tag=own_filter(cluster)
        )
        return [found_by_tags(self.kind, item["FileSystemId"], tags_in(item)) for item in items]

    def delete(self, found: Found) -> None:
        """Delete its addresses, then itself; raises BusyError as long as addresses are left."""
        file_system = {"FileSystemId": found.external_id}
        try:
            targets = self._mount_targets(found.external_id)
            for target in targets:
                domain = target["MountTargetDomain"]
                if target["Status"] != "Deleting":
                    self._api.call(
                        "nas", "DeleteMountTarget", MountTargetDomain=domain, **file_system
                    )
            if targets:
                raise BusyError(f"{found.external_id} still has an address in the network")
            self._api.call("nas", "DeleteFileSystem", **file_system)
        except GoneError:
            return

    def _mount_targets(self, file_system: str) -> list[dict[str, Any]]:
        return self._api.items(
            "nas", "DescribeMountTargets", "MountTargets", "MountTarget", FileSystemId=file_system
        )
