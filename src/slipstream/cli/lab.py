"""`slipstream lab`: hosts on this machine with links of chosen rates, and programs on them."""

import json
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.live import Live
from rich.text import Text

from slipstream.errors import UsageError
from slipstream.lab import Lab, LabSpec, RunResult
from slipstream.lab import registry as labs
from slipstream.lab.compare import BACKENDS, Progress, compare
from slipstream.lab.display import (
    lab_fields,
    lab_table,
    lab_title,
    make_console,
    progress_screen,
    result_fields,
    result_table,
    show_line,
    stderr_console,
)

DEFAULT_NAME = "lab"

HELP = """Try a program on hosts that this machine pretends to be.

Each host is a network namespace; you choose the rates of the links, caps per connection, racks.
Needs Linux, root and iproute2.
"""

# A line of \b keeps the line ends of its paragraph.
EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream lab up --hosts 4 --rate 1gbit --flow-rate 250mbit
  slipstream lab run -- train.py --lr 0.1   one process per rank
  slipstream lab compare -- train.py        over gloo, then over Slipstream
  slipstream lab link 2 --rate 100mbit      a slow host; --cut pulls its cable
  slipstream lab status
  slipstream lab down
"""
RUN_EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream lab run -- train.py --lr 0.1           in the lab that is up
  slipstream lab run --hosts 2 -- ping -c 3 host1   in one for this run
  slipstream lab run --rate 1gbit,1gbit,250mbit -- train.py

\b
Each rank gets the variables of torchrun and the key of the run. When one fails, the others end.
[bold]Exit code[/bold]: that of the rank that failed first, 128 + n if signal n ended it.
"""
COMPARE_EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream lab compare -- train.py --epochs 1
  slipstream lab compare --flow-rate 250mbit -- -m package.train

