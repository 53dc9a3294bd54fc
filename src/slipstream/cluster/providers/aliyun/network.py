"""The network of a cluster on Alibaba Cloud: a VPC, a vSwitch, a security group, the ssh key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slipstream.cluster.providers.aliyun.api import AliyunApi
from slipstream.cluster.providers.aliyun.errors import GoneError
from slipstream.cluster.providers.aliyun.tagging import as_tags, own_filter, tags_in
from slipstream.cluster.providers.cloud import ClusterPlan, Ids, Tags, found_by_tags
from slipstream.cluster.providers.pace import BusyError
from slipstream.cluster.providers.protocol import TOKEN_TAG, Found

NETWORK_CIDR = "10.0.0.0/16"
SSH_PORTS = "22/22"


class AliyunPart:
    """A kind of resource that a cluster has once.

    Args:
        api: Services of the region.
        kind: Name of the kind.
        listing: Service and action that list resources of the kind, and the fields that lead to
            the items of the answer.
        id_field: Field that has the identifier.
    """

    def __init__(self, api: AliyunApi, kind: str, listing: tuple[str, ...], id_field: str) -> None:
        self._api = api
        self._kind = kind
        self._listing = listing
        self._id_field = id_field

    @property
    def kind(self) -> str:
        """Name of the kind."""
        return self._kind

    def is_wanted(self, plan: ClusterPlan) -> bool:
        """Return whether a plan has such a part that is created."""
        return self._kind not in plan.given

    def complete(self, plan: ClusterPlan, ids: Ids) -> None:
        """Make no further settings."""

    def listed(self, cluster: str = "") -> list[Found]:
        """Return those of a cluster, or with a tag of Slipstream, that are not gone."""
        return [
            found_by_tags(self._kind, item[self._id_field], tags_in(item))
            for item in self._items(Tag=own_filter(cluster))
        ]

    def _items(self, **parameters: Any) -> list[Any]:
        service, action, *path = self._listing
        return self._api.items(service, action, *path, **parameters)

    def _await_available(self, **parameters: Any) -> None:
        """Raise BusyError until the created resource can be used."""
        if not all(item["Status"] == "Available" for item in self._items(**parameters)):
            raise BusyError(f"the {self._kind} is still being created")


class AliyunNetwork(AliyunPart):
    """The virtual network."""

    def __init__(self, api: AliyunApi) -> None:
        super().__init__(api, "network", ("vpc", "DescribeVpcs", "Vpcs", "Vpc"), "VpcId")

    def create(self, plan: ClusterPlan, ids: Ids, tags: Tags) -> str:
        """Create it with its tags; return its identifier."""
        answer = self._api.call(
            "vpc",
            "CreateVpc",
            CidrBlock=NETWORK_CIDR,
            VpcName=resource_name(plan.request.name),
            ClientToken=tags[TOKEN_TAG],
            Tag=as_tags(tags),
        )
        return answer["VpcId"]

    def complete(self, plan: ClusterPlan, ids: Ids) -> None:
        """Raise BusyError until it is available."""
        self._await_available(VpcId=ids["network"])

    def delete(self, found: Found) -> None:
        """Delete it."""
        _delete(lambda: self._api.call("vpc", "DeleteVpc", VpcId=found.external_id))


class AliyunSubnet(AliyunPart):
    """The vSwitch: the part of the network that is in the machines' zone."""

    def __init__(self, api: AliyunApi) -> None:
        listing = ("vpc", "DescribeVSwitches", "VSwitches", "VSwitch")
        super().__init__(api, "subnet", listing, "VSwitchId")

    def create(self, plan: ClusterPlan, ids: Ids, tags: Tags) -> str:
        """Create it with its tags; return its identifier."""
        answer = self._api.call(
            "vpc",
            "CreateVSwitch",
            VpcId=ids["network"],
            ZoneId=plan.request.zone,
            CidrBlock=NETWORK_CIDR,
            VSwitchName=resource_name(plan.request.name),
            ClientToken=tags[TOKEN_TAG],
            Tag=as_tags(tags),
        )
        return answer["VSwitchId"]

    def complete(self, plan: ClusterPlan, ids: Ids) -> None:
        """Raise BusyError until it is available."""
        self._await_available(VSwitchId=ids["subnet"])

    def delete(self, found: Found) -> None:
        """Delete it."""
        _delete(lambda: self._api.call("vpc", "DeleteVSwitch", VSwitchId=found.external_id))


