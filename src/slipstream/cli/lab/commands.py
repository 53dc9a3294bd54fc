"""The commands of `slipstream lab` that start something: up, run and compare."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.live import Live
from rich.text import Text

from slipstream.cli.lab.present import DEFAULT_NAME, Name
from slipstream.cli.lab_spec import describes_lab, lab_spec
from slipstream.cli.options import (
    AsJson,
    Delay,
    FlowRate,
    NumHosts,
    OutputFile,
    Racks,
    RanksPerHost,
    RateOrRates,
    Relay,
    Uplink,
)
from slipstream.cli.output import emit, remark, show, stderr_console, stdout_console
from slipstream.cli.progress import ending_on_signals
from slipstream.errors import UsageError
from slipstream.lab import Lab, LabSpec, RunResult, open_lab
from slipstream.lab import registry as labs
from slipstream.lab.compare import BACKENDS, Progress, compare
from slipstream.lab.display import (
    lab_table,
    lab_title,
    progress_screen,
    result_fields,
    result_table,
    show_line,
)

UP_EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream lab up                                    four hosts at 1 Gbit/s
  slipstream lab up --num-hosts 4 --rate 1gbit --flow-rate 250mbit
  slipstream lab up --num-hosts 4 --racks 2 --uplink 400mbit --name racks
"""
RUN_EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream lab run -- train.py --lr 0.1           in the lab that is up
  slipstream lab run --num-hosts 2 -- ping -c 3 host1   in one for this run
  slipstream lab run --rate 1gbit,1gbit,250mbit -- train.py
  slipstream lab run --relay --delay 5ms -- train.py    without namespaces and root

Each rank gets the variables of torchrun and the key of the run. When one fails, the others end.

[bold]Exit code[/bold]: that of the rank that failed first, 128 + n if signal n ended it.
"""
COMPARE_EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream lab compare -- train.py --epochs 1
  slipstream lab compare --json -- train.py
  slipstream lab compare --flow-rate 250mbit -- -m package.train

Whichever backend the script names for init_process_group, it gets the backend whose turn it is.

[bold]Exit code[/bold]: 1 if a run failed.
"""

Program = Annotated[
    list[str],
    typer.Argument(metavar="-- PROGRAM...", help="Program and its arguments, after `--`."),
]


def add_to(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    passes_on = {"allow_interspersed_args": False}
    app.command("up", epilog=UP_EXAMPLES)(up)
    app.command("run", context_settings=passes_on, epilog=RUN_EXAMPLES)(run)
    app.command("compare", context_settings=passes_on, epilog=COMPARE_EXAMPLES)(compare_script)


# over budget: a parameter for each option of the command
def up(
    num_hosts: NumHosts = None,
    ranks_per_host: RanksPerHost = 1,
    rate: RateOrRates = "1gbit",
    flow_rate: FlowRate = None,
    racks: Racks = 1,
    uplink: Uplink = None,
    name: Name = DEFAULT_NAME,
) -> None:
    """Make a lab, which stays until it is taken down."""
    spec = lab_spec(num_hosts, ranks_per_host, rate, flow_rate, racks, uplink)
    lab = Lab(spec, name=name, stays=True)
    lab.up()
    show([lab_table(lab)], stderr_console())


# over budget: a parameter for each option of the command
def run(
    context: typer.Context,
    program: Program,
    pin: Annotated[bool, typer.Option("--pin", help="Give each rank one core.")] = False,
    name: Name = DEFAULT_NAME,
    num_hosts: NumHosts = None,
    ranks_per_host: RanksPerHost = 1,
    rate: RateOrRates = "1gbit",
    flow_rate: FlowRate = None,
    racks: Racks = 1,
    uplink: Uplink = None,
    delay: Delay = "0s",
    relay: Relay = False,
) -> None:
    """Run a program as one process per rank."""
    network = (num_hosts, ranks_per_host, rate, flow_rate, racks, uplink, delay)
    spec = lab_spec(*network) if describes_lab(context) else None
    console = stdout_console()
    with ending_on_signals(), _chosen_lab(name, spec, relay=relay) as lab:
        host_of = [host for host in range(lab.spec.hosts) for _ in range(lab.spec.ranks_per_host)]
        result = lab.run(
            program,
            pin=pin,
            on_line=lambda rank, text: show_line(console, host_of[rank], rank, text),
            check=False,
        )
    raise typer.Exit(_exit_code(result))


# over budget: a parameter for each option of the command
def compare_script(
    context: typer.Context,
    program: Program,
    together: Annotated[
        bool,
        typer.Option(
            "--together",
            help="Run both backends at once, on shared cores; the numbers are inaccurate.",
        ),
    ] = False,
    name: Name = DEFAULT_NAME,
    num_hosts: NumHosts = None,
    ranks_per_host: RanksPerHost = 1,
    rate: RateOrRates = "1gbit",
    flow_rate: FlowRate = None,
    racks: Racks = 1,
    uplink: Uplink = None,
    delay: Delay = "0s",
    relay: Relay = False,
    output: OutputFile = None,
    as_json: AsJson = False,
) -> None:
    """Run a PyTorch script once over gloo and once over Slipstream, and show both side by side."""
    network = (num_hosts, ranks_per_host, rate, flow_rate, racks, uplink, delay)
    spec = lab_spec(*network) if describes_lab(context) else None
    console = stderr_console()
    with (
        ending_on_signals(),
        _chosen_lab(name, spec, relay=relay) as lab,
        Live(console=console, auto_refresh=False, transient=True) as live,
    ):

        def show_progress(runs: Sequence[Progress]) -> None:
            if console.is_terminal:
                live.update(progress_screen(console, lab, runs), refresh=True)

        runs = compare(
            lab, program, backends=BACKENDS, together=together, on_progress=show_progress
        )
    for backend_run in runs:
        if backend_run.failure is not None:
            remark(f"{backend_run.backend}: {backend_run.failure}", style="red")
    emit(result_fields(runs), [result_table(runs)], as_json=as_json, output=output)
    raise typer.Exit(int(any(backend_run.failure is not None for backend_run in runs)))


@contextmanager
def _chosen_lab(name: str, spec: LabSpec | None, *, relay: bool) -> Generator[Lab]:
    """Yield the lab that is up, or a new lab that is taken down afterwards."""
    record = None if relay else labs.load(name)
    if record is not None and spec is not None and not record.is_stale:
        raise UsageError(
            f"the lab {name!r} is up, and options describe another; leave the options out, or take"
            f" it down: slipstream lab down --name {name}"
        )
    if record is not None and spec is None:
        yield Lab.attach(name)
        return
    with open_lab(spec or LabSpec(), relay=relay) as lab:
        kind = "its own, with a relay" if lab.is_relayed else "its own"
        remark(f"no lab is up; this run has a lab of {kind}, {lab_title(lab)}")
        yield lab


def _exit_code(result: RunResult) -> int:
    failure = result.failure
    if failure is None or failure.status is None:
        return 0
    head, _, details = str(failure).partition("\n")
    console = stderr_console()
    console.print(f"slipstream: {head}", style="bold red", markup=False, soft_wrap=True)
    if details:
        console.print(Text.from_ansi(details), soft_wrap=True)
    return 128 - failure.status if failure.status < 0 else failure.status
