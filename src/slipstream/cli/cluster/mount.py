"""`slipstream cluster mount`: the folder that the machines of a group share."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.cluster.machine_examples import machine_examples
from slipstream.cli.cluster.machine_options import GroupName
from slipstream.cli.cluster.machines import open_groups
from slipstream.cli.options import AsJson
from slipstream.cli.output import emit, remark
from slipstream.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from slipstream.cluster.engines.ssh_host import SshHost


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("mount", epilog=machine_examples("mount"))(mount)


def mount(
    name: GroupName,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="FOLDER",
            show_default="only list",
            help="Folder on this machine that shows the shared one, through sshfs.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List what the machines of a group have mounted, or mount their shared folder here."""
    from rich.table import Table

    from slipstream.cluster.providers.boot import DATA_FOLDER, SHARED_FOLDER

    group = open_groups().open(name)
    if folder is not None:
        _mount_here(group.hosts()[0], SHARED_FOLDER, folder)
        return
    paths = (SHARED_FOLDER, DATA_FOLDER)
    script = "; ".join(f"findmnt -no SOURCE {path} || echo" for path in paths)
    sources = group.on_all(lambda host: host.run(script, what="looking for mounts").split("\n"))
    rows = [
        {"machine": host.name, "folder": path, "source": source.strip()}
        for host, found in zip(group.hosts(), sources, strict=True)
        for path, source in zip(paths, found, strict=False)
        if source.strip()
    ]
    table = Table("machine", "folder", "from")
    for row in rows:
        table.add_row(row["machine"], row["folder"], row["source"])
    nothing = f"{name} shares no folder; slipstream cluster up has --shared-folder and --data-disk"
    emit(rows, [table] if rows else [nothing], as_json=as_json)


def _mount_here(host: SshHost, source: str, folder: Path) -> None:
    """Mount a folder of a machine on this one.

    Raises:
        ConfigError: sshfs is not installed, or cannot mount it.
        UsageError: the folder is not empty.
    """
    if shutil.which("sshfs") is None:
        raise ConfigError(
            "sshfs is not installed on this machine; install it (apt-get install sshfs), or copy"
            " files with rsync"
        )
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty; name an empty folder, or one that does not exist")
    command = shlex.join(host.argv[:-1])
    done = subprocess.run(
        ["sshfs", "-o", f"ssh_command={command},reconnect", f"{host.login}:{source}", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ConfigError(f"sshfs cannot mount {source}: {done.stderr.strip()}")
    remark(f"{source} of {host.name} is at {folder}; end it with: fusermount -u {folder}", style="")
