"""The gateway of `slipstream serve --replicas MIN:MAX` and `-H a,b`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.cli.output import remark, stdout_console
from slipstream.errors import UnsupportedError, UsageError
from slipstream.serve.gateway.dispatcher import DispatchLimits
from slipstream.serve.gateway.scaling import ScalingRules
from slipstream.serve.gateway.server import Gateway, GatewayOptions
from slipstream.serve.gateway.starters import LocalStarter, ReplicaStarter
from slipstream.serve.server import ListenAddresses, ServeOptions

# Hosts that do not start a replica, before the command gives up.
_MOST_ATTEMPTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaArguments:
    """The options that concern replicas.

    Args:
        hosts: Hosts behind ssh; empty for this host.
        rules: Limits and targets of the number of replicas.
        python: Path of Python on the hosts; None for the same path as here.
    """

    hosts: Sequence[str]
    rules: ScalingRules
    python: str | None


def run_gateway(options: ServeOptions, replicas: ReplicaArguments) -> None:
    """Serve through a gateway until a signal; blocks.

    Args:
        options: Options of the server, of which the gateway and the replicas have their parts.
        replicas: Options that concern replicas.

    Raises:
        UsageError: no replica can serve the models, or the address cannot be listened on.
        UnsupportedError: a package is missing.
    """
    import uvloop

    starter = _starter(options, replicas)
    gateway_options = GatewayOptions(
        models=options.models,
        starter=starter,
        rules=replicas.rules,
        host=options.host,
        port=options.port,
        grpc_port=options.grpc_port,
        limits=DispatchLimits(seconds=options.seconds, waiting=options.waiting),
        attempts=min(max(len(replicas.hosts), 1), _MOST_ATTEMPTS),
        tokens=options.tokens,
        tls=options.tls,
        access_log=options.access_log,
        notice=options.notice,
        keep_alive=options.keep_alive,
        tell=lambda words: remark(words, style=""),
    )
    try:
        uvloop.run(_run(gateway_options))
    except OSError as error:
        raise UsageError(error.strerror or str(error)) from error


async def _run(options: GatewayOptions) -> None:
    console = stdout_console()

    def show(addresses: ListenAddresses) -> None:
        server = f"{'http' if options.tls is None else 'https'}://{addresses.rest}"
        console.print(f"REST   {server}/v2", highlight=False)
        if addresses.grpc is not None:
            console.print(f"gRPC   {addresses.grpc}", highlight=False)
        console.print(f"state  {server}/replicas", highlight=False)
        for model in options.models:
            console.print(f"model  {model.name}, version {model.version}", highlight=False)
        console.file.flush()

    await Gateway(options, show).run()


def _starter(options: ServeOptions, replicas: ReplicaArguments) -> ReplicaStarter:
    of_each: dict[str, object] = {
        "threads": options.threads, "seconds": options.seconds, "delay": options.delay
    }  # fmt: skip
    has_grpc = options.grpc_port is not None
    if not replicas.hosts:
        return LocalStarter(sys.executable, of_each, options.devices, has_grpc=has_grpc)
    try:
        from slipstream.cluster.engines.ssh_host import SshHost
        from slipstream.serve.gateway.ssh_starter import SshStarter
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("slipstream"):
            raise
        raise UnsupportedError(
            f"replicas on hosts need the package {error.name}; pip install 'slipstream[cluster]'"
        ) from error
    hosts = [SshHost(name=name.rpartition("@")[2], login=name) for name in replicas.hosts]
    python = replicas.python or sys.executable
    of_each["devices"] = list(options.devices)
    return SshStarter(hosts, python, of_each, has_grpc=has_grpc)
