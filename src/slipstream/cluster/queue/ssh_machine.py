"""A host behind ssh as a machine of the queue: its processors, memory and GPUs are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from slipstream.cluster.engines.probe import HostFacts, missing_software, probe
from slipstream.cluster.engines.ssh_host import SshHost
from slipstream.cluster.queue.shapes import QueueGpu, QueueMachine
from slipstream.cluster.spec import JobSpec
from slipstream.errors import ConfigError, SlipstreamError
from slipstream.units import MIB

NUM_THREADS = 16
_ANY_JOB = JobSpec(name="machine", command=("true",))


def ssh_machine(login: str, ssh_options: Sequence[str] = (), name: str = "") -> QueueMachine:
    """Return a host behind ssh with its processors, memory and GPUs.

    Args:
        login: Destination for ssh, such as "me@node1".
        ssh_options: Options for ssh, each without its -o (default none).
        name: Name of the machine (default "": that in the destination).

    Raises:
        ConfigError: the host lets nobody in, or lacks Python or a tool that runs need.
        PeerError: the host cannot be reached.
    """
    name = name or login.rpartition("@")[2]
    host = SshHost(name=name, login=login, options=tuple(ssh_options))
    facts = probe(host, _ANY_JOB, _ANY_JOB.ssh.home)
    lacks = missing_software(facts, _ANY_JOB)
    if lacks:
        raise ConfigError(f"{name} lacks {', '.join(lacks)}; install them on the host")
    return QueueMachine(
        name=name,
        gpus=_gpus(facts),
        cpus=facts.cores,
        memory_mib=facts.memory // MIB,
        login=login,
        ssh_options=tuple(ssh_options),
    )


def ssh_machines(
    logins: Sequence[str], ssh_options: Sequence[str] = ()
) -> list[QueueMachine | SlipstreamError]:
    """Return hosts behind ssh, asked at the same time; an error in the place of one that fails.

    Args:
        logins: Destinations for ssh.
        ssh_options: Options for ssh, each without its -o (default none).
    """

    def look(login: str) -> QueueMachine | SlipstreamError:
        try:
            return ssh_machine(login, ssh_options)
        except SlipstreamError as error:
            return error

    with ThreadPoolExecutor(NUM_THREADS) as pool:
        return list(pool.map(look, logins))


def _gpus(facts: HostFacts) -> tuple[QueueGpu, ...]:
    pairs = [line.rpartition(",") for line in facts.gpus]
    return tuple(QueueGpu(kind=kind.strip(), memory_mib=int(size)) for kind, _, size in pairs)
