"""Free resources of machines, and the choice of machines and GPUs for a job.

A job gets all its hosts at once or none (gang scheduling), each on another machine. The fullest
machine and the fullest GPU on which a part fits are taken, so that whole ones stay free for
large jobs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from slipstream.cluster.queue.shapes import Allocation, HostShare, QueueMachine, ResourceRequest


@dataclass(slots=True)
class FreeHost:
    """The free resources of one machine; `gpus` has the free memory of each GPU in MiB."""

    machine: QueueMachine
    gpus: list[int]
    cpus: int
    memory_mib: int
    accelerators: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, share: HostShare, sign: int) -> None:
        """Give back the resources of a share if `sign` is 1, take them if it is -1."""
        for number, memory in share.gpus:
            self.gpus[number] += sign * memory
        self.cpus += sign * share.cpus
        self.memory_mib += sign * share.memory_mib
        for name, count in share.accelerators.items():
            self.accelerators[name] = self.accelerators.get(name, 0) + sign * count

    def share_for(self, request: ResourceRequest) -> HostShare | None:
        """Return the resources for one host of a job, or None if they are not free."""
        kind = "ssh" if self.machine.login else "local"
        if request.on not in ("", kind):
            return None
        short = request.cpus > self.cpus or request.memory_mib > self.memory_mib
        counts = request.accelerators.items()
        if short or any(count > self.accelerators.get(name, 0) for name, count in counts):
            return None
        usable = self.usable_gpus(request)
        if len(usable) < request.gpus:
            return None
        sizes = self.machine.gpus
        chosen = sorted(usable, key=lambda number: (self.gpus[number], number))[: request.gpus]
        taken = [
            (number, request.gpu_memory_mib or sizes[number].memory_mib)
            for number in sorted(chosen)
        ]
        return HostShare(
            machine=self.machine.name,
            gpus=tuple(taken),
            gpu_units=sum(memory / sizes[number].memory_mib for number, memory in taken),
            cpus=request.cpus,
            memory_mib=request.memory_mib,
            accelerators=dict(request.accelerators),
        )

    def usable_gpus(self, request: ResourceRequest) -> list[int]:
        """Return the numbers of GPUs that have the memory; for whole GPUs, those without a job."""
        return [
            number
            for number, gpu in enumerate(self.machine.gpus)
            if self.gpus[number] >= (request.gpu_memory_mib or gpu.memory_mib)
            and request.gpu.lower() in gpu.kind.lower()
        ]


class FreeCapacity:
    """The free resources of all machines.

    Args:
        hosts: Free resources by the name of the machine.
    """

    def __init__(self, hosts: dict[str, FreeHost]) -> None:
        self._hosts = hosts

    @classmethod
    def of(
        cls, machines: Iterable[QueueMachine], allocations: Iterable[Allocation] = ()
    ) -> FreeCapacity:
        """Return what allocations leave of machines.

        Args:
            machines: All machines.
            allocations: Resources that jobs hold; those of unknown machines count nowhere.
        """
        free = cls(
            {
                machine.name: FreeHost(
                    machine,
                    [gpu.memory_mib for gpu in machine.gpus],
                    machine.cpus,
                    machine.memory_mib,
                    dict(machine.accelerators),
                )
                for machine in machines
            }
        )
        for allocation in allocations:
            free.take(allocation)
        return free

    def host(self, name: str) -> FreeHost:
        """Return the free resources of one machine."""
        return self._hosts[name]

    def take(self, allocation: Allocation) -> None:
        """Take the resources of an allocation."""
        self._add(allocation, -1)

    def give(self, allocation: Allocation) -> None:
        """Give the resources of an allocation back."""
        self._add(allocation, 1)

    def copy(self) -> FreeCapacity:
        """Return free resources that change independently of these."""
        return self.at_most(self)

    def at_most(self, other: FreeCapacity) -> FreeCapacity:
        """Return the resources that are free both here and in `other`, of the same machines."""
        return FreeCapacity(
            {name: _smaller(host, other._hosts[name]) for name, host in self._hosts.items()}
        )

    def place(self, request: ResourceRequest, num_hosts: int) -> Allocation | None:
        """Return resources for a number of hosts, or None if they are not all free.

        Args:
            request: Resources of each host.
            num_hosts: Number of hosts, each on another machine.
        """
        shares = self._shares(request)
        return tuple(shares[:num_hosts]) if len(shares) >= num_hosts else None

    def place_more(
        self, request: ResourceRequest, allocation: Allocation, num_hosts: int
    ) -> Allocation:
        """Return resources for at most `num_hosts` hosts on machines without one of a job's parts.

        Args:
            request: Resources of each host.
            allocation: Resources that the job has.
            num_hosts: Largest number of hosts.
        """
        own = {share.machine for share in allocation}
        return tuple(s for s in self._shares(request) if s.machine not in own)[:num_hosts]

    def num_gpus(self, request: ResourceRequest) -> int:
        """Return the number of free GPUs (or of GPUs with the memory) that fit a request."""
        hosts = (host for host in self._hosts.values() if host.machine.is_open)
        return sum(len(host.usable_gpus(request)) for host in hosts)

    def num_hosts(self, request: ResourceRequest) -> int:
        """Return the number of machines on which one host of a request fits."""
        return len(self._shares(request))

    def _shares(self, request: ResourceRequest) -> list[HostShare]:
        """Return a share on each machine on which a host fits, the fullest machine first."""
        found: list[tuple[tuple[float, int, str], HostShare]] = []
        for name, host in self._hosts.items():
            share = host.share_for(request) if host.machine.is_open else None
            if share is not None:
                found.append(((sum(host.gpus), host.cpus, name), share))
        return [share for _, share in sorted(found, key=lambda pair: pair[0])]

    def _add(self, allocation: Allocation, sign: int) -> None:
        for share in allocation:
            host = self._hosts.get(share.machine)
            if host is not None:
                host.add(share, sign)


def _smaller(one: FreeHost, other: FreeHost) -> FreeHost:
    return FreeHost(
        one.machine,
        [min(pair) for pair in zip(one.gpus, other.gpus, strict=True)],
        min(one.cpus, other.cpus),
        min(one.memory_mib, other.memory_mib),
        {
            name: min(count, other.accelerators.get(name, 0))
            for name, count in one.accelerators.items()
        },
    )
