"""`slipstream bench serve`: Slipstream's server compared with a FastAPI server."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.options import (
    AsJson,
    ChartFile,
    OutputFile,
    Peers,
    Rounds,
    TurnTime,
    split_counts,
    split_peers,
)
from slipstream.cli.output import caption_text, emit, written
from slipstream.cli.progress import status_line
from slipstream.errors import UnsupportedError, UsageError
from slipstream.units import parse_duration

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream bench serve model.slip --chart curve.svg
  slipstream bench serve model.slip --peers none --clients 1,8 --open 0     no peer, no overload
  slipstream bench serve model.slip --onnx model.onnx --open 3:10m --deadline 50ms

Peer: fastapi, with one and with two batches at a time. It runs the package by the same engine, so
that servers are compared; with --onnx it runs that file by ONNX Runtime. The targets are judged
with 1 and 8 clients.
"""
PACKAGES = ("orjson", "pydantic", "starlette", "uvicorn", "uvloop")
PEER_PACKAGES = ("fastapi", "httptools")
CHART_PACKAGES = ("altair", "vl_convert")
OPEN_SECONDS = 60.0


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("serve", epilog=EXAMPLES)(serve_model)


# over budget: a parameter for each option of the command
def serve_model(
    package: Annotated[
        Path, typer.Argument(metavar="PACKAGE", help="Package from slipstream compile.")
    ],
    peers: Peers = "fastapi",
    onnx: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="ONNX file of the same model, which the peer then runs."),
    ] = None,
    clients: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Numbers of clients at once; each waits for an answer before its next request.",
        ),
    ] = "1,2,4,8,16",
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, show_default="as compiled", help="Number of threads that compute one batch."
        ),
    ] = None,
    open_loop: Annotated[
        str,
        typer.Option(
            "--open",
            metavar="FACTOR[:TIME]",
            help="Open loop: request rate as a multiple of the capacity, and duration; 0 to skip.",
        ),
    ] = "2:60s",
    deadline: Annotated[
        str, typer.Option(metavar="TIME", help="Deadline of a request in the open loop.")
    ] = "100ms",
    rounds: Rounds = 5,
    turn_time: TurnTime = "5s",
    chart: ChartFile = None,
    output: OutputFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure a server's throughput, latency and overhead, also under overload.

    Slipstream's server and the competing server (peer) are measured in turn. The command needs
    slipstream[serve], and fastapi for the peer. Nothing else should run on the machine.
    """
    peer = ",".join(split_peers(peers)) or "none"
    needed = [*PACKAGES, *(PEER_PACKAGES if peer == "fastapi" else ())]
    _check_packages([*needed, *(CHART_PACKAGES if chart else ())])
    from slipstream.bench.serve import table
    from slipstream.bench.serve.measure import ServeSpec, measure

    overload, overload_seconds = parse_open(open_loop)
    spec = ServeSpec(
        package=package,
        onnx=onnx,
        clients=tuple(sorted(set(split_counts(clients, "--clients")))),
        rounds=rounds,
        seconds=parse_duration(turn_time, "turn time", bare_seconds=True),
        threads=threads,
        overload=overload,
        overload_seconds=overload_seconds,
        deadline=parse_duration(deadline, "deadline"),
        peer=peer,
    )
    if chart is not None:
        from slipstream.bench.serve.chart import check_chart

        check_chart(chart)
    with status_line("the servers start") as tell:
        report = measure(spec, tell)
    shown = [*table.tables(report), caption_text(table.caption(report))]
    content = table.as_json(report, asdict(spec))
    emit(content, shown, as_json=as_json, output=output, notes=report.notes)
    if chart is not None:
        from slipstream.bench.serve.chart import draw

        draw(report, chart)
        written(chart)


def parse_open(text: str) -> tuple[float, float]:
    """Return rate and duration in the text of --open: `2:60s`, or `2` for 60 seconds.

    Returns:
        Request rate as a multiple of the server's capacity, and duration in seconds.

    Raises:
        UsageError: The text has another form.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?::(.+))?", text.strip())
    if match is None:
        raise UsageError(f"the open loop is {text!r}; allowed: 2, 2:60s for 60 s, 0 for none")
    if match[2] is None:
        return float(match[1]), OPEN_SECONDS
    return float(match[1]), parse_duration(match[2], "time of the open loop", bare_seconds=True)


def _check_packages(names: list[str]) -> None:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise UnsupportedError(
            f"this benchmark needs {', '.join(missing)}, which is not installed:"
            " pip install 'slipstream[serve,forecast]' fastapi"
        )
