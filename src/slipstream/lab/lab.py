"""The class `Lab`, which makes, changes and removes a lab."""

from __future__ import annotations

import dataclasses
import logging
import os
import secrets
import sys
from collections.abc import Mapping, Sequence

from slipstream.errors import SlipstreamError, UsageError
from slipstream.lab import registry
from slipstream.lab.iproute import check_permission
from slipstream.lab.network import INTERFACE, LabCounters, Network
from slipstream.lab.outcome import RunResult
from slipstream.lab.ranks import LabRun, OnLine, RankPlan
from slipstream.lab.spec import LabSpec
from slipstream.settings import Launch, job_key_environment
from slipstream.settings.variables import variables

_log = logging.getLogger(__name__)

# Ports of rank 0, below the kernel's range of ports for outgoing connections. Each run uses two
# successive ports.
_PORTS = range(20000, 30000, 2)


class Lab:
    """Hosts on this machine, with links of chosen bit rates between them.

    Use the object in a `with` statement, which makes and removes the lab, or call `up` and `down`.
    A lab is not thread-safe, except that any thread may read the counters.

    Args:
        spec: Description of the lab (default `LabSpec()`).
        name: Name by which the command line finds the lab (default: a random name).
        stays: Whether the lab stays until `down`, even after the end of this process (default
            False).

    Raises:
        UsageError: the name is not valid.
    """

    def __init__(
        self, spec: LabSpec | None = None, *, name: str | None = None, stays: bool = False
    ) -> None:
        identifier = secrets.token_hex(3)
        self._name = registry.check_name(name or identifier)
        self._network = Network(identifier=identifier, spec=spec or LabSpec())
        self._owner = None if stays else registry.this_process()

    @classmethod
    def attach(cls, name: str) -> Lab:
        """Return the lab with this name, which another process has made.

        Raises:
            UsageError: there is no lab with this name, the process that owned the lab has died, or
                a reboot has removed the lab.
        """
        record = registry.load(name)
        if record is None:
            raise UsageError(f"there is no lab named {name!r}; make one: slipstream lab up")
        if record.is_stale:
            raise UsageError(
                f"the lab {name!r} is gone after a reboot, or because its owner was killed; remove"
                f" its remains: slipstream lab down --name {name}"
            )
        lab = cls(record.network.spec, name=name)
        lab._network, lab._owner = record.network, record.owner
        return lab

    @property
    def name(self) -> str:
        """Name by which the command line finds the lab."""
        return self._name

    @property
    def spec(self) -> LabSpec:
        """Description of the lab with its current rates."""
        return self._network.spec

    @property
    def addresses(self) -> tuple[str, ...]:
        """IPv4 address of each host."""
        return tuple(self._network.address(host) for host in range(self.spec.hosts))

    @property
    def is_relayed(self) -> bool:
        """Whether the hosts are ordinary processes, whose links are a relay."""
        return False

    @property
    def interface(self) -> str:
        """Name of the network interface of every host."""
        return INTERFACE

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Names of the network namespaces of the hosts and of the switch."""
        return self._network.namespaces

    def up(self) -> None:
        """Make the lab, which takes some milliseconds per host.

        If a killed process or a reboot left parts of an earlier lab of this name behind, these
        parts are removed first.

        Raises:
            UnsupportedError: this process is not root, iproute2 is missing, or the kernel lacks a
                feature.
            UsageError: there already is a lab of this name.
        """
        check_permission()
        if (earlier := registry.load(self._name)) is not None and earlier.is_stale:
            _log.warning("removing the remains of an earlier lab named %s", self._name)
            registry.take_down(earlier)
        mine = dataclasses.replace(self._record(), owner=registry.this_process())
        registry.store(mine, is_new=True)
        try:
            self._network.create()
        except BaseException:
            registry.remove(self._name)
            raise
        registry.store(self._record(), is_new=False)

    def down(self) -> None:
        """Kill the processes in the lab and remove it; do nothing if it was already removed."""
        registry.take_down(self._record())

    def __enter__(self) -> Lab:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def change(self, host: int, *, rate: str) -> None:
        """Change the bit rate of a host's link in both directions, even during traffic on the link.

        The limits per connection stay the same, but no connection exceeds the new rate.
        """
        self._replace(self._links().change(host, rate))

    def change_uplinks(self, *, rate: str) -> None:
        """Change the bit rate of the links between the racks and the spine."""
        self._replace(self._links().change_uplinks(rate))

    def cut(self, host: int) -> None:
        """Pull the cable of a host: its interface loses the carrier, and packets on it are lost."""
        self._links().set_carrier(host, up=False)

    def mend(self, host: int) -> None:
        """Plug in the cable of a host again."""
        self._links().set_carrier(host, up=True)

    def is_cut(self, host: int) -> bool:
        """Return whether the cable of a host is pulled."""
        return not self._links().has_carrier(host)

    def counters(self) -> LabCounters:
        """Return the traffic on every link since the lab was made.

        `LabCounters.since` returns the traffic between two of these readings.
        """
        return self._network.counters()

    def start(
        self,
        command: Sequence[str],
        *,
        environ: Mapping[str, str] | None = None,
        hosts: int | None = None,
        ranks_per_host: int | None = None,
        pin: bool = False,
        on_line: OnLine | None = None,
    ) -> LabRun:
        """Start a program with one process per rank.

        If the calling thread ends, ranks that still run are killed.

        Args:
            command: Path of a .py file, or any program, followed by its arguments.
            environ: Environment variables for all ranks (default none). They override the variables
                of this process and of the lab, but not the variables that identify a rank.
            hosts: Number of hosts to use, starting with the first (default: all).
            ranks_per_host: Number of ranks on each host (default: as in the lab's description).
            pin: Whether to pin each rank to its own core (default False). If there are too few
                cores, all ranks of a host are pinned to the same core.
            on_line: Function that receives a rank's number and the text of each line that this rank
                writes; it is called in another thread (default None).

        Returns:
            The run, whose `wait` or `end` must be called.

        Raises:
            UsageError: `hosts` exceeds the hosts of the lab.
            OSError: the program cannot be started.
        """
        num_hosts = self.spec.hosts if hosts is None else hosts
        if not 1 <= num_hosts <= self.spec.hosts:
            raise UsageError(f"hosts is {num_hosts}; allowed: 1 to {self.spec.hosts}")
        spec = dataclasses.replace(
            self.spec, ranks_per_host=ranks_per_host or self.spec.ranks_per_host
        )
        key = secrets.token_hex(32)
        plans = self._plans(num_hosts, spec.ranks_per_host, environ or {}, key)
        if pin:
            plans = _pinned(plans)
        is_script = command[0].endswith(".py")
        argv = [sys.executable, *command] if is_script else list(command)
        return LabRun(argv, plans, key, on_line)

    def run(
        self,
        command: Sequence[str],
        *,
        environ: Mapping[str, str] | None = None,
        hosts: int | None = None,
        ranks_per_host: int | None = None,
        pin: bool = False,
        on_line: OnLine | None = None,
        timeout_seconds: float | None = None,
        check: bool = True,
    ) -> RunResult:
        """Run a program with one process per rank, and block until all ranks have ended.

        The first failure of a rank ends all other ranks. The arguments that are not listed here are
        those of `start`.

        Args:
            timeout_seconds: Time limit in seconds; ranks that still run are then ended and count as
                failed (default None: no limit).
            check: Whether to raise an error if a rank fails (default True).

        Raises:
            SlipstreamError: a rank failed; the message has the rank's number, exit status and last
                lines of output.
            UsageError: `hosts` exceeds the hosts of the lab.
        """
        run = self.start(
            command,
            environ=environ,
            hosts=hosts,
            ranks_per_host=ranks_per_host,
            pin=pin,
            on_line=on_line,
        )
        result = run.wait(timeout_seconds)
        if check and result.failure is not None:
            raise SlipstreamError(str(result.failure))
        return result

    def _plans(
        self, num_hosts: int, ranks_per_host: int, chosen: Mapping[str, str], key: str
    ) -> list[RankPlan]:
        port = secrets.choice(_PORTS)
        shared = {
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            **os.environ,
            **job_key_environment(key.encode()),
            "GLOO_SOCKET_IFNAME": self.interface,
            "NCCL_SOCKET_IFNAME": self.interface,
        }
        plans: list[RankPlan] = []
        for rank in range(num_hosts * ranks_per_host):
            host, local_rank = divmod(rank, ranks_per_host)
            launch = Launch(
                rank=rank,
                local_rank=local_rank,
                world_size=num_hosts * ranks_per_host,
                local_world_size=ranks_per_host,
                master_addr=self.addresses[0],
                master_port=port,
                source="environment",
            )
            position = self._position(host)
            environ = {**shared, **position, **chosen, **launch.as_environment()}
            plans.append(
                RankPlan(
                    rank=rank,
                    host=host,
                    namespace=self._namespace(host),
                    environ=environ,
                    core=None,
                )
            )
        return plans

    def _links(self) -> Network:
        """Return the lab's network; its methods change or cut links."""
        return self._network

    def _namespace(self, host: int) -> str | None:
        """Return the network namespace of a host; None if it is that of this process."""
        return self._network.host(host)

    def _position(self, host: int) -> dict[str, str]:
        """Return environment variables that name the host and, with several racks, the rack.

        NCCL would otherwise use shared memory between hosts, because they share the kernel.
        """
        declared = variables()
        name = f"lab-host{host}"
        position = {
            "GROUP_RANK": str(host),
            declared["host_id"].name: name,
            "NCCL_HOSTID": name,
        }
        if self.spec.racks > 1:
            position[declared["rack"].name] = f"lab-rack{self.spec.rack_of(host)}"
        return position

    def _record(self) -> registry.Record:
        return registry.Record(
            name=self._name,
            network=self._network,
            owner=self._owner,
            boot=registry.boot_identifier(),
        )

    def _replace(self, network: Network) -> None:
        self._network = network
        registry.store(self._record(), is_new=False)


def _pinned(plans: Sequence[RankPlan]) -> list[RankPlan]:
    """Give each rank its own core; with too few cores, the ranks of a host share one core."""
    cores = sorted(os.sched_getaffinity(0))
    enough = len(plans) <= len(cores)
    return [
        dataclasses.replace(plan, core=cores[(plan.rank if enough else plan.host) % len(cores)])
        for plan in plans
    ]