\b
Whichever backend the script names for init_process_group, it gets the one
that is compared.
[bold]Exit code[/bold]: 1 if a run failed.
"""

Hosts = Annotated[int | None, typer.Option(min=1, help="Number of hosts. [dim]default: 4[/dim]")]
RanksPerHost = Annotated[
    int | None, typer.Option(min=1, help="Processes on each host. [dim]default: 1[/dim]")
]
Rate = Annotated[
    str | None,
    typer.Option(help="Rate of the hosts' links, one or one per host. [dim]1gbit[/dim]"),
]
FlowRate = Annotated[
    str | None,
    typer.Option(help="Highest rate of one connection; several rates: one per path."),
]
Racks = Annotated[
    int | None, typer.Option(min=1, help="Racks, among which the hosts are divided evenly.")
]
Uplink = Annotated[str | None, typer.Option(help="Rate between a rack and the spine.")]
Name = Annotated[str, typer.Option(help="Name of the lab, if there are several.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Command = Annotated[list[str], typer.Argument(help="The program and its arguments, after --.")]


def add_to(app: typer.Typer) -> None:
    """Make this a sub-command of `app`, with sub-commands of its own."""
    lab_app = typer.Typer(help=HELP, epilog=EXAMPLES, no_args_is_help=True)
    passes_on = {"allow_interspersed_args": False}
    lab_app.command("up")(up)
    lab_app.command("run", context_settings=passes_on, epilog=RUN_EXAMPLES)(run)
    lab_app.command("compare", context_settings=passes_on, epilog=COMPARE_EXAMPLES)(compare_script)
    lab_app.command("link")(link)
    lab_app.command("status")(status)
    lab_app.command("down")(down)
    app.add_typer(lab_app, name="lab")


def up(
    hosts: Hosts = None,
    ranks_per_host: RanksPerHost = None,
    rate: Rate = None,
    flow_rate: FlowRate = None,
    racks: Racks = None,
    uplink: Uplink = None,
    name: Name = DEFAULT_NAME,
) -> None:
    """Make a lab, which stays until it is taken down."""
    spec = _choose_spec(hosts, ranks_per_host, rate, flow_rate, racks, uplink)
    lab = Lab(spec or LabSpec(), name=name, stays=True)
    lab.up()
    stderr_console().print(lab_table(lab))


def run(
    command: Command,
    hosts: Hosts = None,
    ranks_per_host: RanksPerHost = None,
    rate: Rate = None,
    flow_rate: FlowRate = None,
    racks: Racks = None,
    uplink: Uplink = None,
    pin: Annotated[bool, typer.Option("--pin", help="Give each rank one core.")] = False,
    name: Name = DEFAULT_NAME,
) -> None:
    """Run a program as one process per rank."""
    spec = _choose_spec(hosts, ranks_per_host, rate, flow_rate, racks, uplink)
    console = make_console(sys.stdout)
    with ending_on_signals(), _chosen_lab(name, spec) as lab:
        host_of = [host for host in range(lab.spec.hosts) for _ in range(lab.spec.ranks_per_host)]
        result = lab.run(
            command,
            pin=pin,
            on_line=lambda rank, text: show_line(console, host_of[rank], rank, text),
            check=False,
        )
    raise typer.Exit(_exit_code(result))


def compare_script(
    command: Command,
    hosts: Hosts = None,
    ranks_per_host: RanksPerHost = None,
    rate: Rate = None,
    flow_rate: FlowRate = None,
    racks: Racks = None,
    uplink: Uplink = None,
    together: Annotated[
        bool,
        typer.Option(
            "--together", help="Run both at once, on shared cores; the numbers are inaccurate."
        ),
    ] = False,
    as_json: AsJson = False,
    name: Name = DEFAULT_NAME,
) -> None:
    """Run a PyTorch script over gloo and over Slipstream, and show both side by side."""
    spec = _choose_spec(hosts, ranks_per_host, rate, flow_rate, racks, uplink)
    console = stderr_console()
    with (
        ending_on_signals(),
        _chosen_lab(name, spec) as lab,
        Live(console=console, auto_refresh=False, transient=True) as live,
    ):

        def show(shown: Sequence[Progress]) -> None:
            if console.is_terminal:
                live.update(progress_screen(console, lab, shown), refresh=True)

        results = compare(lab, command, backends=BACKENDS, together=together, on_progress=show)
    for each in results:
        if each.failure is not None:
            console.print(f"{each.backend}: {each.failure}", style="red", markup=False)
    if as_json:
        print(json.dumps(result_fields(results), indent=2))
    else:
        make_console(sys.stdout).print(result_table(results))
    raise typer.Exit(int(any(each.failure is not None for each in results)))


def link(
    host: Annotated[str, typer.Argument(help="Number of the host, or `uplinks`.")],
    rate: Annotated[str | None, typer.Option(help="New rate in both directions.")] = None,
    cut: Annotated[bool, typer.Option("--cut", help="Pull the cable.")] = False,
    mend: Annotated[bool, typer.Option("--mend", help="Put the cable back.")] = False,
    name: Name = DEFAULT_NAME,
) -> None:
    """Change, cut or mend a link, also while something runs."""
    if (rate is not None) + cut + mend != 1:
        raise UsageError("give one of --rate, --cut and --mend")
    lab = Lab.attach(name)
    if host == "uplinks":
        if rate is None:
            raise UsageError("uplinks can be changed with --rate; cut the links of their hosts")
        lab.change_uplinks(rate=rate)
    elif not host.isdecimal():
        raise UsageError(f"the host is {host!r}; allowed: its number, or uplinks")
    elif rate is not None:
        lab.change(int(host), rate=rate)
    elif cut:
        lab.cut(int(host))
    else:
        lab.mend(int(host))


def status(as_json: AsJson = False) -> None:
    """Show all labs, their links and what has passed them."""
    records = labs.load_all()
    stale = [record.name for record in records if record.is_stale]
    present = [Lab.attach(record.name) for record in records if record.name not in stale]
    if as_json:
        gone = [{"name": name, "is_stale": True} for name in stale]
        print(json.dumps([*map(lab_fields, present), *gone], indent=2))
        return
    console = make_console(sys.stdout)
    for lab in present:
        console.print(lab_table(lab))
    for name in stale:
        console.print(f"{name}: gone; remove what is left: slipstream lab down --name {name}")
    if not records:
        console.print("no lab is up; make one: slipstream lab up")


def down(
    name: Name = DEFAULT_NAME,
    everything: Annotated[
        bool, typer.Option("--all", help="Remove all labs but those whose program still runs.")
    ] = False,
) -> None:
    """Take a lab down, with all that runs in it."""
    if everything:
        for record in labs.load_all():
            if record.owner is None or record.is_stale:
                labs.take_down(record)
            else:
                stderr_console().print(f"{record.name} belongs to process {record.owner[0]}")
        return
    record = labs.load(name)
    if record is None:
        raise UsageError(f"there is no lab named {name!r}; see slipstream lab status")
    labs.take_down(record)


def _choose_spec(
    hosts: int | None,
    ranks_per_host: int | None,
    rate: str | None,
    flow_rate: str | None,
    racks: int | None,
    uplink: str | None,
) -> LabSpec | None:
    """Return the lab that the options describe, or None where none is given."""
    if all(each is None for each in (hosts, ranks_per_host, rate, flow_rate, racks, uplink)):
        return None
    defaults = LabSpec()
    rates = rate.split(",") if rate else [defaults.rate]
    flow_rates = flow_rate.split(",") if flow_rate else []
    several_rates = rates if len(rates) > 1 else []
    return LabSpec(
        hosts=hosts or len(several_rates) or defaults.hosts,
        ranks_per_host=ranks_per_host or defaults.ranks_per_host,
        rate=rates[0],
        rates=tuple(several_rates),
        flow_rate=flow_rates[0] if len(flow_rates) == 1 else None,
        flow_rates=tuple(flow_rates) if len(flow_rates) > 1 else (),
        racks=racks or defaults.racks,
        uplink=uplink,
    )


@contextmanager
def _chosen_lab(name: str, spec: LabSpec | None) -> Generator[Lab]:
    """Yield the lab that is up, or one that is there as long as this."""
    record = labs.load(name)
    if record is not None and spec is not None and not record.is_stale:
        raise UsageError(
            f"the lab {name!r} is up, and options describe another; leave the options out, or take"
            f" it down: slipstream lab down --name {name}"
        )
    if record is not None and spec is None:
        yield Lab.attach(name)
        return
    with Lab(spec or LabSpec()) as lab:
        note = f"no lab is up; for this run there is {lab_title(lab)}"
        stderr_console().print(note, style="dim")
        yield lab


@contextmanager
def ending_on_signals() -> Generator[None]:
    """Let SIGTERM and SIGHUP end this process as Ctrl-C does, with nothing left behind."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, leave)
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(128 + signal.SIGINT) from None


def _exit_code(result: RunResult) -> int:
    failure = result.failure
    if failure is None or failure.status is None:
        return 0
    head, _, rest = str(failure).partition("\n")
    console = stderr_console()
    console.print(f"slipstream: {head}", style="bold red", markup=False, soft_wrap=True)
    if rest:
        console.print(Text.from_ansi(rest), soft_wrap=True)
    return 128 - failure.status if failure.status < 0 else failure.status
