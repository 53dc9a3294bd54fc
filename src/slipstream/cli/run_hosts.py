"""The hosts of `slipstream run` and the limits of an elastic job, from the command's options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slipstream.errors import UsageError
from slipstream.units import parse_duration

if TYPE_CHECKING:
    from slipstream.cluster.elastic import ElasticOptions, HostRules
    from slipstream.cluster.launch import Host

DEFAULT_WAIT = "10m"
DEFAULT_POLL = "1s"


@dataclass(frozen=True, kw_only=True, slots=True)
class HostArguments:
    """The options of `slipstream run` that choose hosts and the number of ranks.

    Args:
        hosts: List of hosts, such as a:2,b:2, or None.
        hostfile: File of hosts, or None.
        ranks_per_host: Number of ranks on this host or on each host, or None.
        num_processes: Total number of ranks, or None.
        min_ranks: Smallest number of ranks of an elastic job, or None.
        max_ranks: Largest number of ranks of an elastic job, or None.
        hosts_from: Program that prints the hosts of an elastic job, or None.
        max_restarts: Largest number of failed processes that are replaced, or None.
        wait: Longest time with too few slots, or None.
        poll: Time between two runs of the program that prints the hosts, or None.
        whole_hosts: Whether a failed process takes its host out of the job.
        cooldown: Shortest and longest time for which such a host stays out, or None.
        max_changes: Largest number of changes of the members, or None.
    """

    hosts: str | None
    hostfile: Path | None
    ranks_per_host: int | None
    num_processes: int | None
    min_ranks: int | None
    max_ranks: int | None
    hosts_from: Path | None
    max_restarts: int | None
    wait: str | None
    poll: str | None
    whole_hosts: bool
    cooldown: str | None
    max_changes: int | None

    @property
    def is_elastic(self) -> bool:
        """Whether an option asks for an elastic job."""
        limits = (self.min_ranks, self.max_ranks, self.hosts_from)
        return any(limit is not None for limit in limits)


def choose_hosts(given: HostArguments) -> tuple[Host, ...]:
    """Return the hosts of a job, with as many slots as ranks; none if a program prints them.

    Raises:
        UsageError: options contradict each other, or an option that is needed is missing.
    """
    from slipstream.cluster.launch import Host, fill_hosts, parse_hosts, read_hostfile

    if given.hosts is not None and given.hostfile is not None:
        raise UsageError("both -H and --hostfile are given; allowed: one of them")
    if given.ranks_per_host is not None and given.num_processes is not None:
        raise UsageError("both -n and -np are given; allowed: ranks on each host, or in all")
    if given.hosts_from is not None:
        _check_program_alone(given)
        return ()
    if given.hostfile is not None:
        chosen = read_hostfile(given.hostfile)
    elif given.hosts is not None:
        chosen = parse_hosts(given.hosts, default_slots=given.ranks_per_host)
    else:
        slots = given.ranks_per_host or given.num_processes or given.max_ranks
        if slots is None and given.is_elastic:
            raise UsageError(
                "none of --max, -n and -H is given; say --max 4 for up to 4 processes on this host,"
                " or -H a:2,b:2"
            )
        if slots is None:
            raise UsageError("neither -n nor -H is given; say -n 2 or -H a:2,b:2")
        chosen = (Host(name="localhost", slots=slots),)
    return chosen if given.num_processes is None else fill_hosts(chosen, given.num_processes)


def choose_elastic_options(given: HostArguments, hosts: tuple[Host, ...]) -> ElasticOptions | None:
    """Return the limits of an elastic job, or None for a job with a fixed number of ranks.

    Args:
        given: Options of the command.
        hosts: Hosts that `choose_hosts` has returned.

    Raises:
        UsageError: the limits cannot be met.
    """
    from slipstream.cluster.elastic import ElasticOptions

    if not given.is_elastic:
        of_elastic_jobs = (
            *(
                ("--max-restarts", given.max_restarts),
                ("--wait", given.wait),
                ("--poll", given.poll),
            ),
            *(("--cooldown", given.cooldown), ("--max-changes", given.max_changes)),
            ("--whole-hosts", given.whole_hosts or None),
        )
        for name, value in of_elastic_jobs:
            if value is not None:
                raise UsageError(f"{name} is for elastic jobs; say --min or --max too")
        return None
    slots = sum(host.slots for host in hosts)
    least = 1 if given.min_ranks is None else given.min_ranks
    most = slots if given.max_ranks is None else given.max_ranks
    if given.num_processes is not None and given.num_processes > most:
        raise UsageError(f"-np is {given.num_processes}; allowed: at most --max, which is {most}")
    if given.max_ranks is not None and least > most:
        raise UsageError(f"--min is {least}; allowed: 1 to {most}, which is --max")
    if hosts and least > slots:
        raise UsageError(f"--min is {least}; allowed: 1 to {slots}, the slots of the hosts")
    return ElasticOptions(
        min_ranks=least,
        max_ranks=most,
        hosts_from=given.hosts_from,
        default_slots=given.ranks_per_host or 1,
        max_restarts=given.max_restarts,
        wait_seconds=parse_duration(given.wait or DEFAULT_WAIT, "wait", bare_seconds=True),
        poll_seconds=parse_duration(given.poll or DEFAULT_POLL, "poll", bare_seconds=True),
        host_rules=_host_rules(given),
    )


def _host_rules(given: HostArguments) -> HostRules | None:
    from slipstream.cluster.elastic import HostRules

    if not given.whole_hosts:
        for name, value in (("--cooldown", given.cooldown), ("--max-changes", given.max_changes)):
            if value is not None:
                raise UsageError(f"{name} is given without --whole-hosts; say both")
        return None
    cooldown = None
    if given.cooldown is not None:
        shortest, comma, longest = given.cooldown.partition(",")
        if not comma:
            raise UsageError(
                f"--cooldown is {given.cooldown!r}; allowed: two times, such as 1s,60s"
            )
        cooldown = (
            parse_duration(shortest, "cooldown", bare_seconds=True),
            parse_duration(longest, "cooldown", bare_seconds=True),
        )
    return HostRules(cooldown_seconds=cooldown, max_changes=given.max_changes)


def _check_program_alone(given: HostArguments) -> None:
    others = (("-H", given.hosts), ("--hostfile", given.hostfile), ("-np", given.num_processes))
    for name, value in others:
        if value is not None:
            raise UsageError(
                f"both --hosts-from and {name} are given; allowed: one of them, because the program"
                " prints the hosts"
            )
    if given.max_ranks is None:
        raise UsageError("--hosts-from is given without --max; say --max 8 for at most 8 ranks")
