"""The orders that start the processes of an elastic job, with the environment of each process."""

from collections.abc import Sequence
from dataclasses import replace

from slipstream.cluster.elastic.hosts import ElasticHost, HostPool
from slipstream.cluster.elastic.options import ElasticOptions
from slipstream.cluster.elastic.slots import Slot
from slipstream.cluster.launch.hosts import Host, address_of_first
from slipstream.cluster.launch.job import (
    Job,
    forwarded_environment,
    job_environment,
    program_argv,
    rank_environments,
)
from slipstream.cluster.launch.messages import StartSlot
from slipstream.settings import RANK_VARIABLES, ElasticPart, thread_environment


class Starter:
    """The author of the orders to start processes.

    Args:
        job: Job of the processes.
        options: Limits of the job.
        pool: Hosts of the job.

    Raises:
        ConfigError: an environment variable has a value that is not allowed.
    """

    def __init__(self, job: Job, options: ElasticOptions, pool: HostPool) -> None:
        self._job = job
        self._options = options
        self._pool = pool
        self._shared = job_environment(job)

    def first_environments(self, slots: Sequence[Slot]) -> list[dict[str, str]]:
        """Return the variables of the first ranks, one in each of `slots`.

        Args:
            slots: Slots of the ranks, host by host.
        """
        counts: dict[str, int] = {}
        for slot in slots:
            counts[slot.host] = counts.get(slot.host, 0) + 1
        hosts = [self._pool.host_of(slot) for slot in slots]
        used = {host.host.name: replace(host.host, slots=counts[host.host.name]) for host in hosts}
        job = replace(self._job, hosts=tuple(used.values()))
        link = hosts[0].link
        assert link is not None
        assert link.hello is not None
        port = link.hello.free_port
        return [
            variables
            for index in range(len(used))
            for variables in rank_environments(job, index, port)
        ]

    def order(self, slot: Slot, variables: dict[str, str] | None, rank: int) -> StartSlot:
        """Return the order that starts a slot's process.

        Args:
            slot: Slot of the process.
            variables: Variables of one of the first ranks; None for a process that joins.
            rank: Rank of the process, or the one that it is likely to get when it joins.
        """
        host = self._pool.host_of(slot)
        by_host = self._options.host_rules is not None
        part = ElasticPart(
            min_ranks=self._options.min_ranks,
            max_ranks=self._options.max_ranks,
            slot=slot.local_rank,
            member_port=slot.port,
            members=self._members(),
            joins=variables is None,
            job_slot=slot.number,
            host_name=slot.host,
            hosts_may_join=self._hosts_may_join,
            whole_hosts=by_host,
            rank_hint=rank if by_host else None,
        )
        return StartSlot(
            local_rank=slot.local_rank,
            argv=program_argv(self._job, host.host),
            cwd=self._job.cwd,
            environ={
                **forwarded_environment(host.host, self._job.environ),
                **self.threads(host),
                **self._shared,
                **(variables or {}),
                **part.as_environment(),
            },
            unset=RANK_VARIABLES if variables is None else (),
            grace_seconds=self._job.grace_seconds,
            nccl_plugin=self._job.nccl_plugin,
            flight_folder="" if host.host.is_local else str(self._job.flight_folder or ""),
        )

    def threads(self, host: ElasticHost) -> dict[str, str]:
        """Return the variable with the number of threads of each process of a host."""
        assert host.link is not None
        assert host.link.hello is not None
        num_cores = host.link.hello.num_cores
        return thread_environment(self._job.effective_environ, num_cores, host.host.slots)

    @property
    def _hosts_may_join(self) -> bool:
        listed = any(not host.is_local for host in self._job.hosts)
        may_change = self._options.hosts_from is not None or self._options.source is not None
        return listed or may_change

    def _members(self) -> list[tuple[str, int]]:
        hosts = [host for host in self._pool if host.usable_slots]
        addresses = {
            host.host.name: _address(host.host, [other.host for other in hosts]) for host in hosts
        }
        return [(addresses[slot.host], slot.port) for host in hosts for slot in host.usable_slots]


def _address(host: Host, hosts: Sequence[Host]) -> str:
    """Return the address at which all `hosts` reach one of them."""
    others = tuple(other for other in hosts if other is not host)
    return address_of_first((host, *others))
