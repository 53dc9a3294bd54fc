"""One region of Alibaba Cloud."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.cluster.providers.aliyun.api import AliyunApi
from slipstream.cluster.providers.aliyun.catalogue import AliyunCatalogue
from slipstream.cluster.providers.aliyun.machines import AliyunMachines
from slipstream.cluster.providers.aliyun.network import (
    AliyunDisk,
    AliyunFirewall,
    AliyunKey,
    AliyunNetwork,
    AliyunSubnet,
)
from slipstream.cluster.providers.aliyun.shared_folder import AliyunSharedFolder
from slipstream.cluster.providers.aliyun.tagging import as_tags
from slipstream.cluster.providers.cloud import (
    MACHINE,
    ClusterPart,
    ClusterPlan,
    deadline_tag,
)
from slipstream.cluster.providers.protocol import ClusterRequest, Found, MachineOffer
from slipstream.settings import aliyun_settings

# Service, and its name of the resource, that tag each kind.
_TAGGED_TYPES = {
    MACHINE: ("ecs", "instance"),
    "disk": ("ecs", "disk"),
    "firewall": ("ecs", "securitygroup"),
    "key": ("ecs", "keypair"),
    "network": ("vpc", "VPC"),
    "subnet": ("vpc", "VSWITCH"),
    "shared_folder": ("nas", "filesystem"),
}
# Resources that one call can tag.
_MAX_TAGGED = 20


class AliyunCloud:
    """One region of Alibaba Cloud.

    Args:
        region: Name of the region; "" (the default) for the region of ALIYUN_DEFAULT_REGION.

    Raises:
        ConfigError: access key or region are not set.
    """

    name = "aliyun"

    def __init__(self, region: str = "") -> None:
        self._api = AliyunApi(aliyun_settings(region))
        self._catalogue = AliyunCatalogue(self._api)
        self._firewall = AliyunFirewall(self._api)
        shared_folder = AliyunSharedFolder(self._api)
        self._parts: tuple[ClusterPart, ...] = (
            AliyunNetwork(self._api),
            AliyunSubnet(self._api),
            self._firewall,
            AliyunKey(self._api),
            shared_folder,
            AliyunDisk(self._api),
        )
        self._machines = AliyunMachines(self._api, shared_folder)

    @property
    def region(self) -> str:
        """Name of the region."""
        return self._api.region

    @property
    def parts(self) -> Sequence[ClusterPart]:
        """Kinds of parts in the order of their creation."""
        return self._parts

    @property
    def machines(self) -> AliyunMachines:
        """Machines."""
        return self._machines

    def plan(self, request: ClusterRequest) -> ClusterPlan:
        """Check a request and fill in its defaults."""
        return self._catalogue.plan(request)

    def offers(self, pattern: str) -> Sequence[MachineOffer]:
        """Return the types of machines whose name or GPU contains a text."""
        return self._catalogue.offers(pattern)

    def images(self, pattern: str) -> Sequence[tuple[str, str]]:
        """Return identifiers and names of images whose name contains a text."""
        return self._catalogue.images(pattern)

    def allow(self, firewall: str, address: str) -> None:
        """Open a firewall for ssh from an address."""
        self._firewall.allow(firewall, address)

    def set_deadline(self, found: Sequence[Found], deadline_at: float) -> None:
        """Set a deadline in the tags, and for machines also at ECS, which releases them."""
        tags = as_tags(deadline_tag(deadline_at))
        for item in found:
            if item.kind == MACHINE:
                self._machines.release_at(item.external_id, deadline_at)
        for kind, (service, resource_type) in _TAGGED_TYPES.items():
            ids = [item.external_id for item in found if item.kind == kind]
            if ids:
                self._tag(service, resource_type, ids, tags)

    def _tag(
        self, service: str, resource_type: str, ids: Sequence[str], tags: list[dict[str, str]]
    ) -> None:
        for start in range(0, len(ids), _MAX_TAGGED):
            chunk = ids[start : start + _MAX_TAGGED]
            self._api.call(
                service, "TagResources", ResourceType=resource_type, ResourceId=chunk, Tag=tags
            )
