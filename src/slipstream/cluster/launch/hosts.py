"""The hosts of a job, in the user's notation: `a:2,b:2`, `user@a`, `[fd00::1]:4`."""

import re
import socket
from dataclasses import dataclass, replace
from pathlib import Path

from slipstream.errors import UsageError, reason_of
from slipstream.settings import loopback_address

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")

_HOST = re.compile(
    r"(?P<login>[^@\s:,\-][^@\s:,]*@)?"
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<name>[A-Za-z0-9_][A-Za-z0-9_.\-]*))"
    r"(?::(?P<slots>[1-9][0-9]{0,4}))?"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Host:
    """A host and its number of ranks.

    Args:
        name: Name of the host, or its address without brackets; `localhost` means this host,
            without ssh.
        slots: Number of ranks, 1 or more (default 1).
        login: Destination for ssh: `user@name`, or `name` alone.
        address: Address at which the other hosts reach it; "" (the default) for its name.
    """

    name: str
    slots: int = 1
    login: str = ""
    address: str = ""

    @property
    def is_local(self) -> bool:
        """Whether the ranks are started on this host, without ssh."""
        return self.name in LOCAL_NAMES and "@" not in self.login


def parse_hosts(text: str, *, default_slots: int | None = None) -> tuple[Host, ...]:
    """Return the hosts of a list such as `a:2,b:2`.

    Args:
        text: Hosts separated by commas, each `[user@]name[:ranks]`; IPv6 addresses in brackets.
        default_slots: Number of ranks of a host whose entry has no number, 1 or more (default 1).

    Raises:
        UsageError: an entry cannot be read, or a host is named twice.
    """
    hosts = tuple(_parse_host(entry.strip(), default_slots or 1) for entry in text.split(","))
    names = [host.name for host in hosts]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"the hosts are {text!r}, which name {name!r} twice; name it once with its number"
                f" of ranks, {name}:{sum(host.slots for host in hosts if host.name == name)}"
            )
    return hosts


def read_hostfile(path: Path) -> tuple[Host, ...]:
    """Return the hosts of a file, one per line in the form of mpirun and horovodrun: `a slots=2`.

    Args:
        path: Path of the file; the text after `#` in a line is a comment.

    Raises:
        UsageError: the file cannot be read, or a line has another form.
    """
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise UsageError(f"the hostfile {path} cannot be read: {error.strerror}") from error
    entries: list[str] = []
    for line in lines:
        words = line.partition("#")[0].split()
        if not words:
            continue
        name, *options = words
        counts = [option.removeprefix("slots=") for option in options]
        if len(options) > 1 or not all(count.isdecimal() and int(count) for count in counts):
            raise UsageError(f"{path} has the line {line!r}; allowed: lines such as a slots=2")
        entries.append(":".join([name, *counts]))
    if not entries:
        raise UsageError(f"{path} names no host; allowed: lines such as a slots=2")
    return parse_hosts(",".join(entries))


def fill_hosts(hosts: tuple[Host, ...], num_ranks: int) -> tuple[Host, ...]:
    """Return the first hosts of a list, as many as `num_ranks` ranks need.

    The last returned host has only as many slots as are still needed.

    Raises:
        UsageError: the hosts have too few slots.
    """
    slots = sum(host.slots for host in hosts)
    if not 1 <= num_ranks <= slots:
        raise UsageError(f"-np is {num_ranks}; allowed: 1 to {slots}, the slots of the hosts")
    filled: list[Host] = []
    left = num_ranks
    for host in hosts:
        used = min(left, host.slots)
        left -= used
        if used:
            filled.append(replace(host, slots=used))
    return tuple(filled)


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

    The address is the loopback address if the job has no remote host, and the first host's name if
    that host is remote. If the first host is local and others are remote, the address is the source
    address of packets from this host to the first remote host.

    Raises:
        UsageError: the first remote host's name cannot be resolved, or no route leads to that host.
    """
    remote = [host for host in hosts if not host.is_local]
    if not remote:
        return loopback_address()
    if not hosts[0].is_local:
        return hosts[0].address or hosts[0].name
    try:
        addresses = socket.getaddrinfo(remote[0].name, 9, type=socket.SOCK_DGRAM)
        family, kind, _, _, address = addresses[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise UsageError(
            f"no route from this host to {remote[0].name!r}: {reason_of(error)}; set MASTER_ADDR to"
            " an address of this host that the other hosts can reach"
        ) from error
