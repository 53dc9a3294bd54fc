"""The commands of `slipstream cluster` about hosts of a run or a group: shells, tmux and files."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.cluster.examples import examples
from slipstream.cli.cluster.look import Name
from slipstream.cli.cluster.machines import open_groups
from slipstream.cli.cluster.runs import open_session
from slipstream.cli.cluster.view import TerminalView
from slipstream.errors import UsageError

if TYPE_CHECKING:
    from slipstream.cluster.engines.ssh_host import SshHost
    from slipstream.cluster.groups.machine_group import MachineGroup

HostName = Annotated[
    str,
    typer.Argument(
        metavar="HOST",
        show_default="the host of the head, or the first machine",
        help="Name of a host, or of a machine of a group, such as task1.",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("ssh", epilog=examples("ssh"), context_settings={"allow_interspersed_args": False})(
        ssh
    )
    app.command("tmux", epilog=examples("tmux"))(tmux)
    app.command("scp", epilog=examples("scp"))(scp)


def ssh(
    name: Name,
    host: HostName = "",
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND...", show_default=False, help="Command to run there."),
    ] = None,
) -> None:
    """Open a shell on a host of a run or a machine of a group, or run a command there."""
    argv = _with_terminal(_shell(name, host))
    os.execvp(argv[0], [*argv, *(command or [])])


def tmux(name: Name, host: HostName = "") -> None:
    """Watch the session of the host daemon, the head or a group's shell; leave it with Ctrl-B D."""
    argv = _with_terminal(_shell(name, host))
    group = _group_of(name)
    attach = "tmux -L slipstream attach"
    if group is not None:
        attach = group.shell(_machine(group, name, host)).attach_command
    os.execvp(argv[0], [*argv, attach])


def scp(
    name: Name,
    source: Annotated[str, typer.Argument(metavar="FROM", help="Path, or HOST:PATH.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Path, or HOST:PATH.")],
) -> None:
    """Copy files from or to a host; paths there are relative to the code of a run, or to the home.

    The home is meant for machines of a group.
    """
    ends = [_copy_end(name, text) for text in (source, target)]
    hosts = [host for host, _ in ends if host]
    if len(hosts) != 1:
        raise UsageError(
            f"the paths are {source!r} and {target!r}; allowed: one of them on a host, as HOST:PATH"
        )
    shell = _shell(name, hosts[0])
    paths = [f"{shell[-1]}:{path}" if host else path for host, path in ends]
    remote_shell = " ".join(shell[:-1])
    raise typer.Exit(subprocess.run(["rsync", "-az", "-e", remote_shell, *paths]).returncode)


def _shell(name: str, host: str) -> list[str]:
    """Return the command that runs a shell command on a host, up to that command."""
    group = _group_of(name)
    if group is not None:
        return _machine(group, name, host).argv
    return open_session().open(name, TerminalView()).shell(host)


def _with_terminal(argv: list[str]) -> list[str]:
    return [argv[0], "-t", *argv[2:]]


def _copy_end(name: str, text: str) -> tuple[str, str]:
    """Return the host ("" for this machine) and the path of an end of a copy."""
    if _group_of(name) is None:
        return open_session().open(name, TerminalView()).copy_end(text)
    host, colon, path = text.partition(":")
    return (host, path) if colon and "/" not in host else ("", text)


def _group_of(name: str) -> MachineGroup | None:
    """Return the group of a name, such as NAME or task0.NAME, or None if it is no group."""
    from slipstream.cluster.groups.group_record import GroupFolder

    groups = open_groups()
    is_group = GroupFolder(groups.home, name.partition(".")[2] or name).read() is not None
    return groups.open(name) if is_group else None


def _machine(group: MachineGroup, name: str, host: str) -> SshHost:
    """Return the machine that is named, by its group's name too, or else the first one."""
    named = host or (name if "." in name else "")
    return group.host(named) if named else group.hosts()[0]
