"""One region of AWS."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.cluster.providers.aws.api import AwsApi
from slipstream.cluster.providers.aws.catalogue import AwsCatalogue
from slipstream.cluster.providers.aws.machines import AwsMachines
from slipstream.cluster.providers.aws.network import (
    AwsDisk,
    AwsFirewall,
    AwsGateway,
    AwsKey,
    AwsNetwork,
    AwsSubnet,
)
from slipstream.cluster.providers.aws.shared_folder import AwsSharedFolder
from slipstream.cluster.providers.aws.tagging import as_tags
from slipstream.cluster.providers.cloud import ClusterPart, ClusterPlan, deadline_tag
from slipstream.cluster.providers.protocol import ClusterRequest, Found, MachineOffer


class AwsCloud:
    """One region of AWS.

    Args:
        region: Name of the region; "" (the default) for the region that boto3 is configured for.

    Raises:
        ConfigError: no region is known.
    """

    name = "aws"

    def __init__(self, region: str = "") -> None:
        self._api = AwsApi(region)
        self._catalogue = AwsCatalogue(self._api)
        self._firewall = AwsFirewall(self._api)
        shared_folder = AwsSharedFolder(self._api)
        self._parts: tuple[ClusterPart, ...] = (
            AwsNetwork(self._api),
            AwsGateway(self._api),
            AwsSubnet(self._api),
            self._firewall,
            AwsKey(self._api),
            shared_folder,
            AwsDisk(self._api),
        )
        self._machines = AwsMachines(self._api, shared_folder)

    @property
    def region(self) -> str:
        """Name of the region."""
        return self._api.region

    @property
    def parts(self) -> Sequence[ClusterPart]:
        """Kinds of parts in the order of their creation."""
        return self._parts

    @property
    def machines(self) -> AwsMachines:
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
        """Set a deadline in the tags; the machines' own timers are set by ssh."""
        tags = as_tags(deadline_tag(deadline_at))
        folders = [item.external_id for item in found if item.kind == "shared_folder"]
        others = [item.external_id for item in found if item.external_id not in folders]
        if others:
            self._api.call("ec2", "CreateTags", Resources=others, Tags=tags)
        for folder in folders:
            self._api.call("efs", "TagResource", ResourceId=folder, Tags=tags)
