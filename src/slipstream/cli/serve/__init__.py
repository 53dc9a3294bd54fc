"""The command `slipstream serve`: serve compiled models over the network."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from slipstream.cli.options import check_output_file, split_list
from slipstream.cli.output import remark, stdout_console
from slipstream.cli.serve.options import (
    CoolDown,
    HostPython,
    Hosts,
    Idle,
    ReplicaRange,
    TargetLatency,
    TargetOpen,
    parse_replicas,
    split_hosts,
)
from slipstream.errors import UnsupportedError, UsageError
from slipstream.units import parse_duration

if TYPE_CHECKING:
    from slipstream.serve.access import Tls
    from slipstream.serve.server import ListenAddresses, ServeOptions

EXAMPLES = """\b
[bold]Examples[/bold]
  slipstream serve model.slip
  slipstream serve resnet=resnet50.slip detector.slip --port 9000
  slipstream serve resnet=old.slip resnet=new.slip@10%     a canary: version 2 receives a tenth
  slipstream serve model.slip --device cuda:0,cuda:1       a process on each GPU
  slipstream serve model.slip --host 0.0.0.0 --token-file tokens --access-log -
  slipstream serve model.slip --replicas 0:4 --idle 5m     as many servers as the load needs
  slipstream serve model.slip -H a,b --replicas 2:6        on hosts behind ssh, with one address

Clients of the Open Inference Protocol, version 2, such as tritonclient, can connect: over REST at
--port, and over gRPC at --grpc-port.

