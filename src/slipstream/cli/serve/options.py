"""Options of `slipstream serve` that concern replicas, and the parser of their number."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from slipstream.cli.options import split_list
from slipstream.errors import UsageError

REPLICAS = "Replicas behind a gateway"

ReplicaRange = Annotated[
    str | None,
    typer.Option(
        metavar="N or MIN:MAX",
        show_default="1, or one for each host",
        help="Number of processes that run the models; a process that dies is replaced. With"
        " MIN:MAX, as many servers as the load needs run behind a gateway.",
    ),
]
Hosts = Annotated[
    str | None,
    typer.Option(
        "--hosts",
        "-H",
        metavar="LIST",
        rich_help_panel=REPLICAS,
        help="Hosts on which the replicas run, as ssh knows them, such as a,b.",
    ),
]
Idle = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        rich_help_panel=REPLICAS,
        help="Time without a request after which there is no replica, if MIN is 0.",
    ),
]
TargetOpen = Annotated[
    float,
    typer.Option(
        metavar="NUMBER",
        rich_help_panel=REPLICAS,
        help="Open requests that each replica should have.",
    ),
]
TargetLatency = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        rich_help_panel=REPLICAS,
        show_default="none",
        help="Time within which 99% of the requests should be answered.",
    ),
]
CoolDown = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        rich_help_panel=REPLICAS,
        help="Time for which fewer replicas must have been enough before one ends.",
    ),
]
HostPython = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        rich_help_panel=REPLICAS,
        show_default="the same path as here",
        help="Python on the hosts, which has Slipstream.",
    ),
]


def parse_replicas(text: str | None, num_hosts: int) -> tuple[int, int]:
    """Return the smallest and the largest number of replicas.

    Args:
        text: Number or MIN:MAX, as of --replicas; None for one, or one for each host.
        num_hosts: Number of hosts; 0 if the replicas run on this one.

    Raises:
        UsageError: the text has another form.
    """
    if text is None:
        return max(num_hosts, 1), max(num_hosts, 1)
    match = re.fullmatch(r"(\d+)(?::(\d+))?", text.strip())
    least, most = (0, 0) if match is None else (int(match[1]), int(match[2] or match[1]))
    if most < max(least, 1):
        raise UsageError(
            f"--replicas is {text!r}; allowed: a number from 1, or MIN:MAX such as 0:4"
        )
    return least, most


def split_hosts(text: str | None) -> tuple[str, ...]:
    """Return the hosts of the option -H.

    Args:
        text: List such as a,b; None for no hosts.

    Raises:
        UsageError: a host is named twice, or has a number of slots.
    """
    hosts = () if text is None else split_list(text)
    if len(set(hosts)) < len(hosts) or any(":" in host for host in hosts):
        raise UsageError(f"-H is {text!r}; allowed: different hosts, such as a,b or user@a")
    return hosts
