"""The shared folder of a cluster on AWS: an EFS file system that all machines mount by NFS 4.1."""

from __future__ import annotations

from typing import Any

from slipstream.cluster.providers.aws.api import AwsApi
from slipstream.cluster.providers.aws.errors import AlreadySetError
from slipstream.cluster.providers.aws.tagging import as_tags, tags_in
from slipstream.cluster.providers.cloud import ClusterPlan, Ids, Tags, found_by_tags
from slipstream.cluster.providers.pace import BusyError
from slipstream.cluster.providers.protocol import CLUSTER_TAG, Found

# Options that AWS's user guide of EFS recommends for NFS clients.
NFS_OPTIONS = "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport"


class AwsSharedFolder:
    """The network file system.

    Args:
        api: Clients of the region.
    """

    kind = "shared_folder"

    def __init__(self, api: AwsApi) -> None:
        self._api = api

    def is_wanted(self, plan: ClusterPlan) -> bool:
        """Return whether the request has a shared folder."""
        return plan.request.shared_folder

    def create(self, plan: ClusterPlan, ids: Ids, tags: Tags) -> str:
        """Create it with its tags; return its identifier."""
        answer = self._api.call(
            "efs",
            "CreateFileSystem",
            CreationToken=plan.request.name,
            Encrypted=True,
            Tags=as_tags(tags),
        )
        return answer["FileSystemId"]

    def complete(self, plan: ClusterPlan, ids: Ids) -> None:
        """Give it an address in the machines' subnet."""
        if self._mount_targets(ids[self.kind]):
            return
        try:
            self._api.call(
                "efs",
                "CreateMountTarget",
                FileSystemId=ids[self.kind],
                SubnetId=ids["subnet"],
                SecurityGroups=[ids["firewall"]],
            )
        except AlreadySetError:
            return

    def address(self, file_system: str) -> str:
        """Return the address at which machines of the network mount it, in the form "host:/"."""
        (target,) = self._mount_targets(file_system)
        return f"{target['IpAddress']}:/"

    def listed(self, cluster: str = "") -> list[Found]:
        """Return those of a cluster, or with a tag of Slipstream, that are not gone."""
        found = [
            found_by_tags(self.kind, item["FileSystemId"], tags_in(item))
            for item in self._api.items("efs", "DescribeFileSystems", "FileSystems")
            if CLUSTER_TAG in tags_in(item) and item["LifeCycleState"] != "deleted"
        ]
        return [item for item in found if cluster in ("", item.cluster)]

    def delete(self, found: Found) -> None:
        """Delete its addresses, then itself; raises BusyError as long as addresses are left."""
        targets = self._mount_targets(found.external_id)
        for target in targets:
            if target["LifeCycleState"] != "deleting":
                target_id = target["MountTargetId"]
                self._api.call("efs", "DeleteMountTarget", MountTargetId=target_id)
        if targets:
            raise BusyError(f"{found.external_id} still has an address in the network")
        try:
            self._api.call("efs", "DeleteFileSystem", FileSystemId=found.external_id)
        except AlreadySetError:
            return

    def _mount_targets(self, file_system: str) -> list[dict[str, Any]]:
        arguments = {"FileSystemId": file_system}
        return self._api.items("efs", "DescribeMountTargets", "MountTargets", **arguments)
