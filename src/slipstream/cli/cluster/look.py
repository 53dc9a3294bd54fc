"""The commands of `slipstream cluster` that look at running hosts: top and tensorboard."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slipstream.cli.cluster.machine_examples import machine_examples
from slipstream.cli.cluster.runs import open_session
from slipstream.cli.cluster.view import TerminalView
from slipstream.cli.options import AsJson
from slipstream.cli.output import emit, remark, stdout_console
from slipstream.errors import UsageError
from slipstream.units import GIB

if TYPE_CHECKING:
    from rich.table import Table

    from slipstream.cluster.control.host_load import GpuLoad, HostLoad
    from slipstream.cluster.control.reached_hosts import ReachedHost
    from slipstream.cluster.control.session import RunSession

LOOK_SECONDS = 2.0

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of a run, #NUMBER, or name of a group.")
]


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("top", epilog=machine_examples("top"))(top)
    app.command("tensorboard", epilog=machine_examples("tensorboard"))(show_tensorboard)


def top(name: Name, as_json: AsJson = False) -> None:
    """Show how busy the hosts of a run or of a group are, until Ctrl-C; --json prints it once."""
    from rich.live import Live

    from slipstream.cluster.control.host_load import host_loads
    from slipstream.cluster.control.reached_hosts import reached_hosts

    hosts = reached_hosts(open_session(), name, TerminalView())
    loads = host_loads(hosts)
    console = stdout_console()
    if as_json or not console.is_terminal:
        emit([asdict(load) for load in loads], [_table(loads)], as_json=as_json)
        return
    try:
        with Live(_table(loads), console=console, auto_refresh=False) as live:
            while True:
                time.sleep(LOOK_SECONDS)
                live.update(_table(host_loads(hosts)), refresh=True)
    except KeyboardInterrupt:
        return


def show_tensorboard(
    name: Name,
    logdir: Annotated[
        str,
        typer.Option(
            metavar="FOLDER",
            show_default="that of the job",
            help="Folder with TensorBoard's files, relative to the code or to the home.",
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Start TensorBoard on the head's host, and make it reachable here until Ctrl-C."""
    from slipstream.cluster.control.tensorboard import tensorboard

    host, shell, folder, python = _place(open_session(), name, logdir)
    try:
        with tensorboard(host, shell, folder, python) as (url, process):
            emit({"url": url}, [f"TensorBoard is at {url}"], as_json=as_json)
            sys.stdout.flush()  # a program that reads it waits for the address
            remark("Ctrl-C ends it")
            raise typer.Exit(process.wait())
    except KeyboardInterrupt:
        return


def _place(
    session: RunSession, name: str, logdir: str
) -> tuple[ReachedHost, Sequence[str], str, str]:
    """Return the host with TensorBoard's files, its shell, the folder there, and its Python."""
    from slipstream.cluster.control.reached_hosts import ShellHost, layout_of
    from slipstream.cluster.engines.this_host import ThisHost
    from slipstream.cluster.groups.group_record import GroupFolder
    from slipstream.cluster.groups.group_session import GroupSession

    if GroupFolder(session.home, name).read() is not None:
        host = GroupSession(session.home).open(name).hosts()[0]
        return host, host.argv, _named(logdir, name), "python3"
    record = session.log.find(name)
    folder = _named(logdir or str(record.spec.get("tensorboard", "")), name)
    controller = session.open(name, TerminalView())
    _, path = controller.copy_end(f"head:{folder}")
    if record.engine == "local":
        return ThisHost(), ("sh", "-c"), path, sys.executable
    shell = controller.shell("")
    layout = layout_of(session, record)
    return ShellHost(name=layout.head, argv=tuple(shell)), shell, path, layout.python


def _named(folder: str, name: str) -> str:
    if not folder:
        raise UsageError(
            f"{name} names no folder with TensorBoard's files; give it with --logdir, or in the job"
            " as tensorboard"
        )
    return folder


def _table(loads: Sequence[HostLoad]) -> Table:
    from rich.table import Table

    table = Table("host", "processors", "load", "memory", "GPU", "GPU memory", "power")
    for load in loads:
        if load.problem:
            table.add_row(load.host, load.problem)
            continue
        first = [
            load.host,
            f"{load.busy:.0%} of {load.cores}",
            f"{load.load:.1f}",
            f"{load.memory_used / GIB:.1f} of {load.memory_total / GIB:.1f} GiB",
        ]
        for left, gpu in zip(_once(first), load.gpus or (None,), strict=False):
            table.add_row(*left, *(_gpu_cells(gpu) if gpu else ("none", "", "")))
    return table


def _once(cells: list[str]) -> Iterator[list[str]]:
    """Yield some cells, and then empty ones in their place."""
    yield cells
    while True:
        yield [""] * len(cells)


def _gpu_cells(gpu: GpuLoad) -> tuple[Any, ...]:
    busy = "" if gpu.busy is None else f" {gpu.busy:.0%}"
    power = "" if gpu.watts is None else f"{gpu.watts:.0f} W"
    memory = f"{gpu.memory_used / GIB:.1f} of {gpu.memory_total / GIB:.1f} GiB"
    return f"{gpu.name}{busy}", memory, power
