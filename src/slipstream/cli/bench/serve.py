"""`slipstream bench serve`: our server beside a peer's, and what overload does to it."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.bench.show import show, telling
from slipstream.cli.files import writable
from slipstream.errors import UnsupportedError, UsageError

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream bench serve model.slip --picture curve.svg
  slipstream bench serve model.slip --peer none --clients 1,8 --open 0     no peer, no overload
  slipstream bench serve model.slip --onnx model.onnx --open 3:600 --deadline 50ms

\b
The peer runs the package by the same engine, which compares servers; with --onnx it runs that file
by ONNX Runtime. Picture: .svg, .png or .html.
"""
PACKAGES = ("orjson", "pydantic", "starlette", "uvicorn", "uvloop")
OF_PEER = ("fastapi", "httptools")
OF_PICTURE = ("altair", "vl_convert")
OPEN_SECONDS = 60.0


def add_to(app: typer.Typer) -> None:
    """Make this a sub-command of `app`."""
    app.command("serve", epilog=EXAMPLES)(serve_model)


def serve_model(
    package: Annotated[Path, typer.Argument(help="Package from slipstream compile.")],
    onnx: Annotated[
        Path | None, typer.Option(help="File of the same model for a peer with ONNX Runtime.")
    ] = None,
    clients: Annotated[
        str, typer.Option(help="Numbers of clients in closed loops; bars need 1 and 8.")
    ] = "1,2,4,8,16",
    seconds: Annotated[float, typer.Option(help="Seconds of a turn of a closed loop.")] = 5.0,
    rounds: Annotated[int, typer.Option(help="Rounds; in each, every contender has one turn.")] = 5,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads of a batch; default: as the model was compiled."),
    ] = None,
    open_loop: Annotated[
        str,
        typer.Option("--open", help="Open loop, FACTOR[:SECONDS] of capacity: 2:60; 0: none."),
    ] = "2.0",
    deadline: Annotated[str, typer.Option(help="Deadline of requests in the open loop.")] = "100ms",
    peer: Annotated[
        str, typer.Option(help="Peer: fastapi, with one and two batches at a time; or none.")
    ] = "fastapi",
    json_file: Annotated[
        Path | None,
        typer.Option("--json", callback=writable, help="File for all measurements as JSON."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="File for a chart of latency over throughput.")
    ] = None,
) -> None:
    """Measure a server: throughput and latency by clients, what serving adds, and overload.

    A peer has its turns in the same run. Needs slipstream\\[serve], and fastapi for the peer.
    Nothing else should run on the machine.
    """
    wanted = [*PACKAGES, *(OF_PEER if peer == "fastapi" else ()), *(OF_PICTURE if picture else ())]
    _check_packages(wanted)
    from slipstream.bench.serve.measure import ServeSpec, measure
    from slipstream.bench.serve.table import as_json, caption, tables

    times, open_seconds = parse_open(open_loop)
    spec = ServeSpec(
        package=package,
        onnx=onnx,
        clients=parse_clients(clients),
        rounds=rounds,
        seconds=seconds,
        threads=threads,
        overload=times,
        overload_seconds=open_seconds,
        deadline=parse_deadline(deadline),
        peer=peer,
    )
    if picture is not None:
        from slipstream.bench.serve.picture import check_picture

        check_picture(picture)
    with telling("the servers start") as tell:
        report = measure(spec, tell)
    show(report.notes, tables(report), caption(report), json_file, as_json(report, asdict(spec)))
    if picture is not None:
        from slipstream.bench.serve.picture import draw

        draw(report, picture)


def parse_clients(text: str) -> tuple[int, ...]:
    """Return the sorted numbers of a text such as `1,2,8`; UsageError for other texts."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts or not all(part.isdecimal() for part in parts):
        raise UsageError(f"the clients are {text!r}; allowed: whole numbers such as 1,2,8")
    return tuple(sorted({int(part) for part in parts}))


def parse_open(text: str) -> tuple[float, float]:
    """Return the factor of capacity and the seconds of `2` or `2:60`; UsageError for others."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(?::(\d+(?:\.\d+)?))?", text.strip())
    if found is None:
        raise UsageError(f"the open loop is {text!r}; allowed: 2, 2:60 for 60 s, 0 for none")
    return float(found[1]), float(found[2] or OPEN_SECONDS)


def parse_deadline(text: str) -> float:
    """Return the seconds of a text such as `100ms` or `1.5s`; UsageError for other texts."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s)", text.strip())
    if found is None:
        raise UsageError(f"the deadline is {text!r}; allowed: 100ms, 1.5s")
    return float(found[1]) * (1e-3 if found[2] == "ms" else 1.0)


def _check_packages(names: list[str]) -> None:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise UnsupportedError(
            f"this benchmark needs {', '.join(missing)}, which is not installed:"
            " pip install 'slipstream[serve,forecast]' fastapi"
        )
