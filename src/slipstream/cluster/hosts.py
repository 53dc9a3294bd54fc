"""The hosts of a job, as the user writes them: `a:2,b:2`, `user@a`, `[fd00::1]:4`."""

import re
import socket
from dataclasses import dataclass

from slipstream.errors import UsageError

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")

_HOST = re.compile(
    r"(?P<login>[^@\s:,\-][^@\s:,]*@)?"
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<name>[A-Za-z0-9_][A-Za-z0-9_.\-]*))"
    r"(?::(?P<slots>[1-9][0-9]{0,4}))?"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """One host and how many ranks it gets.

    Args:
        name: name or address without brackets; `localhost` is this host, without ssh.
        slots: number of ranks, 1 or more; default 1.
        login: what ssh gets, `user@name` or the name.
    """

    name: str
    slots: int = 1
    login: str = ""

    @property
    def is_local(self) -> bool:
        """Whether the ranks are started here, without ssh."""
        return self.name in LOCAL_NAMES and "@" not in self.login


def parse_hosts(text: str, *, default_slots: int | None = None) -> tuple[Host, ...]:
    """Return the hosts of a list such as `a:2,b:2`.

    Args:
        text: hosts with commas between, each `[user@]name[:ranks]`; an IPv6 address in brackets.
        default_slots: ranks of a host that names none, 1 or more; default 1.

    Raises:
        UsageError: an entry cannot be read, or a host is named twice.
    """
    hosts = tuple(_parse_host(entry.strip(), default_slots or 1) for entry in text.split(","))
    names = [host.name for host in hosts]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"the hosts are {text!r}, with {name!r} twice; name it once with its number of"
                f" ranks, {name}:{sum(host.slots for host in hosts if host.name == name)}"
            )
    return hosts


def _parse_host(entry: str, default_slots: int) -> Host:
    match = _HOST.fullmatch(entry)
    if match is None:
        raise UsageError(
            f"the host is {entry!r}; allowed: [user@]name[:ranks], such as a:2, me@10.0.0.7 or"
            " [fd00::1]:4"
        )
    name = match["v6"] or match["name"]
    login = f"{match['login'] or ''}{name}"
    return Host(name=name, slots=int(match["slots"] or default_slots), login=login)


def address_of_first(hosts: tuple[Host, ...]) -> str:
    """Return the address at which every rank reaches the first host.

    That is its name as given, unless it is this host and others are not: then it is the address
    from which this host would reach the first of the others.

    Raises:
        UsageError: the other host's name cannot be resolved, or no route leads there.
    """
    remote = [host for host in hosts if not host.is_local]
    if not remote:
        return "127.0.0.1"
    if not hosts[0].is_local:
        return hosts[0].name
    try:
        family, kind, _, _, address = socket.getaddrinfo(remote[0].name, 9, type=socket.SOCK_DGRAM)[
            0
        ]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise UsageError(
            f"no route from this host to {remote[0].name!r}: {error}; set MASTER_ADDR to an"
            " address of this host that the other hosts can reach"
        ) from error
