"""Option types that commands share, and the groups in which `--help` shows options.

An option has one name and one meaning in all commands: `--json` prints to stdout, `-o/--output`
writes a file, `--rate` is the bit rate of a host's link. A list is one text, whose parts are
separated by commas.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from slipstream.errors import UsageError

# Groups of options in --help; an option without a group stands before them.
NETWORK = "Network"
MEASUREMENT = "Measurement"
OUTPUT = "Output"


def check_output_file(path: Path | None) -> Path | None:
    """Return the path of an output file, after making its folder and testing that it is writable.

    The test leaves an existing file unchanged and creates no file.

    Raises UsageError, with the reason, for a file that cannot be written.
    """
    if path is None:
        return None
    if path == Path("-"):
        raise UsageError("an output file is named '-'; give a file name, or --json for stdout")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        existed = path.exists()
        with path.open("ab"):
            pass
    except (FileExistsError, NotADirectoryError) as error:
        raise UsageError(f"{path} cannot be written: {path.parent} is no folder") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
    if not existed:
        path.unlink()
    return path


def file_option(*names: str, help: str, group: str | None = OUTPUT) -> Any:  # noqa: A002
    """Return an option for a file that the command writes.

    Args:
        names: Names of the option, such as "-o" and "--output".
        help: Help text.
        group: Heading in --help under which the option is listed (default OUTPUT); None lists the
            option before all headings.
    """
    return typer.Option(
        *names, metavar="FILE", callback=check_output_file, rich_help_panel=group, help=help
    )


def peers_option(show_default: str | bool = True) -> Any:
    """Return the option --peers, which names competing software to measure.

    Args:
        show_default: Words for the default in --help, or True (the default) to show the default
            list itself.
    """
    return typer.Option(
        "--peers",
        metavar="LIST",
        show_default=show_default,
        help="Competing software (peers) to measure, separated by commas, or none.",
    )


def split_list(text: str) -> tuple[str, ...]:
    """Return the parts of a text that are separated by commas, without spaces around a part."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def split_peers(text: str) -> tuple[str, ...]:
    """Return the names of competing software in a comma-separated list; () for `none`.

    Raises UsageError for an empty text, and for `none` together with a name.
    """
    peers = split_list(text)
    if not peers or ("none" in peers and len(peers) > 1):
        raise UsageError(f"--peers is {text!r}; allowed: names separated by commas, or none")
    return () if peers == ("none",) else peers


def split_counts(text: str, option: str) -> tuple[int, ...]:
    """Return the numbers in a list such as "2,4"; raise UsageError unless all are whole."""
    parts = split_list(text)
    if not parts or not all(part.isdecimal() and int(part) for part in parts):
        raise UsageError(f"{option} is {text!r}; allowed: whole numbers from 1, such as 2,4")
    return tuple(int(part) for part in parts)


AsJson = Annotated[
    bool,
    typer.Option("--json", rich_help_panel=OUTPUT, help="Print JSON on stdout instead of tables."),
]
OutputFile = Annotated[
    Path | None, file_option("-o", "--output", help="File for all measurements as JSON.")
]
ChartFile = Annotated[
    Path | None, file_option("--chart", help="File for a chart: .svg, .png or .html.")
]
HtmlFile = Annotated[Path | None, file_option("--html", help="File for a page with charts.")]

Device = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        rich_help_panel=MEASUREMENT,
        help="Device that has the tensors: cpu, cuda, or another device of PyTorch.",
    ),
]
Relay = Annotated[
    bool,
    typer.Option(
        "--relay",
        rich_help_panel=NETWORK,
        help="Shape links by a relay, without namespaces and root.",
    ),
]
Delay = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        rich_help_panel=NETWORK,
        help="Time from host to host in one direction, such as 5ms; needs a relay.",
    ),
]
NumHosts = Annotated[
    int | None,
    typer.Option(
        min=1, show_default="4", rich_help_panel=NETWORK, help="Number of hosts in the lab."
    ),
]
RanksPerHost = Annotated[
    int, typer.Option(min=1, rich_help_panel=NETWORK, help="Number of ranks on each host.")
]
Rate = Annotated[
    str,
    typer.Option(
        metavar="RATE", rich_help_panel=NETWORK, help="Bit rate of every host's link: 200Mbit/s."
    ),
]
RateOrRates = Annotated[
    str,
    typer.Option(
        metavar="RATE",
        rich_help_panel=NETWORK,
        help="Bit rate of every host's link, or a rate for each host, separated by commas.",
    ),
]
FlowRate = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        rich_help_panel=NETWORK,
        help="Highest bit rate of a connection, or rates of paths that connections share:"
        " 250mbit,60mbit.",
    ),
]
Racks = Annotated[
    int,
    typer.Option(
        min=1, rich_help_panel=NETWORK, help="Number of racks, which share the hosts evenly."
    ),
]
Uplink = Annotated[
    str | None,
    typer.Option(
        metavar="RATE", rich_help_panel=NETWORK, help="Bit rate between a rack and the spine."
    ),
]
CrossTraffic = Annotated[
    str,
    typer.Option(
        metavar="RATE",
        rich_help_panel=NETWORK,
        help="Bit rate of competing TCP traffic from each host to the next host: 500mbit.",
    ),
]
Rounds = Annotated[
    int,
    typer.Option(
        min=1,
        rich_help_panel=MEASUREMENT,
        help="Number of rounds; each compared program is measured once in each round.",
    ),
]
TurnTime = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        rich_help_panel=MEASUREMENT,
        help="Time for which a program is measured in each round, such as 200ms.",
    ),
]
SearchTime = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        rich_help_panel=MEASUREMENT,
        help="Time limit of each compilation by Slipstream, such as 5m.",
    ),
]
CacheFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        rich_help_panel=MEASUREMENT,
        help="Folder that keeps files for the next run, except models compiled by Slipstream.",
    ),
]
Peers = Annotated[str, peers_option()]
