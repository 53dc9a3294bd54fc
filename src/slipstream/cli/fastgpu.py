"""FastGPU's commands: `python -m slipstream.fastgpu COMMAND`."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from slipstream.cli.cluster.machines import checked_name, open_groups
from slipstream.cli.groups import CommandLine
from slipstream.cli.output import emit, remark
from slipstream.cluster.groups.group_record import all_groups
from slipstream.cluster.groups.machine_group import MachineGroup
from slipstream.errors import UnsupportedError, UsageError

EXAMPLES = """\b
[bold]Examples[/bold]
  python -m slipstream.fastgpu train.py --machines 2      run a script that imports fastgpu
  python -m slipstream.fastgpu create -c create.cfg
  python -m slipstream.fastgpu ls -a
  python -m slipstream.fastgpu ssh task0.train
  python -m slipstream.fastgpu kill {train}
"""

app = CommandLine(
    add_completion=False, help="FastGPU's commands for groups of machines.", epilog=EXAMPLES
)

Machine = Annotated[
    str, typer.Argument(metavar="NAME", help="Machine, such as task0.train, or group: {train}.")
]
Pattern = Annotated[
    str,
    typer.Argument(metavar="TEXT", show_default="all", help="Text that the name must contain."),
]


@app.command()
def ls(
    everything: Annotated[
        bool, typer.Option("-a", "--all", help="List the machines that do not run as well.")
    ] = False,
) -> None:
    """List the machines of this user."""
    from rich.table import Table

    session = open_groups()
    table = Table(
        "Instance Name", "Age(hr)", "Public IP", "Private IP", "Instance Type", "State", "Id"
    )
    for record in all_groups(session.home):
        age = f"{(time.time() - record.created_at) / 3600.0:.1f}"
        for machine in session.open(record.name).machines():
            if everything or machine.state == "running":
                table.add_row(
                    machine.name,
                    age,
                    machine.address,
                    machine.inner_address,
                    record.request.instance_type,
                    machine.state,
                    machine.external_id,
                )
    emit(None, [table], as_json=False)


@app.command()
def create(
    config: Annotated[
        Path | None, typer.Option("-c", "-f", "--config", metavar="FILE", help="Settings file.")
    ] = None,
    name: Annotated[str, typer.Option("-n", "--name", help="Name of the group.")] = "",
    machines: Annotated[int, typer.Option("-np", "--machines", help="Number of machines.")] = 1,
    instance_type: Annotated[
        str, typer.Option("-i", "--instance_type", help="Provider's name of the type.")
    ] = "",
    image_name: Annotated[
        str, typer.Option("--image", "--image_name", help="Name of the image.")
    ] = "",
    image_type: Annotated[
        str, typer.Option("--image_type", help="Kind of image: Aliyun, Ubuntu or CentOS.")
    ] = "",
    system_disk_size: Annotated[
        int, typer.Option("--system_disk_size", help="Size of the system disk in GiB.")
    ] = 100,
    data_disk_size: Annotated[
        int, typer.Option("--data_disk_size", help="Size of a further disk in GiB.")
    ] = 0,
    skip_setup: Annotated[
        bool, typer.Option("--skip_setup", help="Run no install script.")
    ] = False,
    nas: Annotated[
        bool,
        typer.Option("-nas", "--nas", "--enable-nas", help="Create a network file system."),
    ] = False,
    zone_id: Annotated[str, typer.Option("--zone_id", help="Zone of the machines.")] = "",
    spot: Annotated[bool, typer.Option("--spot", help="Take machines that can be lost.")] = False,
    confirm_cost: Annotated[
        bool, typer.Option("--confirm_cost", help="Do not ask for the cost.")
    ] = False,
    install_script: Annotated[
        str, typer.Option("--install_script", help="Commands that run once.")
    ] = "",
    vpc_name: Annotated[
        str, typer.Option("-vpc", "--vpc", "--vpc_name", help="Virtual network that exists.")
    ] = "",
    install_cuda: Annotated[
        bool, typer.Option("-cuda", "--install_cuda", "--cuda_install", help="Install CUDA.")
    ] = False,
) -> None:
    """Create a group of machines, from flags or from a file such as create.cfg."""
    from slipstream.fastgpu.making import make_job

    if install_cuda:
        raise UnsupportedError(
            "CUDA is not installed on machines; choose an image that has it (queryimage lists them)"
        )
    options: dict[str, Any] = {
        "instance_type": instance_type,
        "image_name": image_name,
        "image_type": image_type,
        "system_disk_size": system_disk_size,
        "data_disk_size": data_disk_size,
        "skip_setup": skip_setup,
        "disable_nas": not nas,
        "zone_id": zone_id,
        "spot": spot,
        "confirm_cost": confirm_cost,
        "install_script": install_script,
        "vpc_name": vpc_name,
    }
    if config is not None:
        read = read_config(config)
        name, machines = str(read.pop("name", name)), int(read.pop("machines", machines))
        options |= read
    make_job(checked_name(name), "", machines, **options)
    ls(everything=False)


@app.command(context_settings={"allow_interspersed_args": False})
def ssh(
    name: Machine,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND...", show_default=False, help="Command to run there."),
    ] = None,
) -> None:
    """Open a shell on a machine, or run a command there."""
    argv = _group(name).host(_machine(name)).argv
    terminal = [] if command else ["-t"]
    os.execvp(argv[0], [argv[0], *terminal, *argv[2:], *(command or [])])


@app.command()
def tmux(name: Machine) -> None:
    """Show the shell in which a script's commands run; without one, open another shell."""
    group = _group(name)
    host = group.host(_machine(name))
    argv = host.argv
    os.execvp(argv[0], [argv[0], "-t", *argv[2:], group.shell(host).attach_command])