class AliyunFirewall(AliyunPart):
    """The security group: open for ssh from the user's addresses, and between the machines."""

    def __init__(self, api: AliyunApi) -> None:
        listing = ("ecs", "DescribeSecurityGroups", "SecurityGroups", "SecurityGroup")
        super().__init__(api, "firewall", listing, "SecurityGroupId")

    def create(self, plan: ClusterPlan, ids: Ids, tags: Tags) -> str:
        """Create it with its tags; return its identifier."""
        answer = self._api.call(
            "ecs",
            "CreateSecurityGroup",
            VpcId=ids["network"],
            SecurityGroupName=resource_name(plan.request.name),
            SecurityGroupType="normal",
            ClientToken=tags[TOKEN_TAG],
            Tag=as_tags(tags),
        )
        return answer["SecurityGroupId"]

    def complete(self, plan: ClusterPlan, ids: Ids) -> None:
        """Open it for ssh from the user's addresses, and for all between the machines.

        Rules that exist are not made again by the service.
        """
        firewall = ids["firewall"]
        self._open(firewall, IpProtocol="all", PortRange="-1/-1", SourceGroupId=firewall)
        for address in plan.request.open_to:
            self.allow(firewall, address)

    def allow(self, firewall: str, address: str) -> None:
        """Open a firewall for ssh from an address (in CIDR notation)."""
        source = {"Ipv6SourceCidrIp" if ":" in address else "SourceCidrIp": address}
        self._open(firewall, IpProtocol="tcp", PortRange=SSH_PORTS, **source)

    def delete(self, found: Found) -> None:
        """Delete it."""
        group = {"SecurityGroupId": found.external_id}
        _delete(lambda: self._api.call("ecs", "DeleteSecurityGroup", **group))

    def _open(self, firewall: str, **rule: str) -> None:
        group = {"SecurityGroupId": firewall}
        self._api.call("ecs", "AuthorizeSecurityGroup", **group, **rule, Policy="accept")


class AliyunKey(AliyunPart):
    """The public ssh key of the run, which its name identifies."""

    def __init__(self, api: AliyunApi) -> None:
        super().__init__(
            api, "key", ("ecs", "DescribeKeyPairs", "KeyPairs", "KeyPair"), "KeyPairName"
        )

    def create(self, plan: ClusterPlan, ids: Ids, tags: Tags) -> str:
        """Import it with its tags; return its name."""
        answer = self._api.call(
            "ecs",
            "ImportKeyPair",
            KeyPairName=resource_name(plan.request.name),
            PublicKeyBody=plan.request.public_key,
            Tag=as_tags(tags),
        )
        return answer["KeyPairName"]

    def delete(self, found: Found) -> None:
        """Delete it."""
        names = f'["{found.external_id}"]'
        _delete(lambda: self._api.call("ecs", "DeleteKeyPairs", KeyPairNames=names))


class AliyunDisk(AliyunPart):
    """Disks that outlived their machine, with which ECS creates and deletes them."""

    def __init__(self, api: AliyunApi) -> None:
        super().__init__(api, "disk", ("ecs", "DescribeDisks", "Disks", "Disk"), "DiskId")

    def is_wanted(self, plan: ClusterPlan) -> bool:
        """Return False, because disks are created with their machine."""
        return False

    def create(self, plan: ClusterPlan, ids: Ids, tags: Tags) -> str:
        """Raise, because disks are created with their machine."""
        raise NotImplementedError("disks are created with their machine")

    def delete(self, found: Found) -> None:
        """Delete it."""
        _delete(lambda: self._api.call("ecs", "DeleteDisk", DiskId=found.external_id))


def resource_name(cluster: str) -> str:
    """Return the name of a cluster's parts in the console."""
    return f"slipstream-{cluster}"


def _delete(call: Callable[[], object]) -> None:
    """Call; that the resource is gone already is fine."""
    try:
        call()
    except GoneError:
        return
