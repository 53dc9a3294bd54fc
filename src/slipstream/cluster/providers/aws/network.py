"""The network of a cluster on AWS: a VPC with one public subnet, a firewall, and the ssh key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from slipstream.cluster.providers.aws.api import AwsApi
from slipstream.cluster.providers.aws.errors import AlreadySetError
from slipstream.cluster.providers.aws.tagging import own_filter, specification, tags_in
from slipstream.cluster.providers.cloud import ClusterPlan, Ids, Tags, found_by_tags
from slipstream.cluster.providers.protocol import Found

NETWORK_CIDR = "10.0.0.0/16"
SSH_PORT = 22


class AwsPart:
    """A kind of resource of EC2 that a cluster has once.

    Args:
        api: Clients of the region.
        kind: Name of the kind.
        listing: Operation and field of the response that list resources of the kind.
        id_field: Field that has the identifier.
    """

    def __init__(self, api: AwsApi, kind: str, listing: tuple[str, str], id_field: str) -> None:
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
        operation, field = self._listing
        return [
            found_by_tags(self._kind, item[self._id_field], tags_in(item))
            for item in self._api.items("ec2", operation, field, Filters=own_filter(cluster))
        ]


class AwsNetwork(AwsPart):
    """The virtual network."""

    def __init__(self, api: AwsApi) -> None:
        super().__init__(api, "network", ("DescribeVpcs", "Vpcs"), "VpcId")

    def create(self, plan: ClusterPlan, ids: Ids, tags: Tags) -> str:
        """Create it with its tags; return its identifier."""
        answer = self._api.call(
            "ec2",
            "CreateVpc",
            CidrBlock=NETWORK_CIDR,
            TagSpecifications=specification(tags, "vpc"),
        )
        return answer["Vpc"]["VpcId"]

    def delete(self, found: Found) -> None:
        """Delete it."""
        _delete(lambda: self._api.call("ec2", "DeleteVpc", VpcId=found.external_id))


class AwsGateway(AwsPart):
    """The way from the network into the internet."""

    def __init__(self, api: AwsApi) -> None:
        listing = ("DescribeInternetGateways", "InternetGateways")
        super().__init__(api, "gateway", listing, "InternetGatewayId")

    def create(self, plan: ClusterPlan, ids: Ids, tags: Tags) -> str:
        """Create it with its tags; return its identifier."""
        answer = self._api.call(
            "ec2",
            "CreateInternetGateway",
            TagSpecifications=specification(tags, "internet-gateway"),
        )
        return answer["InternetGateway"]["InternetGatewayId"]

    def complete(self, plan: ClusterPlan, ids: Ids) -> None:
        """Attach it to the network, and lead the network's main route to it."""
        gateway, network = ids["gateway"], ids["network"]
        if network not in self._attached(gateway):
            self._api.call("ec2", "AttachInternetGateway", InternetGatewayId=gateway, VpcId=network)
        filters = [
            {"Name": "vpc-id", "Values": [network]},
            {"Name": "association.main", "Values": ["true"]},
        ]
        (table,) = self._api.items("ec2", "DescribeRouteTables", "RouteTables", Filters=filters)
        if gateway not in {route.get("GatewayId") for route in table["Routes"]}:
            self._api.call(
                "ec2",
                "CreateRoute",
                RouteTableId=table["RouteTableId"],
                DestinationCidrBlock="0.0.0.0/0",
                GatewayId=gateway,
            )

    def delete(self, found: Found) -> None:
        """Detach and delete it."""
        for network in self._attached(found.external_id):
            arguments = {"InternetGatewayId": found.external_id, "VpcId": network}
            _delete(
                lambda arguments=arguments: self._api.call(
                    "ec2", "DetachInternetGateway", **arguments
                )
            )
        gateway = found.external_id
        _delete(lambda: self._api.call("ec2", "DeleteInternetGateway", InternetGatewayId=gateway))

    def _attached(self, gateway: str) -> list[str]:
        """Return the networks to which a gateway is attached."""
        filters = [{"Name": "internet-gateway-id", "Values": [gateway]}]
        operation, field = self._listing
        items = self._api.items("ec2", operation, field, Filters=filters)
        return [attached["VpcId"] for item in items for attached in item["Attachments"]]


