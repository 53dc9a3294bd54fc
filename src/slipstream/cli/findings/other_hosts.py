"""The page of `slipstream doctor -H`: hosts, a matrix of pairs, and what to mend first."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING

from slipstream.cli.output import emit
from slipstream.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from slipstream.cluster.doctor import Examination, HostFindings, PairFindings, Problem

GIB = 2**30
BANDWIDTH_SECONDS = 1.0
# The measurements of all pairs together take about this long; of many pairs, each is shorter.
ALL_PAIRS_SECONDS = 60.0
LEAST_SECONDS = 0.2


def examine_hosts(
    listed: str, ssh_options: Sequence[str], python: str | None, *, as_json: bool
) -> int:
    """Examine hosts, show the result, and return the exit code.

    Args:
        listed: Names of hosts, separated by commas.
        ssh_options: Options for ssh, each without its -o.
        python: Path of Python on the hosts; default is the path of this Python.
        as_json: Whether JSON is printed.

    Raises:
        UsageError: the list is empty or names a host twice.
    """
    from slipstream.cli.progress import status_line
    from slipstream.cluster.doctor import examine, problems_of
    from slipstream.cluster.engines.ssh_host import SshHost

    logins = [login.strip() for login in listed.split(",")]
    if not all(logins) or len(set(logins)) < len(logins):
        raise UsageError(f"-H is {listed!r}; allowed: different names, such as a,me@b")
    hosts = [SshHost(name=name, login=name, options=tuple(ssh_options)) for name in logins]
    seconds = _bandwidth_seconds(len(hosts))
    with status_line("connecting") as tell:
        found = examine(hosts, python or sys.executable, seconds, tell)
    problems = problems_of(found, version("slipstream"))
    matrix = [_matrix(found, seconds)] if found.pairs else []
    shown = [_host_table(found), *matrix, _verdict(problems)]
    value = {**asdict(found), "problems": [asdict(problem) for problem in problems]}
    emit(value, shown, as_json=as_json)
    return int(any(problem.stops_jobs for problem in problems))


def _bandwidth_seconds(num_hosts: int) -> float:
    """Return the duration of each measurement of bandwidth in seconds."""
    num_pairs = max(1, num_hosts * (num_hosts - 1))
    return max(LEAST_SECONDS, min(BANDWIDTH_SECONDS, ALL_PAIRS_SECONDS / num_pairs))


def _host_table(found: Examination) -> Table:
    from rich.table import Table

    names = ("host", "Python", "Slipstream", "cores", "memory", "free disk", "GPUs", "clock")
    table = Table(*names)
    for host in found.hosts:
        cells = ["no connection"] if host.error else _host_cells(host)
        table.add_row(host.name, *cells, style="red" if host.error else "")
    return table


def _host_cells(host: HostFindings) -> list[str]:
    return [
        host.python,
        host.slipstream or "-",
        str(host.cores),
        f"{host.memory / GIB:.0f} GiB",
        f"{host.disk / GIB:.0f} GiB",
        f"{len(host.gpus)} {host.gpus[0]}" if host.gpus else "-",
        f"{host.skew * 1e3:+.1f} ± {host.skew_error * 1e3:.1f} ms",
    ]


def _matrix(found: Examination, seconds: float) -> Table:
    from rich.table import Table

    names = [host.name for host in found.hosts if not host.error]
    cells = {(pair.source, pair.target): _pair_cell(pair) for pair in found.pairs}
    title = f"Round trip and bandwidth over {seconds:.2g} s"
    table = Table("from \\ to", *names, title=title)
    for source in names:
        table.add_row(source, *(cells.get((source, target), "") for target in names))
    return table


def _pair_cell(pair: PairFindings) -> str:
    if pair.latency is None or pair.bandwidth is None:
        return f"[bold red]{pair.state}[/bold red]"
    return f"{pair.latency * 1e3:.2f} ms  {pair.bandwidth * 8e-9:.2f} Gbit/s"


def _verdict(problems: Sequence[Problem]) -> Text:
    from rich.text import Text

    if not problems:
        return Text("Nothing to mend.", style="green")
    text = Text()
    for number, problem in enumerate(problems, 1):
        style = "bold red" if problem.stops_jobs else "bold"
        text.append(f"{number}. {problem.where}: ", style=style)
        text.append(f"{problem.text}. To do: {problem.remedy}\n")
    text.rstrip()
    return text