[bold]Exit code[/bold]: 1 if a model cannot be served, 2 for wrong usage.
"""
REQUESTS = "Requests and connections"
ACCESS = "Access"


def add_to(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("serve", epilog=EXAMPLES)(serve)


# over budget: a parameter for each option of the command
def serve(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="Packages: file.slip, name=file.slip, or name=file.slip@10% for 10% of requests.",
        ),
    ],
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port for REST; 0 for any free port.")
    ] = 8000,
    grpc_port: Annotated[
        int,
        typer.Option(min=-1, max=65535, help="Port for gRPC; 0 for any free port, -1 for no gRPC."),
    ] = 8001,
    replicas: ReplicaRange = None,
    device: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Devices, one process on each: cpu, cuda or cuda:0,cuda:1; auto: as compiled."
            " Serving on GPUs was never run on a GPU.",
        ),
    ] = "auto",
    threads: Annotated[
        int | None,
        typer.Option(
            min=1, show_default="as compiled", help="Number of threads that compute a batch."
        ),
    ] = None,
    timeout: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            rich_help_panel=REQUESTS,
            help="Deadline of a request; the request itself may set an earlier one.",
        ),
    ] = "10s",
    delay: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            rich_help_panel=REQUESTS,
            help="Longest time that a request waits for others to join its batch.",
        ),
    ] = "2ms",
    keep_alive: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            rich_help_panel=REQUESTS,
            help="Time after which a connection without requests is closed.",
        ),
    ] = "75s",
    notice: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            rich_help_panel=REQUESTS,
            show_default="5s if other machines reach --host, else 0s",
            help="Time after SIGTERM in which the server still answers, but reports 'not ready'.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", rich_help_panel=ACCESS, help="File of accepted tokens, one per line."
        ),
    ] = None,
    everybody: Annotated[
        bool,
        typer.Option(
            "--everybody",
            rich_help_panel=ACCESS,
            help="Accept requests without a token from other hosts.",
        ),
    ] = False,
    tls_cert: Annotated[
        Path | None,
        typer.Option(metavar="FILE", rich_help_panel=ACCESS, help="Certificate in PEM."),
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=ACCESS,
            help="Private key of the server's certificate in PEM.",
        ),
    ] = None,
    access_log: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=ACCESS,
            help="File for the log, which has a JSON line per request; - for stderr.",
        ),
    ] = None,
    hosts: Hosts = None,
    idle: Idle = "5m",
    target_open: TargetOpen = 4.0,
    target_latency: TargetLatency = None,
    cool_down: CoolDown = "1m",
    python: HostPython = None,
) -> None:
    """Serve compiled models over REST and gRPC.

    SIGTERM and Ctrl-C end the server after it has answered the open requests.
    """
    try:
        import uvloop

        from slipstream.serve.access import Tokens, is_loopback, read_tokens
        from slipstream.serve.repository import parse_model_specs
        from slipstream.serve.server import ServeOptions, Server
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("slipstream"):
            raise
        raise UnsupportedError(
            f"serving needs the package {error.name}; pip install 'slipstream[serve]'"
        ) from error
    if not (is_loopback(host) or token_file or everybody):
        raise UsageError(
            f"other machines reach {host}: add --token-file FILE with their tokens, or --everybody"
        )
    host_names = split_hosts(hosts)
    least, most = parse_replicas(replicas, len(host_names))
    has_gateway = bool(host_names) or ":" in (replicas or "")
    options = ServeOptions(
        models=parse_model_specs(models),
        host=host,
        port=port,
        grpc_port=None if grpc_port < 0 else grpc_port,
        replicas=1 if has_gateway else least,
        devices=split_list(device),
        threads=threads,
        seconds=_at_least(0.001, timeout, "timeout"),
        delay=parse_duration(delay, "delay"),
        keep_alive=round(_at_least(1, keep_alive, "keep-alive")),
        tokens=Tokens() if token_file is None else read_tokens(token_file),
        tls=_tls(tls_cert, tls_key),
        access_log=_opened(access_log),
        notice=None if notice is None else parse_duration(notice, "notice", bare_seconds=True),
    )
    _log_to(sys.stderr)
    if has_gateway:
        from slipstream.cli.serve.gateway import ReplicaArguments, run_gateway
        from slipstream.serve.gateway.scaling import ScalingRules

        latency = None if target_latency is None else parse_duration(target_latency, "latency")
        rules = ScalingRules(
            min=least,
            max=most,
            target_open=target_open,
            target_latency=latency,
            idle_seconds=parse_duration(idle, "idle time"),
            down_seconds=parse_duration(cool_down, "cool-down time"),
        )
        run_gateway(options, ReplicaArguments(hosts=host_names, rules=rules, python=python))
        return
    try:
        uvloop.run(Server(options, partial(_print_addresses, options)).run())
    except OSError as error:
        raise UsageError(error.strerror or str(error)) from error


def _at_least(least: float, text: str, name: str) -> float:
    seconds = parse_duration(text, name, bare_seconds=True)
    if seconds < least:
        raise UsageError(f"the {name} is {text!r}; allowed: {least:g}s or more")
    return seconds


def _log_to(stream: TextIO) -> None:
    """Write the server's log messages to a stream; one reports, for example, a reloaded model."""
    import logging

    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("slipstream: %(message)s"))
    logger = logging.getLogger("slipstream")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)


def _print_addresses(options: ServeOptions, addresses: ListenAddresses) -> None:
    console = stdout_console()
    scheme = "http" if options.tls is None else "https"
    console.print(f"REST   {scheme}://{addresses.rest}/v2", highlight=False)
    if addresses.grpc is not None:
        console.print(f"gRPC   {addresses.grpc}", highlight=False)
    for model in options.models:
        console.print(f"model  {model.name}, version {model.version}", highlight=False)
    console.file.flush()


def _tls(certificate: Path | None, key: Path | None) -> Tls | None:
    from slipstream.serve.access import Tls

    if (certificate is None) != (key is None):
        raise UsageError("one of --tls-cert and --tls-key is missing; TLS needs both")
    return None if certificate is None or key is None else Tls(certificate, key)


def _opened(path: str | None) -> TextIO | None:
    if path is None or path == "-":
        return sys.stderr if path else None
    check_output_file(Path(path))
    remark(f"access log: {path}", style="")
    return Path(path).open("a", encoding="utf-8")