class AwsSubnet(AwsPart):
    """The part of the network that is in the machines' zone."""

    def __init__(self, api: AwsApi) -> None:
        super().__init__(api, "subnet", ("DescribeSubnets", "Subnets"), "SubnetId")

    def create(self, plan: ClusterPlan, ids: Ids, tags: Tags) -> str:
        """Create it with its tags; return its identifier."""
        answer = self._api.call(
            "ec2",
            "CreateSubnet",
            VpcId=ids["network"],
            CidrBlock=NETWORK_CIDR,
            AvailabilityZone=plan.request.zone,
            TagSpecifications=specification(tags, "subnet"),
        )
        return answer["Subnet"]["SubnetId"]

    def delete(self, found: Found) -> None:
        """Delete it."""
        _delete(lambda: self._api.call("ec2", "DeleteSubnet", SubnetId=found.external_id))


class AwsFirewall(AwsPart):
    """The security group: open for ssh from the user's addresses, and between the machines."""

    def __init__(self, api: AwsApi) -> None:
        super().__init__(api, "firewall", ("DescribeSecurityGroups", "SecurityGroups"), "GroupId")

    def create(self, plan: ClusterPlan, ids: Ids, tags: Tags) -> str:
        """Create it with its tags; return its identifier."""
        answer = self._api.call(
            "ec2",
            "CreateSecurityGroup",
            GroupName=f"slipstream-{plan.request.name}",
            Description=f"machines of {plan.request.name}",
            VpcId=ids["network"],
            TagSpecifications=specification(tags, "security-group"),
        )
        return answer["GroupId"]

    def complete(self, plan: ClusterPlan, ids: Ids) -> None:
        """Open it for ssh from the user's addresses, and for all between the machines."""
        firewall = ids["firewall"]
        self._open(firewall, {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": firewall}]})
        for address in plan.request.open_to:
            self.allow(firewall, address)

    def allow(self, firewall: str, address: str) -> None:
        """Open a firewall for ssh from an address (in CIDR notation)."""
        ranges = {"Ipv6Ranges": [{"CidrIpv6": address}]}
        if ":" not in address:
            ranges = {"IpRanges": [{"CidrIp": address}]}
        ports = {"IpProtocol": "tcp", "FromPort": SSH_PORT, "ToPort": SSH_PORT}
        self._open(firewall, {**ports, **ranges})

    def delete(self, found: Found) -> None:
        """Delete it."""
        _delete(lambda: self._api.call("ec2", "DeleteSecurityGroup", GroupId=found.external_id))

    def _open(self, firewall: str, permission: Mapping[str, Any]) -> None:
        try:
            self._api.call(
                "ec2",
                "AuthorizeSecurityGroupIngress",
                GroupId=firewall,
                IpPermissions=[permission],
            )
        except AlreadySetError:
            return


class AwsKey(AwsPart):
    """The public ssh key of the run."""

    def __init__(self, api: AwsApi) -> None:
        super().__init__(api, "key", ("DescribeKeyPairs", "KeyPairs"), "KeyPairId")

    def create(self, plan: ClusterPlan, ids: Ids, tags: Tags) -> str:
        """Import it with its tags; return its identifier."""
        answer = self._api.call(
            "ec2",
            "ImportKeyPair",
            KeyName=key_name(plan.request.name),
            PublicKeyMaterial=plan.request.public_key.encode(),
            TagSpecifications=specification(tags, "key-pair"),
        )
        return answer["KeyPairId"]

    def delete(self, found: Found) -> None:
        """Delete it."""
        _delete(lambda: self._api.call("ec2", "DeleteKeyPair", KeyName=key_name(found.cluster)))


class AwsDisk(AwsPart):
    """Disks that outlived their machine, with which EC2 creates and deletes them."""

    def __init__(self, api: AwsApi) -> None:
        super().__init__(api, "disk", ("DescribeVolumes", "Volumes"), "VolumeId")

    def is_wanted(self, plan: ClusterPlan) -> bool:
        """Return False, because disks are created with their machine."""
        return False

    def create(self, plan: ClusterPlan, ids: Ids, tags: Tags) -> str:
        """Raise, because disks are created with their machine."""
        raise NotImplementedError("disks are created with their machine")

    def delete(self, found: Found) -> None:
        """Delete it."""
        _delete(lambda: self._api.call("ec2", "DeleteVolume", VolumeId=found.external_id))


def key_name(cluster: str) -> str:
    """Return the name of a cluster's ssh key at EC2."""
    return f"slipstream-{cluster}"


def _delete(call: Callable[[], object]) -> None:
    """Call; that the resource is gone already is fine."""
    try:
        call()
    except AlreadySetError:
        return
