"""The commands of `slipstream cluster` about the hosts of a run: shells, tmux and files."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.cluster.examples import examples
from slipstream.cli.cluster.runs import Name, open_session
from slipstream.cli.cluster.view import TerminalView
from slipstream.errors import UsageError

if TYPE_CHECKING:
    from slipstream.cluster.control.controller import Controller

HostName = Annotated[
    str, typer.Argument(metavar="HOST", show_default="the host of the head", help="Name of a host.")
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
    """Open a shell on a host of a run, or run a command there."""
    argv = _shell(name, host)
    os.execvp(argv[0], [*argv, *(command or [])])


def tmux(name: Name, host: HostName = "") -> None:
    """Watch the session of the host daemon or of the head on a host; leave it with Ctrl-B D."""
    argv = _shell(name, host)
    os.execvp(argv[0], [*argv, "tmux -L slipstream attach"])


def scp(
    name: Name,
    source: Annotated[str, typer.Argument(metavar="FROM", help="Path, or HOST:PATH.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Path, or HOST:PATH.")],
) -> None:
    """Copy files between this machine and a host of a run; paths there are relative to the code."""
    controller = _open(name)
    ends = [controller.copy_end(text) for text in (source, target)]
    hosts = [host for host, _ in ends if host]
    if len(hosts) != 1:
        raise UsageError(
            f"the paths are {source!r} and {target!r}; allowed: one of them on a host, as HOST:PATH"
        )
    shell = controller.shell(hosts[0])
    paths = [f"{shell[-1]}:{path}" if host else path for host, path in ends]
    remote_shell = " ".join(shell[:-1])
    raise typer.Exit(subprocess.run(["rsync", "-az", "-e", remote_shell, *paths]).returncode)


def _shell(name: str, host: str) -> list[str]:
    argv = _open(name).shell(host)
    return [argv[0], "-t", *argv[2:]]


def _open(name: str) -> Controller:
    return open_session().open(name, TerminalView())