@app.command()
def scp(
    source: Annotated[str, typer.Argument(metavar="FROM", help="Path, or MACHINE:PATH.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Path, or MACHINE:PATH.")],
) -> None:
    """Copy files between this computer and a machine."""
    import shlex

    ends = [_copy_end(text) for text in (source, target)]
    shells = [argv for argv, _ in ends if argv]
    if len(shells) != 1:
        raise UsageError(
            f"the paths are {source!r} and {target!r}; allowed: one of them on a machine, as"
            " task0.NAME:PATH"
        )
    paths = [f"{argv[-1]}:{path}" if argv else path for argv, path in ends]
    shell = shlex.join(shells[0][:-1])
    raise typer.Exit(subprocess.run(["rsync", "-az", "-e", shell, *paths]).returncode)


@app.command()
def stop(name: Machine) -> None:
    """Stop a group of machines; their disks stay."""
    group = _group(name)
    if _is_one_of_several(group, name):
        raise UsageError(f"the machines of {group.name} are stopped together: {{{group.name}}}")
    group.stop()
    remark(f"{group.name} is stopped", style="")


@app.command()
def start(name: Machine) -> None:
    """Start a group of machines that was stopped."""
    from slipstream.fastgpu.making import ScriptView

    group = _group(name)
    group.start(ScriptView())
    remark(f"{group.name} runs", style="")


@app.command()
def kill(name: Machine) -> None:
    """End a machine for good, or a group with everything that belongs to it."""
    group = _group(name)
    if _is_one_of_several(group, name):
        group.end_machine(_machine(name))
    else:
        group.down(remark)
    remark(f"{_plain(name)} has ended", style="")


@app.command()
def mount(name: Machine) -> None:
    """Show where the network file system of a machine is: at /fastgpu, if its group has one."""
    host = _group(name).host(_machine(name))
    where = host.run("readlink -f /fastgpu; df -h /fastgpu | tail -1", what="looking for mounts")
    emit(None, [where.strip()], as_json=False)


@app.command()
def addip(name: Machine) -> None:
    """Let the public address of this computer reach the machines of a group."""
    from slipstream.fastgpu.making import own_address

    network = own_address()
    group = _group(name)
    group.allow(network)
    remark(f"{network} may reach the machines of {group.name}", style="")


@app.command()
def rename(
    old_name: Annotated[str, typer.Argument(metavar="OLD", help="Name of a machine.")],
    new_name: Annotated[str, typer.Argument(metavar="NEW", help="New name.")],
) -> None:
    """Refuse: names of machines tell to which group they belong."""
    raise UnsupportedError(
        f"{old_name} cannot become {new_name}, because its name says to which group it belongs;"
        " make a group of the new name"
    )


@app.command()
def queryimage(pattern: Pattern = "") -> None:
    """List images."""
    from slipstream.cli.cluster.spending import images
    from slipstream.fastgpu.fastgpu_globals import state

    images(pattern, state.backend)


@app.command()
def querygpu(pattern: Pattern = "") -> None:
    """List types of machines with GPUs, and their prices."""
    from slipstream.cli.cluster.spending import gpus
    from slipstream.fastgpu.fastgpu_globals import state

    gpus(pattern, state.backend)


def read_config(path: Path) -> dict[str, Any]:
    """Return the options in a file such as create.cfg.

    Args:
        path: File with the sections [ncluster] (or [fastgpu]) and [cmd].

    Raises:
        UsageError: the file cannot be read, or has no such section.
    """
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (OSError, configparser.Error) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    section = next((name for name in ("fastgpu", "ncluster") if name in parser), None)
    if section is None:
        raise UsageError(f"{path} has no section [fastgpu] or [ncluster]")
    options: dict[str, Any] = {}
    for key, text in parser[section].items():
        is_flag = text.lower() in ("true", "false")
        options[key] = text.lower() == "true" if is_flag else text
    if "cmd" in parser:
        options["install_script"] = parser["cmd"].get("install_script", "")
    return options


def _group(name: str) -> MachineGroup:
    return open_groups().open(_plain(name))


def _machine(name: str) -> str:
    """Return the name of one machine; a group stands for its first one."""
    plain = _plain(name)
    return plain if "." in plain else f"task0.{plain}"


def _plain(name: str) -> str:
    return re.sub(r"^\{(.*)\}$", r"\1", name)


def _is_one_of_several(group: MachineGroup, name: str) -> bool:
    return "." in _plain(name) and len(group.machines()) > 1


def _copy_end(text: str) -> tuple[list[str], str]:
    """Return the ssh command of the machine (none for this computer) and the path."""
    machine, colon, path = text.partition(":")
    if not colon or "/" in machine:
        return [], text
    return _group(machine).host(_machine(machine)).argv, path
