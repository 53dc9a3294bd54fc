"""The groups of machines of one user: new ones are asked for, earlier ones are opened by name."""

from __future__ import annotations

import time
from pathlib import Path

from slipstream.cluster.groups.group_record import GroupRecord, find_group
from slipstream.cluster.groups.machine_group import MachineGroup
from slipstream.cluster.providers.choice import cloud_provider
from slipstream.cluster.providers.protocol import ClusterRequest, Provider
from slipstream.cluster.records import ResourceLedger, Store


class GroupSession:
    """The groups whose records are in one folder.

    Args:
        home: Folder of the records.

    Attributes:
        home: Folder of the records.
        ledger: Ledger of all resources.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.store = Store(home)
        self.ledger = ResourceLedger(self.store)

    def ask(self, provider: Provider, request: ClusterRequest) -> MachineGroup:
        """Return the group of a request; nothing is created yet.

        Args:
            provider: Provider in the region of the machines.
            request: Machines that are wanted; its public key is ignored.
        """
        record = GroupRecord(
            provider=provider.name,
            region=provider.region,
            request=request,
            created_at=time.time(),
        )
        return MachineGroup(record, provider, self.ledger, self.home)

    def open(self, name: str) -> MachineGroup:
        """Return a group that exists.

        Args:
            name: Name of the group, or of one of its machines, such as "task0.NAME".

        Raises:
            UsageError: there is no such group.
        """
        record = find_group(self.home, name)
        provider = cloud_provider(record.provider, record.region)
        return MachineGroup(record, provider, self.ledger, self.home)
