"""The types of the options of commands about machines."""

from __future__ import annotations

from typing import Annotated

import typer

MACHINES = "Machines"
CREDENTIALS = "that of your credentials"

GroupName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the group of machines.")]
ProviderName = Annotated[
    str, typer.Option("--on", metavar="PROVIDER", help="Provider of the machines: aws or aliyun.")
]
Region = Annotated[
    str,
    typer.Option(metavar="REGION", show_default=CREDENTIALS, help="Region of the provider."),
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Create machines without asking for the cost.")
]
InstanceType = Annotated[
    str, typer.Option("--type", metavar="TYPE", help="Provider's name of the machines' type.")
]
NumMachines = Annotated[int, typer.Option("--machines", min=1, help="Number of machines.")]
Spot = Annotated[
    bool, typer.Option("--spot", help="Take machines that can be taken away, for less.")
]
Deadline = Annotated[
    str, typer.Option(metavar="TIME", help="Time after which the machines end themselves: 8h.")
]
Image = Annotated[
    str, typer.Option(metavar="IMAGE", show_default="the newest Ubuntu", help="Image to boot.")
]
UpRegion = Annotated[
    str,
    typer.Option(
        metavar="REGION",
        show_default=CREDENTIALS,
        rich_help_panel=MACHINES,
        help="Region of the provider.",
    ),
]
Zone = Annotated[
    str,
    typer.Option(
        metavar="ZONE",
        show_default="the provider's choice",
        rich_help_panel=MACHINES,
        help="Zone of the machines.",
    ),
]
Network = Annotated[
    str,
    typer.Option(
        metavar="NETWORK",
        show_default="one of the group's own",
        rich_help_panel=MACHINES,
        help="Virtual network that exists.",
    ),
]
Disk = Annotated[
    int, typer.Option(min=10, rich_help_panel=MACHINES, help="Size of the system disk in GiB.")
]
DataDisk = Annotated[
    int, typer.Option(min=0, rich_help_panel=MACHINES, help="Size of a further disk in GiB.")
]
SharedFolder = Annotated[
    bool,
    typer.Option(
        "--shared-folder",
        rich_help_panel=MACHINES,
        help="Create a network file system, and mount it on all machines.",
    ),
]
OpenTo = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ADDRESS",
        show_default="your own address",
        rich_help_panel=MACHINES,
        help="Address that may use ssh, such as 203.0.113.7/32; may be repeated.",
    ),
]
