"""Launcher with horovodrun's options: `python -m slipstream.horovod.run -np 4 python train.py`

The launcher translates the options into options of `slipstream run`, and then replaces itself by
that command. A warning names options that have no effect in Slipstream; options for features that
do not exist yet end the program.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from slipstream.errors import UsageError
from slipstream.settings.variables import variables

# Options that `slipstream run` has under the same name.
_PASSED_ON = (
    *("--num-proc", "--hosts", "--hostfile", "--ssh-port", "--ssh-identity-file"),
    "--output-filename",
)

# Options with a value: option, type, and variable that it sets on every rank.
_VARIABLES = (
    ("--fusion-threshold-mb", int, "HOROVOD_FUSION_THRESHOLD"),
    ("--cycle-time-ms", float, "HOROVOD_CYCLE_TIME"),
    ("--cache-capacity", int, "HOROVOD_CACHE_CAPACITY"),
    ("--timeline-filename", str, "HOROVOD_TIMELINE"),
    ("--stall-check-warning-time-seconds", float, "HOROVOD_STALL_CHECK_TIME_SECONDS"),
    ("--stall-check-shutdown-time-seconds", float, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"),
    ("--start-timeout", float, variables()["connect_timeout_seconds"].name),
    ("--gloo-timeout-seconds", float, variables()["connect_timeout_seconds"].name),
    ("--network-interfaces", str, variables()["iface"].name),
    ("--network-interface", str, variables()["iface"].name),
)

_BUILD = """\
Slipstream, with Horovod's API over an engine of its own:

Available Frameworks:
    [ ] TensorFlow
    [X] PyTorch
    [ ] MXNet

Available Controllers and Tensor Operations:
    [X] Slipstream
    [ ] MPI
    [ ] Gloo
    [ ] NCCL
    [ ] DDL
    [ ] CCL
"""

# Options without a value, and the variable that each sets to 1 on every rank.
_FLAGS = (
    ("--no-stall-check", "HOROVOD_STALL_CHECK_DISABLE"),
    ("--timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES"),
)

_WITHOUT_EFFECT = (
    *("--gloo", "--mpi", "--tcp", "--disable-cache", "--verbose", "--stall-check"),
    *("--hierarchical-allreduce", "--no-hierarchical-allreduce"),
    *("--hierarchical-allgather", "--no-hierarchical-allgather"),
    *("--torus-allreduce", "--no-torus-allreduce", "--autotune", "--no-autotune"),
    *("--no-timeline-mark-cycles", "--mpi-threads-disable", "--no-mpi-threads-disable"),
    *("--log-with-timestamp", "--log-without-timestamp", "--prefix-output-with-timestamp"),
    *("--log-hide-timestamp", "--no-log-hide-timestamp", "--jsrun"),
)
_SHORT = {"--prefix-output-with-timestamp": ("-prefix-timestamp",)}
_WITHOUT_EFFECT_VALUES = (
    *("--autotune-log-file", "--autotune-warmup-samples", "--autotune-steps-per-sample"),
    *("--autotune-bayes-opt-max-samples", "--autotune-gaussian-process-noise"),
    *("--mpi-args", "--binding-args", "--num-nccl-streams", "--thread-affinity", "--log-level"),
)
_NOT_SUPPORTED = (
    *("--min-np", "--min-num-proc", "--max-np", "--max-num-proc", "--slots-per-host"),
    *("--elastic-timeout", "--reset-limit", "--host-discovery-script"),
    *("--blacklist-cooldown-range", "--config-file"),
)


def main(arguments: Sequence[str]) -> None:
    """Replace this process by `slipstream run`.

    Args:
        arguments: Command line in horovodrun's form.
    """
    try:
        command, without_effect = command_for(arguments)
    except UsageError as error:
        sys.exit(f"slipstream.horovod.run: {error}")
    if without_effect:
        print(
            f"slipstream.horovod.run: options without effect here: {', '.join(without_effect)}",
            file=sys.stderr,
        )
    os.execv(sys.executable, [sys.executable, "-m", "slipstream.cli", "run", *command])


def command_for(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the arguments for `slipstream run`, and the horovodrun options without effect there.

    Args:
        arguments: Command line in horovodrun's form.

    Raises:
        UsageError: An option is not supported, or there is no command.
    """
    values = vars(_parser().parse_args(list(arguments)))
    for option in _NOT_SUPPORTED:
        if values[_key(option)] is not None:
            raise UsageError(f"{option} is not supported yet; docs/horovod.md lists what is")
    if not values["command"]:
        raise UsageError("the command is missing; an example: -np 2 python train.py")
    command: list[str] = []
    for option in _PASSED_ON:
        if values[_key(option)] is not None:
            command += [option, str(values[_key(option)])]
    for option, kind, name in _VARIABLES:
        value = values[_key(option)]
        if value is not None:
            scaled = value << 20 if option == "--fusion-threshold-mb" else value
            exact = "=" if option.startswith("--network-interface") else ""
            text = exact + scaled if kind is str else format(scaled, ".12g")
            command += ["--env", f"{name}={text}"]
    for option, name in _FLAGS:
        if values[_key(option)]:
            command += ["--env", f"{name}=1"]
    ignored_options = (*_WITHOUT_EFFECT, *_WITHOUT_EFFECT_VALUES)
    without_effect = [option for option in ignored_options if values[_key(option)]]
    return [*command, "--", *values["command"]], without_effect


class _PrintBuild(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        print(_BUILD)
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m slipstream.horovod.run",
        description="Start the ranks of a program, with horovodrun's options.",
        epilog="example: python -m slipstream.horovod.run -np 4 -H a:2,b:2 python train.py",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("-np", "--num-proc", type=int, help="total number of processes in the job")
    add("-H", "--hosts", help="hosts and their numbers of processes, such as a:2,b:2")
    add("-hostfile", "--hostfile", help="file of hosts, one per line, such as: a slots=2")
    add("-p", "--ssh-port", type=int, help="port of sshd on the hosts")
    add("-i", "--ssh-identity-file", help="private key file for ssh")
    add("--output-filename", help="folder for files with the output of each rank")
    add("-v", "--version", action="version", version=f"slipstream {version('slipstream')}")
    add("-cb", "--check-build", action=_PrintBuild, nargs=0, help="print the available features")
    for option, kind, name in _VARIABLES:
        add(option, type=kind, help=f"value of the variable {name} on every rank")
    for option, name in _FLAGS:
        add(option, action="store_true", help=f"set the variable {name} to 1 on every rank")
    for option in _WITHOUT_EFFECT:
        add(option, *_SHORT.get(option, ()), action="store_true", help=argparse.SUPPRESS)
    for option in (*_WITHOUT_EFFECT_VALUES, *_NOT_SUPPORTED):
        add(option, help=argparse.SUPPRESS)
    add("command", nargs=argparse.REMAINDER, help="program to run and its arguments")
    return parser


def _key(option: str) -> str:
    """Return the name under which argparse stores an option."""
    return option.lstrip("-").replace("-", "_")


if __name__ == "__main__":
    main(sys.argv[1:])
